"""Conversions over places: object stores, files outside the table's location, other tables' files."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import pyarrow
import pytest

from ags1 import iceberg
from ags1.errors import UnsupportedError
from ags1.iceberg import open_table
from ags1.iceberg.catalogs import catalog_table
from ags1.iceberg.catalogs.file import FileTable
from ags1.kms import MemoryKms
from ags1.storage import Location, list_files, read_whole
from tests import modes
from tests.iceberg.canonical import arrow_rows, sorted_rows
from tests.iceberg.conversions import LINEAGE, PLAINTEXT, beginning_with, read_rows, writable
from tests.iceberg.warehouse import SparkTables, local_path
from tests.servers.fixtures import needs_credentials
from tests.servers.s3 import S3Server

NOW = datetime.timedelta(0)


def test_a_table_goes_to_a_bucket_and_is_converted_there(
    spark_tables: SparkTables, s3_server: S3Server, s3_bucket: str, tmp_path: Path, table_kms: MemoryKms
) -> None:
    table, place = spark_tables["deletes"], f"s3://{s3_bucket}/db/t"
    properties = {
        "s3.endpoint": s3_server.endpoint,
        "s3.access-key-id": s3_server.access_key,
        "s3.secret-access-key": s3_server.secret_key,
        "s3.region": s3_server.region,
    }
    source = writable(table, tmp_path)
    iceberg.relocate_table(source, place, kms=table_kms, target_properties=properties)
    made = catalog_table(None, place, storage_options=properties)

    def check() -> None:
        opened = open_table(made.load().metadata_location, table_kms, properties=properties, allow_plaintext=True)
        assert table.current is not None
        rows = opened.scan(columns=[*table.current.columns, *LINEAGE]).to_arrow()
        assert sorted_rows(arrow_rows(rows)) == sorted_rows(table.lineage.rows)

    check()
    iceberg.rekey_table(made, key_id="keyB", data_keys=True, kms=table_kms, expire=True)
    check()
    iceberg.decrypt_table(made, kms=table_kms, expire=True)
    check()
    iceberg.encrypt_table(made, key_id="keyA", kms=table_kms, steps=("enable", "convert", "expire"))
    check()
    options = s3_server.storage_options()
    files = list_files(Location(place, options))
    begin = {entry.name: bytes(read_whole(entry.location, 1 << 24))[:4] for entry in files}
    assert len(begin) > 5
    assert not [name for name, magic in begin.items() if magic in PLAINTEXT]
    assert not iceberg.clean(made, kms=table_kms, older_than=NOW).paths


def test_files_outside_the_location_come_into_it(
    spark_tables: SparkTables, tmp_path: Path, table_kms: MemoryKms
) -> None:
    # All files of the source lie elsewhere, seen from where the table says that it is.
    table = spark_tables["events_plain"]
    fields = json.loads(table.metadata_path.read_bytes())
    fields["location"] = str(tmp_path / "t")
    (tmp_path / "t" / "metadata").mkdir(parents=True)
    (tmp_path / "t" / "metadata" / "00007-x.metadata.json").write_text(json.dumps(fields))
    made = catalog_table(None, str(tmp_path / "t"))
    plan = iceberg.plan_conversion(made, key_id="keyA", kms=table_kms)
    assert plan.outside == sum(plan.files.values())
    iceberg.encrypt_table(made, key_id="keyA", kms=table_kms)
    assert table.current is not None
    assert read_rows(made, table_kms) == sorted_rows(table.current.rows)
    document = made.load().document.fields
    current = {snapshot["snapshot-id"] for snapshot in document["refs"].values()}
    lists = [each["manifest-list"] for each in document["snapshots"] if each["snapshot-id"] in current]
    assert all(each.startswith(str(tmp_path / "t")) for each in lists)
    assert not beginning_with(tmp_path / "t", PLAINTEXT)


def test_nothing_is_cleaned_where_another_table_lies(
    spark_tables: SparkTables, tmp_path: Path, table_kms: MemoryKms
) -> None:
    source = writable(spark_tables["maintained"], tmp_path / "source")
    for place in (tmp_path / "lake", tmp_path / "lake" / "other"):
        iceberg.relocate_table(source, str(place), kms=table_kms)
    before = sorted((tmp_path / "lake").rglob("*"))
    made = catalog_table(None, str(tmp_path / "lake"))
    with pytest.raises(UnsupportedError, match="another table in this one's location"):
        iceberg.clean(made, kms=table_kms, older_than=NOW)
    assert sorted((tmp_path / "lake").rglob("*")) == before


def test_young_files_and_those_of_a_run_under_way_are_left_alone(
    spark_tables: SparkTables, tmp_path: Path, table_kms: MemoryKms
) -> None:
    place = tmp_path / "t"
    iceberg.relocate_table(writable(spark_tables["maintained"], tmp_path / "source"), str(place), kms=table_kms)
    made = catalog_table(None, str(place))
    (place / "data" / "being-written.parquet").write_bytes(b"PAR1")

    def stop_late(done: int, total: int | None) -> None:
        if done == total:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        iceberg.rekey_table(made, data_keys=True, kms=table_kms, progress=stop_late, threads=1)
    report = iceberg.clean(made, kms=table_kms)
    assert not report.paths
    assert report.recent > 0
    seen = iceberg.clean(made, kms=table_kms, older_than=NOW, dry_run=True)
    assert len(seen.paths) > 1
    assert (report.given_up, report.is_empty, seen.given_up, seen.is_empty) == (0, True, 1, False)
    for path in seen.paths:
        Path(path).unlink()
    rest = iceberg.clean(made, kms=table_kms, older_than=NOW, dry_run=True)
    assert (rest.paths, rest.is_empty) == ([], False), "the record of the killed run is something to remove"
    removed = iceberg.clean(made, kms=table_kms, older_than=NOW)
    assert "1 record of killed conversions removed: they cannot be resumed then" in str(removed)
    assert not (place / "metadata" / "ags1-conversion").exists()
    assert iceberg.open_table(made.load().metadata_location, table_kms).verify().ok


def test_snapshots_of_a_table_whose_files_others_need_are_kept(
    spark_tables: SparkTables, tmp_path: Path, table_kms: MemoryKms
) -> None:
    made = writable(spark_tables["events"], tmp_path)
    state = made.load()
    made.commit(state, {**state.document.fields, "properties": {"gc.enabled": "false"}})
    with pytest.raises(UnsupportedError, match=r"gc\.enabled is false"):
        iceberg.expire_snapshots(made, kms=table_kms, dry_run=True)


@pytest.mark.parametrize("moment", ["copying", "creating"])
def test_a_copy_that_was_killed_is_finished_by_the_next_run_and_leaves_nothing(
    moment: str, spark_tables: SparkTables, tmp_path: Path, table_kms: MemoryKms, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = writable(spark_tables["maintained"], tmp_path / "source")
    place = tmp_path / "t"
    rows = read_rows(source, table_kms)

    def killed(*_: Any) -> None:
        # Of an OSError nobody knows what it means, so nothing is removed, as after a kill.
        raise OSError("killed")

    def stop_late(done: int, total: int | None) -> None:
        if done == total:
            killed()

    with monkeypatch.context() as patch:
        if moment == "creating":
            patch.setattr(FileTable, "create", killed)
        with pytest.raises(OSError, match="killed"):
            iceberg.relocate_table(
                source, str(place), kms=table_kms, progress=stop_late if moment == "copying" else None, threads=1
            )
    before = {path for path in place.rglob("*") if path.is_file()}
    report = iceberg.relocate_table(source, str(place), kms=table_kms)
    assert report.reused > 0
    made = catalog_table(None, str(place))
    cleaned = iceberg.clean(made, kms=table_kms, older_than=NOW)
    assert {local_path(each) for each in cleaned.paths} <= before
    assert bool(cleaned.paths) == (moment == "creating")
    assert not iceberg.clean(made, kms=table_kms, older_than=NOW).paths
    assert not (place / "metadata" / "ags1-conversion").exists()
    assert read_rows(made, table_kms) == rows


def test_a_bucket_in_which_nothing_may_be_deleted_is_converted_and_cleaned_later(
    s3_server: S3Server, s3_bucket: str, table_kms: MemoryKms
) -> None:
    needs_credentials(s3_server)
    owner = {
        "s3.endpoint": s3_server.endpoint,
        "s3.access-key-id": s3_server.access_key,
        "s3.secret-access-key": s3_server.secret_key,
        "s3.region": s3_server.region,
    }
    guest = {"s3.endpoint": s3_server.endpoint, "s3.anonymous": "true", "s3.region": s3_server.region}
    actions = {"s3:GetObject": "/*", "s3:PutObject": "/*", "s3:ListBucket": "", "s3:GetBucketLocation": ""}
    allowed = [
        {"Effect": "Allow", "Principal": "*", "Action": each, "Resource": f"arn:aws:s3:::{s3_bucket}{inside}"}
        for each, inside in actions.items()
    ]
    policy = json.dumps({"Version": "2012-10-17", "Statement": allowed})
    s3_server.client().put_bucket_policy(Bucket=s3_bucket, Policy=policy)
    place = f"s3://{s3_bucket}/t"
    rows = pyarrow.table({"id": range(100)})
    made = iceberg.create_table(None, place, rows.schema, kms=table_kms, key_id="keyA", storage_options=owner)
    made.append(rows)
    made.append(rows)
    table = iceberg.load_table(None, place, kms=table_kms, properties=guest)
    report = iceberg.rekey_table(table, data_keys=True, key_id="keyB")
    assert report.files == 2
    with pytest.raises(OSError, match=r"snapshots are expired, but \d+ of \d+ files could not be removed"):
        iceberg.expire_snapshots(table)
    assert len(table.refresh().document.fields["snapshots"]) == 1
    with pytest.raises(OSError, match="clean` removes them when it may"):
        iceberg.clean(table, older_than=NOW)
    owned = iceberg.load_table(None, place, kms=table_kms, properties=owner)
    cleaned = iceberg.clean(owned, older_than=NOW)
    assert len(cleaned.paths) > 4
    assert not iceberg.clean(owned, older_than=NOW).paths
    assert not [
        each for each in list_files(Location(place, s3_server.storage_options())) if "ags1-conversion" in each.name
    ]
    assert owned.verify().ok
    assert owned.scan().count() == 200


def test_directories_of_a_table_that_moves_have_the_old_modes(
    spark_tables: SparkTables, tmp_path: Path, table_kms: MemoryKms
) -> None:
    root, place = tmp_path / "root", tmp_path / "copy"
    iceberg.relocate_table(writable(spark_tables["events"], tmp_path / "old"), str(root), kms=table_kms)
    for name, mode in {"": 0o700, "data": 0o750, "metadata": 0o711}.items():
        (root / name).chmod(mode)
    with modes.umask(0o022):
        iceberg.relocate_table(catalog_table(None, str(root)), str(place), kms=table_kms)
        found = {name: (place / name).stat().st_mode & 0o777 for name in ("", "data", "metadata")}
        assert found == {"": 0o700, "data": 0o750, "metadata": 0o711}
