"""What is written into a dataset that exists: which columns fit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.types import StructType

from ags1 import dataset
from ags1.spark.source.options import SourceOptions
from ags1.spark.source.reader import SourceReader, arrow_schema, infer_schema
from ags1.spark.source.writer import writer_for
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

    def write(rows: Rows, mode: str = "append", schema: str = SCHEMA, **options: Any) -> None:
        given = {"path": vault, "kms": kms_url, "key_id": "lake", "decode": "parquet", **options}
        types = StructType.fromDDL(schema)
        texts = {name: str(value) for name, value in given.items()}
        writer = writer_for(texts, types, mode == "overwrite")
        columns = zip(*rows, strict=True) if rows else [()] * len(types)
        fields = arrow_schema(types)
        arrays = [pa.array(values, field.type) for values, field in zip(columns, fields, strict=True)]
        writer.commit([writer.write(iter([pa.RecordBatch.from_arrays(arrays, schema=fields)]))])

    return write


def as_texts(rows: list[dict[str, Any]]) -> Rows:
    texts = [[None if row[name] is None else str(row[name]) for name in ("id", "a", "b")] for row in rows]
    return sorted(map(tuple, texts), key=repr)


OTHERS = [
    ("id int, a string, b int, c int", "c int"),
    ("id int, a string", "id int, a string:"),
    ("id int, a string, b string", "b string"),
    ("id bigint, a string, b int", "id bigint"),
]


@pytest.mark.parametrize("decode", ["parquet", "avro", "arrow"])
def test_an_append_with_other_columns_is_refused_before_a_task_runs(
    write: Write, kms_url: str, vault: Path, decode: str
) -> None:
    write([(1, "x", 1)], decode=decode)
    for schema, message in OTHERS:
        with pytest.raises(ValueError, match=message) as caught:
            writer_for({"path": str(vault), "kms": kms_url, "decode": decode}, StructType.fromDDL(schema), False)
        assert "has the columns id int, a string, b int, and the DataFrame" in str(caught.value)


@pytest.mark.parametrize("decode", ["parquet", "text"])
def test_rows_are_not_appended_beside_files_in_directories_that_are_columns(
    write: Write, kms_url: str, vault: Path, tmp_path: Path, decode: str
) -> None:
    """A write makes no directories: readers would find null in the place of their values."""
    (tmp_path / "raw/day=1").mkdir(parents=True)
    if decode == "parquet":
        pq.write_table(pa.table({"a": ["x"]}), tmp_path / "raw/day=1/part.parquet")
    else:
        (tmp_path / "raw/day=1/part.csv").write_text("x\n")
    dataset.encrypt(tmp_path / "raw", vault, kms_url, "lake").close()
    with pytest.raises(ValueError, match=r"day=1/part\.\w+ is in directories that are columns, .*overwrite all of"):
        write([("y",)], schema="a string", decode=decode)
    write([("y",)], "overwrite", schema="a string", decode=decode)
    write([("z",)], schema="a string", decode=decode)


@pytest.mark.parametrize("decode", ["parquet", "avro", "arrow"])
def test_columns_in_another_order_are_taken_by_name(write: Write, vault: Path, kms_url: str, decode: str) -> None:
    write([(1, "x", 2)], decode=decode)
    write([(4, "y", 3)], schema="b int, a string, id int", decode=decode)
    options = SourceOptions.parse({"path": str(vault), "kms": kms_url, "decode": decode})
    reader = SourceReader(options, infer_schema(options))
    rows = [row for task in reader.partitions() for batch in reader.read(task) for row in batch.to_pylist()]
    assert as_texts(rows) == [("1", "x", "2"), ("3", "y", "4")]


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
