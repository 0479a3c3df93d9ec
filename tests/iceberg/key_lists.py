"""Hand-made ``encryption-keys`` for the tests, wrapped by the `cryptography` package and not by ags1."""

from __future__ import annotations

import base64
import os
import threading
from collections import Counter
from typing import Any

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from ags1 import KeyMetadata
from ags1.iceberg import EncryptionKeys
from ags1.kms import MemoryKms
from tests import reference

MASTERS = {"lake": b"0123456789012345", "lake-2": b"1123456789012345"}
DAY = 86_400_000
NOW = 1_781_172_301.703
NOW_MS = 1_781_172_301_703
TIMESTAMP = str(NOW_MS)
KEK = bytes(range(16))
OTHER_KEK = bytes(range(100, 132))
DATA_KEY = b"0123456789abcdef"
PREFIX = b"1234567890123456"


class CountingKms(MemoryKms):
    """Counts the calls that reach it, before any cache of its own."""

    def __init__(self, keys: dict[str, bytes] | None = None, **common: Any) -> None:
        super().__init__(MASTERS if keys is None else keys, **common)
        self.calls: Counter[str] = Counter()
        self._count = threading.Lock()

    def wrap_key(self, key: Any, wrapping_key_id: str) -> bytes:
        with self._count:
            self.calls["wrap"] += 1
        return super().wrap_key(key, wrapping_key_id)

    def unwrap_key(self, wrapped_key: Any, wrapping_key_id: str) -> bytes:
        with self._count:
            self.calls["unwrap"] += 1
        return super().unwrap_key(wrapped_key, wrapping_key_id)


def seal(plain: bytes, key: bytes, aad: bytes | None = None) -> bytes:
    """Nonce, ciphertext, tag."""
    nonce = os.urandom(12)
    return nonce + AESGCM(key).encrypt(nonce, plain, aad)


def entry(key_id: str, wrapped: bytes, by: str | None, properties: dict[str, str] | None = None) -> dict[str, Any]:
    """One entry's JSON object."""
    fields: dict[str, Any] = {"key-id": key_id, "encrypted-key-metadata": base64.b64encode(wrapped).decode()}
    if by is not None:
        fields["encrypted-by-id"] = by
    if properties is not None:
        fields["properties"] = properties
    return fields


def kek_entry(
    key_id: str = "kek",
    kek: bytes = KEK,
    *,
    master: str = "lake",
    timestamp: str | None = TIMESTAMP,
    spelling: str = "KEY_TIMESTAMP",
) -> dict[str, Any]:
    """A key encryption key under a master key of `MASTERS`."""
    properties = None if timestamp is None else {spelling: timestamp}
    return entry(key_id, seal(kek, MASTERS[master]), master, properties)


def metadata_of(number: int = 0, *, data_key: bytes = DATA_KEY, fields: int = 3) -> bytes:
    """Key metadata that differs with its number."""
    plain = reference.KeyMetadata(data_key, PREFIX, None if fields == 2 else 1000 + number)
    return reference.encode_key_metadata(plain, fields)


def list_entry(
    key_id: str = "list",
    number: int = 0,
    *,
    by: str = "kek",
    kek: bytes = KEK,
    timestamp: str = TIMESTAMP,
    plain: bytes | None = None,
) -> dict[str, Any]:
    """Key metadata of a manifest list under a key encryption key."""
    return entry(key_id, seal(metadata_of(number) if plain is None else plain, kek, timestamp.encode()), by)


def table(entries: list[Any], snapshots: dict[int, str | None] | None = None, **more: Any) -> dict[str, Any]:
    """A table's metadata with these entries, and snapshots that name these keys."""
    listed: list[dict[str, Any]] = []
    for number, key_id in (snapshots or {}).items():
        listed.append({"snapshot-id": number, "manifest-list": f"s3://lake/m/snap-{number}.avro"})
        if key_id is not None:
            listed[-1]["key-id"] = key_id
    fields: dict[str, Any] = {"format-version": 3, "location": "s3://lake/t", "encryption-keys": entries}
    fields["current-snapshot-id"] = max(snapshots) if snapshots else -1
    fields["snapshots"] = listed
    return {**fields, **more}


def keys_of(*entries: dict[str, Any], now: float = NOW) -> EncryptionKeys:
    """The list of these entries, with a clock that stands still."""
    return EncryptionKeys.from_table_metadata(table(list(entries)), clock=lambda: now)


def key_metadata(number: int = 0) -> KeyMetadata:
    """What `metadata_of` encodes."""
    return KeyMetadata(DATA_KEY, PREFIX, 1000 + number)
