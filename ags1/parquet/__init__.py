"""Parquet Modular Encryption: encrypt, decrypt, re-key, verify and read Parquet files without re-encoding.

>>> from ags1 import parquet
>>> encryption = parquet.EncryptionConfig(footer_key, column_keys={"ssn": column_key})
>>> parquet.encrypt_file("in.parquet", "out.parquet", encryption)
>>> decryption = parquet.DecryptionConfig(footer_key, column_keys={"ssn": column_key})
>>> parquet.read_table("out.parquet", decryption)

Pages are moved, not decoded, at about the speed of copying the file. Everything is loaded when it is first used.
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ags1.parquet.key_material import RotationReport, rewrap_key_metadata, rotate_master_keys
    from ags1.parquet.properties import DecryptionConfig, EncryptionConfig
    from ags1.parquet.rewrite import decrypt_file, encrypt_file, rekey_file
    from ags1.parquet.view import ParquetView, open

__all__ = [
    "DecryptionConfig",
    "EncryptionConfig",
    "ParquetView",
    "RotationReport",
    "decrypt_file",
    "encrypt_file",
    "open",
    "rekey_file",
    "rewrap_key_metadata",
    "rotate_master_keys",
]

_HOMES = {
    "DecryptionConfig": "properties",
    "EncryptionConfig": "properties",
    "ParquetView": "view",
    "RotationReport": "key_material",
    "decrypt_file": "rewrite",
    "encrypt_file": "rewrite",
    "open": "view",
    "rekey_file": "rewrite",
    "rewrap_key_metadata": "key_material",
    "rotate_master_keys": "key_material",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'ags1.parquet' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"ags1.parquet.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
