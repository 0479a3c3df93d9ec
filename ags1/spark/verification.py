"""Verify a dataset over a cluster: every block of every file, and what is there that should not be.

manifest  --units-->  tasks authenticate  -->  what failed is judged on the driver: truncated, replaced, swapped...
manifest  --merge with a listing-->  what is foreign
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing

import ags1.dataset._read as _read
import ags1.errors as errors
from ags1.dataset._dataset import Dataset
from ags1.dataset._manifest import sort_key
from ags1.dataset._tree import Filter
from ags1.dataset.reports import Problem
from ags1.spark._decrypt_work import DecryptWork
from ags1.spark._engine import Engine, Outcome
from ags1.spark._locations import Location, locate
from ags1.spark._planning import PART_BYTES, Unit, cut
from ags1.spark._results import Recorder, Result
from ags1.spark._sealing import kms_reference
from ags1.spark._storage import Storage
from ags1.spark.decryption import open_dataset, sealer_of, stored_place
from ags1.spark.encryption import by_file, joined

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Progress = bool | Callable[[int, int | None], object]

__all__ = ["verify_files"]

# Below this, a file that failed is read once more on the driver, to say what is wrong with it.
_JUDGED = 64 << 20
# Files that are no file of theirs are compared with all others; no more of them than this.
_SUSPECTS = 1000


def verify_files(
    spark: Any,
    source: str | os.PathLike[str],
    *,
    kms: str,
    key_id: str | None = None,
    expected_version: int | None = None,
    part_bytes: int = PART_BYTES,
    parallelism: int | None = None,
    progress: Progress = True,
) -> Result:
    """Authenticate every block of every file of a dataset, and compare the tree with the manifest.

    Parameters
    ----------
    spark : SparkSession
        Classic or Connect.
    source : path or URL
        A dataset; or an encrypted Iceberg table, by its ``metadata.json`` or by its directory, which is handed to
        :func:`~ags1.spark.verify_table`.
    kms : str
        What :func:`ags1.kms.load` takes; each worker makes its own client from it.
    key_id : str, optional
        The master key that it must be under.
    expected_version : int, optional
        The version that it must have: nothing else shows that a whole directory was put back from an older copy.
    part_bytes, parallelism, progress
        As :func:`~ags1.spark.encrypt_files`.

    Returns
    -------
    Result
        A row with the status "error" for each file that is missing, truncated, extended, replaced, swapped, damaged,
        or foreign; its error begins with that word.

    Raises
    ------
    FileNotFoundError
        There is neither a dataset nor a table.
    KeyAccessError, FormatError, AuthenticationError
        The dataset itself cannot be opened.
    """
    kms = kms_reference(kms)
    here = locate(source, spark)
    if _is_table(here):
        if expected_version is not None:
            raise ValueError("expected_version is of datasets: a table is pinned by the name of its metadata.json")
        from ags1.spark.iceberg import verify_table

        return verify_table(
            spark, os.fspath(source), kms=kms, table_key_id=key_id, parallelism=parallelism, progress=progress
        )
    started = time.monotonic()
    recorder = Recorder(spark, "verify")
    with open_dataset(here, kms, expected_version, key_id) as dataset:
        work = DecryptWork(here, None, "verify")
        engine = Engine(spark, work, parallelism=parallelism, progress=progress, seal=sealer_of(dataset, kms))
        recorder.result.version = dataset.version
        _Verifying(dataset, here, engine, recorder, part_bytes).run()
    return recorder.close(time.monotonic() - started)


def _is_table(location: Location) -> bool:
    """Whether a name is that of an Iceberg table."""
    if location.root.endswith(".metadata.json"):
        return True
    storage = Storage(location)
    if "_ags1" in storage.names(""):
        return False
    return any(name.endswith(".metadata.json") for name in storage.names("metadata"))


class _Verifying:
    def __init__(
        self, dataset: Dataset, location: Location, engine: Engine, recorder: Recorder, part_bytes: int
    ) -> None:
        self._dataset = dataset
        self._view = dataset._view()
        self._location = location
        self._engine = engine
        self._recorder = recorder
        self._part_bytes = part_bytes
        self._suspects: dict[str, int] = {}
        self._held: dict[str, Outcome] = {}

    def run(self) -> None:
        """Verify all."""
        with closing(self._engine.run(self._units())) as waves:
            for outcomes in waves:
                for path, each in by_file(outcomes).items():
                    damaged = [one for one in each if one.status == "error"]
                    outcome = joined(each, None)
                    if damaged:
                        self._judge(path, outcome, len(damaged), len(each))
                    else:
                        outcome.status = "ok"
                        self._recorder.add([outcome])
        self._strangers()
        self._name_origins()
        self._recorder.add(self._held[path] for path in sorted(self._held, key=sort_key))

    def _units(self) -> Iterator[Unit]:
        for entry in self._view.manifest.entries():
            stored = stored_place(self._dataset, entry.path)
            data = {"key": entry._key_metadata, "length": entry.file_length, "stored": stored}
            yield from cut(Unit(entry.path, entry.plaintext_length, data), self._part_bytes)

    def _hold(self, problem: Problem, outcome: Outcome | None = None) -> None:
        """Keep a row until it is known whether the file is another one of this dataset."""
        row = outcome or Outcome(problem.path, self._location.url(problem.path))
        row.status, row.error, row.kind = "error", f"{problem.kind}: {problem.detail}", problem.kind
        if len(self._suspects) >= _SUSPECTS:
            self._recorder.add([row])
        else:
            self._held[problem.path] = row

    def _judge(self, path: str, outcome: Outcome, failed: int, units: int) -> None:
        entry = self._dataset.files[path]
        kind = getattr(errors, outcome.kind or "", None)
        error: Exception = kind("") if isinstance(kind, type) else OSError(outcome.error)
        if outcome.kind == "FileNotFoundError":
            error = FileNotFoundError(outcome.error)
        if 0 < failed < units:
            text = f"{failed:,} of its {units:,} ranges are damaged: {outcome.error}"
            self._hold(Problem(path, "damaged", text), outcome)
        elif entry.plaintext_length <= _JUDGED or isinstance(error, (OSError, errors.TruncatedError)):
            problem, length = _read._judge(self._view, entry, error)
            if length is not None and len(self._suspects) < _SUSPECTS:
                self._suspects[path] = length
            self._hold(problem, outcome)
        else:
            self._hold(Problem(path, "replaced", f"none of it is authentic: {outcome.error}"), outcome)

    def _strangers(self) -> None:
        """What is in the tree and not in the manifest, by a merge of the two."""
        known = (entry.path for entry in self._view.manifest.entries())
        name = next(known, None)
        for found in Storage(self._location).walk(Filter(), self._skipped):
            key = sort_key(found.path)
            while name is not None and sort_key(name) < key:
                name = next(known, None)
            if name == found.path or found.error is not None:
                continue
            text = f"{found.path} is in no manifest: it was added, or left by a run that was interrupted"
            if len(self._suspects) < _SUSPECTS:
                self._suspects[found.path] = found.size
            self._hold(Problem(found.path, "foreign", text))

    def _skipped(self, path: str, reason: str) -> None:
        self._recorder.result.notes.append((path, reason))

    def _name_origins(self) -> None:
        for path, origin in _read._origins(self._view, self._suspects).items():
            row = self._held.get(path)
            if row is None:
                continue
            if row.kind == "foreign":
                row.error = f"foreign: {path} is a copy of {origin}, under a name of no file"
            else:
                row.error, row.kind = f"swapped: {path} is the file {origin}, put in its place", "swapped"
