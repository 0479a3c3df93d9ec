"""A KMS for both sides: ``module:tests.spark.java_kms.JavaKms`` here, ``ServerWrapKms`` for parquet-java."""

from __future__ import annotations

import base64

from ags1.core.gcm import Key, open_message, random_bytes, seal_message
from ags1.kms import KeyManagementClient

__all__ = ["KEY_LIST", "URL", "JavaKms"]

_MASTERS = {"lake": b"0123456789012345", "pii": b"1123456789012345", "pay": b"2123456789012345"}
KEY_LIST = ",".join(f"{name}:{base64.b64encode(key).decode()}" for name, key in _MASTERS.items())
URL = "module:tests.spark.java_kms.JavaKms"
_NONCE = 12


class JavaKms(KeyManagementClient):
    """Nonce, ciphertext and tag, with the name of the master key as AAD."""

    def _wrap(self, key: bytes, key_id: str) -> bytes:
        nonce = random_bytes(_NONCE)
        return nonce + seal_message(key, Key(_MASTERS[key_id]), nonce, key_id.encode())

    def _unwrap(self, wrapped: bytes, key_id: str) -> bytes:
        key = open_message(wrapped[_NONCE:], Key(_MASTERS[key_id]), wrapped[:_NONCE], key_id.encode())
        assert key is not None
        return key
