"""Decryption and verification in a task: the workers of :mod:`ags1.dataset`.

A unit has an entry of the manifest, or a range of one, whose keys are sealed; the task gets the keys of the classes.
Entries travel as plain tuples: there are many, and to pickle an object of a class costs ten times as much.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ags1.dataset.classes import KeyClass
from ags1.dataset.entries import Entry, Part
from ags1.dataset.worker import DecryptUnit, DecryptWorker, VerifyWorker
from ags1.dataset.worker import Outcome as Done
from ags1.spark._encrypt_work import Told
from ags1.spark._engine import Outcome
from ags1.spark._planning import Unit
from ags1.spark._sealing import class_keys
from ags1.storage import Location, Unsynced

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["DecryptWork", "VerifyWork", "packed"]


def packed(entry: Entry) -> tuple[Any, ...]:
    """What a task needs of an entry."""
    parts = tuple((part.name, part.plaintext_length, part.sealed_key) for part in entry.parts)
    return entry.path, parts, entry.key_class, entry.version, entry.mode


def _unpacked(data: Any) -> Any:
    if isinstance(data, DecryptUnit):
        return data
    path, parts, key_class, version, mode = data
    return Entry(path, tuple(Part(*each) for each in parts), key_class, version, None, mode)


def _row(unit: Unit, done: Done, where: str) -> Outcome:
    """What came of a unit as a row; `where` is its file."""
    error = done.error
    if isinstance(error, FileNotFoundError):
        text = "is in the manifest, but its object is missing from the dataset"
        error = FileNotFoundError(errno.ENOENT, text, unit.path)
    if error is not None:
        return Outcome.failed(unit, error, target=where, seconds=done.seconds)
    stored = done.unit.stored if isinstance(done.unit, DecryptUnit) else done.unit.file_length
    return Outcome(unit.path, where, unit.size, stored, seconds=done.seconds, start=unit.start)


@dataclass
class DecryptWork:
    """Decrypts files of a dataset into a tree. The ``data`` of a unit is its packed entry, or a DecryptUnit.

    The classes hold wrapped keys only.
    """

    source: Location
    target: Location
    classes: tuple[KeyClass, ...]
    kms: str
    verb: str = "decrypt"

    def run(self, units: list[Unit], tell: Callable[[int, int], None]) -> Iterator[Outcome]:
        """Decrypt some files. What a row is given for is on the disk."""
        told, unsynced = Told(tell), Unsynced(self.target)
        keys = class_keys(self.classes, self.kms, self.source)
        worker = DecryptWorker(self.source, self.target, keys, progress=told.within)
        found: list[Done] = []
        for done in worker.run(_unpacked(unit.data) for unit in units):
            unit = done.unit
            if done.error is None:
                unsynced.add(unit.path if isinstance(unit, Entry) else unit.into)
            found.append(done)
            told.past(worker.size_of(unit), is_file=isinstance(unit, Entry) or unit.start == 0)
        try:
            unsynced.sync()
        except OSError as error:
            found = [each if each.error is not None else each._replace(done=None, error=error) for each in found]
        above = self.target.text.rstrip("/")
        for unit, each in zip(units, found, strict=True):
            yield _row(unit, each, f"{above}/{unit.path}")


@dataclass
class VerifyWork:
    """Authenticates files of a dataset. The ``data`` of a unit is a packed entry with all parts of a file, or some."""

    source: Location
    classes: tuple[KeyClass, ...]
    kms: str
    verb: str = "verify"

    def run(self, units: list[Unit], tell: Callable[[int, int], None]) -> Iterator[Outcome]:
        """Verify some files."""
        told = Told(tell)
        worker = VerifyWorker(self.source, class_keys(self.classes, self.kms, self.source), progress=told.within)
        above = self.source.text.rstrip("/")
        for unit, done in zip(units, worker.run(_unpacked(unit.data) for unit in units), strict=True):
            told.past(unit.size, is_file=unit.start == 0)
            yield _row(unit, done, f"{above}/{done.unit.parts[0].name}")
