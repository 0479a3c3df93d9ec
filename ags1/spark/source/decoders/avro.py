"""Avro containers: blocks decoded by fastavro, split at sync markers. Types are those of Spark's own Avro source.

fastavro decodes by a schema of the same bytes, whose values Arrow takes as they are: dates and times are the stored
numbers, and a value of a union is a record with the one member that it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import count, islice
from typing import Any

import pyarrow as pa

from ags1.avro import PlainContainer, check_schema, plain_blocks, read_header
from ags1.errors import Ags1Error, FormatError
from ags1.spark.source.decoders import Decoder, Plain
from ags1.spark.source.decoders.types import find, spark_schema

_ROWS = 1 << 14
_MAX_PRECISION = 38
_PRIMITIVES = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}
# As they are stored; Spark's microseconds are made of them afterwards.
_LOGICAL = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "timestamp-nanos"): pa.timestamp("ns", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("long", "local-timestamp-nanos"): pa.timestamp("ns"),
}
# Unions of two numbers are the wider one.
_NUMBERS = ({"int", "long"}, {"float", "double"})
# Where the stored schema keeps a logical type that fastavro must not see.
_HIDDEN = "ags1.logicalType"


class _Avro(Decoder):
    def schema_of(self, file: Plain) -> pa.Schema:
        found, _ = types_of(read_header(file.source).metadata, file.name)
        return spark_schema(found, file.name)

    def read(self, file: Plain, start: int, end: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        reader = file.source
        if start > 0 and start >= reader.size:
            return
        header = read_header(reader)
        have, stored = types_of(header.metadata, file.name)
        # Only these columns become Arrow.
        rows = pa.struct([have.field(at) for name in columns if (at := find(have, name)) is not None])
        metadata = {**header.metadata, "avro.schema": json.dumps(stored).encode()}
        records = PlainContainer(metadata, header.marker, plain_blocks(reader, start, end)).rows()
        try:
            while some := list(islice(records, _ROWS)):
                yield pa.RecordBatch.from_struct_array(pa.array(some, rows))
        except (Ags1Error, OSError, MemoryError):
            raise
        except Exception as error:
            # The message must not show values of the data: it gets into Spark's event log.
            raise FormatError(
                f"{file.name}: the rows of the Avro container cannot be decoded ({type(error).__name__})"
            ) from None


def types_of(metadata: dict[str, bytes], name: str) -> tuple[pa.Schema, Any]:
    """The Arrow schema of a container, and the schema by which fastavro decodes its rows.

    `metadata` is that of the header.
    """
    from fastavro.schema import expand_schema

    if "avro.schema" not in metadata:
        raise FormatError(f"{name}: the Avro header has no schema")
    try:
        avro = json.loads(metadata["avro.schema"])
        check_schema(avro)
        stored = _stored(avro, count())
        found = _arrow(expand_schema(stored))
    except FormatError as error:
        raise FormatError(f"{name}: {error}") from None
    except Exception as error:
        raise FormatError(
            f"{name}: the schema in the Avro header cannot be used: {type(error).__name__}: {error}"
        ) from None
    if not pa.types.is_struct(found):
        raise FormatError(f"{name}: the rows are of the Avro type {avro!r:.60}, but a record is needed")
    return pa.schema(list(found)), stored


def _stored(avro: Any, numbers: Iterator[int]) -> Any:
    """A schema of the same bytes, in which the branches of a union are records of one member, as they are in Spark."""
    if isinstance(avro, list):
        branches = [_stored(each, numbers) for each in avro]
        kinds = [_kind(each) for each in branches]
        if len(kinds) - kinds.count("null") < 2 or set(kinds) - {"null"} in _NUMBERS:
            return branches
        places = count()
        return [
            each if kind == "null" else _member(each, next(places), next(numbers))
            for each, kind in zip(branches, kinds, strict=True)
        ]
    if not isinstance(avro, dict):
        return avro
    if isinstance(avro["type"], (dict, list)):
        return _stored(avro["type"], numbers)
    made = {name: each for name, each in avro.items() if name != "logicalType"}
    for name in ("items", "values"):
        if name in made:
            made[name] = _stored(made[name], numbers)
    if "fields" in made:
        # A default means nothing for what is stored, and may be wrong.
        fields = [(each["name"], _stored(each["type"], numbers)) for each in made["fields"]]
        made["fields"] = [{"name": name, "type": each} for name, each in fields]
    logical = avro.get("logicalType")
    if isinstance(logical, str):
        made["logicalType" if logical == "decimal" and _is_decimal(avro) else _HIDDEN] = logical
    return made


def _kind(avro: Any) -> Any:
    """The name of a type; "" of one that has a logical type."""
    return avro if not isinstance(avro, dict) else "" if _HIDDEN in avro else avro["type"]


def _member(avro: Any, place: int, number: int) -> Any:
    """A branch of a union as a record, which has the same bytes."""
    return {"type": "record", "name": f"ags1_{number}", "fields": [{"name": f"member{place}", "type": avro}]}


def _is_decimal(avro: dict[str, Any]) -> bool:
    """Whether a decimal is valid. The specification: a logical type that is not valid is ignored."""
    precision, scale = avro.get("precision"), avro.get("scale", 0)
    if type(precision) is not int or type(scale) is not int:
        return False
    return 0 < precision <= _MAX_PRECISION and 0 <= scale <= precision


def _arrow(avro: Any) -> pa.DataType:
    """The Arrow type of a stored schema without references."""
    if isinstance(avro, list):
        kinds = [_arrow(each) for each in avro if _kind(each) != "null"]
        if len(kinds) < 2:
            return kinds[0] if kinds else pa.null()
        if pa.types.is_struct(kinds[0]):
            return pa.struct([each.field(0) for each in kinds])
        return next(each for each in kinds if each.bit_width == 64)
    kind = avro["type"] if isinstance(avro, dict) else avro
    if kind in ("record", "error"):
        return pa.struct([pa.field(each["name"], _arrow(each["type"])) for each in avro["fields"]])
    if kind == "array":
        return pa.list_(pa.field("element", _arrow(avro["items"])))
    if kind == "map":
        key = pa.field("key", pa.string(), nullable=False)
        return pa.map_(key, pa.field("value", _arrow(avro["values"])))
    properties = avro if isinstance(avro, dict) else {}
    if kind in ("bytes", "fixed") and "logicalType" in properties:
        return pa.decimal128(properties["precision"], properties.get("scale", 0))
    return _LOGICAL.get((kind, properties.get(_HIDDEN, ""))) or _PRIMITIVES[kind]


make = _Avro
