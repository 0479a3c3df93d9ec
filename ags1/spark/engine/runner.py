"""Runs planned work on Spark, with DataFrames only, so that it also runs over Spark Connect.

    units  --thousands at once-->  a wave  --pack-->  bins  --one task each-->  outcomes, in the order of paths

    spark.range(0, bins, 1, bins).mapInArrow(task)      task: bin number -> payload, opened -> work.run(units) -> rows

While the tasks of one wave run, the next wave is gathered and started, so that no slot waits for a listing or for the
last task of a wave. The driver has the units of two waves in memory.

A task returns a row for each unit and raises for none of them: Spark would repeat a whole task for one bad file. Spark
repeats a task only if its worker dies or the task as a whole fails.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, fields
from functools import partial
from operator import attrgetter
from typing import Any, Protocol
from zipimport import zipimporter

import pyarrow as pa

from ags1.core.gcm import random_bytes
from ags1.errors import Ags1Error, KeyAccessError
from ags1.spark.engine.failures import start_failure
from ags1.spark.engine.planning import PART_BYTES, Unit, bin_count, files_of, gathered, pack
from ags1.spark.engine.progress import Meter, Progress, open_meter
from ags1.spark.engine.sealing import Opener, Sealer
from ags1.spark.engine.sessions import Session
from ags1.spark.engine.unsealed import unsealed
from ags1.support.arguments import at_least_one, spell_by, spelling
from ags1.support.parallel import in_parallel
from ags1.support.words import size_text
from ags1.work.units import Work

_WAVES_AT_ONCE = 2
_BATCH_ROWS = 4_000
_NO_FILE = ""
"""Path in the row of a task that could not start."""
# Several outcomes are pickled into one row: names that are not UTF-8 are kept, and Spark converts one value.
_SCHEMA = "outcomes binary"


@dataclass(slots=True)
class Outcome:
    """The result of a unit.

    Attributes
    ----------
    path : str
        Of the unit.
    target : str
        Where its file is, or will be.
    plaintext_length, file_length : int
        Bytes of the plaintext of this unit, and of the encrypted file.
    status : str
        "ok", "skipped" (done by an earlier run) or "error".
    error, kind : str or None
        Message and class of the error.
    attempt : int
        Number of the attempt of its task, from 0.
    seconds : float
        Time taken.
    start : int
        Of the unit.
    detail : object
        Further data for the driver; it can be pickled.
    """

    path: str
    target: str = ""
    plaintext_length: int = 0
    file_length: int = 0
    status: str = "ok"
    error: str | None = None
    kind: str | None = None
    attempt: int = 0
    seconds: float = 0.0
    start: int = 0
    detail: Any = None

    @classmethod
    def failed(cls, unit: Any, error: BaseException, **more: Any) -> Outcome:
        """The outcome of a unit whose work raised an error."""
        kind = type(error).__name__
        text = str(error) or kind
        if not isinstance(error, (Ags1Error, OSError, ValueError)):
            text = f"{kind}: {text}"
        return cls(unit.path, status="error", error=text, kind=kind, start=unit.start, **more)


class TaskWork(Protocol):
    """Work for workers. It is pickled, and has no secret but those of its Locations.

    A Sealer seals it as a whole; where there is none, those secrets stay here.
    """

    verb: str
    """One word for the work, shown in progress and in Spark's UI."""

    def run(self, units: list[Any]) -> Iterator[Outcome]:
        """Do some units; return an outcome for each, in any order."""


def untold(count: int) -> None:
    """Progress within a task: Spark counts whole ones."""


class FileWork(Work):
    """Work on whole files, one after the other, whose results are :class:`Outcome` objects."""

    collected = (Exception,)
    verb: str
    threads = 1
    """For each file."""

    def run(self, units: list[Any]) -> Iterator[Outcome]:
        """Do the units; an error becomes an outcome. After one that all others would have, they are not tried."""
        before: Exception | None = None
        for unit, outcome, error, seconds, _ in self.in_turn(units, untold, self.threads):
            if error is not None:
                outcome = Outcome.failed(unit, error)
                if error is before:
                    outcome.error = f"not tried: {outcome.error}"
            before, outcome.seconds = error, seconds
            yield outcome


@dataclass(frozen=True)
class _Task:
    """The data sent to the tasks of a wave. The work is sealed too, if there is an opener."""

    pickled_work: bytes
    label: str
    payloads: list[bytes]
    opener: Opener | None
    spelling: Any = field(default_factory=spelling)

    def work(self) -> TaskWork:
        data = self.pickled_work if self.opener is None else self.opener.open(self.pickled_work, self.label)
        work: TaskWork = pickle.loads(data)
        return work

    def units(self, number: int) -> list[Any]:
        data = self.payloads[number]
        if self.opener is not None:
            data = self.opener.open(data, f"{self.label} {number}")
        units: list[Any] = pickle.loads(data)
        return units


def _run_bins(task: _Task, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run a Spark task. It drains its input first: Spark does not reuse a worker that leaves input unread."""
    from pyspark import TaskContext

    spell_by(task.spelling)
    numbers = [number for batch in batches for number in batch.column(0).to_pylist()]
    context = TaskContext.get()
    attempt = context.attemptNumber() if context is not None else 0
    for number in numbers:
        rows: list[Outcome] = []
        try:
            for outcome in task.work().run(task.units(number)):
                outcome.attempt = attempt
                rows.append(outcome)
                if len(rows) >= _BATCH_ROWS:
                    yield _to_batch(rows)
                    rows = []
        except KeyAccessError as error:
            # Another attempt would be refused too.
            rows.append(Outcome(_NO_FILE, status="error", error=str(error), kind=type(error).__name__))
        yield _to_batch(rows)
    forget_archives()


def forget_archives() -> None:
    """Let the next task of this process reuse the directories of Spark's own archives.

    Spark invalidates Python's import caches before each task. An existing finder then reads the directory of its
    archive again, and each package in an archive has a finder; a new finder takes the directory that is in memory.
    """
    archives = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter) and finder.archive in archives:
            del sys.path_importer_cache[path]


_values = attrgetter(*(field.name for field in fields(Outcome)))


def _to_batch(rows: list[Outcome]) -> pa.RecordBatch:
    data = pickle.dumps([_values(each) for each in rows], pickle.HIGHEST_PROTOCOL)
    return pa.RecordBatch.from_arrays([pa.array([data], pa.binary())], ["outcomes"])


def check_arguments(spark: Any, parallelism: int | None, part_bytes: int = PART_BYTES) -> Session:
    """The session, if these arguments of a run make sense."""
    at_least_one(parallelism, "parallelism")
    at_least_one(part_bytes, "part_bytes")
    return Session(spark)


class Engine:
    """Runs the units of one piece of work; used once.

    Progress is a line on a terminal or in a notebook, or a callable that gets the bytes done and their total, which is
    None until it is known.
    """

    def __init__(
        self,
        spark: Any,
        work: TaskWork,
        *,
        parallelism: int | None = None,
        progress: Progress = True,
        seal: Sealer | None = None,
        part_bytes: int = PART_BYTES,
    ) -> None:
        self._session = check_arguments(spark, parallelism, part_bytes)
        self._work = work
        self._unsealed = unsealed(work) if seal is None else b""
        self._parallelism = parallelism
        self._progress = progress
        self._seal = seal
        self._tag = f"ags1-{work.verb}-{random_bytes(6).hex()}"
        self._is_over = False
        self.part_bytes = part_bytes
        self.slots = self._session.slots()

    def run(self, units: Iterable[Any]) -> Generator[list[Outcome], None, None]:
        """Do all units, which come in the order of paths. Yield the outcomes of each wave, in the same order.

        If a task fails as a whole, raise Spark's error.
        """
        waves = gathered(units, self.slots)
        with open_meter(self._work.verb, self._progress, self._session, self._tag) as meter:

            def expected() -> Iterator[Callable[[], list[Outcome]]]:
                for wave in waves:
                    meter.expect(sum(map(files_of, wave)), sum(unit.size for unit in wave))
                    yield self._session.inherited(partial(self._run_wave, wave, meter))
                meter.listed()

            running = in_parallel(lambda run: run(), expected(), _WAVES_AT_ONCE, ahead=1, stop=self._stop)
            with closing(running):
                yield from running

    def _stop(self) -> None:
        # This comes first: a wave that is still being packed has no job to cancel.
        self._is_over = True
        self._session.cancel(self._tag)

    def _run_wave(self, wave: list[Unit], meter: Meter) -> list[Outcome]:
        bins = pack(wave, self._parallelism or bin_count(wave, self.slots))
        label = random_bytes(8).hex()
        payloads = []
        work = self._unsealed
        if self._seal is not None:
            work = self._seal.seal(pickle.dumps(self._work, pickle.HIGHEST_PROTOCOL), label)
        for number, units in enumerate(bins):
            data = pickle.dumps(units, pickle.HIGHEST_PROTOCOL)
            payloads.append(data if self._seal is None else self._seal.seal(data, f"{label} {number}"))
        opener = None if self._seal is None else self._seal.opener
        task = _Task(work, label, payloads, opener)
        count, size = sum(map(files_of, wave)), sum(unit.size for unit in wave)
        meter.begun(len(bins), count, size)
        text = f"ags1 {self._work.verb}: {count:,} files, {size_text(size)} in {len(bins):,} tasks"
        with self._session.tagged(self._tag, text):
            if self._is_over:
                return []
            frame = self._session.spark.range(0, len(bins), 1, len(bins)).mapInArrow(partial(_run_bins, task), _SCHEMA)
            try:
                table = frame.toArrow()
            except Exception as error:
                failure = start_failure(error)
                if failure is None:
                    raise
                raise failure from error
        outcomes = [Outcome(*row) for data in table.column(0) for row in pickle.loads(data.as_buffer())]
        refused = next((each for each in outcomes if each.path == _NO_FILE), None)
        if refused is not None:
            raise KeyAccessError(
                f"{refused.error} (said in a worker: every executor must reach the KMS, with rights of its own)"
            )
        order = {(unit.path, unit.start): index for index, unit in enumerate(wave)}
        outcomes.sort(key=lambda each: order[each.path, each.start])
        if len(outcomes) != len(wave):
            raise RuntimeError(f"{len(wave)} units were given to tasks, which returned {len(outcomes)}")
        meter.finished(count, size)
        return outcomes
