"""``maxFilesPerTrigger`` and ``maxBytesPerTrigger``: batches of the sizes asked for, and each file in one of them."""

from __future__ import annotations

import json
import logging
import os
import pickle
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ags1 import dataset
from ags1.kms import load
from tests.checks import every

pytest.importorskip("pyspark")

from pyspark.sql.types import StringType, StructField, StructType

from ags1.spark.source import _inputs, _stream
from ags1.spark.source._stream import StreamReader, stream_reader_for
from ags1.spark.source.options import SourceOptions

LIMITED = hasattr(_stream, "AdmittingStreamReader")
SCHEMA = StructType([StructField("value", StringType())])

Offset = dict[str, Any]


class Growing:
    """A dataset of texts, a line each, and a query on it that can be restarted."""

    def __init__(self, work: Path, kms_url: str) -> None:
        self.raw, self.path = work / "raw", work / "vault"
        self.raw.mkdir()
        self.kms_url = kms_url
        self.options: dict[str, Any] = {}
        self.offset: Offset | None = None
        self.reader: StreamReader | None = None

    def commit(self, **texts: str) -> None:
        """Add or replace files, in one version."""
        for name, text in texts.items():
            (self.raw / name).write_text(text)
        dataset.encrypt(self.raw, self.path, load(self.kms_url), "lake").close()

    def restart(self) -> None:
        """As a new process does with the offset of a checkpoint."""
        self.reader = None
        self.offset = json.loads(json.dumps(self.offset))

    def batch(self) -> list[str] | None:
        """The rows of the next batch; None if there is nothing new."""
        if self.reader is None:
            given = {"path": self.path, "kms": self.kms_url, "decode": "text", **self.options}
            self.reader = stream_reader_for({name: str(value) for name, value in given.items()}, SCHEMA)
        reader = self.reader
        if self.offset is None:
            self.offset = reader.initialOffset()
        if LIMITED:
            end = reader.latestOffset(self.offset, reader.getDefaultReadLimit())  # type: ignore[call-arg, attr-defined]
        else:
            reader.partitions(self.offset, self.offset)
            end = reader.latestOffset()
        if end == self.offset:
            return None
        rows = []
        for partition in pickle.loads(pickle.dumps(reader.partitions(self.offset, end))):
            for batch in reader.read(partition):
                rows += batch.column(0).to_pylist()
        self.offset = end
        return rows

    def rest(self) -> list[list[str]]:
        """All batches until there is nothing new."""
        return [rows for rows in iter(self.batch, None) if rows]


@pytest.fixture
def growing(tmp_path: Path, kms_url: str) -> Iterator[Growing]:
    yield Growing(tmp_path, kms_url)
    while _inputs._cache:
        _inputs._cache.popitem()[1].close()


def test_the_files_of_one_version_are_shared_out_in_their_order(growing: Growing) -> None:
    growing.commit(a="a1", b="b1", c="c1")
    growing.commit(**{name: f"{name}2" for name in "defg"})
    growing.options = {"maxFilesPerTrigger": 2}
    assert growing.rest() == [["a1", "b1"], ["c1", "d2"], ["e2", "f2"], ["g2"]]


@every(
    "case",
    [
        # Lengths of files, in the order of their names; the options; and how many files each batch has.
        ([5, 5, 20, 1, 9, 1], {"maxBytesPerTrigger": 10}, [2, 1, 2, 1]),
        ([5, 5, 20, 1, 9, 1], {"max_bytes_per_trigger": "1g"}, [6]),
        ([5, 5, 20, 1, 9, 1], {"maxBytesPerTrigger": "1b"}, [1, 1, 1, 1, 1, 1]),
        ([3] * 7, {"maxBytesPerTrigger": 9, "maxFilesPerTrigger": 2}, [2, 2, 2, 1]),
        ([3] * 7, {"maxBytesPerTrigger": 9, "maxFilesPerTrigger": 5}, [3, 3, 1]),
        ([2048, 2048, 2049], {"maxBytesPerTrigger": "4k"}, [2, 1]),
    ],
)
def test_a_batch_has_no_more_bytes_than_asked_for_and_at_least_one_file(
    case: Any, tmp_path_factory: pytest.TempPathFactory, kms_url: str
) -> None:
    lengths, options, counts = case
    growing = Growing(tmp_path_factory.mktemp("bytes"), kms_url)
    growing.commit(**{f"{number}": f"{number}".ljust(length, ".") for number, length in enumerate(lengths)})
    growing.options = options
    batches = growing.rest()
    assert [len(each) for each in batches] == counts
    assert [int(row.rstrip(".")) for each in batches for row in each] == list(range(len(lengths)))


@pytest.mark.parametrize("seed", range(4))
def test_what_stays_is_read_once_whatever_is_replaced_removed_expired_and_restarted(
    growing: Growing, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(seed)
    monkeypatch.setattr(_stream, "_MOST_WAITING", draw.choice([2, 5, 100_000]))
    most_files, most_bytes = draw.randint(1, 5), draw.randint(10, 80)
    names = ["maxFilesPerTrigger", "maxBytesPerTrigger"]
    seen: list[str] = []
    files: dict[str, str] = {}

    def read() -> bool:
        rows = growing.batch()
        if rows is None:
            return False
        seen.extend(rows)
        if "maxFilesPerTrigger" in growing.options:
            assert len(rows) <= most_files
        if "maxBytesPerTrigger" in growing.options:
            assert len(rows) == 1 or sum(map(len, rows)) <= most_bytes
        return True

    for number in range(10):
        changed = draw.sample("abcdefghijklmnop", draw.randint(1, 8))
        texts = {name: f"{name}{number}".ljust(draw.randint(4, 40), ".") for name in changed}
        growing.commit(**texts)
        files.update(texts)
        with dataset.open(growing.path, growing.kms_url) as opened:
            if draw.random() < 0.3:
                gone = draw.sample(sorted(files), min(len(files), 2))
                opened.rm(*gone)
                for name in gone:
                    del files[name]
                    (growing.raw / name).unlink()
            if draw.random() < 0.3:
                opened.refresh()
                opened.expire(keep=1, older_than=None, grace=0)
        for _ in range(draw.randint(0, 4)):
            if draw.random() < 0.4:
                # Limits may be others in each run of a query.
                options = dict(zip(names, (most_files, most_bytes), strict=True))
                growing.options = {name: options[name] for name in draw.sample(names, draw.randint(0, 2))}
                growing.options |= draw.choice([{}, {}, {"max_versions_per_batch": 1}])
                growing.restart()
            read()
    while read():
        pass
    assert len(seen) == len(set(seen))
    assert set(files.values()) <= set(seen)


def test_a_batch_that_is_repeated_has_the_same_files_also_after_new_commits(growing: Growing) -> None:
    growing.commit(a="a", b="b", c="c")
    growing.options = {"maxFilesPerTrigger": 2}
    assert growing.batch() == ["a", "b"]
    middle = growing.offset
    growing.commit(a="a again", b0="b0", d="d")
    growing.restart()
    assert growing.rest() == [["c"], ["a again", "b0"], ["d"]]
    # What was not yet noted in the checkpoint is read again, from the same place.
    growing.offset = middle
    growing.restart()
    assert growing.rest() == [["c"], ["a again", "b0"], ["d"]]


def test_a_batch_that_goes_back_is_refused(growing: Growing) -> None:
    growing.commit(a="a", b="b", c="c")
    growing.options = {"maxFilesPerTrigger": 1}
    growing.batch()
    first = growing.offset
    growing.batch()
    assert growing.reader is not None
    assert first is not None
    assert growing.offset is not None
    with pytest.raises(ValueError, match="a batch that ends before it begins"):
        growing.reader.partitions(growing.offset, first)


def test_files_that_are_left_out_do_not_count(growing: Growing) -> None:
    growing.commit(
        **{f"{number}.txt": str(number) for number in range(4)}, **{f"{number}.tmp": "-" for number in range(4)}
    )
    growing.options = {"maxFilesPerTrigger": 2, "include": "*.txt"}
    assert growing.rest() == [["0", "1"], ["2", "3"]]


def test_a_path_that_is_no_text_is_a_place_to_go_on(growing: Growing) -> None:
    growing.commit(**{os.fsdecode(b"\xff1"): "1", os.fsdecode(b"\xff2"): "2", "z": "0"})
    growing.options = {"maxFilesPerTrigger": 1}
    found = []
    while (rows := growing.batch()) is not None:
        found.append(rows)
        growing.restart()
    assert found == [["0"], ["1"], ["2"]]


def test_spark_without_limits_of_its_own_says_that_a_batch_is_not_all(
    growing: Growing, caplog: pytest.LogCaptureFixture
) -> None:
    growing.commit(a="a", b="b")
    growing.options = {"maxFilesPerTrigger": 1}
    with caplog.at_level(logging.WARNING, "ags1.spark"):
        growing.rest()
    said = "with the trigger availableNow, Spark before 4.2 stops after one batch" in caplog.text
    assert said != LIMITED


WRONG: list[tuple[dict[str, str], str]] = [
    *(
        ({"maxFilesPerTrigger": text}, f"option max_files_per_trigger must be a number from 1, not '{text}'")
        for text in ("0", "-1", "1.5", "many", "")
    ),
    *(
        ({"maxBytesPerTrigger": text}, f"option max_bytes_per_trigger must be a number of bytes, .*, not '{text}'")
        for text in ("0", "-1", "1.5g", "many", "0k")
    ),
    ({"maxFilePerTrigger": "1"}, "no option 'maxFilePerTrigger' here; it has .*, max_files_per_trigger,"),
]


@every("case", WRONG)
def test_wrong_limits_are_refused_by_name(case: tuple[dict[str, str], str], tmp_path: Path) -> None:
    options, message = case
    with pytest.raises(ValueError, match=message):
        stream_reader_for({"path": str(tmp_path), "kms": "aws:", "decode": "text", **options}, SCHEMA)


def test_a_limit_is_not_for_a_read_that_is_no_stream() -> None:
    for name in ("maxFilesPerTrigger", "maxBytesPerTrigger"):
        with pytest.raises(ValueError, match=f"has no option '{name}' here"):
            SourceOptions.parse({"path": "vault", "kms": "aws:", name: "1"})
