"""Arrow types as Spark has them, and conversion of columns of files to the types of a schema.

Spark binds columns by position and accepts only a few Arrow types, so every batch gets exactly the schema that
``to_arrow_schema`` makes of Spark's. No message shows a value: errors of tasks get into Spark's event log.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ags1.errors import FormatError

_MAX_PRECISION = 38
NO_CONSTANTS: Mapping[str, pa.Scalar] = {}
# Cast errors are ArrowInvalid, which is a ValueError; a cast that Arrow lacks is ArrowNotImplementedError.
_CAST_ERRORS = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError)


def spark_schema(schema: pa.Schema, name: str) -> pa.Schema:
    """A file's schema in Spark's types; every column may be null."""
    made = []
    for field in schema:
        try:
            made.append(pa.field(field.name, spark_type(field.type)))
        except TypeError as error:
            raise FormatError(
                f"{name}: the column {field.name!r} is of the Arrow type {error}, which Spark does not have: leave it "
                "out with the option columns, or give a schema"
            ) from None
    return pa.schema(made)


def spark_type(kind: pa.DataType) -> pa.DataType:
    """The type that Spark has for an Arrow type. Raises TypeError if there is none.

    Times of day become bigint, microseconds since midnight; nanoseconds become microseconds.
    """
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return spark_type(kind.storage_type)
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return spark_type(kind.value_type)
    found = _SIMPLE.get(kind)
    if found is not None:
        return found
    if types.is_fixed_size_binary(kind):
        return pa.binary()
    if types.is_time(kind):
        return pa.int64()
    if types.is_timestamp(kind):
        return pa.timestamp("us", tz="UTC" if kind.tz is not None else None)
    if types.is_duration(kind):
        return pa.duration("us")
    if types.is_decimal(kind) and kind.precision <= _MAX_PRECISION and 0 <= kind.scale <= kind.precision:
        return pa.decimal128(kind.precision, kind.scale)
    if _is_list(kind):
        return pa.list_(pa.field("element", spark_type(kind.value_type)))
    if types.is_map(kind):
        key = pa.field("key", spark_type(kind.key_type), nullable=False)
        return pa.map_(key, pa.field("value", spark_type(kind.item_type)))
    if types.is_struct(kind):
        return pa.struct([pa.field(each.name, spark_type(each.type)) for each in kind])
    raise TypeError(str(kind))


_SIMPLE = {
    pa.null(): pa.string(),
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
    pa.date64(): pa.date32(),
    **{
        each: each
        for each in (
            *(pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()),
            *(pa.string(), pa.binary(), pa.date32()),
        )
    },
}


def _is_list(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_list(kind)
        or types.is_large_list(kind)
        or types.is_fixed_size_list(kind)
        or types.is_list_view(kind)
        or types.is_large_list_view(kind)
    )


def conformed(
    batch: pa.RecordBatch, schema: pa.Schema, name: str, constants: Mapping[str, pa.Scalar] = NO_CONSTANTS
) -> pa.RecordBatch:
    """A batch with exactly the columns of a schema, found by exact name, else by name without case.

    Other columns are left out, missing ones are null; `constants` have one value for all rows. A time without a zone
    is one in UTC, as in Spark.
    """
    if batch.schema.equals(schema):
        return batch
    columns = []
    for field in schema:
        if field.name in constants:
            columns.append(pa.repeat(constants[field.name], batch.num_rows))
            continue
        index = find(batch.schema, field.name)
        if index is None:
            if not field.nullable and batch.num_rows:
                raise FormatError(
                    f"{name}: the column {field.name!r} is missing, and the schema does not allow nulls in it"
                )
            columns.append(pa.nulls(batch.num_rows, field.type))
            continue
        column = batch.column(index)
        try:
            made = _converted(column, field.type)
        except (*_CAST_ERRORS, ValueError, OverflowError, TypeError):
            raise FormatError(
                f"{name}: the column {field.name!r} is of the type {column.type}, and not all of its values "
                f"can be converted to {field.type}"
            ) from None
        if not field.nullable and made.null_count:
            raise FormatError(f"{name}: the column {field.name!r} has nulls, and the schema does not allow them")
        columns.append(made)
    return pa.RecordBatch.from_arrays(columns, schema=schema) if columns else without_columns(batch.num_rows)


def without_columns(count: int) -> pa.RecordBatch:
    """A batch of rows without columns, for queries on columns of the path only."""
    return pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), count, [None], children=[]))


def find(schema: pa.Schema, name: str) -> int | None:
    """Index of the column with a name; names in Spark are case-insensitive."""
    exact: int = schema.get_field_index(name)
    if exact >= 0:
        return exact
    low = name.lower()
    found = [index for index, each in enumerate(schema.names) if each.lower() == low]
    return found[0] if len(found) == 1 else None


def _converted(array: pa.Array, target: pa.DataType) -> pa.Array:
    kind, types = array.type, pa.types
    if kind.equals(target):
        return array
    if isinstance(kind, pa.BaseExtensionType):
        return _converted(array.storage, target)
    if types.is_dictionary(kind):
        return _converted(array.dictionary_decode(), target)
    if types.is_run_end_encoded(kind):
        return _converted(pc.run_end_decode(array), target)
    if types.is_null(kind):
        return pa.nulls(len(array), target)
    if types.is_struct(target):
        return _struct(array, target)
    if _is_list(kind) and types.is_list(target):
        # Then nulls have no elements, and offsets begin at 0.
        lengths = pc.fill_null(pc.list_value_length(array), 0)
        values = _converted(pc.list_flatten(array), target.value_type)
        return pa.ListArray.from_arrays(_offsets(lengths), values, type=target, mask=_null_mask(array))
    if types.is_map(kind) and types.is_map(target):
        return _map(array, target)
    if types.is_time(kind) and types.is_integer(target):
        return array.cast(pa.time64("us"), safe=False).cast(pa.int64()).cast(target)
    if types.is_timestamp(kind) and types.is_timestamp(target):
        # Nanoseconds are cut off. Convert with the zone only: a cast to a naive time would give UTC.
        return array.cast(pa.timestamp(target.unit, kind.tz), safe=False).cast(target)
    if types.is_floating(kind) and types.is_decimal(target):
        return array.cast(target, safe=True)
    if (
        (types.is_float64(kind) and types.is_float32(target))
        or (types.is_boolean(kind) != types.is_boolean(target) and not _is_text(target))
        or (_is_text(kind) and not _is_text(target) and not (types.is_binary(target) or types.is_large_binary(target)))
    ):
        # Arrow would make infinities of great numbers, true of 2, and 1 of " 1". Spark refuses it too.
        raise TypeError(f"{kind} is no {target}")
    if (types.is_duration(kind) and types.is_duration(target)) or types.is_date64(kind):
        return array.cast(target, safe=False)
    return array.cast(target)


def _struct(array: pa.Array, target: pa.StructType) -> pa.Array:
    if not pa.types.is_struct(array.type):
        raise TypeError("no struct")
    names = [each.name for each in array.type]
    have = pa.schema([pa.field(each.name, each.type) for each in array.type])
    # Flattened: what lies below a null is null, and slices are respected.
    children = array.flatten()
    made = []
    for field in target:
        index = find(have, field.name) if names else None
        made.append(pa.nulls(len(array), field.type) if index is None else _converted(children[index], field.type))
    valid = None if array.null_count == 0 else pc.invert(array.is_null()).buffers()[1]
    return pa.Array.from_buffers(target, len(array), [valid], children=made)


def _map(array: pa.Array, target: pa.MapType) -> pa.Array:
    if array.offset:
        array = array.take(pa.array(np.arange(len(array))))
    offsets = array.offsets
    first, last = offsets[0].as_py(), offsets[len(offsets) - 1].as_py()
    keys = _converted(array.keys.slice(first, last - first), target.key_type)
    items = _converted(array.items.slice(first, last - first), target.item_type)
    moved = pc.subtract(offsets, pa.scalar(first, pa.int32()))
    return pa.MapArray.from_arrays(moved, keys, items, type=target, mask=_null_mask(array))


def _offsets(lengths: pa.Array) -> pa.Array:
    made = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths.to_numpy(zero_copy_only=False), out=made[1:])
    if made[-1] > (1 << 31) - 1:
        raise OverflowError("too many elements for one batch")
    return pa.array(made.astype(np.int32))


def _null_mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))
