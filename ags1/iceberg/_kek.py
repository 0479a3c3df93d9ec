"""Key encryption keys: the calls to a KMS that make, wrap and unwrap them, and the cache that keeps the calls few.

Any object with ``wrap_key(key, wrapping_key_id)`` and ``unwrap_key(wrapped, wrapping_key_id)`` is a KMS here: the
clients of :mod:`ags1.kms`, PyIceberg's, or one's own. Source: Iceberg's KeyManagementClient, and the hour that Iceberg
Java and Rust keep an unwrapped key.
"""

from __future__ import annotations

import base64
import os
import threading
import time
import weakref

from ags1.errors import KeyAccessError
from ags1.iceberg._entries import shown
from ags1.keys import Key

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["ForkSafeLock", "KekCache", "check_kms", "make_kek", "unwrap_kek", "wrap_kek"]

KEK_CACHE_SECONDS = 3600.0
MAX_CACHED = 4096


# -- calls -----------------------------------------------------------------------------------------------------


def check_kms(kms: Any, name: str = "kms") -> None:
    """Refuse what is no KMS client, before anything is asked."""
    for method in ("wrap_key", "unwrap_key"):
        if not callable(getattr(kms, method, None)):
            raise TypeError(
                f"{name} must have wrap_key and unwrap_key, as ags1.kms clients do; got {type(kms).__name__}"
            )


def unwrap_kek(kms: Any, wrapped: bytes, table_key_id: str, key_id: str) -> Key:
    """Have a key encryption key unwrapped.

    Parameters
    ----------
    kms : object
        The client.
    wrapped : bytes
        What its ``wrap_key`` gave.
    table_key_id : str
        Id of the master key.
    key_id : str
        Id of the entry, for messages.

    Raises
    ------
    KeyAccessError
        The service refused, failed, or answered with something else than a key.
    """
    who = f"key encryption key {shown(key_id)} under master key {shown(table_key_id)}"
    try:
        answer = kms.unwrap_key(wrapped, table_key_id)
    except (ImportError, MemoryError):
        # A missing SDK is named by its own error.
        raise
    except Exception as error:
        raise KeyAccessError(f"{type(kms).__name__} did not unwrap {who}: {_said(error)}") from error
    return _as_key(answer, f"{type(kms).__name__} unwrapped {who} to")


def wrap_kek(kms: Any, kek: Key, table_key_id: str, key_id: str) -> bytes:
    """Have a key encryption key wrapped; the same errors as :func:`unwrap_kek`."""
    who = f"key encryption key {shown(key_id)} under master key {shown(table_key_id)}"
    secret = bytes(kek)
    try:
        answer = kms.wrap_key(secret, table_key_id)
    except (ImportError, MemoryError):
        # A missing SDK is named by its own error.
        raise
    except Exception as error:
        # Not chained: a client's error about its arguments can quote the key.
        raise KeyAccessError(f"{type(kms).__name__} did not wrap {who}: {_said(error, secret)}") from None
    return _as_wrapped(answer, secret, f"{type(kms).__name__} wrapped {who} to")


def make_kek(kms: Any, table_key_id: str, key_id: str, length: int) -> tuple[Key, bytes]:
    """Make a key encryption key: in the KMS if it can, whatever length it chooses then; else here.

    Returns
    -------
    tuple
        The key, and its wrapped bytes.
    """
    can = getattr(kms, "supports_key_generation", False)
    who = f"key encryption key under master key {shown(table_key_id)}"
    try:
        generates = bool(can() if callable(can) else can)
        made = kms.generate_key(table_key_id) if generates else None
    except (ImportError, MemoryError):
        # A missing SDK is named by its own error.
        raise
    except Exception as error:
        raise KeyAccessError(f"{type(kms).__name__} did not make a {who}: {_said(error)}") from error
    if made is None:
        kek = Key.generate(8 * length)
        return kek, wrap_kek(kms, kek, table_key_id, key_id)
    parts = made if isinstance(made, tuple) and len(made) == 2 else ()
    key, wrapped = parts or (getattr(made, "key", None), getattr(made, "wrapped_key", None))
    kek = _as_key(key, f"{type(kms).__name__} made a {who}, and it is")
    return kek, _as_wrapped(wrapped, bytes(kek), f"{type(kms).__name__} made a {who}, wrapped to")


def _as_key(answer: object, doing: str) -> Key:
    if isinstance(answer, Key):
        return answer
    if not isinstance(answer, (bytes, bytearray, memoryview)):
        raise KeyAccessError(f"{doing} something of type {type(answer).__name__} instead of bytes")
    if (length := memoryview(answer).nbytes) not in (16, 24, 32):
        raise KeyAccessError(f"{doing} {length} bytes; an AES key has 16, 24 or 32")
    return Key(bytes(answer))


def _as_wrapped(answer: object, secret: bytes, doing: str) -> bytes:
    if not isinstance(answer, (bytes, bytearray, memoryview)):
        raise KeyAccessError(f"{doing} something of type {type(answer).__name__} instead of bytes")
    wrapped = bytes(answer)
    if len(wrapped) <= len(secret):
        raise KeyAccessError(f"{doing} {len(wrapped)} bytes, which cannot hold a wrapped key of {len(secret)} bytes")
    if _shows(wrapped, secret):
        raise KeyAccessError(f"{doing} bytes that show the key: this service does not encrypt")
    return wrapped


def _said(error: Exception, secret: bytes = b"") -> str:
    """What an error of somebody's client says, unless it shows the key."""
    text = str(error)
    if secret and _shows(text.encode("utf-8", "replace"), secret):
        text = "(its message shows the key and is withheld)"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _shows(text: bytes, secret: bytes) -> bool:
    spellings = (secret, base64.b64encode(secret).rstrip(b"="), base64.urlsafe_b64encode(secret).rstrip(b"="))
    quoted = repr(secret)[2:-1].encode("ascii")
    return any(each in text for each in (*spellings, quoted)) or secret.hex().encode("ascii") in text.lower()


# -- the cache -------------------------------------------------------------------------------------------------


class ForkSafeLock:
    """A lock that a forked child finds open, whoever held it in the parent."""

    __slots__ = ("__weakref__", "_lock")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        _LOCKS.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *exc: object) -> None:
        try:
            self._lock.release()
        except RuntimeError:
            # Renewed by a fork inside the block, in the child.
            pass

    def renew(self) -> None:
        """Replace the lock, in a child that has one thread."""
        self._lock = threading.Lock()


_LOCKS: weakref.WeakSet[ForkSafeLock] = weakref.WeakSet()


def _renew_locks() -> None:
    for lock in list(_LOCKS):
        lock.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_locks)


class _Slot:
    """One key encryption key, or the place where one is being fetched."""

    __slots__ = ("expires", "kek", "lock")

    def __init__(self) -> None:
        self.lock = ForkSafeLock()
        self.kek: Key | None = None
        self.expires = 0.0


class _Client:
    """What one KMS client has unwrapped."""

    __slots__ = ("alive", "slots")

    def __init__(self, alive: Callable[[], Any]) -> None:
        self.alive = alive
        self.slots: dict[tuple[str, bytes], _Slot] = {}


class KekCache:
    """Unwrapped key encryption keys, for a while: one call to the KMS per key, however many threads ask.

    Parameters
    ----------
    seconds : float
        How long a key is kept; 0 keeps none.
    clock : callable, optional
        Seconds that only grow. For tests.

    Notes
    -----
    Safe to share between threads, and after a fork. A key belongs to the client object that unwrapped it, so that
    nobody is given what their own credentials would not open, and is wiped when that client is gone. It is found by
    its wrapped bytes and master key, never by the entry's id alone, which somebody could have given to other bytes.
    A failed call is not remembered. Closing a client does not empty the cache: drop the client, or :meth:`clear`.
    """

    def __init__(self, seconds: float = KEK_CACHE_SECONDS, *, clock: Callable[[], float] = time.monotonic) -> None:
        if seconds < 0:
            raise ValueError(f"seconds must not be negative, got {seconds}")
        self._seconds = seconds
        self._clock = clock
        self._lock = ForkSafeLock()
        self._clients: dict[int, _Client] = {}

    def get(self, kms: Any, wrapped: bytes, table_key_id: str, load: Callable[[], Key]) -> Key:
        """The key behind `wrapped`; `load` is called for it if it is not here."""
        slots = self._client(kms).slots
        name = (table_key_id, wrapped)
        with self._lock:
            slot = slots.setdefault(name, _Slot())
        with slot.lock:
            if slot.kek is None or self._clock() >= slot.expires:
                slot.kek = None
                try:
                    kek = load()
                    if self._seconds == 0:
                        return kek
                finally:
                    # Also after an error: a place where nothing is would never expire.
                    with self._lock:
                        slots.pop(name, None)
                slot.kek = kek
                slot.expires = self._clock() + self._seconds
                with self._lock:
                    self._make_room(slots)
                    slots[name] = slot
            return slot.kek

    def put(self, kms: Any, wrapped: bytes, table_key_id: str, kek: Key) -> None:
        """Remember a key that was just made."""
        if self._seconds == 0:
            return
        slot = _Slot()
        slot.kek = kek
        slot.expires = self._clock() + self._seconds
        slots = self._client(kms).slots
        with self._lock:
            self._make_room(slots)
            slots[table_key_id, wrapped] = slot

    def clear(self) -> None:
        """Forget all keys."""
        self._clients = {}

    def __len__(self) -> int:
        now = self._clock()
        slots = [slot for client in list(self._clients.values()) for slot in list(client.slots.values())]
        return sum(slot.kek is not None and now < slot.expires for slot in slots)

    def __repr__(self) -> str:
        return f"<ags1.iceberg.KekCache: {len(self)} keys, kept for {self._seconds:g} s>"

    def __reduce__(self) -> str:
        raise TypeError("an ags1.iceberg.KekCache cannot be pickled or copied: it holds keys")

    def _client(self, kms: Any) -> _Client:
        identity = id(kms)
        with self._lock:
            client = self._clients.get(identity)
            if client is None or client.alive() is not kms:
                clients = self._clients
                try:
                    # No lock in the callback: garbage collection can run it inside any of ours.
                    client = _Client(weakref.ref(kms, lambda _: clients.pop(identity, None)))
                except TypeError:
                    client = _Client(lambda: kms)
                self._clients[identity] = client
            return client

    def _make_room(self, slots: dict[tuple[str, bytes], _Slot]) -> None:
        now = self._clock()
        for name in [name for name, slot in slots.items() if slot.kek is not None and now >= slot.expires]:
            del slots[name]
        while len(slots) >= MAX_CACHED:
            del slots[next(iter(slots))]


SHARED = KekCache()
"""The cache of this process, for everyone who brings none of their own."""
