"""Running workers in threads: outcomes in the order of units, a bounded number ahead, and an end where it has to be."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator

import pytest

from ags1.dataset.execution import execute
from ags1.dataset.worker import BATCH_FILES, SMALL, FileOutcome, Worker
from ags1.errors import FormatError
from ags1.kms import ServiceRefusal


class Sizes(Worker):
    """Units are sizes; those in `failing` fail."""

    def __init__(self, failing: dict[int, Exception] | None = None) -> None:
        super().__init__(None)
        self.failing = failing or {}
        self.done: list[int] = []
        self.threads: set[tuple[int, int]] = set()

    def size_of(self, unit: int) -> int:
        return unit

    def work(self, units: list[int]) -> list[FileOutcome]:
        self.done += units
        self.threads.add((self._threads, threading.get_ident()))
        return [FileOutcome(unit, None if unit in self.failing else (), self.failing.get(unit)) for unit in units]


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
        assert taken - count <= (4 * threads + 2) * BATCH_FILES
    assert taken == 10_000


@pytest.mark.parametrize("threads", [1, 2])
def test_the_first_error_ends_it_unless_errors_are_collected(threads: int) -> None:
    failing: dict[int, Exception] = {7: FormatError("no file"), 90: OSError(errno.EIO, "a fault")}
    outcomes = list(execute(Sizes(failing), range(100), threads=threads, on_error="collect"))
    assert {each.unit: each.error for each in outcomes if each.error is not None} == failing
    got: list[int] = []

    def run() -> None:
        got.extend(each.unit for each in execute(Sizes(failing), range(100), threads=threads))

    with pytest.raises(FormatError, match="no file"):
        run()
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
    running.close()  # type: ignore[attr-defined]
    assert len(worker.done) < 2000
    assert set(threading.enumerate()) <= before
