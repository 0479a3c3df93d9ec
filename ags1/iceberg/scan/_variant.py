"""Variant columns of format version 3 as structs of their two binaries; PyIceberg does not support them.

    table     "type": "variant"                    -->  struct<metadata: binary not null, value: binary not null>
    Parquet   group v { metadata, value }          -->  the two by name: they have no field ids
    Avro      record v { metadata, value }         -->  the same

A shredded variant has a further field, ``typed_value``, whose content is missing in ``value``: it is refused. The field
ids of the two come from that of the variant; they are negative, unlike any field id of a table. Sources: Iceberg table
spec, "Semi-structured Types" and "Appendix A"; Parquet's VariantShredding.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import StructType

from ags1.avro.schemas import AvroType
from ags1.errors import UnsupportedError

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


class ParquetVariants:
    """The schema of a Parquet file with ids for the fields of its variants, for PyIceberg."""

    def __init__(self, physical: pyarrow.Schema, metadata: Any) -> None:
        # From all schemas: a file keeps a column that was dropped.
        below = (each for schema in metadata.schemas for each in schema.field_ids if each < 0)
        self._variants = {-each // 2 for each in below}
        self._shredded: dict[int, str] = {}
        self.schema = physical
        if self._variants:
            self.schema = pyarrow.schema([self._field(each, each.name) for each in physical], physical.metadata)

    def check(self, wanted: Schema) -> None:
        """Raise an UnsupportedError if a shredded variant is among the requested fields."""
        for field_id in self._shredded.keys() & wanted.field_ids:
            raise UnsupportedError(
                f"the variant column {self._shredded[field_id]}: only variants of metadata and value can be read, and "
                "this one is shredded, with a typed_value. Choose the other columns"
            )

    def _field(self, field: pyarrow.Field, name: str) -> pyarrow.Field:
        kind = field.type
        if pyarrow.types.is_struct(kind):
            field_id = int((field.metadata or {}).get(_FIELD_ID, -1))
            if field_id in self._variants:
                return field.with_type(self._variant(kind, field_id, name))
            return field.with_type(pyarrow.struct([self._field(each, f"{name}.{each.name}") for each in kind]))
        if pyarrow.types.is_map(kind):
            value = self._field(kind.item_field, f"{name}.value")
            return field.with_type(pyarrow.map_(kind.key_field, value, kind.keys_sorted))
        if pyarrow.types.is_list(kind) or pyarrow.types.is_large_list(kind):
            element = self._field(kind.value_field, f"{name}.element")
            return field.with_type(
                pyarrow.list_(element) if pyarrow.types.is_list(kind) else pyarrow.large_list(element)
            )
        return field

    def _variant(self, kind: pyarrow.StructType, field_id: int, name: str) -> pyarrow.DataType:
        kinds = {each.name: each.type for each in kind}
        if kinds.keys() != set(_NAMES):
            self._shredded[field_id] = name
        return pyarrow.struct(
            [
                pyarrow.field(each, kinds.get(each, pyarrow.binary()), False, {_FIELD_ID: str(number)})
                for each, number in _ids(field_id).items()
            ]
        )


def avro_variants(avro: AvroType) -> AvroType:
    """Return the schema of an Avro file with ids for the fields of its variants."""
    fields = []
    for each in avro.fields:
        below = each.type
        if each.id is not None and below.kind == "record" and _are_binaries(below.fields):
            ids = _ids(each.id)
            below = replace(below, fields=tuple(replace(one, id=ids[one.name]) for one in below.fields))
        fields.append(replace(each, type=avro_variants(below)))
    return replace(avro, fields=tuple(fields))


def _are_binaries(fields: Iterable[Any]) -> bool:
    fields = list(fields)
    return {each.name for each in fields} == set(_NAMES) and all(
        each.id is None and each.type.kind == "bytes" for each in fields
    )
