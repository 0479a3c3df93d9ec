"""Verify a dataset over a cluster: every block of every file, and what is there that should not be.

ags1.dataset.verification   --entries-->  engine  --tasks authenticate-->  what failed, and how
judges, lists, compares
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import replace

from ags1.dataset.entries import Entry
from ags1.dataset.reports import Problem
from ags1.dataset.verification import verify
from ags1.dataset.versions import latest_number, read_version
from ags1.dataset.views import View
from ags1.dataset.worker import Outcome as Done
from ags1.spark._decrypt_work import VerifyWork, packed
from ags1.spark._engine import Engine, Outcome, check_arguments
from ags1.spark._errors import error_of
from ags1.spark._locations import locate
from ags1.spark._planning import PART_BYTES, Unit
from ags1.spark._results import Recorder, Result
from ags1.spark._sealing import kms_client, kms_reference
from ags1.spark.decryption import open_dataset, sealer_of
from ags1.spark.encryption import by_file, joined
from ags1.storage import Location, list_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Progress = bool | Callable[[int, int | None], object]

__all__ = ["verify_files"]


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
    part_bytes : int
        Plaintext of a big file's objects that one task verifies.
    parallelism, progress
        As :func:`~ags1.spark.encrypt_files`.

    Returns
    -------
    Result
        A row with the status "error" for each file that is missing, truncated, extended, replaced, swapped, damaged
        or unreadable, and for each foreign file; its error begins with that word. Objects that no version names, which
        interrupted runs and tasks that were repeated leave, have the status "left out".

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
    check_arguments(spark, parallelism, part_bytes)
    started = time.monotonic()
    recorder = Recorder(spark, "verify")
    with open_dataset(here, kms, expected_version, key_id) as dataset:
        work = VerifyWork(here, dataset.classes, kms)
        engine = Engine(
            spark, work, parallelism=parallelism, progress=progress, seal=sealer_of(dataset, kms), part_bytes=part_bytes
        )
        client = kms_client(kms)
        verifying = _Verifying(engine, recorder)
        view = View.of(here, read_version(here, dataset.version), client)
        report = verify(view, client, perform=verifying.perform)
        recorder.result.version = dataset.version
        recorder.add(verifying.row(here, each) for each in report.problems)
    return recorder.close(time.monotonic() - started)


def _is_table(location: Location) -> bool:
    """Whether a name is that of an Iceberg table."""
    if location.path.endswith(".metadata.json"):
        return True
    if latest_number(location):
        return False
    try:
        return any(name.endswith(".metadata.json") for name in list_names(location.join("metadata")))
    except (FileNotFoundError, NotADirectoryError):
        return False


class _Verifying:
    """Has entries verified by tasks, and makes rows of what came of them."""

    def __init__(self, engine: Engine, recorder: Recorder) -> None:
        self._engine = engine
        self._recorder = recorder
        self._entries: dict[str, Entry] = {}
        # Of files that failed: what they are is judged when all others are known.
        self._failed: dict[str, Outcome] = {}

    def perform(self, entries: Iterator[Entry]) -> Generator[Done, None, None]:
        """Have entries verified; see :func:`ags1.dataset.verification.verify`."""
        with closing(self._units(entries)) as units, closing(self._engine.run(units)) as waves:
            for rows in waves:
                for path, each in by_file(rows).items():
                    entry = self._entries.pop(path)
                    row = joined(each, entry.plaintext_length)
                    if row.status == "error":
                        self._failed[path] = row
                        yield Done(entry, None, error_of(row), row.seconds)
                    else:
                        self._recorder.add([row])
                        yield Done(entry, ((path, row.plaintext_length),), None, row.seconds)

    def _units(self, entries: Iterator[Entry]) -> Generator[Unit, None, None]:
        for entry in entries:
            self._entries[entry.path] = entry
            yield from _cut(entry, self._engine.part_bytes)

    def row(self, location: Location, problem: Problem) -> Outcome:
        """A row for what is wrong."""
        found = self._failed.get(problem.path) or Outcome(problem.path, location.join(problem.path).text)
        found.error, found.kind = f"{problem.kind}: {problem.detail}", problem.kind
        found.status = "left out" if problem.is_harmless else "error"
        return found


def _cut(entry: Entry, part_bytes: int) -> Iterator[Unit]:
    """Units of a file: some of its parts each, about so many bytes of plaintext."""
    whole = entry.plaintext_length
    if len(entry.parts) == 1 or whole <= part_bytes:
        yield Unit(entry.path, whole, packed(entry))
        return
    start = size = first = 0
    for index, part in enumerate(entry.parts, 1):
        size += part.plaintext_length
        if size >= part_bytes or index == len(entry.parts):
            yield Unit(entry.path, size, packed(replace(entry, parts=entry.parts[first:index])), start, whole)
            start, size, first = start + size, 0, index
