"""Tables converted on Spark: the session that does it reads the same rows at once, and no failure loses any."""

from __future__ import annotations

import contextlib
import json
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

pytest.importorskip("pyspark")

from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog

from ags1.errors import KeyAccessError
from ags1.iceberg import create_table, decrypt_table, load_table
from ags1.iceberg.keys.wrapped_key import WrappedKey
from ags1.iceberg.walk.table_walk import walk
from ags1.kms import MemoryKms
from tests.checks import leaks
from tests.iceberg.conversions import ENCRYPTED, PLAINTEXT, beginning_with
from tests.iceberg.glue import KEYS, glue_server
from tests.iceberg.keys import MASTER_KEYS
from tests.iceberg.spark_conversions import KMS, Driver
from tests.iceberg.warehouse import HiveLake, local_path
from tests.interop.jvm import PeerFailure

ROWS = "SELECT *, _row_id, _last_updated_sequence_number FROM cached.tables.{} ORDER BY id"
ENCRYPT = {"key_id": "keyA", "parallelism": 4}


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
    report = driver.said(call="rekey_table", table=name, options={"key_id": "keyB", "expire": True})
    assert report["files"] == 7
    assert driver.rows(ROWS.format(table)) == rows
    opened = load_table(
        hive_lake.catalog(), ("tables", table), kms=MemoryKms({"keyB": MASTER_KEYS["keyB"]}), table_key_id="keyB"
    )
    assert opened.verify().ok
    code, said = driver.said(job=["iceberg", "decrypt", name, "--kms", KMS, "--json", "--yes", "--expire"])
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


def test_a_java_writer_that_loaded_the_table_as_plaintext_commits_plaintext_that_is_found_and_converted(
    driver: Driver, hive_lake: HiveLake, table: str
) -> None:
    name = f"cached.tables.{table}"
    rows = driver.rows(ROWS.format(table))
    directory = directory_of(hive_lake, table)
    written = next((directory / "data" / "part=1").glob("*.parquet"))
    late = written.with_name("late.parquet")
    shutil.copy(written, late)
    driver.said(hold=name)
    driver.said(call="encrypt_table", table=name, options={**ENCRYPT, "steps": ["enable", "convert", "expire"]})
    count = pyarrow.parquet.ParquetFile(late).metadata.num_rows
    driver.said(append_held={"path": f"file:{late}", "partition": "part=1", "rows": count})
    # What Java makes of it: the keys stay, its manifests are encrypted, and the file is as it was.
    opened = load_table(hive_lake.catalog(), ("tables", table), kms=MemoryKms(MASTER_KEYS), table_key_id="keyA")
    assert opened.document.fields["snapshots"][-1]["key-id"] is not None
    assert beginning_with(directory, PLAINTEXT) == [late]
    report = opened.verify()
    assert not report.ok
    assert [Path(each.subject).name for each in report.having("plaintext")] == [late.name]
    with pytest.raises(KeyAccessError, match=late.name):
        opened.scan().to_arrow()
    again = driver.said(call="encrypt_table", table=name, options={**ENCRYPT, "steps": ["convert", "expire"]})
    assert again["files"] == 1
    assert beginning_with(directory, PLAINTEXT) == []
    assert opened.refresh().verify().ok
    assert len(driver.rows(ROWS.format(table))) == len(rows) + count


def test_no_key_is_where_spark_keeps_things(driver: Driver, hive_lake: HiveLake, table: str) -> None:
    name = f"cached.tables.{table}"
    kms = MemoryKms(MASTER_KEYS)
    directory = directory_of(hive_lake, table)
    secrets: dict[str, bytes] = {}

    def learn() -> None:
        opened = load_table(hive_lake.catalog(), ("tables", table), kms=kms, allow_plaintext=True)
        master = opened.document.fields["properties"]["encryption.key-id"]
        for entry in opened.document.entries():
            if entry.encrypted_by_id == master:
                secrets[f"KEK {entry.key_id}"] = kms.unwrap_key(bytes(entry.encrypted_key_metadata), master)
        found = walk(opened.metadata_location, opened.io, "all")
        for file in (*found.manifest_lists.values(), *found.manifests.values(), *found.files.values()):
            if file.known.key_metadata is not None:
                secrets[file.path] = bytes(file.known.key_metadata.encryption_key)

    damaged = next(each for each in (directory / "data").rglob("*.parquet"))
    data = damaged.read_bytes()
    damaged.write_bytes(data[:4] + bytes(40) + data[44:])
    with pytest.raises(RuntimeError, match="FormatError"):
        driver.said(call="encrypt_table", table=name, options=ENCRYPT, end_a_worker=True)
    damaged.write_bytes(data)
    (run_file,) = (directory / "metadata" / "ags1-conversion").glob("*/run.json")
    secrets["work key"] = bytes(WrappedKey.from_json(json.loads(run_file.read_text())["key"], "run").unwrap(kms))
    driver.said(call="encrypt_table", table=name, options=ENCRYPT)
    learn()
    driver.said(call="rekey_table", table=name, options={"key_id": "keyB"})
    learn()
    kept = {str(path): path.read_bytes() for path in driver.directory.rglob("*") if path.is_file()}
    assert len(secrets) > 20
    assert any(b"SparkListenerTaskEnd" in each for each in kept.values())
    assert leaks(kept, secrets) == []


@pytest.mark.parametrize(
    "kind", ["rest", *(pytest.param(kind, marks=pytest.mark.nightly) for kind in ("jdbc", "glue"))]
)
def test_a_table_of_the_sessions_other_catalogs_is_converted(
    kind: str, driver: Driver, hive_lake: HiveLake, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    database = f"db_{tmp_path.name}".replace("-", "_")
    with contextlib.ExitStack() as stack:
        catalog: Any
        if kind == "rest":
            database = "db"
            settings = {"uri": f"{hive_lake.rest}/whole"}
            catalog = RestCatalog("other", **settings)
        elif kind == "jdbc":
            url = request.getfixturevalue("postgres_server").make_database()
            catalog = stack.enter_context(contextlib.closing(SqlCatalog("other_jdbc", uri=url)))
            place = url.partition("@")[2]
            settings = {"uri": f"jdbc:postgresql://{place}", "jdbc.user": "tests"}
        else:
            settings = {"glue.endpoint": stack.enter_context(glue_server()), **KEYS}
            catalog = GlueCatalog("other", **settings)
        if kind != "rest":
            catalog.create_namespace(database)
        prefix = f"spark.sql.catalog.other_{kind}"
        driver.said(
            set={
                prefix: "org.apache.iceberg.spark.SparkCatalog",
                f"{prefix}.type": kind,
                **{f"{prefix}.{name}": value for name, value in settings.items()},
            }
        )
        kms = MemoryKms(MASTER_KEYS)
        rows = pa.table({"id": range(50)})
        table = create_table(
            catalog,
            (database, f"spark_{kind}"),
            rows.schema,
            kms=kms,
            key_id="keyA",
            location=(tmp_path / "t").as_uri(),
        )
        table.append(rows)
        decrypt_table(table, expire=True)
        name = f"other_{kind}.{database}.spark_{kind}"
        every = ["enable", "convert", "expire"]
        assert driver.said(call="encrypt_table", table=name, options={**ENCRYPT, "steps": every})["files"] == 1
        assert beginning_with(tmp_path / "t" / "data", PLAINTEXT) == []
        assert load_table(catalog, (database, f"spark_{kind}"), kms=kms).verify().ok
        options = {"key_id": "keyB", "expire": True}
        assert driver.said(call="rekey_table", table=name, options=options)["files"] == 1
        again = load_table(catalog, (database, f"spark_{kind}"), kms=kms, table_key_id="keyB")
        assert again.scan().to_arrow()["id"].to_pylist() == list(range(50))
        assert driver.said(call="decrypt_table", table=name, options={"expire": True})["files"] == 1
        if kind == "rest":
            assert len(driver.rows(f"SELECT * FROM {name}")) == 50
