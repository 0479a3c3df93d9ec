"""PyIceberg's projection of a file onto a scan, for a file that PyIceberg has not opened.

    _row_id                          stored in the file for a row that was moved, else first_row_id + position
    _last_updated_sequence_number    stored for a row that was moved unchanged, else the file's data sequence number
    _pos                             position in the file

Files of older format versions have no first_row_id, and then no number at all; Avro files still have the second.
Iceberg Java does the same.

Field ids of a file's columns, as Iceberg Java finds them:

    a file with field ids        fields without one are not read
    else, with a name mapping    fields that it does not name, or names without an id, are not read
    else, of Parquet             1, 2, ... by the position of a column
    else, of ORC and Avro        by the names of the table's columns

Sources: Iceberg table spec, "Row Lineage" and "Column Projection"; Iceberg Java's ParquetValueReaders,
ParquetSchemaUtil and ReadConf.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow
import pyarrow.compute as compute
from pyiceberg.exceptions import ResolveError
from pyiceberg.io.pyarrow import ArrowAccessor, ArrowProjectionVisitor, schema_to_pyarrow
from pyiceberg.manifest import FileFormat
from pyiceberg.schema import Schema, prune_columns, visit_with_partner
from pyiceberg.table.name_mapping import MappedField, create_mapping_from_schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    ListType,
    LongType,
    MapType,
    NestedField,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
)
from pyroaring import BitMap64

from ags1.errors import FormatError
from ags1.iceberg.metadata.pyiceberg_view import parquet_variant

ROW_ID, LAST_UPDATED, POSITION = 2147483540, 2147483539, 2147483645
LINEAGE = {
    field.name: field
    for field in (
        NestedField(ROW_ID, "_row_id", LongType(), required=False),
        NestedField(LAST_UPDATED, "_last_updated_sequence_number", LongType(), required=False),
        NestedField(POSITION, "_pos", LongType(), required=False),
    )
}
LINEAGE_IDS = frozenset(field.field_id for field in LINEAGE.values())


# Format version 3 lets a date become one of these.
_FROM_DATES = (TimestampType, TimestampNanoType)
_WITH_LONG_OFFSETS = {pyarrow.string(): pyarrow.large_string(), pyarrow.binary(): pyarrow.large_binary()}


class FileColumns:
    """What a scan reads of the files that have one schema: `schema` has these fields, and `lacking` the ids of others.

    `target` is the scan's schema in Arrow. It takes as long to make as to read a small file.
    """

    def __init__(self, scan: Any, file_schema: Schema) -> None:
        whole = (MapType, ListType)
        wanted = {each for each in scan.schema.field_ids if not isinstance(scan.schema.find_type(each), whole)}
        self.schema = prune_columns(file_schema, wanted, select_full_types=False)
        self.lacking = scan.schema.field_ids - file_schema.field_ids
        self.target: pyarrow.Schema = schema_to_pyarrow(scan.schema, include_field_ids=False)
        mine, requested = (
            [(each.field_id, each.name, each.field_type) for each in schema.fields]
            for schema in (self.schema, scan.schema)
        )
        self._are_requested = mine == requested

    def as_requested(self, batch: pyarrow.RecordBatch) -> pyarrow.RecordBatch | None:
        """Return rows of a file as they are, but for the offsets of texts; None if the scan has other columns."""
        if not self._are_requested:
            return None
        columns = []
        for column, kind in zip(batch.columns, self.target.types, strict=True):
            if column.type == kind:
                columns.append(column)
            elif _WITH_LONG_OFFSETS.get(column.type) == kind:
                columns.append(column.cast(kind))
            else:
                return None
        return pyarrow.RecordBatch.from_arrays(columns, schema=self.target)


class Projection:
    """Projects the rows of a file onto a scan."""

    def __init__(self, scan: Any, task: Any, columns: FileColumns) -> None:
        metadata, file = scan.metadata, task.file
        self._requested, self._columns = scan.schema, columns
        self._constants = _partition_values(file, metadata, columns.lacking)
        first, number = getattr(file, "first_row_id", None), getattr(task, "sequence_number", None)
        is_avro = file.file_format == FileFormat.AVRO
        self._lineage = RowLineage(self._requested, first, number, is_avro=is_avro)

    def rows(self, batch: Any, start: int) -> Any:
        """Return the rows as the scan's columns.

        `batch` has consecutive rows of the file from the position `start` on, with the columns of the file that are
        read. Any exception of PyIceberg or Arrow means that the file's schema does not fit the table's.
        """
        columns = self._columns
        same = columns.as_requested(batch)
        if same is not None:
            return self._lineage.filled(same, start)
        visitor = _Visitor(
            columns.schema,
            downcast_ns_timestamp_to_us=True,
            projected_missing_fields=self._constants,
            allow_timestamp_tz_mismatch=True,
        )
        made = visit_with_partner(self._requested, batch, visitor, ArrowAccessor(columns.schema))
        return self._lineage.filled(pyarrow.RecordBatch.from_struct_array(made), start)


def _partition_values(file: Any, metadata: Any, lacking: set[int]) -> dict[int, Any]:
    """Return values of fields that a file lacks, because its partition has them, as in tables that Hive wrote."""
    spec = metadata.specs().get(file.spec_id) if lacking else None
    return {
        field.source_id: file.partition[place]
        for place, field in enumerate(() if spec is None else spec.fields)
        if field.source_id in lacking
        and isinstance(field.transform, IdentityTransform)
        and file.partition[place] is not None
    }


def remaining(deleted: list[Any], start: int, count: int, chosen: Any = None) -> pyarrow.Array:
    """Return which of `count` rows from a position on are not among the `deleted` ones, counted from there.

    These are the positions in the file: a vector, or columns. `chosen` are the rows to look at, by default all.
    """
    rows = BitMap64(range(start, start + count))
    if isinstance(deleted[0], BitMap64):
        # Only this range is expanded: a vector of a few bytes can have any number of positions.
        if chosen is None:
            return compute.subtract(_positions(rows - deleted[0]), start)
        gone = _positions(rows & deleted[0])
    else:
        gone = pyarrow.chunked_array([chunk for column in deleted for chunk in column.chunks], pyarrow.int64())
    positions = _positions(rows) if chosen is None else compute.add(chosen.cast(pyarrow.int64()), start)
    kept = positions.filter(compute.invert(compute.is_in(positions, value_set=gone)))
    return compute.subtract(kept, start)


def _positions(bitmap: BitMap64) -> pyarrow.Int64Array:
    found = bitmap.to_array()
    return pyarrow.Array.from_buffers(pyarrow.int64(), len(found), [None, pyarrow.py_buffer(found)])


class _Visitor(ArrowProjectionVisitor):
    """PyIceberg's own visitor turns null lists and maps of structs into empty ones.

    It also fills the required fields of a struct that a file lacks with nulls, which Arrow refuses; and it does not
    know that a date may have become a timestamp.
    """

    def _cast_if_needed(self, field: Any, values: Any) -> Any:
        try:
            if pyarrow.types.is_date32(values.type) and isinstance(field.field_type, _FROM_DATES):
                return values.cast(schema_to_pyarrow(field.field_type))
            return super()._cast_if_needed(field, values)
        except (AttributeError, ValueError, ResolveError, pyarrow.ArrowException) as error:
            raise FormatError(
                f"the column {field.name!r} is {values.type} in the file and {field.field_type} in the table, and its "
                f"values cannot be taken for those: {error}"
            ) from error

    def struct(self, struct: Any, struct_array: Any, field_results: Any) -> Any:
        made = super().struct(struct, struct_array, field_results)
        if made is None:
            return None
        lacking = [
            found is None and field.field_type.is_struct and made.field(place).null_count == len(made)
            for place, (field, found) in enumerate(zip(struct.fields, field_results, strict=True))
        ]
        if True not in lacking:
            return made
        columns = [made.field(place) for place in range(len(lacking))]
        return pyarrow.StructArray.from_arrays(
            [
                _nulls(column.type, len(made), nullable=True) if lacks else column
                for column, lacks in zip(columns, lacking, strict=True)
            ],
            fields=list(made.type),
            mask=made.is_null() if made.null_count else None,
        )

    def list(self, list_type: Any, list_array: Any, value_array: Any) -> Any:
        made = super().list(list_type, list_array, value_array)
        if made is None or made.null_count == list_array.null_count:
            return made
        return type(made).from_arrays(_whole(made.offsets), made.values, type=made.type, mask=list_array.is_null())

    def map(self, map_type: Any, map_array: Any, key_result: Any, value_result: Any) -> Any:
        made = super().map(map_type, map_array, key_result, value_result)
        if made is None or made.null_count == map_array.null_count:
            return made
        return pyarrow.MapArray.from_arrays(
            _whole(made.offsets), made.keys, made.items, type=made.type, mask=map_array.is_null()
        )


def _whole(offsets: Any) -> Any:
    """Return a copy that is not a slice: Arrow takes no mask with slices, such as batches of large row groups."""
    return compute.add(offsets, pyarrow.scalar(0, offsets.type)) if offsets.offset else offsets


def _nulls(kind: pyarrow.DataType, length: int, *, nullable: bool) -> Any:
    """Return nulls; for a required field below a null struct, placeholder values that are never visible."""
    if isinstance(kind, pyarrow.BaseExtensionType):
        return pyarrow.ExtensionArray.from_storage(kind, _nulls(kind.storage_type, length, nullable=nullable))
    nulls = pyarrow.nulls(length, kind)
    if pyarrow.types.is_struct(kind):
        children = [_nulls(each.type, length, nullable=each.nullable) for each in kind]
        valid = nulls.buffers()[0] if nullable else None
        return pyarrow.Array.from_buffers(kind, length, [valid], children=children)
    if nullable or not length:
        return nulls
    if pyarrow.types.is_nested(kind):
        empty: list[Any] = []
        return pyarrow.repeat(pyarrow.scalar(empty, kind), length)
    return pyarrow.Array.from_buffers(kind, length, [None, *nulls.buffers()[1:]])


# -- row lineage -------------------------------------------------------------------------------------------------------


class RowLineage:
    """The lineage columns of a scan for the rows of one file.

    `first_row_id` is the file's, possibly inherited; `sequence_number` is its data sequence number, which
    a file that only moves rows has from the rows before.
    """

    def __init__(
        self, schema: Schema, first_row_id: int | None, sequence_number: int | None, *, is_avro: bool = False
    ) -> None:
        # A filter may need a column that the scan has too.
        self._row_id, self._last_updated, self._position = (
            [place for place, field in enumerate(schema.fields) if field.field_id == each]
            for each in (ROW_ID, LAST_UPDATED, POSITION)
        )
        self._first = first_row_id
        self._number = sequence_number if is_avro or first_row_id is not None else None

    def filled(self, rows: Any, start: int) -> Any:
        """Return the rows with the lineage values that the file does not store.

        `start` is the position in the file of the first one.
        """
        if self._row_id or self._position:
            positions = _positions(BitMap64(range(start, start + rows.num_rows)))
            for place in self._position:
                rows = self._with(rows, place, positions)
            computed = None if self._first is None else compute.add(positions, self._first)
            for place in self._row_id:
                rows = self._with(rows, place, computed)
        number = None if self._number is None else pyarrow.scalar(self._number, pyarrow.int64())
        for place in self._last_updated:
            rows = self._with(rows, place, number)
        return rows

    def _with(self, rows: Any, place: int, computed: Any) -> Any:
        field = pyarrow.field(rows.schema.field(place).name, pyarrow.int64())
        if computed is None:
            return rows.set_column(place, field, pyarrow.nulls(rows.num_rows, pyarrow.int64()))
        stored = rows.column(place).cast(pyarrow.int64())
        return rows.set_column(place, field, compute.coalesce(stored, computed))


class FurtherColumns:
    """Further columns of a scan.

    Each is at the end of the scan's schema, with the structs around it, even if the scan has it already, so the scan's
    own columns do not matter. `schema` has the columns of the scan, and then these. With `required`, a file
    must have them all.
    """

    def __init__(self, schema: Schema, metadata: Any, field_ids: Iterable[int], *, required: bool = False) -> None:
        names = {each.name for each in schema.fields}
        fields = list(schema.fields)
        self._columns: dict[int, tuple[int, int, NestedField]] = {}
        for field_id in field_ids:
            path = _path(schema, metadata, field_id)
            name = path[0].name
            while name in names:
                name += "'"
            names.add(name)
            self._columns[field_id] = (len(fields), len(path) - 1, path[-1])
            fields.append(_only(path, name, required))
        self.schema = Schema(*fields)

    def field(self, field_id: int) -> NestedField:
        """Return the table's field with this id."""
        return self._columns[field_id][2]

    def column(self, rows: pyarrow.Table | pyarrow.RecordBatch, field_id: int) -> Any:
        """Return the values of a field; null also where a struct around it is null."""
        position, depth, _ = self._columns[field_id]
        found = rows.column(position)
        return compute.struct_field(found, [0] * depth) if depth else found


def path_to(fields: Iterable[NestedField], field_id: int) -> list[NestedField] | None:
    """Return a field and the structs around it, outermost first; None if it is in a list or a map."""
    for field in fields:
        if field.field_id == field_id:
            return [field]
        if isinstance(field.field_type, StructType):
            below = path_to(field.field_type.fields, field_id)
            if below is not None:
                return [field, *below]
    return None


def _path(schema: Schema, metadata: Any, field_id: int) -> list[NestedField]:
    """From the table's schema, or else the newest that has the field."""
    if field_id in LINEAGE_IDS:
        return [field for field in LINEAGE.values() if field.field_id == field_id]
    older = sorted(metadata.schemas, key=lambda each: each.schema_id, reverse=True)
    # The table's schema first: the scan may have asked for a part of a struct.
    for each in (metadata.schema(), schema, *older):
        if field_id in each.field_ids:
            found = path_to(each.fields, field_id)
            if found is None:
                raise FormatError(f"the column {each.find_column_name(field_id)} is needed, which is no single value")
            return found
    raise FormatError(f"a column with the id {field_id} is needed, which the table never had")


def _only(path: list[NestedField], name: str, required: bool) -> NestedField:
    """Return a field that contains only one path."""
    first, *rest = path
    return NestedField(
        field_id=first.field_id,
        name=name,
        field_type=StructType(_only(rest, rest[0].name, required)) if rest else first.field_type,
        required=required,
        # A default does not replace a column that the file must have.
        initial_default=None if rest or required else first.initial_default,
    )


_FIELD_ID = b"PARQUET:field_id"
_NANOSECONDS = (TimestampNanoType, TimestamptzNanoType)


def expected_type(scan: Any, field_id: int) -> Any:
    """Return a field's type in the scan or else in the table; None if the field was dropped."""
    for schema in (scan.schema, scan.metadata.schema()):
        try:
            return schema.find_type(field_id)
        except ValueError:
            continue
    return None


def mapped_field(field_id: int, name: str) -> MappedField:
    """Return the entry of a name mapping."""
    return MappedField.model_validate({"field-id": field_id, "names": [name]})


def name_mapping(scan: Any) -> Any:
    """Return the table's mapping from names to field ids; by default that of its columns."""
    found = scan.metadata.name_mapping()
    return create_mapping_from_schema(scan.metadata.schema()) if found is None else found


def with_field_ids(physical: pyarrow.Schema, scan: Any, *, is_parquet: bool) -> pyarrow.Schema:
    """Return the fields of a file that a scan reads, with ids; a FormatError if the ids in a nested one are not known.

    Timestamps have the unit of the table's columns: nanoseconds may be stored below a column of microseconds.
    """
    fields = _Fields(scan, own=any(map(_has_ids, physical)))
    mapped: Iterable[Any] = name_mapping(scan)
    if is_parquet and scan.metadata.name_mapping() is None:
        mapped = [mapped_field(place, each.name) for place, each in enumerate(physical, 1)]
    return pyarrow.schema(fields.of(physical, mapped))


def variants_of(schemas: Iterable[Schema]) -> frozenset[int]:
    """Return the field ids of the variants of a table's schemas."""
    return frozenset(-each // 2 for schema in schemas for each in schema.field_ids if each < 0)


class _Fields:
    def __init__(self, scan: Any, *, own: bool) -> None:
        self._scan, self._own, self._wanted = scan, own, scan.schema.field_ids
        self._variants = variants_of(scan.metadata.schemas)

    def of(self, fields: Iterable[pyarrow.Field], mapped: Iterable[Any]) -> list[pyarrow.Field]:
        by_name = {name: each for each in mapped for name in each.names}
        found = (self._field(each, by_name.get(each.name)) for each in fields)
        return [each for each in found if each is not None]

    def _field(self, field: pyarrow.Field, mapped: Any) -> pyarrow.Field | None:
        number: Any = _id_of(field) if self._own else getattr(mapped, "field_id", None)
        if number not in self._wanted:
            return None
        kind, below = field.type, () if mapped is None else mapped.fields
        expected = expected_type(self._scan, number)
        if pyarrow.types.is_timestamp(kind) and kind.unit == "ns" and not isinstance(expected, _NANOSECONDS):
            kind = pyarrow.timestamp("us", kind.tz)
        elif pyarrow.types.is_struct(kind):
            is_variant = number in self._variants
            kind = parquet_variant(field, number) if is_variant else pyarrow.struct(self.of(kind, below))
        elif pyarrow.types.is_map(kind):
            key, value = self._inside(field, below, key=kind.key_field, value=kind.item_field)
            kind = pyarrow.map_(key, value, kind.keys_sorted)
        elif pyarrow.types.is_list(kind) or pyarrow.types.is_large_list(kind):
            (element,) = self._inside(field, below, element=kind.value_field)
            kind = pyarrow.list_(element) if pyarrow.types.is_list(kind) else pyarrow.large_list(element)
        return pyarrow.field(field.name, kind, field.nullable, {_FIELD_ID: str(number)})

    def _inside(self, field: pyarrow.Field, mapped: Iterable[Any], **inside: pyarrow.Field) -> list[pyarrow.Field]:
        found = self.of([each.with_name(name) for name, each in inside.items()], mapped)
        if len(found) != len(inside):
            raise FormatError(
                f"what is in the column {field.name!r} has no field ids, neither in the file nor in a name mapping: "
                "set the table property schema.name-mapping.default"
            )
        return [each.with_name(old.name) for each, old in zip(found, inside.values(), strict=True)]


def _id_of(field: pyarrow.Field) -> int | None:
    found = (field.metadata or {}).get(_FIELD_ID)
    return None if found is None else int(found)


def _has_ids(field: pyarrow.Field) -> bool:
    below = (field.type.field(place) for place in range(field.type.num_fields))
    return _id_of(field) is not None or any(map(_has_ids, below))
