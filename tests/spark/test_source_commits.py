"""Appends and overwrites at once, slow ones, and those whose reply is lost: no row is lost, doubled or half there."""

from __future__ import annotations

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
from pyspark.sql.types import StringType, StructField, StructType

from ags1 import dataset
from ags1.errors import ConflictError
from ags1.spark.source.writer import Ags1Writer, writer_for

SCHEMA = StructType([StructField("value", StringType())])

Begin = Callable[..., Ags1Writer]


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    return tmp_path / "vault"


@pytest.fixture
def begin(kms_url: str, vault: Path) -> Begin:
    def begin(mode: str = "append", **options: Any) -> Ags1Writer:
        given = {"path": vault, "kms": kms_url, "key_id": "lake", "decode": "text", **options}
        return writer_for({name: str(value) for name, value in given.items()}, SCHEMA, mode == "overwrite")

    return begin


def finish(writer: Any, *rows: int) -> None:
    """What Spark does with a writer: a task elsewhere, and the commit."""
    task = pickle.loads(pickle.dumps(writer))
    message = pickle.loads(
        pickle.dumps(task.write(iter([pa.RecordBatch.from_pydict({"value": [str(row) for row in rows]})])))
    )
    writer.commit([message, None])


def rows(vault: Path, kms_url: str) -> list[int]:
    found = []
    with dataset.open(vault, kms_url) as opened:
        # Writes that wait have their objects there already.
        assert {each.code for each in opened.verify().findings} <= {"unreferenced"}
        for entry in opened.files:
            with opened.open(entry.path) as reader:
                found += [int(line) for line in reader.read().splitlines()]
    return sorted(found)


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
    why = "which this replaces too" if before else "another writer has made this dataset meanwhile"
    with pytest.raises(ConflictError, match=why):
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
    with pytest.raises(ConflictError, match="another writer has made this dataset meanwhile"):
        finish(on_nothing, 2)
    assert rows(vault, kms_url) == [1]
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


def test_writers_at_once_leave_what_a_model_of_them_says(vault: Path, kms_url: str) -> None:
    """Appends and overwrites that overlap at random: none is lost, doubled or half there, and a conflict is nothing."""
    given = {"kms": kms_url, "key_id": "lake", "decode": "text"}

    def found(place: str) -> list[int]:
        try:
            return rows(Path(place), kms_url)
        except FileNotFoundError:
            return []

    outcomes = Counter[tuple[bool, bool]]()
    for seed in range(25):
        chance, place, ids = random.Random(seed), f"{vault}{seed}", count()
        waiting: list[tuple[bool, Ags1Writer, list[Any], list[int], list[int]]] = []
        for _ in range(16):
            if not waiting or chance.random() < 0.5:
                overwrite = chance.random() < 0.5
                writer, seen = writer_for({**given, "path": place}, SCHEMA, overwrite), found(place)
                new = [next(ids) for _ in range(chance.randrange(3))]
                batches = [pa.RecordBatch.from_pydict({"value": [str(row)]}) for row in new]
                waiting.append((overwrite, writer, [writer.write(iter([each])) for each in batches], seen, new))
                continue
            overwrite, writer, messages, seen, new = waiting.pop(chance.randrange(len(waiting)))
            expected = before = found(place)
            gone = seen if overwrite else []
            try:
                writer.commit(messages)
                expected = [*(row for row in before if row not in gone), *new]
            except ConflictError:
                # Only overwrites conflict, and only if they have something to replace, or others have replaced it.
                assert overwrite
            outcomes[overwrite, expected is before] += 1
            assert found(place) == sorted(expected), seed
    assert min(outcomes.values()) > 5
    assert set(outcomes) == {(False, False), (True, False), (True, True)}


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
    message = writer.write(iter([pa.RecordBatch.from_pydict({"value": ["1"]})]))
    monkeypatch.setattr(transaction, "publish", lost)
    with pytest.raises(TimeoutError):
        writer.commit([message])
    # What Spark does then, in another process.
    pickle.loads(pickle.dumps(writer)).abort([message])
    assert rows(vault, kms_url) == ([0, 1] if mode == "append" else [1])


# -- epochs ------------------------------------------------------------------------------------------------------------
