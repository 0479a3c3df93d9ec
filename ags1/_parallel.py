"""Work on many things at once, on threads that end with the work: nothing of it goes on after the call is over."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

__all__ = ["in_parallel"]

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_parallel(
    work: Callable[[Item], Result], items: Iterable[Item], threads: int, *, stop: Callable[[], None] | None = None
) -> Generator[Result, None, None]:
    """Yield results in order, with no more than a few of them under way or waiting.

    Parameters
    ----------
    work : callable
        Called with each item, by several threads at once. Its first exception, in the order of items, is raised.
    items : iterable
    threads : int
        Calls at once.
    stop : callable, optional
        Called when the work ends, whatever ends it, before the calls that are under way are waited for: it makes them
        end early.
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
