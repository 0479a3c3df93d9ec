"""What a task that converts files of a table does, in this process: attempts do not meet, and no key is in the open."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyiceberg")

import pyarrow as pa
import pyarrow.parquet as pq

from ags1 import parquet
from ags1.iceberg.conversion.journal import Journal, runs
from ags1.iceberg.conversion.work import FileTask, Places, WorkKey
from ags1.spark._engine import Outcome
from ags1.spark._iceberg_work import Job, TableMoving
from ags1.spark._planning import Unit
from ags1.spark._sealing import kms_client
from ags1.storage import Location


def _unit(source: Path, target: Path, rows: int, job: Job) -> Unit:
    size = source.stat().st_size
    return Unit(str(source), size, (FileTask(str(source), str(target), "data", "parquet", size, rows, None, 128), job))


def _run(units: list[Unit], kms_url: str) -> list[Outcome]:
    # As they travel.
    found: list[Unit] = pickle.loads(pickle.dumps(units))
    return list(TableMoving("encrypt", kms_url).run(found, lambda files, size: None))


def test_two_attempts_at_one_file_write_two_whole_files(tmp_path: Path, kms_url: str) -> None:
    rows = pa.table({"id": range(1000)})
    pq.write_table(rows, tmp_path / "plain.parquet")
    work_key = WorkKey.make(kms_client(kms_url), "lake")
    journal = Journal(Location(str(tmp_path / "journal")), {"change": "encrypt"}, work_key)
    job = Job(Places(), work_key, journal.directory)
    unit = _unit(tmp_path / "plain.parquet", tmp_path / "t" / "new.parquet", 1000, job)
    seal = work_key.open(kms_client(kms_url))
    targets = set()
    for _ in range(2):
        (outcome,) = _run([unit], kms_url)
        result = outcome.detail
        targets.add(result.target)
        assert result.target.endswith(".parquet")
        key = seal.open(result.key, result.target)
        assert bytes(key.encryption_key) not in pickle.dumps(result)
        parquet.decrypt_file(result.target, tmp_path / "back.parquet", parquet.DecryptionConfig.for_iceberg(key))
        assert pq.read_table(tmp_path / "back.parquet").equals(rows)
    assert len(targets) == 2
    (run,) = runs(Location(str(tmp_path / "journal")))
    assert {each.target for each in run.results()} == targets
    journal.remove()
    assert not (tmp_path / "journal").exists()


def test_what_was_moved_before_a_file_that_fails_is_recorded(tmp_path: Path, kms_url: str) -> None:
    pq.write_table(pa.table({"id": range(10)}), tmp_path / "good.parquet")
    work_key = WorkKey.make(kms_client(kms_url), "lake")
    journal = Journal(Location(str(tmp_path / "journal")), {"change": "encrypt"}, work_key)
    job = Job(Places(), work_key, journal.directory)
    units = [_unit(tmp_path / "good.parquet", tmp_path / "t" / f"{rows}.parquet", rows, job) for rows in (10, 11)]
    outcomes = _run(units, kms_url)
    assert [(each.status, each.kind) for each in outcomes] == [("ok", None), ("error", "FormatError")]
    assert "has 10 rows, but its manifest says 11" in str(outcomes[1].error)
    (run,) = runs(Location(str(tmp_path / "journal")))
    assert [each.target for each in run.results()] == [outcomes[0].target]
