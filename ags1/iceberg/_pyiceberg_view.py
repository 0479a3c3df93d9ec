"""PyIceberg's own objects for an encrypted table: they read it, and change its metadata through its catalog."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, NoReturn, TypeAlias

from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.manifest import DATA_FILE_TYPE
from pyiceberg.partitioning import PartitionField
from pyiceberg.table import CommitTableResponse, StaticTable, Table, Transaction
from pyiceberg.table.inspect import InspectTable
from pyiceberg.table.update.spec import UpdateSpec
from pyiceberg.transforms import Transform

from ags1.errors import without_secrets
from ags1.support.arguments import spelled

_COLUMN_SIZES = [each.name for each in DATA_FILE_TYPE[3].fields].index("column_sizes")
Newest: TypeAlias = Callable[[Any, Any], "tuple[Any, str, Any]"]


def view_of(
    metadata_location: str, metadata: Any, file_io: Any, newest: Newest | None, name: tuple[str, ...]
) -> StaticTable:
    """Return PyIceberg's view of a table, for its parsed metadata.

    ``newest(requirements, updates)`` commits updates, if there are any, and returns the table's newest metadata, where
    that is, and what opens its files. None for a table without a catalog, which cannot be changed.
    """
    return _View(
        identifier=name,
        metadata=metadata,
        metadata_location=metadata_location,
        io=file_io,
        catalog=_Catalog("static-table", newest),
    )


def _refused(instead: str) -> Callable[..., NoReturn]:
    """Return a method that raises, and says by what it is done."""

    def refuse(self: Any, *arguments: object, **named: object) -> NoReturn:
        location = getattr(self, "_table", self).metadata_location
        raise PermissionError(
            f"{without_secrets(location)}: PyIceberg cannot do this with encrypted tables, whose keys it does not "
            f"know: use {instead}"
        )

    return refuse


class _UpdateSpec(UpdateSpec):
    """A partition field that comes back has its old number, in format version 3 too, where PyIceberg gives it another.

    Spark reads no table with two fields of one name. Source: Iceberg Java's BaseUpdatePartitionSpec.
    """

    def _partition_field(self, transform_key: tuple[int, Transform[Any, Any]], name: str | None) -> PartitionField:
        source_id, transform = transform_key
        for spec in self._transaction.table_metadata.specs().values():
            for each in spec.fields:
                is_same = each.source_id == source_id and repr(each.transform) == repr(transform)
                if is_same and name in (None, each.name):
                    return PartitionField(source_id, each.field_id, transform, each.name)
        return super()._partition_field(transform_key, name)


class _Transaction(Transaction):
    """A transaction that changes the metadata alone."""

    def update_spec(self) -> UpdateSpec:
        return _UpdateSpec(self)

    append = _refused("append of the EncryptedTable")
    overwrite = _refused("overwrite of the EncryptedTable")
    dynamic_partition_overwrite = _refused("overwrite_partitions of the EncryptedTable")
    delete = _refused("delete of the EncryptedTable")
    upsert = _refused("upsert of the EncryptedTable")
    add_files = _refused("append of the EncryptedTable, with the rows of the files")
    update_snapshot = _refused("append, overwrite, delete and upsert of the EncryptedTable")
    update_location = _refused("ags1.iceberg.relocate_table")


class _View(StaticTable):
    catalog: _Catalog
    # Polars, Daft and Bodo open the files themselves.
    to_polars = _refused("polars.DataFrame(scan()) with the scan of the EncryptedTable")
    to_daft = _refused("scan().to_arrow() of the EncryptedTable, and daft.from_arrow")
    to_bodo = _refused("scan().to_pandas() of the EncryptedTable, and bodo.pandas.from_pandas")

    def update_spec(self, case_sensitive: bool = True) -> UpdateSpec:
        return _UpdateSpec(_Transaction(self, autocommit=True), case_sensitive)

    def transaction(self) -> Transaction:
        self.catalog.newest_of(self)
        return _Transaction(self)

    def refresh(self) -> Table:
        self.metadata, self.metadata_location, self.io = self.catalog.newest_of(self)((), ())
        return self

    @property
    def inspect(self) -> InspectTable:
        return _Inspection(self)


class _Catalog(NoopCatalog):
    def __init__(self, name: str, newest: Newest | None) -> None:
        super().__init__(name)
        self._newest = newest

    def newest_of(self, table: Any) -> Newest:
        """Return what commits to a table; a PermissionError if there is no catalog."""
        if self._newest is None:
            raise PermissionError(
                f"{without_secrets(table.metadata_location)}: the table was opened by its metadata file, and no "
                f"catalog says which is the newest: open it with {spelled('load_table')} to change it"
            )
        return self._newest

    def commit_table(self, table: Any, requirements: Any, updates: Any) -> CommitTableResponse:
        # Keys of snapshots that others have added meanwhile are known to the new one alone.
        metadata, location, table.io = self.newest_of(table)(requirements, updates)
        return CommitTableResponse.model_construct(metadata=metadata, metadata_location=location)


class _Inspection(InspectTable):
    def entries(self, snapshot_id: int | None = None) -> Any:
        return _EntryInspection(self.tbl).entries(snapshot_id)


class _EntryInspection(InspectTable):
    """PyIceberg takes it that every file has sizes of columns, and deletion vectors and Avro files have none."""

    def _get_snapshot(self, snapshot_id: int | None = None) -> Any:
        snapshot = super()._get_snapshot(snapshot_id)
        return SimpleNamespace(manifests=lambda io: map(_Manifest, snapshot.manifests(io)))


class _Manifest:
    def __init__(self, manifest: Any) -> None:
        self._manifest = manifest
        self.partition_spec_id = manifest.partition_spec_id

    def fetch_manifest_entry(self, io: Any, discard_deleted: bool) -> Iterator[Any]:
        for entry in self._manifest.fetch_manifest_entry(io=io, discard_deleted=discard_deleted):
            if entry.data_file.column_sizes is None:
                entry.data_file._data[_COLUMN_SIZES] = {}
            yield entry
