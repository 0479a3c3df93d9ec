"""Running workers in threads: outcomes in the order of units, a bounded number ahead, and an end where it has to be."""

from __future__ import annotations

import errno
import itertools
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from types import SimpleNamespace

import pytest

import ags1.work.units as module
from ags1.dataset.worker import SMALL, on_threads
from ags1.errors import FormatError
from ags1.kms import ServiceRefusal
from ags1.work.units import (
    BATCH_UNITS,
    Advance,
    OneByOne,
    SharedProgress,
    Threads,
    UnitBatch,
    UnitOutcome,
    Work,
    run_on_threads,
)


class Sizes(Work):
    """Units are sizes; those in `failing` fail."""

    def __init__(self, failing: dict[int, Exception] | None = None) -> None:
        self.failing = failing or {}
        self.done: list[int] = []
        self.threads: set[tuple[int | None, int]] = set()

    def size_of(self, unit: int) -> int:
        return unit

    def is_small(self, unit: int) -> bool:
        return unit <= SMALL

    def outcomes(self, batch: UnitBatch, threads: int | None, tell: Callable[[int], object]) -> list[UnitOutcome]:
        self.done += batch.units
        self.threads.add((threads, threading.get_ident()))
        return [UnitOutcome(unit, None, self.failing.get(unit)) for unit in batch.units]


def execute(
    work: Work, units: Iterable[int], *, threads: int | None = None, on_error: str = "fail"
) -> Generator[UnitOutcome, None, None]:
    return run_on_threads(work, units, on_threads(threads), SharedProgress(None, None), on_error=on_error)


UNITS = [*range(300), SMALL + 1, 5, 40 << 20, *range(300, 500), SMALL + 2, SMALL + 3, 50 << 20]


@pytest.mark.parametrize("threads", [1, 2, 7, None])
def test_outcomes_come_in_the_order_of_units(threads: int | None) -> None:
    worker = Sizes()
    before = set(threading.enumerate())
    assert [each.unit for each in execute(worker, iter(UNITS), threads=threads)] == UNITS
    assert sorted(worker.done) == sorted(UNITS)
    assert set(threading.enumerate()) <= before


def test_one_thread_is_the_callers_own() -> None:
    worker = Sizes()
    list(execute(worker, UNITS, threads=1))
    assert worker.threads == {(1, threading.get_ident())}


class Brief(Sizes):
    brief = 64 << 10


@pytest.mark.parametrize("waits", [False, True])
def test_brief_batches_are_done_by_the_caller_as_long_as_nothing_is_waited_for(
    waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = itertools.count()
    ticks = SimpleNamespace(monotonic=lambda: next(clock), thread_time=lambda: 0 if waits else next(clock))
    monkeypatch.setattr(module, "time", ticks)
    worker, units = Brief(), [*range(300), SMALL + 1, *range(300, 600)]
    assert [each.unit for each in execute(worker, units, threads=3)] == units
    mine = threading.get_ident()
    assert (1, mine) in worker.threads
    assert any(ident != mine for _, ident in worker.threads)
    if not waits:
        alone = Brief()
        assert [each.unit for each in execute(alone, range(300), threads=3)] == list(range(300))
        assert alone.threads == {(1, mine)}


def test_the_largest_files_get_all_threads_on_the_callers_own() -> None:
    worker = Sizes()
    list(execute(worker, UNITS, threads=3))
    assert (3, threading.get_ident()) in worker.threads
    assert {threads for threads, _ in worker.threads} == {1, 3}
    assert {ident for threads, ident in worker.threads if threads == 1}.isdisjoint({threading.get_ident()})


@pytest.mark.parametrize("threads", [1, 2])
def test_units_are_taken_a_bounded_number_ahead(threads: int) -> None:
    taken = 0

    def units() -> Iterator[int]:
        nonlocal taken
        for _ in range(10_000):
            taken += 1
            yield 1

    running = execute(Sizes(), units(), threads=threads)
    for count, _ in enumerate(running, 1):
        assert taken - count <= (4 * threads + 2) * BATCH_UNITS
    assert taken == 10_000


@pytest.mark.parametrize("threads", [1, 2])
def test_the_first_error_ends_it_unless_errors_are_collected(threads: int) -> None:
    failing: dict[int, Exception] = {7: FormatError("no file"), 90: OSError(errno.EIO, "a fault")}
    outcomes = list(execute(Sizes(failing), range(100), threads=threads, on_error="collect"))
    assert {each.unit: each.error for each in outcomes if each.error is not None} == failing
    got: list[int] = []

    def to_the_end() -> None:
        got.extend(each.unit for each in execute(Sizes(failing), range(100), threads=threads))

    with pytest.raises(FormatError, match="no file"):
        to_the_end()
    assert got == list(range(7))
    with pytest.raises(ValueError, match="on_error must be"):
        list(execute(Sizes(), [], on_error="ignore"))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    "fault", [OSError(errno.ENOSPC, "full"), OSError(errno.EDQUOT, "quota"), OSError(errno.EROFS, "ro"),
              ServiceRefusal("expired")], ids=["full", "quota", "read-only", "kms"],
)  # fmt: skip
def test_what_would_meet_every_unit_ends_it_also_where_errors_are_collected(threads: int, fault: Exception) -> None:
    worker = Sizes({70: fault})
    with pytest.raises(type(fault)):
        list(execute(worker, range(100_000), threads=threads, on_error="collect"))
    assert len(worker.done) < 2000


@pytest.mark.parametrize("threads", [1, 2])
def test_who_stops_taking_outcomes_stops_the_work(threads: int) -> None:
    worker = Sizes()
    before = set(threading.enumerate())
    running = execute(worker, range(100_000), threads=threads)
    next(running)
    running.close()
    assert len(worker.done) < 2000
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("threads", [1, 3])
def test_progress_tells_each_byte_once_also_of_units_that_fail(threads: int) -> None:
    told: list[int] = []

    def one(unit: int, threads: int | None, advance: Advance) -> None:
        for done in (0, 3, 2, 9, 5):
            advance(done, 10)
        advance.bytes(unit // 2)
        if unit == 40:
            raise FormatError("no file")

    progress = SharedProgress(lambda done, total: told.append(done), 1000)
    outcomes = list(
        run_on_threads(OneByOne(one, int), range(0, 100, 10), Threads(threads), progress, on_error="collect")
    )
    assert [each.unit for each in outcomes if each.error is not None] == [40]
    assert told == sorted(told)
    assert (told[0], told[-1]) == (0, sum(range(0, 100, 10)))


@pytest.mark.parametrize("threads", [1, 3])
def test_an_exception_of_the_progress_ends_all_units_and_is_raised_itself(threads: int) -> None:
    begun: list[int] = []

    def one(unit: int, threads: int | None, advance: Advance) -> None:
        begun.append(unit)
        for done in range(1, 1001):
            advance(done, 1000)

    def stop(done: int, total: int | None) -> None:
        if done >= 1500:
            raise KeyboardInterrupt

    progress = SharedProgress(stop, None)
    with pytest.raises(KeyboardInterrupt):
        list(run_on_threads(OneByOne(one, lambda unit: 1000), range(1000), Threads(threads), progress))
    assert len(begun) < 20


def test_the_first_error_ends_units_that_are_under_way() -> None:
    """A large file is not worked on to its end when the run has failed already."""
    waiting, failed = threading.Event(), threading.Event()

    def one(unit: int, threads: int | None, advance: Advance) -> None:
        if unit == 1:
            waiting.wait(60)
            failed.set()
            raise FormatError("no file")
        waiting.set()
        failed.wait(60)
        while True:
            advance(0, 1000)

    progress = SharedProgress(None, None)
    with pytest.raises(FormatError, match="no file"):
        list(run_on_threads(OneByOne(one, lambda unit: 1000), [0, 1], Threads(2), progress))
