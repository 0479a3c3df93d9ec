"""The master keys of the tables' KMS: ``ags1.kms.MemoryKms(MASTER_KEYS)`` and the one in Java unwrap each other's."""

from __future__ import annotations

MASTER_KEYS = {
    "keyA": b"0123456789012345",
    "keyB": b"1123456789012345",
    "key256": b"01234567890123456789012345678901",
}
