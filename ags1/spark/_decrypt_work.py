"""Decryption and verification in a task: the workers of :mod:`ags1.dataset`.

A unit has an entry of the manifest, or a range of one, whose keys are sealed; the task gets the keys of the classes.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ags1.dataset.classes import KeyClass
from ags1.dataset.entries import Entry
from ags1.dataset.worker import DecryptUnit, DecryptWorker, VerifyWorker
from ags1.dataset.worker import Outcome as Done
from ags1.spark._encrypt_work import Told
from ags1.spark._engine import Outcome
from ags1.spark._planning import Unit
from ags1.spark._sealing import class_keys
from ags1.storage import Location, Unsynced

__all__ = ["DecryptWork", "VerifyWork"]


def _row(unit: Unit, done: Done, where: Location) -> Outcome:
    """What came of a unit as a row; `where` is its file."""
    entry: Entry = unit.data.entry if isinstance(unit.data, DecryptUnit) else unit.data
    error = done.error
    if isinstance(error, FileNotFoundError):
        text = "is in the manifest, but its object is missing from the dataset"
        error = FileNotFoundError(errno.ENOENT, text, entry.path)
    if error is not None:
        return Outcome.failed(unit, error, target=where.text, seconds=done.seconds)
    stored = entry.file_length if unit.data is entry else unit.data.stored
    return Outcome(unit.path, where.text, unit.size, stored, seconds=done.seconds, start=unit.start)


@dataclass
class DecryptWork:
    """Decrypts files of a dataset into a tree. The ``data`` of a unit is its entry, or a DecryptUnit.

    Attributes
    ----------
    classes : tuple of KeyClass
        The classes of keys of the version; they hold wrapped keys only.
    kms : str
        URL of the KMS.
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
        for done in worker.run(unit.data for unit in units):
            unit = done.unit
            if done.error is None:
                unsynced.add(unit.path if isinstance(unit, Entry) else unit.into)
            found.append(done)
            told.past(worker.size_of(unit), is_file=isinstance(unit, Entry) or unit.start == 0)
        try:
            unsynced.sync()
        except OSError as error:
            found = [each if each.error is not None else each._replace(done=None, error=error) for each in found]
        for unit, each in zip(units, found, strict=True):
            yield _row(unit, each, self.target.join(unit.path))


@dataclass
class VerifyWork:
    """Authenticates files of a dataset. The ``data`` of a unit is an entry with all parts of a file, or some."""

    source: Location
    classes: tuple[KeyClass, ...]
    kms: str
    verb: str = "verify"

    def run(self, units: list[Unit], tell: Callable[[int, int], None]) -> Iterator[Outcome]:
        """Verify some files."""
        told = Told(tell)
        worker = VerifyWorker(self.source, class_keys(self.classes, self.kms, self.source), progress=told.within)
        for unit, done in zip(units, worker.run(unit.data for unit in units), strict=True):
            told.past(unit.size, is_file=unit.start == 0)
            yield _row(unit, done, self.source.join(unit.data.parts[0].name))
