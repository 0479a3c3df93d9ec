"""Key encryption keys: the calls to a KMS that make, wrap and unwrap them.

Any object with ``wrap_key(key, wrapping_key_id)`` and ``unwrap_key(wrapped, wrapping_key_id)`` is a KMS here: the
clients of :mod:`ags1.kms`, PyIceberg's, or one's own. An unwrapped key is kept in the cache that belongs to its client.

No local variable holds a key's bytes when an error is raised, and no error hangs on that of a client that was given a
key, whose frames do.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

from ags1._secrets import shows_secret
from ags1.errors import KeyAccessError
from ags1.iceberg._entries import shown
from ags1.keys import Key
from ags1.kms import ServiceRefusal, key_cache_of, name_of_key

T = TypeVar("T")

__all__ = ["check_kms", "keep_kek", "kept_kek", "make_kek", "unwrap_kek", "wrap_kek"]

_ASKED = re.compile(r"^[\w ]+ could not (?:un)?wrap a key with '[^']*': ")


def check_kms(kms: Any, name: str = "kms") -> None:
    """Refuse what is no KMS client, before anything is asked."""
    for method in ("wrap_key", "unwrap_key"):
        if not callable(getattr(kms, method, None)):
            raise TypeError(
                f"{name} must have wrap_key and unwrap_key, as ags1.kms clients do; got {type(kms).__name__}"
            )


def unwrap_kek(kms: Any, wrapped: bytes, table_key_id: str, key_id: str) -> Key:
    """Have a key encryption key unwrapped that the master key `table_key_id` wrapped; `key_id` is for messages.

    A KeyAccessError says that the service refused, failed, or replied with something else than a key.
    """
    who = f"key encryption key {shown(key_id)} under master key {shown(table_key_id)}"
    name = type(kms).__name__
    return _ask(
        lambda: _as_key(kms.unwrap_key(wrapped, table_key_id)),
        f"{name} did not unwrap {who}",
        f"{name} unwrapped {who} to",
    )


def kept_kek(kms: Any, wrapped: bytes, table_key_id: str, key_id: str) -> Key:
    """As :func:`unwrap_kek`, but a key that the client's cache has costs no call."""
    name = name_of_key(table_key_id, wrapped)
    return key_cache_of(kms).get(name, lambda: unwrap_kek(kms, wrapped, table_key_id, key_id))


def keep_kek(kms: Any, wrapped: bytes, table_key_id: str, kek: Key) -> None:
    """Put a key that was just made into its client's cache."""
    key_cache_of(kms).put(name_of_key(table_key_id, wrapped), kek)


def wrap_kek(kms: Any, kek: Key, table_key_id: str, key_id: str) -> bytes:
    """Have a key encryption key wrapped; the same errors as :func:`unwrap_kek`."""
    who = f"key encryption key {shown(key_id)} under master key {shown(table_key_id)}"
    name = type(kms).__name__
    return _ask(
        lambda: _as_wrapped(kms.wrap_key(bytes(kek), table_key_id), kek),
        f"{name} did not wrap {who}",
        f"{name} wrapped {who} to",
        kek,
    )


def make_kek(kms: Any, table_key_id: str, key_id: str, length: int) -> tuple[Key, bytes]:
    """Make a key encryption key, and wrap it: in the KMS if it can, of the length that it chooses; else here."""
    who = f"key encryption key under master key {shown(table_key_id)}"
    name = type(kms).__name__
    made = _ask(lambda: _made(kms, table_key_id), f"{name} did not make a {who}", f"{name} made a {who}, and it is")
    if made is not None:
        return made
    kek = Key.generate(8 * length)
    return kek, wrap_kek(kms, kek, table_key_id, key_id)


class _UnfitError(Exception):
    """A service returned something that it should not."""


def _ask(call: Callable[[], T], failing: str, doing: str, secret: Key | None = None) -> T:
    """Call somebody's client; its failure becomes an error of ours."""
    cause: Exception | None = None
    kind: type[KeyAccessError] = KeyAccessError
    try:
        return call()
    except (ImportError, MemoryError):
        # A missing SDK is named by its own error.
        raise
    except _UnfitError as error:
        message = f"{doing} {error}"
    except Exception as error:
        message = f"{failing}: {_said(error, secret)}"
        # An error about its arguments can quote the key, and its frames have it.
        cause = error if secret is None else None
        kind = ServiceRefusal if isinstance(error, ServiceRefusal) else KeyAccessError
    raise kind(message) from cause


def _made(kms: Any, table_key_id: str) -> tuple[Key, bytes] | None:
    can = getattr(kms, "supports_key_generation", False)
    if not (can() if callable(can) else can):
        return None
    made = kms.generate_key(table_key_id)
    parts = made if isinstance(made, tuple) and len(made) == 2 else ()
    key, wrapped = parts or (getattr(made, "key", None), getattr(made, "wrapped_key", None))
    kek = _as_key(key)
    return kek, _as_wrapped(wrapped, kek)


def _as_key(answer: object) -> Key:
    if isinstance(answer, Key):
        return answer
    if not isinstance(answer, (bytes, bytearray, memoryview)):
        raise _UnfitError(f"something of type {type(answer).__name__} instead of bytes")
    if (length := memoryview(answer).nbytes) not in (16, 24, 32):
        raise _UnfitError(f"{length} bytes; an AES key has 16, 24 or 32")
    return Key(answer)


def _as_wrapped(answer: object, kek: Key) -> bytes:
    if not isinstance(answer, (bytes, bytearray, memoryview)):
        raise _UnfitError(f"something of type {type(answer).__name__} instead of bytes")
    wrapped = bytes(answer)
    if len(wrapped) <= len(kek):
        raise _UnfitError(f"{len(wrapped)} bytes, which cannot hold a wrapped key of {len(kek)} bytes")
    if shows_secret(wrapped, bytes(kek)):
        raise _UnfitError("bytes that show the key: this service does not encrypt")
    return wrapped


def _said(error: Exception, secret: Key | None) -> str:
    """What an error of somebody's client says, unless it shows the key."""
    text = str(error)
    if secret is not None and shows_secret(text, bytes(secret)):
        text = "(its message shows the key and is withheld)"
    if isinstance(error, KeyAccessError):
        # What our clients say begins with what the caller has said already.
        return _ASKED.sub("", text)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
