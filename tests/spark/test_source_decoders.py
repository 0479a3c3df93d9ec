"""Avro, Arrow, Parquet and plain bytes: types, and the same rows wherever a file is cut."""

from __future__ import annotations

import datetime
import decimal
import io
import json
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ags1.errors import AuthenticationError, FormatError, KeyAccessError
from ags1.kms import MemoryKms
from ags1.parquet import DecryptionConfig, EncryptionConfig, write_table
from ags1.spark.source.decoders import Plain, decoder_for
from ags1.spark.source.decoders.avro import types_of
from ags1.spark.source.decoders.types import conformed, spark_schema, spark_type
from ags1.spark.source.options import SourceOptions
from ags1.support.avro_encoding import container_start, encoded_block
from tests.checks import flip
from tests.spark.source_files import END, options, plain, rows, rows_cut_everywhere

UTC = datetime.timezone.utc

# -- bytes -----------------------------------------------------------------------------------------------------------

BINARY = pa.schema([("path", pa.string()), ("offset", pa.int64()), ("content", pa.binary())])


@pytest.mark.parametrize("length", [0, 1, 63, 64, 65, 200])
def test_bytes_come_in_pieces_of_a_block(length: int) -> None:
    data = bytes(range(length))
    found = rows_cut_everywhere(data, options(batch_bytes=128), BINARY)
    assert [row["offset"] for row in found] == list(range(0, max(1, length), 64))
    assert b"".join(row["content"] for row in found) == data
    assert {row["path"] for row in found} == {"file"}


# -- Avro ------------------------------------------------------------------------------------------------------------

AVRO: dict[str, Any] = {
    "type": "record",
    "name": "ns.Row",
    "fields": [
        {"name": "i", "type": "int"},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {"name": "time", "type": {"type": "int", "logicalType": "time-millis"}},
        {
            "name": "amount",
            "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}],
        },
        {"name": "map", "type": {"type": "map", "values": ["null", "long"]}},
        {
            "name": "list",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Inner",
                    "fields": [{"name": "x", "type": ["null", "double"]}],
                },
            },
        },
        {"name": "inner", "type": ["null", "Inner"]},
        {
            "name": "any",
            "type": ["null", "string", "int", "Inner", {"type": "enum", "name": "E", "symbols": ["A", "B"]}],
        },
        {"name": "fixed", "type": {"type": "fixed", "name": "F", "size": 3}},
        {"name": "number", "type": ["int", "long"]},
    ],
}


def avro_row(i: int) -> dict[str, Any]:
    return {
        "i": i,
        "day": None if i % 3 else datetime.date(2026, 1, 1 + i),
        "at": datetime.datetime(2026, 1, 1, tzinfo=UTC),
        "local": datetime.datetime(1960, 1, 1),
        "time": datetime.time(0, 0, 1),
        "amount": None if i % 2 else decimal.Decimal("-1.25"),
        "map": {"k": None, "z": i},
        "list": [{"x": 1.5}, {"x": None}][: i % 3],
        "inner": None if i % 2 else {"x": 2.0},
        "any": [None, "s", i, ("ns.Inner", {"x": 1.0}), ("ns.E", "B")][i % 5],
        "fixed": b"abc",
        "number": 1 << 40 if i % 2 else 5,
    }


def avro_file(codec: str = "deflate") -> bytes:
    file = io.BytesIO()
    fastavro.writer(file, AVRO, [avro_row(i) for i in range(12)], codec=codec, sync_interval=100)
    return file.getvalue()


def test_avro_has_sparks_types_and_every_row_once() -> None:
    data = avro_file()
    schema = decoder_for(options(decode="avro")).schema_of(plain(data))
    assert {field.name: str(field.type) for field in schema} == {
        "i": "int32",
        "day": "date32[day]",
        "at": "timestamp[us, tz=UTC]",
        "local": "timestamp[us]",
        "time": "int32",
        "amount": "decimal128(9, 2)",
        "map": "map<string, int64>",
        "list": "list<element: struct<x: double>>",
        "inner": "struct<x: double>",
        "any": "struct<member0: string, member1: int32, member2: struct<x: double>, member3: string>",
        "fixed": "binary",
        "number": "int64",
    }
    found = rows_cut_everywhere(data, options(decode="avro"), schema, step=3)
    for i, row in enumerate(found):
        wanted = avro_row(i)
        members = dict.fromkeys(("member0", "member1", "member2", "member3"))
        wanted["map"] = list(wanted["map"].items())
        wanted["time"] = 1000
        wanted["any"] = [
            None,
            {**members, "member0": "s"},
            {**members, "member1": i},
            {**members, "member2": {"x": 1.0}},
            {**members, "member3": "B"},
        ][i % 5]
        assert row == wanted
    assert len(found) == 12


def test_avro_columns_are_found_by_name_and_cast() -> None:
    schema = pa.schema([("none", pa.int32()), ("I", pa.int64()), ("day", pa.string())])
    found = rows(plain(avro_file("null")), options(decode="avro"), schema, [0, END])
    assert found[:2] == [{"none": None, "I": 0, "day": "2026-01-01"}, {"none": None, "I": 1, "day": None}]
    batches = decoder_for(options(decode="avro")).read(plain(avro_file()), 0, END, [])
    assert sum(batch.num_rows for batch in batches) == 12


def test_a_record_inside_itself_is_an_error() -> None:
    schema = {"type": "record", "name": "T", "fields": [{"name": "next", "type": ["null", "T"]}]}
    with pytest.raises(FormatError, match=r"f: the Avro schema has a record inside itself, 'T'"):
        types_of({"avro.schema": json.dumps(schema).encode()}, "f")
    with pytest.raises(FormatError, match="but a record is needed"):
        types_of({"avro.schema": b'"string"'}, "f")


def test_a_value_of_a_union_stands_in_the_member_of_its_branch() -> None:
    branches = ["int", "null", "long", "bytes", {"type": "fixed", "name": "F", "size": 1}]
    union = {"type": "record", "name": "R", "fields": [{"name": "u", "type": branches}]}
    # A block of five rows: the number of the branch, and the value.
    block = bytes([0, 2, 2, 4, 2, 6, 2, 5, 8, 5])
    marker = bytes(16)
    header = container_start({"avro.schema": json.dumps(union).encode(), "avro.codec": b"null"}, marker)
    file = plain(header + encoded_block(5, block, marker))
    schema = decoder_for(options(decode="avro")).schema_of(file)
    found = [row["u"] for row in rows(file, options(decode="avro"), schema, [0, END])]
    assert [each and {name: value for name, value in each.items() if value is not None} for each in found] == [
        {"member0": 1},
        None,
        {"member1": 1},
        {"member2": b"\x05"},
        {"member3": b"\x05"},
    ]


def test_damaged_avro_is_an_error_without_the_rows() -> None:
    data = bytearray(avro_file("null"))
    data[data.index(b"abc")] ^= 0x80
    begin = data.index(b"avro.codec")
    with pytest.raises(FormatError):
        rows(plain(bytes(data[:begin])), options(decode="avro"), pa.schema([("i", pa.int32())]), [0, END])
    with pytest.raises(FormatError, match="not an Avro container"):
        rows(plain(b"no Avro at all"), options(decode="avro"), pa.schema([("i", pa.int32())]), [0, END])


# -- Arrow -----------------------------------------------------------------------------------------------------------

TABLE = pa.table(
    {
        "u": pa.array(range(100), pa.uint8()),
        "s": pa.array([f"v{i % 7}" for i in range(100)]).dictionary_encode(),
        "l": pa.array([[i] if i % 2 else None for i in range(100)], pa.large_list(pa.int16())),
        "st": pa.array([{"x": i, "y": "q"} if i % 4 else None for i in range(100)]),
        "m": pa.array([[("k", i)] for i in range(100)], pa.map_(pa.string(), pa.int32())),
        "t": pa.array(range(100), pa.time32("ms")),
    }
)


def row_of_table(i: int) -> dict[str, Any]:
    return {
        "u": i,
        "s": f"v{i % 7}",
        "l": [i] if i % 2 else None,
        "st": {"x": i, "y": "q"} if i % 4 else None,
        "m": [("k", i)],
        "t": i * 1000,
    }


def ipc(new: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with new(sink, TABLE.schema) as writer:
        writer.write_table(TABLE, max_chunksize=13)
    data: bytes = sink.getvalue().to_pybytes()
    return data


@pytest.mark.parametrize("new", [pa.ipc.new_file, pa.ipc.new_stream])
def test_record_batches_of_a_file_are_splits_and_a_stream_is_none(new: Any) -> None:
    data = ipc(new)
    chosen = options(decode="arrow", batch_bytes=300)
    schema = decoder_for(chosen).schema_of(plain(data))
    found = rows_cut_everywhere(data, chosen, schema, step=101)
    assert found == [row_of_table(i) for i in range(100)]
    two = rows(plain(data), chosen, pa.schema([("T", pa.int64()), ("none", pa.string())]), [0, END])
    assert two[5] == {"T": 5000, "none": None}


def test_each_record_batch_of_a_file_belongs_to_its_share() -> None:
    data = ipc(pa.ipc.new_file)
    schema = pa.schema([("u", pa.int16())])
    parts = [
        rows(plain(data), options(decode="arrow"), schema, [start, start + len(data) // 4])
        for start in range(0, len(data) - 3, len(data) // 4)
    ]
    assert all(part for part in parts[:4])


def test_what_is_no_arrow_is_an_error() -> None:
    with pytest.raises(FormatError, match="file: this is neither an Arrow IPC file nor an IPC stream"):
        rows(plain(b"no Arrow"), options(decode="arrow"), pa.schema([("u", pa.int16())]), [0, END])


# -- Parquet ---------------------------------------------------------------------------------------------------------


def parquet(**given: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(TABLE, sink, row_group_size=17, **given)
    data: bytes = sink.getvalue().to_pybytes()
    return data


PARQUET = SourceOptions.parse({"path": "x", "keyref": "env:KEY", "decode": "parquet"})


@pytest.mark.parametrize("given", [{}, {"use_dictionary": False}, {"compression": "zstd", "write_page_index": True}])
def test_row_groups_are_splits(given: dict[str, Any]) -> None:
    data = parquet(**given)
    schema = decoder_for(PARQUET).schema_of(plain(data))
    assert rows_cut_everywhere(data, PARQUET, schema, step=499) == [row_of_table(i) for i in range(100)]


def test_parquet_columns_that_are_wanted() -> None:
    data = parquet()
    assert rows(plain(data), PARQUET, pa.schema([("U", pa.int64())]), [0, END])[99] == {"U": 99}
    for columns in ([], ["none"]):
        batches = decoder_for(PARQUET).read(plain(data), 0, END, columns)
        assert sum(batch.num_rows for batch in batches) == 100


def test_what_is_no_parquet_is_an_error() -> None:
    with pytest.raises(FormatError, match="does not end with PAR1 or PARE"):
        rows(plain(b"no Parquet at all"), PARQUET, pa.schema([("u", pa.int16())]), [0, END])


def encrypted_parquet() -> tuple[bytes, MemoryKms]:
    kms = MemoryKms({"foot": bytes(16), "column": bytes(range(16))})
    sink = io.BytesIO()
    table = pa.table({"id": range(1000), "name": [f"n{i}" for i in range(1000)]})
    write_table(table, sink, EncryptionConfig.from_kms(kms, "foot", {"column": ["name"]}), row_group_size=100)
    return sink.getvalue(), kms


def test_parquet_that_is_encrypted_itself() -> None:
    data, kms = encrypted_parquet()
    config = DecryptionConfig.from_kms(kms)
    schema = pa.schema([("name", pa.string()), ("id", pa.int64())])
    for source in (plain(data).source, io.BytesIO(data)):
        file = Plain("f", "f", source, config)
        assert decoder_for(PARQUET).schema_of(file).names == ["id", "name"]
        for cut in range(0, len(data), 2503):
            found = rows(file, PARQUET, schema, [0, cut, END])
            assert found == [{"name": f"n{i}", "id": i} for i in range(1000)]


def test_only_the_keys_of_columns_that_are_wanted_are_needed() -> None:
    data, _ = encrypted_parquet()
    file = Plain("f", "f", io.BytesIO(data), DecryptionConfig.from_kms(MemoryKms({"foot": bytes(16)})))
    assert len(rows(file, PARQUET, pa.schema([("id", pa.int64())]), [0, END])) == 1000
    with pytest.raises(KeyAccessError, match="column"):
        rows(file, PARQUET, pa.schema([("name", pa.string())]), [0, END])
    dropping = SourceOptions.parse({"path": "x", "keyref": "env:KEY", "decode": "parquet", "missing_keys": "drop"})
    assert decoder_for(dropping).schema_of(file).names == ["id"]


def test_encrypted_parquet_without_a_kms_is_refused() -> None:
    data, _ = encrypted_parquet()
    with pytest.raises(KeyAccessError):
        rows(Plain("f", "f", io.BytesIO(data)), PARQUET, pa.schema([("id", pa.int64())]), [0, END])


def test_a_page_that_is_not_authentic_is_an_error() -> None:
    data, kms = encrypted_parquet()
    file = Plain("f", "f", io.BytesIO(flip(data, 900)), DecryptionConfig.from_kms(kms))
    with pytest.raises(AuthenticationError):
        rows(file, PARQUET, pa.schema([("id", pa.int64()), ("name", pa.string())]), [0, END])


# -- types -----------------------------------------------------------------------------------------------------------


def test_columns_are_found_by_name_whatever_their_order() -> None:
    batch = pa.record_batch({"b": [1, 2], "A": ["x", "y"]})
    schema = pa.schema([("a", pa.string()), ("b", pa.int32())])
    assert conformed(batch, schema, "f").to_pylist() == [{"a": "x", "b": 1}, {"a": "y", "b": 2}]


def test_a_value_that_does_not_fit_is_an_error_that_does_not_show_it() -> None:
    batch = pa.record_batch({"b": [98765]})
    with pytest.raises(FormatError, match="f: the column 'b' is of the type int64, and not all") as caught:
        conformed(batch, pa.schema([("b", pa.int8())]), "f")
    assert "98765" not in str(caught.value)
    # Arrow itself would make an infinity, true, and 1 of these.
    for value, kind in ((1e300, pa.float32()), (2, pa.bool_()), (True, pa.int64())):
        with pytest.raises(FormatError, match="f: the column 'b' is of the type"):
            conformed(pa.record_batch({"b": [value]}), pa.schema([("b", kind)]), "f")


def test_nulls_where_the_schema_has_none_are_an_error() -> None:
    schema = pa.schema([pa.field("b", pa.int64(), nullable=False)])
    with pytest.raises(FormatError, match="'b' has nulls"):
        conformed(pa.record_batch({"b": pa.array([1, None])}), schema, "f")
    with pytest.raises(FormatError, match="'b' is missing"):
        conformed(pa.record_batch({"c": [1]}), schema, "f")


def test_slices_of_nested_columns_keep_their_rows() -> None:
    kinds = {"l": pa.list_(pa.int8()), "m": pa.map_(pa.string(), pa.int8()), "s": pa.struct([("x", pa.int8())])}
    values = {
        "l": [[1], None, [2, 3], []],
        "m": [[("a", 1)], None, [("b", None)], []],
        "s": [{"x": 1}, None, {"x": None}, {"x": 4}],
    }
    batch = pa.record_batch({name: pa.array(values[name], kind) for name, kind in kinds.items()})
    schema = pa.schema(
        [
            ("l", pa.list_(pa.field("element", pa.int64()))),
            ("m", pa.map_(pa.string(), pa.int64())),
            ("s", pa.struct([("x", pa.int64()), ("new", pa.string())])),
        ]
    )
    found = conformed(batch.slice(1, 2), schema, "f")
    found.validate(full=True)
    assert found.to_pylist() == [
        {"l": None, "m": None, "s": None},
        {"l": [2, 3], "m": [("b", None)], "s": {"x": None, "new": None}},
    ]


def test_types_that_spark_does_not_have() -> None:
    assert spark_type(pa.uint64()) == pa.decimal128(20, 0)
    assert spark_type(pa.timestamp("ns", "Europe/Berlin")) == pa.timestamp("us", "UTC")
    assert spark_type(pa.list_view(pa.string_view())) == pa.list_(pa.field("element", pa.string()))
    with pytest.raises(FormatError, match="f: the column 'x' is of the Arrow type month_day_nano_interval"):
        spark_schema(pa.schema([("x", pa.month_day_nano_interval())]), "f")
