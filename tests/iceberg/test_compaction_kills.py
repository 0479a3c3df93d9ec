"""Compaction that is killed at any moment, and beside several writers: no row is lost, and clean finds what is left."""

from __future__ import annotations

import random
import signal
from functools import partial
from pathlib import Path

from ags1.iceberg import clean
from tests.iceberg.test_compaction import NOW, content, new_table, opened, rows
from tests.iceberg_tables.kills import Bomb, ended, in_child

KILLS = 8


def test_a_killed_compaction_loses_nothing_and_clean_finds_what_it_left(tmp_path: Path) -> None:
    counted = new_table(tmp_path / "counted", ["part"], files=2)
    calls = Bomb(None).watch(lambda: counted.compact(min_input_files=2))
    place = tmp_path / "t"
    new_table(place, ["part"], files=2)
    chance = random.Random(3)
    killed = torn = 0
    for number in range(KILLS):
        # A table that was compacted before has work again.
        table = opened(place)
        table.append(rows(*range(1000 * (number + 1), 1000 * (number + 1) + 10)))
        before = content(table)
        # Opening the table, and more files than when they were counted, come first.
        moment = chance.randrange(calls // 2, 2 * calls)
        status = ended(in_child(partial(Bomb(moment).watch, lambda: opened(place).compact(min_input_files=2))))
        assert status in (0, -signal.SIGKILL)
        killed += status != 0
        table = opened(place)
        assert content(table) == before
        torn += len(clean(table, older_than=NOW).paths) > 0
        assert content(table) == before
        assert table.verify().ok
    assert killed > KILLS // 2
    assert torn, "it was never killed between the first file and the commit"


def test_three_writers_beside_compaction_lose_no_row(tmp_path: Path) -> None:
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

    def compact() -> None:
        for _ in range(4):
            opened(place).compact(min_input_files=2)

    works = (partial(append, 1000), partial(append, 2000), delete, compact)
    assert [ended(each) for each in [in_child(work) for work in works]] == [0, 0, 0, 0]
    found = content(opened(place))
    wanted = {each for each in range(60) if each % 7 or each > 35} | {s + e for s in (1000, 2000) for e in range(6)}
    assert sorted(each["id"] for each in found) == sorted(wanted)
    assert len({each["_row_id"] for each in found}) == len(found)
