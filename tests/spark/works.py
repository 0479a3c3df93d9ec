"""Work that goes wrong on purpose, in workers; they import it from here."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from ags1.dataset.runs import RunKeys
from ags1.dataset.worker import EncryptUnit
from ags1.errors import KeyAccessError
from ags1.spark.engine.column_work import DecryptColumns, EncryptColumns
from ags1.spark.engine.dataset_work import DecryptWork, EncryptWork
from ags1.spark.engine.planning import Unit
from ags1.spark.engine.runner import Outcome
from ags1.work.units import UnitOutcome


def attempt() -> int:
    """Which attempt of its task this is, from 0."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    return int(context.attemptNumber())


def await_file(path: str) -> None:
    """Wait until somebody makes a file."""
    until = time.monotonic() + 600
    while not os.path.exists(path):
        if time.monotonic() > until:
            raise TimeoutError(path)
        time.sleep(0.02)


def executor() -> int:
    """The process of this worker's executor: the parent of the daemon that forks workers."""
    status = Path(f"/proc/{os.getppid()}/status").read_text()
    return int(status.partition("PPid:")[2].split()[0])


@dataclass
class Echo:
    """Returns its units, with the process that it ran in; an attempt below `good` fails as `fault` says."""

    fault: str = ""
    good: int = 0
    verb: str = "echo"

    def run(self, units: list[Unit]) -> Iterator[Outcome]:
        for index, unit in enumerate(units):
            if index == len(units) // 2 and attempt() < self.good:
                if self.fault == "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                if self.fault == "refuse":
                    raise KeyAccessError("AwsKms refused to unwrap with lake: no permission")
                raise ValueError("a task that fails")
            detail = {"pid": os.getpid(), "data": unit.data}
            yield Outcome(unit.path, f"at {unit.path}", unit.size, start=unit.start, detail=detail)


@dataclass
class Waiting:
    """Says that it waits, and does so until somebody makes a file."""

    signals: str
    verb: str = "wait"

    def run(self, units: list[Unit]) -> Iterator[Outcome]:
        Path(self.signals, "waiting").touch()
        await_file(str(Path(self.signals, "go")))
        yield from (Outcome(unit.path) for unit in units)


@dataclass
class Interrupted(EncryptWork):
    """Encryption whose first attempt at a unit does it, and is then killed, fails, or waits for a file."""

    path: str = ""
    fault: str = "kill"
    signals: str = ""
    found: list[UnitOutcome] = field(default_factory=list)

    def run(self, units: list[EncryptUnit]) -> Iterator[Outcome]:
        yield from self._one_by_one(units)
        super()._record(self.opener.keys(), self.found)

    def _record(self, keys: RunKeys, found: list[UnitOutcome]) -> None:
        # The task is not over yet.
        self.found += found

    def _one_by_one(self, units: list[EncryptUnit]) -> Iterator[Outcome]:
        self.found = []
        for unit in units:
            yield from super().run([unit])
            if (unit.path, unit.start) != (self.path, 0) or attempt() > 0:
                continue
            if self.fault == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.fault == "executor":
                os.kill(executor(), signal.SIGKILL)
                time.sleep(60)
            if self.fault == "raise":
                raise ValueError("the worker failed")
            Path(self.signals, "waiting").touch()
            await_file(str(Path(self.signals, "go")))


class Halting(list[Any]):
    """Units of which one gets seven tenths, and then nothing more."""

    signals = ""

    def __iter__(self) -> Iterator[Any]:
        for index, unit in enumerate(super().__iter__()):
            if index == len(self) * 7 // 10:
                Path(self.signals, str(os.getpid())).touch()
                await_file(str(Path(self.signals, "go")))
            yield unit


@dataclass
class HaltedEncryption(EncryptWork):
    """Encryption that does seven tenths of a task, and then says so and waits."""

    signals: str = ""

    def run(self, units: list[EncryptUnit]) -> Iterator[Outcome]:
        halting = Halting(units)
        halting.signals = self.signals
        yield from super().run(halting)


@dataclass
class HaltedDecryption(DecryptWork):
    """The same for decryption."""

    signals: str = ""

    def run(self, units: list[Unit]) -> Iterator[Outcome]:
        halting = Halting(units)
        halting.signals = self.signals
        yield from super().run(halting)


@dataclass
class Limited(EncryptWork):
    """Encryption where no file can have more than some bytes."""

    most: int = 0

    def run(self, units: list[EncryptUnit]) -> Iterator[Outcome]:
        import resource

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (self.most, before[1]))
        try:
            yield from list(super().run(units))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)


@dataclass
class Twins(EncryptWork):
    """Encryption where two processes do each task at once."""

    def run(self, units: list[EncryptUnit]) -> Iterator[Outcome]:
        child = os.fork()
        outcomes = list(super().run(units))
        if child == 0:
            os._exit(any(each.status == "error" for each in outcomes))
        _, status = os.waitpid(child, 0)
        assert status == 0, "the twin failed"
        yield from outcomes


def losing_an_executor(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows as they are; the first attempt at the first partition has its executor killed."""
    for batch in batches:
        if attempt() == 0 and _partition() == 0:
            os.kill(executor(), signal.SIGKILL)
            time.sleep(60)
        yield batch


def _partition() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    return int(context.partitionId())


def _dying(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for number, batch in enumerate(batches):
        if number == 1 and attempt() == 0 and _partition() == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        yield batch


class DyingEncryption(EncryptColumns):
    """Encryption of columns whose first attempt at the first partition is killed at its second batch."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _dying(super().__call__(batches))


class DyingDecryption(DecryptColumns):
    """The same for decryption."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _dying(super().__call__(batches))
