"""Encryption, decryption and verification in a task: the workers of :mod:`ags1.dataset`.

Files are synced and recorded while the next ones are done. A unit to decrypt has a manifest entry, or a range of one,
with sealed keys; the task unwraps the keys of the classes. Or it names a leaf of the manifests, which the task reads:
no key of a manifest travels.
Entries travel as plain tuples: there are many, and pickling an instance of a class costs ten times as much.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from ags1.dataset.entries import DatasetEntry, Part, SourceIdentity
from ags1.dataset.manifests import ManifestNode, Manifests, open_root
from ags1.dataset.names import new_object_name, sort_key
from ags1.dataset.runs import Done, RunKeys, record
from ags1.dataset.versions import Version
from ags1.dataset.worker import DecryptWorker, EncryptUnit, EncryptWorker, ReadUnit, VerifyWorker
from ags1.errors import Ags1Error
from ags1.iceberg.keys.wrapped_key import WrappedKey
from ags1.layout import encrypted_length
from ags1.spark.engine.decryption_records import DecryptionRecords
from ags1.spark.engine.planning import Unit
from ags1.spark.engine.results import error_of
from ags1.spark.engine.runner import Outcome, Tell
from ags1.spark.engine.sealing import Opener, dataset_keys, of_process
from ags1.storage import Location, Unsynced
from ags1.support.parallel import in_parallel
from ags1.work.units import UnitOutcome, Work

# A killed driver loses what its tasks have not recorded: of each the portion that is synced, and the one behind it.
_RECORD_FILES = 500
_RECORD_SECONDS = 2.0


def packed(entry: DatasetEntry) -> tuple[Any, ...]:
    """The form of an entry that is sent to tasks."""
    parts = tuple((part.name, part.plaintext_length, part.sealed_key) for part in entry.parts)
    return entry.path, parts, entry.version, entry.mode, entry.modified_ns


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

    def run(self, units: list[Unit], tell: Tell) -> Iterator[Outcome]:
        """Decrypt some files. A file with a row is on the disk, and recorded if it is whole."""
        keys = dataset_keys(self.key, self.kms, self.source)
        worker = DecryptWorker(self.source, self.target, keys)
        records = DecryptionRecords.of(self.target, keys, self.uuid, self.digest)
        outcomes = _told(worker, (_unpacked(unit.data) for unit in units), tell)

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
    """Authenticates files of a version of a dataset.

    The ``data`` of a unit is a ReadUnit or a packed entry. A unit without any is a leaf of the version's manifests, by
    its first path: the task reads it, and the ``detail`` of its row has the result of each file, as tuples for
    :func:`rows_of`.
    """

    source: Location
    version: Version
    kms: str
    verb: str = "verify"

    def run(self, units: list[Unit], tell: Tell) -> Iterator[Outcome]:
        """Authenticate the objects of files, or of the files of a leaf of the manifests."""
        worker = VerifyWorker(self.source, dataset_keys(self.version.key, self.kms, self.source))
        manifests = Manifests(self.source, self.version.uuid)
        for unit in units:
            if unit.data is None:
                yield self._leaf(unit, manifests, worker, tell)
        rest = [unit for unit in units if unit.data is not None]
        above = self.source.text.rstrip("/")
        for unit, done in zip(rest, _told(worker, (_unpacked(unit.data) for unit in rest), tell), strict=True):
            entry = done.unit.entry if isinstance(done.unit, ReadUnit) else done.unit
            yield _row(unit, done, f"{above}/{entry.parts[0].name}")

    def _leaf(self, unit: Unit, manifests: Manifests, worker: VerifyWorker, tell: Tell) -> Outcome:
        try:
            leaf = next(manifests.leaves(self._root(manifests), sort_key(unit.path)))
            entries = [
                each
                for each in manifests.children(leaf, keep=False)
                if isinstance(each, DatasetEntry) and not each.is_directory
            ]
        except (Ags1Error, OSError) as error:
            return Outcome.failed(unit, error)
        above = self.source.text.rstrip("/")
        verified, failed = [], []
        for done in _told(worker, entries, tell):
            entry: DatasetEntry = done.unit
            size, where = entry.plaintext_length, f"{above}/{entry.parts[0].name}"
            if done.error is None:
                verified.append((entry.path, where, size, entry.file_length, "ok", None, None, 0, done.seconds))
            else:
                failed.append(_row(Unit(entry.path, size), done, where))
        return Outcome(unit.path, detail=(verified, failed), files=len(entries))

    def _root(self, manifests: Manifests) -> ManifestNode | None:
        """The root of the version's manifests; each process reads it once."""
        name = ("root", self.kms, self.source, self.version.digest)
        keys = dataset_keys(self.version.key, self.kms, self.source)
        return of_process(name, lambda: open_root(manifests, self.version, keys))


def rows_of(leaf: Outcome) -> list[Outcome]:
    """A row for each file of a leaf. Raise if the leaf is not readable: nothing else could be verified."""
    if leaf.status == "error":
        raise error_of(leaf)
    verified, failed = leaf.detail
    rows: list[Outcome] = [*(Outcome(*each) for each in verified), *failed]
    for each in rows:
        each.attempt = leaf.attempt
    return rows


def _told(work: Work, units: Iterable[Any], tell: Tell) -> Iterator[UnitOutcome]:
    """The outcomes of units. Progress is told of large files as they are done, of other units at their end."""
    for each in work.in_turn(units, lambda more: tell(0, more)):
        tell(0 if getattr(each.unit, "start", 0) else 1, each.untold)
        yield each


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

    def run(self, units: list[EncryptUnit], tell: Tell) -> Iterator[Outcome]:
        """Encrypt units, and record those that are complete."""
        keys = self.opener.keys()
        worker = EncryptWorker(self.source, self.target, keys, again=self.again)
        # Another attempt of this task may have used the names from the driver, and may still be writing to them.
        named = (each._replace(name=new_object_name(each.path, keys.reference.run)) for each in units)
        yield from map(self._row, _settled(self.target, _told(worker, named, tell), partial(self._record, keys)))

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
