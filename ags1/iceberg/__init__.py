"""Iceberg's table encryption: the key hierarchy in a table's metadata, and encrypted tables opened from Python.

>>> from ags1.iceberg import EncryptionKeys
>>> EncryptionKeys.from_table_metadata({"encryption-keys": []}).to_list()
[]

The names are loaded when they are first used.
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ags1.iceberg._entries import EncryptedKey
    from ags1.iceberg._reports import MergeReport, PruneReport, RewrapReport
    from ags1.iceberg.conversion.expiry import clean, expire_snapshots
    from ags1.iceberg.conversion.operations import (
        decrypt_table,
        encrypt_table,
        plan_conversion,
        rekey_table,
        relocate_table,
    )
    from ags1.iceberg.conversion.reports import CleanReport, ConversionPlan, ConversionReport, ExpiryReport
    from ags1.iceberg.creation import create_table
    from ags1.iceberg.encryption_keys import EncryptionKeys, MissingKekError
    from ags1.iceberg.file_io import EncryptedFileIO, UntrustedLengthWarning
    from ags1.iceberg.tables import EncryptedTable, EncryptedTableScan, load_table, open_table
    from ags1.iceberg.writing.change import ChangeReport

__all__ = [
    "ChangeReport",
    "CleanReport",
    "ConversionPlan",
    "ConversionReport",
    "EncryptedFileIO",
    "EncryptedKey",
    "EncryptedTable",
    "EncryptedTableScan",
    "EncryptionKeys",
    "ExpiryReport",
    "MergeReport",
    "MissingKekError",
    "PruneReport",
    "RewrapReport",
    "UntrustedLengthWarning",
    "clean",
    "create_table",
    "decrypt_table",
    "encrypt_table",
    "expire_snapshots",
    "load_table",
    "open_table",
    "plan_conversion",
    "rekey_table",
    "relocate_table",
]

_MODULES = {
    "ags1.iceberg._entries": ("EncryptedKey",),
    "ags1.iceberg._reports": ("MergeReport", "PruneReport", "RewrapReport"),
    "ags1.iceberg.conversion.expiry": ("clean", "expire_snapshots"),
    "ags1.iceberg.conversion.operations": (
        "decrypt_table",
        "encrypt_table",
        "plan_conversion",
        "rekey_table",
        "relocate_table",
    ),
    "ags1.iceberg.conversion.reports": ("CleanReport", "ConversionPlan", "ConversionReport", "ExpiryReport"),
    "ags1.iceberg.creation": ("create_table",),
    "ags1.iceberg.encryption_keys": ("EncryptionKeys", "MissingKekError"),
    "ags1.iceberg.file_io": ("EncryptedFileIO", "UntrustedLengthWarning"),
    "ags1.iceberg.tables": ("EncryptedTable", "EncryptedTableScan", "load_table", "open_table"),
    "ags1.iceberg.writing.change": ("ChangeReport",),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            value = globals()[name] = getattr(importlib.import_module(module), name)
            return value
    raise AttributeError(f"module 'ags1.iceberg' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
