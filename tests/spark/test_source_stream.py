"""``spark.readStream.format("ags1")``: what comes to a dataset is read once, also by a query that was stopped."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ags1 import dataset
from ags1.errors import AuthenticationError
from ags1.kms import load

pytest.importorskip("pyspark")


import ags1.spark
from ags1.spark.source import inputs
from ags1.spark.source import reader as stream
from ags1.spark.source.reader import StreamReader, stream_reader_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

from tests.checks import HANG_SECONDS
from tests.spark.conftest import Storage

LIMITED = hasattr(stream, "AdmittingStreamReader")


class Lake:
    """A growing dataset, and a query on it that is started again and again."""

    def __init__(self, spark: SparkSession, kms_url: str, work: Path) -> None:
        self.spark = spark
        self.kms_url = kms_url
        self.work = work
        self.raw = work / "raw"
        self.raw.mkdir()
        self.path = str(work / "vault")
        self.checkpoint = work / "checkpoint"

    def add(self, **texts: str) -> int:
        """Encrypt files with plain Python; the dataset's version by then."""
        for name, text in texts.items():
            (self.raw / f"{name}.txt").write_text(text)
        with dataset.encrypt(self.raw, self.path, load(self.kms_url), "lake") as vault:
            return vault.version

    def write(self, *values: str) -> None:
        """Append rows with Spark."""
        frame = self.spark.createDataFrame([(value,) for value in values], "value string").coalesce(1)
        options = {"kms": self.kms_url, "key_id": "lake", "decode": "text"}
        frame.write.format("ags1").mode("append").options(**options).save(self.path)

    def read(self, **options: Any) -> list[list[str]]:
        """Run the query until it has all that there is; the rows of each batch."""
        reader = self.spark.readStream.format("ags1").options(**{"kms": self.kms_url, "decode": "text", **options})
        return followed(reader.load(self.path), self.checkpoint)


def followed(frame: Any, checkpoint: Path) -> list[list[str]]:
    """Run a query on a stream until it has all that there is; the rows of each batch."""
    batches = []

    def keep(frame: Any, number: int) -> None:
        batches.append(sorted(row.value for row in frame.collect()))

    writer = frame.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint))
    assert writer.trigger(availableNow=True).start().awaitTermination(HANG_SECONDS)
    return batches


@pytest.fixture
def lake(spark: SparkSession, kms_url: str, tmp_path: Path) -> Lake:
    ags1.spark.register(spark)
    return Lake(spark, kms_url, tmp_path)


def test_files_of_python_and_of_spark_are_read_exactly_once_across_restarts(lake: Lake, s3: Storage) -> None:
    lake.path = f"{s3.url}/vault"
    lake.add(a="1\n2", b="3")
    assert lake.read() == [["1", "2", "3"]]
    assert lake.read() == []
    lake.write("4", "5")
    lake.add(c="6")
    assert lake.read() == [["4", "5", "6"]]


def test_a_limit_makes_several_batches_and_one_that_failed_is_read_again_alone(lake: Lake) -> None:
    lake.add(a="1")
    lake.add(b="2")
    batches = lake.read(max_versions_per_batch=1)
    # Before Spark 4.2 that trigger takes one batch, and the next run continues after it.
    if not LIMITED:
        assert len(batches) == 1
        batches += lake.read(max_versions_per_batch=1)
    assert batches == [["1"], ["2"]]
    # As if it had been killed between its last batch and the note that it was done.
    for name in ("1", ".1.crc"):
        (lake.checkpoint / "commits" / name).unlink(missing_ok=True)
    lake.add(c="3")
    # Before Spark 4.2 that is the only batch of a run.
    assert lake.read() + lake.read() == [["2"], ["3"]]


def test_latest_begins_with_what_comes_from_now_on(lake: Lake) -> None:
    lake.add(a="old")
    assert lake.read(starting_version="latest") in ([], [[]])
    lake.write("new")
    assert lake.read(starting_version="latest") == [["new"]]


# -- without Spark -----------------------------------------------------------------------------------------------------


@pytest.fixture
def grown(tmp_path: Path, kms_url: str) -> Iterator[Callable[..., StreamReader]]:
    """Readers of a dataset of three versions, a file each."""
    from pyspark.sql.types import StringType, StructField, StructType

    raw = tmp_path / "raw"
    raw.mkdir()
    for name in "abc":
        (raw / f"{name}.txt").write_text(name)
        dataset.encrypt(raw, tmp_path / "vault", load(kms_url), "lake").close()
    schema = StructType([StructField("value", StringType())])

    def make(**options: Any) -> StreamReader:
        given = {"path": str(tmp_path / "vault"), "kms": kms_url, "decode": "text", **options}
        return stream_reader_for({name: str(value) for name, value in given.items()}, schema)

    yield make
    while inputs._cache:
        inputs._cache.popitem()[1].close()


def rows(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[str]:
    found = []
    for partition in pickle.loads(pickle.dumps(reader.partitions(start, end))):
        for batch in pickle.loads(pickle.dumps(reader)).read(partition):
            found += batch.column(0).to_pylist()
    return found


def latest(reader: StreamReader, start: dict[str, Any]) -> dict[str, Any]:
    if not LIMITED:
        reader.partitions(start, start)
        return reader.latestOffset()
    return reader.latestOffset(start, reader.getDefaultReadLimit())  # type: ignore[call-arg, attr-defined]


def test_the_latest_offset_needs_no_key(grown: Callable[..., StreamReader], monkeypatch: pytest.MonkeyPatch) -> None:
    reader = grown()
    monkeypatch.setattr(stream, "DatasetFiles", None)
    start = reader.initialOffset()
    assert start["version"] == 0
    assert latest(reader, start)["version"] == 3
    assert reader.partitions(start, start) == []


def test_offsets_divide_the_files_by_version(grown: Callable[..., StreamReader]) -> None:
    reader = grown(max_versions_per_batch=2)
    first = latest(reader, reader.initialOffset())
    second = latest(reader, first)
    assert (first["version"], second["version"]) == (2, 3)
    assert rows(reader, reader.initialOffset(), first) == ["a", "b"]
    assert rows(reader, first, second) == ["c"]
    # They are what a checkpoint holds.
    assert json.loads(json.dumps(second)) == second


def test_an_offset_of_another_dataset_is_refused(grown: Callable[..., StreamReader]) -> None:
    reader = grown()
    start = {**reader.initialOffset(), "dataset": "another"}
    with pytest.raises(AuthenticationError, match="another dataset than the one that this query has read so far"):
        latest(reader, start)


def test_a_version_which_nobody_made_is_refused(grown: Callable[..., StreamReader], tmp_path: Path) -> None:
    control = tmp_path / "vault" / "_ags1"
    reader = grown()
    start = reader.initialOffset()
    with pytest.raises(AuthenticationError, match="has version 3, but this query has read version 9 of it: an older"):
        reader.partitions(start, {**start, "version": 9})
    text = (control / "v-3.json").read_text()
    assert text.count('"version": 3') == 1
    (control / "v-9.json").write_text(text.replace('"version": 3', '"version": 9'))
    assert latest(reader, start)["version"] == 9
    with pytest.raises(AuthenticationError, match="was changed, or is of another dataset"):
        reader.partitions(start, {**start, "version": 9})


def test_a_file_that_is_replaced_while_it_is_read_comes_as_it_was_and_then_as_it_is(
    grown: Callable[..., StreamReader], tmp_path: Path, kms_url: str
) -> None:
    reader = grown()
    start = reader.initialOffset()
    end = latest(reader, start)
    (partition,) = reader.partitions(start, end)
    (tmp_path / "raw" / "b.txt").write_text("changed")
    dataset.encrypt(tmp_path / "raw", tmp_path / "vault", load(kms_url), "lake").close()
    assert [batch.column(0).to_pylist() for batch in reader.read(partition)] == [["a", "b", "c"]]
    assert rows(reader, end, latest(reader, end)) == ["changed"]


def test_what_was_expired_before_it_was_read_comes_as_far_as_it_is_left(
    grown: Callable[..., StreamReader], tmp_path: Path, kms_url: str
) -> None:
    reader = grown(max_versions_per_batch=1)
    first = latest(reader, reader.initialOffset())
    second = latest(reader, first)
    (tmp_path / "raw" / "b.txt").write_text("changed")
    with dataset.encrypt(tmp_path / "raw", tmp_path / "vault", load(kms_url), "lake") as vault:
        assert vault.version == 4
        vault.expire(keep=1, older_than=None, grace=0)
    assert rows(reader, reader.initialOffset(), first) == ["a"]
    # The file of version 2 was replaced by version 4, with which it comes.
    assert rows(reader, first, second) == []
    third = latest(reader, second)
    assert rows(reader, second, third) == ["c"]
    assert rows(reader, third, latest(reader, third)) == ["changed"]


@pytest.mark.parametrize("more", [1, 2, 3])
def test_an_older_copy_that_others_have_added_to_is_not_read_on(
    grown: Callable[..., StreamReader], tmp_path: Path, kms_url: str, more: int
) -> None:
    """Files of the versions up to the one that was read would never come."""
    reader = grown()
    end = latest(reader, reader.initialOffset())
    for number in (2, 3):
        (tmp_path / "vault" / "_ags1" / f"v-{number}.json").unlink()
    for number in range(1 + more):
        (tmp_path / "raw" / f"new-{number}.txt").write_text("new")
        dataset.encrypt(tmp_path / "raw", tmp_path / "vault", load(kms_url), "lake").close()
    with pytest.raises(AuthenticationError, match=r"an older copy was put back|is expected: it was replaced"):
        reader.partitions(end, latest(reader, end))


def test_versions_that_come_while_a_batch_is_read_do_not_disturb_it(
    grown: Callable[..., StreamReader], tmp_path: Path, kms_url: str
) -> None:
    reader = grown()
    start = reader.initialOffset()
    (partition,) = reader.partitions(start, latest(reader, start))
    (tmp_path / "raw" / "d.txt").write_text("later")
    dataset.encrypt(tmp_path / "raw", tmp_path / "vault", load(kms_url), "lake").close()
    assert [batch.column(0).to_pylist() for batch in reader.read(partition)] == [["a", "b", "c"]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"starting_version": "soon"}, "starting_version must be earliest, latest or a number from 1, not 'soon'"),
        ({"starting_version": "0"}, "starting_version must be"),
        ({"max_versions_per_batch": "0"}, "max_versions_per_batch must be a number from 1"),
        ({"expected_version": "1"}, "expected_version and version_as_of are not for streams"),
        ({"key": "00" * 16}, "has no option 'key' here; .*A key is never an option"),
        ({"kms": "", "keyref": "env:KEY"}, "a stream reads one dataset"),
    ],
)
def test_wrong_options_are_named(grown: Callable[..., StreamReader], options: dict[str, str], message: str) -> None:
    given = {name: value for name, value in options.items() if value}
    with pytest.raises(ValueError, match=message):
        grown(**given)


def test_a_version_to_start_with_is_read_itself(grown: Callable[..., StreamReader]) -> None:
    reader = grown(starting_version=2)
    start = reader.initialOffset()
    assert rows(reader, start, latest(reader, start)) == ["b", "c"]


def test_a_start_behind_the_end_is_refused(grown: Callable[..., StreamReader]) -> None:
    assert grown(starting_version=4).initialOffset()["version"] == 3
    with pytest.raises(ValueError, match="starting_version is 5, and the dataset has version 3"):
        grown(starting_version=5).initialOffset()
