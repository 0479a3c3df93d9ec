"""The same for many small files: one after the other where a file costs microseconds, at once where it costs a request.

An object store answers in some tens of milliseconds, however small the object is. One request after the other, a slot
would do a few dozen files a second; with these threads, hundreds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from ags1.errors import Ags1Error
from ags1.spark._storage import Storage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    Item = TypeVar("Item")
    Answer = TypeVar("Answer")

__all__ = ["Requests"]

_AT_ONCE = 16
_AHEAD = 64


class Requests:
    """Calls functions that read or write a file each.

    Parameters
    ----------
    *storages : Storage
        What they read and write. If one of them is remote, there are 16 calls at once.
    """

    def __init__(self, *storages: Storage | None) -> None:
        self._is_local = all(each is None or each.location.is_local for each in storages)

    def each(self, work: Callable[[Item], Answer], items: Sequence[Item]) -> Iterator[Answer | OSError | Ags1Error]:
        """Call a function for each of some items; answer what it answers, or its error, in order.

        Locally an item is not touched before the answer to the one before it was taken.
        """

        def attempt(item: Item) -> Answer | OSError | Ags1Error:
            try:
                return work(item)
            except (OSError, Ags1Error) as error:
                return error

        if self._is_local or len(items) < 2:
            yield from map(attempt, items)
            return
        with ThreadPoolExecutor(min(_AT_ONCE, len(items)), thread_name_prefix="ags1-requests") as pool:
            yield from pool.map(attempt, items)

    def ahead(self, items: Iterable[Item | Callable[[], list[Item]]]) -> Iterator[Item]:
        """Pass items on, in order; a function among them is called for those in its place.

        If a storage is remote, that is done while those before it are taken, some at once. When the iterator is closed,
        or has failed, no function is under way any more, and none is called later.
        """
        if self._is_local:
            for item in items:
                if callable(item):
                    yield from item()
                else:
                    yield item
            return
        waiting: deque[Item | Future[list[Item]]] = deque()
        pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="ags1-requests")
        try:
            for item in items:
                waiting.append(pool.submit(item) if callable(item) else item)
                while waiting and (len(waiting) > _AHEAD or _is_ready(waiting[0])):
                    yield from _taken(waiting.popleft())
            while waiting:
                yield from _taken(waiting.popleft())
        finally:
            pool.shutdown(cancel_futures=True)


def _is_ready(item: object) -> bool:
    return not isinstance(item, Future) or item.done()


def _taken(item: Item | Future[list[Item]]) -> Iterable[Item]:
    return item.result() if isinstance(item, Future) else (item,)
