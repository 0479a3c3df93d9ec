"""SIGKILL at any moment of an append: the table has all of its rows or none, and clean removes what is left."""

from __future__ import annotations

import datetime
import random
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow

from ags1.iceberg import EncryptedTable, clean, create_table, load_table
from ags1.iceberg.catalogs import catalog_table
from ags1.kms import MemoryKms
from tests.iceberg.kills import Bomb, ended, in_child

KMS = MemoryKms({"lake": bytes(16)})
SCHEMA = pyarrow.schema([("id", pyarrow.int64()), ("part", pyarrow.int32()), ("text", pyarrow.string())])
# Each partition has more row groups than there are threads, which write them side by side.
ROWS, GROUP = 6000, 500
KILLS = 12
# Shares of all function calls: the commit is among the last.
LATE = 0.9


def rows(start: int) -> pyarrow.Table:
    numbers = range(start, start + ROWS)
    parts = [each % 2 for each in numbers]
    return pyarrow.table([numbers, parts, [f"row {each}" * 9 for each in numbers]], schema=SCHEMA)


def new_table(place: Path) -> EncryptedTable:
    properties = {"write.parquet.row-group-limit": str(GROUP)}
    return create_table(None, str(place), SCHEMA, ["part"], kms=KMS, key_id="lake", properties=properties)


def content(table: EncryptedTable) -> list[dict[str, Any]]:
    columns = [*SCHEMA.names, "_row_id", "_last_updated_sequence_number"]
    found: list[dict[str, Any]] = table.scan(columns=columns).to_arrow().sort_by("id").to_pylist()
    return found


def append(place: Path, start: int) -> None:
    load_table(None, str(place), kms=KMS).append(rows(start))


def left_over(place: Path, table: EncryptedTable) -> set[Path]:
    """Files of rows and of metadata that no snapshot names."""
    named = {Path(each.removeprefix("file://")) for each in table.files("all")["path"].to_pylist()}
    return {path for path in place.rglob("*") if path.is_file()} - named - set(place.glob("metadata/*.metadata.json"))


def test_a_killed_append_is_in_the_table_whole_or_not_at_all_and_clean_finds_the_rest(tmp_path: Path) -> None:
    counted = new_table(tmp_path / "counted")
    counted.append(rows(0))
    calls = Bomb(None).watch(lambda: append(tmp_path / "counted", ROWS))
    assert all(len(each.file.split_offsets or ()) > 2 for each in counted.scan().plan_files())

    place = tmp_path / "t"
    table = new_table(place)
    table.append(rows(0))
    chance = random.Random(0)
    killed = torn = 0
    for number in range(1, KILLS + 1):
        before = content(table)
        moment = chance.randrange(1, calls) if number % 2 else chance.randrange(int(LATE * calls), calls)
        status = ended(in_child(partial(Bomb(moment).watch, partial(append, place, number * ROWS))))
        assert status in (0, -signal.SIGKILL)
        killed += status != 0
        table = load_table(None, str(place), kms=KMS)
        after = content(table)
        if after != before:
            assert after[: len(before)] == before
            assert [each["id"] for each in after[len(before) :]] == list(range(number * ROWS, (number + 1) * ROWS))
            assert len({each["_row_id"] for each in after}) == len(after)
        torn += bool(left_over(place, table))
        clean(catalog_table(None, str(place)), kms=KMS, older_than=datetime.timedelta(0))
        assert left_over(place, table) == set()
        assert content(table) == after
        assert table.verify().ok
    assert killed > KILLS // 2
    assert torn, "it was never killed between the first file and the commit"
