"""A table as PyIceberg has it: its metadata without what PyIceberg refuses, and the objects that read and change it.

    table     "type": "variant"                    -->  struct<metadata: binary not null, value: binary not null>
    Parquet   group v { metadata, value }          -->  the two by name: they have no field ids
    Avro      record v { metadata, value }         -->  the same

PyIceberg also refuses transforms of later versions, and snapshots without a manifest list. A shredded variant has a
further field, ``typed_value``, whose content is missing in ``value``: it is refused. The field ids of the two come from
that of the variant; they are negative, unlike any field id of a table. Sources: Iceberg table spec, "Semi-structured
Types" and "Appendix A"; Parquet's VariantShredding.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NoReturn, TypeAlias

import pyarrow
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.manifest import DATA_FILE_TYPE
from pyiceberg.partitioning import PartitionField
from pyiceberg.table import CommitTableResponse, StaticTable, Table, Transaction
from pyiceberg.table.inspect import InspectTable
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.table.update.spec import UpdateSpec
from pyiceberg.transforms import Transform
from pyiceberg.types import StructType

from ags1.avro.schemas import AvroType
from ags1.errors import FormatError, UnsupportedError, without_secrets
from ags1.iceberg.metadata.metadata_document import Document
from ags1.support.arguments import spelled

_NAMES = ("metadata", "value")
_FIELD_ID = b"PARQUET:field_id"


def _ids(field_id: int) -> dict[str, int]:
    """Return the field ids of the two binaries."""
    return {name: -2 * field_id - place for place, name in enumerate(_NAMES)}


def is_variant(field_id: int, kind: Any) -> bool:
    """Whether a field of a schema is a variant, or one of its binaries."""
    if field_id < 0:
        return True
    return isinstance(kind, StructType) and [each.field_id for each in kind.fields] == list(_ids(field_id).values())


def without_variants(schema: Any) -> Any:
    """Return the JSON of a schema, or of several, as PyIceberg can parse it."""
    if isinstance(schema, list):
        return [without_variants(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: without_variants(each) if name in _BELOW else each for name, each in schema.items()}
    for kind, field_id in _TYPES.items():
        if made.get(kind) == "variant" and type(made.get(field_id)) is int:
            fields = [
                {"id": number, "name": name, "type": "binary", "required": True}
                for name, number in _ids(made[field_id]).items()
            ]
            made[kind] = {"type": "struct", "fields": fields}
    return made


# Where a type stands, and the id of its field.
_TYPES = {"type": "id", "element": "element-id", "value": "value-id"}
_BELOW = frozenset(("fields", "key", *_TYPES))


def parquet_variant(field: pyarrow.Field, field_id: int) -> pyarrow.DataType:
    """Return the type of a variant in a Parquet file, with ids for its fields; UnsupportedError: it is shredded."""
    kinds = {each.name: each.type for each in field.type}
    if kinds.keys() != set(_NAMES):
        raise UnsupportedError(
            f"the variant column {field.name}: only variants of metadata and value can be read, and this one is "
            "shredded, with a typed_value. Choose the other columns"
        )
    return pyarrow.struct(
        [pyarrow.field(name, kinds[name], False, {_FIELD_ID: str(each)}) for name, each in _ids(field_id).items()]
    )


def avro_variants(avro: AvroType) -> AvroType:
    """Return the schema of an Avro file with ids for the fields of its variants."""
    fields = []
    for each in avro.fields:
        below = each.type
        is_pair = below.kind == "record" and {one.name for one in below.fields} == set(_NAMES)
        if each.id is not None and is_pair and all(one.id is None and one.type.kind == "bytes" for one in below.fields):
            ids = _ids(each.id)
            below = replace(below, fields=tuple(replace(one, id=ids[one.name]) for one in below.fields))
        fields.append(replace(each, type=avro_variants(below)))
    return replace(avro, fields=tuple(fields))


_KNOWN_TRANSFORM = re.compile(r"identity|void|year|month|day|hour|(bucket|truncate)\[[0-9]+\]")


def metadata_text(document: Document) -> str:
    """Return the table's metadata as PyIceberg can parse it.

    It has no variants and no transforms of later versions, and a manifest list for each snapshot.
    """
    fields = document.fields
    made = {
        "schemas": without_variants(fields.get("schemas")),
        "partition-specs": _without_unknown(fields.get("partition-specs")),
        "sort-orders": _without_unknown(fields.get("sort-orders")),
    }
    if any("manifest-list" not in each for each in fields.get("snapshots") or ()):
        # Format version 1 may name the manifests here.
        made["snapshots"] = [{"manifest-list": "", **each} for each in fields["snapshots"]]
    is_known = all(fields.get(name) == each for name, each in made.items())
    return document.text if is_known else json.dumps({**fields, **made})


def _without_unknown(listed: Any) -> Any:
    """Return specs or orders with an unknown transform where PyIceberg refuses one, or takes it for another."""
    if isinstance(listed, list):
        return [_without_unknown(each) for each in listed]
    if not isinstance(listed, dict):
        return listed
    if isinstance(listed.get("fields"), list):
        return {**listed, "fields": _without_unknown(listed["fields"])}
    sources = listed.get("source-ids", [listed.get("source-id")])
    is_single = isinstance(sources, list) and len(sources) == 1
    if is_single and _KNOWN_TRANSFORM.fullmatch(str(listed.get("transform"))):
        return listed
    source = sources[0] if isinstance(sources, list) and sources else 0
    return {**listed, "source-id": source, "transform": "unknown"}


def parsed_metadata(location: str, document: Document) -> Any:
    """Return PyIceberg's object for a table's metadata; `location` is for messages.

    Raises
    ------
    FormatError, UnsupportedError
        PyIceberg cannot read it.
    """
    try:
        return TableMetadataUtil.parse_raw(metadata_text(document))
    except Exception as error:
        raise _unreadable(location, error) from error


def _unreadable(location: str, error: Exception) -> FormatError:
    """Return PyIceberg's reason for refusing metadata, without the metadata itself, which pydantic would repeat."""
    from pydantic import ValidationError

    kind: type[FormatError] = FormatError
    # PyIceberg has an error of the same name, whose cause is pydantic's error.
    invalid = error.__cause__
    if not isinstance(invalid, ValidationError):
        problem = f"{type(error).__name__}: {error}"
    else:
        faults = invalid.errors(include_url=False, include_input=False)
        (first, *others) = faults
        if all(each["type"] == "union_tag_invalid" or "fields" in each["loc"] for each in faults):
            # A newer PyIceberg may know the value.
            kind = UnsupportedError
        where = ".".join(map(str, first["loc"])) or "format-version"
        problem = f"{where}: {first['msg']}" + (f" (and {len(others)} more)" if others else "")
        if first["type"] == "union_tag_invalid":
            tags = first["ctx"]
            problem = f"format version {tags['tag']} is not one that it reads, which are {tags['expected_tags']}"
    return kind(f"{location}: PyIceberg cannot read this table's metadata: {problem}")


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
