"""What workers do with the files of an Iceberg table: authenticate each with the key that the table's manifests have.

The key metadata reach a worker sealed, as the units do whose work says so, and stay in its memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ags1.iceberg.file_io import ALLOW_PLAINTEXT, LENGTH_POLICY, TABLE_KEY_ID, EncryptedFileIO
from ags1.iceberg.file_keys import KnownFile
from ags1.iceberg.table_verification import Checked, FileChecker
from ags1.iceberg.table_walk import TableFile
from ags1.keys import KeyMetadata
from ags1.spark._engine import Outcome
from ags1.spark._parquet_work import LEFT_OUT, Advance, failed, timed
from ags1.spark._planning import Unit
from ags1.spark._sealing import of_process

Tell = Callable[[int, int], None]

__all__ = ["Opening", "TableVerifying", "outcome_of", "unit_of"]


@dataclass(frozen=True, repr=False)
class Opening:
    """How the files of a table are opened, as it travels; see :func:`ags1.iceberg.open_table`.

    The properties are for PyIceberg's FileIO. They may hold credentials of the storage, so no repr shows values.
    """

    properties: tuple[tuple[str, str], ...] = ()
    length_policy: str = "trusted"
    allow_plaintext: bool = False
    table_key_id: str | None = None

    def file_io(self, kms: Any = None) -> EncryptedFileIO:
        """A FileIO for this process; without a KMS it opens files whose keys are known."""
        given = dict(self.properties)
        given[LENGTH_POLICY] = self.length_policy
        given[ALLOW_PLAINTEXT] = "true" if self.allow_plaintext else "false"
        if self.table_key_id is not None:
            given[TABLE_KEY_ID] = self.table_key_id
        return EncryptedFileIO(given, kms=kms)

    def __repr__(self) -> str:
        names = ", ".join(name for name, _ in self.properties) or "none"
        return f"Opening(properties {names}, values not shown)"


@dataclass
class TableVerifying:
    """Authenticates files of a table, one after the other; `threads` are for each file."""

    opening: Opening
    threads: int = 1
    verb: str = "verify"

    def run(self, units: list[Unit], tell: Tell) -> Iterator[Outcome]:
        """Check files; an error is an outcome."""
        for unit in units:
            yield timed(self._one, unit, tell)

    def _one(self, unit: Unit, advance: Advance) -> Outcome:
        checker: FileChecker = of_process(
            (self.opening, self.threads), lambda: FileChecker(self.opening.file_io(), self.threads)
        )
        file = _file_of(unit)
        return outcome_of(unit.path, unit.size, checker.check(file, advance), file.conflict)


def unit_of(file: TableFile) -> Unit:
    """The unit for a file. It contains the file's key, so it must travel sealed."""
    known = file.known
    key = None if known.key_metadata is None else known.key_metadata.encode()
    about = (known.kind, known.file_format, key, known.length_hint, known.encrypted_table)
    return Unit(file.path, file.size, (about, file.vectors, file.conflict))


def _file_of(unit: Unit) -> TableFile:
    (kind, form, key, *more), vectors, conflict = unit.data
    file = TableFile(KnownFile(unit.path, kind, form, None if key is None else KeyMetadata.decode(key), *more))
    file.vectors, file.conflict = vectors, conflict
    return file


def outcome_of(path: str, size: int, checked: Checked, conflict: str | None = None) -> Outcome:
    """What checking a file gave, as a row; `conflict` is how files above contradict each other about it."""
    fault = checked.fault
    if fault is None and conflict is not None:
        from ags1.errors import FormatError

        fault = FormatError(f"{path}: {conflict}")
    outcome = Outcome(path) if fault is None else failed(path, fault)
    outcome.plaintext_length = outcome.file_length = size
    outcome.detail = {"blocks": checked.blocks, "modules": checked.modules, "bytes": checked.bytes}
    if fault is None and checked.plaintext:
        outcome.status = LEFT_OUT
        outcome.error = "it is not encrypted, which was allowed: only its size was looked at"
    elif fault is None and checked.problems:
        outcome.error = f"problem: {'; '.join(checked.problems)}"
    return outcome
