"""Maintenance that is killed at any moment, and beside writers: no row is lost, and clean finds what is left."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from ags1.iceberg import CompactionOptions, EncryptedTable, clean
from tests.iceberg.kills import ended, in_child
from tests.iceberg.soak_maintenance import KINDS, left_over
from tests.iceberg.test_compaction import NOW, content, new_table, opened, rows
from tests.iceberg.test_maintenance import ALL

ROUNDS = 4


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_killed_loses_nothing_is_finished_later_and_clean_finds_what_it_left(kind: str, tmp_path: Path) -> None:
    killed, torn = KINDS[kind](tmp_path, 7, random.Random(30))
    assert killed > 1
    assert torn, "it was never killed between the first file and the end"


def compact(table: EncryptedTable) -> None:
    table.compact(min_input_files=2)


def maintain(table: EncryptedTable) -> None:
    # Snapshots expire at once; files that nobody names yet are the writers'.
    table.maintain(replace(ALL, compaction=CompactionOptions(min_input_files=2), clean_older_than=None))


@pytest.mark.parametrize("work", [compact, maintain])
def test_three_writers_beside_it_lose_no_row(work: Callable[[EncryptedTable], None], tmp_path: Path) -> None:
    place = tmp_path / "t"
    new_table(place, ["part"], **{"commit.retry.num-retries": "50", "commit.retry.max-wait-ms": "200"})

    def append(start: int) -> None:
        table = opened(place)
        for each in range(6):
            table.append(rows(start + each))

    def delete() -> None:
        table = opened(place)
        for each in range(6):
            table.delete(f"id = {7 * each}")

    def run() -> None:
        for _ in range(ROUNDS):
            work(opened(place))

    works = (partial(append, 1000), partial(append, 2000), delete, run)
    assert [ended(each) for each in [in_child(work) for work in works]] == [0, 0, 0, 0]
    table = opened(place)
    found = content(table)
    wanted = {each for each in range(60) if each % 7 or each > 35} | {s + e for s in (1000, 2000) for e in range(6)}
    assert sorted(each["id"] for each in found) == sorted(wanted)
    assert len({each["_row_id"] for each in found}) == len(found)
    clean(table, older_than=NOW)
    assert content(table) == found
    assert not left_over(table.refresh(), place)
    assert table.verify().ok
