"""Rows to write: read through Arrow's interface, checked against the table's schema, and cast to it.

    data --> batches --checked: names, types--> cast --checked: nulls--> batches as the table's files have them

Names and types are checked before any write. Source: Iceberg table spec, "Schema Evolution" for what is
promoted, "Column Projection" and "Default values" for columns that are missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow
import pyarrow.compute as compute
import pyarrow.types as arrow
from pyiceberg import types as iceberg
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema

from ags1.errors import UnsupportedError
from ags1.iceberg.metadata.metadata_document import refuse_reserved
from ags1.iceberg.metadata.pyiceberg_view import is_variant

_ROWS_AT_ONCE = 1 << 18
_TEXTS = (arrow.is_string, arrow.is_large_string, arrow.is_string_view)
_BYTES = (arrow.is_binary, arrow.is_large_binary, arrow.is_binary_view, arrow.is_fixed_size_binary)
_LISTS = (arrow.is_list, arrow.is_large_list, arrow.is_fixed_size_list, arrow.is_list_view)
_UNSUPPORTED = (iceberg.UnknownType, iceberg.GeometryType, iceberg.GeographyType)


def batches_of(data: Any) -> tuple[pyarrow.Schema, Iterator[pyarrow.RecordBatch]]:
    """The schema and the rows of `data`, batch by batch: a reader is read to its end, a few batches at a time."""
    if isinstance(data, pyarrow.RecordBatch):
        data = pyarrow.Table.from_batches([data])
    elif type(data).__module__.partition(".")[0] == "pandas" and hasattr(data, "columns"):
        data = pyarrow.Table.from_pandas(data, preserve_index=False)
    elif hasattr(data, "to_reader") and hasattr(data, "projected_schema"):
        data = data.to_reader()
    if isinstance(data, pyarrow.Table):
        return data.schema, _pieces(data.to_batches(max_chunksize=_ROWS_AT_ONCE))
    if not isinstance(data, pyarrow.RecordBatchReader):
        if not hasattr(data, "__arrow_c_stream__"):
            raise TypeError(
                "rows come as a pyarrow.Table, RecordBatch or RecordBatchReader, a pandas or polars data frame, or "
                f"another object with __arrow_c_stream__, not as {type(data).__name__}"
            )
        data = pyarrow.RecordBatchReader.from_stream(data)
    return data.schema, _pieces(data)


def _pieces(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """Batches of no more rows than are dealt with at once."""
    for batch in batches:
        for start in range(0, batch.num_rows, _ROWS_AT_ONCE):
            yield batch.slice(start, _ROWS_AT_ONCE)


class RowShape:
    """What rows must look like to be written to a table with this schema.

    `further` columns of the files are not the table's: all batches must have them, behind the others. `arrow` is the
    schema of the files, with field ids. An UnsupportedError names a type that cannot be written here, and a column with
    the name of a further one.
    """

    def __init__(self, schema: Schema, further: Sequence[iceberg.NestedField] = ()) -> None:
        for field_id in schema.field_ids:
            kind = schema.find_type(field_id)
            if is_variant(field_id, kind) or isinstance(kind, _UNSUPPORTED):
                name = "variant" if isinstance(kind, iceberg.StructType) else str(kind)
                raise UnsupportedError(
                    f"column {schema.find_column_name(field_id)} is of the type {name}, which cannot be written here: "
                    "write this table with Spark"
                )
        taken = {each.name for each in further}
        refuse_reserved((each.name for each in schema.fields if each.name in taken), "rename it before this change")
        self._fields = (*schema.fields, *further)
        self.arrow: pyarrow.Schema = schema_to_pyarrow(Schema(*self._fields))

    def check(self, given: pyarrow.Schema) -> None:
        """Refuse rows that do not fit.

        A ValueError names all columns that are missing, unknown, there twice, or of another type.
        """
        problems = list(_struct_problems("", self._fields, list(given)))
        if problems:
            raise ValueError(f"the rows do not fit the table: {'; '.join(problems)}")

    def shaped(self, batch: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
        """The batch as the files have it; a ValueError where a value does not fit, or is null and must not be."""
        places = {name: place for place, name in enumerate(batch.schema.names)}
        columns = []
        for field, target in zip(self._fields, self.arrow, strict=True):
            place = places.get(field.name)
            if place is None:
                columns.append(_repeated(field.write_default, target.type, batch.num_rows))
                continue
            try:
                column = _cast(batch.column(place), target.type)
            except pyarrow.ArrowException as error:
                raise ValueError(
                    f"column {field.name}: a value does not fit into {field.field_type}: {str(error).splitlines()[0]}"
                ) from None
            _refuse_nulls(field.name, field, column)
            columns.append(column)
        return pyarrow.RecordBatch.from_arrays(columns, schema=self.arrow)


def _cast(array: pyarrow.Array, kind: pyarrow.DataType) -> pyarrow.Array:
    if array.type == kind:
        return array
    if isinstance(array.type, pyarrow.BaseExtensionType):
        array = array.storage
    if arrow.is_run_end_encoded(array.type):
        array = compute.run_end_decode(array)
    if isinstance(array, pyarrow.DictionaryArray):
        # Arrow does not decode all that it can cast.
        return array.dictionary.cast(kind).take(array.indices)
    return array.cast(kind)


def _repeated(value: Any, kind: pyarrow.DataType, count: int) -> pyarrow.Array:
    if value is None:
        return pyarrow.nulls(count, kind)
    storage = kind.storage_type if isinstance(kind, pyarrow.BaseExtensionType) else kind
    scalar = pyarrow.scalar(value.bytes if hasattr(value, "bytes") else value, storage)
    return pyarrow.repeat(scalar, count).cast(kind)


# -- types -----------------------------------------------------------------------------------------------------------


def _struct_problems(
    above: str, fields: Sequence[iceberg.NestedField], given: Sequence[pyarrow.Field]
) -> Iterator[str]:
    names = [each.name for each in given]
    found = dict(zip(names, given, strict=True))
    for name in sorted({each for each in names if names.count(each) > 1}):
        yield f"{above}{name} is there twice"
    known = {each.name for each in fields}
    for name in found:
        if name not in known:
            yield f"{above}{name} is no column of the table"
    for field in fields:
        if field.name in found:
            yield from _problems(f"{above}{field.name}", field.field_type, found[field.name].type)
        elif field.required and field.write_default is None:
            yield f"{above}{field.name} is required, and missing"


def _problems(name: str, kind: Any, given: pyarrow.DataType) -> Iterator[str]:
    given = _plain(given)
    if arrow.is_null(given):
        return
    if isinstance(kind, iceberg.StructType) and arrow.is_struct(given):
        yield from _struct_problems(f"{name}.", kind.fields, list(given))
    elif isinstance(kind, iceberg.ListType) and any(test(given) for test in _LISTS):
        yield from _problems(f"{name}.element", kind.element_type, given.value_type)
    elif isinstance(kind, iceberg.MapType) and arrow.is_map(given):
        yield from _problems(f"{name}.key", kind.key_type, given.key_type)
        yield from _problems(f"{name}.value", kind.value_type, given.item_type)
    elif type(kind) not in _FITTING or not _FITTING[type(kind)](given, kind):
        yield f"{name} is {kind} in the table and {given} in the rows, so cast it first"


def _plain(kind: pyarrow.DataType) -> pyarrow.DataType:
    """The type of the values, however they are encoded."""
    if isinstance(kind, pyarrow.BaseExtensionType):
        kind = kind.storage_type
    if arrow.is_dictionary(kind) or arrow.is_run_end_encoded(kind):
        return _plain(kind.value_type)
    return kind


def _is_local(given: pyarrow.DataType, kind: Any) -> bool:
    return arrow.is_timestamp(given) and given.tz is None


def _is_instant(given: pyarrow.DataType, kind: Any) -> bool:
    return arrow.is_timestamp(given) and given.tz is not None


_FITTING: dict[type, Callable[[pyarrow.DataType, Any], bool]] = {
    iceberg.BooleanType: lambda given, kind: arrow.is_boolean(given),
    # Python's integers are 64 bits wide in Arrow; those that are too large for the column are found one by one.
    iceberg.IntegerType: lambda given, kind: arrow.is_integer(given),
    iceberg.LongType: lambda given, kind: arrow.is_integer(given),
    iceberg.FloatType: lambda given, kind: arrow.is_floating(given) and given.bit_width <= 32,
    iceberg.DoubleType: lambda given, kind: arrow.is_floating(given),
    iceberg.DecimalType: lambda given, kind: (
        arrow.is_decimal(given) and given.scale == kind.scale and given.precision <= kind.precision
    ),
    iceberg.DateType: lambda given, kind: arrow.is_date(given),
    iceberg.TimeType: lambda given, kind: arrow.is_time(given),
    iceberg.TimestampType: _is_local,
    iceberg.TimestamptzType: _is_instant,
    iceberg.TimestampNanoType: _is_local,
    iceberg.TimestamptzNanoType: _is_instant,
    iceberg.StringType: lambda given, kind: any(test(given) for test in _TEXTS),
    iceberg.BinaryType: lambda given, kind: any(test(given) for test in _BYTES),
    iceberg.FixedType: lambda given, kind: arrow.is_fixed_size_binary(given) and given.byte_width == len(kind),
    iceberg.UUIDType: lambda given, kind: arrow.is_fixed_size_binary(given) and given.byte_width == 16,
}


# -- nulls -----------------------------------------------------------------------------------------------------------


def _refuse_nulls(name: str, field: iceberg.NestedField, array: pyarrow.Array, above: int = 0) -> None:
    """Refuse nulls in what is required; `above` is how many there are because what is around is null."""
    if field.required and array.null_count > above:
        raise ValueError(f"column {name} is required, and {array.null_count - above} of the rows have null there")
    kind = field.field_type
    if isinstance(kind, iceberg.StructType):
        for place, inner in enumerate(kind.fields):
            # With the nulls of the struct itself.
            values = compute.struct_field(array, [place])
            _refuse_nulls(f"{name}.{inner.name}", inner, values, array.null_count)
    elif isinstance(kind, iceberg.ListType):
        _refuse_nulls(f"{name}.element", kind.element_field, array.flatten())
    elif isinstance(kind, iceberg.MapType):
        _refuse_nulls(f"{name}.value", kind.value_field, _items(array))


def _items(array: pyarrow.MapArray) -> pyarrow.Array:
    """Values of the maps that are not null, and of no others: a slice has those of the whole array below it."""
    whole = array.filter(array.is_valid())
    first, last = (whole.offsets[place].as_py() for place in (0, -1))
    return whole.items.slice(first, last - first)
