"""The encrypted files of apache/parquet-testing: which keys open them."""

from __future__ import annotations

import base64
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

DIRECTORY = Path(__file__).parents[2].parent / "shared" / "fixtures" / "parquet-testing"
EXTERNAL_MATERIAL = "external_key_material_java"

FOOTER_KEY = b"0123456789012345"
DOUBLE_FIELD_KEY = b"1234567890123450"
FLOAT_FIELD_KEY = b"1234567890123451"
COLUMN_KEYS = {"double_field": DOUBLE_FIELD_KEY, "float_field": FLOAT_FIELD_KEY}
# What the key metadata in the files and the key material name.
KEYS_BY_ID = {b"kf": FOOTER_KEY, b"kc1": DOUBLE_FIELD_KEY, b"kc2": FLOAT_FIELD_KEY}


@dataclass(frozen=True)
class PublicFile:
    """A file and what opens it."""

    name: str
    footer_key: bytes = FOOTER_KEY
    column_keys: dict[str, bytes] | None = None
    # To be supplied: the file does not hold it.
    aad_prefix: bytes | None = None

    def read(self) -> bytes:
        return read(f"{self.name}.parquet.encrypted")


def read(name: str) -> bytes:
    """A file of the directory; the test is skipped if it is not there."""
    path = DIRECTORY / name
    if not path.exists():
        refuse = pytest.fail if os.environ.get("AGS1_NO_SKIP") else pytest.skip
        refuse(f"the files of parquet-testing are not at {DIRECTORY}")
    return path.read_bytes()


PUBLIC_FILES = {
    file.name: file
    for file in (
        PublicFile("uniform_encryption"),
        PublicFile("encrypt_columns_and_footer", column_keys=COLUMN_KEYS),
        PublicFile("encrypt_columns_plaintext_footer", column_keys=COLUMN_KEYS),
        PublicFile("encrypt_columns_and_footer_aad", column_keys=COLUMN_KEYS),
        PublicFile("encrypt_columns_and_footer_disable_aad_storage", column_keys=COLUMN_KEYS, aad_prefix=b"tester"),
        PublicFile("encrypt_columns_and_footer_ctr", column_keys=COLUMN_KEYS),
        PublicFile("encrypt_columns_and_footer_bloom_filter", column_keys=COLUMN_KEYS),
    )
}
"""All but the one with external key material, whose keys are wrapped."""


def _unwrap_locally(wrapped: str, key: bytes, aad: bytes) -> bytes:
    raw = base64.b64decode(wrapped)
    return AESGCM(key).decrypt(raw[:12], raw[12:], aad)


def external_key(key_metadata: bytes | None) -> bytes:
    """The data key that the key metadata of the file with external material refers to."""
    assert key_metadata is not None
    reference: dict[str, Any] = json.loads(key_metadata)
    assert (reference["keyMaterialType"], reference["internalStorage"]) == ("PKMT1", False)
    materials = json.loads(read(f"_KEY_MATERIAL_FOR_{EXTERNAL_MATERIAL}.parquet.encrypted.json"))
    material: dict[str, Any] = json.loads(materials[reference["keyReference"]])
    assert material["doubleWrapping"] is True
    master_id = material["masterKeyID"].encode()
    kek = _unwrap_locally(material["wrappedKEK"], KEYS_BY_ID[master_id], master_id)
    return _unwrap_locally(material["wrappedDEK"], kek, base64.b64decode(material["keyEncryptionKeyID"]))
