"""Calls of any KMS client: its failures, and results that are not keys, become errors that show no key.

No local variable holds the bytes of a key when an error is raised. The error of a client that was given a key is never
the cause of another error, because its frames hold the key.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

from ags1.core.gcm import Key
from ags1.errors import KeyAccessError
from ags1.kms._base import ServiceRefusal
from ags1.support.secrets import shows_secret

T = TypeVar("T")

# The beginning of our own clients' errors, which repeats what the caller's message has.
_ASKED = re.compile(r"^[\w ]+ could not (?:un)?wrap a key with '[^']*': ")


class UnfitError(Exception):
    """A service returned an invalid result."""


def has_methods(kms: object) -> bool:
    """Whether this looks like a client; makes no call."""
    return all(callable(getattr(kms, name, None)) for name in ("wrap_key", "unwrap_key"))


def ask(call: Callable[[], T], failing: str, secret: Key | None = None) -> T:
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


def _said(error: Exception, secret: Key | None) -> str:
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


def returned_wrapping(answer: Any, key: Key) -> bytes:
    """Return the wrapped key from a client. UnfitError: it is empty or contains the key."""
    octets = returned_bytes(answer)
    if not octets:
        raise UnfitError("nothing")
    if shows_secret(octets, bytes(key)):
        raise UnfitError("bytes that show the key: this service does not encrypt")
    return octets
