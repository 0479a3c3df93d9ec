"""What the tests of workers share: a run without a transaction, its units, and the entries that come of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ags1 import kms
from ags1.dataset.entries import DatasetEntry, Part
from ags1.dataset.keys import DatasetKeys
from ags1.dataset.names import new_object_name
from ags1.dataset.runs import DatasetRun, Done
from ags1.dataset.selection import Filter
from ags1.dataset.sources import Found, scan
from ags1.dataset.worker import (
    SMALL,
    DecryptWorker,
    EncryptUnit,
    EncryptWorker,
    ReadUnit,
    VerifyWorker,
    cut,
    on_threads,
)
from ags1.iceberg.keys.wrapped_key import WrappedKey
from ags1.storage import Location
from ags1.work.units import SharedProgress, UnitOutcome, run_on_threads
from ags1.work.units import Work as AnyWork


def found_in(source: Location, prefix: str = "", wanted: Filter | None = None) -> tuple[list[Found], dict[str, str]]:
    """The files of a source, and what was left out of it."""
    skipped: dict[str, str] = {}
    found = list(scan(source, prefix, wanted or Filter(), None, skipped.__setitem__))
    return found, skipped


class Work:
    """A run from a source into a vault.

    Parameters
    ----------
    source, vault : Location
        Each a directory or a prefix.
    """

    def __init__(self, source: Location, vault: Location) -> None:
        self.source, self.vault = source, vault
        client = kms.MemoryKms({"lake": bytes(range(32))})
        key = WrappedKey("lake").another(client)
        self.run = DatasetRun(vault, "", key, 0, client, "test")
        self.run.begin()
        self.keys = DatasetKeys(key, client, str(vault))

    def units(self, part_bytes: int | None = None) -> list[EncryptUnit]:
        """What is to be done, big files cut into ranges."""
        units = [
            EncryptUnit(
                found.path,
                found.size,
                found.source,
                found.identity,
                new_object_name(found.path, self.run.id),
                found.mode,
                small=found.size <= SMALL,
            )
            for found in found_in(self.source)[0]
        ]
        return units if part_bytes is None else [part for unit in units for part in cut(unit, part_bytes)]

    def encrypter(self, **options: Any) -> EncryptWorker:
        """The worker that does it."""
        return EncryptWorker(self.source, self.vault, self.run.keys, **options)

    def outcomes(self, units: Iterable[EncryptUnit], threads: int = 1) -> list[UnitOutcome]:
        """What comes of units."""
        return performed(self.encrypter(), units, threads)

    def entries(self, outcomes: Iterable[UnitOutcome]) -> list[DatasetEntry]:
        """The entries of what was done; ranges of one file follow each other."""
        parts: dict[str, list[Part]] = {}
        units: dict[str, EncryptUnit] = {}
        for outcome in outcomes:
            assert outcome.error is None, outcome
            unit = outcome.unit
            units[unit.path] = unit
            done = Done(unit.path, tuple(outcome.result or ()))
            parts.setdefault(unit.path, []).extend(self.run.keys.parts(done, self.keys))
        return [DatasetEntry(path, tuple(parts[path]), 1, unit.identity, unit.mode) for path, unit in units.items()]

    def encrypt(self, part_bytes: int | None = None, threads: int = 1) -> list[DatasetEntry]:
        """Encrypt everything."""
        return self.entries(self.outcomes(self.units(part_bytes), threads))

    def decrypt(self, target: Location, entries: Iterable[DatasetEntry], threads: int = 1) -> list[UnitOutcome]:
        """Decrypt entries."""
        return performed(self.decrypter(target), entries, threads)

    def decrypter(self, target: Location) -> DecryptWorker:
        """The worker that does it."""
        return DecryptWorker(self.vault, target, self.keys)

    def verify(self, units: Iterable[DatasetEntry | ReadUnit], threads: int = 1) -> list[UnitOutcome]:
        """Verify entries, or ranges of them."""
        return performed(VerifyWorker(self.vault, self.keys), units, threads)


def performed(work: AnyWork, given: Iterable[Any], threads: int = 1) -> list[UnitOutcome]:
    """The outcomes of units, on threads."""
    return list(run_on_threads(work, given, on_threads(threads), SharedProgress(None, None), on_error="collect"))


def error_of(outcome: UnitOutcome) -> Exception:
    """Why a unit failed."""
    assert outcome.result is None
    assert outcome.error is not None
    return outcome.error
