"""Finished work of a conversion, so that the next run resumes a killed one.

    <metadata directory>/ags1-conversion/<run>/run.json        what the run does, and its wrapped key
    <metadata directory>/ags1-conversion/<run>/<uuid>.sealed   files that are moved and durable, with their keys; and
                                                               before, names of new files where they cannot be listed

:mod:`ags1.kms.run_records` says how they are sealed, and when they are believed. A record is written after its files
are durable, so every file in it is complete. A conversion that has no key has no journal.
"""

from __future__ import annotations

import base64
import json
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ags1.errors import AuthenticationError, FormatError
from ags1.iceberg.conversion.work import FileResult, WorkKey
from ags1.keys import Key
from ags1.kms import run_records
from ags1.kms.run_records import FoundRun, RunName, RunRecords, RunSeal
from ags1.storage import Location, make_parent, open_output, read_whole, remove_directories

DIRECTORY = "ags1-conversion"
"""Below the table's metadata directory."""

KIND, _MAINTENANCE = "table conversion", "table maintenance"
_RUN, _MAX_RUN = "run.json", 1 << 20
_RESULTS, _PLANNED = "files-", "planned-"
_NAMES_AT_ONCE = 100_000


def new_name(table: str) -> RunName:
    """The name of a new run; `table` is the UUID of the table."""
    return RunName(KIND, table, str(uuid.uuid4()))


class Records:
    """Writes records of moved files into the directory of a run; others may write there too. Safe to share."""

    def __init__(self, records: RunRecords, *, at_once: int = 16) -> None:
        self._records = records
        self._waiting: list[FileResult] = []
        self._at_once = at_once
        self._lock = threading.Lock()

    def add(self, result: FileResult) -> None:
        """Add a moved file."""
        self._write(result, self._at_once)

    def plan(self, targets: list[str]) -> None:
        """Write the names of files before they are made, for `clean`: outside of the table, it does not list."""
        for begin in range(0, len(targets), _NAMES_AT_ONCE):
            self._records.add(f"{_PLANNED}{uuid.uuid4()}", targets[begin : begin + _NAMES_AT_ONCE])

    def flush(self) -> None:
        """Write all added files."""
        self._write(None, 1)

    def _write(self, result: FileResult | None, least: int) -> None:
        with self._lock:
            if result is not None:
                self._waiting.append(result)
            if len(self._waiting) < least:
                return
            results, self._waiting = self._waiting, []
        # Without the lock: other files are moved during the request.
        self._records.add(f"{_RESULTS}{uuid.uuid4()}", [_fields(each) for each in results])


@dataclass(frozen=True)
class Journal:
    """Where a run keeps its records, and its wrapped key. It has no secret, and can be sent to another process."""

    directory: Location = field(repr=False)
    name: RunName
    work_key: WorkKey

    @classmethod
    def begin(
        cls, journals: Location, name: RunName, work_key: WorkKey, seal: RunSeal, purpose: Mapping[str, Any]
    ) -> Journal:
        """Begin the journal of a run. A later run with the same purpose takes over the files of this one."""
        made = cls(journals.join(name.run), name, work_key)
        made._records(seal).begin(work_key.to_json(), purpose)
        return made

    def open(self, kms: Any) -> RunSeal:
        """The seal of the run; a KeyAccessError if the KMS refused."""
        return self.work_key.open(kms, self.name)

    def records(self, seal: RunSeal) -> Records:
        """What adds records to it."""
        return Records(self._records(seal))

    def _records(self, seal: RunSeal) -> RunRecords:
        return RunRecords(self.directory, seal, durable=True)


@dataclass(frozen=True)
class Killed:
    """A run that is authentic and was not committed."""

    found: FoundRun
    seal: RunSeal
    purpose: dict[str, Any]
    results: list[FileResult] = field(repr=False)
    planned: list[str] = field(repr=False)

    def touch(self) -> None:
        """Add an empty record, so that `clean` sees that the files of the run are needed."""
        RunRecords(self.found.directory, self.seal, durable=True).add(f"needed-{uuid.uuid4()}", [])


def open_run(found: FoundRun, kms: Any, key_id: str, table: str, refused: Callable[[str, Exception], object]) -> Killed:
    """Authenticate a run of this table under this master key; `refused` is told of records that are not authentic.

    FormatError, AuthenticationError: the run was not written by a conversion of this table under this master key.
    KeyAccessError: the KMS refused. FileNotFoundError: the run has just ended.
    """

    def unwrap(wrapped: Mapping[str, Any]) -> Key:
        work_key = WorkKey.from_json(wrapped)
        if work_key.key_id != key_id:
            raise AuthenticationError(f"{found.directory}: is under the master key {work_key.key_id!r}, not {key_id!r}")
        return work_key.unwrap(kms)

    opened = found.open(KIND, table, unwrap)
    results: list[FileResult] = []
    for name, value in opened.records(_RESULTS, refused):
        try:
            results += [_result(each) for each in value]
        except (ValueError, TypeError) as error:
            refused(name, FormatError(f"{name}: has an unknown form: {error}"))
    planned = [str(each) for _, value in opened.records(_PLANNED, refused) for each in value]
    return Killed(found, opened.seal, opened.about, results, planned)


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
        output.write(json.dumps({"kind": _MAINTENANCE, "owner": table}).encode("ascii"))
        output.commit(durable=False)
    return run


def is_maintenance(found: FoundRun) -> bool:
    """Whether a run says that it is maintenance."""
    try:
        fields = json.loads(bytes(read_whole(found.directory.join(_RUN), _MAX_RUN)))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(fields, dict) and fields.get("kind") == _MAINTENANCE


def remove_run(directory: Location) -> None:
    """Remove a run, and the directory of all runs if that was the last one."""
    run_records.remove_run(directory)
    remove_directories([directory.beside("")])


def _fields(result: FileResult) -> list[Any]:
    key = None if result.key is None else base64.b64encode(result.key).decode("ascii")
    return [result.source, result.origin, result.target, result.length, result.identity, key, result.split_offsets]


def _result(fields: list[Any]) -> FileResult:
    source, origin, target, length, identity, key, offsets = fields
    sealed = None if key is None else base64.b64decode(key, validate=True)
    starts = None if offsets is None else tuple(map(int, offsets))
    return FileResult(str(source), str(target), int(length), sealed, starts, str(origin), str(identity))
