"""``df.write.format("ags1")``: datasets that plain Python opens, whole or not at all, whatever becomes of the tasks."""

from __future__ import annotations

import datetime
import decimal
import gzip
import io
import os
import pickle
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

import ags1.spark
from ags1 import dataset
from ags1.errors import ConflictError, FormatError
from ags1.kms import load
from ags1.spark.source.options import WriteOptions
from ags1.spark.source.writer import Ags1Writer, Written, writer_for
from tests.spark.trees import give_up, unfinished, versions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.spark.conftest import Storage

UTC = datetime.timezone.utc
SCHEMA = """
    id bigint, small tinyint, half smallint, number int, single float, double double, flag boolean, text string,
    octets binary, day date, moment timestamp, clock timestamp_ntz, price decimal(20,9), numbers array<int>,
    point struct<x: int, at: timestamp>, points array<struct<x: int, y: string>>, tags map<string, bigint>
"""
ROWS: list[tuple[Any, ...]] = [
    (
        1, -8, -16, -32, 0.1, 1e300, True, 'a "quoted"\\\n\x01 text, é€😀', b"\x00\xff",
        datetime.date(2026, 1, 2), datetime.datetime(2026, 1, 2, 3, 4, 5, 6, UTC), datetime.datetime(1969, 1, 1),
        decimal.Decimal("12345678901.000000001"), [1, None, 3], (7, datetime.datetime(2026, 1, 2, tzinfo=UTC)),
        [(1, "a"), None, (None, None)], {"a": 1, "b": None},
    ),
    (2, *(None,) * 16),
    (
        3, 0, 0, 0, -0.0, 1.0, False, "", b"", datetime.date(1, 1, 1), datetime.datetime(1900, 1, 1, tzinfo=UTC),
        datetime.datetime(9999, 12, 31), decimal.Decimal("-0.000000001"), [], (None, None), [], {},
    ),
]  # fmt: skip

Write = Callable[..., None]


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    return tmp_path / "vault"


@pytest.fixture
def write(spark: SparkSession, kms_url: str, vault: Path) -> Write:
    """Writes a DataFrame into the dataset."""
    ags1.spark.register(spark)

    def write(frame: DataFrame, mode: str = "append", path: Any = vault, **options: Any) -> None:
        given = {"kms": kms_url, "key_id": "lake", "decode": "parquet", **options}
        present = {name: str(value) for name, value in given.items() if value is not None}
        frame.write.format("ags1").mode(mode).options(**present).save(str(path))

    return write


@pytest.fixture
def as_a_task(kms_url: str, vault: Path) -> Write:
    """Writes a DataFrame into the dataset as the one task of a query does, without that query, which takes a second."""

    def write(frame: DataFrame, mode: str = "append", **options: Any) -> None:
        given = {"path": vault, "kms": kms_url, "key_id": "lake", "decode": "parquet", **options}
        writer = writer_for({name: str(value) for name, value in given.items()}, frame.schema, mode == "overwrite")
        writer.commit([writer.write(iter(frame.toArrow().to_batches()))])

    return write


def plain(path: Any, kms_url: str) -> dict[str, bytes]:
    """What plain Python finds in a dataset."""
    with dataset.open(path, load(kms_url)) as opened:
        if isinstance(path, Path):
            # Attempts that failed may have left what nobody names.
            assert {each.code for each in opened.verify().findings} <= {"unreferenced"}
        found = {}
        for entry in opened.files:
            with opened.open(entry.path) as reader:
                found[entry.path] = reader.read()
        return found


def lines(path: Any, kms_url: str) -> list[str]:
    return sorted(line for data in plain(path, kms_url).values() for line in data.decode().splitlines())


def assert_clean(vault: Path) -> None:
    assert unfinished(vault) == []
    assert set(os.listdir(vault / "_ags1")) <= {"manifests", "runs", *versions(vault)}


def values(frame: DataFrame, count: int = 10, parts: int = 2) -> DataFrame:
    """One column of texts."""
    return frame.sparkSession.range(0, count, 1, parts).selectExpr("cast(id as string) value")


# -- formats -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("decode", ["avro", "arrow", "parquet"])
def test_rows_of_all_types_come_back(spark: SparkSession, write: Write, vault: Path, kms_url: str, decode: str) -> None:
    frame = spark.createDataFrame(ROWS, SCHEMA)
    write(frame.coalesce(1), decode=decode)
    read = spark.read.format("ags1").options(kms=kms_url, decode=decode).schema(frame.schema).load(str(vault))
    assert [repr(row) for row in read.orderBy("id").collect()] == [repr(row) for row in frame.collect()]


def test_plain_python_reads_what_spark_wrote(spark: SparkSession, as_a_task: Write, vault: Path, kms_url: str) -> None:
    frame = spark.range(5).selectExpr("id", "concat('n', id) name").coalesce(1)
    for number, decode in enumerate(("avro", "arrow", "parquet")):
        as_a_task(frame, "overwrite", decode=decode)
        ((path, data),) = plain(vault, kms_url).items()
        assert path.endswith(f".{decode}")
        if decode == "avro":
            rows = list(fastavro.reader(io.BytesIO(data)))
        else:
            rows = (
                pa.ipc.open_file(data).read_all() if decode == "arrow" else pq.read_table(io.BytesIO(data))
            ).to_pylist()
        assert rows == [{"id": index, "name": f"n{index}"} for index in range(5)]
        with dataset.open(vault, load(kms_url)) as opened:
            assert opened.version == number + 1
    assert_clean(vault)


def test_a_null_alone_in_a_line_is_a_row_all_the_same(
    spark: SparkSession, as_a_task: Write, vault: Path, kms_url: str
) -> None:
    frame = spark.createDataFrame([("a",), (None,), ("b",)], "text string").coalesce(1)
    as_a_task(frame, decode="text")
    assert list(plain(vault, kms_url).values()) == [b"a\n\nb\n"]


def test_lines_are_compressed_before_they_are_encrypted(
    spark: SparkSession, as_a_task: Write, vault: Path, kms_url: str
) -> None:
    as_a_task(values(spark.range(1), 1000, 1), decode="text", compression="gzip")
    ((path, data),) = plain(vault, kms_url).items()
    assert path.endswith(".txt.gz")
    assert gzip.decompress(data).decode().splitlines() == [str(index) for index in range(1000)]


@pytest.mark.parametrize(
    ("column", "decode", "message"),
    [
        ("1 c", "text", "decode=text writes one column of strings, not c int32: select one, such as to_json"),
        ("map(1, 2) c", "avro", "keys of maps are strings there"),
        ("1 `c d`", "avro", "'c d' is not a name in Avro"),
    ],
)
def test_types_that_a_format_lacks_are_refused_before_a_task_runs(
    spark: SparkSession, vault: Path, kms_url: str, column: str, decode: str, message: str
) -> None:
    schema = spark.range(1).selectExpr(column).schema
    with pytest.raises(ValueError, match=message):
        writer_for({"path": str(vault), "kms": kms_url, "key_id": "lake", "decode": decode}, schema, False)
    assert not vault.exists()


# -- the dataset -------------------------------------------------------------------------------------------------------


def test_append_adds_and_overwrite_replaces_in_one_version_each(
    spark: SparkSession, write: Write, vault: Path, kms_url: str, tmp_path: Path
) -> None:
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "zz").write_text("python\n")
    (tmp_path / "raw" / "none").mkdir()
    dataset.encrypt(tmp_path / "raw", vault, load(kms_url), "lake").close()
    for index in (1, 2):
        write(values(spark.range(1), index), decode="text", key_id=None)
    assert lines(vault, kms_url) == ["0", "0", "1", "python"]
    with dataset.open(vault, load(kms_url)) as opened:
        assert sorted({entry.version for entry in opened.files}) == [1, 2, 3]
        assert [each.path for each in opened.files.directories()] == ["none/"]
    write(values(spark.range(1), 3), "overwrite", decode="text")
    with dataset.open(vault, load(kms_url)) as opened:
        assert list(opened.files.directories()) == []
    assert lines(vault, kms_url) == ["0", "1", "2"]
    assert not (vault / "zz").exists()
    assert_clean(vault)


def test_a_dataset_can_be_overwritten_from_itself(spark: SparkSession, write: Write, vault: Path, kms_url: str) -> None:
    write(values(spark.range(1), 10), decode="text")
    read = spark.read.format("ags1").options(kms=kms_url, decode="text").load(str(vault))
    write(read.where("value > 7"), "overwrite", decode="text")
    assert lines(vault, kms_url) == ["8", "9"]


def test_no_rows_are_no_version_and_overwrite_empties(
    spark: SparkSession, write: Write, vault: Path, kms_url: str
) -> None:
    none = values(spark.range(1)).where("value < 0")
    write(values(spark.range(1)), decode="text")
    for mode, version, count in (("append", 1, 10), ("overwrite", 2, 0)):
        write(none, mode, decode="text")
        with dataset.open(vault, load(kms_url)) as opened:
            assert opened.version == version
        assert len(lines(vault, kms_url)) == count
        assert_clean(vault)


def test_a_task_begins_another_file_when_one_is_large(
    spark: SparkSession, as_a_task: Write, vault: Path, kms_url: str
) -> None:
    as_a_task(values(spark.range(1), 1000, 1), decode="text", max_file_bytes="1k")
    sizes = [len(data) for data in plain(vault, kms_url).values()]
    assert len(sizes) >= 3
    assert max(sizes) <= 2048
    assert sorted(map(int, lines(vault, kms_url))) == list(range(1000))


def test_what_spark_does_not_hand_on_is_refused_and_not_forgotten(
    spark: SparkSession, write: Write, vault: Path, kms_url: str
) -> None:
    frame = values(spark.range(1))
    with pytest.raises(Exception, match=r'cannot be written in the "ErrorIfExists" mode.*"Append" or "Overwrite" mode'):
        write(frame, "error", decode="text")
    writer = frame.write.format("ags1").mode("append").partitionBy("value")
    with pytest.raises(Exception, match="partitioning or clustering columns do not match"):
        writer.options(kms=kms_url, key_id="lake", decode="text").save(str(vault))
    assert not vault.exists()


# -- tasks that fail ---------------------------------------------------------------------------------------------------


def test_a_task_that_fails_leaves_the_dataset_as_it_was(
    spark: SparkSession, write: Write, vault: Path, kms_url: str
) -> None:
    write(values(spark.range(1)), decode="text")
    before = plain(vault, kms_url)

    def failing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            if "19" in batch.column(0).to_pylist():
                raise ValueError("on purpose")

    bad = values(spark.range(1), 20, 2).mapInArrow(failing, "value string")
    with pytest.raises(Exception, match="on purpose"):
        write(bad, "overwrite", decode="text", max_file_bytes="1")
    assert plain(vault, kms_url) == before
    assert_clean(vault)


def test_a_writer_that_is_killed_leaves_files_that_nobody_sees(
    spark: SparkSession, as_a_task: Write, vault: Path, kms_url: str
) -> None:
    """The driver is gone: nobody commits or aborts. A later run does not mind, and clean removes the rest."""
    schema = spark.range(1).selectExpr("'x' value").schema
    options = {"path": str(vault), "kms": kms_url, "key_id": "lake", "decode": "text"}
    lost = writer_for(options, schema, False)
    lost.write(iter([pa.RecordBatch.from_pydict({"value": ["lost"]})]))
    as_a_task(values(spark.range(1), 1), decode="text")
    assert lines(vault, kms_url) == ["0"]
    with dataset.open(vault, load(kms_url)) as opened:
        (left,) = opened.verify().findings
    assert left.code == "unreferenced"
    assert give_up(vault, kms_url).objects == 1
    with dataset.open(vault, load(kms_url)) as opened:
        assert opened.verify().findings == []
    assert_clean(vault)


def test_a_write_that_was_given_up_and_expired_cannot_be_committed(
    spark: SparkSession, as_a_task: Write, vault: Path, kms_url: str
) -> None:
    as_a_task(values(spark.range(1), 1), decode="text")
    options = {"path": str(vault), "kms": kms_url, "decode": "text"}
    slow = writer_for(options, spark.range(1).selectExpr("'x' value").schema, False)
    message = slow.write(iter([pa.RecordBatch.from_pydict({"value": ["late"]})]))
    give_up(vault, kms_url)
    with pytest.raises(ConflictError, match="expire has given up this run"):
        slow.commit([message])
    assert lines(vault, kms_url) == ["0"]


def test_a_worker_that_is_killed_is_tried_again_and_a_task_that_fails_changes_nothing_on_an_object_store(
    spark: SparkSession, write: Write, kms_url: str, s3: Storage, tmp_path: Path
) -> None:
    path = f"{s3.url}/vault"
    mark = tmp_path / "killed"

    def once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            if "3" in batch.column(0).to_pylist() and not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)

    write(values(spark.range(1), 4).mapInArrow(once, "value string"), path=path, decode="text", max_file_bytes="1")
    assert lines(path, kms_url) == ["0", "1", "2", "3"]

    def failing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            if "3" in batch.column(0).to_pylist():
                raise ValueError("on purpose")

    with pytest.raises(Exception, match="on purpose"):
        write(values(spark.range(1), 4, 4).mapInArrow(failing, "value string"), path=path, decode="text")
    assert lines(path, kms_url) == ["0", "1", "2", "3"]
    write(values(spark.range(1), 1), "overwrite", path, decode="text")
    assert lines(path, kms_url) == ["0"]
    # Tasks of the failed write may have been at work when it was aborted.
    give_up(path, kms_url)
    with dataset.open(path, load(kms_url)) as opened:
        assert opened.verify().findings == []


# -- options and what travels ------------------------------------------------------------------------------------------


def parse(**options: str) -> WriteOptions:
    return WriteOptions.parse({"path": "vault", "kms": "local:keys.json", "decode": "text", **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"key": "00" * 16}, "has no option 'key' here; it has compression, .*A key is never an option"),
        ({"kms": ""}, "the option kms must be a URL"),
        ({"decode": "binary"}, "the option decode must be one of text, avro, arrow, parquet"),
        ({"partition_by": "day"}, "has no option 'partition_by' here; it has compression"),
        ({"compression": "snappy"}, "compression must be one of none, gzip for decode=text"),
        ({"max_file_bytes": "0"}, "the option max_file_bytes must be a number of bytes"),
    ],
)
def test_wrong_options_are_named(options: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        parse(**options)
    assert "00000000" not in str(caught.value)


def test_what_is_missing_is_named(spark: SparkSession, kms_url: str, vault: Path) -> None:
    with pytest.raises(ValueError, match="where is the master key"):
        WriteOptions.parse({"path": "vault", "decode": "text"})
    with pytest.raises(ValueError, match="what is to be written"):
        WriteOptions.parse({"path": "vault", "kms": "aws:"})
    schema = spark.range(1).schema
    with pytest.raises(FileNotFoundError, match="there is no ags1 dataset yet: give the option key_id"):
        writer_for({"path": str(vault), "kms": kms_url, "decode": "parquet"}, schema, False)


def test_a_writer_and_its_messages_travel_without_a_key(spark: SparkSession, kms_url: str, vault: Path) -> None:
    options = {"path": str(vault), "kms": kms_url, "key_id": "lake", "decode": "text"}
    writer = writer_for(options, spark.range(1).selectExpr("'x' value").schema, False)
    copy: Ags1Writer = pickle.loads(pickle.dumps(writer))
    message = copy.write(iter([pa.RecordBatch.from_pydict({"value": ["a", "b"]})]))
    travelling = pickle.dumps((writer, message))
    writer.commit([message, None])
    with dataset.open(vault, load(kms_url)) as opened:
        (entry,) = opened.files
        key = bytes(opened.key_metadata(entry.path).encryption_key)
    assert key not in travelling
    assert key.hex().encode() not in travelling


def test_a_task_that_lies_about_its_files_commits_nothing(spark: SparkSession, kms_url: str, vault: Path) -> None:
    options = {"path": str(vault), "kms": kms_url, "key_id": "lake", "decode": "text"}
    writer = writer_for(options, spark.range(1).selectExpr("'x' value").schema, False)
    message = writer.write(iter([pa.RecordBatch.from_pydict({"value": ["a"]})]))
    (file,) = message.files
    ((name, length),) = file.parts
    for lie, reason in (
        (replace(file, parts=(("somebody.else-12345678.ags1", length),)), "its object is of another run"),
        (replace(file, path="../a"), "no path that a file of a dataset can have"),
    ):
        with pytest.raises(FormatError, match=reason):
            writer.commit([Written([lie])])
    assert not (vault / "_ags1").exists()
    other = vault / "somebody.else-12345678.ags1"
    other.write_bytes(b"")
    writer.abort([message, Written([replace(file, parts=((other.name, length),))]), None])
    assert not (vault / name).exists()
    assert other.exists()
