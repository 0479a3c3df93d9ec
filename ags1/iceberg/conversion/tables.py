"""What the public functions take for a table: one that was loaded from a catalog, or a catalog's table and a KMS."""

from __future__ import annotations

from typing import Any

from ags1.iceberg.catalogs import CatalogTable
from ags1.iceberg.tables import client_of

__all__ = ["parts_of"]


def parts_of(table: Any, kms: Any) -> tuple[CatalogTable, Any]:
    """The catalog's table, and the KMS client; a ValueError without a catalog, a TypeError without a KMS."""
    kms = client_of(kms)
    if hasattr(table, "commit") and hasattr(table, "load"):
        found = table
    else:
        found = getattr(table, "catalog_table", None)
        if found is None:
            raise ValueError(
                f"{table!r} was opened without a catalog, so nothing can be committed to it: use "
                "ags1.iceberg.load_table, which also takes a metadata file"
            )
        kms = table.io.kms if kms is None else kms
    if kms is None:
        raise TypeError("give a KMS: a client of ags1.kms or a URL, such as kms='aws:'")
    return found, kms
