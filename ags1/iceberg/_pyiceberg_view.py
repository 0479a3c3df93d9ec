"""PyIceberg's own objects for an encrypted table: they read it, and cannot change it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.table import StaticTable
from pyiceberg.table.inspect import InspectTable

__all__ = ["view_of"]


def view_of(metadata_location: str, metadata: Any, file_io: Any) -> StaticTable:
    """Return PyIceberg's view of a table, for its parsed metadata."""
    return _ReadOnly(
        identifier=("static-table", metadata_location),
        metadata=metadata,
        metadata_location=metadata_location,
        io=file_io,
        catalog=_NoCatalog("static-table"),
    )


class _ReadOnly(StaticTable):
    def transaction(self) -> Any:
        raise _unchangeable(self.metadata_location)

    @property
    def inspect(self) -> InspectTable:
        return _Inspection(self)


class _NoCatalog(NoopCatalog):
    def commit_table(self, table: Any, requirements: Any, updates: Any) -> Any:
        raise _unchangeable(table.metadata_location)


class _Inspection(InspectTable):
    def entries(self, snapshot_id: int | None = None) -> Any:
        return _EntryInspection(self.tbl).entries(snapshot_id)


class _EntryInspection(InspectTable):
    """PyIceberg takes it that every file has sizes of columns, and deletion vectors and Avro files have none."""

    def _get_snapshot(self, snapshot_id: int | None = None) -> Any:
        return _Snapshot(super()._get_snapshot(snapshot_id))


class _Snapshot:
    def __init__(self, snapshot: Any) -> None:
        self._snapshot = snapshot

    def manifests(self, io: Any) -> Iterator[_Manifest]:
        return map(_Manifest, self._snapshot.manifests(io))


class _Manifest:
    def __init__(self, manifest: Any) -> None:
        self._manifest = manifest
        self.partition_spec_id = manifest.partition_spec_id

    def fetch_manifest_entry(self, io: Any, discard_deleted: bool) -> Iterator[Any]:
        for entry in self._manifest.fetch_manifest_entry(io=io, discard_deleted=discard_deleted):
            yield _Entry(entry)


class _Entry:
    def __init__(self, entry: Any) -> None:
        self._entry = entry
        self.data_file = _File(entry.data_file)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._entry, name)


class _File:
    def __init__(self, file: Any) -> None:
        self._file = file
        self.column_sizes = file.column_sizes or {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def _unchangeable(location: str) -> PermissionError:
    return PermissionError(
        f"{location}: PyIceberg cannot change encrypted tables: use the methods of the EncryptedTable itself, such as "
        "append and delete"
    )
