"""Work on several items at once: order, bounds, errors, and what ends it."""

from __future__ import annotations

import random
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from ags1.support.parallel import in_parallel, streams_in_parallel


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_results_are_in_the_order_of_items(threads: int) -> None:
    items = random.Random(threads).choices(range(1000), k=300)
    assert list(in_parallel(lambda item: item + 1, iter(items), threads)) == [item + 1 for item in items]
    streams = streams_in_parallel(lambda item: (each for each in range(item % 7)), items, threads, size=lambda _: 1)
    assert [list(stream) for stream in streams] == [list(range(item % 7)) for item in items]


@pytest.mark.parametrize("ahead", [1, 3])
def test_items_are_taken_a_bounded_number_ahead(ahead: int) -> None:
    taken = 0

    def items() -> Iterator[int]:
        nonlocal taken
        for number in range(100):
            taken = number + 1
            yield number

    with closing(in_parallel(lambda item: item, items(), 2, ahead=ahead)) as results:
        assert max(taken - count for count, _ in enumerate(results)) <= 2 * ahead
    with closing(streams_in_parallel(lambda item: iter([item]), items(), ahead, size=lambda _: 1)) as streams:
        assert max(taken - count for count, _ in enumerate(streams)) <= 2 * ahead


def test_work_that_is_done_alone_has_nothing_beside_it() -> None:
    running: set[int] = set()
    here = threading.get_ident()

    def work(item: int) -> tuple[int, bool]:
        running.add(item)
        beside = running - {item}
        if item % 10 == 0:
            assert threading.get_ident() == here
            assert not beside
        running.discard(item)
        return item, bool(beside)

    results = in_parallel(work, range(100), 4, alone=lambda item: item % 10 == 0)
    assert [item for item, _ in results] == list(range(100))


def test_the_first_error_in_the_order_of_items_is_raised_and_the_rest_is_stopped() -> None:
    failed, stopped = threading.Event(), threading.Event()

    def work(item: int) -> int:
        if item == 3:
            failed.set()
            raise ValueError("third")
        if item == 2:
            failed.wait()
            raise ValueError("second")
        if item > 3:
            stopped.wait()
        return item

    found = []
    with pytest.raises(ValueError, match="second"):
        found.extend(in_parallel(work, range(100), 4, stop=stopped.set))
    assert stopped.is_set()


def test_what_has_ended_by_itself_is_not_stopped() -> None:
    stopped = threading.Event()
    assert list(in_parallel(abs, range(10), 2, stop=stopped.set)) == list(range(10))
    assert not stopped.is_set()


def test_a_signal_that_another_thread_takes_interrupts_the_caller() -> None:
    """The threat: Ctrl-C does nothing until the longest call is done."""
    stopped = threading.Event()
    caller = threading.get_ident()

    def work(item: int) -> int:
        while sys._current_frames()[caller].f_code.co_name != "wait":
            pass
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        stopped.wait()
        return item

    with pytest.raises(KeyboardInterrupt):
        list(in_parallel(work, [1], 1, stop=stopped.set))
    assert stopped.is_set()
