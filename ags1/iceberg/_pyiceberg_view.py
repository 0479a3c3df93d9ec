"""PyIceberg's own objects for an encrypted table: they read it, and change its metadata through its catalog."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.table import CommitTableResponse, StaticTable, Table, Transaction
from pyiceberg.table.inspect import InspectTable

__all__ = ["view_of"]

Newest: TypeAlias = Callable[[Any, Any], "tuple[Any, str]"]


def view_of(metadata_location: str, metadata: Any, file_io: Any, newest: Newest | None) -> StaticTable:
    """Return PyIceberg's view of a table, for its parsed metadata.

    ``newest(requirements, updates)`` commits updates, if there are any, and returns the table's newest metadata and
    where that is. None for a table without a catalog, which cannot be changed.
    """
    return _View(
        identifier=("static-table", metadata_location),
        metadata=metadata,
        metadata_location=metadata_location,
        io=file_io,
        catalog=_Catalog("static-table", newest),
    )


class _View(StaticTable):
    catalog: _Catalog

    def transaction(self) -> Transaction:
        if self.catalog.newest is None:
            raise _unchangeable(self.metadata_location)
        return super().transaction()

    def refresh(self) -> Table:
        if self.catalog.newest is None:
            raise _unchangeable(self.metadata_location)
        self.metadata, self.metadata_location = self.catalog.newest((), ())
        return self

    @property
    def inspect(self) -> InspectTable:
        return _Inspection(self)


class _Catalog(NoopCatalog):
    def __init__(self, name: str, newest: Newest | None) -> None:
        super().__init__(name)
        self.newest = newest

    def commit_table(self, table: Any, requirements: Any, updates: Any) -> CommitTableResponse:
        if self.newest is None:
            raise _unchangeable(table.metadata_location)
        metadata, location = self.newest(requirements, updates)
        return CommitTableResponse.model_construct(metadata=metadata, metadata_location=location)


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
        f"{location}: the table was opened by its metadata file, and no catalog says which is the newest: open it with "
        "`load_table` to change it"
    )
