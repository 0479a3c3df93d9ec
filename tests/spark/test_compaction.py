"""Tables compacted by tasks of a real Spark, in a store; what a task does is in test_compaction_work.py."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyiceberg")

from pyiceberg.catalog.sql import SqlCatalog

import ags1.spark
from ags1.errors import KeyAccessError
from ags1.iceberg import clean, create_table, load_table
from ags1.iceberg.metadata.locations import location_of
from ags1.spark import iceberg
from ags1.spark.engine.sealing import kms_client
from ags1.storage import list_files
from tests.iceberg.test_compaction import NOW, content, rows
from tests.iceberg.test_store_requests import options
from tests.servers.s3 import S3Server
from tests.spark.killed_compaction import KilledCompacting

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_table_in_a_store_is_compacted_by_tasks_of_which_one_is_killed(
    spark: SparkSession,
    s3_server: S3Server,
    s3_bucket: str,
    kms_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    catalog = SqlCatalog(
        "store", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"s3://{s3_bucket}/lake", **options(s3_server)
    )
    catalog.create_namespace("db")
    made = create_table(catalog, "db.t", rows(0).schema, ["part"], kms=kms_client(kms_url), key_id="lake")
    for number in range(5):
        made.append(rows(*range(4 * number, 4 * number + 4)))
    before = content(made)
    table = catalog, "db.t"
    plan = ags1.spark.compact_table(spark, table, kms=kms_url, dry_run=True)
    assert (plan.files, plan.snapshots) == (10, [])
    monkeypatch.setattr(iceberg, "TableCompacting", KilledCompacting)
    report = ags1.spark.compact_table(spark, table, kms=kms_url, parallelism=2, progress=False)
    assert (report.files, report.added_files) == (10, 2)
    assert content(made.refresh()) == before
    place = f"{made.document.fields['location']}/data"
    assert len(list_files(location_of(place, made.io.properties))) == 12, "a file of the killed attempt is left"
    assert not clean(made, older_than=NOW).paths
    assert made.verify().ok
    # Nothing is left to do, and no task runs for it.
    assert ags1.spark.compact_table(spark, load_table(*table, kms=kms_client(kms_url)), kms=kms_url).snapshots == []


def test_what_is_no_table_and_who_may_not_wrap_is_refused(spark: SparkSession, kms_url: str, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="must be a name, a pair or an EncryptedTable"):
        ags1.spark.compact_table(spark, tmp_path, kms=kms_url)
    with pytest.raises(ValueError, match="pair"):
        ags1.spark.compact_table(spark, ("a", "b", "c"), kms=kms_url)
    with pytest.raises(TypeError, match="kms must be a URL"):
        ags1.spark.compact_table(spark, "lake.db.t", kms=kms_client(kms_url))  # type: ignore[arg-type]
    table = create_table(None, str(tmp_path / "t"), rows(0).schema, kms=kms_client(kms_url), key_id="lake")
    with pytest.raises(ValueError, match="parallelism"):
        ags1.spark.compact_table(spark, table, kms=kms_url, parallelism=0)
    for number in range(5):
        table.append(rows(number))
    with pytest.raises(KeyAccessError):
        ags1.spark.compact_table(spark, table, kms="module:tests.spark.test_compaction_work.Keys")
    assert len(table.refresh().snapshots()) == 5
