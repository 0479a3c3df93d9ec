"""What the tests of the key tools share: master keys, columns, a KMS that counts."""

from __future__ import annotations

from typing import Any

from ags1.kms import MemoryKms

MASTERS = {"kf": b"0123456789012345", "kc1": b"1234567890123450", "kc2": b"1234567890123451"}
COLUMNS = [("id",), ("ssn",), ("salary",), ("a", "x"), ("a", "y")]


class CountingKms(MemoryKms):
    """Counts the calls that reach the service."""

    def __init__(self, masters: Any = None, **common: Any) -> None:
        super().__init__(masters or MASTERS, **common)
        self.wraps = 0
        self.unwraps = 0

    def _wrap(self, key: bytes, key_id: str) -> bytes:
        self.wraps += 1
        return super()._wrap(key, key_id)

    def _unwrap(self, wrapped: bytes, key_id: str) -> bytes:
        self.unwraps += 1
        return super()._unwrap(wrapped, key_id)


def rekey_freely(source: Any, target: Any, decryption: Any, encryption: Any) -> None:
    """Re-key a file; columns may become plaintext."""
    from ags1.parquet import PlaintextColumnsError, rekey_file

    try:
        rekey_file(source, target, decryption, encryption)
    except PlaintextColumnsError as error:
        rekey_file(source, target, decryption, encryption, plaintext_columns=error.columns)
