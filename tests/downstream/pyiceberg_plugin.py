"""A plugin of pytest: PyIceberg's tests of tables, whose tables are encrypted ones of ags1 in the same catalog.

Rows are changed by :class:`ags1.iceberg.EncryptedTable`; all else, scans and changes of metadata too, is done by
PyIceberg's own objects over our keys and files.
"""

from __future__ import annotations

from typing import Any

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table import UpsertResult
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

from ags1 import iceberg
from ags1.kms import MemoryKms

KMS = MemoryKms({"master": bytes(16)})


class EncryptedView:
    """PyIceberg's object of an encrypted table, with the methods of an EncryptedTable in place of its writers."""

    def __init__(self, ours: iceberg.EncryptedTable, catalog: SqlCatalog) -> None:
        self._ours = ours
        self.catalog = catalog

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ours.table, name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EncryptedView) and self._ours.table == other._ours.table

    __hash__ = None  # type: ignore[assignment]

    def refresh(self) -> EncryptedView:
        self._ours.refresh()
        return self

    def append(self, df: Any, snapshot_properties: Any = None, branch: str | None = "main") -> None:
        self._changed(self._ours.append(df, ref=branch or "main", snapshot_properties=snapshot_properties))

    def overwrite(self, df: Any, overwrite_filter: Any = None, snapshot_properties: Any = None) -> None:
        self._changed(self._ours.overwrite(df, overwrite_filter, snapshot_properties=snapshot_properties))

    def delete(self, delete_filter: Any = "true", snapshot_properties: Any = None) -> None:
        self._changed(self._ours.delete(delete_filter, snapshot_properties=snapshot_properties))

    def upsert(
        self,
        df: Any,
        join_cols: list[str] | None = None,
        when_matched_update_all: bool = True,
        when_not_matched_insert_all: bool = True,
        case_sensitive: bool = True,
        branch: str | None = "main",
        snapshot_properties: Any = None,
    ) -> UpsertResult:
        if not (when_matched_update_all and when_not_matched_insert_all and case_sensitive):
            raise NotImplementedError("an upsert of ags1 updates and inserts")
        on = join_cols or [self.schema().find_column_name(each) for each in self.schema().identifier_field_ids]
        report = self._ours.upsert(df, on, ref=branch or "main", snapshot_properties=snapshot_properties)
        self._changed(report)
        return UpsertResult(report.deleted_rows, report.added_rows - report.deleted_rows)

    def _changed(self, _: Any) -> None:
        self._ours.refresh()


def _create(
    catalog: SqlCatalog, identifier: Any, schema: Any, location: str | None = None,
    partition_spec: Any = UNPARTITIONED_PARTITION_SPEC, sort_order: Any = UNSORTED_SORT_ORDER, properties: Any = None,
) -> EncryptedView:  # fmt: skip
    # An encrypted table has version 3, whatever a test asks for.
    properties = {name: value for name, value in (properties or {}).items() if name != "format-version"}
    try:
        made = iceberg.create_table(
            catalog, identifier, schema, partition_spec, sort_order,
            kms=KMS, key_id="master", location=location, properties=properties,
        )  # fmt: skip
    except FileExistsError as error:
        raise TableAlreadyExistsError(f"Table {_named(identifier)} already exists") from error
    except OSError as error:
        if "namespace" in str(error):
            raise NoSuchNamespaceError(str(error)) from error
        raise
    return EncryptedView(made, catalog)


def _load(catalog: SqlCatalog, identifier: Any) -> EncryptedView:
    try:
        ours = iceberg.load_table(catalog, identifier, kms=KMS, allowed_locations=["file:///"])
        return EncryptedView(ours, catalog)
    except FileNotFoundError as error:
        raise NoSuchTableError(f"Table does not exist: {_named(identifier)}") from error


def _named(identifier: Any) -> str:
    return identifier if isinstance(identifier, str) else ".".join(identifier)


SqlCatalog.create_table = _create
SqlCatalog.load_table = _load
