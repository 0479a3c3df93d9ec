"""Iceberg's table encryption: the key hierarchy in a table's metadata, and encrypted tables opened from Python.

>>> from ags1.iceberg import EncryptionKeys
>>> EncryptionKeys.from_table_metadata({"encryption-keys": []}).to_list()
[]

Names are loaded on first use.
"""

from __future__ import annotations

from ags1.support.lazy import lazy_names
from ags1.support.typing import Any

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ags1.iceberg.conversion.expiry import clean, expire_snapshots
    from ags1.iceberg.conversion.old_keys import OldKeyReport
    from ags1.iceberg.conversion.operations import (
        decrypt_table,
        encrypt_table,
        plan_conversion,
        rekey_table,
        relocate_table,
    )
    from ags1.iceberg.conversion.reports import CleanReport, ConversionPlan, ConversionReport, ExpiryReport
    from ags1.iceberg.files.file_io import EncryptedFileIO, UntrustedLengthWarning
    from ags1.iceberg.keys.encryption_keys import (
        EncryptionKeys,
        KeyRewrapReport,
        MergeReport,
        MissingKekError,
        PruneReport,
    )
    from ags1.iceberg.maintenance.compaction import CompactionOptions
    from ags1.iceberg.maintenance.maintaining import MaintenancePolicy
    from ags1.iceberg.maintenance.reports import CompactionReport, MaintenanceReport, ManifestReport
    from ags1.iceberg.metadata.key_entries import EncryptedKey
    from ags1.iceberg.new_table import create_table
    from ags1.iceberg.tables import EncryptedTable, EncryptedTableScan, load_table, open_table
    from ags1.iceberg.writing.change import ChangeReport

__all__ = [
    "ChangeReport",
    "CleanReport",
    "CompactionOptions",
    "CompactionReport",
    "ConversionPlan",
    "ConversionReport",
    "EncryptedFileIO",
    "EncryptedKey",
    "EncryptedTable",
    "EncryptedTableScan",
    "EncryptionKeys",
    "ExpiryReport",
    "KeyRewrapReport",
    "MaintenancePolicy",
    "MaintenanceReport",
    "ManifestReport",
    "MergeReport",
    "MissingKekError",
    "OldKeyReport",
    "PruneReport",
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

_HOMES = {
    "metadata.key_entries": ("EncryptedKey",),
    "conversion.expiry": ("clean", "expire_snapshots"),
    "conversion.old_keys": ("OldKeyReport",),
    "conversion.operations": ("decrypt_table", "encrypt_table", "plan_conversion", "rekey_table", "relocate_table"),
    "conversion.reports": ("CleanReport", "ConversionPlan", "ConversionReport", "ExpiryReport"),
    "keys.encryption_keys": ("EncryptionKeys", "MergeReport", "MissingKekError", "PruneReport", "KeyRewrapReport"),
    "files.file_io": ("EncryptedFileIO", "UntrustedLengthWarning"),
    "maintenance.compaction": ("CompactionOptions",),
    "maintenance.maintaining": ("MaintenancePolicy",),
    "maintenance.reports": ("CompactionReport", "MaintenanceReport", "ManifestReport"),
    "tables": ("EncryptedTable", "EncryptedTableScan", "load_table", "open_table"),
    "writing.change": ("ChangeReport",),
    "new_table": ("create_table",),
}
_LIGHT = {"conversion.reports", "keys.encryption_keys", "metadata.key_entries", "maintenance.reports"}
_NEEDED = dict.fromkeys(_HOMES.keys() - _LIGHT, ("pyarrow", "pyiceberg", "fastavro", "pyroaring"))
_get, __dir__ = lazy_names(__name__, _HOMES, _NEEDED, "iceberg")


def __getattr__(name: str) -> Any:
    try:
        return _get(name)
    except Exception:
        from ags1.iceberg.configuration import configuration_fault

        fault = configuration_fault()
        if fault is None:
            raise
        raise fault from None
