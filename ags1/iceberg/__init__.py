"""Iceberg's table encryption: the key hierarchy of ``encryption-keys`` in a table's metadata.

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
    from ags1.iceberg._kek import KekCache
    from ags1.iceberg._reports import MergeReport, PruneReport, RewrapReport
    from ags1.iceberg.encryption_keys import EncryptionKeys, MissingKekError

__all__ = [
    "EncryptedKey",
    "EncryptionKeys",
    "KekCache",
    "MergeReport",
    "MissingKekError",
    "PruneReport",
    "RewrapReport",
]

_LAZY_NAMES = {
    "EncryptedKey": "ags1.iceberg._entries",
    "EncryptionKeys": "ags1.iceberg.encryption_keys",
    "KekCache": "ags1.iceberg._kek",
    "MergeReport": "ags1.iceberg._reports",
    "MissingKekError": "ags1.iceberg.encryption_keys",
    "PruneReport": "ags1.iceberg._reports",
    "RewrapReport": "ags1.iceberg._reports",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY_NAMES:
        value = getattr(importlib.import_module(_LAZY_NAMES[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'ags1.iceberg' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
