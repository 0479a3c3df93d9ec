"""Rows by partition, and what manifests say of partitions and of single values.

    batch --transforms--> one column a field --sorted together--> runs of rows, one a partition

    type             partition (Avro)      bound (bytes)
    int, date        number                4 bytes, little-endian
    long, timestamp  number                8 bytes, little-endian
    float, double    number                4 or 8 bytes
    decimal          bytes of the type     as few bytes as it takes, big-endian
    string           text                  UTF-8
    binary, fixed    bytes                 bytes

Source: Iceberg table spec, "Partitioning", "Manifests", "Manifest Lists" (field summaries), "Appendix A: Avro",
"Appendix D: Single-value serialization".
"""

from __future__ import annotations

import datetime
import math
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow
import pyarrow.compute as compute
from pyiceberg import types as iceberg
from pyiceberg.conversions import to_bytes
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, HourTransform, TruncateTransform, UnknownTransform, VoidTransform
from pyiceberg.utils.datetime import date_to_days
from pyiceberg.utils.decimal import bytes_required, decimal_required_bytes, decimal_to_bytes
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from ags1.errors import UnsupportedError
from ags1.iceberg.metadata.manifests import Manifest, ManifestEntry
from ags1.iceberg.scan.projection import path_to

_Values = tuple[Any, ...]
_TIMES = (pyarrow.types.is_time, pyarrow.types.is_timestamp)


@dataclass(frozen=True)
class _Field:
    field_id: int
    name: str
    transform: Any
    path: tuple[int, ...]
    source: Any
    kind: Any


class Partitioning:
    """How a partition spec divides rows that have the columns of a table in their order."""

    def __init__(self, spec: PartitionSpec, schema: Schema) -> None:
        self.spec_id = spec.spec_id
        self._spec, self._schema = spec, schema
        self._fields: list[_Field] = []
        for field in spec.fields:
            # A void field may outlive its column.
            source = schema.find_type(field.source_id) if field.source_id in schema.field_ids else iceberg.UnknownType()
            kind = field.transform.result_type(source)
            path = path_of(schema, field.source_id)
            self._fields.append(_Field(field.field_id, field.name, field.transform, path, source, kind))

    def check(self) -> None:
        """Raise an UnsupportedError for a transform that is not known, or of a column that is gone."""
        for each in self._fields:
            check_transform(each.transform, each.source, each.name)

    def divided(self, batch: pyarrow.RecordBatch) -> Iterator[tuple[_Values, pyarrow.RecordBatch]]:
        """The rows of each partition, with its values as manifests have them; in their order."""
        if not self._fields or not batch.num_rows:
            yield (), batch
            return
        codes: Any = None
        encoded = []
        for field in self._fields:
            made = transformed(field.transform, field.source, column_of(batch, field.path))
            if any(test(made.type) for test in _TIMES):
                made = made.cast(pyarrow.int64())
            column = made.dictionary_encode(null_encoding="encode")
            encoded.append(column)
            number = column.indices.cast(pyarrow.int64())
            codes = number if codes is None else compute.add(compute.multiply(codes, len(column.dictionary)), number)
        order = compute.sort_indices(codes)
        runs = compute.run_end_encode(codes.take(order))
        start = 0
        for run_end in runs.run_ends.to_pylist():
            first = order[start].as_py()
            values = tuple(
                raw_of(column.dictionary[column.indices[first].as_py()].as_py(), field.kind)
                for field, column in zip(self._fields, encoded, strict=True)
            )
            # A copy: a few rows that wait for their file must not hold those of all partitions in memory.
            yield values, batch if len(runs.values) == 1 else batch.take(order.slice(start, run_end - start))
            start = run_end

    def values(self, record: Mapping[int, Any]) -> _Values:
        """The values of a partition as :class:`ManifestEntry` has it."""
        return tuple(record[field.field_id] for field in self._fields)

    def record(self, values: _Values) -> dict[int, Any]:
        """The partition of a file, as :class:`ManifestEntry` has it."""
        return {field.field_id: value for field, value in zip(self._fields, values, strict=True)}

    def manifest(self, content: int, entries: list[ManifestEntry]) -> Manifest:
        """A manifest of new files."""
        header = {
            "schema": self._schema.model_dump_json().encode(),
            "partition-spec": f"[{','.join(each.model_dump_json() for each in self._spec.fields)}]".encode(),
        }
        return Manifest(content, self.spec_id, header, self._avro(), entries)

    def summaries(self, entries: Sequence[ManifestEntry]) -> list[dict[str, Any]]:
        """What a manifest list says of the partitions of a manifest with these entries."""
        return [_summary(field, [each.file["partition"][field.field_id] for each in entries]) for field in self._fields]

    def _avro(self) -> dict[str, Any]:
        fields = [iceberg.NestedField(each.field_id, each.name, each.kind, required=False) for each in self._fields]
        made: dict[str, Any] = AvroSchemaConversion().iceberg_to_avro(Schema(*fields), schema_name="r102")  # type: ignore[assignment]
        for each in made["fields"]:
            for kind in each["type"]:
                if isinstance(kind, dict) and "name" in kind:
                    # Avro has each name once, and two fields may be of the same type.
                    kind["name"] += f"_{each['field-id']}"
        return made


def path_of(schema: Schema, field_id: int) -> tuple[int, ...]:
    """Places of a column and the structs around it, the outermost first; empty for one that is gone."""
    fields = path_to(schema.fields, field_id) or ()
    level, places = schema.fields, []
    for field in fields:
        places.append(level.index(field))
        level = getattr(field.field_type, "fields", ())
    return tuple(places)


def column_of(batch: pyarrow.RecordBatch, path: Sequence[int]) -> pyarrow.Array:
    """A column, null also where a struct around it is; nulls for one that is gone."""
    if not path:
        return pyarrow.nulls(batch.num_rows, pyarrow.int32())
    first, *rest = path
    column = batch.column(first)
    return compute.struct_field(column, rest) if rest else column


def _summary(field: _Field, values: list[Any]) -> dict[str, Any]:
    known = [each for each in values if each is not None]
    plain = [each for each in known if each == each]
    found: dict[str, Any] = {"contains_null": len(known) < len(values)}
    if isinstance(field.kind, (iceberg.FloatType, iceberg.DoubleType)):
        found["contains_nan"] = len(plain) < len(known)
    # Of a transform that is not known, the type of the values is not known either.
    if plain and not isinstance(field.transform, UnknownTransform):
        order = _number if isinstance(field.kind, iceberg.DecimalType) else _ordered
        lower, upper = min(plain, key=order), max(plain, key=order)
        if not isinstance(field.kind, iceberg.UUIDType):
            # Java has compared UUIDs as signed numbers.
            found["lower_bound"], found["upper_bound"] = bound_of(lower, field.kind), bound_of(upper, field.kind)
    return found


def _number(raw: bytes) -> int:
    return int.from_bytes(raw, "big", signed=True)


def _ordered(value: Any) -> Any:
    # The zeros of both signs are equal in Python and not in Java.
    return (value, math.copysign(1, value)) if isinstance(value, float) else value


_NANOSECONDS = (iceberg.TimestampNanoType, iceberg.TimestamptzNanoType)


def check_transform(transform: Any, kind: Any, name: str) -> None:
    """Refuse a transform that is not known, or not for this type; an UnsupportedError names the field."""
    if not isinstance(transform, VoidTransform) and not transform.can_transform(kind):
        raise UnsupportedError(
            f"the field {name} has the transform {transform} of {kind}, which is not known here: write this table with "
            "Spark"
        )


def transformed(transform: Any, kind: Any, array: pyarrow.Array) -> pyarrow.Array:
    """What a transform makes of a column of a type: null where the column is; of extension types, of their storage."""
    if isinstance(array.type, pyarrow.BaseExtensionType):
        array = array.storage
    if isinstance(kind, _NANOSECONDS) and isinstance(transform, (BucketTransform, HourTransform)):
        # PyIceberg's core knows no hours of nanoseconds, and rounds those before 1970 up.
        array = _floor_divided(array.cast(pyarrow.int64()), 1000).cast(pyarrow.timestamp("us"))
    if isinstance(kind, iceberg.BinaryType) and isinstance(transform, TruncateTransform):
        # The core knows none of Arrow's large binaries.
        return compute.binary_slice(array, 0, transform.width)
    return transform.pyarrow_transform(kind)(array)


def _floor_divided(array: pyarrow.Array, divisor: int) -> pyarrow.Array:
    # Arrow's own rounds towards zero.
    quotient = compute.divide(array, divisor)
    rest = compute.subtract(array, compute.multiply(quotient, divisor))
    return compute.if_else(compute.less(rest, 0), compute.subtract(quotient, 1), quotient)


# What Parquet and Avro have in the bytes of a bound already.
_AS_BYTES = (iceberg.StringType, iceberg.BinaryType, iceberg.FixedType, iceberg.UUIDType)
_UNBOUNDED = (iceberg.UnknownType, iceberg.GeometryType, iceberg.GeographyType)


def raw_of(value: Any, kind: Any) -> Any:
    """A partition value as Avro has it; dates and times come as numbers of days, microseconds or nanoseconds."""
    if value is None:
        return None
    if isinstance(kind, iceberg.DecimalType):
        return decimal_to_bytes(value, decimal_required_bytes(kind.precision))
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, datetime.date):
        return date_to_days(value)
    return value


def bound_of(raw: Any, kind: Any) -> bytes | None:
    """A value, as Avro or Parquet has it, as the bytes of a bound; None for a type without bounds."""
    if isinstance(kind, iceberg.DecimalType):
        number = raw if isinstance(raw, int) else int.from_bytes(raw, "big", signed=True)
        return number.to_bytes(bytes_required(number), "big", signed=True)
    if isinstance(kind, _UNBOUNDED):
        return None
    return bytes(raw) if isinstance(kind, _AS_BYTES) and not isinstance(raw, str) else to_bytes(kind, raw)
