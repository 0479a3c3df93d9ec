"""Parquet, and columns that are directories, are read as ``spark.read`` reads them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa

from ags1.errors import FormatError
from ags1.spark.source.decoders import decoder_for
from ags1.spark.source.decoders.types import conformed
from ags1.spark.source.options import SourceOptions
from ags1.spark.source.reader import constant, inferred, values_of
from tests.spark.source_files import END, options, plain, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Days and times from the year 1 to the year 9999.
_DAYS = "cast((id * 7919) % 3652059 - 719162 as int)"
_MICROSECONDS = f"{_DAYS} * 86400000000L + (id * 104729000007) % 86400000000L"
PARQUET = f"""
    id, cast(id % 256 - 128 as tinyint) b, cast(id as smallint) s, cast(id as int) i, cast(id / 3 as float) f, id / 3 d,
    id % 2 = 0 z, cast(id % 999 as decimal(5, 2)) c, cast(id / 7 as decimal(18, 4)) e,
    cast(id * 1e20 / 7 as decimal(38, 10)) g,
    cast(id as string) t, cast(cast(id as string) as binary) o, cast('x' as varchar(3)) vc, cast('y' as char(3)) ch,
    date_from_unix_date({_DAYS}) day, timestamp_micros({_MICROSECONDS}) at, make_dt_interval(id, 1, -2, 3.5) dt,
    cast(from_utc_timestamp(timestamp_micros({_MICROSECONDS}), 'UTC') as timestamp_ntz) local,
    array(timestamp_micros({_MICROSECONDS}), null) a, map(cast(id as string), make_dt_interval(id)) m,
    named_struct('q', id, 'r', array(named_struct('w', date_from_unix_date({_DAYS})))) st,
    if(id % 5 = 0, null, cast(id as string)) n, named_struct('x', make_dt_interval(id)) sd
"""


ZONES = ("UTC", "Europe/Berlin", "America/New_York")


def comparable(kind: pa.DataType) -> pa.DataType:
    """A type whose values Python has, whatever they are: numbers for days and times."""
    types = pa.types
    if types.is_date(kind):
        return pa.int32()
    if types.is_timestamp(kind) or types.is_duration(kind):
        return pa.int64()
    if types.is_list(kind):
        return pa.list_(comparable(kind.value_type))
    if types.is_map(kind):
        return pa.map_(kind.key_type, comparable(kind.item_type))
    if types.is_struct(kind):
        return pa.struct([pa.field(each.name, comparable(each.type)) for each in kind])
    return kind


def values(table: pa.Table) -> list[str]:
    """The rows, as texts that are the same for the same values, NaN included."""
    columns = [
        table.column(name).cast(comparable(table.schema.field(name).type)).to_pylist() for name in table.column_names
    ]
    columns = [
        [dict(each) if isinstance(each, list) and each and isinstance(each[0], tuple) else each for each in column]
        for column in columns
    ]
    rows = zip(*columns, strict=True) if columns else [()] * table.num_rows
    return [repr(dict(zip(table.column_names, row, strict=True))) for row in rows]


def ours(data: bytes, schema: pa.Schema, chosen: SourceOptions) -> list[str]:
    """The rows of a file by the decoder."""
    decoder = decoder_for(chosen)
    file = plain(data, 1 << 16, "00000")
    read = decoder.read(file, 0, END, schema.names)
    batches = [conformed(batch, schema, file.name) for batch in read]
    return values(pa.Table.from_batches(batches, schema))


def arrow_schema(given: Any) -> pa.Schema:
    """The schema in Arrow of a schema of Spark's, or of its text."""
    from pyspark.sql.types import StructType

    from ags1.spark.source.reader import arrow_schema

    return arrow_schema(StructType.fromDDL(given) if isinstance(given, str) else given)


@pytest.mark.parametrize(
    ("zone", "kind"), [(ZONES[0], "TIMESTAMP_MICROS"), (ZONES[1], "INT96"), (ZONES[2], "TIMESTAMP_MILLIS")]
)
def test_parquet_of_every_type_is_read_as_spark_reads_it(
    spark: SparkSession, tmp_path: Path, zone: str, kind: str
) -> None:
    settings = {"spark.sql.session.timeZone": zone, "spark.sql.parquet.outputTimestampType": kind}
    before = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        spark.sql(f"SELECT {PARQUET} FROM range(2000)").coalesce(1).write.parquet(str(tmp_path / "files"))
        theirs = spark.read.parquet(str(tmp_path / "files"))
        (data,) = [each.read_bytes() for each in (tmp_path / "files").glob("*.parquet")]
        inferred = decoder_for(options(decode="parquet")).schema_of(plain(data, 1 << 16))
        schema = arrow_schema(theirs.schema)
        assert [str(field.type) for field in inferred] == [str(field.type) for field in schema]
        assert ours(data, inferred, options(decode="parquet")) == values(theirs.toArrow().cast(schema))
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def test_parquet_that_spark_reads_otherwise_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    chosen = options(decode="parquet")
    cases = {
        "make_ym_interval(1, 2) x": "'x' has year-month intervals, .* give a schema, in which it is an int",
        "array(parse_json('{\"a\": 1}')) x": "'x' has variants, .*write to_json",
        "date'1500-01-01' x": "Julian calendar, by Spark's rebase mode LEGACY",
    }
    spark.conf.set("spark.sql.parquet.datetimeRebaseModeInWrite", "LEGACY")
    try:
        for number, (column, message) in enumerate(cases.items()):
            spark.range(2).selectExpr("id", column).coalesce(1).write.parquet(str(tmp_path / str(number)))
            (data,) = [each.read_bytes() for each in (tmp_path / str(number)).glob("*.parquet")]
            with pytest.raises(FormatError, match=message):
                decoder_for(chosen).schema_of(plain(data))
            # What is not wanted does not matter.
            schema = arrow_schema("id bigint")
            assert rows(plain(data), chosen, schema, [0, END]) == [{"id": 0}, {"id": 1}]
    finally:
        spark.conf.unset("spark.sql.parquet.datetimeRebaseModeInWrite")


# Of each column that is a directory, names that all are of one type, or of types with a common one.
DIRECTORIES = [
    "1 -4 007 0 2147483647 -2147483648",
    "2147483648 1 -9223372036854775808",
    "1.5 2 -0.25 0.0",
    "1.5 2147483648",
    "2024-01-01 2024-02-29 1582-10-20 0001-01-01 9999-12-31",
    "2024-01-01 2024-02-30",
    "2024-01-01 1",
    "true a 1 2024",
    "é%20x a%2Fb",
]


def test_columns_that_are_directories_are_those_that_spark_makes_of_them(spark: SparkSession, tmp_path: Path) -> None:
    for seed in range(3):
        chance, root = random.Random(seed), tmp_path / str(seed)
        names = []
        for _ in range(4):
            few = [chance.choice([*texts.split(), "__HIVE_DEFAULT_PARTITION__"]) for texts in DIRECTORIES]
            parts = (f"{chance.choice('pP')}{index}={text}/" for index, text in enumerate(few))
            names.append("".join(parts) + "f.txt")
        for name in sorted(set(names)):
            (root / name).parent.mkdir(parents=True)
            (root / name).write_text("x")
        frame = spark.read.text(str(root)).drop("value")
        schema = pa.schema(inferred(sorted(set(names))))
        # Spark has a type of its own for a column that is null everywhere.
        wanted = [pa.string() if pa.types.is_null(kind) else kind for kind in arrow_schema(frame.schema).types]
        assert schema.types == wanted, names
        rows = []
        for name in set(names):
            found = {key.lower(): value for key, value in values_of(name).items()}
            row = [pa.array([constant(found[each.name.lower()], each, name)], each.type) for each in schema]
            rows += values(pa.Table.from_arrays(row, schema=schema))
        assert sorted(rows) == sorted(values(frame.toArrow().rename_columns(schema.names).cast(schema))), names
