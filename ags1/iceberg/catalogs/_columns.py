"""A table's columns as Hive's and Glue's catalogs list them, for whoever looks there; Iceberg itself does not."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["current_schema", "hive_columns"]

_NAMES = {
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "date": "date",
    "time": "string",
    "timestamp": "timestamp",
    "timestamptz": "timestamp with local time zone",
    "timestamp_ns": "timestamp",
    "timestamptz_ns": "timestamp with local time zone",
    "string": "string",
    "uuid": "string",
    "binary": "binary",
    "unknown": "void",
}


def current_schema(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema that new rows have."""
    wanted = fields.get("current-schema-id")
    for schema in fields.get("schemas") or ():
        if isinstance(schema, dict) and schema.get("schema-id") == wanted:
            return schema
    return {}


def hive_columns(schema: Mapping[str, Any]) -> Iterator[tuple[str, str, str | None]]:
    """Name, type in Hive's words, and comment of each column."""
    for field in schema.get("fields") or ():
        yield str(field["name"]), _hive_type(field["type"]), field.get("doc")


def _hive_type(kind: Any) -> str:
    if isinstance(kind, str):
        if kind.startswith("decimal"):
            return kind.replace(" ", "")
        # Of what Hive has no word for, the bytes are what can be said.
        return _NAMES.get(kind, "binary")
    if kind["type"] == "list":
        return f"array<{_hive_type(kind['element'])}>"
    if kind["type"] == "map":
        return f"map<{_hive_type(kind['key'])},{_hive_type(kind['value'])}>"
    if kind["type"] == "struct":
        inside = ",".join(f"{field['name']}:{_hive_type(field['type'])}" for field in kind["fields"])
        return f"struct<{inside}>"
    raise ValueError(f"no Iceberg type: {json.dumps(kind)[:200]}")
