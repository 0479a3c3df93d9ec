"""What a task that converts files of a table does, in this process: attempts do not meet, and no key is in the open."""

from __future__ import annotations

import functools
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyiceberg")

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import cloudpickle

from ags1 import parquet
from ags1.expected import Expected
from ags1.iceberg.conversion.journal import KIND, Journal, moved, remove_run
from ags1.iceberg.conversion.work import FileResult, FileTask, Places, key_of
from ags1.iceberg.files.file_io import KnownFile
from ags1.iceberg.keys.wrapped_key import WrappedKey, unwrapping_under
from ags1.iceberg.walk.table_walk import TableFile
from ags1.spark import iceberg as on_spark
from ags1.spark.engine import captured, runner
from ags1.spark.engine.iceberg_work import Job, TableMoving, TableVerifying, unit_of
from ags1.spark.engine.planning import Unit
from ags1.spark.engine.runner import Outcome
from ags1.spark.engine.sealing import kms_client
from ags1.spark.iceberg import encrypt_table, verify_table
from ags1.storage import Location
from ags1.work.records import found_runs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _unit(source: Path, target: Path, rows: int, job: Job) -> Unit:
    size = source.stat().st_size
    return Unit(str(source), size, (FileTask(str(source), str(target), "data", "parquet", size, rows, None, 128), job))


def _run(units: list[Unit], kms_url: str) -> list[Outcome]:
    # As they travel.
    found: list[Unit] = pickle.loads(pickle.dumps(units))
    return list(TableMoving("encrypt", kms_url).run(found))


def _begun(journals: Path, kms_url: str) -> Job:
    kms = kms_client(kms_url)
    journal = Journal.create(Location(str(journals)).as_root(), "table", WrappedKey("lake").another(kms))
    journal.begin(journal.open(kms), {"change": "encrypt"})
    return Job(Places(), journal)


def _recorded(journals: Path, kms_url: str) -> list[FileResult]:
    (run,) = found_runs(Location(str(journals)))
    opened = run.open(KIND, "table", unwrapping_under("lake", kms_client(kms_url)))
    return moved(opened, lambda name, error: pytest.fail(name))


def test_two_attempts_at_one_file_write_two_whole_files(tmp_path: Path, kms_url: str) -> None:
    rows = pa.table({"id": range(1000)})
    pq.write_table(rows, tmp_path / "plain.parquet")
    job = _begun(tmp_path / "journal", kms_url)
    unit = _unit(tmp_path / "plain.parquet", tmp_path / "t" / "new.parquet", 1000, job)
    assert job.journal is not None
    seal = job.journal.open(kms_client(kms_url))
    targets = set()
    for _ in range(2):
        (outcome,) = _run([unit], kms_url)
        result = outcome.detail
        targets.add(result.target)
        assert result.target.endswith(".parquet")
        key = key_of(seal, result.key, result.target)
        assert bytes(key.encryption_key) not in pickle.dumps(result)
        parquet.decrypt_file(result.target, tmp_path / "back.parquet", parquet.DecryptionConfig.for_iceberg(key))
        assert pq.read_table(tmp_path / "back.parquet").equals(rows)
    assert len(targets) == 2
    assert {each.target for each in _recorded(tmp_path / "journal", kms_url)} == targets
    remove_run(job.journal.directory)
    assert not list((tmp_path / "journal").iterdir())


def test_what_was_moved_before_a_file_that_fails_is_recorded(tmp_path: Path, kms_url: str) -> None:
    pq.write_table(pa.table({"id": range(10)}), tmp_path / "good.parquet")
    job = _begun(tmp_path / "journal", kms_url)
    units = [_unit(tmp_path / "good.parquet", tmp_path / "t" / f"{rows}.parquet", rows, job) for rows in (10, 11)]
    outcomes = _run(units, kms_url)
    assert [(each.status, each.kind) for each in outcomes] == [("ok", None), ("error", "FormatError")]
    assert "has 10 rows, but its manifest says 11" in str(outcomes[1].error)
    assert [each.target for each in _recorded(tmp_path / "journal", kms_url)] == [outcomes[0].target]


def test_a_task_that_verifies_reads_where_the_driver_may_and_nowhere_else(tmp_path: Path) -> None:
    metadata = str(tmp_path / "t" / "metadata" / "1.metadata.json")
    cases = (("t/data", None, False), ("victim", None, True), ("victim", [str(tmp_path / "victim")], False))
    for name, allowed, is_refused in cases:
        path = tmp_path / name / "x.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"id": range(10)}), path)
        file = TableFile(KnownFile(str(path), "data", "parquet", None, path.stat().st_size))
        unit: Unit = pickle.loads(pickle.dumps(unit_of(file)))
        expected = Expected(allow_plaintext=True, allowed_locations=allowed)
        (outcome,) = TableVerifying({}, metadata, expected).run([unit])
        assert ("only the table's own files name it" in str(outcome.error)) is is_refused, outcome.error
        assert outcome.status != "ok"


def test_credentials_for_a_table_without_keys_go_to_tasks_sealed_or_not_at_all(
    spark: SparkSession, tmp_path: Path, kms_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyiceberg.catalog.sql import SqlCatalog

    for names in captured._ELSEWHERE.values():
        for each in names:
            monkeypatch.delenv(each, raising=False)
    secret, sent = "A/secret+key of the storage", []
    properties = {"s3.secret-access-key": secret, "s3.access-key-id": "AKIA", "s3.region": "eu-central-1"}
    catalog = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=tmp_path.as_uri())
    catalog.create_namespace("db")
    rows = pa.table({"id": [1, 2, 3]})
    table = catalog.create_table("db.t", rows.schema)
    table.append(rows)
    real = runner._run_bins

    def made(function: Any, *given: Any) -> Any:
        if function is real:
            sent.append(cloudpickle.dumps(given))
        return functools.partial(function, *given)

    monkeypatch.setattr(runner, "partial", made)
    options: dict[str, Any] = {"kms": kms_url, "properties": properties, "allow_plaintext": True, "progress": False}

    def verify(**more: Any) -> Any:
        return verify_table(spark, table.metadata_location, **options, **more)

    with pytest.raises(PermissionError, match=r"s3\.secret-access-key.*transfer_key_id"):
        verify()
    for more in ({"transfer_key_id": "lake"}, {"table_key_id": "lake"}):
        assert verify(**more).counts.keys() == {"not protected"}
    monkeypatch.setenv("AWS_PROFILE", "lake")
    assert verify().counts.keys() == {"not protected"}
    assert len(sent) == 3
    for data in sent:
        assert secret.encode() not in data
        assert b"AKIA" not in data
    assert b"eu-central-1" in sent[2]
    monkeypatch.delenv("AWS_PROFILE")

    def performing(table: Any, perform: Any, **options: Any) -> None:
        list(perform([], None, Places({}, properties)))

    monkeypatch.setattr(on_spark.tables, "encrypt_table", performing)
    with pytest.raises(PermissionError, match=r"s3\.secret-access-key"):
        encrypt_table(spark, (catalog, "db.t"), kms=kms_url, key_id="lake")
