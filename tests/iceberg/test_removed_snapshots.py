"""Files that killed runs have left, and old metadata files: `clean` removes the first, and the others hide nothing."""

from __future__ import annotations

import json
import os
import shutil
import signal
import uuid
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow

from ags1.iceberg import (
    EncryptedTable,
    clean,
    create_table,
    decrypt_table,
    encrypt_table,
    expire_snapshots,
    load_table,
    plan_conversion,
    rekey_table,
)
from ags1.iceberg.catalogs import catalog_table
from ags1.iceberg.conversion import expiry, journal
from ags1.iceberg.conversion.old_keys import what_old_keys_open
from ags1.iceberg.files.file_io import EncryptedFileIO, TableFileKeys
from ags1.kms import MemoryKms
from ags1.spark.engine.iceberg_work import _own
from tests.iceberg import test_leaks as leaks
from tests.iceberg.kills import ended, in_child
from tests.iceberg.test_compaction import KEYS, KMS, NOW, content, new_table, opened
from tests.iceberg.test_old_keys import Lake, check_nothing_old


def killed(work: Callable[[], object]) -> None:
    """Do some work in a child that SIGKILL ends when expiry begins to remove files."""

    def child() -> None:
        expiry._remove = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        work()

    assert ended(in_child(child)) == -signal.SIGKILL


def data_and_manifests(place: Path) -> set[str]:
    return {str(path) for path in place.rglob("*") if path.suffix in (".parquet", ".avro", ".puffin")}


def named(table: EncryptedTable) -> set[str]:
    return {urlsplit(each).path for each in table.files()["path"].to_pylist()}


def test_clean_removes_what_an_expiry_has_left_that_was_killed_behind_its_commit(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t", ["part"], files=3)
    table.delete("id = 7")
    table.compact(min_input_files=2, rewrite_all=True)
    rows = content(table)
    killed(lambda: expire_snapshots(opened(tmp_path / "t")))
    table = opened(tmp_path / "t")
    assert len(table.snapshots()) == 1
    left = data_and_manifests(tmp_path / "t") - named(table)
    assert left
    assert left <= {urlsplit(each).path for each in clean(table, older_than=NOW).paths}
    assert data_and_manifests(tmp_path / "t") == named(table)
    assert content(opened(tmp_path / "t")) == rows
    assert clean(table, older_than=NOW).is_empty


def test_clean_removes_what_the_old_key_opens_and_a_killed_rekey_has_left(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.fill(1)
    killed(lake.rekey_all)
    found = lake.old_keys()
    assert not found.snapshots
    assert len(found.removed) == 2
    assert "old keys open 2 snapshots that the table no longer has" in str(found)
    clean(lake.table(0), older_than=NOW)
    assert not lake.old_keys().removed
    check_nothing_old(lake, 1)


def test_a_conversion_tells_of_plaintext_that_a_killed_expiry_has_left_and_clean_removes_it(tmp_path: Path) -> None:
    place = tmp_path / "t"
    decrypt_table(new_table(place, files=2), expire=True)
    plain = load_table(None, str(place), kms=KMS, allow_plaintext=True)
    rows, before = content(plain), data_and_manifests(place)
    killed(lambda: encrypt_table(plain, key_id="lake", steps=("enable", "convert", "expire")))
    assert before <= data_and_manifests(place)
    for found in plan_conversion(opened(place), key_id="lake"), encrypt_table(opened(place), key_id="lake"):
        assert any("also plaintext" in each for each in found.notes)
    table = opened(place)
    clean(table, older_than=NOW)
    assert data_and_manifests(place) == named(table)
    assert content(table) == rows
    assert not encrypt_table(table, key_id="lake").notes


def test_clean_removes_statistics_that_a_killed_encryption_has_dropped(tmp_path: Path) -> None:
    """They are plaintext, and tell of the data."""
    place = leaks.plaintext_table(tmp_path)
    table = leaks.with_statistics(place)
    killed(lambda: encrypt_table(table, key_id="lake"))
    assert leaks.stats_files(place) == 2
    clean(load_table(None, place, kms=leaks.KMS), older_than=NOW)
    assert leaks.stats_files(place) == 0


def test_clean_removes_plaintext_elsewhere_that_a_killed_expiry_has_left(tmp_path: Path) -> None:
    """Where others may have files, nothing is listed: the expiry has written down what it removes."""
    place, elsewhere = tmp_path / "t", tmp_path / "elsewhere"
    schema = pyarrow.schema([("id", pyarrow.int64())])
    properties = {"write.data.path": str(elsewhere)}
    create_table(None, str(place), schema, kms=KMS, key_id="lake", properties=properties)

    def table() -> EncryptedTable:
        return load_table(None, str(place), kms=KMS, allow_plaintext=True, allowed_locations=[str(elsewhere)])

    table().append(pyarrow.table({"id": [1, 2, 3]}))
    decrypt_table(table(), expire=True)
    before = data_and_manifests(elsewhere)
    stranger = elsewhere / f"{uuid.uuid4()}.parquet"
    stranger.write_bytes(b"theirs")
    killed(lambda: encrypt_table(table(), key_id="lake", steps=("enable", "convert", "expire")))
    assert str(clean(table())).endswith("left alone")
    assert before <= data_and_manifests(elsewhere)
    planned = clean(table(), older_than=NOW, dry_run=True).paths
    assert before <= data_and_manifests(elsewhere)
    assert clean(table(), older_than=NOW).paths == planned
    assert data_and_manifests(elsewhere) - {str(stranger)} == named(table()) & data_and_manifests(elsewhere)
    assert stranger.exists()
    assert table().scan().count() == 3


def test_an_expiry_that_ends_leaves_no_record(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t", files=2)
    expire_snapshots(table)
    assert not (tmp_path / "t/metadata/ags1-conversion").exists()


def test_metadata_of_format_version_1_hides_nothing(tmp_path: Path) -> None:
    """The table had this version before; an old key in it would be found."""
    table = new_table(tmp_path / "t", files=2)
    path = Path(urlsplit(table.document.fields["metadata-log"][0]["metadata-file"]).path)
    path.write_text(json.dumps({**json.loads(path.read_text()), "format-version": 1}))
    assert what_old_keys_open(catalog_table(None, str(tmp_path / "t")), KMS).is_proved


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
    # PyIceberg reads the metadata, and opens the files by another FileIO.
    EncryptedFileIO(kms=KMS).new_input(state.metadata_location).open()
    after = what_old_keys_open(found, KMS)
    assert (after.refs, after.files, after.snapshots) == (before.refs, before.files, before.snapshots)
    # The search has opened them with other keys, and the heads alone: nobody else is to find these keys.
    assert len(state.document.fields["snapshots"]) > 1
    for each in state.document.fields["snapshots"]:
        known = TableFileKeys(MemoryKms({"other": KEYS["other"]})).find(each["manifest-list"])
        assert known is not None
        assert known.key_metadata is not None
