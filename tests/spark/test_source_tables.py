"""Tables, views and DataFrames of a dataset that grows: what they are, and which version they read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark.sql.types import LongType, StructField, StructType

import ags1.spark
from ags1.errors import AuthenticationError, FormatError
from ags1.spark.source._options import SourceOptions
from ags1.spark.source._reader import SourceReader, infer_schema
from ags1.spark.source._writer import writer_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = StructType([StructField("id", LongType())])


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    return tmp_path / "vault"


@pytest.fixture
def append(vault: Path, kms_url: str) -> Callable[[int], None]:
    """Append a row as a task of a query does, without a query."""

    def append(number: int) -> None:
        options = {"path": str(vault), "kms": kms_url, "key_id": "lake", "decode": "parquet"}
        writer = writer_for(options, SCHEMA, False)
        writer.commit([writer.write(iter([pa.RecordBatch.from_pydict({"id": [number]})]))])

    return append


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    """A session whose tables and views no other test sees."""
    ags1.spark.register(spark)
    for name in ("grows", "other"):
        spark.sql(f"DROP TABLE IF EXISTS {name}")
    return spark


def test_a_view_of_a_table_sees_every_append_and_a_dataframe_the_version_of_its_first_action(
    session: SparkSession, append: Callable[[int], None], vault: Path, kms_url: str
) -> None:
    session.sql("CREATE TABLE grows (id BIGINT) USING ags1")
    where = f"WITH (path = '{vault}', kms = '{kms_url}', decode = 'parquet')"
    append(0)
    session.sql(f"CREATE OR REPLACE TEMPORARY VIEW fresh AS SELECT * FROM grows {where}")
    fixed = session.read.format("ags1").options(kms=kms_url, decode="parquet").load(str(vault))
    assert (session.table("fresh").count(), fixed.count()) == (1, 1)
    append(1)
    session.sql(f"INSERT INTO grows WITH (path = '{vault}', kms = '{kms_url}', decode = 'parquet') SELECT 2L")
    assert session.sql("SELECT sum(id) FROM fresh").collect()[0][0] == 3
    # Spark keeps the plan of the source; Parquet's DataFrames keep their list of files.
    assert fixed.count() == 1
    old = session.read.format("ags1").options(kms=kms_url, decode="parquet", versionAsOf=2).load(str(vault))
    assert old.agg({"id": "sum"}).collect()[0][0] == 1


def test_a_table_that_could_not_be_read_is_not_made_or_says_how(
    session: SparkSession, vault: Path, kms_url: str
) -> None:
    options = f"(path '{vault}', kms '{kms_url}', key_id 'lake', decode 'parquet')"
    for text in (f"OPTIONS {options}", f"OPTIONS (kms '{kms_url}') LOCATION '{vault}'"):
        with pytest.raises(Exception, match=r"hands the options of a table to no query.*CREATE TEMPORARY VIEW"):
            session.sql(f"CREATE TABLE other USING ags1 {text}")
    with pytest.raises(Exception, match=r"give a path.*INSERT INTO t WITH"):
        session.sql(f"CREATE TABLE other USING ags1 OPTIONS {options} AS SELECT 1L id")
    assert not session.catalog.tableExists("other")
    assert not vault.exists()
    given = {"kms": kms_url, "key_id": "lake", "decode": "parquet", "path": str(vault)}
    session.range(3).write.format("ags1").mode("append").options(**given).saveAsTable("other")
    with pytest.raises(Exception, match=r"give a path.*SELECT \* FROM t WITH"):
        session.sql("SELECT * FROM other").collect()
    read = session.read.options(path=str(vault), kms=kms_url, decode="parquet")
    assert read.table("other").count() == 3


# -- the versions of a dataset, without queries ------------------------------------------------------------------------


def rows(vault: Path, kms_url: str, **options: str) -> list[int]:
    given = {"path": str(vault), "kms": kms_url, "decode": "parquet", **options}
    reader = SourceReader(SourceOptions.parse(given), SCHEMA)
    return sorted(row["id"] for task in reader.partitions() for batch in reader.read(task) for row in batch.to_pylist())


def test_a_reader_takes_the_newest_version_each_time_it_plans(
    append: Callable[[int], None], vault: Path, kms_url: str
) -> None:
    append(0)
    options = SourceOptions.parse({"path": str(vault), "kms": kms_url, "decode": "parquet"})
    reader = SourceReader(options, SCHEMA)
    before = reader.partitions()
    append(1)
    assert sum(batch.num_rows for task in reader.partitions() for batch in reader.read(task)) == 2
    # What was planned stays as it was.
    assert sum(batch.num_rows for task in before for batch in reader.read(task)) == 1


def test_several_datasets_in_one_read_are_refused(append: Callable[[int], None], vault: Path, kms_url: str) -> None:
    append(0)
    for path in (f"{vault},{vault}", f"{vault}*"):
        options = SourceOptions.parse({"path": path, "kms": kms_url, "decode": "parquet"})
        with pytest.raises(FormatError, match="load one dataset by its path, without globs, and union several"):
            infer_schema(options)


@pytest.fixture
def three_days(append: Callable[[int], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Versions of 2026-01-01T12:00:00Z and of the days after it."""
    import time

    with monkeypatch.context() as patched:
        for day in (1, 2, 3):
            patched.setattr(time, "time_ns", lambda day=day: (1_767_268_800 + 86_400 * (day - 1)) * 10**9)
            append(day)


@pytest.mark.usefixtures("three_days")
def test_a_version_that_was_changed_does_not_make_time_travel_read_an_older_one(vault: Path, kms_url: str) -> None:
    place, other = (vault / "_ags1" / f"v-{number}.json" for number in (2, 1))
    true = place.read_text()
    for wrong in (
        true.replace('"tag": "', '"tag": "0'),
        true.replace('"file-count": 2', '"file-count": 1'),
        other.read_text().replace('"version": 1', '"version": 2'),
    ):
        assert wrong != true
        place.write_text(wrong)
        with pytest.raises(AuthenticationError):
            rows(vault, kms_url, timestampAsOf="2026-01-02 18:00:00")
    place.unlink()
    with pytest.raises((AuthenticationError, FileNotFoundError)):
        rows(vault, kms_url, timestampAsOf="2026-01-02 18:00:00")


@pytest.mark.usefixtures("three_days")
def test_time_travel_reads_what_was_there(vault: Path, kms_url: str) -> None:
    assert rows(vault, kms_url) == [1, 2, 3]
    assert rows(vault, kms_url, versionAsOf="2") == [1, 2]
    assert rows(vault, kms_url, timestampAsOf="2026-01-02 12:00:00") == [1, 2]
    assert rows(vault, kms_url, timestampAsOf="2026-01-02 11:59:59") == [1]
    assert rows(vault, kms_url, timestampAsOf="2026-01-02T13:30:00+01:30") == [1, 2]
    assert rows(vault, kms_url, timestampAsOf="2030-01-01") == [1, 2, 3]
    with pytest.raises(FileNotFoundError, match="no version of this dataset is kept that was there at 2026-01-01"):
        rows(vault, kms_url, timestampAsOf="2026-01-01")
    with pytest.raises(FileNotFoundError, match="has no version 4"):
        rows(vault, kms_url, version_as_of="4")
    for wrong, message in (
        ({"timestampAsOf": "yesterday"}, "timestamp_as_of must be a date or a time"),
        ({"versionAsOf": "2", "timestampAsOf": "2026-01-01"}, "give only one of"),
    ):
        with pytest.raises(ValueError, match=message):
            rows(vault, kms_url, **wrong)
