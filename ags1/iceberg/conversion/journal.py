"""Finished work of a conversion, so that the next run resumes a killed one.

    <metadata directory>/ags1-conversion/<run>/run.json      what the run does, and its wrapped key
    <metadata directory>/ags1-conversion/<run>/<uuid>.json   files that are moved and durable, their keys sealed

Each object is written once and never changed. A record is written after its files are durable, so every file in it is
complete. It contains no plaintext key.
"""

from __future__ import annotations

import base64
import contextlib
import json
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ags1.errors import FormatError
from ags1.iceberg.conversion.work import FileResult, WorkKey
from ags1.storage import Location, list_files, list_names, make_parent, open_output, read_whole, remove

__all__ = ["DIRECTORY", "Journal", "Records", "Run", "runs"]

DIRECTORY = "ags1-conversion"
"""Below the table's metadata directory."""

_RUN = "run.json"
_MAX_RECORD = 64 << 20
_VERSION = 1


class Run:
    """A run that a journal describes.

    `names` are its objects; `modified` is the time of the newest, in nanoseconds since 1970.
    """

    def __init__(self, directory: Location, names: list[str], modified: int) -> None:
        self.directory = directory
        self.names = names
        self.modified = modified
        self.purpose: dict[str, Any] = {}
        self.work_key: WorkKey | None = None
        if _RUN in names:
            fields = _read(directory.join(_RUN))
            self.purpose = dict(fields.get("purpose") or {})
            if fields.get("version") == _VERSION and fields.get("key") is not None:
                self.work_key = WorkKey(str(fields["key-id"]), base64.b64decode(fields["key"]))

    def results(self) -> Iterator[FileResult]:
        """Return the files that it moved; a FormatError if a record cannot be read."""
        for name in self.names:
            if name != _RUN:
                for each in _read(self.directory.join(name)).get("files", ()):
                    yield _result(each)

    def remove(self) -> None:
        """Remove its objects, the one that describes the run last."""
        remove(self.directory.join(name) for name in self.names if name != _RUN)
        remove([self.directory.join(_RUN)])
        _remove_directory(self.directory)


def runs(directory: Location) -> list[Run]:
    """Return the runs in a table's journals; `directory` contains all journals."""
    try:
        entries = list_files(directory)
    except FileNotFoundError:
        return []
    found: dict[str, tuple[list[str], list[int]]] = {}
    for entry in entries:
        run, _, name = entry.name.rpartition("/")
        if run and "/" not in run:
            names, times = found.setdefault(run, ([], []))
            names.append(name)
            times.append(entry.modified)
    return [Run(directory.join(run), names, max(times)) for run, (names, times) in found.items()]


class Records:
    """Writes records of moved files into the directory of a run; others may write there too. Safe to share."""

    def __init__(self, directory: Location, *, at_once: int = 16) -> None:
        self.directory = directory
        self._waiting: list[FileResult] = []
        self._at_once = at_once
        self._lock = threading.Lock()

    def add(self, result: FileResult) -> None:
        """Add a moved file."""
        with self._lock:
            self._waiting.append(result)
            if len(self._waiting) >= self._at_once:
                self._flush()

    def flush(self) -> None:
        """Write all added files."""
        with self._lock:
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            _write(self.directory.join(f"{uuid.uuid4()}.json"), {"files": [_fields(each) for each in self._waiting]})
            self._waiting = []


class Journal(Records):
    """The journal of one run, started by this process, which may pass its directory to others.

    `directory` contains all journals of the table. A later run with the same purpose takes over the files of this one.
    """

    def __init__(self, directory: Location, purpose: Mapping[str, Any], work_key: WorkKey | None) -> None:
        super().__init__(directory.join(str(uuid.uuid4())))
        fields: dict[str, Any] = {"version": _VERSION, "purpose": dict(purpose)}
        if work_key is not None:
            fields |= {"key-id": work_key.key_id, "key": base64.b64encode(work_key.wrapped).decode()}
        _write(self.directory.join(_RUN), fields)

    def remove(self) -> None:
        """Remove it: its files are now part of the table."""
        Run(self.directory, list_names(self.directory), 0).remove()


def _fields(result: FileResult) -> list[Any]:
    key = None if result.key is None else base64.b64encode(result.key).decode()
    return [result.source, result.target, result.length, key, result.split_offsets]


def _result(fields: Iterable[Any]) -> FileResult:
    try:
        source, target, length, key, offsets = fields
        sealed = None if key is None else base64.b64decode(key, validate=True)
        starts = None if offsets is None else tuple(map(int, offsets))
        return FileResult(str(source), str(target), int(length), sealed, starts)
    except (ValueError, TypeError) as error:
        raise FormatError(f"a record of the journal has an unknown form: {error}") from None


def _read(location: Location) -> dict[str, Any]:
    try:
        found = json.loads(bytes(read_whole(location, _MAX_RECORD)))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise FormatError(f"{location}: this record of a conversion cannot be read; `ags1 iceberg clean` removes it")
    return found


def _write(location: Location, fields: Mapping[str, Any]) -> None:
    make_parent(location)
    with open_output(location) as output:
        output.write(json.dumps(fields).encode())
        output.commit(durable=True)


def _remove_directory(location: Location) -> None:
    """Remove the empty directories of a run and of all runs, if the storage has directories."""
    import os

    if location.is_local:
        for path in (location.path, os.path.dirname(location.path)):
            with contextlib.suppress(OSError):
                os.rmdir(path)
