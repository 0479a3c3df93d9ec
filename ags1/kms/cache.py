"""The cache of unwrapped keys. Each KMS client has one, with the time limit of that client.

It holds the keys of Iceberg tables, datasets and Parquet files. A key is found by the id of its master key and a hash
of its wrapped bytes: an id alone is not enough, because other wrapped bytes may have the same id.
"""

from __future__ import annotations

import hashlib
import threading
import time
import weakref
from collections import OrderedDict

from ags1.errors import KeyAccessError
from ags1.support.forks import renew_in_children
from ags1.support.secrets import Secret

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from typing import Any, NoReturn, TypeVar

    T = TypeVar("T")

CACHE_SECONDS = 3600.0
"""How long an unwrapped key is kept by default, in seconds: the same as in Iceberg Java and Rust."""

MAX_ENTRIES = 10_000


class _Flight:
    """A key that one thread requests while it holds the lock; other threads wait for the lock."""

    __slots__ = ("__weakref__", "failure", "is_led", "lock", "value")

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.is_led = False
        self.value: Any = None
        self.failure: KeyAccessError | None = None


class KeyCache:
    """Unwrapped keys of one KMS client.

    Parameters
    ----------
    seconds : float
        How long a key is kept; 0 keeps none.
    clock : callable
        A monotonic clock, in seconds.

    Notes
    -----
    Safe to share between threads: if several request the same key at once, one makes the call, and all get its result
    or its error. Errors are not kept. A forked child starts with an empty cache.
    """

    def __init__(self, seconds: float = CACHE_SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
            raise TypeError(f"cache_seconds must be a number, not {type(seconds).__name__}")
        if not seconds >= 0:
            raise ValueError(f"cache_seconds must not be negative, got {seconds}")
        self.seconds = seconds
        self.clock = clock
        self._parts: weakref.WeakSet[KeyCache] = weakref.WeakSet()
        self._closed = False
        self._epoch = 0
        self.renew()
        renew_in_children(self)

    def get(self, name: Hashable, make: Callable[[], T], *, seconds: float | None = None) -> T:
        """Return the value that is kept under a name; if there is none, make it.

        Parameters
        ----------
        name : hashable
            Of a wrapped key: :func:`name_of_key`.
        make : callable
            Makes the value: a Key, an object that holds one, or a Secret, which is never kept. It may call this method
            with the same name.
        seconds : float, optional
            The greatest age that this caller accepts; with 0, the new value is not kept.
        """
        limit = self.seconds if seconds is None else min(seconds, self.seconds)
        with self._lock:
            found = self._find(name, limit)
            if found is not None:
                return found  # type: ignore[no-any-return]
            flight = self._flights.get(name)
            if flight is None or flight.value is not None or flight.failure is not None:
                flight = self._flights[name] = _Flight()
                # Too old for this caller: remove it, so that the client's own unwrap_key does not find it either.
                self._kept.pop(name, None)
            epoch = self._epoch
        # If the thread that makes the call is interrupted, the lock is released and the next waiting thread makes it.
        with flight.lock:
            if flight.failure is not None:
                raise type(flight.failure)(str(flight.failure))
            if flight.value is not None:
                return flight.value  # type: ignore[no-any-return]
            if flight.is_led:
                # The client's own unwrap_key, called inside `make` of a table or a file.
                return make()
            try:
                flight.is_led = True
                value = make()
                with self._lock:
                    self._keep(name, value, limit, epoch)
                    flight.value = value
                return value
            except KeyAccessError as error:
                flight.failure = error
                raise
            finally:
                flight.is_led = False

    def put(self, name: Hashable, value: object) -> None:
        """Keep a new key."""
        with self._lock:
            self._keep(name, value, self.seconds, self._epoch)

    def part(self) -> KeyCache:
        """Make a separate cache, whose keys only its user can find. Closing this cache closes it too."""
        part = KeyCache(self.seconds, self.clock)
        part._closed = self._closed
        self._parts.add(part)
        return part

    def clear(self) -> None:
        """Remove all keys. The results of calls that are running now are not kept."""
        with self._lock:
            self._epoch += 1
            self._kept.clear()
        for part in list(self._parts):
            part.clear()

    def close(self) -> None:
        """Remove all keys, and keep none from now on."""
        self._closed = True
        for part in list(self._parts):
            part.close()
        self.clear()

    def renew(self) -> None:
        """Start empty in a forked child, which has one thread: do not use its parent's keys and locks."""
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, tuple[float, Any]] = OrderedDict()
        # They end with the calls that take part in them.
        self._flights: weakref.WeakValueDictionary[Hashable, _Flight] = weakref.WeakValueDictionary()

    def __len__(self) -> int:
        with self._lock:
            now = self.clock()
            return sum(now - made < self.seconds for made, _ in self._kept.values())

    def __repr__(self) -> str:
        return f"<ags1.kms.KeyCache: {len(self)} keys, kept for {self.seconds:g} s>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("an ags1.kms.KeyCache cannot be pickled or copied: it holds keys")

    def _find(self, name: Hashable, limit: float) -> Any:
        made, value = self._kept.get(name, (0.0, None))
        return value if value is not None and self.clock() - made < limit else None

    def _keep(self, name: Hashable, value: object, limit: float, epoch: int) -> None:
        # A Secret is not an AES key. Other secrets that a service unwraps are not kept.
        if self._closed or limit <= 0 or epoch != self._epoch or isinstance(value, Secret):
            return
        now = self.clock()
        self._kept[name] = (now, value)
        self._kept.move_to_end(name)
        # The oldest are first.
        while len(self._kept) > MAX_ENTRIES or now - next(iter(self._kept.values()))[0] >= self.seconds:
            self._kept.popitem(last=False)


def name_of_key(key_id: str, wrapped: bytes) -> Hashable:
    """The name of a wrapped key in the cache of its client."""
    return key_id, hashlib.sha256(wrapped).digest()


def key_cache_of(kms: Any) -> KeyCache:
    """The cache that belongs to a KMS client.

    Parameters
    ----------
    kms : object
        A client of :mod:`ags1.kms`, whose `cache_seconds`, ``initialize`` and ``close`` also apply to its cache. Any
        other object gets a cache for its lifetime, which keeps keys for its ``cache_seconds`` or an hour; without
        support for weak references it gets none.
    """
    own = getattr(kms, "__dict__", {}).get("_key_cache")
    if isinstance(own, KeyCache):
        return own
    identity = id(kms)
    found, cache = _foreign.get(identity, (None, None))
    if found is None or found() is not kms:
        seconds = getattr(kms, "cache_seconds", CACHE_SECONDS)
        cache = KeyCache(seconds if isinstance(seconds, (int, float)) and seconds >= 0 else CACHE_SECONDS)
        try:
            found = weakref.ref(kms, lambda _: _foreign.pop(identity, None))
        except TypeError:
            return KeyCache(0)
        # If two threads come here at once, setdefault keeps one cache.
        kept, other = _foreign.setdefault(identity, (found, cache))
        if kept() is kms:
            return other
        _foreign[identity] = (found, cache)
    assert cache is not None
    return cache


_foreign: dict[int, tuple[Callable[[], Any], KeyCache]] = {}
