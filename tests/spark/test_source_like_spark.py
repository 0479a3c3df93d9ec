"""CSV and JSON are read as ``spark.read`` reads them: random texts of every form, rows and inferred schemas."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

import ags1.spark
from ags1 import dataset
from ags1.errors import FormatError
from ags1.kms import load
from ags1.spark.source._options import WriteOptions
from ags1.spark.source.decoders import decoder_for
from ags1.spark.source.encoders import encoding_for
from tests.spark.like_spark import (
    CORRUPT,
    JSON_TYPES,
    SCENARIOS,
    ZONES,
    arrow_schema,
    csv_values,
    json_lines,
    ours,
    text_of,
    values,
)
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


@pytest.mark.parametrize("name", SCENARIOS)
def test_texts_are_read_as_spark_reads_them(spark: SparkSession, tmp_path: Path, name: str) -> None:
    scenario, count = SCENARIOS[name]
    for number in range(count):
        scenario(spark, tmp_path / str(number), random.Random(f"{name} {number}"), number)


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
        inferred = decoder_for(options(decode="parquet")).infer([plain(data, 1 << 16)])
        schema = arrow_schema(theirs.schema)
        assert [str(field.type) for field in inferred] == [str(field.type) for field in schema]
        assert ours(data, inferred, options(decode="parquet")) == values(theirs.toArrow().cast(schema))
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


@pytest.mark.parametrize("decode", ["csv", "json"])
def test_a_dataset_is_read_as_its_plaintext_is(spark: SparkSession, tmp_path: Path, kms_url: str, decode: str) -> None:
    chance = random.Random(decode)
    lines = ["a,b,c", *csv_values(chance, 40, 3)] if decode == "csv" else json_lines(chance, 40)
    for number in range(3):
        directory = tmp_path / "plain" / f"k={number}"
        directory.mkdir(parents=True)
        (directory / f"{number}.txt").write_bytes(text_of([lines[0], *lines[1 + number :: 3]]))
    dataset.encrypt(tmp_path / "plain", tmp_path / "vault", load(kms_url), "lake").close()
    ags1.spark.register(spark)
    given = {"inferSchema": True, "header": True} if decode == "csv" else {}
    schema = None if decode == "csv" else f"{JSON_TYPES}, {CORRUPT} string, k int"
    found = []
    for reader, path in (
        (spark.read.format("ags1").options(kms=kms_url, decode=decode), "vault"),
        (spark.read.format(decode), "plain"),
    ):
        frame = (reader.schema(schema) if schema else reader).options(**given).load(str(tmp_path / path))
        found.append((frame.dtypes, sorted(values(frame.toArrow().cast(arrow_schema(frame.schema))))))
    assert found[0] == found[1]
    assert len(found[0][1]) > 30


_TEXT = ["a", '"', "\\", ",", ";", "\n", "\r", "\t", " ", "é€😀", "\x01", "null", "'", "#", '\\"', "\ufffe"]
# Spark writes milliseconds, and zones to the minute.
_MOMENT = "timestamp_millis(-2000000000000L + (id * 1047290000123L) % 250000000000000L)"
# Columns of Spark from the text t and the number id.
WRITTEN = {
    "csv": f"""
        t, if(id % 7 = 0, null, t) n, id, cast(id % 256 - 128 as tinyint) b, id % 2 = 0 z, {_MOMENT} at,
        cast({_MOMENT} as timestamp_ntz) local, date_from_unix_date({_DAYS}) day, cast(id / 7 as decimal(38, 10)) g,
        element_at(array(double('NaN'), double('Infinity'), -double('Infinity'), -0D, 1e300D, 5e-324D),
            cast(id % 6 + 1 as int)) d,
        cast(id / 3 as float) f, if(id % 3 = 0, null, cast(-id * 1e-7 as decimal(20, 12))) c
    """,
    "text": "translate(t, '\n\r', '') value",
}
WRITTEN["json"] = f"""{WRITTEN["csv"]}, cast(t as binary) o, array(t, null, '') a, map(t, {_MOMENT}, 'k', null) m,
    named_struct('x', t, 'w', array(named_struct('q', id, 'v', {_MOMENT}))) st"""


@pytest.mark.parametrize("decode", ["csv", "json", "text"])
def test_what_is_written_is_to_spark_what_spark_writes(spark: SparkSession, tmp_path: Path, decode: str) -> None:
    chance = random.Random(decode)
    texts = ["".join(chance.choices(_TEXT, k=chance.randint(0, 6))) for _ in range(400)]
    spark.createDataFrame(list(enumerate(texts)), "id bigint, t string").createOrReplaceTempView("texts")
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        frame = spark.sql(f"SELECT {WRITTEN[decode]} FROM texts").coalesce(1)
        # Spark's writer cuts off blanks, which ours keeps.
        keeping = {"ignoreLeadingWhiteSpace": "false", "ignoreTrailingWhiteSpace": "false"} if decode == "csv" else {}
        frame.write.format(decode).options(**keeping).save(str(tmp_path / "theirs"))
        schema = arrow_schema(frame.schema)
        chosen = WriteOptions.parse({"path": "x", "kms": "local:x", "decode": decode})
        (tmp_path / "ours").mkdir()
        with (tmp_path / "ours" / "file").open("wb") as file:
            encoder = encoding_for(chosen, schema).open(file, 1 << 20)
            for batch in frame.toArrow().cast(schema).to_batches():
                encoder.write(batch)
            encoder.close()
        reader = spark.read.format(decode).schema(frame.schema)
        if decode == "csv":
            reader = reader.option("multiLine", True)
        found = [values(reader.load(str(tmp_path / name)).toArrow().cast(schema)) for name in ("ours", "theirs")]
        assert len(found[0]) == len(found[1]) >= 380
        assert [pair for pair in zip(*found, strict=True) if pair[0] != pair[1]] == []
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


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
                decoder_for(chosen).infer([plain(data)])
            # What is not wanted does not matter.
            schema = arrow_schema("id bigint")
            assert rows(plain(data), chosen, schema, [0, END]) == [{"id": 0}, {"id": 1}]
    finally:
        spark.conf.unset("spark.sql.parquet.datetimeRebaseModeInWrite")
