"""Compaction beside Spark's ``rewrite_data_files``: the same rows, row ids, sequence numbers, metrics and summary.

In this process, and by tasks of another Spark.
"""

from __future__ import annotations

import datetime
import json
import random
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow
import pytest

from ags1 import iceberg
from ags1.iceberg.maintenance import rewriting
from ags1.iceberg.walk.table_walk import walk
from tests.checks import leaks
from tests.iceberg.arrow_tables import RandomRows
from tests.iceberg.spark_conversions import KMS, Driver
from tests.iceberg.test_writing_spark import EXPIRE, Written
from tests.iceberg.warehouse import HiveLake, local_path
from tests.interop.jvm import PeerFailure

NOW = datetime.timedelta(0)
REWRITE = "CALL lake.system.rewrite_data_files(table => 'tables.{}', options => map('rewrite-all', 'true'))"
ENTRIES = (
    "SELECT status, sequence_number, file_sequence_number, data_file.record_count FROM tables.{}.entries "
    "WHERE data_file.content = 0"
)
METRIC_NAMES = ("value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds")
METRICS = (
    f"SELECT content, record_count, {', '.join(f'CAST({name} AS STRING)' for name in METRIC_NAMES)} "
    "FROM tables.{}.files"
)
SUMMARY = "SELECT operation, CAST(summary AS STRING) FROM tables.{}.snapshots ORDER BY committed_at DESC LIMIT 1"
COMPARED = ("records", "data-files", "delete-files", "position-deletes", "equality-deletes", "dvs", "partition-count")


def numbers(text: str) -> dict[str, str]:
    """The counts in a summary, as Spark shows it: {added-records -> 5, ...}."""
    found = dict(each.split(" -> ", 1) for each in text.strip("{}").split(", ") if " -> " in each)
    return {name: value for name, value in found.items() if name.endswith(COMPARED) and value != "0"}


def twins(lake: HiveLake, seed: int) -> tuple[RandomRows, Written, Written]:
    """Two tables with the same history: appends, deletes, and rows that were moved."""
    made = RandomRows(seed)
    found = tuple(Written(lake, f"{name}_{seed}", made.schema, made.partition_by) for name in ("mine", "spark"))
    chance, filters = random.Random(seed), made.filters(seed)
    for _ in range(4):
        rows = made.rows(25)
        for each in found:
            each.table.append(rows)
    changed = made.rows(6)
    keys = pyarrow.array(chance.sample(range(100), 6), pyarrow.int64())
    changed = changed.set_column(0, made.schema.field("id"), keys)
    chosen = filters.filter()
    for each in found:
        each.table.upsert(changed, on=["id"])
        each.sql(f"DELETE FROM {{}} WHERE {chosen.sql} AND id % 2 = 0")
        each.check()
    return made, found[0], found[1]


@pytest.mark.parametrize("seed", [23])
def test_a_compacted_table_is_what_spark_makes_of_its_twin(seed: int, hive_lake: HiveLake) -> None:
    made, mine, theirs = twins(hive_lake, seed)
    before = mine.check()
    assert before == theirs.check()
    report = mine.table.compact(rewrite_all=True)
    theirs.sql(REWRITE)
    assert mine.check() == theirs.check() == before
    assert sorted(mine.sql(ENTRIES)) == sorted(theirs.sql(ENTRIES))
    assert report.added_files == len(mine.table.scan().plan_files())
    ((operation, summary),), ((wanted, spark),) = mine.sql(SUMMARY), theirs.sql(SUMMARY)
    assert (operation, numbers(summary)) == (wanted, numbers(spark))
    # Java goes on with what ags1 compacted, and ags1 with what Java compacted.
    filters = made.filters(seed + 1)
    for each in (mine, theirs):
        each.sql("DELETE FROM {} WHERE id % 5 = 1")
        each.table.append(made.rows(5))
        each.table.delete(filters.filter().ours)
        rows = each.check()
        each.table.compact(rewrite_all=True, min_input_files=2)
        assert each.check() == rows
        each.sql(REWRITE)
        assert each.check() == rows
        each.sql(EXPIRE)
        assert each.check() == rows
        each.check_nothing_is_plaintext()


@pytest.mark.parametrize("writer", [pytest.param("ags1", marks=pytest.mark.nightly), "Spark"])
def test_row_groups_that_are_moved_have_the_rows_and_metrics_that_spark_writes(
    writer: str, hive_lake: HiveLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewriting, "_LEAST_MOVED", 1)
    made = RandomRows(5)
    names = [f"metrics_{name}_{writer}" for name in ("mine", "spark", "source")]
    mine, theirs, source = (Written(hive_lake, name, made.schema) for name in names)
    for number in range(3):
        rows = made.rows(30)
        source.table.append(rows)
        for each in (mine, theirs):
            if writer == "ags1":
                each.table.append(rows)
            else:
                each.sql(f"INSERT INTO {{}} SELECT * FROM {source.name} WHERE id >= {30 * number} ORDER BY id")
    before = mine.check()
    report = mine.table.compact(rewrite_all=True)
    theirs.sql(REWRITE)
    assert report.moved_bytes
    assert mine.check() == theirs.check() == before
    (ours,), (spark,) = mine.sql(METRICS), theirs.sql(METRICS)
    kinds = {field.field_id: str(field.field_type) for field in mine.table.schema.fields}
    assert ours[:2] == spark[:2]
    for name, mine_, theirs_ in zip(METRIC_NAMES, map(parsed, ours[2:]), map(parsed, spark[2:]), strict=True):
        # Of the columns of the table: of those that keep the numbers of rows, Spark has none or all.
        for field_id in kinds.keys() & mine_.keys() & theirs_.keys():
            assert mine_[field_id] == theirs_[field_id], (name, kinds[field_id])
    # Readers of Java go by the bounds, and by the offsets of the row groups.
    filters = made.filters(6)
    for _ in range(5):
        chosen = filters.filter()
        ids = sorted(mine.table.scan(columns=["id"], row_filter=chosen.ours).to_arrow().column(0).to_pylist())
        assert ids == sorted(row[0] for row in mine.sql(f"SELECT id FROM {{}} WHERE {chosen.sql}")), chosen
    mine.sql("DELETE FROM {} WHERE id % 7 = 1")
    mine.sql(REWRITE)
    mine.check()
    mine.check_nothing_is_plaintext()


def parsed(text: str) -> dict[int, str]:
    """A map of numbers or texts as Spark shows it."""
    found = (each.split(" -> ", 1) for each in (text or "").strip("{}").split(", ") if " -> " in each)
    return {int(number): value for number, value in found if number.isdecimal()}


def test_branches_that_are_compacted_stay_what_they_were(hive_lake: HiveLake) -> None:
    written = Written(hive_lake, "branches_c", pyarrow.schema([("id", pyarrow.int64())]))
    for number in range(6):
        written.table.append(pyarrow.table({"id": [number]}))
    written.sql("ALTER TABLE {} CREATE BRANCH side")
    written.sql("INSERT INTO tables.{}.branch_side VALUES (100)")
    written.table.refresh().compact(ref="side")
    side = hive_lake.rows(written.name, version="side")
    assert sorted(json.loads(json.dumps(side))) == [[number] for number in (0, 1, 2, 3, 4, 5, 100)]
    assert len(written.check()) == 6
    rows: list[Any] = written.sql("SELECT count(*) FROM tables.{}.files")
    assert rows == [[6]]


# -- by tasks ----------------------------------------------------------------------------------------------------------


def small_files(lake: HiveLake, name: str) -> Written:
    """A table of eight files, of which some have deleted or moved rows."""
    rows = pyarrow.table({"id": pyarrow.array(range(80), pyarrow.int64()), "part": [each % 2 for each in range(80)]})
    written = Written(lake, name, rows.schema, ["part"])
    for start in range(0, 80, 20):
        written.table.append(rows.slice(start, 20))
    written.table.upsert(rows.slice(3, 2), on=["id"])
    written.sql("DELETE FROM {} WHERE id = 7")
    return written


def test_tasks_make_of_a_table_what_spark_makes_of_its_twin(driver: Driver, hive_lake: HiveLake) -> None:
    mine, theirs = (small_files(hive_lake, f"tasks_{name}") for name in ("mine", "spark"))
    name = "cached.tables.tasks_mine"
    before = mine.check()
    assert len(driver.rows(f"SELECT * FROM {name}")) == 79
    plan = driver.said(call="compact_table", table=name, options={"dry_run": True, "rewrite_all": True})
    assert (plan["files"] > 8, plan["snapshots"]) == (True, [])
    # Its first task ends with its worker, and is tried again.
    options = {"rewrite_all": True, "parallelism": 2}
    report = driver.said(call="compact_table", table=name, end_a_worker=True, options=options)
    assert report["worker_ended"]
    theirs.sql(REWRITE)
    assert mine.check() == theirs.check() == before
    assert (report["files"], report["added_files"]) == (plan["files"], 2)
    assert sorted(mine.sql(ENTRIES)) == sorted(theirs.sql(ENTRIES))
    ((operation, summary),), ((wanted, spark),) = mine.sql(SUMMARY), theirs.sql(SUMMARY)
    assert (operation, numbers(summary)) == (wanted, numbers(spark))
    # The session sees the new state, and goes on with it.
    assert len(driver.rows(f"SELECT * FROM {name}")) == 79
    assert driver.rows(f"SELECT count(*) FROM {name}.files") == [["2"]]
    driver.rows(f"DELETE FROM {name} WHERE id = 8")
    command = ["iceberg", "compact", name, "--kms", KMS, "--json", "--yes", "--rewrite-all", "--filter", "part = 0"]
    code, said = driver.said(job=command)
    assert (code, json.loads(said)["report"]["files"]) == (0, 1)
    assert driver.said(job=[each for each in command if each != "--yes"])[0] == 2
    assert [row for row in before if row[0] != 8] == mine.check()
    cleaned = iceberg.clean(mine.table.refresh(), older_than=NOW)
    # Hadoop has written checksums for the DELETE.
    assert not [path for path in cleaned.paths if not path.endswith(".crc")]
    mine.check_nothing_is_plaintext()


@pytest.mark.nightly
def test_a_killed_driver_loses_nothing_and_clean_finds_what_its_tasks_wrote(
    driver: Driver, hive_lake: HiveLake
) -> None:
    mine = small_files(hive_lake, "tasks_killed")
    name, before = "cached.tables.tasks_killed", mine.check()
    options = {"rewrite_all": True, "parallelism": 2}
    with closing(Driver(hive_lake.metastore, hive_lake.directory)) as first, pytest.raises(PeerFailure, match="ended"):
        first.said(call="compact_table", table=name, options=options, kill_at=0.4)
    assert mine.check() == before
    directory = local_path(mine.table.document.fields["location"])
    named = {local_path(each) for each in mine.table.files()["path"].to_pylist()}
    left = set((directory / "data").rglob("*.parquet")) - named
    assert left, "it was killed before a task was done"
    assert driver.said(call="compact_table", table=name, options=options)["added_files"] == 2
    assert mine.check() == before
    cleaned = iceberg.clean(mine.table.refresh(), older_than=NOW)
    assert set(map(Path, cleaned.paths)) >= left
    assert mine.check() == before
    mine.check_nothing_is_plaintext()


def test_no_key_of_a_file_is_where_spark_keeps_things(driver: Driver, hive_lake: HiveLake) -> None:
    mine = small_files(hive_lake, "tasks_leaks")
    name = "cached.tables.tasks_leaks"
    secrets: dict[str, bytes] = {}

    def learn() -> None:
        table = mine.table.refresh()
        found = walk(table.metadata_location, table.io, "all")
        for file in (*found.manifest_lists.values(), *found.manifests.values(), *found.files.values()):
            assert file.known.key_metadata is not None
            secrets[file.path] = bytes(file.known.key_metadata.encryption_key)

    learn()
    driver.said(call="compact_table", table=name, options={"rewrite_all": True}, end_a_worker=True)
    learn()
    kept = {str(path): path.read_bytes() for path in driver.directory.rglob("*") if path.is_file()}
    assert len(secrets) > 15
    assert any(b"SparkListenerTaskEnd" in each for each in kept.values())
    assert leaks(kept, secrets) == []
