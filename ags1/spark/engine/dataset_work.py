"""Encryption, decryption and verification in a task: the workers of :mod:`ags1.dataset`.

Files are synced and recorded while the next ones are done. A unit to decrypt or to verify has a manifest entry, or a
range of one, with sealed keys; the task unwraps the key of the dataset.
Entries travel as plain tuples: there are many, and pickling an instance of a class costs ten times as much.
"""

from __future__ import annotations

import errno
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from ags1.core.gcm import random_bytes
from ags1.dataset.entries import DatasetEntry, Part, SourceIdentity
from ags1.dataset.keys import DatasetKeys
from ags1.dataset.names import new_object_name
from ags1.dataset.runs import Done, RunKeys, record
from ags1.dataset.worker import DecryptWorker, EncryptUnit, EncryptWorker, ReadUnit, VerifyWorker, cut_entry
from ags1.iceberg.keys.wrapped_key import WrappedKey
from ags1.layout import encrypted_length
from ags1.spark.engine.planning import Unit
from ags1.spark.engine.runner import Outcome, untold
from ags1.spark.engine.sealing import Opener, dataset_keys
from ags1.storage import Location, Unsynced, identity_of, list_files, remove, remove_directories
from ags1.support.parallel import in_parallel
from ags1.work.records import OpenedRun, RunName, RunRecords, RunSeal, found_runs, remove_run
from ags1.work.units import UnitOutcome

# A killed driver loses what its tasks have not recorded: of each the portion that is synced, and the one behind it.
_RECORD_FILES = 500
_RECORD_SECONDS = 2.0


def _packed(entry: DatasetEntry) -> tuple[Any, ...]:
    """The form of an entry that is sent to tasks."""
    parts = tuple((part.name, part.plaintext_length, part.sealed_key) for part in entry.parts)
    return entry.path, parts, entry.version, entry.mode, entry.modified_ns


def units_of(entry: DatasetEntry, part_bytes: int, into: str = "") -> list[Unit]:
    """The units of a file: its ranges, if it is big; they fill the file `into`."""
    size = entry.plaintext_length
    ranges = cut_entry(entry, part_bytes, into) if size > part_bytes else []
    if len(ranges) < 2:
        return [Unit(entry.path, size, _packed(entry))]
    return [Unit(entry.path, each.size, each, each.start, size) for each in ranges]


def _unpacked(data: Any) -> Any:
    if isinstance(data, ReadUnit):
        return data
    path, parts, version, mode, modified = data
    source = None if modified is None else SourceIdentity(0, modified)
    return DatasetEntry(path, tuple(Part(*each) for each in parts), version, source, mode)


def _settled(
    target: Location, outcomes: Iterable[UnitOutcome], record: Callable[[list[UnitOutcome]], None]
) -> Iterator[UnitOutcome]:
    """Sync and record outcomes in portions while the next ones are made; an outcome is yielded after that."""

    def settle(found: list[UnitOutcome]) -> list[UnitOutcome]:
        found = _synced(target, found)
        record(found)
        return found

    with closing(in_parallel(settle, _portions(outcomes), 1)) as portions:
        for portion in portions:
            yield from portion


def _portions(outcomes: Iterable[UnitOutcome]) -> Iterator[list[UnitOutcome]]:
    portion: list[UnitOutcome] = []
    begun = time.monotonic()
    for each in outcomes:
        portion.append(each)
        if len(portion) >= _RECORD_FILES or time.monotonic() - begun >= _RECORD_SECONDS:
            yield portion
            portion, begun = [], time.monotonic()
    if portion:
        yield portion


def _synced(target: Location, found: list[UnitOutcome]) -> list[UnitOutcome]:
    unsynced = Unsynced(target)
    unsynced.add(*(name for each in found for name, _ in each.result or ()))
    try:
        unsynced.sync()
    except OSError as error:
        # The disk lost some of this data, and does not report which.
        return [each if each.error is not None else each._replace(result=None, error=error) for each in found]
    return found


def _row(unit: Unit, done: UnitOutcome, where: str) -> Outcome:
    """The result of a unit as a row; `where` is its file."""
    error = done.error
    if isinstance(error, FileNotFoundError):
        text = "is in the manifest, but its object is missing from the dataset"
        error = FileNotFoundError(errno.ENOENT, text, unit.path)
    if error is not None:
        return Outcome.failed(unit, error, target=where, seconds=done.seconds)
    stored = done.unit.stored if isinstance(done.unit, ReadUnit) else done.unit.file_length
    return Outcome(unit.path, where, unit.size, stored, seconds=done.seconds, start=unit.start)


@dataclass
class DecryptWork:
    """Decrypts files of a version of a dataset into a tree. The ``data`` of a unit is its packed entry, or a ReadUnit.

    `key` is the dataset's, wrapped. `uuid` and `digest` are those of the dataset, for its records.
    """

    source: Location
    target: Location
    key: WrappedKey
    kms: str
    uuid: str
    digest: str
    verb: str = "decrypt"

    def run(self, units: list[Unit]) -> Iterator[Outcome]:
        """Decrypt some files. A file with a row is on the disk, and recorded if it is whole."""
        keys = dataset_keys(self.key, self.kms, self.source)
        worker = DecryptWorker(self.source, self.target, keys)
        records = DecryptionRecords.of(self.target, keys, self.uuid, self.digest)
        outcomes = worker.in_turn((_unpacked(unit.data) for unit in units), untold)

        def record(found: list[UnitOutcome]) -> None:
            # Only the driver knows when all ranges of a big file are there. A missing record costs repeated work.
            with suppress(OSError):
                records.write(
                    pair for each in found for pair in each.result or () if isinstance(each.unit, DatasetEntry)
                )

        above = self.target.text.rstrip("/")
        for unit, each in zip(units, _settled(self.target, outcomes, record), strict=True):
            yield _row(unit, each, f"{above}/{unit.path}")


@dataclass
class VerifyWork:
    """Authenticates files of a dataset. The ``data`` of a unit is as for :class:`DecryptWork`."""

    source: Location
    key: WrappedKey
    kms: str
    verb: str = "verify"

    def run(self, units: list[Unit]) -> Iterator[Outcome]:
        """Authenticate the objects of files."""
        worker = VerifyWorker(self.source, dataset_keys(self.key, self.kms, self.source))
        above = self.source.text.rstrip("/")
        done = worker.in_turn((_unpacked(unit.data) for unit in units), untold)
        for unit, each in zip(units, done, strict=True):
            entry = each.unit.entry if isinstance(each.unit, ReadUnit) else each.unit
            yield _row(unit, each, f"{above}/{entry.parts[0].name}")


@dataclass
class EncryptWork:
    """Encrypts units of a tree into objects of a dataset. It has no secret, and can be pickled.

    The ``detail`` of a row describes what was written; it is on the disk by then.
    """

    source: Location
    target: Location
    opener: Opener
    again: bool = False
    verb: str = "encrypt"

    def run(self, units: list[EncryptUnit]) -> Iterator[Outcome]:
        """Encrypt units, and record those that are complete."""
        keys = self.opener.keys()
        worker = EncryptWorker(self.source, self.target, keys, again=self.again)
        # Another attempt of this task may have used the names from the driver, and may still be writing to them.
        named = (each._replace(name=new_object_name(each.path, keys.reference.run)) for each in units)
        yield from map(self._row, _settled(self.target, worker.in_turn(named, untold), partial(self._record, keys)))

    def _record(self, keys: RunKeys, found: list[UnitOutcome]) -> None:
        """Note the files that are complete, for the next run if this one is interrupted."""
        whole = [
            Done(each.unit.path, each.result, each.unit.identity, each.unit.mode)
            for each in found
            # Only the driver knows when all ranges of a big file are there.
            if each.error is None and each.unit.whole < 0
        ]
        # A missing record costs repeated work, but no file is lost.
        with suppress(OSError):
            record(self.target, keys, whole)

    def _row(self, done: UnitOutcome) -> Outcome:
        unit: EncryptUnit = done.unit
        where = self.target.join(unit.name).text
        if done.error is not None:
            return Outcome.failed(unit, done.error, target=where, seconds=done.seconds)
        return Outcome(
            unit.path, where, unit.size, encrypted_length(unit.size), seconds=done.seconds, start=unit.start,
            detail=done.result,
        )  # fmt: skip


_KIND, _DONE = "decryption of a dataset", "done-"
_FILE = re.compile("file-[0-9a-f]+")


class DecryptionRecords:
    """The records in a target, of one version of a dataset. Several processes may write at once."""

    def __init__(self, target: Location, seal: RunSeal) -> None:
        self._target = target.as_root()
        self._directory = self._target.join(f".ags1-decrypt-{seal.name.owner[:8]}")
        self._seal = seal
        # Copies of a dataset that diverged have versions of the same number, but with other digests.
        self._version = seal.name.run[:16]
        self._records = RunRecords(self._directory.join(self._version), seal, durable=True)

    @classmethod
    def of(cls, target: Location, keys: DatasetKeys, owner: str, digest: str) -> DecryptionRecords:
        """The records of a version of the dataset `owner`. KeyAccessError: the KMS refused."""
        return cls(target, RunSeal(keys.key(), RunName(_KIND, owner, digest)))

    def read(self) -> dict[str, tuple[int, str]]:
        """Bytes and identity of each path that interrupted runs have recorded; an unreadable record is ignored."""
        found: dict[str, tuple[int, str]] = {}
        for run in found_runs(self._directory):
            if run.run == self._version:
                found.update(OpenedRun(run, self._seal, {}, {}).items(_DONE, _recorded, lambda name, error: None))
        return found

    def name_of_file(self) -> str:
        """A new name among the records, relative to the target, for an incomplete file."""
        return f"{self._directory.name}/file-{random_bytes(8).hex()}"

    def begin(self) -> None:
        """Make the directory of the records."""
        self._records.make_directory()

    def write(self, done: Iterable[tuple[str, int]]) -> None:
        """Record files, by path and bytes, that are durable."""
        if record := list(self._identified(done)):
            self._records.add(_DONE, record)

    def _identified(self, done: Iterable[tuple[str, int]]) -> Iterator[tuple[str, int, str]]:
        for path, length in done:
            # In a store, that would be a request for each file.
            if not self._target.is_local:
                yield path, length, ""
                continue
            with suppress(FileNotFoundError, NotADirectoryError):
                yield path, length, identity_of(self._target.join(path))

    def remove(self) -> None:
        """Remove all records, those of other versions too, and incomplete files of killed runs."""
        for run in found_runs(self._directory):
            remove_run(run.directory)
        with suppress(FileNotFoundError):
            remove([each.location for each in list_files(self._directory) if _FILE.fullmatch(each.name)])
        self.close()

    def close(self) -> None:
        """Remove the directories, if no record is in them."""
        remove_directories([self._records.directory, self._directory])


def _recorded(fields: Any) -> tuple[str, tuple[int, str]]:
    path, length, identity = fields
    return path, (length, identity)
