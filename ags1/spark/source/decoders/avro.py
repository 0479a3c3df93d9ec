"""Avro containers: blocks decoded by fastavro, split at sync markers.

Dates, times and UUIDs are decoded as they are stored, as integers and texts, which Arrow accepts; only decimals become
Python objects. Types are those of Spark's own Avro source.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import pyarrow as pa

from ags1.avro import PlainContainer, check_schema, plain_blocks, read_header
from ags1.errors import Ags1Error, FormatError
from ags1.spark.source.decoders import Decoder, Plain
from ags1.spark.source.decoders.types import conformed, find, spark_schema

_ROWS = 1 << 14
_PRIMITIVES = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
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


def schema_of(avro: Any, name: str) -> pa.Schema:
    """The Arrow schema of an Avro schema, as JSON has it."""
    return pa.schema(list(_type_of(avro, name).arrow))


class _Avro(Decoder):
    def schema_of(self, file: Plain) -> pa.Schema:
        found = schema_of(_schema_json(read_header(file.source), file.name), file.name)
        return spark_schema(found, file.name)

    def read(self, file: Plain, start: int, end: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        reader = file.source
        if start > 0 and start >= reader.size:
            return
        header = read_header(reader)
        found = _type_of(_schema_json(header, file.name), file.name)
        # Only the columns of the schema become Arrow.
        have = pa.schema(list(found.arrow))
        fields = [have.field(index) for name in schema.names if (index := find(have, name)) is not None]
        metadata = {**header.metadata, "avro.schema": json.dumps(found.plain).encode()}
        container = PlainContainer(metadata, header.marker, plain_blocks(reader, start, end))
        try:
            records = container.rows(return_named_type=found.tagged)
            while some := list(islice(records, _ROWS)):
                yield conformed(_batch(some, fields, found), schema, file.name)
        except (Ags1Error, OSError, MemoryError):
            raise
        except Exception as error:
            # The message must not show values of the data: it gets into Spark's event log.
            raise FormatError(
                f"{file.name}: the rows of the Avro container cannot be decoded ({type(error).__name__})"
            ) from None


def _batch(records: list[Any], fields: list[pa.Field], found: _Type) -> pa.RecordBatch:
    columns = []
    for each in fields:
        convert = found.converters.get(each.name)
        values = [record[each.name] for record in records]
        if convert is not None:
            values = [convert(value) for value in values]
        columns.append(pa.array(values, each.type))
    kind = pa.struct(fields)
    return pa.RecordBatch.from_struct_array(pa.Array.from_buffers(kind, len(records), [None], children=columns))


def _schema_json(header: Any, name: str) -> Any:
    try:
        return json.loads(header.metadata["avro.schema"])
    except KeyError:
        raise FormatError(f"{name}: the Avro header has no schema") from None
    except (ValueError, RecursionError):
        raise FormatError(f"{name}: the schema in the Avro header is no JSON") from None


# -- types -------------------------------------------------------------------------------------------------------------


@dataclass
class _Type:
    """An Avro type: its Arrow type, the schema for fastavro, and the conversion of values.

    `plain` is the same Avro schema without logical types but decimals, `convert` makes a value for pyarrow.array of
    fastavro's (None if they are the same), `converters` are those of a record's fields. `tagged` is whether a
    union is in it whose branches must be told apart.
    """

    arrow: pa.DataType
    plain: Any
    convert: Callable[[Any], Any] | None = None
    converters: dict[str, Callable[[Any], Any]] = field(default_factory=dict)
    tagged: bool = False
    name: str | None = None


def _type_of(avro: Any, name: str) -> _Type:
    """The type of rows, which is a record."""
    try:
        check_schema(avro)
    except FormatError as error:
        raise FormatError(f"{name}: {error}") from None
    found = _Types(name).type(avro, "")
    if not pa.types.is_struct(found.arrow):
        raise FormatError(f"{name}: the rows are of the Avro type {avro!r:.60}, but a record is needed")
    return found


class _Types:
    def __init__(self, file: str) -> None:
        self._file = file
        self._named: dict[str, _Type] = {}

    def type(self, avro: Any, namespace: str) -> _Type:
        if isinstance(avro, list):
            return self._union(avro, namespace)
        if isinstance(avro, str):
            return _Type(_PRIMITIVES[avro], avro) if avro in _PRIMITIVES else self._reference(avro, namespace)
        if not isinstance(avro, dict):
            raise FormatError(f"{self._file}: the Avro schema has an invalid type")
        kind = avro.get("type")
        if isinstance(kind, (dict, list)):
            return self.type(kind, namespace)
        if kind in ("record", "error", "enum", "fixed"):
            return self._definition(avro, kind, namespace)
        if kind == "array":
            return self._array(self.type(avro.get("items"), namespace))
        if kind == "map":
            return self._map(self.type(avro.get("values"), namespace))
        if not isinstance(kind, str) or kind not in _PRIMITIVES:
            return self._reference(str(kind), namespace)
        logical = avro.get("logicalType")
        if kind == "bytes" and logical == "decimal":
            return self._decimal(avro, {"type": "bytes"})
        found = _LOGICAL.get((kind, logical)) if isinstance(logical, str) else None
        return _Type(found if found is not None else _PRIMITIVES[kind], kind)

    @staticmethod
    def _decimal(avro: dict[str, Any], plain: dict[str, Any]) -> _Type:
        precision, scale = avro.get("precision"), avro.get("scale", 0)
        if not (type(precision) is int and type(scale) is int and 0 < precision <= 38 and 0 <= scale <= precision):
            # The specification: a logical type that is not valid is ignored.
            return _Type(pa.binary(), plain)
        return _Type(
            pa.decimal128(precision, scale),
            {**plain, "logicalType": "decimal", "precision": precision, "scale": scale},
        )

    @staticmethod
    def _array(items: _Type) -> _Type:
        convert = items.convert
        return _Type(
            pa.list_(pa.field("element", items.arrow)),
            {"type": "array", "items": items.plain},
            None if convert is None else lambda value: [convert(each) for each in value],
            tagged=items.tagged,
        )

    @staticmethod
    def _map(values: _Type) -> _Type:
        convert = values.convert
        return _Type(
            pa.map_(pa.field("key", pa.string(), nullable=False), pa.field("value", values.arrow)),
            {"type": "map", "values": values.plain},
            (lambda value: list(value.items()))
            if convert is None
            else lambda value: [(key, convert(each)) for key, each in value.items()],
            tagged=values.tagged,
        )

    def _definition(self, avro: dict[str, Any], kind: str, namespace: str) -> _Type:
        name = avro.get("name")
        if not isinstance(name, str) or not name:
            raise FormatError(f"{self._file}: the Avro schema has a {kind} without a name")
        if "." in name:
            namespace = name.rpartition(".")[0]
        else:
            namespace = avro.get("namespace", namespace) or ""
            name = f"{namespace}.{name}" if namespace else name
        if name in self._named:
            raise FormatError(f"{self._file}: the Avro schema defines {name!r} twice")
        if kind == "enum":
            made = _Type(pa.string(), {"type": "enum", "name": name, "symbols": avro.get("symbols")})
        elif kind == "fixed":
            plain = {"type": "fixed", "name": name, "size": avro.get("size")}
            made = self._decimal(avro, plain) if avro.get("logicalType") == "decimal" else _Type(pa.binary(), plain)
        else:
            made = self._record(avro, name, namespace)
        made.name = name
        self._named[name] = made
        return made

    def _record(self, avro: dict[str, Any], name: str, namespace: str) -> _Type:
        fields = avro.get("fields")
        if not isinstance(fields, list) or not all(isinstance(each, dict) for each in fields):
            raise FormatError(f"{self._file}: the Avro record {name!r} has no list of fields")
        arrow, plain, converters, tagged = [], [], {}, False
        for each in fields:
            field_name = each.get("name")
            if not isinstance(field_name, str):
                raise FormatError(f"{self._file}: the Avro record {name!r} has a field without a name")
            found = self.type(each.get("type"), namespace)
            arrow.append(pa.field(field_name, found.arrow))
            plain.append({"name": field_name, "type": found.plain})
            tagged = tagged or found.tagged
            if found.convert is not None:
                converters[field_name] = found.convert
        convert = _of_fields(converters) if converters else None
        return _Type(pa.struct(arrow), {"type": "record", "name": name, "fields": plain}, convert, converters, tagged)

    def _reference(self, name: str, namespace: str) -> _Type:
        for full in (f"{namespace}.{name}" if namespace and "." not in name else name, name):
            if full in self._named:
                return replace(self._named[full], plain=full)
        raise FormatError(f"{self._file}: the Avro schema names the type {name!r}, but does not define it")

    def _union(self, avro: list[Any], namespace: str) -> _Type:
        branches = [self.type(each, namespace) for each in avro]
        plain = [each.plain for each in branches]
        real = [each for each in branches if not pa.types.is_null(each.arrow)]
        tagged = any(each.tagged for each in branches)
        if len(real) <= 1:
            convert = real[0].convert if real else None
            if real and real[0].name is not None:
                convert = _untagged(convert)
            optional = None if convert is None else lambda value: None if value is None else convert(value)
            return _Type(real[0].arrow if real else pa.null(), plain, optional, tagged=tagged)
        kinds = {each.arrow for each in real}
        if kinds == {pa.int32(), pa.int64()}:
            return _Type(pa.int64(), plain)
        if kinds == {pa.float32(), pa.float64()}:
            return _Type(pa.float64(), plain)
        # As in Spark: a struct with a member for each branch, of which one is not null.
        members = pa.struct([(f"member{index}", each.arrow) for index, each in enumerate(real)])
        return _Type(members, plain, _member_of(real), tagged=True)


def _of_fields(converters: dict[str, Callable[[Any], Any]]) -> Callable[[Any], Any]:
    return lambda value: {key: converters[key](each) if key in converters else each for key, each in value.items()}


def _untagged(convert: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    """For a named type in a union: fastavro returns its name too, if names are requested anywhere."""

    def without(value: Any) -> Any:
        value = value[1] if isinstance(value, tuple) else value
        return value if convert is None else convert(value)

    return without


def _member_of(branches: list[_Type]) -> Callable[[Any], Any]:
    by_name = {each.name: index for index, each in enumerate(branches) if each.name is not None}

    def index_of(value: Any) -> tuple[int, Any]:
        if isinstance(value, tuple):
            return by_name[value[0]], value[1]
        for index, each in enumerate(branches):
            if each.name is None and _is_of(value, each.arrow):
                return index, value
        raise TypeError("a value of no branch")

    def convert(value: Any) -> Any:
        if value is None:
            return None
        index, inner = index_of(value)
        change = branches[index].convert
        return {f"member{index}": inner if change is None else change(inner)}

    return convert


def _is_of(value: Any, kind: pa.DataType) -> bool:
    import decimal

    types = pa.types
    if isinstance(value, bool):
        return bool(types.is_boolean(kind))
    if isinstance(value, int):
        # A value that fits int goes to int, not long: fastavro does not tell which it was.
        if types.is_int32(kind) or types.is_date32(kind):
            return -(1 << 31) <= value < 1 << 31
        return bool(types.is_integer(kind) or types.is_timestamp(kind))
    if isinstance(value, float):
        return bool(types.is_floating(kind))
    if isinstance(value, decimal.Decimal):
        return bool(types.is_decimal(kind))
    if isinstance(value, str):
        return bool(types.is_string(kind))
    if isinstance(value, bytes):
        return bool(types.is_binary(kind))
    return bool(types.is_list(kind) if isinstance(value, list) else types.is_map(kind))


make = _Avro
