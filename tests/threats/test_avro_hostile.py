"""Avro containers whose few bytes overflow the stack of their reader, or keep it at work for ever."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import Any

import fastavro
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from ags1.avro import items as avro_items
from ags1.avro import read_split
from ags1.avro.items import ItemBound
from ags1.errors import FormatError, UnsupportedError
from ags1.iceberg.metadata.manifests import read_entries
from ags1.support.avro_encoding import container_start, encoded_block
from tests import peak_memory
from tests.checks import every, in_child
from tests.iceberg.avro_lake import Lake, encoded_long
from tests.iceberg.avro_lake import record as iceberg_record

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


# -- arrays of tiny values ---------------------------------------------------------------------------------------------


def items(kind: Any) -> Any:
    return iceberg_record((1, "id", "long"), (2, "a", {"type": "array", "items": kind, "element-id": 3}))


TINY = {"type": "record", "name": "tiny", "fields": [{"name": "n", "type": "boolean", "field-id": 4}]}
PAIR = iceberg_record((4, "key", "int"), (5, "value", "long"))
MILLIONS: dict[str, tuple[Any, bytes]] = {
    "records": (TINY, b"\1"),
    "pairs": ({**PAIR, "name": "pair"}, b"\2\2"),
    "empty arrays": ({"type": "array", "items": "int", "element-id": 4}, b"\0"),
    "dates": ({"type": "int", "logicalType": "date"}, b"\2"),
    "records or null": (["null", TINY], b"\2\1"),
}
SIZE = 24 << 20


@every("name", MILLIONS)
def test_millions_of_tiny_values_are_refused_before_they_are_decoded(name: str, tmp_path: Path) -> None:
    kind, one = MILLIONS[name]
    count = SIZE // len(one)
    schema = items(kind)
    data = container(schema, b"\2" + encoded_long(count) + one * count + b"\0")
    lake = Lake(tmp_path)
    lake.write_bytes(data)
    wanted = Schema(NestedField(1, "id", LongType(), required=False))

    def measured() -> bytes:
        before = peak_memory.begin()
        refused = pytest.raises(UnsupportedError, match="items in its arrays and maps, which is not read")
        with refused:
            list(read_split(io.BytesIO(data), 0, len(data)))
        if name != "dates":
            # A scan has them as numbers.
            with refused:
                lake.read(wanted)
        return str(peak_memory.grown(before)).encode()

    # Decoded they would take gigabytes.
    assert int(in_child(measured)) < 10 * SIZE


def test_a_million_numbers_in_a_row_are_read() -> None:
    for kind, one in (("long", 5), ("double", 0.5), ({"type": "string", "avro.java.string": "String"}, "ab")):
        out = io.BytesIO()
        row = {"id": 1, "a": [one] * 1_200_000}
        fastavro.writer(out, items(kind), [row])
        assert list(read_split(io.BytesIO(out.getvalue()), 0, 1 << 40)) == [row]


def test_items_are_counted_as_they_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference: the items of the rows that fastavro wrote."""
    inner = record("string", ["null", "double"], {"type": "map", "values": ["null", "bytes"]}, name="inner")
    fixed = {"type": "fixed", "name": "x.f", "size": 3}
    kinds = [
        {"type": "enum", "name": "enum", "symbols": ["A", "B"]}, fixed, {"type": "array", "items": "x.f"},
        ["null", inner], {"type": "array", "items": "inner"}, {"type": "array", "items": ["null", "boolean"]},
        {"type": "map", "values": {"type": "array", "items": "int"}}, {"type": "array", "items": "float"},
    ]  # fmt: skip
    schema, chance = record(*kinds), random.Random(3)

    def one_inner() -> Any:
        return {"f0": "x" * chance.randrange(90), "f1": chance.choice([None, 1.5]), "f2": {"k": None, "kk": b"v"}}

    def some(make: Any) -> list[Any]:
        return [make() for _ in range(chance.randrange(4))]

    monkeypatch.setattr(avro_items, "_BYTES_PER_ITEM", 1 << 30)
    for _ in range(200):
        row = {
            "f0": chance.choice("AB"), "f1": b"abc", "f2": some(lambda: b"123"),
            "f3": chance.choice([None, one_inner()]), "f4": some(one_inner),
            "f5": some(lambda: chance.choice([None, True])),
            "f6": {str(each): some(lambda: chance.randrange(-(1 << 31), 1 << 31)) for each in some(chance.random)},
            "f7": some(lambda: 0.5),
        }  # fmt: skip
        inners = [*row["f4"], *([row["f3"]] if row["f3"] else [])]
        count = sum(map(len, (row["f2"], row["f4"], row["f5"], row["f6"]))) + sum(len(each["f2"]) for each in inners)
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, row)
        monkeypatch.setattr(avro_items, "_FREE_ITEMS", count)
        ItemBound(schema).check(1, out.getvalue())
        if 0 < count < len(out.getvalue()):
            monkeypatch.setattr(avro_items, "_FREE_ITEMS", count - 1)
            with pytest.raises(UnsupportedError):
                ItemBound(schema).check(1, out.getvalue())
