"""What was appended between two snapshots, and which rows are newer than one: found as PyIceberg finds it."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import GreaterThan

from ags1.iceberg import EncryptedTable, create_table, expire_snapshots, rekey_table
from ags1.kms import MemoryKms

KMS = MemoryKms({"lake": bytes(16), "next": bytes(range(16))})
NEWER = "_last_updated_sequence_number"


def rows(first: int, count: int = 3) -> pa.Table:
    return pa.table({"id": pa.array(range(first, first + count), pa.int64()), "s": [f"s{first}"] * count})


@pytest.fixture
def catalog(tmp_path: Path) -> SqlCatalog:
    made = SqlCatalog("changed", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=(tmp_path / "lake").as_uri())
    made.create_namespace("t")
    return made


@pytest.fixture
def table(catalog: SqlCatalog) -> EncryptedTable:
    return create_table(catalog, "t.encrypted", rows(0).schema, kms=KMS, key_id="lake")


def ids(found: Any) -> list[int]:
    made: list[int] = sorted(found.to_arrow()["id"].to_pylist())
    return made


def numbers(table: Any) -> list[int]:
    """The current snapshot and those before it, oldest first."""
    found, parents = [], {each.snapshot_id: each.parent_snapshot_id for each in table.metadata.snapshots}
    number = table.metadata.current_snapshot_id
    while number is not None:
        found.append(number)
        number = parents.get(number)
    return found[::-1]


def test_every_range_of_appends_has_the_rows_of_pyicebergs(table: EncryptedTable, catalog: SqlCatalog) -> None:
    plain = catalog.create_table("t.plain", rows(0).schema)
    for number in range(5):
        for each in (table, plain):
            each.append(rows(10 * number))
    ours, theirs = numbers(table.table), numbers(plain)
    for start, end in itertools.combinations(range(5), 2):
        expected = plain.incremental_append_scan(
            from_snapshot_id_exclusive=theirs[start], to_snapshot_id_inclusive=theirs[end]
        )
        scan = table.scan(from_snapshot=ours[start], to_snapshot=ours[end])
        assert ids(scan) == ids(expected)
        assert scan.count() == len(ids(expected))
        assert ids(scan.plan) == ids(expected)
        part = table.scan(columns=["id"], row_filter="id > 20", from_snapshot=ours[start])
        assert ids(part) == [each for each in ids(table.scan(from_snapshot=ours[start])) if each > 20]
    assert ids(table.scan(from_snapshot=ours[2])) == [*range(30, 33), *range(40, 43)]
    assert table.scan(from_snapshot=ours[-1]).to_arrow().num_rows == 0
    assert ids(table.scan(from_snapshot=ours[1], row_filter=GreaterThan("id", 40))) == [41, 42]


def test_rewritten_files_are_no_new_rows(table: EncryptedTable) -> None:
    table.append(rows(0))
    first = numbers(table.table)[-1]
    table.append(rows(10))
    rekey_table(table, key_id="next", data_keys=True)
    table.refresh().append(rows(20))
    assert ids(table.scan(from_snapshot=first)) == [10, 11, 12, 20, 21, 22]


def test_a_start_that_is_expired_is_one_if_the_next_snapshot_is_there(table: EncryptedTable) -> None:
    for number in range(3):
        table.append(rows(10 * number))
    first, second, third = numbers(table.table)
    expire_snapshots(table)
    table.refresh()
    assert ids(table.scan(from_snapshot=second)) == [20, 21, 22]
    with pytest.raises(ValueError, match=f"{first} is not among those that {third} was made from, .*expired"):
        table.scan(from_snapshot=first)


def test_a_range_in_which_rows_changed_is_refused(table: EncryptedTable) -> None:
    table.append(rows(0, 100))
    first = numbers(table.table)[-1]
    table.append(rows(100))
    table.delete("id = 3")
    table.upsert(rows(5, 2), ["id"])
    *_, second, deleted, changed = numbers(table.table)
    with pytest.raises(ValueError, match=rf"{deleted} \(\w+\), {changed} \(\w+\)"):
        table.scan(from_snapshot=first)
    assert ids(table.scan(from_snapshot=first, to_snapshot=second)) == [100, 101, 102]
    table.append(rows(200))
    assert ids(table.scan(from_snapshot=changed)) == [200, 201, 202]


def test_what_makes_no_range_is_refused(table: EncryptedTable) -> None:
    with pytest.raises(ValueError, match="no snapshot yet"):
        table.scan(from_snapshot=1)
    table.append(rows(0))
    table.append(rows(10))
    first, second = numbers(table.table)
    table.table.manage_snapshots().create_branch(first, "side").commit()
    table.append(rows(20), ref="side")
    side = table.refs["side"]
    for start, end, message in (
        (second, first, "not among those"),
        (side, second, "not among those"),
        (7, None, "not among those"),
        (first, 7, "has no snapshot 7"),
    ):
        with pytest.raises(ValueError, match=message):
            table.scan(from_snapshot=start, to_snapshot=end)
    assert ids(table.scan(from_snapshot=first, to_snapshot=side)) == [20, 21, 22]
    with pytest.raises(ValueError, match="from_snapshot"):
        table.scan(to_snapshot=second)
    for more in ({"snapshot_id": first}, {"ref": "side"}, {"as_of": 10**13}):
        with pytest.raises(ValueError, match="give one of"):
            table.scan(from_snapshot=first, **more)


def test_filters_on_row_lineage_find_the_rows_that_the_columns_have(table: EncryptedTable) -> None:
    """Against the columns themselves, after changes of every kind."""
    draw, key = random.Random(5), 0
    for _ in range(3):
        table.append(rows(key, 20))
        key += 20
        table.delete(f"id = {draw.randrange(key)} or id = {draw.randrange(key)}")
        table.upsert(pa.table({"id": pa.array(draw.sample(range(key), 3), pa.int64()), "s": ["new"] * 3}), ["id"])
    rekey_table(table, key_id="next", data_keys=True)
    table.refresh().append(rows(key))
    columns = ["id", "_row_id", NEWER, "_pos"]
    everything = table.scan(columns=columns).to_arrow().to_pylist()
    assert len({each[NEWER] for each in everything}) > 4
    for name in ("_row_id", NEWER, "_pos"):
        values = sorted({each[name] for each in everything})
        for value in draw.sample(values, 3):
            for operator, test in (
                (">", lambda a, b: a > b),
                ("<=", lambda a, b: a <= b),
                ("=", lambda a, b: a == b),
                ("<>", lambda a, b: a != b),
            ):
                wanted = sorted(each["id"] for each in everything if test(each[name], value))
                selected = draw.choice([["id"], ["id", name], columns])
                scan = table.scan(columns=selected, row_filter=f"{name} {operator} {value}")
                assert ids(scan) == wanted, (name, operator, value, selected)
                assert scan.count() == len(wanted)


def test_files_without_newer_rows_are_not_opened(table: EncryptedTable) -> None:
    for number in range(4):
        table.append(rows(10 * number))
    number = table.table.metadata.snapshots[1].sequence_number
    scan = table.scan(row_filter=f"{NEWER} > {number}")
    assert len(scan.plan_files()) == 2
    assert ids(scan) == [*range(20, 23), *range(30, 33)]
    assert len(table.scan(row_filter=f"{NEWER} <= {number}").plan_files()) >= 2


def test_rows_are_deleted_by_their_row_ids(table: EncryptedTable) -> None:
    table.append(rows(0, 10))
    table.append(rows(10, 10))
    chosen = table.scan(columns=["id", "_row_id"], row_filter="id in (3, 14)").to_arrow()["_row_id"].to_pylist()
    table.delete(f"_row_id in ({chosen[0]}, {chosen[1]})")
    assert ids(table.scan()) == [each for each in range(20) if each not in (3, 14)]
