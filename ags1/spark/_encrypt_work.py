"""Encryption in a task: the worker of :mod:`ags1.dataset`, a sync of what it wrote, and a record of that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from ags1._gcm import random_bytes
from ags1.dataset.names import new_object_name
from ags1.dataset.runs import Done as Recorded
from ags1.dataset.runs import RunKeys, write_record
from ags1.dataset.worker import EncryptUnit, EncryptWorker
from ags1.dataset.worker import Outcome as Done
from ags1.layout import encrypted_length
from ags1.spark._engine import Outcome
from ags1.spark._sealing import Opener
from ags1.storage import Location, Unsynced

__all__ = ["EncryptWork", "Told"]


class Told:
    """Tells of progress: of large files as they go, of each unit when it is over."""

    def __init__(self, tell: Callable[[int, int], None]) -> None:
        self._tell = tell
        self._told = 0

    def within(self, done: int) -> None:
        """So many bytes of the current unit are done."""
        self._tell(0, done - self._told)
        self._told = done

    def past(self, size: int, *, is_file: bool = True) -> None:
        """The current unit is over."""
        self._tell(1 if is_file else 0, size - self._told)
        self._told = 0


@dataclass
class EncryptWork:
    """Encrypts units of a tree into objects of a dataset. It has no secret, and can be pickled.

    The rows say what was written, in ``detail``; it is on the disk by then.
    """

    source: Location
    target: Location
    opener: Opener
    verb: str = "encrypt"

    def run(self, units: list[EncryptUnit], tell: Callable[[int, int], None]) -> Iterator[Outcome]:
        told, unsynced = Told(tell), Unsynced(self.target)
        keys = self.opener.keys()
        worker = EncryptWorker(self.source, self.target, keys, progress=told.within)
        found: list[Done] = []
        # Another attempt at this task may have used the names that the driver gave, and may still be writing.
        named = (each._replace(name=new_object_name(each.path, keys.reference.run)) for each in units)
        for done in worker.run(named):
            if done.done is not None:
                unsynced.add(*(name for name, _ in done.done))
            found.append(done)
            told.past(done.unit.size, is_file=done.unit.start == 0)
        try:
            unsynced.sync()
        except OSError as error:
            # The disk has lost something of all this, and does not say what.
            found = [each if each.error is not None else each._replace(done=None, error=error) for each in found]
        self._record(keys, found)
        yield from (self._row(each) for each in found)

    def _record(self, keys: RunKeys, found: list[Done]) -> None:
        """Note the files that are complete, for the next run if this one is interrupted."""
        whole = [
            Recorded(each.unit.path, each.unit.key_class, each.done, each.unit.identity, each.unit.mode)
            for each in found
            # Of the ranges of a big file, the driver alone knows when all are there.
            if each.done is not None and each.unit.whole < 0
        ]
        if whole:
            # A record that is missing costs work, and no file.
            with suppress(OSError):
                write_record(self.target, keys, random_bytes(6).hex(), whole)

    def _row(self, done: Done) -> Outcome:
        unit: EncryptUnit = done.unit
        where = self.target.join(unit.name).text
        if done.error is not None:
            return Outcome.failed(unit, done.error, target=where, seconds=done.seconds)
        return Outcome(
            unit.path, where, unit.size, encrypted_length(unit.size), seconds=done.seconds, start=unit.start,
            detail=done.done,
        )  # fmt: skip
