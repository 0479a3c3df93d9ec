"""Avro data and delete files are read as PyIceberg reads the same rows in Parquet: by field id, as the table is now."""

from __future__ import annotations

import datetime
import decimal
import json
import uuid
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    EqualTo,
    GreaterThan,
    In,
    IsNull,
    LessThan,
    NotNull,
    Or,
    StartsWith,
)
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from ags1.avro.schemas import iceberg_schema, parse
from ags1.errors import FormatError
from ags1.iceberg.scan import avro_files
from ags1.iceberg.scan.table_scan import EncryptedArrowScan
from tests.iceberg.avro_lake import Lake, avro_bytes, data_file, nullable, optional, record

# A name of a column, its Avro type, its Iceberg type, a value in Avro, and the same in Arrow where it is another.
_INSTANT = 1_700_000_000_123_456
_UUID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
_MICROS = {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": False}
_NANOS = {"type": "long", "logicalType": "timestamp-nanos", "adjust-to-utc": False}
PRIMITIVES: tuple[tuple[Any, Any, list[Any]], ...] = (
    ("boolean", BooleanType(), [True, False]),
    ("int", IntegerType(), [-(2**31), 2**31 - 1]),
    ("long", LongType(), [-(2**63), 2**63 - 1]),
    ("float", FloatType(), [1.5, float("-inf")]),
    ("double", DoubleType(), [0.1, -0.0]),
    ({"type": "int", "logicalType": "date"}, DateType(), [-719162, 2932896]),
    ({"type": "long", "logicalType": "time-micros"}, TimeType(), [0, 86_399_999_999]),
    (_MICROS, TimestampType(), [_INSTANT, -62135596800000000]),
    ({**_MICROS, "adjust-to-utc": True}, TimestamptzType(), [_INSTANT, -1]),
    (_NANOS, TimestampNanoType(), [_INSTANT * 1000 + 1, -1]),
    ({**_NANOS, "adjust-to-utc": True}, TimestamptzNanoType(), [_INSTANT * 1000 + 1, 0]),
    ("string", StringType(), ["", "grüezi"]),
    ("bytes", BinaryType(), [b"", b"\x00\xff"]),
    ({"type": "fixed", "name": "fixed_3", "size": 3}, FixedType(3), [b"abc", b"\x00\x00\x00"]),
    ({"type": "fixed", "name": "uuid_fixed", "size": 16, "logicalType": "uuid"}, UUIDType(), [_UUID.bytes]),
)
DECIMALS = ((1, 0), (9, 2), (18, 18), (19, 4), (38, 10))


def _decimal_bytes(value: decimal.Decimal, scale: int, size: int | None = None) -> bytes:
    number = int(value.scaleb(scale))
    return number.to_bytes(size or max(1, (number.bit_length() + 8) // 8), "big", signed=True)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


# -- types ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encrypted", [False, True], ids=["plaintext", "encrypted"])
@pytest.mark.parametrize(("avro", "kind", "values"), PRIMITIVES, ids=[str(each[1]) for each in PRIMITIVES])
def test_values_of_every_type_are_what_parquet_has(
    lake: Lake, avro: Any, kind: Any, values: list[Any], encrypted: bool
) -> None:
    rows = [{"id": index, "value": value} for index, value in enumerate([*values, None])]
    lake.write(record((1, "id", "long"), (2, "value", nullable(avro))), rows, encrypted=encrypted)
    schema = Schema(NestedField(1, "id", LongType(), required=True), optional(2, "value", kind))
    lake.write_parquet(schema, rows)
    assert lake.read_both(schema).num_rows == len(rows)
    assert lake.read_both(schema, row_filter=IsNull("value")).num_rows == 1
    assert lake.read_both(schema, row_filter=NotNull("value")).num_rows == len(values)


@pytest.mark.parametrize("fixed", [True, False], ids=["fixed", "bytes"])
@pytest.mark.parametrize(("precision", "scale"), DECIMALS)
def test_decimals_are_read_from_fixed_and_from_bytes(lake: Lake, precision: int, scale: int, fixed: bool) -> None:
    largest = decimal.Decimal((0, (9,) * precision, -scale))
    with decimal.localcontext(prec=60):
        values = [largest, -largest, decimal.Decimal(0).scaleb(-scale), decimal.Decimal(-1).scaleb(-scale), None]
        size = 16 if fixed else None
        stored = [None if each is None else _decimal_bytes(each, scale, size) for each in values]
    physical = {"type": "fixed", "name": "d", "size": 16} if fixed else {"type": "bytes"}
    avro = {**physical, "logicalType": "decimal", "precision": precision, "scale": scale}
    lake.write(record((1, "value", nullable(avro))), [{"value": each} for each in stored])
    schema = Schema(optional(1, "value", DecimalType(precision, scale)))
    lake.write_parquet(schema, [{"value": each} for each in values])
    assert lake.read_both(schema)["value"].to_pylist() == values


def test_a_decimal_of_more_digits_than_its_type_is_refused(lake: Lake) -> None:
    avro = {"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 0}
    lake.write(record((1, "value", avro)), [{"value": (1000).to_bytes(2, "big")}])
    with pytest.raises(FormatError, match=r"data\.avro: its rows cannot be decoded: .*precision"):
        lake.read(Schema(optional(1, "value", DecimalType(3, 0))))


def test_uuids_as_text_and_times_in_milliseconds_of_other_writers_are_read(lake: Lake) -> None:
    avro = record(
        (1, "u", nullable({"type": "string", "logicalType": "uuid"})),
        (2, "t", {"type": "int", "logicalType": "time-millis"}),
        (3, "at", {"type": "long", "logicalType": "timestamp-millis", "adjust-to-utc": True}),
    )
    lake.write(avro, [{"u": str(_UUID), "t": 1500, "at": 1500}, {"u": None, "t": 0, "at": 0}])
    schema = Schema(optional(1, "u", UUIDType()), optional(2, "t", TimeType()), optional(3, "at", TimestamptzType()))
    found = lake.read(schema, row_filter=EqualTo("u", _UUID)).to_pylist()
    at = datetime.datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=datetime.timezone.utc)
    assert found == [{"u": _UUID, "t": datetime.time(0, 0, 1, 500_000), "at": at}]


def test_a_column_of_nulls_only_gets_the_type_that_the_table_gave_it_later(lake: Lake) -> None:
    lake.write(record((1, "id", "long"), (2, "value", "null")), [{"id": 1, "value": None}])
    for kind in (UnknownType(), StringType(), TimestampType(), DecimalType(9, 2)):
        schema = Schema(optional(1, "id", LongType()), optional(2, "value", kind))
        assert lake.read(schema, row_filter=IsNull("value")).to_pylist() == [{"id": 1, "value": None}]


UUID_FIXED = {"type": "fixed", "name": "uuid_fixed", "size": 16, "logicalType": "uuid"}
NESTED_AVRO = record(
    (1, "id", "long"),
    (2, "tags", nullable({"type": "array", "element-id": 3, "items": nullable("string")})),
    (4, "uuids", nullable({"type": "array", "element-id": 5, "items": nullable(UUID_FIXED)})),
    (
        6,
        "place",
        nullable(
            {
                "type": "record",
                "name": "r6",
                "fields": [
                    {"name": "city", "type": nullable("string"), "field-id": 7},
                    # The type was defined above: a reference.
                    {"name": "key", "type": nullable("uuid_fixed"), "field-id": 8},
                ],
            }
        ),
    ),
    (9, "scores", nullable({"type": "map", "key-id": 10, "value-id": 11, "values": nullable("double")})),
    (
        12,
        "names",
        nullable(
            {
                "type": "array",
                "logicalType": "map",
                "items": {
                    "type": "record",
                    "name": "k13_v14",
                    "fields": [
                        {"name": "key", "type": "int", "field-id": 13},
                        {"name": "value", "type": nullable("string"), "field-id": 14},
                    ],
                },
            }
        ),
    ),
    (
        15,
        "lines",
        nullable(
            {
                "type": "array",
                "element-id": 16,
                "items": nullable(
                    {
                        "type": "record",
                        "name": "r16",
                        "fields": [
                            {"name": "item", "type": nullable("string"), "field-id": 17},
                            {"name": "at", "type": nullable(_MICROS), "field-id": 18},
                        ],
                    }
                ),
            }
        ),
    ),
)
NESTED = Schema(
    NestedField(1, "id", LongType(), required=True),
    optional(2, "tags", ListType(3, StringType(), False)),
    optional(4, "uuids", ListType(5, UUIDType(), False)),
    optional(6, "place", StructType(optional(7, "city", StringType()), optional(8, "key", UUIDType()))),
    optional(9, "scores", MapType(10, StringType(), 11, DoubleType(), False)),
    optional(12, "names", MapType(13, IntegerType(), 14, StringType(), False)),
    optional(
        15,
        "lines",
        ListType(16, StructType(optional(17, "item", StringType()), optional(18, "at", TimestampType())), False),
    ),
)


def _maybe(strategy: Any) -> Any:
    return st.none() | strategy


NESTED_ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.integers(-(2**63), 2**63 - 1),
            "tags": _maybe(st.lists(_maybe(st.text(max_size=5)), max_size=3)),
            "uuids": _maybe(st.lists(_maybe(st.binary(min_size=16, max_size=16)), max_size=2)),
            "place": _maybe(
                st.fixed_dictionaries(
                    {"city": _maybe(st.text(max_size=3)), "key": _maybe(st.binary(min_size=16, max_size=16))}
                )
            ),
            "scores": _maybe(st.dictionaries(st.text(max_size=2), _maybe(st.floats(allow_nan=False)), max_size=2)),
            "names": _maybe(st.dictionaries(st.integers(-9, 9), _maybe(st.text(max_size=2)), max_size=2)),
            # Not null: PyIceberg makes null lists of structs in Parquet empty. The next test has them.
            "lines": st.lists(
                _maybe(
                    st.fixed_dictionaries({"item": _maybe(st.text(max_size=3)), "at": _maybe(st.integers(0, 2**50))})
                ),
                max_size=2,
            ),
        }
    ),
    min_size=1,
    max_size=8,
)


def _as_avro(row: dict[str, Any]) -> dict[str, Any]:
    names = row["names"]
    pairs = None if names is None else [{"key": key, "value": value} for key, value in names.items()]
    return {**row, "names": pairs}


def _as_arrow(row: dict[str, Any]) -> dict[str, Any]:
    return {
        name: list(value.items()) if name in ("scores", "names") and value is not None else value
        for name, value in row.items()
    }


@given(rows=NESTED_ROWS, data=st.data())
@settings(deadline=None, max_examples=40)
def test_random_nested_rows_are_what_parquet_has(tmp_path_factory: Any, rows: list[Any], data: Any) -> None:
    lake = Lake(tmp_path_factory.mktemp("rows"))
    lake.write(NESTED_AVRO, [_as_avro(row) for row in rows], encrypted=True)
    lake.write_parquet(NESTED, [_as_arrow(row) for row in rows])
    deleted = data.draw(st.none() | st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=4), min_size=1))
    names = data.draw(st.sets(st.sampled_from([each.name for each in NESTED.fields]), min_size=1))
    row_filter = data.draw(st.sampled_from([AlwaysTrue(), GreaterThan("id", 0), NotNull("place.city")]))
    lake.read_both(NESTED, columns=NESTED.select(*names), deleted=deleted, row_filter=row_filter)


def test_a_null_list_or_map_of_structs_stays_null(lake: Lake) -> None:
    struct = {"type": "record", "name": "r", "fields": [{"name": "x", "type": "int", "field-id": 3}]}
    other = {"type": "record", "name": "o", "fields": [{"name": "y", "type": "int", "field-id": 7}]}
    avro = record(
        (1, "lines", nullable({"type": "array", "element-id": 2, "items": struct})),
        (4, "places", nullable({"type": "map", "key-id": 5, "value-id": 6, "values": other})),
    )
    rows = [
        {"lines": None, "places": None},
        {"lines": [], "places": {}},
        {"lines": [{"x": 1}], "places": {"a": {"y": 2}}},
    ]
    lake.write(avro, rows)
    schema = Schema(
        optional(1, "lines", ListType(2, StructType(optional(3, "x", IntegerType())), False)),
        optional(4, "places", MapType(5, StringType(), 6, StructType(optional(7, "y", IntegerType())), False)),
    )
    assert lake.read(schema).to_pylist() == [
        {"lines": None, "places": None},
        {"lines": [], "places": []},
        {"lines": [{"x": 1}], "places": [("a", {"y": 2})]},
    ]
    assert lake.read(schema, deleted=[[1]])["lines"].to_pylist() == [None, [{"x": 1}]]


def test_the_schema_of_a_file_is_what_pyiceberg_takes_it_for() -> None:
    schema = Schema(*(field for field in NESTED.fields if field.name != "scores"))
    # PyIceberg writes no references, so that it defines the type of UUIDs twice: one column of them only.
    schema = Schema(*(field for field in schema.fields if field.name != "uuids"))
    avro = AvroSchemaConversion().iceberg_to_avro(schema, schema_name="table")
    assert iceberg_schema(parse(avro), {8: UUIDType()}.get).fields[0] == schema.fields[0]
    found = iceberg_schema(parse(avro), lambda _: None)
    theirs = AvroSchemaConversion().avro_to_iceberg(avro)
    assert found.find_field("place.city") == theirs.find_field("place.city")
    # PyIceberg writes the values of maps as required ones.
    assert found.find_field("names").field_type == theirs.find_field("names").field_type
    assert found.find_field("lines").field_type == theirs.find_field("lines").field_type


# -- evolution -----------------------------------------------------------------------------------------------

OLD = Schema(
    NestedField(1, "id", IntegerType(), required=True),
    optional(2, "amount", DecimalType(9, 2)),
    optional(3, "ratio", FloatType()),
    optional(4, "gone", StringType()),
    optional(5, "place", StructType(optional(6, "city", StringType()), optional(7, "zip", IntegerType()))),
)
_PLACE = {
    "type": "record",
    "name": "r5",
    "fields": [
        {"name": "city", "type": nullable("string"), "field-id": 6},
        {"name": "zip", "type": nullable("int"), "field-id": 7},
    ],
}
_AMOUNT = {"type": "fixed", "name": "decimal_9_2", "size": 4, "logicalType": "decimal", "precision": 9, "scale": 2}
OLD_AVRO = record(
    (1, "id", "int"),
    (2, "amount", nullable(_AMOUNT)),
    (3, "ratio", nullable("float")),
    (4, "gone", nullable("string")),
    (5, "place", nullable(_PLACE)),
)
NEW = Schema(
    optional(5, "location", StructType(optional(7, "zip", LongType()), optional(9, "street", StringType()))),
    NestedField(1, "number", LongType(), required=True),
    optional(2, "sum", DecimalType(20, 2)),
    optional(3, "ratio", DoubleType()),
    optional(8, "note", StringType()),
    NestedField(10, "kind", StringType(), required=True, initial_default="old"),
)


@pytest.fixture
def old_files(lake: Lake) -> Lake:
    rows = [
        {
            "id": index,
            "amount": decimal.Decimal(index) / 4,
            "ratio": None if index % 3 == 0 else index / 8,
            "gone": "x" * index,
            "place": None if index % 4 == 0 else {"city": f"city {index}", "zip": index},
        }
        for index in range(40)
    ]
    stored = [{**row, "amount": _decimal_bytes(row["amount"], 2, 4)} for row in rows]
    lake.write(OLD_AVRO, stored, codec="deflate", encrypted=True)
    lake.write_parquet(OLD, rows)
    return lake


def test_renamed_added_dropped_reordered_and_promoted_columns_are_found_by_their_ids(old_files: Lake) -> None:
    found = old_files.read_both(NEW)
    assert found.column_names == ["location", "number", "sum", "ratio", "note", "kind"]
    assert found.slice(5, 1).to_pylist() == [
        {
            "location": {"zip": 5, "street": None},
            "number": 5,
            "sum": decimal.Decimal("1.25"),
            "ratio": 0.625,
            "note": None,
            "kind": "old",
        }
    ]


@pytest.mark.parametrize(
    ("row_filter", "count"),
    [
        (GreaterThan("number", 29), 10),
        (GreaterThan("number", 2**40), 0),
        (LessThan("number", 2**40), 40),
        (And(LessThan("sum", decimal.Decimal("2.00")), NotNull("ratio")), 5),
        (EqualTo("location.zip", 5), 1),
        (Or(In("number", [1, 2]), IsNull("location.zip")), 12),
        (IsNull("note"), 40),
        (NotNull("note"), 0),
        (EqualTo("kind", "old"), 40),
        (StartsWith("kind", "new"), 0),
        (AlwaysFalse(), 0),
    ],
    ids=str,
)
def test_a_filter_of_the_table_is_a_filter_of_the_file(old_files: Lake, row_filter: Any, count: int) -> None:
    assert old_files.read_both(NEW, row_filter=row_filter).num_rows == count
    # The filter's columns need not be asked for.
    assert old_files.read_both(NEW, columns=NEW.select("ratio"), row_filter=row_filter).num_rows == count


def test_positions_are_deleted_before_the_filter_counts_rows(old_files: Lake) -> None:
    found = old_files.read_both(NEW, deleted=[[0, 1, 39], [2, 700]], row_filter=GreaterThan("number", 1))
    assert found["number"].to_pylist() == list(range(3, 39))


@pytest.mark.parametrize("column", ["note", "kind"])
def test_rows_are_counted_where_no_column_is_in_the_file(old_files: Lake, column: str) -> None:
    assert old_files.read(NEW, columns=NEW.select(column)).num_rows == 40
    assert old_files.read(NEW, columns=NEW.select(column), deleted=[[3, 5]]).num_rows == 38


def test_a_struct_of_new_fields_only_keeps_its_nulls(old_files: Lake) -> None:
    columns = Schema(optional(5, "location", StructType(optional(9, "street", StringType()))))
    found = old_files.read_both(NEW, columns=columns)
    assert found["location"].to_pylist()[:5] == [None, *[{"street": None}] * 3, None]


def test_a_limit_ends_the_reading(old_files: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avro_files, "_BATCH_ROWS", 8)
    found = old_files.read(NEW, columns=NEW.select("number"), limit=10)
    assert found["number"].to_pylist() == list(range(16))


def test_the_value_of_an_identity_partition_stands_in_for_its_column(lake: Lake) -> None:
    table = Schema(optional(1, "id", LongType()), optional(2, "country", StringType()))
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "country"), spec_id=3)
    lake.write(record((1, "id", "long")), [{"id": 1}, {"id": 2}])
    lake.write_parquet(table.select("id"), [{"id": 1}, {"id": 2}])
    options: dict[str, Any] = {"spec": spec, "partition": Record("CH")}
    assert lake.read_both(table, **options)["country"].to_pylist() == ["CH", "CH"]
    assert lake.read_both(table, row_filter=EqualTo("country", "CH"), **options).num_rows == 2
    assert lake.read_both(table, row_filter=EqualTo("country", "IT"), **options).num_rows == 0
    # PyIceberg forgets the partition when only the filter has it.
    ids = lake.read(table, columns=table.select("id"), row_filter=EqualTo("country", "CH"), **options)
    assert ids["id"].to_pylist() == [1, 2]


def test_names_that_avro_cannot_have_are_found_by_id_and_can_be_filtered(lake: Lake) -> None:
    avro = record((1, "a_x2Eb", "long"))
    avro["fields"][0]["iceberg-field-name"] = "a.b"
    lake.write(avro, [{"a_x2Eb": 1}, {"a_x2Eb": 2}])
    found = lake.read(Schema(optional(1, "a.b", LongType())), row_filter=GreaterThan("a.b", 1))
    assert found.to_pylist() == [{"a.b": 2}]


# -- names instead of ids ------------------------------------------------------------------------------------

WITHOUT_IDS = {
    "type": "record",
    "name": "table",
    "namespace": "org.example",
    "fields": [
        {"name": "number", "type": "long"},
        {"name": "unmapped", "type": "string"},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {
            "name": "place",
            "type": {"type": "record", "name": "Place", "fields": [{"name": "city", "type": "string"}]},
        },
        {"name": "other", "type": ["Place", "null"]},
        {"name": "scores", "type": {"type": "map", "values": "int"}},
    ],
}
MAPPING = [
    {"field-id": 1, "names": ["id", "number"]},
    {"field-id": 2, "names": ["tags"], "fields": [{"field-id": 3, "names": ["element"]}]},
    {"field-id": 4, "names": ["place"], "fields": [{"field-id": 5, "names": ["city"]}]},
    {
        "field-id": 6,
        "names": ["scores"],
        "fields": [{"field-id": 7, "names": ["key"]}, {"field-id": 8, "names": ["value"]}],
    },
]
MAPPED = Schema(
    optional(1, "id", LongType()),
    optional(2, "tags", ListType(3, StringType(), False)),
    optional(4, "place", StructType(optional(5, "city", StringType()))),
    optional(6, "scores", MapType(7, StringType(), 8, IntegerType(), False)),
)
_NAMED_ROW = {
    "number": 1,
    "unmapped": "x",
    "tags": ["a"],
    "place": {"city": "Bern"},
    "other": {"city": "Basel"},
    "scores": {"s": 1},
}


def test_a_file_without_field_ids_is_read_by_the_tables_name_mapping(lake: Lake) -> None:
    lake.write(WITHOUT_IDS, [_NAMED_ROW])
    properties = {"schema.name-mapping.default": json.dumps(MAPPING)}
    assert lake.read(MAPPED, properties=properties).to_pylist() == [
        {"id": 1, "tags": ["a"], "place": {"city": "Bern"}, "scores": [("s", 1)]}
    ]


def test_a_file_without_field_ids_is_read_by_the_names_of_the_columns_where_the_table_has_no_name_mapping(
    lake: Lake,
) -> None:
    lake.write(WITHOUT_IDS, [_NAMED_ROW])
    assert lake.read(MAPPED).to_pylist() == [
        {"id": None, "tags": ["a"], "place": {"city": "Bern"}, "scores": [("s", 1)]}
    ]


# -- the container -------------------------------------------------------------------------------------------

SIMPLE_AVRO = record((1, "id", "long"), (2, "text", nullable("string")))
SIMPLE = Schema(optional(1, "id", LongType()), optional(2, "text", StringType()))


def _simple_rows(count: int) -> list[dict[str, Any]]:
    return [{"id": index, "text": f"row {index}" if index % 5 else None} for index in range(count)]


@pytest.mark.parametrize("codec", ["null", "deflate", "zstandard", "snappy"])
def test_the_codecs_that_iceberg_writes_are_read(lake: Lake, codec: str) -> None:
    lake.write(SIMPLE_AVRO, _simple_rows(3000), codec=codec, encrypted=True)
    assert lake.read(SIMPLE).to_pylist() == _simple_rows(3000)


def test_another_codec_is_refused_by_name(lake: Lake) -> None:
    lake.write(SIMPLE_AVRO, _simple_rows(1), codec="lzo")
    with pytest.raises(FormatError, match=r"data\.avro: the Avro codec 'lzo' is not supported"):
        lake.read(SIMPLE)


def test_a_file_without_rows_has_none(lake: Lake) -> None:
    lake.write(SIMPLE_AVRO, [], encrypted=True)
    assert lake.read(SIMPLE).num_rows == 0


@pytest.mark.parametrize(("limit", "value"), [("_BATCH_ROWS", 100), ("_BATCH_BYTES", 1000)])
def test_batches_are_bounded_and_positions_go_on_through_them(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    rows = _simple_rows(3000)
    lake.write(SIMPLE_AVRO, rows)
    monkeypatch.setattr(avro_files, limit, value)
    sizes = []
    original = avro_files.record_batch

    def counted(*arguments: Any) -> Any:
        batch = original(*arguments)
        sizes.append(batch.num_rows)
        return batch

    monkeypatch.setattr(avro_files, "record_batch", counted)
    found = lake.read(SIMPLE, deleted=[[0, 1500, 2999]])
    assert found.to_pylist() == [row for row in rows if row["id"] not in (0, 1500, 2999)]
    assert sum(sizes) == 3000
    assert max(sizes) <= (100 if limit == "_BATCH_ROWS" else 1000)


def test_columns_that_nobody_wants_are_not_decoded(lake: Lake) -> None:
    avro = record(*((index, f"c{index}", "string") for index in range(1, 9)))
    data = avro_bytes(avro, [{f"c{index}": "good" if index == 1 else "bad!" for index in range(1, 9)}])
    # Not UTF-8: who decodes it fails.
    lake.write_bytes(data.replace(b"bad!", b"\xff\xff\xff\xff"))
    assert lake.read(Schema(optional(1, "c1", StringType()))).to_pylist() == [{"c1": "good"}]
    with pytest.raises(FormatError, match=r"data\.avro: its rows cannot be decoded: UnicodeDecodeError"):
        lake.read(Schema(optional(2, "c2", StringType())))


# -- position deletes ----------------------------------------------------------------------------------------

DELETES_AVRO = record(
    (2147483546, "file_path", "string"),
    (2147483545, "pos", "long"),
    (
        2147483544,
        "row",
        nullable({"type": "record", "name": "row", "fields": [{"name": "id", "type": "long", "field-id": 1}]}),
    ),
)


def _read_deletes(lake: Lake) -> dict[str, pa.ChunkedArray]:
    scan: Any = SimpleNamespace(io=lake.io)
    file = data_file(lake.avro, FileFormat.AVRO, None, DataFileContent.POSITION_DELETES)
    return EncryptedArrowScan._read_positions(scan, file)


@pytest.mark.parametrize("encrypted", [False, True], ids=["plaintext", "encrypted"])
def test_deleted_positions_are_grouped_by_data_file(lake: Lake, encrypted: bool) -> None:
    rows = [{"file_path": f"s3://b/{index % 3}", "pos": index, "row": {"id": index}} for index in range(1000)]
    lake.write(DELETES_AVRO, rows, codec="deflate", encrypted=encrypted)
    found = _read_deletes(lake)
    assert {path: array.to_pylist() for path, array in found.items()} == {
        f"s3://b/{file}": list(range(file, 1000, 3)) for file in range(3)
    }
    assert all(isinstance(array, pa.ChunkedArray) and array.type == pa.int64() for array in found.values())


def test_an_empty_delete_file_deletes_nothing(lake: Lake) -> None:
    lake.write(DELETES_AVRO, [])
    assert _read_deletes(lake) == {}


@pytest.mark.parametrize(
    ("schema", "row", "message"),
    [
        (record((2147483546, "file_path", "string"), (7, "pos", "long")), {"file_path": "a", "pos": 1}, "2147483545"),
        (
            record((2147483546, "file_path", nullable("string")), (2147483545, "pos", "long")),
            {"file_path": None, "pos": 1},
            "has no path",
        ),
        (
            record((2147483546, "file_path", "string"), (2147483545, "pos", nullable("long"))),
            {"file_path": "a", "pos": None},
            "has no position",
        ),
    ],
    ids=["no field", "no path", "no position"],
)
def test_deletes_without_paths_or_positions_are_refused(lake: Lake, schema: Any, row: Any, message: str) -> None:
    lake.write(schema, [row])
    with pytest.raises(FormatError, match=rf"data\.avro: .*{message}"):
        _read_deletes(lake)
