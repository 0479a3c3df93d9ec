"""Avro containers whose few bytes overflow the stack of their reader, or keep it at work for ever."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from ags1._avro_encoding import container_start, encoded_block
from ags1.avro import read_split
from ags1.errors import FormatError
from ags1.iceberg.avro_records import records
from ags1.iceberg.manifests import read_entries
from tests.checks import every
from tests.iceberg.avro_lake import encoded_long

MARKER = bytes(range(16))


def container(schema: Any, rows: bytes, count: int = 1) -> bytes:
    """A container of one block, whatever the schema."""
    start = container_start({"avro.schema": json.dumps(schema).encode()}, MARKER)
    return start + encoded_block(count, rows, MARKER)


def record(*types: Any, name: str = "T") -> dict[str, Any]:
    fields = [{"name": f"f{index}", "type": each} for index, each in enumerate(types)]
    return {"type": "record", "name": name, "fields": fields}


def arrays(levels: int) -> Any:
    kind: Any = "int"
    for _ in range(levels):
        kind = {"type": "array", "items": kind}
    return kind


LIST = b"\x02" * 1_000_000 + b"\0"
"""A million records, each in the one before."""
CLAIM = encoded_long(1 << 61)
TWOS = (record(f"R{each}", f"R{each}", name=f"R{each + 1}") for each in range(60))
ENDLESS: dict[str, tuple[Any, bytes]] = {
    "a record inside itself": (record(["null", "T"]), LIST),
    "behind a namesake": (record(record(name="b.T"), ["null", "a.T"], name="a.T"), LIST),
    "2^60 types": (record(record("null", name="R0"), *TWOS), b""),
    "2^61 nulls": (record({"type": "array", "items": "null"}), CLAIM),
    "2^61 empty values": (record({"type": "array", "items": {"type": "fixed", "name": "f", "size": 0}}), CLAIM),
    "2^61 empty records": (record({"type": "array", "items": record("null", name="r")}), CLAIM),
    "400 levels": (record(arrays(400)), b"\0"),
}


@every("name", ENDLESS)
def test_schemas_whose_values_have_no_end_are_refused(name: str) -> None:
    data = container(*ENDLESS[name])
    refused = pytest.raises(FormatError, match=r"the Avro schema (has|is)")
    with refused:
        list(read_split(io.BytesIO(data), 0, len(data)))
    with refused:
        list(read_entries(data, {}))
    for is_manifest in (False, True):
        with refused:
            list(records(io.BytesIO(data), is_manifest=is_manifest))


def test_names_that_are_used_again_are_read() -> None:
    point = record("int", "int", name="point")
    schema = record(point, {"type": "array", "items": "point"}, ["null", "point"], {"type": "map", "values": "null"})
    data = container(schema, b"\x02\x04" + b"\x02\x06\x08\0" + b"\x02\x0a\x0c" + b"\0")
    (row,) = read_split(io.BytesIO(data), 0, len(data))
    assert row == {"f0": {"f0": 1, "f1": 2}, "f1": [{"f0": 3, "f1": 4}], "f2": {"f0": 5, "f1": 6}, "f3": {}}


@every("schema", [5, None, [], {}, {"type": ["x"]}, {"type": "record"}, {"type": "array"}, {"type": "fixed"}, "none"])
def test_schemas_that_are_none_are_refused(schema: Any) -> None:
    data = container(schema, b"")
    with pytest.raises(FormatError):
        list(read_split(io.BytesIO(data), 0, len(data)))


def test_damaged_values_of_logical_types_are_format_errors() -> None:
    data = container(record({"type": "string", "logicalType": "uuid"}), b"\x04ab")
    with pytest.raises(FormatError, match="cannot be decoded"):
        list(read_split(io.BytesIO(data), 0, len(data)))
