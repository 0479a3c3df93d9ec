"""Writes that may be repeated: a numbered transaction, or an epoch of a query, is in the dataset once."""

from __future__ import annotations

import json
import pickle
import random
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark.sql.types import LongType, StructField, StructType

from ags1 import dataset
from ags1.errors import ConflictError
from ags1.spark.source._stream_writer import StreamWriter, stream_writer_for
from ags1.spark.source._writer import Ags1Writer, writer_for
from tests.checks import every

SCHEMA = StructType([StructField("id", LongType())])

Begin = Callable[..., Ags1Writer]


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    return tmp_path / "vault"


@pytest.fixture
def begin(kms_url: str, vault: Path) -> Begin:
    def begin(mode: str = "append", **options: Any) -> Ags1Writer:
        given = {"path": vault, "kms": kms_url, "key_id": "lake", "decode": "json", **options}
        return writer_for({name: str(value) for name, value in given.items()}, SCHEMA, mode == "overwrite")

    return begin


def finish(writer: Any, *rows: int, number: int | None = None) -> None:
    """What Spark does with a writer: a task elsewhere, and the commit."""
    task = pickle.loads(pickle.dumps(writer))
    message = pickle.loads(pickle.dumps(task.write(iter([pa.RecordBatch.from_pydict({"id": list(rows)})]))))
    if number is None:
        writer.commit([message, None])
    else:
        writer.commit([message, None], number)


def rows(vault: Path, kms_url: str) -> list[int]:
    found = []
    with dataset.open(vault, kms_url) as opened:
        # A write that was skipped leaves no rows.
        assert all(each.path.startswith("_ags1/manifests/") for each in opened.verify().problems)
        for entry in opened.files:
            with opened.open(entry.path) as reader:
                found += [json.loads(line)["id"] for line in reader.read().splitlines()]
    return sorted(found)


def test_a_transaction_is_committed_once_whatever_comes_between(
    begin: Begin, vault: Path, kms_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    finish(begin(txn_app_id="nightly", txn_version=7), 1)
    finish(begin(), 2)
    with dataset.open(vault, kms_url) as opened:
        opened.expire(keep=1, grace=0)
    finish(begin(txnAppId="nightly", txnVersion=7), 1)
    assert "transaction 7 of nightly was committed before, so this write of it is skipped" in caplog.text
    finish(begin("overwrite", txn_app_id="nightly", txn_version=6), 6)
    assert rows(vault, kms_url) == [1, 2]
    finish(begin(txn_app_id="hourly", txn_version=7), 3)
    finish(begin(txn_app_id="nightly", txn_version=8), 4)
    assert rows(vault, kms_url) == [1, 2, 3, 4]
    with dataset.open(vault, kms_url) as opened:
        assert opened.version == 4


def test_of_two_attempts_at_once_one_is_committed(begin: Begin, vault: Path, kms_url: str) -> None:
    finish(begin(), 0)
    for number, mode in enumerate(("append", "overwrite")):
        twins = [begin(mode, txn_app_id="nightly", txn_version=number) for _ in range(2)]
        tasks = [(each, each.write(iter([pa.RecordBatch.from_pydict({"id": [1]})]))) for each in twins]
        for writer, message in tasks:
            writer.commit([message])
        assert rows(vault, kms_url) == [0, 1][number:]


def test_of_two_commits_at_the_same_moment_one_counts(
    begin: Begin, vault: Path, kms_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ags1.dataset import transaction

    finish(begin(), 0)
    first, second = (begin(txn_app_id="nightly", txn_version=0) for _ in range(2))
    real = transaction.publish

    def late(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(transaction, "publish", real)
        finish(second, 1)
        return real(*arguments, **options)

    monkeypatch.setattr(transaction, "publish", late)
    finish(first, 1)
    assert rows(vault, kms_url) == [0, 1]


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Has something done by another writer in the moment of the next commit."""
    from ags1.dataset import transaction

    def at_once(do: Callable[[], object]) -> None:
        real = transaction.publish

        def late(*arguments: Any, **options: Any) -> Any:
            monkeypatch.setattr(transaction, "publish", real)
            do()
            return real(*arguments, **options)

        monkeypatch.setattr(transaction, "publish", late)

    return at_once


@pytest.mark.parametrize("before", [[], [0]])
def test_rows_of_two_overwrites_at_once_are_never_mixed(
    begin: Begin, vault: Path, kms_url: str, at_once: Callable[..., None], before: list[int]
) -> None:
    if before:
        finish(begin(), *before)
    first, second = begin("overwrite"), begin("overwrite")
    at_once(lambda: finish(second, 2))
    with pytest.raises(ConflictError, match="which this replaces too"):
        finish(first, 1)
    assert rows(vault, kms_url) == [2]
    # What another writer has only added is there, as if it had come afterwards.
    at_once(lambda: finish(begin(), 3))
    finish(begin("overwrite"), 4)
    assert rows(vault, kms_url) == [3, 4]


def test_an_overwrite_that_takes_long_replaces_only_what_was_there_when_it_began(
    begin: Begin, vault: Path, kms_url: str
) -> None:
    # Its rows may be made of those that were there: what came meanwhile would be in neither.
    on_nothing = begin("overwrite")
    finish(begin(), 1)
    finish(on_nothing, 2)
    assert rows(vault, kms_url) == [1, 2]
    slow, beside, expired = (begin("overwrite") for _ in range(3))
    finish(begin(), 3)
    finish(slow, 4)
    assert rows(vault, kms_url) == [3, 4]
    with pytest.raises(ConflictError, match="which this replaces too"):
        finish(beside, 5)
    with dataset.open(vault, kms_url) as opened:
        opened.expire(older_than=None, grace=0)
    with pytest.raises(ConflictError, match="the version that this began on is gone: run it again"):
        finish(expired, 6)
    assert rows(vault, kms_url) == [3, 4]


def overwriting(vault: Path, kms_url: str, mode: str = "dynamic") -> Ags1Writer:
    """An overwrite of the directories of days that get rows."""
    given = {"path": str(vault), "kms": kms_url, "key_id": "lake", "decode": "json", "partition_by": "day"}
    given |= {"partitionOverwriteMode": mode} if mode else {}
    return writer_for(given, StructType([*SCHEMA, StructField("day", LongType())]), True)


def overwrite(writer: Ags1Writer, day: int, row: int) -> None:
    writer.commit([writer.write(iter([pa.RecordBatch.from_pydict({"id": [row], "day": [day]})]))])


def test_overwrites_of_other_directories_at_once_do_not_conflict(
    vault: Path, kms_url: str, at_once: Callable[..., None]
) -> None:
    def replace(day: int, row: int) -> None:
        overwrite(overwriting(vault, kms_url), day, row)

    replace(1, 10)
    replace(2, 20)
    at_once(lambda: replace(2, 21))
    replace(1, 11)
    assert rows(vault, kms_url) == [11, 21]
    at_once(lambda: replace(3, 31))
    with pytest.raises(ConflictError, match="has replaced or changed day=3/"):
        replace(3, 30)
    at_once(lambda: replace(1, 12))
    with pytest.raises(ConflictError, match="has replaced or changed day=1/"):
        replace(1, 13)
    assert rows(vault, kms_url) == [12, 21, 31]


def test_writers_at_once_leave_what_a_model_of_them_says(vault: Path, kms_url: str) -> None:
    """Appends and overwrites that overlap at random: none is lost, doubled or half there, and a conflict is nothing."""
    schema = StructType([*SCHEMA, StructField("day", LongType())])
    given = {"kms": kms_url, "key_id": "lake", "decode": "json", "partition_by": "day"}

    def found(place: str) -> dict[int, int]:
        try:
            opened = dataset.open(place, kms_url)
        except FileNotFoundError:
            return {}
        with opened:
            lines = [line for each in opened.files for line in opened.open(each.path).read().splitlines()]
            days = [int(each.path.partition("/")[0].removeprefix("day=")) for each in opened.files]
        return {json.loads(line)["id"]: day for line, day in zip(lines, days, strict=True)}

    outcomes = Counter[tuple[str, bool]]()
    for seed in range(25):
        chance, place, ids = random.Random(seed), f"{vault}{seed}", count()
        waiting: list[tuple[str, Ags1Writer, list[Any], dict[int, int], dict[int, int]]] = []
        for _ in range(16):
            if not waiting or chance.random() < 0.5:
                mode = chance.choice(["", "static", "dynamic"])
                more = {"path": place, **({"partitionOverwriteMode": mode} if mode else {})}
                writer, seen = writer_for(given | more, schema, bool(mode)), found(place)
                new = {next(ids): chance.choice([1, 2]) for _ in range(chance.randrange(3))}
                batches = [pa.RecordBatch.from_pydict({"id": [row], "day": [day]}) for row, day in new.items()]
                waiting.append((mode, writer, [writer.write(iter([each])) for each in batches], seen, new))
                continue
            mode, writer, messages, seen, new = waiting.pop(chance.randrange(len(waiting)))
            expected = before = found(place)
            gone = {row for row, day in seen.items() if mode == "static" or (mode and day in new.values())}
            try:
                writer.commit(messages)
                expected = {row: day for row, day in before.items() if row not in gone} | new
            except ConflictError:
                # Only overwrites conflict, and only if they have something to replace, or others have replaced it.
                assert mode
            outcomes[mode, expected is before] += 1
            assert found(place) == expected, seed
    assert min(outcomes.values()) > 5
    assert set(outcomes) >= {("", False), ("static", False), ("static", True), ("dynamic", False), ("dynamic", True)}


@pytest.mark.parametrize("mode", ["dynamic", ""])
def test_directories_that_came_since_an_overwrite_began_on_nothing_stay(vault: Path, kms_url: str, mode: str) -> None:
    slow = overwriting(vault, kms_url, mode)
    overwrite(overwriting(vault, kms_url), 2, 20)
    overwrite(slow, 1, 10)
    assert rows(vault, kms_url) == [10, 20]


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_commit_whose_reply_was_lost_keeps_its_files(
    begin: Begin, vault: Path, kms_url: str, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    from ags1.dataset import transaction

    finish(begin(), 0)
    real = transaction.publish

    def lost(*arguments: Any, **options: Any) -> Any:
        real(*arguments, **options)
        raise TimeoutError("no reply")

    writer = begin(mode)
    message = writer.write(iter([pa.RecordBatch.from_pydict({"id": [1]})]))
    monkeypatch.setattr(transaction, "publish", lost)
    with pytest.raises(TimeoutError):
        writer.commit([message])
    # What Spark does then, in another process.
    pickle.loads(pickle.dumps(writer)).abort([message])
    assert rows(vault, kms_url) == ([0, 1] if mode == "append" else [1])


def test_a_transaction_without_rows_is_committed_too(begin: Begin, vault: Path, kms_url: str) -> None:
    for writes, expected in (([[], [1]], []), ([[2], []], [2])):
        for written in writes:
            finish(begin(txn_app_id="nightly", txn_version=len(expected)), *written)
        assert rows(vault, kms_url) == expected
    # Without a number it makes no version.
    finish(begin())
    with dataset.open(vault, kms_url) as opened:
        assert opened.version == 2


@every(
    "case",
    [
        ({"txn_app_id": "nightly"}, "txn_app_id and txn_version together"),
        ({"txn_version": 1}, "txn_app_id and txn_version together"),
        ({"txn_app_id": "x" * 256, "txn_version": 1}, "txn_app_id must have at most 255 characters, not 256"),
        ({"txn_app_id": "nightly", "txn_version": -1}, "txn_version must be a number, not '-1'"),
        ({"txn_app_id": "nightly", "txn_version": 1 << 63}, "txn_version must be below 2.63"),
    ],
)
def test_half_a_transaction_and_what_is_no_number_are_refused(case: Any, begin: Begin, vault: Path) -> None:
    options, message = case
    with pytest.raises(ValueError, match=message):
        begin(**options)
    assert not vault.exists()


# -- epochs ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def epoch(kms_url: str, vault: Path, tmp_path: Path) -> Callable[..., StreamWriter]:
    """A writer as Spark makes one for the tasks of an epoch, and one for its commit."""

    def epoch(query: str = "q1", **options: Any) -> StreamWriter:
        checkpoint = tmp_path / "checkpoint"
        checkpoint.mkdir(exist_ok=True)
        (checkpoint / "metadata").write_text(json.dumps({"id": query}))
        given = {"path": vault, "kms": kms_url, "key_id": "lake", "decode": "json", "checkpointLocation": checkpoint}
        texts = {name: str(value) for name, value in {**given, **options}.items() if value is not None}
        return stream_writer_for(texts, SCHEMA, False)

    return epoch


def test_an_epoch_that_is_repeated_is_skipped_also_by_another_process(
    epoch: Callable[..., StreamWriter], vault: Path, kms_url: str
) -> None:
    for number in range(3):
        for _ in range(2):
            message = pickle.loads(pickle.dumps(epoch().write(iter([pa.RecordBatch.from_pydict({"id": [number]})]))))
            epoch().commit([message, None], number)
    assert rows(vault, kms_url) == [0, 1, 2]
    # A new checkpoint is a new query, whose epochs begin at 0.
    message = epoch("q2").write(iter([pa.RecordBatch.from_pydict({"id": [9]})]))
    epoch("q2").commit([message], 0)
    assert rows(vault, kms_url) == [0, 1, 2, 9]


def test_an_epoch_without_rows_or_tasks_is_recorded(
    epoch: Callable[..., StreamWriter], vault: Path, kms_url: str
) -> None:
    finish(epoch(), number=0)
    epoch().commit([], 1)
    for number in range(3):
        finish(epoch(), number, number=number)
    assert rows(vault, kms_url) == [2]


def test_an_epoch_that_fails_leaves_nothing(epoch: Callable[..., StreamWriter], vault: Path, kms_url: str) -> None:
    finish(epoch(), 0, number=0)
    message = epoch().write(iter([pa.RecordBatch.from_pydict({"id": [1]})]))
    epoch().abort([message, None], 1)
    assert rows(vault, kms_url) == [0]


def test_a_query_without_a_checkpoint_of_its_own_is_refused(
    epoch: Callable[..., StreamWriter], vault: Path, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="give the option checkpointLocation"):
        epoch(checkpointLocation=None)
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "metadata").write_text("{}")
    with pytest.raises(ValueError, match="does not have the id of a query"):
        epoch(checkpointLocation=tmp_path / "empty")
    assert not vault.exists()
