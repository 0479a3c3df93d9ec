"""Avro files that are damaged, or are not files of the table: refused by name."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from ags1.errors import AuthenticationError, FormatError, TruncatedError
from tests.iceberg.avro_lake import Lake, avro_bytes, encoded_long, nullable, optional, record

SIMPLE_AVRO = record((1, "id", "long"), (2, "text", nullable("string")))
SIMPLE = Schema(optional(1, "id", LongType()), optional(2, "text", StringType()))


def _simple_rows(count: int) -> list[dict[str, Any]]:
    return [{"id": index, "text": f"row {index}" if index % 5 else None} for index in range(count)]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def test_a_required_column_that_the_file_lacks_is_named(lake: Lake) -> None:
    lake.write(SIMPLE_AVRO, _simple_rows(1))
    with pytest.raises(FormatError, match=r"data\.avro: its columns do not fit .*required.*9: added"):
        lake.read(Schema(NestedField(9, "added", LongType(), required=True)))


def test_a_column_that_cannot_become_the_tables_type_is_refused(lake: Lake) -> None:
    lake.write(SIMPLE_AVRO, _simple_rows(1))
    with pytest.raises(FormatError, match=r"data\.avro: the column 'id' is int64 in the file and int in the table"):
        lake.read(Schema(optional(1, "id", IntegerType())))


def test_every_cut_of_a_plaintext_file_is_noticed_or_at_the_end_of_a_block(lake: Lake) -> None:
    data = avro_bytes(SIMPLE_AVRO, _simple_rows(600))
    ends = [match + 16 for match in range(len(data)) if data.startswith(bytes(range(16)), match)]
    assert len(ends) > 2
    for length in range(0, len(data), 97):
        lake.write_bytes(data[:length])
        if length in ends:
            continue
        with pytest.raises(TruncatedError, match=r"data\.avro"):
            lake.read(SIMPLE)


@settings(deadline=None, max_examples=60)
@given(position=st.integers(0, 4000), value=st.integers(1, 255))
def test_a_changed_byte_of_a_plaintext_file_changes_rows_or_is_a_format_error(
    tmp_path_factory: Any, position: int, value: int
) -> None:
    lake = Lake(tmp_path_factory.mktemp("changed"))
    data = bytearray(avro_bytes(SIMPLE_AVRO, _simple_rows(300), "deflate"))
    data[position % len(data)] ^= value
    lake.write_bytes(bytes(data))
    with contextlib.suppress(FormatError):
        # Without a key nothing tells changed rows from others; but no other error is to come out of it.
        lake.read(SIMPLE)


def test_a_changed_byte_of_an_encrypted_file_fails_authentication(lake: Lake) -> None:
    lake.write(SIMPLE_AVRO, _simple_rows(300), encrypted=True)
    data = bytearray(Path(lake.avro).read_bytes())
    data[len(data) // 2] ^= 1
    Path(lake.avro).write_bytes(data)
    with pytest.raises(AuthenticationError, match=r"data\.avro"):
        lake.read(SIMPLE)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ([record((1, "a", "int"))], "not records but of the Avro type record in a union"),
        (record((1, "a", ["null", "int", "string"])), "column a is an Avro union of more than null and a type"),
        (record((1, "a", "nowhere")), "column a is of the Avro type 'nowhere', which the schema does not define"),
        (record((1, "a", nullable("table"))), "the Avro schema has a record inside itself, 'table'"),
        (record((1, "a", {"type": "array", "items": "int"})), "schema.a has no field ids for what is in it"),
        (record((1, "a", {"type": "fixed", "name": "f"})), "column a is of an Avro type without a size"),
        (record((1, "a", "int"), (1, "b", "int")), "the schema has more than one field with the id 1"),
        ({"type": "record", "name": "t", "fields": 5}, "the schema is an Avro record without fields"),
    ],
    ids=["no record", "union", "undefined", "recursive", "list without ids", "fixed without size", "twice", "fields"],
)
def test_a_schema_that_iceberg_cannot_have_is_refused(lake: Lake, schema: Any, message: str) -> None:
    empty = avro_bytes(record((1, "id", "long")), [])
    was, now = (json.dumps(each).encode() for each in (record((1, "id", "long")), schema))
    lake.write_bytes(empty.replace(encoded_long(len(was)) + was, encoded_long(len(now)) + now))
    with pytest.raises(FormatError, match=rf"data\.avro: .*{message}"):
        lake.read(SIMPLE)


def test_deep_nesting_does_not_overflow_the_stack(lake: Lake) -> None:
    kind: Any = "int"
    for level in range(300):
        kind = {"type": "array", "element-id": 10 + level, "items": kind}
    empty = avro_bytes(record((1, "id", "long")), [])
    was, now = (json.dumps(each).encode() for each in (record((1, "id", "long")), record((1, "a", kind))))
    lake.write_bytes(empty.replace(encoded_long(len(was)) + was, encoded_long(len(now)) + now))
    with pytest.raises(FormatError, match=r"nested more than 100 levels deep"):
        lake.read(SIMPLE)
