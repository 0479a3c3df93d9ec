"""Row filters: what each means, whatever file the rows are in."""

from __future__ import annotations

import datetime
import decimal
import math
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import EqualTo, GreaterThan, In, IsNull, LessThan, Not, NotIn, NotNull, StartsWith
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
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
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from ags1.iceberg import create_table
from ags1.iceberg.scan.row_filter import RowFilter, parsed
from ags1.kms import MemoryKms
from tests.iceberg.avro_lake import Lake, nullable, optional, record, required
from tests.iceberg.delete_lake import DeleteLake
from tests.iceberg.keys import MASTER_KEYS
from tests.iceberg.random_tables import Column, RandomTable
from tests.iceberg.random_values import POOLS, iceberg_type, python_value

NAN = math.nan


def passing(schema: Schema, rows: list[dict[str, Any]], row_filter: Any) -> list[int]:
    """Which rows pass."""
    table = pa.Table.from_pylist(rows, schema=schema_to_pyarrow(schema, include_field_ids=False))
    bound = RowFilter(parsed(row_filter) if isinstance(row_filter, str) else row_filter, schema)
    names = {field.field_id: field.name for field in schema.fields}
    mask = bound.passing(lambda field_id: table.column(names[field_id]).combine_chunks(), table.num_rows)
    assert mask.null_count == 0
    return [index for index, each in enumerate(mask.to_pylist()) if each]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


# -- what filters mean -----------------------------------------------------------------------------------------

NUMBERS = Schema(
    optional(1, "i", IntegerType()),
    optional(2, "l", LongType()),
    optional(3, "f", FloatType()),
    optional(4, "d", DoubleType()),
    optional(5, "m", DecimalType(20, 2)),
)


def numbers(name: str, *values: Any) -> list[dict[str, Any]]:
    return [dict.fromkeys("ilfdm") | {name: value} for value in values]


@pytest.mark.parametrize(
    ("row_filter", "wanted"),
    [
        ("d not in (1.0, 2.0)", [2, 3]),
        ("not d in (1.0, 2.0)", [2, 3]),
        ("d != 1.0", [1, 2]),
        ("not d = 1.0", [1, 2]),
        ("not (d > 1.5)", [0]),
        ("d = 1.0 or d is null", [0, 3]),
        ("not (d = 1.0 or d is null)", [1, 2]),
        ("not (d != 1.0 and d not in (1.0, 2.0))", [0, 1]),
        ("d < 99999999999999999999999999", [0, 1, 2]),
        ("d is not null", [0, 1, 2]),
    ],
)
def test_null_passes_is_null_and_not_in_alone(row_filter: str, wanted: list[int]) -> None:
    assert passing(NUMBERS, numbers("d", 1.0, 2.0, 3.0, None), row_filter) == wanted


@pytest.mark.parametrize("name", ["f", "d"])
def test_nan_passes_is_nan_and_unequal_and_not_in_alone(name: str) -> None:
    rows = numbers(name, NAN, math.inf, -1.0, None)
    for row_filter, wanted in (
        ("> 1000.0", [1]),
        (">= 1000.0", [1]),
        ("< 1000.0", [2]),
        ("<= 1000.0", [2]),
        ("!= -1.0", [0, 1]),
        ("in (-1.0, 5.0)", [2]),
        ("not in (-1.0, 5.0)", [0, 1, 3]),
        ("is nan", [0]),
        ("is not nan", [1, 2]),
    ):
        assert passing(NUMBERS, rows, f"{name} {row_filter}") == wanted, row_filter
        opposite = [] if row_filter.endswith("in (-1.0, 5.0)") else [3]
        assert passing(NUMBERS, rows, f"not {name} {row_filter}") == sorted({0, 1, 2, 3}.difference(wanted, opposite))


@pytest.mark.parametrize("name", ["f", "d"])
def test_the_zeros_of_both_signs_are_equal(name: str) -> None:
    """PyIceberg's own `in` has two zeros."""
    rows = numbers(name, -0.0, 0.0, 1.0, None)
    for zero in ("0.0", "-0.0", "0"):
        assert passing(NUMBERS, rows, f"{name} = {zero}") == [0, 1]
        assert passing(NUMBERS, rows, f"{name} < {zero}") == []
        assert passing(NUMBERS, rows, f"{name} >= {zero}") == [0, 1, 2]
    for number in (0.0, -0.0):
        assert passing(NUMBERS, rows, In(name, [number, 7.0])) == [0, 1]
        assert passing(NUMBERS, rows, NotIn(name, [number, 7.0])) == [2, 3]


def test_a_value_is_compared_as_one_of_its_column_or_refused() -> None:
    """The threat: PyIceberg takes 2.5 for 2, so that rows are lost, or deleted, without a word."""
    rows = numbers("f", 0.1, None) + numbers("m", decimal.Decimal("15.50")) + numbers("i", 15) + numbers("l", -1)
    for row_filter, wanted in (
        ("f = 0.1", [0]),
        ("m = 15.50", [2]),
        (EqualTo("m", 15.5), [2]),
        ("m > 15", [2]),
        ("i = 15.0", [3]),
        ("i = '15'", [3]),
        ("l in (-1.0, 2.0)", [4]),
        ("l < 9223372036854775807", [4]),
    ):
        assert passing(NUMBERS, rows, row_filter) == wanted, row_filter
    for refused in (
        *("i < 2.5", "l > -0.5", "i in (1, 2147483648)", "i != 99999999999", "l < 9223372036854775808", "i = '2.5'"),
        *("m = 0.125", EqualTo("m", 0.125), EqualTo("m", 10**30), "l = 1e5", EqualTo("l", 5.0), EqualTo("f", math.inf)),
    ):
        with pytest.raises(ValueError, match=r"column .* is (int|long|float|decimal)|does not understand"):
            passing(NUMBERS, rows, refused)


def test_literals_that_no_column_of_the_type_has_are_refused() -> None:
    schema = Schema(
        optional(1, "l", LongType()),
        optional(2, "s", StringType()),
        optional(3, "z", TimestamptzType()),
        optional(4, "t", TimestampType()),
        optional(5, "d", DateType()),
        optional(6, "u", UUIDType()),
        optional(7, "x", FixedType(4)),
        optional(8, "li", ListType(9, LongType(), False)),
        optional(10, "n", TimestampNanoType()),
    )
    for row_filter, message in (
        ("l > 'x'", "column l is long, and cannot be compared with 'x': Could not convert x into a long"),
        ("s > 5", "column s is string, and cannot be compared with 5"),
        ("z > '2020-01-01T00:00:00'", "Missing zone offset"),
        ("z > '2020-01-01'", "column z is timestamptz"),
        ("t > '2020-01-01T00:00:00Z'", "Invalid timestamp without zone"),
        ("t > '2020-13-01'", "Invalid timestamp"),
        ("t = '2020-01-01T00:00:00.0000001'", "Invalid timestamp"),
        ("d = '2020-01-01 10:00:00'", "column d is date"),
        (LessThan("d", datetime.datetime(2020, 1, 1, 12)), "PyIceberg would change the value"),
        ("u = 'x'", "column u is uuid"),
        ("n = '2020-01-01T00:00:00'", "column n is timestamp_ns"),
        (EqualTo("x", b"12345"), "different length"),
        (StartsWith("x", b"1234"), "does not fit its columns"),
        (StartsWith("l", "5"), "column l is long"),
        ("li = 5", "column li is no single value"),
        ("li.element = 5", "column li.element is inside a list or a map"),
    ):
        with pytest.raises(ValueError, match=message):
            RowFilter(parsed(row_filter) if isinstance(row_filter, str) else row_filter, schema)


def test_text_binary_and_uuids_are_compared_byte_by_byte(lake: Lake) -> None:
    schema = Schema(optional(1, "s", StringType()), optional(2, "u", UUIDType()), optional(3, "x", FixedType(2)))
    # In UTF-16 the second would come before the first.
    texts = ["\uffee", "\U0001f511", "", None]
    fixed = {"type": "fixed", "name": "x2", "size": 2}
    uuid = {"type": "fixed", "name": "u16", "size": 16, "logicalType": "uuid"}
    rows = [
        {"s": text, "u": bytes([number]) * 16, "x": bytes([number, 1])}
        for text, number in zip(texts, (0, 127, 128, 255), strict=True)
    ]
    lake.write(record((1, "s", nullable("string")), (2, "u", nullable(uuid)), (3, "x", nullable(fixed))), rows)
    lake.write_parquet(schema, rows)

    def read(row_filter: Any) -> list[Any]:
        return lake.read_both(schema, row_filter=row_filter)["s"].to_pylist()

    assert read(GreaterThan("s", "\uffee")) == ["\U0001f511"]
    assert read(StartsWith("s", "")) == texts[:3]
    assert read(Not(StartsWith("s", "\uffee"))) == ["\U0001f511", ""]
    assert read(GreaterThan("x", b"\x7f\x02")) == ["", None]
    assert read(In("x", [b"\x00\x01", b"\xff\x01", b"\xff\x02"])) == ["\uffee", None]
    assert read(LessThan("u", "80000000-0000-0000-0000-000000000000")) == ["\uffee", "\U0001f511"]
    assert read(NotIn("u", ["80808080-8080-8080-8080-808080808080", "00000000-0000-0000-0000-000000000000"])) == [
        "\U0001f511",
        None,
    ]


def test_dates_times_and_booleans_take_literals_of_their_kinds() -> None:
    schema = Schema(
        optional(1, "d", DateType()),
        optional(2, "t", TimeType()),
        optional(3, "z", TimestamptzType()),
        optional(4, "b", BooleanType()),
    )
    moment = datetime.datetime(2020, 1, 2, 3, 4, 5, 6, tzinfo=datetime.timezone.utc)
    rows = [
        {"d": datetime.date(2020, 1, 1), "t": datetime.time(3, 4, 5, 6), "z": moment, "b": True},
        {"d": datetime.date(1969, 12, 31), "t": datetime.time(0), "z": moment - datetime.timedelta(1), "b": False},
        dict.fromkeys("dtzb"),
    ]
    for row_filter, wanted in (
        ("d = '2020-01-01'", [0]),
        ("d < '1970-01-01'", [1]),
        (LessThan("d", datetime.datetime(2020, 1, 1)), [1]),
        (EqualTo("d", datetime.datetime(2020, 1, 1)), [0]),
        ("t >= '03:04:05.000006'", [0]),
        ("t in ('03:04:05.000006', '00:00:00')", [0, 1]),
        (LessThan("t", datetime.time(3)), [1]),
        ("z = '2020-01-02T04:04:05.000006+01:00'", [0]),
        ("z < '2020-01-02T03:04:05.000006+00:00'", [1]),
        (NotIn("z", [moment, moment + datetime.timedelta(1)]), [1, 2]),
        ("b = true", [0]),
        ("b < true", [1]),
        ("b != 'false'", [0]),
        ("not b in (true, false)", [2]),
    ):
        assert passing(schema, rows, row_filter) == wanted, row_filter


def test_rows_of_a_partition_by_a_double_are_found_and_deleted_by_its_exact_value(tmp_path: Path) -> None:
    """The threat: PyIceberg rounds partition values, so that a file is left out, or another partition's deletes apply.

    The nearest float of 0.1 is a double of its own.
    """
    schema = Schema(required(1, "id", LongType()), optional(2, "d", DoubleType()))
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "d"), spec_id=0)
    values = [0.1, 0.10000000149011612, 3e300, None]
    lake = DeleteLake(tmp_path, schema, specs=[spec])
    for number, value in enumerate(values):
        lake.add([{"id": number, "d": value}, {"id": number + 10, "d": value}], 1, partition=[value])
    deletes = Schema(required(1, "id", LongType()))
    lake.add([{"id": 10}, {"id": 11}], 2, schema=deletes, equality_ids=[1], partition=[0.1])
    table = lake.open()
    for number, value in enumerate(values):
        row_filter = "d is null" if value is None else EqualTo("d", value)
        wanted = [0] if number == 0 else [number, number + 10]
        assert table.scan(row_filter=row_filter).to_arrow()["id"].to_pylist() == wanted


def test_names_of_any_characters_stand_in_double_quotes(tmp_path: Path) -> None:
    schema = Schema(
        optional(1, "a.b", LongType()),
        optional(2, "a 'é", StringType()),
        optional(3, "st", StructType(optional(4, "x.y", LongType()))),
    )
    lake = DeleteLake(tmp_path, schema)
    lake.add([{"a.b": number, "a 'é": f"it's {number}", "st": {"x.y": -number}} for number in range(5)], 1)
    table = lake.open()
    for row_filter, wanted in (
        ("a.b > 2", [3, 4]),
        ('2 < "a"."b"', [3, 4]),
        ("\"a 'é\" = 'it''s 1'", [1]),
        ("st.x.y in (-1, -3) and a.b != 3", [1]),
        ("\"a 'é\" like 'it''s%' and not a.b = 4", [0, 1, 2, 3]),
    ):
        assert table.scan(row_filter=row_filter).to_arrow()["a.b"].to_pylist() == wanted, row_filter
    assert table.scan(columns=["st.x.y", "a.b"]).to_arrow().column_names == ["st", "a.b"]


# -- beside PyIceberg ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(2))
def test_rows_of_every_type_pass_as_in_pyiceberg(seed: int, tmp_path: Path) -> None:
    """Random filters over the same rows, in a table of PyIceberg's and in an encrypted one."""
    made = RandomTable("t", seed)
    made.columns = [Column(f"c{place}", kind) for place, kind in enumerate(POOLS)]
    schema = Schema(
        required(100, "id", LongType()),
        *(optional(101 + place, each.name, iceberg_type(each.kind)) for place, each in enumerate(made.columns)),
    )
    arrow = schema_to_pyarrow(schema, include_field_ids=False)
    chance = random.Random(seed)

    def value(kind: str) -> Any:
        found = None if chance.random() < 0.2 else python_value(kind, chance.choice(POOLS[kind]))
        # In lists, PyIceberg has two zeros.
        return found + 0.0 if isinstance(found, float) else found

    catalog = SqlCatalog("plain", uri="sqlite://", warehouse=tmp_path.as_uri())
    catalog.create_namespace("db")
    plain = catalog.create_table("db.t", schema)
    secret = create_table(None, str(tmp_path / "t"), schema, kms=MemoryKms(MASTER_KEYS), key_id="keyA")
    for start in range(0, 60, 20):
        rows = [{"id": start + each, **{name.name: value(name.kind) for name in made.columns}} for each in range(20)]
        table = pa.Table.from_pylist(rows, arrow)
        plain.append(table)
        secret.append(table)
    matched = 0
    for _ in range(120):
        chosen = made.filter().ours
        if "-0.0" in repr(chosen):
            continue
        ours, theirs = (each.scan(row_filter=chosen).to_arrow()["id"].to_pylist() for each in (secret, plain))
        assert sorted(ours) == sorted(theirs), chosen
        assert secret.scan(row_filter=chosen).count() == len(ours)
        matched += 0 < len(ours) < 60
    assert matched > 60


# -- what files lack, and what they call otherwise -----------------------------------------------------------------


def test_a_null_struct_has_null_fields_even_those_that_must_not_be_null(lake: Lake) -> None:
    inner = StructType(required(4, "b", StringType()), required(5, "n", ListType(6, LongType(), True)))
    struct = StructType(required(3, "a", IntegerType()), required(7, "deep", inner), optional(8, "o", IntegerType()))
    avro_inner = record((4, "b", "string"), (5, "n", {"type": "array", "items": "long", "element-id": 6})) | {
        "name": "i"
    }
    avro_struct = record((3, "a", "int"), (7, "deep", avro_inner), (8, "o", nullable("int"))) | {"name": "s"}
    schema = Schema(required(1, "id", LongType()), optional(2, "st", struct))
    rows: list[Any] = [
        {"id": number, "st": None if number % 3 == 0 else {"a": number, "deep": {"b": "x", "n": [number]}, "o": None}}
        for number in range(20)
    ]
    lake.write(record((1, "id", "long"), (2, "st", nullable(avro_struct))), rows)
    lake.write_parquet(schema, rows)
    null = [number for number in range(20) if number % 3 == 0]
    assert lake.read_both(schema).to_pylist() == rows
    for name in ("st", "st.a", "st.deep", "st.deep.b", "st.deep.n"):
        assert lake.read_both(schema, row_filter=IsNull(name))["id"].to_pylist() == null
        assert lake.read_both(schema, row_filter=NotNull(name))["id"].to_pylist() == sorted(set(range(20)) - set(null))
    assert lake.read_both(schema, row_filter=IsNull("st.o")).num_rows == 20
    assert lake.read_both(schema, row_filter=Not(GreaterThan("st.a", 10)))["id"].to_pylist() == [1, 2, 4, 5, 7, 8, 10]


def test_a_field_that_only_the_file_calls_required_is_null_where_its_struct_is(lake: Lake) -> None:
    rows = [{"id": number, "st": None if number % 2 else {"a": number}} for number in range(6)]
    written = Schema(required(1, "id", LongType()), optional(2, "st", StructType(required(3, "a", IntegerType()))))
    lake.write_parquet(written, rows)
    table = Schema(required(1, "id", LongType()), optional(2, "st", StructType(optional(3, "a", LongType()))))
    for row_filter, wanted in ((IsNull("st.a"), [1, 3, 5]), (NotNull("st.a"), [0, 2, 4]), (EqualTo("st.a", 2), [2])):
        assert lake.read(table, path=lake.parquet, row_filter=row_filter)["id"].to_pylist() == wanted


DEFAULTS = [
    (DateType(), datetime.date(2020, 5, 17), "'2020-05-17'", "'2020-05-18'"),
    (TimestampType(), datetime.datetime(2020, 5, 17, 1, 2, 3), "'2020-05-17T01:02:03'", "'2021-01-01T00:00:00'"),
    (DecimalType(9, 2), decimal.Decimal("1.50"), "1.50", "1.51"),
    (StringType(), "old", "'old'", "'p'"),
    (LongType(), 7, "7", "8"),
    (DoubleType(), 0.5, "0.5", "0.75"),
]


@pytest.mark.parametrize(("kind", "default", "same", "more"), DEFAULTS, ids=[str(each[0]) for each in DEFAULTS])
def test_files_that_lack_a_column_have_its_default(
    tmp_path: Path, kind: Any, default: Any, same: str, more: str
) -> None:
    old = Schema(required(1, "id", LongType()))
    new = Schema(required(1, "id", LongType()), optional(2, "c", kind, initial_default=default))
    lake = DeleteLake(tmp_path, old, new)
    lake.add([{"id": number} for number in range(25)], 1, schema=old)
    lake.add([{"id": number, "c": None} for number in range(25, 30)], 2, schema=new)
    lake.add([{"id": number, "c": default} for number in range(30, 40)], 3, schema=new)
    lake.add([{"id": 40, "c": None}], 4, schema=new)
    table = lake.open()
    null = [*range(25, 30), 40]
    for row_filter, wanted in (
        (f"c = {same}", [*range(25), *range(30, 40)]),
        (f"c < {more}", [*range(25), *range(30, 40)]),
        (f"c >= {more}", []),
        (f"c not in ({more}, {same})", null),
        ("c is null", null),
        ("c is not null", sorted(set(range(41)) - set(null))),
    ):
        scan = table.scan(row_filter=row_filter)
        assert sorted(scan.to_arrow()["id"].to_pylist()) == wanted, row_filter
        assert scan.count() == len(wanted)


def test_a_default_in_a_struct_is_not_there_where_the_struct_is_null(tmp_path: Path) -> None:
    old = Schema(required(1, "id", LongType()), optional(2, "st", StructType(optional(3, "a", LongType()))))
    fields = optional(3, "a", LongType()), optional(4, "b", LongType(), initial_default=5)
    lake = DeleteLake(tmp_path, old, Schema(required(1, "id", LongType()), optional(2, "st", StructType(*fields))))
    lake.add([{"id": number, "st": None if number % 2 else {"a": number}} for number in range(10)], 1, schema=old)
    table = lake.open()
    assert table.scan(row_filter="st.b = 5").to_arrow()["id"].to_pylist() == [0, 2, 4, 6, 8]
    assert table.scan(row_filter="st.b is null").to_arrow()["id"].to_pylist() == [1, 3, 5, 7, 9]
    assert table.scan(row_filter="st.b != 5").count() == 0


def test_a_column_that_was_promoted_is_compared_as_what_it_is_now(tmp_path: Path) -> None:
    kinds = ((FloatType(), IntegerType(), DecimalType(5, 2)), (DoubleType(), LongType(), DecimalType(20, 2)))
    old, new = (Schema(*(optional(index, f"c{index}", kind) for index, kind in enumerate(each, 1))) for each in kinds)
    lake = DeleteLake(tmp_path, old, new)
    rows = [{"c1": 0.1, "c2": number, "c3": decimal.Decimal("0.10")} for number in range(13)]
    lake.add(rows, 1, schema=old, bounds={1: (0.1, 0.1), 2: (0, 12), 3: (decimal.Decimal("0.10"),) * 2})
    table = lake.open()
    # The float that is nearest to 0.1 is more than that.
    assert table.scan(row_filter="c1 > 0.1").count() == 13
    assert table.scan(row_filter="c1 = 0.1").count() == 0
    assert table.scan(row_filter="c2 < 3000000000 and c3 = 0.10").count() == 13
    assert table.scan(row_filter="c2 > 3000000000").plan_files() == []
    assert table.scan(row_filter="c3 > 0.10").plan_files() == []


@pytest.mark.parametrize("file_format", [FileFormat.PARQUET, FileFormat.AVRO], ids=["parquet", "avro"])
def test_lists_and_maps_are_null_or_not(lake: Lake, file_format: FileFormat) -> None:
    schema = Schema(
        required(1, "id", LongType()),
        optional(2, "li", ListType(3, LongType(), False)),
        optional(4, "ma", MapType(5, StringType(), 6, LongType(), False)),
    )
    rows: list[Any] = [
        {"id": 0, "li": None, "ma": {}},
        {"id": 1, "li": [], "ma": None},
        {"id": 2, "li": [None], "ma": {"a": None}},
    ]
    items = {"type": "array", "items": nullable("long"), "element-id": 3}
    pairs = {"type": "map", "values": nullable("long"), "key-id": 5, "value-id": 6}
    lake.write(record((1, "id", "long"), (2, "li", nullable(items)), (4, "ma", nullable(pairs))), rows)
    lake.write_parquet(schema, [row | {"ma": row["ma"] and list(row["ma"].items())} for row in rows])
    path = lake.parquet if file_format == FileFormat.PARQUET else lake.avro

    def read(row_filter: str) -> list[int]:
        found = lake.read(schema, path=path, columns=schema.select("id"), row_filter=parsed(row_filter))
        return found["id"].to_pylist()

    assert read("li is null") == [0]
    assert read("li is not null") == [1, 2]
    assert read("ma is null") == [1]
    assert read("ma is not null and li is not null") == [2]
