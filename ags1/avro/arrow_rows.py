"""Rows that fastavro decoded, as Arrow columns.

Dates and times are the integers that are stored. Arrow takes the rows as they are, and casts milliseconds.
"""

from __future__ import annotations

from typing import Any

import pyarrow
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.types import ListType, MapType, NestedField, StructType

from ags1.avro.schemas import AvroType

_Types = tuple[pyarrow.DataType, pyarrow.DataType]


def record_batch(rows: list[dict[str, Any]], record: AvroType, struct: StructType) -> pyarrow.RecordBatch:
    """Return a batch with the fields of `struct`, a subset of those of `record`, under their Avro names.

    An Arrow or Python exception for a value of the wrong type means that the file is damaged.
    """
    stored, wanted = _types(record, struct)
    made = pyarrow.array(rows, stored)
    # No later check would find a number with more digits than its type allows.
    made.validate(full=True)
    return pyarrow.RecordBatch.from_struct_array(made if stored == wanted else made.cast(wanted))


def _types(avro: AvroType, iceberg: Any) -> _Types:
    """The Arrow types of the values as they are stored, and as they are wanted."""
    if isinstance(iceberg, StructType):
        by_id = {each.id: each for each in avro.fields}
        fields = [_fields(each, by_id[each.field_id].type) for each in iceberg.fields]
        stored, wanted = (pyarrow.struct([each[index] for each in fields]) for index in (0, 1))
        return stored, wanted
    if isinstance(iceberg, ListType):
        stored, wanted = _fields(iceberg.element_field, avro.field("element").type)
        return pyarrow.large_list(stored), pyarrow.large_list(wanted)
    if isinstance(iceberg, MapType):
        keys = _fields(iceberg.key_field, avro.field("key").type)
        values = _fields(iceberg.value_field, avro.field("value").type)
        stored, wanted = (pyarrow.map_(key, value) for key, value in zip(keys, values, strict=True))
        return stored, wanted
    kind = schema_to_pyarrow(iceberg, include_field_ids=False)
    # Geometries keep their stored type.
    kind = kind.storage_type if isinstance(kind, pyarrow.BaseExtensionType) else kind
    if avro.kind == "null":
        return pyarrow.null(), kind
    if avro.logical == "time-millis":
        return pyarrow.time32("ms"), kind
    return pyarrow.timestamp("ms", kind.tz) if avro.logical == "timestamp-millis" else kind, kind


def _fields(nested: NestedField, avro: AvroType) -> tuple[pyarrow.Field, pyarrow.Field]:
    stored, wanted = _types(avro, nested.field_type)
    return tuple(pyarrow.field(nested.name, each, nullable=nested.optional) for each in (stored, wanted))
