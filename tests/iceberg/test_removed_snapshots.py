"""Files that a killed expiry has left: the next run finds and removes them, and nobody is told that there are none."""

from __future__ import annotations

import datetime
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow
import pytest

from ags1.iceberg import (
    EncryptedTable,
    clean,
    create_table,
    decrypt_table,
    encrypt_table,
    expire_snapshots,
    load_table,
    open_table,
    plan_conversion,
    rekey_table,
)
from ags1.iceberg.catalogs import catalog_table
from ags1.iceberg.conversion import expiry, journal, operations, removed_snapshots
from ags1.iceberg.conversion.old_keys import what_old_keys_open
from ags1.iceberg.files.file_io import TableFileKeys
from ags1.kms import MemoryKms
from ags1.spark.engine.iceberg_work import _own
from tests.iceberg import test_leaks as leaks
from tests.iceberg.keys import keystore
from tests.iceberg.kills import ended, in_child
from tests.iceberg.test_compaction import KEYS, KMS, NOW, content, new_table, opened
from tests.iceberg.test_old_keys import Lake, check_nothing_old


def killed(work: Callable[[], object], groups: int) -> None:
    """Do some work in a child that SIGKILL ends once expiry has removed so many groups of files."""

    def child() -> None:
        count, remove = 0, expiry._remove

        def removing(*arguments: Any) -> None:
            nonlocal count
            if count == groups:
                os.kill(os.getpid(), signal.SIGKILL)
            count += 1
            remove(*arguments)

        expiry._remove = removing
        work()

    assert ended(in_child(child)) == -signal.SIGKILL


def data_and_manifests(place: Path) -> set[str]:
    return {str(path) for path in place.rglob("*") if path.suffix in (".parquet", ".avro", ".puffin")}


def named(table: EncryptedTable) -> set[str]:
    return {urlsplit(each).path for each in table.files()["path"].to_pylist()}


@pytest.mark.parametrize("groups", [0, 1, 2])
def test_an_expiry_that_was_killed_behind_its_commit_is_finished_by_the_next_one(tmp_path: Path, groups: int) -> None:
    table = new_table(tmp_path / "t", ["part"], files=3)
    table.delete("id = 7")
    table.compact(min_input_files=2, rewrite_all=True)
    rows = content(table)
    killed(lambda: expire_snapshots(opened(tmp_path / "t")), groups)
    table = opened(tmp_path / "t")
    assert len(table.snapshots()) == 1
    left = data_and_manifests(tmp_path / "t") - named(table)
    planned = expire_snapshots(table, dry_run=True)
    assert {urlsplit(each).path for each in planned.paths} == left
    assert data_and_manifests(tmp_path / "t") - named(table) == left
    report = expire_snapshots(table)
    assert report.ok
    assert report.paths == planned.paths
    assert report.metadata_hash is None
    assert len(report.removed_before) >= 4
    assert "snapshots removed that an earlier run has left" in str(report)
    assert data_and_manifests(tmp_path / "t") == named(table)
    assert content(opened(tmp_path / "t")) == rows
    assert not expire_snapshots(table).removed_before
    assert not clean(table, older_than=NOW).paths


def test_what_a_killed_rekey_has_left_is_found_with_the_new_key_alone(tmp_path: Path) -> None:
    """The metadata of its first commit has the old key encryption keys under the new master key."""
    place = tmp_path / "t"
    table = new_table(place, files=2)
    killed(lambda: rekey_table(table, key_id="other", data_keys=True, expire=True), 0)
    report = expire_snapshots(load_table(None, str(place), kms=MemoryKms({"other": KEYS["other"]})))
    assert report.ok
    assert len(report.removed_before) == 2
    assert data_and_manifests(place) == named(opened(place))


@pytest.mark.parametrize("groups", [0, 1, 2])
def test_the_next_rekey_removes_what_the_old_key_opens(tmp_path: Path, groups: int) -> None:
    lake = Lake(tmp_path)
    lake.fill(1)
    killed(lake.rekey_all, groups)
    found = lake.old_keys()
    assert not found.snapshots
    assert len(found.removed) == 2
    assert "old keys open 2 snapshots that the table no longer has" in str(found)
    assert lake.rekey_all() == ["db.t0"]
    assert not lake.old_keys().removed
    check_nothing_old(lake, 1)
    assert lake.rekey_all() == []


def test_a_killed_encryption_leaves_no_plaintext_behind_the_next_one(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t", files=2)
    plain = load_table(None, str(tmp_path / "t"), kms=KMS, allow_plaintext=True)
    decrypt_table(table, expire=True)
    plain.refresh()
    rows, before = content(plain), data_and_manifests(tmp_path / "t")
    killed(lambda: encrypt_table(plain, key_id="lake", steps=("enable", "convert", "expire")), 0)
    assert before <= data_and_manifests(tmp_path / "t")
    report = encrypt_table(
        load_table(None, str(tmp_path / "t"), kms=KMS, allow_plaintext=True),
        key_id="lake",
        steps=("enable", "convert", "expire"),
    )
    assert report.expired is not None
    assert report.expired.removed_before
    table = opened(tmp_path / "t")
    assert data_and_manifests(tmp_path / "t") == named(table)
    assert content(table) == rows


def test_statistics_that_a_killed_encryption_has_dropped_go_with_the_next_expiry(tmp_path: Path) -> None:
    """They are plaintext, and tell of the data."""
    place = leaks.plaintext_table(tmp_path)
    table = leaks.with_statistics(place)
    killed(lambda: encrypt_table(table, key_id="lake"), 0)
    assert leaks.stats_files(place) == 2
    table = load_table(None, place, kms=leaks.KMS)
    report = expire_snapshots(table, older_than=datetime.timedelta(hours=1), dry_run=True)
    assert report.files == {"statistics": 2}
    expire_snapshots(table)
    assert leaks.stats_files(place) == 0


def test_what_a_missing_key_hides_is_said_and_clean_removes_it(tmp_path: Path) -> None:
    place, kms = tmp_path / "t", keystore(tmp_path, {"other": KEYS["other"]})
    table = new_table(place, files=2)
    killed(lambda: decrypt_table(table, expire=True), 0)
    left = data_and_manifests(place) - named(load_table(None, str(place), kms=KMS, allow_plaintext=True))

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        # A process that has opened the table with the old key knows more.
        command = [sys.executable, "-m", "ags1", "iceberg", *arguments, str(place)]
        return subprocess.run([*command, "--kms", kms, "--yes"], capture_output=True, text=True)

    for _ in range(2):
        result = run("expire")
        assert result.returncode == 1
        assert result.stdout.count("NOT removed: files of snapshot") == 2
        assert "`ags1 iceberg clean` removes those below" in result.stdout
        assert left <= data_and_manifests(place)
    assert run("clean", "--older-than", "0").returncode == 0
    assert not left & data_and_manifests(place)
    assert run("expire").returncode == 0


def test_files_of_young_snapshots_stay(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t", files=2)
    killed(lambda: expire_snapshots(table), 0)
    left = data_and_manifests(tmp_path / "t")
    table = opened(tmp_path / "t")
    assert not expire_snapshots(table, older_than=datetime.timedelta(hours=1)).paths
    assert data_and_manifests(tmp_path / "t") == left
    assert expire_snapshots(table).paths


def test_an_old_metadata_file_that_somebody_has_written_names_nothing_that_is_needed(tmp_path: Path) -> None:
    """Its snapshot is another one's manifest list, or the current one's by another number, or lies elsewhere."""
    place = tmp_path / "t"
    table = new_table(place, files=2)
    elsewhere = tmp_path / "others.avro"
    elsewhere.write_bytes(b"theirs")
    log = table.document.fields["metadata-log"][-1]["metadata-file"]
    path = Path(urlsplit(log).path)
    fields = json.loads(path.read_text())
    current = table.document.fields["snapshots"][-1]
    now = int(1000 * time.time())
    fields["snapshots"] = [
        {**current, "snapshot-id": 1, "timestamp-ms": now},
        {**current, "snapshot-id": 2, "timestamp-ms": now, "manifest-list": str(elsewhere)},
        {**current, "snapshot-id": 3, "timestamp-ms": now, "manifest-list": table.metadata_location, "key-id": None},
        {"snapshot-id": 4, "timestamp-ms": now},
    ]
    fields["refs"] = {f"tag-{number}": {"snapshot-id": number, "type": "tag"} for number in (1, 2, 3, 4)}
    journal = place / "metadata" / "ags1-conversion" / str(uuid.UUID(int=1)) / "run.json"
    journal.parent.mkdir(parents=True)
    journal.write_text("{}")
    needed = [elsewhere, journal, path, place / "metadata" / "version-hint.text"]
    needed[-1].write_text("1")
    fields["statistics"] = [{"statistics-path": str(each)} for each in needed]
    path.write_text(json.dumps(fields))
    rows = content(table)
    # Also where the table may have data files.
    expire_snapshots(load_table(None, str(place), kms=KMS, allowed_locations=[str(tmp_path)]))
    assert all(each.exists() for each in needed)
    table = opened(place)
    assert content(table) == rows
    assert table.verify().ok
    assert open_table(table.metadata_location, KMS).verify().ok


def test_an_old_metadata_file_that_somebody_has_damaged_does_not_prevent_expiry(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t", files=3)
    table.delete("id < 10")
    path = Path(urlsplit(table.document.fields["metadata-log"][-1]["metadata-file"]).path)
    fields, rows = json.loads(path.read_text()) | {"current-snapshot-id": 1}, content(table)
    usual = {"snapshot-id": 1, "timestamp-ms": 1}
    for name, value in (
        ("refs", [5]), ("refs", {"a": 5}), ("refs", {"a": {}}), ("snapshot-log", [5]),
        ("snapshots", [{**usual, "summary": 5}]), ("snapshots", [{**usual, "parent-snapshot-id": []}]),
    ):  # fmt: skip
        path.write_text(json.dumps({**fields, name: value}))
        planned = expire_snapshots(table, dry_run=True)
        assert planned.ok
        assert f"NOT read, so that what a killed run has left may stay: {path.as_uri()}" in str(planned)
    for planted in (
        5,
        {"snapshot-id": []},
        {**usual, "timestamp-ms": "1", "manifest-list": "x"},
        {**usual, "timestamp-ms": None, "manifest-list": "x"},
        {**usual, "manifest-list": 7},
        {**usual, "manifest-list": "a\0b"},
        {**usual, "manifest-list": str(tmp_path / "t")},
    ):
        path.write_text(json.dumps({**fields, "snapshots": [planted]}))
        assert expire_snapshots(table, dry_run=True).ok
    for planted in (5, {}, {"statistics-path": 5}, {"statistics-path": table.document.fields["location"]}):
        path.write_text(json.dumps({**fields, "statistics": [planted]}))
        assert expire_snapshots(table, dry_run=True).ok
    list_of_it = table.document.fields["snapshots"][0]["manifest-list"]
    path.write_text(json.dumps({**fields, "snapshots": [{**usual, "manifest-list": list_of_it, "key-id": "lost"}]}))
    report = expire_snapshots(table)
    assert len(report.snapshots) == 3
    assert "'lost'" in report.unread[1]
    assert content(table.refresh()) == rows


def test_an_encryption_without_expiry_tells_of_what_a_killed_one_has_left(tmp_path: Path) -> None:
    place = tmp_path / "t"
    decrypt_table(new_table(place, files=2), expire=True)
    plain = load_table(None, str(place), kms=KMS, allow_plaintext=True)
    killed(lambda: encrypt_table(plain, key_id="lake", steps=("enable", "convert", "expire")), 0)
    for found in plan_conversion(opened(place), key_id="lake"), encrypt_table(opened(place), key_id="lake"):
        assert len(found.removed_before) == 1
        assert "1 old snapshot and all its files" in str(found)
    expire_snapshots(opened(place))
    assert "old snapshot" not in str(encrypt_table(opened(place), key_id="lake"))


@pytest.mark.parametrize("what", ["encrypt", "rekey"])
def test_statistics_that_a_run_has_dropped_before_it_was_killed_go_with_the_next_run(tmp_path: Path, what: str) -> None:
    place = leaks.plaintext_table(tmp_path)
    encrypt_table(leaks.with_statistics(place), key_id="lake", statistics="keep")

    def work(**options: Any) -> Any:
        if what == "encrypt":
            return encrypt_table(load_table(None, place, kms=leaks.KMS), key_id="lake", **options)
        return rekey_table(load_table(None, place, kms=leaks.KMS), data_keys=True, **options)

    def child() -> None:
        operations.remove_statistics = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        work()

    assert ended(in_child(child)) == -signal.SIGKILL
    work(statistics="keep")
    assert leaks.stats_files(place) == 2
    report = work()
    assert leaks.stats_files(place) == 0
    assert str(report).count("statistics file that was removed: ") == 2
    assert not work().dropped_statistics


@pytest.mark.parametrize("keys", [KEYS, {"other": KEYS["other"]}])
def test_clean_finds_files_elsewhere_before_it_removes_what_names_them(tmp_path: Path, keys: dict[str, bytes]) -> None:
    place, elsewhere = tmp_path / "t", tmp_path / "elsewhere"
    schema = pyarrow.schema([("id", pyarrow.int64())])
    properties = {"write.data.path": str(elsewhere)}
    create_table(None, str(place), schema, kms=KMS, key_id="lake", properties=properties)

    def table(kms: Any = KMS) -> EncryptedTable:
        return load_table(None, str(place), kms=kms, allow_plaintext=True, allowed_locations=[str(elsewhere)])

    table().append(pyarrow.table({"id": [1, 2, 3]}))
    if keys is KEYS:
        decrypt_table(table(), expire=True)
    before = data_and_manifests(elsewhere)
    if keys is KEYS:
        killed(lambda: encrypt_table(table(), key_id="lake", steps=("enable", "convert", "expire")), 0)
        assert str(clean(table())).endswith("left alone")
        assert before <= data_and_manifests(elsewhere)
        planned = clean(table(), older_than=NOW, dry_run=True).paths
        assert before <= data_and_manifests(elsewhere)
        assert clean(table(), older_than=NOW).paths == planned
        assert data_and_manifests(elsewhere) == named(table()) & data_and_manifests(elsewhere)
    else:
        killed(lambda: decrypt_table(table(), expire=True), 0)
        report = clean(table(MemoryKms(keys)), older_than=NOW)
        assert before <= data_and_manifests(elsewhere)
        assert "what it names outside of the table's location stays" in str(report)
    assert table().scan().count() == 3


def test_an_expiry_that_another_one_overtakes_says_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "t"
    killed(lambda: expire_snapshots(new_table(place, files=3)), 0)
    read = removed_snapshots.files_of

    def overtaken(*arguments: Any, **named: Any) -> Any:
        monkeypatch.undo()
        expire_snapshots(opened(place))
        return read(*arguments, **named)

    monkeypatch.setattr(removed_snapshots, "files_of", overtaken)
    report = expire_snapshots(opened(place))
    assert report.ok
    assert not report.paths
    assert data_and_manifests(place) == named(opened(place))


def test_metadata_of_format_version_1_hides_nothing(tmp_path: Path) -> None:
    """The table had this version before; an old key in it would be found."""
    table = new_table(tmp_path / "t", files=2)
    path = Path(urlsplit(table.document.fields["metadata-log"][0]["metadata-file"]).path)
    path.write_text(json.dumps({**json.loads(path.read_text()), "format-version": 1}))
    assert what_old_keys_open(catalog_table(None, str(tmp_path / "t")), KMS).is_proved


@pytest.mark.parametrize("staged", [False, True])
def test_files_of_a_commit_that_is_tried_again_stay(tmp_path: Path, staged: bool) -> None:
    """A REST catalog gets a snapshot before a branch has it, and loses it again if that is refused: not its files."""
    place = tmp_path / "t"
    table = new_table(place, files=3)
    newest = table.document.fields["snapshots"][-1]["snapshot-id"]
    found = catalog_table(None, str(place))

    def commit(change: Callable[[dict[str, Any]], None]) -> None:
        state = found.load()
        fields = json.loads(state.document.text)
        change(fields)
        found.commit(state, fields)

    def unnamed(fields: dict[str, Any]) -> None:
        """No branch has the newest one, nor had."""
        before = fields["snapshots"][-2]["snapshot-id"]
        fields["refs"]["main"]["snapshot-id"] = fields["current-snapshot-id"] = before
        fields["snapshot-log"] = [each for each in fields["snapshot-log"] if each["snapshot-id"] != newest]
        if staged:
            fields["snapshots"][-1]["summary"]["wap.id"] = "audit"
        fields["metadata-log"].clear()

    def without(fields: dict[str, Any]) -> None:
        del fields["snapshots"][-1]

    commit(unnamed)
    log = found.load().document.fields["metadata-log"]
    for each in log:
        Path(urlsplit(each["metadata-file"]).path).unlink()
    commit(without)
    before = data_and_manifests(place)
    report = expire_snapshots(opened(place))
    assert (newest in report.removed_before) is staged
    removed = before - data_and_manifests(place)
    assert any("/data/" in each for each in removed) is staged


def test_clean_removes_plaintext_elsewhere_that_a_killed_decryption_has_not_recorded(tmp_path: Path) -> None:
    place, elsewhere = tmp_path / "t", tmp_path / "elsewhere"
    schema = pyarrow.schema([("id", pyarrow.int64())])
    create_table(None, str(place), schema, kms=KMS, key_id="lake", properties={"write.data.path": str(elsewhere)})

    def table() -> EncryptedTable:
        return load_table(None, str(place), kms=KMS, allowed_locations=[str(elsewhere)])

    for number in range(3):
        table().append(pyarrow.table({"id": [number]}))
    before = data_and_manifests(elsewhere)

    def child() -> None:
        journal.Records.add = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[method-assign]
        decrypt_table(table(), threads=1)

    assert ended(in_child(child)) == -signal.SIGKILL
    plaintext = data_and_manifests(elsewhere) - before
    assert plaintext
    # As attempts of tasks of Spark name what they make.
    for path in list(plaintext):
        made = _own(path)
        shutil.copy(path, made)
        plaintext.add(made)
    stranger = elsewhere / f"{uuid.uuid4()}.parquet"
    stranger.write_bytes(b"theirs")
    assert {path for path in clean(table(), older_than=NOW).paths if path in plaintext} == plaintext
    assert data_and_manifests(elsewhere) == before | {str(stranger)}
    assert table().scan().count() == 3


def test_a_metadata_file_counts_once_however_it_is_spelled(tmp_path: Path) -> None:
    """The log has URLs, and the table was opened by its path."""
    table = new_table(tmp_path / "t", files=2)
    before = {each.as_uri() for each in (tmp_path / "t/metadata").glob("*.metadata.json")}
    rekey_table(table, key_id="other")
    report = what_old_keys_open(catalog_table(None, str(tmp_path / "t")), KMS)
    assert set(report.metadata_files) < before
    assert len(report.metadata_files) == 2


def test_a_store_that_refuses_to_say_what_is_there_ends_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S3 says 403 of a missing object to who may not list: such as those of every snapshot that was expired before."""
    place = leaks.plaintext_table(tmp_path)
    encrypt_table(leaks.with_statistics(place), key_id="lake", steps=("enable", "convert", "expire"))
    seen = expiry._seen

    def refused(location: Any) -> Any:
        found = seen(location)
        if found is None:
            raise PermissionError(13, "Access Denied", location.text)
        return found

    monkeypatch.setattr(expiry, "_seen", refused)
    table = load_table(None, place, kms=leaks.KMS)
    for _ in range(2):
        assert not encrypt_table(table, key_id="lake").removed_before
        report = expire_snapshots(table)
        assert not report.ok
        assert "Access Denied" in report.unread[next(iter(report.unread))]
        assert [each.rpartition(".")[2] for each in report.unread_metadata] == ["stats", "stats"]
    monkeypatch.undo()
    assert expire_snapshots(table).ok


def test_an_old_metadata_file_that_somebody_has_written_says_nothing_of_keys_to_other_readers(tmp_path: Path) -> None:
    """PyIceberg's further FileIOs of a process find keys by what was read last."""
    table = new_table(tmp_path / "t", files=2)
    path = Path(urlsplit(table.document.fields["metadata-log"][-1]["metadata-file"]).path)
    current = table.document.fields["snapshots"][-1]
    fields = {**json.loads(path.read_text()), "encryption-keys": [], "properties": {}, "current-snapshot-id": 1}
    fields["snapshots"] = [{**current, "snapshot-id": 1, "key-id": None}]
    path.write_text(json.dumps(fields))
    assert expire_snapshots(opened(tmp_path / "t"), dry_run=True).unread
    known = TableFileKeys(KMS).find(current["manifest-list"])
    assert known is not None
    assert known.key_metadata is not None


def test_a_planted_metadata_file_does_not_hide_what_old_keys_open(tmp_path: Path) -> None:
    """It names the manifest list of the current snapshot, as that of another one without a key."""
    table = new_table(tmp_path / "t", files=2)
    rekey_table(table, key_id="other")
    found = catalog_table(None, str(tmp_path / "t"))
    before = what_old_keys_open(found, KMS)
    assert before.refs == ["main"]
    state = found.load()
    current = state.document.fields["snapshots"][-1]
    fields = {**json.loads(state.document.text), "encryption-keys": [], "properties": {}, "metadata-log": []}
    fields["snapshots"] = [{**current, "snapshot-id": 1, "key-id": None}]
    (tmp_path / "t/metadata/00000-0.metadata.json").write_text(json.dumps(fields))
    after = what_old_keys_open(found, KMS)
    assert (after.refs, after.files, after.snapshots) == (before.refs, before.files, before.snapshots)
    known = TableFileKeys(KMS).find(current["manifest-list"])
    assert known is not None
    assert known.key_metadata is not None
