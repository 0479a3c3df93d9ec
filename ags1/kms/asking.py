"""Calls of any KMS client: its failures, and results that are not keys, become errors that show no key.

Every new wrapped key comes out of :func:`wrap_key` or :func:`generate_key`, which open it again before anything depends
on it.

No local variable holds the bytes of a key when an error is raised. The error of a client that was given a key is never
the cause of another error, because its frames hold the key.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

from ags1.core.gcm import Key
from ags1.errors import KeyAccessError
from ags1.kms.base import ServiceRefusal
from ags1.kms.cache import key_cache_of, name_of_key
from ags1.support.reports import Report
from ags1.support.secrets import Secret, shows_secret

T = TypeVar("T")
R = TypeVar("R", bound=Report)

# The beginning of our own clients' errors, which repeats what the caller's message has.
_ASKED = re.compile(r"^[\w ]+ could not (?:un)?wrap a key with '[^']*': ")


class UnfitError(Exception):
    """A service returned an invalid result."""


def has_methods(kms: object) -> bool:
    """Whether this looks like a client; makes no call."""
    return all(callable(getattr(kms, name, None)) for name in ("wrap_key", "unwrap_key"))


def name_of(kms: object) -> str:
    """The name of a client in messages. One in front of another one has the name of that."""
    return str(getattr(kms, "__dict__", {}).get("service") or type(kms).__name__)


def checks_keys(kms: object) -> bool:
    """Whether new wrapped keys are opened again; ``check=no`` in the URL of the client says no."""
    return getattr(kms, "checks_keys", True) is not False


def reported(report: R, kms: object) -> R:
    """Return the report of work with this client. It says so if the client's new keys are not checked."""
    if not checks_keys(kms):
        object.__setattr__(report, "keys_checked", False)
    return report


def wrap_key(
    kms: Any, key: Key | Secret, master_key_id: str, who: str, form: Callable[[Any, Key | Secret], Any] | None = None
) -> Any:
    """Wrap a key, and return what `form` makes of the answer, which the client unwraps again; `who` is for messages.

    KeyAccessError: the service refused, failed, or does not unwrap what it wrapped to the same key.
    """
    make = form or returned_wrapping
    failing = f"{name_of(kms)} did not wrap {who}"
    wrapped = ask(lambda: make(kms.wrap_key(bytes(key), master_key_id), key), failing, key)
    _check(kms, key, wrapped, master_key_id, who)
    return wrapped


def generate_key(kms: Any, master_key_id: str, who: str) -> tuple[Key, bytes] | None:
    """Let the service make a key; None if it makes none. KeyAccessError as :func:`wrap_key`."""
    made = ask(lambda: _generated(kms, master_key_id), f"{name_of(kms)} did not make {who}")
    if made is not None:
        _check(kms, *made, master_key_id, who)
    return made


def _generated(kms: Any, master_key_id: str) -> tuple[Key, bytes] | None:
    can = getattr(kms, "supports_key_generation", False)
    if not (can() if callable(can) else can):
        return None
    made = kms.generate_key(master_key_id)
    parts = made if isinstance(made, tuple) and len(made) == 2 else ()
    answer, wrapped = parts or (getattr(made, "key", None), getattr(made, "wrapped_key", None))
    key = returned_key(answer)
    return key, returned_wrapping(wrapped, key)


def _check(kms: Any, key: Key | Secret, wrapped: str | bytes, master_key_id: str, who: str) -> None:
    """Refuse a new wrapped key that does not open to the key; what does is kept in the client's cache."""
    if checks_keys(kms):
        failing = (
            f"{name_of(kms)} did not unwrap {who}, which it has just wrapped: nothing may depend on that key. If this "
            "caller may encrypt and not decrypt, put check=no into the KMS URL; then no key is checked"
        )
        # In a frame of its own, which ends before the error is raised.
        if not ask(lambda: _opened(kms.unwrap_key(wrapped, master_key_id)) == bytes(key), failing, key):
            raise KeyAccessError(
                f"{name_of(kms)} wrapped {who}, and unwrapped it to another key: the service, or the way to it, "
                "changes what it is given. Nothing was written that depends on that key"
            )
    if isinstance(key, Key):
        octets = wrapped.encode() if isinstance(wrapped, str) else wrapped
        key_cache_of(kms).put(name_of_key(master_key_id, octets), key)


def _opened(answer: Any) -> bytes:
    return bytes(answer) if isinstance(answer, Key) else returned_bytes(answer)


def ask(call: Callable[[], T], failing: str, secret: Key | Secret | None = None) -> T:
    """Return the result of a call of a client; if it raises, raise a KeyAccessError that has `failing` in it.

    `secret` is the key that the call was given; the client's error may contain it.
    """
    cause: Exception | None = None
    kind: type[KeyAccessError] = KeyAccessError
    try:
        return call()
    except (ImportError, MemoryError, NotImplementedError):
        # The ImportError names the missing SDK.
        raise
    except UnfitError as error:
        message = f"{failing}: it returned {error}"
    except Exception as error:
        said = _said(error, secret)
        # What our own clients say is what helps; which key it was about comes behind it.
        message = f"{said} ({failing})" if isinstance(error, KeyAccessError) else f"{failing}: {said}"
        cause = error if secret is None else None
        kind = ServiceRefusal if isinstance(error, ServiceRefusal) else KeyAccessError
    raise kind(message) from cause


def _said(error: Exception, secret: Key | Secret | None) -> str:
    text, name = str(error), type(error).__name__
    if secret is not None and shows_secret(text, bytes(secret)):
        return f"{name} (its text is left out, because it contains the key)"
    if isinstance(error, KeyAccessError):
        return _ASKED.sub("", text)
    return f"{name}: {text}" if text else name


def returned_bytes(answer: Any) -> bytes:
    """Return the bytes that a client returned. UnfitError: they are not bytes."""
    if not isinstance(answer, (bytes, bytearray, memoryview)):
        raise UnfitError(f"{type(answer).__name__} instead of bytes")
    return bytes(answer)


def returned_key(answer: Any) -> Key:
    """Return the key that a client unwrapped or made. UnfitError: it is not a key."""
    if isinstance(answer, Key):
        return answer
    if len(octets := returned_bytes(answer)) not in (16, 24, 32):
        raise UnfitError(f"{len(octets)} bytes; an AES key has 16, 24 or 32")
    return Key(octets)


def returned_wrapping(answer: Any, key: Key | Secret) -> bytes:
    """Return the wrapped key from a client. UnfitError: it cannot hold the key, or contains it in clear."""
    octets = returned_bytes(answer)
    if not octets:
        raise UnfitError("nothing")
    if len(octets) <= len(bytes(key)):
        raise UnfitError(f"{len(octets)} bytes, which cannot hold a wrapped key of {len(bytes(key))} bytes")
    if shows_secret(octets, bytes(key)):
        raise UnfitError("bytes that show the key: this service does not encrypt")
    return octets
