"""Master keys in memory: for tests, and for applications that store keys in their own way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ags1.core.gcm import Key, open_message, random_bytes, seal_message
from ags1.core.typing import KeyLike
from ags1.kms.base import KeyManagementClient, Refusal
from ags1.support.typing import Any

_NONCE = 12
_TAG = 16


class MemoryKms(KeyManagementClient):
    """Wraps keys with AES-GCM under master keys in memory. A wrapped key is nonce, ciphertext, tag; there is no AAD.

    The test KMS of Iceberg Java (``MemoryMockKMS``) and that of iceberg-rust use the same format, so each can unwrap
    the keys of the others.

    Parameters
    ----------
    keys : mapping of str to key, or to a tuple of keys
        Master keys of 16, 24 or 32 bytes, by id. Of several versions of a key the first wraps, and each unwraps what it
        wrapped.
    **common
        As :class:`~ags1.kms.KeyManagementClient`.
    """

    service = "MemoryKms"

    def __init__(self, keys: Mapping[str, KeyLike | tuple[KeyLike, ...]], **common: Any) -> None:
        super().__init__(**common)
        self._keys = {
            key_id: tuple(
                key if isinstance(key, Key) else Key(key)
                for key in (versions if isinstance(versions, tuple) else (versions,))
            )
            for key_id, versions in keys.items()
        }

    def _wrap(self, key: bytes, key_id: str) -> bytes:
        return seal_wrapped(key, self._master(key_id)[0])

    def _unwrap(self, wrapped: bytes, key_id: str) -> bytes:
        return open_wrapped(wrapped, *self._master(key_id))

    def _master(self, key_id: str) -> tuple[Key, ...]:
        found = self._keys.get(key_id)
        if found is None:
            raise unknown_key(self._keys)
        return found

    def close(self) -> None:
        """Wipe the master keys and the cached ones."""
        super().close()
        self._keys.clear()


def unknown_key(known: Iterable[str]) -> Refusal:
    """The Refusal for an unknown key id."""
    ids = sorted(known)
    shown = ", ".join(ids[:10]) + (", ..." if len(ids) > 10 else "")
    return Refusal(f"there is no key with this id; the ids are {shown}" if ids else "there are no keys")


def seal_wrapped(key: bytes, master: Key) -> bytes:
    """Wrap a key as Iceberg's test KMS does: nonce, ciphertext, tag."""
    nonce = random_bytes(_NONCE)
    return nonce + seal_message(key, master, nonce)


def open_wrapped(wrapped: bytes, *masters: Key) -> bytes:
    """Unwrap a key that :func:`seal_wrapped` or Iceberg's test KMS wrapped with one of these versions."""
    if len(wrapped) < _NONCE + _TAG + 1:
        raise Refusal(f"the wrapped key has {len(wrapped)} bytes; the minimum is {_NONCE + _TAG + 1}")
    for master in masters:
        key = open_message(wrapped[_NONCE:], master, wrapped[:_NONCE])
        if key is not None:
            return key
    raise Refusal("it was wrapped with another key, or it is damaged")
