"""Key encryption keys: the calls to a KMS that make, wrap and unwrap them.

Any object with ``wrap_key(key, wrapping_key_id)`` and ``unwrap_key(wrapped, wrapping_key_id)`` is a KMS here: the
clients of :mod:`ags1.kms`, PyIceberg's, or your own. An unwrapped key stays in the cache of its client.
"""

from __future__ import annotations

from typing import Any

from ags1.iceberg.keys.entries import EncryptedKey, shown
from ags1.keys import Key
from ags1.kms import key_cache_of, name_of_key
from ags1.kms.asking import ask, generate_key, has_methods, name_of, returned_key, wrap_key


def check_kms(kms: Any, name: str = "kms") -> None:
    """Refuse an object that is not a KMS client, before the first request."""
    if not has_methods(kms):
        raise TypeError(f"{name} must have wrap_key and unwrap_key, as ags1.kms clients do; got {type(kms).__name__}")


def kept_kek(kms: Any, entry: EncryptedKey) -> Key:
    """Unwrap a key encryption key by the KMS; a key in the client's cache needs no call.

    A KeyAccessError reports that the service refused, failed, or did not return a key.
    """
    wrapped, master = entry.encrypted_key_metadata, entry.encrypted_by_id or ""

    def unwrap() -> Key:
        who = f"key encryption key {shown(entry.key_id)} under master key {shown(master)}"
        return ask(lambda: returned_key(kms.unwrap_key(wrapped, master)), f"{name_of(kms)} did not unwrap {who}")

    return key_cache_of(kms).get(name_of_key(master, wrapped), unwrap)


def wrap_kek(kms: Any, kek: Key, table_key_id: str, key_id: str) -> bytes:
    """Wrap a key encryption key by the KMS; raises as :func:`ags1.kms.asking.wrap_key`."""
    who = f"key encryption key {shown(key_id)} under master key {shown(table_key_id)}"
    wrapped: bytes = wrap_key(kms, kek, table_key_id, who)
    return wrapped


def make_kek(kms: Any, table_key_id: str, key_id: str, length: int) -> tuple[Key, bytes]:
    """Make and wrap a key encryption key: in the KMS if it can, with a length that the KMS chooses; else here."""
    made = generate_key(kms, table_key_id, f"a key encryption key under master key {shown(table_key_id)}")
    if made is not None:
        return made
    kek = Key.generate(8 * length)
    return kek, wrap_kek(kms, kek, table_key_id, key_id)
