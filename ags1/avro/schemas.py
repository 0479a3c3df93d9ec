"""Schemas of Avro files: Iceberg's types and field ids in them, and the schema with which fastavro decodes the rows.

    the file's schema  --parse-->  AvroType, names resolved  --iceberg_schema-->  Schema, by field id
                                                             --plain---------->  Avro of the same bytes

Logical types of dates and times are removed because fastavro would make a Python object of each. Their integers become
Arrow columns directly. Source: Iceberg table spec, "Appendix A, Avro"; Avro specification.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from pyiceberg import types
from pyiceberg.schema import Schema

from ags1.avro.containers import UUID_TEXT, check_schema
from ags1.errors import FormatError

_PRIMITIVES = {
    "null": types.UnknownType,
    "boolean": types.BooleanType,
    "int": types.IntegerType,
    "long": types.LongType,
    "float": types.FloatType,
    "double": types.DoubleType,
    "bytes": types.BinaryType,
    "string": types.StringType,
    "enum": types.StringType,
}
# PyIceberg casts to UUIDs at the end, because filters need comparisons, which Arrow lacks for UUIDs.
_UUID = types.FixedType(16)
_LOGICAL = {
    ("int", "date"): types.DateType,
    ("int", "time-millis"): types.TimeType,
    ("long", "time-micros"): types.TimeType,
}
# Without and with adjust-to-utc.
_TIMESTAMPS = {
    "timestamp-millis": (types.TimestampType, types.TimestamptzType),
    "timestamp-micros": (types.TimestampType, types.TimestamptzType),
    "timestamp-nanos": (types.TimestampNanoType, types.TimestamptzNanoType),
}
_IDS = frozenset(("field-id", "element-id", "key-id", "value-id"))


@dataclass(frozen=True)
class AvroField:
    """A field of a record; `id` is None for a field that Iceberg does not know."""

    name: str
    id: int | None
    type: AvroType


@dataclass(frozen=True)
class AvroType:
    """A type in an Avro schema, references to named types resolved.

    Attributes
    ----------
    kind : str
        The Avro name: "long", "record", "array" ...
    logical : str or None
        Its logical type.
    branches : tuple of bool
        For the union around it, whether each branch is null; empty without a union.
    properties : dict
        As the schema has them: ``precision``, ``size``, ``adjust-to-utc`` ...
    fields : list of AvroField
        Those of a record; "element" of an array; "value" of a map, and "key", which has no Avro type of its own.
    """

    kind: str
    logical: str | None = None
    branches: tuple[bool, ...] = ()
    properties: dict[str, Any] = field(default_factory=dict)
    fields: tuple[AvroField, ...] = ()

    @property
    def optional(self) -> bool:
        """Whether it is a union with null."""
        return True in self.branches

    @property
    def is_entries(self) -> bool:
        """Whether it is an Iceberg map as an array of records, for keys that an Avro map cannot have."""
        return self.kind == "array" and self.logical == "map"

    def field(self, name: str) -> AvroField:
        """The field of a name; StopIteration if there is none."""
        return next(each for each in self.fields if each.name == name)


def has_field_ids(schema: Any) -> bool:
    """Whether a schema, as parsed JSON, has Iceberg's field ids."""
    if isinstance(schema, list):
        return any(has_field_ids(each) for each in schema)
    return isinstance(schema, dict) and (not _IDS.isdisjoint(schema) or any(map(has_field_ids, schema.values())))


def parse(schema: Any, name_mapping: Iterable[Any] | None = None) -> AvroType:
    """Read the schema of a file, a record as parsed JSON; a FormatError if no Iceberg table can have it.

    Field ids come from the schema; in a file without ids, the table's name mapping maps names to ids.
    """
    check_schema(schema)
    mapping = None if name_mapping is None else _by_name(name_mapping)
    found = _Parser().type(schema, "", mapping, "the schema", 0)
    if found.kind != "record" or found.branches:
        union = " in a union" if found.branches else ""
        raise FormatError(f"the rows are not records but of the Avro type {found.kind}{union}")
    seen: set[int] = set()
    for each in _all_ids(found):
        if each in seen:
            raise FormatError(f"the schema has more than one field with the id {each}")
        seen.add(each)
    return found


def _all_ids(avro: AvroType) -> Iterator[int]:
    for each in avro.fields:
        # The content of a field without an id is not read either.
        if each.id is not None:
            yield each.id
            yield from _all_ids(each.type)


_Mapping = dict[str, "Any"]


def _by_name(mapped: Iterable[Any]) -> _Mapping:
    return {name: each for each in mapped for name in each.names}


class _Parser:
    def __init__(self) -> None:
        self._named: dict[str, AvroType] = {}

    def type(self, schema: Any, namespace: str, mapping: _Mapping | None, where: str, depth: int) -> AvroType:
        if isinstance(schema, str):
            return AvroType(schema) if schema in _PRIMITIVES else self._reference(schema, namespace, where)
        if isinstance(schema, list):
            return self._union(schema, namespace, mapping, where, depth)
        kind = schema.get("type") if isinstance(schema, dict) else None
        if isinstance(kind, (dict, list)):
            return self.type(kind, namespace, mapping, where, depth + 1)
        if not isinstance(kind, str):
            raise FormatError(f"{where} has no type in the Avro schema")
        logical = schema.get("logicalType")
        made = AvroType(kind, logical if isinstance(logical, str) else None, properties=schema)
        if kind in ("record", "fixed", "enum"):
            return self._definition(made, namespace, mapping, where, depth)
        if kind == "array":
            if made.is_entries:
                # Its record has the ids, and a name mapping puts the key and the value right below the field.
                items = self.type(schema.get("items"), namespace, mapping, where, depth + 1)
                if items.kind != "record" or not {"key", "value"} <= {each.name for each in items.fields}:
                    raise FormatError(f"{where} is an Avro array of the logical type map, but not of keys and values")
                return replace(made, fields=items.fields)
            return replace(made, fields=(self._below("element", schema, "items", namespace, mapping, where, depth),))
        if kind == "map":
            key = AvroField("key", _id(schema, "key-id", mapping, "key"), AvroType("string"))
            value = self._below("value", schema, "values", namespace, mapping, where, depth)
            return replace(made, fields=(key, value))
        if kind in _PRIMITIVES:
            return made
        return self._reference(kind, namespace, where)

    def _below(
        self, name: str, schema: Any, key: str, namespace: str, mapping: _Mapping | None, where: str, depth: int
    ) -> AvroField:
        found = self.type(schema.get(key), namespace, _deeper(mapping, name), f"{where}.{name}", depth + 1)
        return AvroField(name, _id(schema, f"{name}-id", mapping, name), found)

    def _union(self, schema: list[Any], namespace: str, mapping: _Mapping | None, where: str, depth: int) -> AvroType:
        branches = tuple(each in ("null", {"type": "null"}) for each in schema)
        kinds = [each for each, null in zip(schema, branches, strict=True) if not null]
        if len(kinds) > 1 or len(branches) - len(kinds) > 1 or not branches:
            raise FormatError(f"{where} is an Avro union of more than null and a type, which Iceberg does not have")
        found = self.type(kinds[0] if kinds else "null", namespace, mapping, where, depth + 1)
        if found.branches:
            raise FormatError(f"{where} is an Avro union inside a union")
        return replace(found, branches=branches)

    def _definition(self, made: AvroType, namespace: str, mapping: _Mapping | None, where: str, depth: int) -> AvroType:
        schema = made.properties
        name = schema.get("name")
        if not isinstance(name, str):
            raise FormatError(f"{where} is of an Avro type without a name")
        if "." not in name:
            namespace = schema.get("namespace", namespace) or ""
            name = f"{namespace}.{name}" if namespace else name
        else:
            namespace = name.rpartition(".")[0]
        if name in self._named:
            raise FormatError(f"{where} defines the Avro type {name!r} once more")
        if made.kind == "record":
            made = replace(made, fields=tuple(self._fields(schema, namespace, mapping, where, depth)))
        elif made.kind == "fixed" and not (type(schema.get("size")) is int and schema["size"] >= 0):
            raise FormatError(f"{where} is of an Avro type without a size")
        self._named[name] = made
        return made

    def _fields(
        self, schema: dict[str, Any], namespace: str, mapping: _Mapping | None, where: str, depth: int
    ) -> Iterable[AvroField]:
        fields = schema.get("fields")
        if not isinstance(fields, list) or not all(isinstance(each, dict) for each in fields):
            raise FormatError(f"{where} is an Avro record without fields")
        for each in fields:
            name = each.get("name")
            if not isinstance(name, str):
                raise FormatError(f"{where} has a field without a name")
            below = f"{where}.{name}" if depth else f"column {name}"
            found = self.type(each.get("type"), namespace, _deeper(mapping, name), below, depth + 1)
            yield AvroField(name, _id(each, "field-id", mapping, name), found)

    def _reference(self, name: str, namespace: str, where: str) -> AvroType:
        full = f"{namespace}.{name}" if namespace and "." not in name else name
        for candidate in (full, name):
            if candidate in self._named:
                return self._named[candidate]
        raise FormatError(f"{where} is of the Avro type {name!r}, which the schema does not define")


def _id(schema: dict[str, Any], key: str, mapping: _Mapping | None, name: str) -> int | None:
    if mapping is not None:
        found = getattr(mapping.get(name), "field_id", None)
    else:
        found = schema.get(key)
    return found if type(found) is int else None


def _deeper(mapping: _Mapping | None, name: str) -> _Mapping | None:
    if mapping is None:
        return None
    return _by_name(mapping[name].fields) if name in mapping else {}


def iceberg_schema(record: AvroType, expected: Callable[[int], Any]) -> Schema:
    """Return the Iceberg schema of a file, with Avro's names; fields without ids are left out.

    `expected` returns the table's type of a field id, or None: for some types Avro states only how they are stored.
    """
    return Schema(*_nested_fields(record, expected, "the schema"))


def _nested_fields(record: AvroType, expected: Callable[[int], Any], where: str) -> list[types.NestedField]:
    return [
        types.NestedField(
            field_id=each.id,
            name=each.name,
            field_type=_iceberg_type(each, each.id, expected, f"{where}.{each.name}"),
            required=not each.type.optional and each.type.kind != "null",
        )
        for each in record.fields
        if each.id is not None
    ]


def _iceberg_type(below: AvroField, field_id: int, expected: Callable[[int], Any], where: str) -> Any:
    avro = below.type
    if avro.kind == "record":
        return types.StructType(*_nested_fields(avro, expected, where))
    if avro.kind in ("array", "map"):
        ids = [each.id for each in avro.fields]
        below_types = [
            None if each.id is None else _iceberg_type(each, each.id, expected, f"{where}.{each.name}")
            for each in avro.fields
        ]
        if None in ids:
            raise FormatError(f"{where} has no field ids for what is in it")
        names = [each.name for each in avro.fields]
        if avro.kind == "array" and not avro.is_entries:
            return types.ListType(ids[0], below_types[0], element_required=not avro.fields[0].type.optional)
        key, value = names.index("key"), names.index("value")
        required = not avro.fields[value].type.optional
        return types.MapType(ids[key], below_types[key], ids[value], below_types[value], value_required=required)
    found, wanted = _primitive(avro), expected(field_id)
    if wanted is None or not wanted.is_primitive:
        return found
    if isinstance(wanted, types.UUIDType) and avro.logical == "uuid" and avro.kind == "string":
        return _UUID
    says_nothing = isinstance(found, types.UnknownType) or (
        isinstance(found, types.BinaryType) and isinstance(wanted, (types.GeographyType, types.GeometryType))
    )
    return wanted if says_nothing else found


def _primitive(avro: AvroType) -> Any:
    if avro.logical == "decimal" and avro.kind in ("bytes", "fixed"):
        return types.DecimalType(avro.properties["precision"], avro.properties.get("scale", 0))
    if avro.kind == "long" and avro.logical in _TIMESTAMPS:
        adjusted = str(avro.properties.get("adjust-to-utc", False)).lower() == "true"
        return _TIMESTAMPS[avro.logical][adjusted]()
    logical = _LOGICAL.get((avro.kind, avro.logical or ""))
    if logical is not None:
        return logical()
    return types.FixedType(avro.properties["size"]) if avro.kind == "fixed" else _PRIMITIVES[avro.kind]()


def plain(record: AvroType, keep: frozenset[int] | None = None) -> Any:
    """An Avro schema of the same bytes, for fastavro: its only logical types are decimals, and UUIDs in texts.

    With `keep`, it has only the fields with these ids: the schema for the reader, which makes it skip the others.
    """
    return _plain(record, keep, "r")


def _plain(avro: AvroType, keep: frozenset[int] | None, name: str) -> Any:
    """`name` is the path to the type: unique, and the same in both schemas."""
    made: Any = avro.kind
    if avro.kind == "record":
        made = {"type": "record", "name": name, "fields": _plain_fields(avro, keep, name)}
    elif avro.is_entries:
        # A map needs both key and value.
        items = {"type": "record", "name": f"{name}_e", "fields": _plain_fields(avro, None, name)}
        made = {"type": "array", "items": items}
    elif avro.kind == "array":
        made = {"type": "array", "items": _plain(avro.fields[0].type, keep, f"{name}_0")}
    elif avro.kind == "map":
        made = {"type": "map", "values": _plain(avro.fields[1].type, keep, f"{name}_1")}
    elif avro.kind == "fixed":
        made = {"type": "fixed", "name": name, "size": avro.properties["size"]}
    elif avro.kind == "enum":
        made = {"type": "enum", "name": name, "symbols": avro.properties.get("symbols")}
    if avro.logical == "decimal" and avro.kind in ("bytes", "fixed"):
        more = {"precision": avro.properties["precision"], "scale": avro.properties.get("scale", 0)}
        made = {**(made if isinstance(made, dict) else {"type": made}), "logicalType": "decimal", **more}
    elif avro.logical == "uuid" and avro.kind == "string":
        made = {"type": "string", "logicalType": UUID_TEXT}
    return ["null" if null else made for null in avro.branches] if avro.branches else made


def _plain_fields(record: AvroType, keep: frozenset[int] | None, name: str) -> list[Any]:
    return [
        {"name": each.name, "type": _plain(each.type, keep, f"{name}_{index}")}
        for index, each in enumerate(record.fields)
        if keep is None or each.id in keep
    ]
