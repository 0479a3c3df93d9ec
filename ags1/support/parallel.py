"""Work on many items at once, on threads that end with the call."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sized
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from typing import Generic, TypeVar

from ags1.support.interrupts import NOTICE_SECONDS

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_parallel(
    work: Callable[[Item], Result],
    items: Iterable[Item],
    threads: int,
    *,
    ahead: int = 2,
    alone: Callable[[Item], bool] | None = None,
    stop: Callable[[], None] | None = None,
) -> Generator[Result, None, None]:
    """Yield results in order, soon after they are there; the number of running and waiting calls is bounded.

    Items are taken on the calling thread, and without `stop`, an item that is known to be the only one is worked on
    there. After an error, or when the generator is closed, no call is begun, and the running ones are waited for:
    Ctrl-C too ends with the running calls.

    Parameters
    ----------
    work : callable
        Called with each item, by several threads at once. Its first exception, in the order of items, is raised.
    items : iterable
        Any number. It is known beforehand of a collection alone: the next item of another iterable may take long.
    threads : int
        Number of calls at once.
    ahead : int, default 2
        Number of calls a thread that run, wait, or have results that were not taken yet.
    alone : callable, optional
        Whether the work on an item is called on the calling thread, with nothing beside it.
    stop : callable, optional
        Called after an error or when the generator is closed, before the running calls are waited for: it makes them
        end early.
    """
    if stop is None and isinstance(items, Sized) and len(items) <= 1:
        yield from map(work, items)
        return
    waiting: deque[Future[Result]] = deque()
    ended = False
    with ThreadPoolExecutor(max_workers=threads, thread_name_prefix="ags1-parallel") as executor:
        try:
            for item in items:
                by_itself = alone is not None and alone(item)
                if not by_itself:
                    waiting.append(executor.submit(work, item))
                while waiting and (by_itself or len(waiting) >= ahead * threads or waiting[0].done()):
                    yield _result(waiting.popleft())
                if by_itself:
                    yield work(item)
            while waiting:
                yield _result(waiting.popleft())
            ended = True
        finally:
            for future in waiting:
                future.cancel()
            if not ended and stop is not None:
                stop()


def _result(future: Future[Result]) -> Result:
    while not wait((future,), NOTICE_SECONDS).done:
        pass
    return future.result()


def streams_in_parallel(
    work: Callable[[Item], Generator[Result, None, None]],
    items: Iterable[Item],
    threads: int,
    *,
    size: Callable[[Result], int],
    most: int | None = None,
) -> Generator[Iterator[Result], None, None]:
    """Yield an iterator over the results of each item, in order; the number of running and waiting calls is bounded.

    Results of which the sum of `size` reaches `most` wait for each item, and its thread with them; without `most`, all.
    What is left of an iterator when the next one is requested is discarded.
    """
    waiting: deque[_Results[Result]] = deque()
    with ThreadPoolExecutor(max_workers=threads, thread_name_prefix="ags1-parallel") as executor:
        try:
            for item in items:
                waiting.append(_Results(size, most))
                executor.submit(waiting[-1].fill, work, item)
                if len(waiting) >= 2 * threads:
                    yield waiting[0].taken()
                    waiting.popleft().stop()
            while waiting:
                yield waiting[0].taken()
                waiting.popleft().stop()
        finally:
            for results in waiting:
                results.stop()


class _Results(Generic[Result]):
    """Results of one item between the thread that makes them and the one that takes them."""

    def __init__(self, size: Callable[[Result], int], most: int | None) -> None:
        self._size, self._most = size, most
        self._waiting: deque[tuple[Result, int]] = deque()
        self._held = 0
        self._stopped = self._ended = False
        self._error: BaseException | None = None
        self._changed = threading.Condition()

    def fill(self, work: Callable[[Item], Generator[Result, None, None]], item: Item) -> None:
        """Put all results of the work."""
        try:
            if self._stopped:
                return
            with closing(work(item)) as results:
                for result in results:
                    if not self._put(result):
                        return
        except BaseException as error:
            self._error = error
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify_all()

    def _put(self, result: Result) -> bool:
        size = self._size(result)
        with self._changed:
            while self._most is not None and self._held >= self._most and not self._stopped:
                self._changed.wait()
            self._waiting.append((result, size))
            self._held += size
            self._changed.notify_all()
            return not self._stopped

    def taken(self) -> Iterator[Result]:
        """Yield the results as they come; raise the error of the work at its place."""
        while True:
            with self._changed:
                while not self._waiting and not self._ended:
                    self._changed.wait(NOTICE_SECONDS)
                if not self._waiting:
                    break
                result, size = self._waiting.popleft()
                self._held -= size
                self._changed.notify_all()
            yield result
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Discard the results, and end the work after its next one."""
        with self._changed:
            self._stopped = True
            self._waiting.clear()
            self._changed.notify_all()
