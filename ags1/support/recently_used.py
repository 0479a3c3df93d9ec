"""The one bounded cache of a process: what was used last is kept."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable

from ags1.support.forks import ForkSafeLock
from ags1.support.typing import Any


class RecentlyUsed:
    """Values by name. Beyond a limit, the one that was not used for the longest time is dropped; one always stays.

    Parameters
    ----------
    most : int
        How much is kept: of values, or of what `weigh` says of each.
    weigh : callable, optional
        The weight of a value, such as its bytes.

    Notes
    -----
    Safe to share between threads. A forked child goes on with the values of its parent; one may not have been weighed.
    """

    def __init__(self, most: int, weigh: Callable[[Any], int] = lambda value: 1) -> None:
        self._most = most
        self._weigh = weigh
        self._kept: OrderedDict[Hashable, Any] = OrderedDict()
        self._weight = 0
        self._lock = ForkSafeLock()

    def get(self, name: Hashable, make: Callable[[], Any] | None = None) -> Any:
        """The value of a name; if there is none, the one that `make` makes, or None.

        Two threads may both make it; neither waits for the other, and both get the first one.
        """
        with self._lock.lock:
            found = self._kept.get(name)
            if found is not None:
                self._kept.move_to_end(name)
        return found if found is not None or make is None else self.keep(name, make())

    def keep(self, name: Hashable, value: Any) -> Any:
        """Keep a value, unless the name has one; return the one that it has."""
        with self._lock.lock:
            if name in self._kept:
                return self._kept[name]
            self._kept[name] = value
            self._weight += self._weigh(value)
            while self._weight > self._most and len(self._kept) > 1:
                self._weight -= self._weigh(self._kept.popitem(last=False)[1])
        return value

    def drop(self, name: Hashable) -> None:
        """Drop a value that is not needed again."""
        with self._lock.lock:
            dropped = self._kept.pop(name, None)
            if dropped is not None:
                self._weight -= self._weigh(dropped)

    def clear(self) -> None:
        """Drop all values."""
        with self._lock.lock:
            self._kept.clear()
            self._weight = 0

    def newest_first(self) -> list[Any]:
        """All values."""
        with self._lock.lock:
            return list(reversed(self._kept.values()))
