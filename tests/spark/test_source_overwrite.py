"""What is written into a dataset that exists: which files an overwrite keeps, and which columns fit."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
import pyarrow.dataset as plain_files
import pyarrow.parquet as pq
from pyspark.sql.types import StructType

from ags1 import dataset
from ags1.spark.engine._captured import CapturedSession
from ags1.spark.source._directories import values_of
from ags1.spark.source._options import SourceOptions
from ags1.spark.source._reader import SourceReader, arrow_schema, infer_schema
from ags1.spark.source._writer import writer_for
from tests.checks import every

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Write = Callable[..., None]
Rows = list[tuple[Any, ...]]
SCHEMA = "id int, a string, b int"


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    return tmp_path / "vault"


@pytest.fixture
def write(spark: SparkSession, kms_url: str, vault: Path) -> Write:
    """Writes rows as the one task of a query does, without a query. The session parses schemas."""

    def write(
        rows: Rows, mode: str = "append", schema: str = SCHEMA, session: CapturedSession | None = None, **options: Any
    ) -> None:
        given = {"path": vault, "kms": kms_url, "key_id": "lake", "decode": "parquet", **options}
        types = StructType.fromDDL(schema)
        texts = {name: str(value) for name, value in given.items()}
        writer = writer_for(texts, types, mode == "overwrite", session)
        columns = zip(*rows, strict=True) if rows else [()] * len(types)
        fields = arrow_schema(types)
        arrays = [pa.array(values, field.type) for values, field in zip(columns, fields, strict=True)]
        writer.commit([writer.write(iter([pa.RecordBatch.from_arrays(arrays, schema=fields)]))])

    return write


def kept(vault: Path, kms_url: str) -> Rows:
    """The rows of Parquet files, with those of their directories, as plain Python finds them."""
    found = []
    with dataset.open(vault, kms_url) as opened:
        for entry in opened.files:
            with opened.open(entry.path) as reader:
                rows = pq.read_table(io.BytesIO(reader.read())).to_pylist()
            found += [{**row, **values_of(entry.path)} for row in rows]
    return as_texts(found)


def as_texts(rows: list[dict[str, Any]]) -> Rows:
    texts = [[None if row[name] is None else str(row[name]) for name in ("id", "a", "b")] for row in rows]
    return sorted(map(tuple, texts), key=repr)


def test_dynamic_and_static_overwrite_keep_what_sparks_parquet_keeps(
    spark: SparkSession, write: Write, vault: Path, kms_url: str, tmp_path: Path
) -> None:
    chance = random.Random(26)
    reference = str(tmp_path / "reference")
    texts = pa.field("a", pa.string()), pa.field("b", pa.string())
    for step, mode in enumerate(("static", "dynamic", "dynamic", "static", "dynamic")):
        count = 30 if step in (0, 3) else 5
        rows = [
            (10 * step + each, chance.choice(["x", "y/z", "é =", None]), chance.choice([1, 2, None]))
            for each in range(count)
        ]
        written = spark.createDataFrame(rows, SCHEMA).coalesce(1).write.mode("overwrite").partitionBy("a", "b")
        written.option("partitionOverwriteMode", mode).parquet(reference)
        write(rows, "overwrite", partition_by="a,b", partitionOverwriteMode=mode)
        found = plain_files.dataset(reference, partitioning=plain_files.HivePartitioning(pa.schema(texts)))
        assert kept(vault, kms_url) == as_texts(found.to_table().to_pylist())


def test_a_dynamic_overwrite_without_rows_changes_nothing(write: Write, vault: Path, kms_url: str) -> None:
    write([(1, "x", 1), (2, "y", 2)], partition_by="a")
    write([], "overwrite", partition_by="a", partition_overwrite_mode="dynamic")
    assert kept(vault, kms_url) == [("1", "x", "1"), ("2", "y", "2")]


def test_an_overwrite_of_directories_says_what_it_means(write: Write, vault: Path, kms_url: str) -> None:
    # There is nothing to lose yet.
    write([(1, "x", 1), (2, "y", 2)], "overwrite", partition_by="a")
    other = [(3, "x", 3)]
    with pytest.raises(ValueError, match="partitionOverwriteMode: static or dynamic"):
        write(other, "overwrite", partition_by="a")
    with pytest.raises(ValueError, match="partitionOverwriteMode: static or dynamic"):
        write(other, "overwrite", session=CapturedSession(), partition_by="a")
    with pytest.raises(ValueError, match="dynamic needs partition_by"):
        write(other, "overwrite", partition_overwrite_mode="dynamic")
    assert kept(vault, kms_url) == [("1", "x", "1"), ("2", "y", "2")]
    session = CapturedSession(overwrite_mode="dynamic")
    write(other, "overwrite", session=session, partition_by="a")
    assert kept(vault, kms_url) == [("2", "y", "2"), ("3", "x", "3")]
    # The option wins over the session, as in Spark.
    write([(4, "y", 4)], "overwrite", session=session, partition_by="a", partition_overwrite_mode="static")
    assert kept(vault, kms_url) == [("4", "y", "4")]


OTHERS = [
    ("id int, a string, b int, c int", {}, "c int"),
    ("id int, a string", {}, "id int, a string:"),
    ("id int, a string, b string", {}, "b string"),
    ("id bigint, a string, b int", {}, "id bigint"),
    (
        "id int, a string, b int",
        {"partition_by": "a"},
        "in directories of no column, and the option partition_by names a",
    ),
]


@pytest.mark.parametrize("decode", ["parquet", "avro", "arrow", "csv"])
def test_an_append_with_other_columns_is_refused_before_a_task_runs(
    write: Write, kms_url: str, vault: Path, decode: str
) -> None:
    further = {"header": "true"} if decode == "csv" else {}
    write([(1, "x", 1)], decode=decode, **further)
    for schema, options, message in OTHERS:
        named = {"path": str(vault), "kms": kms_url, "decode": decode, **further, **options}
        if decode == "csv" and not options and len(StructType.fromDDL(schema)) == 3:
            # CSV has no types.
            writer_for(named, StructType.fromDDL(schema), False)
            continue
        with pytest.raises(ValueError, match=message if decode != "csv" else "columns|directories") as caught:
            writer_for(named, StructType.fromDDL(schema), False)
        if not options and decode != "csv":
            assert "has the columns id int, a string, b int, and the DataFrame" in str(caught.value)


@pytest.mark.parametrize("decode", ["parquet", "avro", "arrow", "csv", "json"])
def test_columns_in_another_order_are_taken_by_name(write: Write, vault: Path, kms_url: str, decode: str) -> None:
    further = {"header": "true"} if decode == "csv" else {}
    write([(1, "x", 2)], decode=decode, **further)
    write([(4, "y", 3)], schema="b int, a string, id int", decode=decode, **further)
    options = SourceOptions.parse({"path": str(vault), "kms": kms_url, "decode": decode, **further})
    reader = SourceReader(options, infer_schema(options))
    rows = [row for task in reader.partitions() for batch in reader.read(task) for row in batch.to_pylist()]
    assert as_texts(rows) == [("1", "x", "2"), ("3", "y", "4")]


def test_directories_of_other_columns_are_refused_for_every_format(write: Write) -> None:
    write([(1, "x", 1)], decode="json", partition_by="a,b")
    for columns in ("b,a", "a", ""):
        with pytest.raises(ValueError, match="directories of a, b, and the option partition_by names"):
            write([(1, "x", 1)], decode="json", partition_by=columns)
    # An overwrite of `A=x` would leave the rows of `a=x`, and readers would have both.
    with pytest.raises(ValueError, match="directories of a, b, and the option partition_by names A, b"):
        write([(1, "x", 1)], schema="id int, A string, b int", decode="json", partition_by="A,b")


def test_directories_under_other_names_are_not_left_beside_their_replacement(
    write: Write, vault: Path, kms_url: str, tmp_path: Path
) -> None:
    # As other writers name a month, and Spark a time.
    for number, (name, schema, row) in enumerate(
        [
            ("b=01", SCHEMA, (1, "x", 1)),
            ("t=2026-01-31 12%3A00%3A00", "id int, t timestamp", (1, datetime(2026, 1, 31, 12, tzinfo=timezone.utc))),
        ]
    ):
        (raw := tmp_path / f"raw{number}" / name).mkdir(parents=True)
        pq.write_table(pa.table({"id": pa.array([1], pa.int32()), "a": ["x"]}), raw / "part.parquet")
        dataset.encrypt(raw.parent, f"{vault}{number}", kms_url, "lake").close()
        given = {"schema": schema, "path": f"{vault}{number}", "partition_by": name[0]}
        with pytest.raises(ValueError, match="so its rows would stay beside those that are to replace them"):
            write([row], "overwrite", partition_overwrite_mode="dynamic", **given)
        write([row], "overwrite", partition_overwrite_mode="static", **given)


def test_directories_that_readers_leave_out_are_not_written(write: Write, vault: Path) -> None:
    with pytest.raises(ValueError, match=r"'\.a' cannot be in partition_by"):
        write([(1, "x", 1)], schema="id int, `.a` string, b int", partition_by=".a")
    assert not vault.exists()


@every("decode", ["parquet", "avro", "arrow"])
def test_types_that_a_format_changes_are_no_other_types(decode: str, write: Write, vault: Path) -> None:
    schema = "id tinyint, d decimal(20,3), t timestamp, n timestamp_ntz, s struct<x: smallint not null, y: array<date>>"
    for _ in range(2):
        write(
            [(1, None, None, None, {"x": 1, "y": None}, None)],
            schema=f"{schema}, m map<string, binary>",
            decode=decode,
            path=f"{vault}-{decode}",
        )


def test_files_of_other_formats_beside_are_not_compared(
    write: Write, kms_url: str, vault: Path, tmp_path: Path
) -> None:
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "notes").write_text("text\n")
    dataset.encrypt(tmp_path / "raw", vault, kms_url, "lake").close()
    write([(1, "x", 1)])
