"""Tables converted on Spark: the session that does it reads the same rows at once, and no failure loses any."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from ags1.iceberg import load_table
from ags1.kms import MemoryKms
from tests.iceberg_tables.conversions import ENCRYPTED, PLAINTEXT, beginning_with
from tests.iceberg_tables.keys import MASTER_KEYS
from tests.iceberg_tables.spark_conversions import KMS, Driver
from tests.iceberg_tables.warehouse import HiveLake, local_path
from tests.interop.jvm import PeerFailure

ROWS = "SELECT *, _row_id, _last_updated_sequence_number FROM cached.tables.{} ORDER BY id"
ENCRYPT = {"key_id": "keyA", "parallelism": 4}


@pytest.fixture(scope="module")
def driver(hive_lake: HiveLake) -> Iterator[Driver]:
    """A Spark that shares the lake's metastore and runs ags1."""
    with Driver(hive_lake.metastore, hive_lake.directory) as started:
        yield started


@pytest.fixture
def table(hive_lake: HiveLake, request: pytest.FixtureRequest) -> str:
    """A plaintext table of six files, one of which has deletes."""
    name = request.node.name.removeprefix("test_")[:40]
    hive_lake.create(
        name, "id bigint, part int, text string", key_id=None, partitioned_by="part",
        properties={"format-version": "3"},
    )  # fmt: skip
    for begin in (0, 300):
        hive_lake.sql(f"INSERT INTO {name} SELECT id, id % 3, repeat(id, 50) FROM range({begin}, {begin + 300}, 1, 1)")
    hive_lake.sql(f"DELETE FROM {name} WHERE id = 6")
    return name


def directory_of(lake: HiveLake, name: str) -> Path:
    found = lake.catalog().load_table(("tables", name))
    return local_path(found.metadata.location)


def test_a_session_reads_the_same_rows_after_each_conversion(driver: Driver, hive_lake: HiveLake, table: str) -> None:
    name = f"cached.tables.{table}"
    rows = driver.rows(ROWS.format(table))
    assert len(rows) == 599
    plan = driver.said(call="encrypt_table", table=name, options={**ENCRYPT, "dry_run": True})
    assert (plan["files"]["data"], plan["problems"]) == (6, [])
    # Its first task ends with its worker, and is tried again.
    report = driver.said(
        call="encrypt_table", table=name, end_a_worker=True,
        options={**ENCRYPT, "steps": ["enable", "convert", "expire"]},
    )  # fmt: skip
    assert report["worker_ended"]
    assert (report["files"], report["reused"], report["remaining"]) == (6, 0, [])
    assert driver.rows(ROWS.format(table)) == rows
    directory = directory_of(hive_lake, table)
    assert beginning_with(directory / "data", PLAINTEXT) == []
    assert len(beginning_with(directory / "data", ENCRYPTED)) >= 6
    assert not (directory / "metadata" / "ags1-conversion").exists()
    driver.rows(f"INSERT INTO {name} VALUES (1000, 1, 'new')")
    rows = driver.rows(ROWS.format(table))
    assert len(rows) == 600
    report = driver.said(call="rekey_table", table=name, options={"key_id": "keyB", "data_keys": True, "expire": True})
    assert report["files"] == 7
    assert driver.rows(ROWS.format(table)) == rows
    opened = load_table(
        hive_lake.catalog(), ("tables", table), kms=MemoryKms({"keyB": MASTER_KEYS["keyB"]}), table_key_id="keyB"
    )
    assert opened.verify().ok
    code, said = driver.said(job=["decrypt-table", name, "--kms", KMS, "--json", "--yes", "--expire"])
    assert (code, json.loads(said)["report"]["files"]) == (0, 7)
    assert driver.rows(ROWS.format(table)) == rows
    assert beginning_with(directory / "data", ENCRYPTED) == []


@pytest.mark.timeout(300)
def test_a_killed_driver_is_resumed_by_the_next(driver: Driver, hive_lake: HiveLake, table: str) -> None:
    name = f"cached.tables.{table}"
    rows = driver.rows(ROWS.format(table))
    with closing(Driver(hive_lake.metastore, hive_lake.directory)) as first, pytest.raises(PeerFailure, match="ended"):
        first.said(call="encrypt_table", table=name, options=ENCRYPT, kill_at=0.5)
    assert driver.rows(ROWS.format(table)) == rows
    report = driver.said(call="encrypt_table", table=name, options=ENCRYPT)
    assert report["reused"] > 0
    assert report["reused"] + report["files"] == 6
    assert driver.rows(ROWS.format(table)) == rows
    opened = load_table(hive_lake.catalog(), ("tables", table), kms=MemoryKms(MASTER_KEYS))
    assert opened.verify(snapshot_id=None).ok


def test_what_fails_in_a_task_leaves_the_table_as_it_was(driver: Driver, hive_lake: HiveLake, table: str) -> None:
    name = f"cached.tables.{table}"
    path = next(each for each in (directory_of(hive_lake, table) / "data").rglob("*.parquet"))
    data = path.read_bytes()
    # The footer is as it was: only who moves the pages can see it.
    path.write_bytes(data[:4] + bytes(40) + data[44:])
    before = directory_of(hive_lake, table), driver.rows(f"SELECT count(*) FROM {name}.snapshots")
    with pytest.raises(RuntimeError, match=rf"FormatError.*{path.name}"):
        driver.said(call="encrypt_table", table=name, options=ENCRYPT)
    assert driver.rows(f"SELECT count(*) FROM {name}.snapshots") == before[1]
    path.write_bytes(data)
    report = driver.said(call="encrypt_table", table=name, options=ENCRYPT)
    assert report["reused"] + report["files"] == 6


@pytest.mark.parametrize(
    ("table_name", "message"),
    [
        ("nothing.tables.t", "spark.sql.catalog.spark_catalog is"),
        ("cached.t", "write CATALOG.NAMESPACE.TABLE"),
        ("cached.tables.absent", "absent"),
        ("cached..t", "write CATALOG.NAMESPACE.TABLE"),
    ],
)
def test_names_that_the_session_has_no_table_for_are_refused(table_name: str, message: str, driver: Driver) -> None:
    with pytest.raises(RuntimeError, match=message):
        driver.said(call="encrypt_table", table=table_name, options=ENCRYPT)
