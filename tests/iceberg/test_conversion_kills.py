"""That a conversion that is killed loses and leaves nothing, and that bad tables are refused before it begins."""

from __future__ import annotations

import base64
import datetime
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from ags1 import iceberg, parquet
from ags1.errors import AuthenticationError, FormatError, KeyAccessError, TruncatedError, UnsupportedError
from ags1.iceberg.catalogs import CatalogTable, catalog_table
from ags1.iceberg.conversion.journal import DIRECTORY, Journal
from ags1.iceberg.conversion.work import FileTask, Places, check, key_of, opened, run, sealed_key
from ags1.iceberg.keys.wrapped_key import WrappedKey
from ags1.iceberg.walk.table_walk import walk
from ags1.kms import MemoryKms
from ags1.storage import Location
from tests.iceberg.conversions import killed_runs, read_rows, writable
from tests.iceberg.keys import MASTER_KEYS
from tests.iceberg.warehouse import SparkTable, SparkTables, local_path


@pytest.mark.timeout(600)
def test_killed_conversions_and_two_at_once_lose_and_leave_nothing(spark_tables: SparkTables) -> None:
    assert spark_tables
    command = [sys.executable, "-m", "tests.iceberg.soak_conversions", "--kills", "5", "--pairs", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def plain(spark_tables: SparkTables, tmp_path: Path, table_kms: MemoryKms) -> CatalogTable:
    """A plaintext table of the test's own."""
    iceberg.relocate_table(
        writable(spark_tables["events_plain"], tmp_path / "source"), str(tmp_path / "t"), kms=table_kms
    )
    return catalog_table(None, str(tmp_path / "t"))


def _data_files(table: CatalogTable, kms: MemoryKms) -> list[Path]:
    opened = iceberg.open_table(table.load().metadata_location, kms, allow_plaintext=True)
    return [local_path(each["path"]) for each in opened.files().to_pylist() if each["kind"] == "data"]


def test_a_run_goes_on_with_what_one_that_failed_has_done(plain: CatalogTable, table_kms: MemoryKms) -> None:
    rows = read_rows(plain, table_kms)

    def stop_halfway(done: int, total: int | None) -> None:
        if total is not None and done > total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        iceberg.encrypt_table(plain, key_id="keyA", kms=table_kms, progress=stop_halfway, threads=1)
    place = local_path(plain.load().document.fields["location"])
    (before,) = killed_runs(place, "keyA", table_kms)
    done = before
    assert done
    plan = iceberg.plan_conversion(plain, key_id="keyA", kms=table_kms)
    assert plan.finished == len(done)
    report = iceberg.encrypt_table(plain, key_id="keyA", kms=table_kms)
    assert report.reused == len(done)
    assert report.files == plan.files["data"] - len(done)
    assert read_rows(plain, table_kms) == rows
    assert not (place / "metadata" / DIRECTORY).exists()


def _stop_late(done: int, total: int | None) -> None:
    if done == total:
        raise KeyboardInterrupt


def _rekeying_killed(
    table: SparkTable, place: Path, kms: MemoryKms, key_id: str | None = None
) -> tuple[CatalogTable, Path]:
    """A table whose files had new keys, and what was done, when the run was killed; the directory of its journal."""
    iceberg.relocate_table(writable(table, place / "source"), str(place / "t"), kms=kms)
    made = catalog_table(None, str(place / "t"))
    with pytest.raises(KeyboardInterrupt):
        iceberg.rekey_table(made, data_keys=True, key_id=key_id, kms=kms, progress=_stop_late, threads=1)
    return made, place / "t" / "metadata" / DIRECTORY


def test_new_keys_under_another_master_key_are_taken_over_from_a_killed_run(
    spark_tables: SparkTables, tmp_path: Path, table_kms: MemoryKms
) -> None:
    made, journals = _rekeying_killed(spark_tables["events"], tmp_path, table_kms, "keyB")
    rows = read_rows(made, table_kms)
    assert iceberg.rekey_table(made, data_keys=True, key_id="keyB", kms=table_kms).reused
    assert not journals.exists()
    assert read_rows(made, table_kms) == rows


def test_new_keys_after_a_leak_are_none_of_a_journal_that_leaked_keys_could_have_forged(
    spark_tables: SparkTables, tmp_path: Path, table_kms: MemoryKms
) -> None:
    made, journals = _rekeying_killed(spark_tables["events"], tmp_path / "same", table_kms)
    (run_before,) = killed_runs(journals.parents[1], "keyA", table_kms)
    of_the_journal = {local_path(each.target) for each in run_before}
    report = iceberg.rekey_table(made, data_keys=True, kms=table_kms)
    assert report.files
    assert not report.reused
    assert of_the_journal
    assert not of_the_journal & set(_data_files(made, table_kms))
    iceberg.clean(made, kms=table_kms, older_than=datetime.timedelta(0))
    assert not any(each.exists() for each in of_the_journal)
    assert not journals.exists()

    made, journals = _rekeying_killed(spark_tables["events"], tmp_path / "other", table_kms, "keyB")
    (run_file,) = journals.glob("*/run.json")
    old = WrappedKey("keyA").another(table_kms)
    run_file.write_text(json.dumps({**json.loads(run_file.read_text()), "key": old.to_json()}))
    assert not iceberg.rekey_table(made, data_keys=True, key_id="keyB", kms=table_kms).reused


def test_the_journal_holds_no_key(plain: CatalogTable, table_kms: MemoryKms) -> None:
    with pytest.raises(KeyboardInterrupt):
        iceberg.encrypt_table(plain, key_id="keyA", kms=table_kms, progress=_stop_late, threads=1)
    place = local_path(plain.load().document.fields["location"])
    written = b"".join(path.read_bytes() for path in (place / "metadata" / DIRECTORY).glob("*/*"))
    iceberg.encrypt_table(plain, key_id="keyA", kms=table_kms)
    opened = iceberg.open_table(plain.load().metadata_location, table_kms, allow_plaintext=True)
    keys = [
        bytes(each.known.key_metadata.encryption_key)
        for each in walk(opened.metadata_location, opened.io, None)
        if each.known.key_metadata is not None
    ]
    assert written
    assert keys
    assert not [
        key for key in keys if key in written or base64.b64encode(key) in written or key.hex().encode() in written
    ]
    # Without the master key the journal is of no use.
    with pytest.raises(KeyAccessError):
        iceberg.plan_conversion(plain, data_keys=True, kms=MemoryKms({"other": bytes(16)}))


def _refused(table: CatalogTable, kms: MemoryKms, kind: type[Exception], message: str) -> None:
    place = local_path(table.load().document.fields["location"])
    before = sorted(place.rglob("*"))
    plan = iceberg.plan_conversion(table, key_id="keyA", kms=kms)
    assert len(plan.problems) == 1
    with pytest.raises(kind, match=message):
        iceberg.encrypt_table(table, key_id="keyA", kms=kms)
    assert sorted(place.rglob("*")) == before


def test_a_missing_file_is_named_before_anything_is_written(plain: CatalogTable, table_kms: MemoryKms) -> None:
    _data_files(plain, table_kms)[0].unlink()
    _refused(plain, table_kms, FileNotFoundError, "the data file is missing, and a snapshot needs it")


def test_a_file_of_another_length_is_named_before_anything_is_written(
    plain: CatalogTable, table_kms: MemoryKms
) -> None:
    path = _data_files(plain, table_kms)[0]
    path.write_bytes(path.read_bytes() + b"x")
    _refused(plain, table_kms, TruncatedError, "its manifest says")


def test_a_file_of_other_rows_is_named(plain: CatalogTable, table_kms: MemoryKms) -> None:
    path = _data_files(plain, table_kms)[0]
    task = FileTask(str(path), f"{path}.new", "data", "parquet", path.stat().st_size, 1_000_000)
    with pytest.raises(FormatError, match=r"rows, but its manifest says 1000000"):
        check(task, None, opened(task, Places()))


def test_a_file_that_is_encrypted_with_another_key_is_named(
    plain: CatalogTable, tmp_path: Path, table_kms: MemoryKms
) -> None:
    path = tmp_path / "other.parquet"
    parquet.encrypt_file(_data_files(plain, table_kms)[0], path, parquet.EncryptionConfig(b"another key 1234"))
    task = FileTask(str(path), str(tmp_path / "new"), "data", "parquet", path.stat().st_size, 1)
    with pytest.raises(FormatError, match=r"other\.parquet: this Parquet file is encrypted, and the table has no key"):
        check(task, None, opened(task, Places()))


@pytest.mark.parametrize(("version", "message"), [(1, "upgrade it to 2 or 3"), (4, "format version 4")])
def test_versions_that_are_not_written_are_refused(
    version: int, message: str, plain: CatalogTable, table_kms: MemoryKms
) -> None:
    location = local_path(plain.load().metadata_location)
    fields: dict[str, Any] = json.loads(location.read_bytes())
    fields["format-version"] = version
    location.write_text(json.dumps(fields))
    with pytest.raises(UnsupportedError, match=message):
        iceberg.encrypt_table(plain, key_id="keyA", kms=table_kms)


class _Failing(MemoryKms):
    """Wraps a few keys, and then no more."""

    left = 1

    def wrap_key(self, key: Any, wrapping_key_id: str) -> bytes:
        self.left -= 1
        if self.left < 0:
            raise ConnectionError("the service is gone")
        return super().wrap_key(key, wrapping_key_id)


def test_a_kms_that_fails_halfway_leaves_the_table_as_it_was(plain: CatalogTable, table_kms: MemoryKms) -> None:
    rows = read_rows(plain, table_kms)
    before = plain.load().metadata_location
    with pytest.raises(KeyAccessError, match="the service is gone"):
        iceberg.encrypt_table(plain, key_id="keyA", kms=_Failing(MASTER_KEYS))
    assert plain.load().metadata_location == before
    assert iceberg.encrypt_table(plain, key_id="keyA", kms=table_kms).reused
    assert read_rows(plain, table_kms) == rows


class _Counting(MemoryKms):
    """Counts the keys that it wraps, each after others had the time to ask for one, too."""

    def __init__(self, keys: Any) -> None:
        super().__init__(keys)
        self.wrapped = 0

    def wrap_key(self, key: Any, wrapping_key_id: str) -> bytes:
        self.wrapped += 1
        for _ in range(100):
            os.sched_yield()
        return super().wrap_key(key, wrapping_key_id)


def test_all_files_of_a_run_are_under_one_key(plain: CatalogTable) -> None:
    kms = _Counting(MASTER_KEYS)
    iceberg.encrypt_table(plain, key_id="keyA", kms=kms)
    # That of the run, and the table's key encryption key.
    assert kms.wrapped == 2


def test_a_task_goes_to_another_process_and_back_without_a_key(
    plain: CatalogTable, tmp_path: Path, table_kms: MemoryKms
) -> None:
    source = _data_files(plain, table_kms)[0]
    rows = pyarrow.parquet.read_metadata(source).num_rows
    wrapped = Journal.create(Location(str(tmp_path)), "table", WrappedKey("keyA").another(table_kms))
    task = FileTask(str(source), str(tmp_path / "1"), "data", "parquet", source.stat().st_size, rows, None, 128)
    first = run(task, wrapped.open(table_kms), Places())
    key = key_of(wrapped.open(table_kms), first.key or b"", first.target)
    sealed = sealed_key(wrapped.open(table_kms), key, first.target)
    again = FileTask(first.target, str(tmp_path / "2"), "data", "parquet", first.length, rows, sealed, 256)
    sent = pickle.dumps((again, wrapped, Places(), first))
    for secret in (bytes(key.encryption_key), MASTER_KEYS["keyA"]):
        assert secret not in sent
        assert secret.hex() not in repr((again, wrapped, first))
    task, wrapped, places, _ = pickle.loads(sent)
    second = run(task, wrapped.open(MemoryKms(MASTER_KEYS)), places)
    assert len(second.split_offsets or ()) == 1
    new = key_of(wrapped.open(table_kms), second.key or b"", second.target)
    assert new.file_length == Path(second.target).stat().st_size
    view = parquet.open(second.target, parquet.DecryptionConfig.for_iceberg(new))
    assert pyarrow.parquet.read_table(view).equals(pyarrow.parquet.read_table(source, partitioning=None))
    # A sealed key is that of one file alone.
    with pytest.raises(AuthenticationError):
        key_of(wrapped.open(table_kms), second.key or b"", first.target)
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(wrapped.open(table_kms))
