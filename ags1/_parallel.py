"""Work on many items at once, on threads that end with the call."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_parallel(
    work: Callable[[Item], Result], items: Iterable[Item], threads: int, *, stop: Callable[[], None] | None = None
) -> Generator[Result, None, None]:
    """Yield results in order; the number of running and waiting calls is bounded.

    `work` is called with each item, by several threads at once; its first exception, in the order of items, is raised.
    When the work ends for any reason, `stop` is called before the running calls are waited for: it makes them end
    early.
    """
    waiting: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(max_workers=threads, thread_name_prefix="ags1-parallel") as executor:
        try:
            for item in items:
                waiting.append(executor.submit(work, item))
                if len(waiting) >= 2 * threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            if stop is not None:
                stop()
            for future in waiting:
                future.cancel()


class _Stopped(Exception):
    """Other work has failed, or the result is no longer needed."""


class SharedProgress:
    """Progress over work on several items at once; the callback is called by one thread at a time.

    An exception of `progress` ends all of the work. `done` of `total` are done already.
    """

    def __init__(self, progress: Callable[[int, int | None], object] | None, total: int, done: int = 0) -> None:
        self._progress, self._total, self._done = progress, total, done
        self._stopped = False
        self._error: BaseException | None = None
        self._lock = threading.Lock()
        if progress is not None:
            progress(done, total)

    def stop(self) -> None:
        """Make all work end: the next report of progress raises."""
        self._stopped = True

    def fail(self, error: BaseException) -> None:
        """Make all work end because of an error: `errors` raises the first of them."""
        if self._error is None:
            self._error = error
        self._stopped = True

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Raise the error that ended the work, on every thread, instead of _Stopped."""
        try:
            yield
        except _Stopped:
            if self._error is None:
                raise
            raise self._error from None

    @contextmanager
    def part(self, size: int) -> Iterator[Callable[[int, int | None], None]]:
        """Progress of a part, in units of its own; at the end of the context it counts as done."""
        told = 0
        if self._stopped:
            raise _Stopped

        def within(done: int, total: int | None) -> None:
            nonlocal told
            now = max(told, min(size, size * done // total)) if total else told
            self._advance(now - told)
            told = now

        yield within
        self._advance(size - told)

    def _advance(self, count: int) -> None:
        with self._lock:
            if self._stopped:
                raise _Stopped
            self._done += count
            if self._progress is None:
                return
            try:
                self._progress(self._done, self._total)
            except BaseException as error:
                self.fail(error)
                raise _Stopped from error
