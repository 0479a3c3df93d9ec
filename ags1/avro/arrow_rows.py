"""Rows that fastavro decoded, as Arrow columns.

The values are those of Avro's own types: dates, times and decimals are the integers and bytes that are stored.
"""

from __future__ import annotations

import uuid
from operator import itemgetter
from typing import Any

import pyarrow
import pyarrow.compute
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.types import DecimalType, FixedType, ListType, MapType, NestedField, StructType

from ags1.avro.schemas import AvroType

_DECIMAL_BYTES = 16


def record_batch(rows: list[dict[str, Any]], record: AvroType, struct: StructType) -> pyarrow.RecordBatch:
    """Return a batch with the fields of `struct`, a subset of those of `record`, under their Avro names.

    An Arrow or Python exception for a value of the wrong type means that the file is damaged.
    """
    columns = _children(rows, record, struct)
    return pyarrow.RecordBatch.from_struct_array(_struct(columns, len(rows), None))


def _column(values: list[Any], avro: AvroType, iceberg: Any) -> pyarrow.Array:
    if isinstance(iceberg, StructType):
        nulls = _nulls(values)
        if nulls is not None:
            values = [_EMPTY if each is None else each for each in values]
        return _struct(_children(values, avro, iceberg), len(values), nulls if avro.optional else None)
    if isinstance(iceberg, ListType):
        items = [item for each in values if each is not None for item in each]
        made = _column(items, avro.field("element").type, iceberg.element_type)
        return pyarrow.LargeListArray.from_arrays(
            _offsets(values, pyarrow.int64()),
            made,
            type=pyarrow.large_list(_arrow_field(iceberg.element_field, made.type)),
            mask=_nulls(values) if avro.optional else None,
        )
    if isinstance(iceberg, MapType):
        return _map(values, avro, iceberg)
    made = _primitive(values, avro, iceberg)
    return made if avro.optional or avro.kind == "null" else _never_null(made)


def _never_null(array: pyarrow.Array) -> pyarrow.Array:
    """Return the array of a required field. Only null records around it may have made its values null."""
    if not array.null_count:
        return array
    return pyarrow.Array.from_buffers(array.type, len(array), [None, *array.buffers()[1:]])


class _Empty(dict[str, None]):
    """Stands for a null record: everything below it is null too."""

    def __missing__(self, key: str) -> None:
        return None


_EMPTY = _Empty()


def _children(rows: list[Any], record: AvroType, struct: StructType) -> list[tuple[NestedField, pyarrow.Array]]:
    by_id = {each.id: each for each in record.fields}
    made = []
    for each in struct.fields:
        avro = by_id[each.field_id]
        values = list(map(itemgetter(avro.name), rows))
        made.append((each, _column(values, avro.type, each.field_type)))
    return made


def _struct(
    columns: list[tuple[NestedField, pyarrow.Array]], length: int, nulls: pyarrow.Array | None
) -> pyarrow.Array:
    # StructArray.from_arrays takes the length from the first column, and there may be none.
    kind = pyarrow.struct([_arrow_field(each, made.type) for each, made in columns])
    valid = None if nulls is None else pyarrow.compute.invert(nulls).buffers()[1]
    return pyarrow.Array.from_buffers(kind, length, [valid], children=[made for _, made in columns])


def _arrow_field(nested: NestedField, kind: pyarrow.DataType) -> pyarrow.Field:
    return pyarrow.field(nested.name, kind, nullable=nested.optional)


def _map(values: list[Any], avro: AvroType, iceberg: MapType) -> pyarrow.Array:
    if avro.is_entries:
        entries = [item for each in values if each is not None for item in each]
        keys = list(map(itemgetter("key"), entries))
        items = list(map(itemgetter("value"), entries))
    else:
        keys = [key for each in values if each is not None for key in each]
        items = [item for each in values if each is not None for item in each.values()]
    key_array = _column(keys, avro.field("key").type, iceberg.key_type)
    item_array = _column(items, avro.field("value").type, iceberg.value_type)
    return pyarrow.MapArray.from_arrays(
        _offsets(values, pyarrow.int32()),
        key_array,
        item_array,
        type=pyarrow.map_(
            _arrow_field(iceberg.key_field, key_array.type), _arrow_field(iceberg.value_field, item_array.type)
        ),
        mask=_nulls(values) if avro.optional else None,
    )


def _offsets(values: list[Any], kind: pyarrow.DataType) -> pyarrow.Array:
    position, offsets = 0, [0]
    for each in values:
        if each is not None:
            position += len(each)
        offsets.append(position)
    return pyarrow.array(offsets, kind)


def _nulls(values: list[Any]) -> pyarrow.Array | None:
    """Return which values are null; None if there are no nulls."""
    return pyarrow.array([each is None for each in values], pyarrow.bool_()) if None in values else None


def _primitive(values: list[Any], avro: AvroType, iceberg: Any) -> pyarrow.Array:
    if avro.kind == "null":
        return pyarrow.nulls(len(values), _arrow_type(iceberg))
    if isinstance(iceberg, DecimalType):
        return _decimals(values, iceberg)
    if avro.kind == "string" and isinstance(iceberg, FixedType):
        values = [None if each is None else uuid.UUID(each).bytes for each in values]
    if avro.logical in ("time-millis", "timestamp-millis"):
        values = [None if each is None else each * 1000 for each in values]
    return pyarrow.array(values, _arrow_type(iceberg))


def _arrow_type(iceberg: Any) -> pyarrow.DataType:
    kind = schema_to_pyarrow(iceberg, include_field_ids=False)
    # Geometries keep their stored type.
    return kind.storage_type if isinstance(kind, pyarrow.BaseExtensionType) else kind


def _decimals(values: list[Any], iceberg: DecimalType) -> pyarrow.Array:
    """Big-endian integers of any length, which Arrow keeps as 16 little-endian bytes."""
    zero = bytes(_DECIMAL_BYTES)
    number, stored = int.from_bytes, int.to_bytes
    data = b"".join(
        [
            zero if each is None else stored(number(each, "big", signed=True), _DECIMAL_BYTES, "little", signed=True)
            for each in values
        ]
    )
    nulls = _nulls(values)
    valid = None if nulls is None else pyarrow.compute.invert(nulls).buffers()[1]
    made = pyarrow.Array.from_buffers(_arrow_type(iceberg), len(values), [valid, pyarrow.py_buffer(data)])
    # No later check would find a number with more digits than its type allows.
    made.validate(full=True)
    return made
