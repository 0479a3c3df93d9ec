"""What tables have and PyIceberg refuses: variants, transforms of later versions, snapshots without a manifest list.

    table     "type": "variant"                    -->  struct<metadata: binary not null, value: binary not null>
    Parquet   group v { metadata, value }          -->  the two by name: they have no field ids
    Avro      record v { metadata, value }         -->  the same

A shredded variant has a further field, ``typed_value``, whose content is missing in ``value``: it is refused. The field
ids of the two come from that of the variant; they are negative, unlike any field id of a table. Sources: Iceberg table
spec, "Semi-structured Types" and "Appendix A"; Parquet's VariantShredding.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import StructType

from ags1.avro.schemas import AvroType
from ags1.errors import UnsupportedError
from ags1.iceberg.keys.document import Document

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


def variants_of(schemas: Iterable[Schema]) -> frozenset[int]:
    """Return the field ids of the variants of a table's schemas."""
    return frozenset(-each // 2 for schema in schemas for each in schema.field_ids if each < 0)


def parquet_variant(field: pyarrow.Field, field_id: int) -> pyarrow.DataType:
    """Return the type of a variant in a Parquet file, with ids for its fields; UnsupportedError: it is shredded."""
    kinds = {each.name: each.type for each in field.type}
    if kinds.keys() != set(_NAMES):
        raise UnsupportedError(
            f"the variant column {field.name}: only variants of metadata and value can be read, and this one is "
            "shredded, with a typed_value. Choose the other columns"
        )
    return pyarrow.struct(
        [pyarrow.field(name, kinds[name], False, {_FIELD_ID: str(each)}) for name, each in _ids(field_id).items()]
    )


def avro_variants(avro: AvroType) -> AvroType:
    """Return the schema of an Avro file with ids for the fields of its variants."""
    fields = []
    for each in avro.fields:
        below = each.type
        is_pair = below.kind == "record" and {one.name for one in below.fields} == set(_NAMES)
        if each.id is not None and is_pair and all(one.id is None and one.type.kind == "bytes" for one in below.fields):
            ids = _ids(each.id)
            below = replace(below, fields=tuple(replace(one, id=ids[one.name]) for one in below.fields))
        fields.append(replace(each, type=avro_variants(below)))
    return replace(avro, fields=tuple(fields))


_KNOWN_TRANSFORM = re.compile(r"identity|void|year|month|day|hour|(bucket|truncate)\[[0-9]+\]")


def metadata_text(document: Document) -> str:
    """Return the table's metadata as PyIceberg can parse it.

    It has no variants and no transforms of later versions, and a manifest list for each snapshot.
    """
    fields = document.fields
    made = {
        "schemas": without_variants(fields.get("schemas")),
        "partition-specs": _without_unknown(fields.get("partition-specs")),
        "sort-orders": _without_unknown(fields.get("sort-orders")),
    }
    if any("manifest-list" not in each for each in fields.get("snapshots") or ()):
        # Format version 1 may name the manifests here.
        made["snapshots"] = [{"manifest-list": "", **each} for each in fields["snapshots"]]
    is_known = all(fields.get(name) == each for name, each in made.items())
    return document.text if is_known else json.dumps({**fields, **made})


def _without_unknown(listed: Any) -> Any:
    """Return specs or orders with an unknown transform where PyIceberg refuses one, or takes it for another."""
    if isinstance(listed, list):
        return [_without_unknown(each) for each in listed]
    if not isinstance(listed, dict):
        return listed
    if isinstance(listed.get("fields"), list):
        return {**listed, "fields": _without_unknown(listed["fields"])}
    sources = listed.get("source-ids", [listed.get("source-id")])
    is_single = isinstance(sources, list) and len(sources) == 1
    if is_single and _KNOWN_TRANSFORM.fullmatch(str(listed.get("transform"))):
        return listed
    source = sources[0] if isinstance(sources, list) and sources else 0
    return {**listed, "source-id": source, "transform": "unknown"}
