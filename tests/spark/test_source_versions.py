"""Which version of a dataset that grows is read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark.sql.types import LongType, StructField, StructType

from ags1.errors import FormatError
from ags1.spark.source.options import SourceOptions
from ags1.spark.source.reader import SourceReader, infer_schema
from ags1.spark.source.writer import writer_for

if TYPE_CHECKING:
    pass

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


def test_a_version_that_was_kept_is_read_by_its_number(
    append: Callable[[int], None], vault: Path, kms_url: str
) -> None:
    for number in (1, 2, 3):
        append(number)
    assert rows(vault, kms_url) == [1, 2, 3]
    assert rows(vault, kms_url, versionAsOf="2") == [1, 2]
    with pytest.raises(FileNotFoundError, match="has no version 4"):
        rows(vault, kms_url, version_as_of="4")
    with pytest.raises(ValueError, match="give only one of version_as_of and expected_version"):
        rows(vault, kms_url, versionAsOf="2", expectedVersion="2")
