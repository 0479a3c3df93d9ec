"""Parquet Modular Encryption: encrypt, decrypt, re-key, verify and read Parquet files without re-encoding.

>>> from ags1 import parquet
>>> encryption = parquet.EncryptionConfig(footer_key, column_keys={"ssn": column_key})
>>> parquet.encrypt_file("in.parquet", "out.parquet", encryption)
>>> decryption = parquet.DecryptionConfig(footer_key, column_keys={"ssn": column_key})
>>> parquet.read_table("out.parquet", decryption)

Pages are moved, not decoded, at about the speed of copying the file. Everything is loaded when it is first used.
"""

from __future__ import annotations

from ags1.support.lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ags1.parquet.keys.key_material import RotationReport, rewrap_key_metadata, rotate_master_keys
    from ags1.parquet.keys.properties import DecryptionConfig, EncryptionConfig
    from ags1.parquet.rewrite.conversions import PlaintextColumnsError, decrypt_file, encrypt_file, rekey_file
    from ags1.parquet.rewrite.rotation import rotate_file
    from ags1.parquet.rewrite.trees import ParquetTreeReport, decrypt_tree, encrypt_tree, rekey_tree, verify_tree
    from ags1.parquet.rewrite.writer import ParquetWriter, write_table
    from ags1.parquet.structure.inspecting import inspect
    from ags1.parquet.structure.inspection import Inspection
    from ags1.parquet.verify.verification import verify_file
    from ags1.parquet.view.tables import dataset, read_table
    from ags1.parquet.view.view import ParquetView, open

__all__ = [
    "DecryptionConfig",
    "EncryptionConfig",
    "Inspection",
    "ParquetTreeReport",
    "ParquetView",
    "ParquetWriter",
    "PlaintextColumnsError",
    "RotationReport",
    "dataset",
    "decrypt_file",
    "decrypt_tree",
    "encrypt_file",
    "encrypt_tree",
    "inspect",
    "open",
    "read_table",
    "rekey_file",
    "rekey_tree",
    "rewrap_key_metadata",
    "rotate_file",
    "rotate_master_keys",
    "verify_file",
    "verify_tree",
    "write_table",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "structure.inspecting": ("inspect",),
        "structure.inspection": ("Inspection",),
        "keys.key_material": ("RotationReport", "rewrap_key_metadata", "rotate_master_keys"),
        "keys.properties": ("DecryptionConfig", "EncryptionConfig"),
        "rewrite.conversions": ("PlaintextColumnsError", "decrypt_file", "encrypt_file", "rekey_file"),
        "rewrite.rotation": ("rotate_file",),
        "view.tables": ("dataset", "read_table"),
        "rewrite.trees": ("ParquetTreeReport", "decrypt_tree", "encrypt_tree", "rekey_tree", "verify_tree"),
        "verify.verification": ("verify_file",),
        "view.view": ("ParquetView", "open"),
        "rewrite.writer": ("ParquetWriter", "write_table"),
    },
    dict.fromkeys(("view.tables", "rewrite.writer"), ("pyarrow",)),
    extra="arrow",
)
