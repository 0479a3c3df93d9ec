"""Finished work of a conversion, so that the next run resumes a killed one.

    <metadata directory>/ags1-conversion/<run>/run.json           what the run does, and its wrapped key
    <metadata directory>/ags1-conversion/<run>/files-*.sealed     files that are moved and durable, with their keys
    <metadata directory>/ags1-conversion/<run>/planned-*.sealed   before, names of new files that cannot be listed

:mod:`ags1.work.records` says how they are sealed, and when they are believed. A record is written after its files
are durable, so every file in it is complete. A conversion that has no key has no journal.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ags1.iceberg.conversion.work import FileResult
from ags1.iceberg.keys.wrapped_key import WrappedKey
from ags1.storage import Location, make_parent, open_output, read_whole, remove_directories
from ags1.work import records
from ags1.work.records import FoundRun, OpenedRun, Refused, RunName, RunRecords, RunSeal

DIRECTORY = "ags1-conversion"
"""Below the table's metadata directory."""

KIND, MAINTENANCE, EXPIRY = "table conversion", "table maintenance", "table expiry"
_RUN, _MAX_RUN = "run.json", 1 << 20
_MOVED, _PLANNED = "files-", "planned-"
_FILES_AT_ONCE, _NAMES_AT_ONCE = 16, 100_000


class Records:
    """Writes records of moved files into the directory of a run; others may write there too. Safe to share."""

    def __init__(self, records: RunRecords) -> None:
        self._records = records
        self._waiting: list[FileResult] = []
        self._lock = threading.Lock()

    def add(self, result: FileResult) -> None:
        """Add a moved file."""
        with self._lock:
            self._waiting.append(result)
            is_enough = len(self._waiting) >= _FILES_AT_ONCE
        if is_enough:
            self.flush()

    def flush(self) -> None:
        """Write all added files."""
        with self._lock:
            results, self._waiting = self._waiting, []
        # Without the lock: other files are moved during the request.
        if results:
            self._records.add(_MOVED, [each.to_json() for each in results])


@dataclass(frozen=True)
class Journal:
    """Where a run keeps its records, and its wrapped key. It has no secret, and can be sent to another process."""

    directory: Location = field(repr=False)
    name: RunName
    key: WrappedKey

    @classmethod
    def create(cls, journals: Location, table: str, key: WrappedKey, kind: str = KIND) -> Journal:
        """A journal under a new name; `table` is the UUID of the table. Nothing is written."""
        name = RunName(kind, table, str(uuid.uuid4()))
        return cls(journals.join(name.run), name, key)

    def open(self, kms: Any) -> RunSeal:
        """The seal of the run; a KeyAccessError if the KMS refused."""
        return RunSeal(self.key.unwrap(kms), self.name)

    def begin(self, seal: RunSeal, purpose: Mapping[str, Any]) -> None:
        """Write what comes first. A later run with the same purpose takes over the files of this one."""
        self._records(seal).begin(self.key.to_json(), purpose)

    def plan(self, seal: RunSeal, targets: list[str]) -> None:
        """Write the names of files before they are made, for `clean`: outside of the table, it does not list."""
        for begin in range(0, len(targets), _NAMES_AT_ONCE):
            self._records(seal).add(_PLANNED, targets[begin : begin + _NAMES_AT_ONCE])

    def records(self, seal: RunSeal) -> Records:
        """What adds records to it."""
        return Records(self._records(seal))

    def _records(self, seal: RunSeal) -> RunRecords:
        return RunRecords(self.directory, seal, durable=True)


def moved(run: OpenedRun, refused: Refused) -> list[FileResult]:
    """The files that an unfinished run has moved; `refused` is told of records that are not authentic."""
    return run.items(_MOVED, FileResult.from_json, refused)


def planned(run: OpenedRun, refused: Refused) -> list[str]:
    """The names of files that it wrote before it made them."""
    return run.items(_PLANNED, str, refused)


def touch(run: OpenedRun) -> None:
    """Add an empty record to an unfinished run, so that `clean` sees that its files are needed."""
    RunRecords(run.found.directory, run.seal, durable=True).add("needed-", [])


def below_metadata(directory: Location) -> Location:
    """The directory of all journals. It is no link, and its parent is none: the table's metadata directory."""
    if not directory.is_local or directory.root is not None:
        return directory
    above, *names = directory.path.rstrip("/").rsplit("/", 2)
    return Location(above or "/").as_root().join(*names)


def announce_maintenance(journals: Location, table: str) -> Location:
    """Tell conversions of the table, and `clean`, that maintenance is under way; return what :func:`remove_run` ends.

    Nobody vouches for it, so it prevents nothing.
    """
    run = journals.join(str(uuid.uuid4()))
    place = run.join(_RUN)
    make_parent(place)
    with open_output(place) as output:
        output.write(json.dumps({"kind": MAINTENANCE, "owner": table}).encode("ascii"))
        output.commit(durable=False)
    return run


def claimed_kind(found: FoundRun) -> str:
    """The kind that a run claims; nobody vouches for it."""
    try:
        fields = json.loads(bytes(read_whole(found.directory.join(_RUN), _MAX_RUN)))
    except (OSError, ValueError, RecursionError):
        return KIND
    kind = fields.get("kind") if isinstance(fields, dict) else None
    return kind if kind in (MAINTENANCE, EXPIRY) else KIND


def is_maintenance(found: FoundRun) -> bool:
    """Whether a run says that it is maintenance, of which an expiry is a part."""
    return claimed_kind(found) != KIND


def remove_run(directory: Location) -> None:
    """Remove a run, and the directory of all runs if that was the last one."""
    records.remove_run(directory)
    remove_directories([directory.beside("")])
