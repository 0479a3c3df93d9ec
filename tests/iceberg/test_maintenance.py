"""Manifests written again, and all maintenance in the right order."""

from __future__ import annotations

import datetime
import os
import signal
from pathlib import Path
from typing import Any

import pyarrow
import pytest

from ags1.errors import ConflictError, KeyAccessError
from ags1.iceberg import (
    CompactionOptions,
    EncryptedTable,
    MaintenancePolicy,
    clean,
    create_table,
    decrypt_table,
    encrypt_table,
    expire_snapshots,
    load_table,
    plan_conversion,
    rekey_table,
)
from ags1.iceberg.files.file_io import SnapshotFiles
from ags1.iceberg.writing.metadata import TableMetadata
from ags1.kms import MemoryKms
from ags1.storage import TEMPORARY_SUFFIX
from tests.iceberg.kills import ended, in_child
from tests.iceberg.test_compaction import content, delete_by_value, meanwhile, new_table, opened, rows, stored

KMS = MemoryKms({"lake": bytes(16), "other": bytes(range(16))})
NOW = datetime.timedelta(0)
ALL = MaintenancePolicy(expire_older_than=NOW, clean_older_than=NOW)


def manifests(table: EncryptedTable) -> list[dict[str, Any]]:
    snapshot = TableMetadata(table.document.fields).snapshot_of("main")
    assert snapshot is not None
    return SnapshotFiles(table.io).manifests(snapshot)


def test_many_manifests_become_few_and_rows_keep_their_numbers(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t", ["part"], files=5)
    table.upsert(rows(3, 100), on=["id"])
    table.delete("id = 7")
    before, files = content(table), {task.file.file_path for task in table.scan().plan_files()}
    old = manifests(table)
    planned = table.rewrite_manifests(dry_run=True)
    assert (planned.snapshot_id, planned.replaced) == (None, len(old))
    report = table.rewrite_manifests()
    found = manifests(table)
    assert sorted(each["content"] for each in found) == [0, 1]
    assert (report.replaced, report.written, report.kept) == (len(old), 2, 0)
    assert all(each.get("key_metadata") for each in found)
    assert content(table) == before
    assert {task.file.file_path for task in table.scan().plan_files()} == files
    summary = TableMetadata(table.document.fields).snapshot_of("main")["summary"]  # type: ignore[index]
    assert summary["operation"] == "replace"
    assert summary["manifests-replaced"] == str(len(old))
    assert summary["total-records"] == str(len(before) + 2)
    assert table.rewrite_manifests().snapshot_id is None
    table.append(rows(500))
    assert len(content(table)) == len(before) + 1
    assert table.verify().ok


def test_deletes_that_delete_nothing_any_more_are_left_out(tmp_path: Path) -> None:
    place = tmp_path / "t"
    table = new_table(place, files=3)
    delete_by_value(place, 3, 1000)
    table.refresh().delete("id = 14")
    before = content(table)
    # Both still apply.
    assert table.rewrite_manifests().dangling == 0
    assert content(table) == before
    table.compact()
    report = table.rewrite_manifests()
    assert report.dangling == 1
    assert "removed 1 delete file that deleted nothing" in str(report)
    assert content(table) == before
    summary = TableMetadata(table.document.fields).snapshot_of("main")["summary"]  # type: ignore[index]
    assert (summary["total-delete-files"], summary["total-equality-deletes"]) == ("0", "0")
    table.append(rows(3))
    assert len(content(table)) == len(before) + 1


def test_plaintext_manifests_become_encrypted_only_where_plaintext_is_allowed(tmp_path: Path) -> None:
    place = tmp_path / "t"
    before = content(new_table(place, files=2))
    decrypt_table(opened(place))
    table = load_table(None, str(place), kms=KMS, allow_plaintext=True)
    # As Java before 1.12 has left manifests of an encrypted table.
    encrypt_table(table, key_id="lake", steps=("enable",))
    assert not any(each.get("key_metadata") for each in manifests(table.refresh()))
    with pytest.raises(KeyAccessError, match="not encrypted"):
        opened(place).rewrite_manifests()
    table.rewrite_manifests()
    assert all(each.get("key_metadata") for each in manifests(table))
    assert content(table) == before


def test_manifests_of_a_table_that_others_write_to_lose_nothing(tmp_path: Path) -> None:
    place = tmp_path / "t"
    table = new_table(place)
    stale = opened(place)
    table.append(rows(200))
    table.delete("id = 200 or id = 5")
    stale.rewrite_manifests()
    assert [each["id"] for each in content(stale)] == [each for each in range(60) if each != 5]


def test_maintenance_does_every_step_and_then_has_nothing_to_do(tmp_path: Path) -> None:
    place = tmp_path / "t"
    table = new_table(place, ["part"])
    table.delete("id = 7")
    (place / "data" / "orphan.parquet").write_bytes(b"left by a killed run")
    before = content(table)
    planned = table.maintain(ALL, dry_run=True)
    assert planned.compactions[0].files == 12
    assert planned.cleaned is not None
    assert len(planned.cleaned.paths) == 1
    assert content(opened(place)) == before
    assert len(table.snapshots()) == 7
    report = table.maintain(ALL)
    assert content(table) == before
    assert len(stored(place)) == 2
    assert report.expired is not None
    assert report.expired.snapshots
    assert report.expired.key_entries
    assert len(table.snapshots()) == len(table.document.fields["encryption-keys"]) - 1 == 1
    again = table.maintain(ALL)
    assert (again.compactions[0].snapshots, again.manifests[0].snapshot_id) == ([], None)
    assert again.expired is not None
    assert not again.expired.snapshots
    assert table.verify().ok
    assert "nothing to compact" in str(again)
    # The record that tells others of the maintenance itself is none of a killed conversion.
    assert [each.cleaned.given_up for each in (report, again) if each.cleaned is not None] == [0, 0]
    assert "killed" not in str(report) + str(again)


def test_young_snapshots_and_files_stay(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t")
    (tmp_path / "t" / "data" / "orphan.parquet").write_bytes(b"somebody is about to commit this")
    old = table.refs["main"]
    before = content(table)
    table.maintain()
    assert content(table, snapshot_id=old) == content(table) == before
    assert len(stored(tmp_path / "t")) == 8
    assert table.maintain(MaintenancePolicy(compaction=None, manifests=False, clean_older_than=None)).cleaned is None


def test_what_a_killed_writer_has_begun_is_cleaned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the file system knows no unnamed files, a writer's has a temporary name, which SIGKILL leaves."""
    place = tmp_path / "t"
    table = new_table(place, files=1)
    monkeypatch.delattr(os, "O_TMPFILE")
    monkeypatch.setattr(os, "replace", lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
    assert ended(in_child(lambda: table.append(rows(100)))) == -signal.SIGKILL
    (left,) = (path for path in place.rglob("*") if path.name.endswith(TEMPORARY_SUFFIX))
    assert not clean(table).paths
    assert left.exists()
    assert [Path(path) for path in clean(table, older_than=NOW).paths] == [left]
    assert not left.exists()
    assert len(content(table)) == 10


def test_an_age_below_zero_is_refused_before_anything_is_done(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t")
    metadata_location, age = table.refresh().metadata_location, datetime.timedelta(days=-1)
    for work in (
        lambda: expire_snapshots(table, older_than=age),
        lambda: clean(table, older_than=age),
        lambda: table.maintain(MaintenancePolicy(expire_older_than=age)),
        lambda: table.maintain(MaintenancePolicy(clean_older_than=age)),
    ):
        with pytest.raises(ValueError, match="must not be negative"):
            work()
    assert table.refresh().metadata_location == metadata_location


def test_maintenance_does_not_run_beside_a_conversion(tmp_path: Path) -> None:
    place = tmp_path / "t"
    table = new_table(place)
    errors: list[str] = []

    def maintain() -> None:
        try:
            opened(place).maintain(ALL)
        except ConflictError as error:
            errors.append(str(error))

    rekey_table(opened(place), key_id="other", data_keys=True, threads=1, progress=meanwhile(maintain))
    assert len(errors) == 1
    assert "a conversion is under way, or was killed" in errors[0]
    table = load_table(None, str(place), kms=KMS)
    assert len(content(table)) == 60
    table.maintain(ALL)
    assert len(content(table)) == 60
    assert not clean(table, older_than=NOW).paths


def test_a_conversion_tells_of_maintenance_that_is_under_way_and_clean_leaves_its_files(tmp_path: Path) -> None:
    place = tmp_path / "t"
    table = new_table(place)
    plans: list[Any] = []

    def look() -> None:
        plans.append(plan_conversion(opened(place), key_id="other", data_keys=True))
        plans.append(clean(opened(place), older_than=NOW, dry_run=True))

    table.maintain(ALL, progress=meanwhile(look))
    notes, cleaned = plans[0].notes, plans[1]
    assert [each.partition(" is under way")[0] for each in notes] == ["maintenance of the table"]
    assert cleaned.paths == []
    assert plan_conversion(opened(place), key_id="other", data_keys=True).notes == []
    assert len(content(table)) == 60


def test_what_cannot_be_maintained_is_refused_before_anything_is_done(tmp_path: Path) -> None:
    table = create_table(None, str(tmp_path / "t"), pyarrow.schema([("id", pyarrow.int64())]), kms=KMS, key_id="lake")
    for _ in range(5):
        table.append(pyarrow.table({"id": [1]}))
    with pytest.raises(ValueError, match="no branch 'none'"):
        table.maintain(MaintenancePolicy(branches=("main", "none")))
    assert len(table.snapshots()) == 5
    policy = MaintenancePolicy(compaction=CompactionOptions(min_input_files=6))
    assert not table.maintain(policy).compactions[0].snapshots
