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

_LAZY_NAMES = {
    "ChangeReport": "ags1.iceberg.writing.change",
    "CleanReport": "ags1.iceberg.conversion.reports",
    "ConversionPlan": "ags1.iceberg.conversion.reports",
    "ConversionReport": "ags1.iceberg.conversion.reports",
    "EncryptedFileIO": "ags1.iceberg.file_io",
    "EncryptedKey": "ags1.iceberg._entries",
    "EncryptedTable": "ags1.iceberg.tables",
    "EncryptedTableScan": "ags1.iceberg.tables",
    "EncryptionKeys": "ags1.iceberg.encryption_keys",
    "ExpiryReport": "ags1.iceberg.conversion.reports",
    "MergeReport": "ags1.iceberg._reports",
    "MissingKekError": "ags1.iceberg.encryption_keys",
    "PruneReport": "ags1.iceberg._reports",
    "RewrapReport": "ags1.iceberg._reports",
    "UntrustedLengthWarning": "ags1.iceberg.file_io",
    "clean": "ags1.iceberg.conversion.expiry",
    "create_table": "ags1.iceberg.creation",
    "decrypt_table": "ags1.iceberg.conversion.operations",
    "encrypt_table": "ags1.iceberg.conversion.operations",
    "expire_snapshots": "ags1.iceberg.conversion.expiry",
    "load_table": "ags1.iceberg.tables",
    "open_table": "ags1.iceberg.tables",
    "plan_conversion": "ags1.iceberg.conversion.operations",
    "rekey_table": "ags1.iceberg.conversion.operations",
    "relocate_table": "ags1.iceberg.conversion.operations",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY_NAMES:
        value = getattr(importlib.import_module(_LAZY_NAMES[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'ags1.iceberg' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
