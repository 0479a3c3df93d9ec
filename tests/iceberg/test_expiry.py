"""What expiry and clean must never remove, and what they must not leave."""

from __future__ import annotations

import datetime
import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from ags1 import iceberg
from ags1.errors import ConflictError, FormatError, UnsupportedError
from ags1.iceberg import EncryptedTable, create_table, load_table
from ags1.iceberg.catalogs import TableState, catalog_table
from ags1.iceberg.conversion import expiry
from ags1.iceberg.conversion.engine import Conversion, OpenedState
from ags1.iceberg.metadata.locations import location_of
from ags1.kms import MemoryKms
from tests.iceberg.conversions import PLAINTEXT, beginning_with
from tests.iceberg.keys import MASTER_KEYS

NOW = datetime.timedelta(0)
KMS = MemoryKms(MASTER_KEYS)


def make(directory: Path, **properties: str) -> EncryptedTable:
    table = create_table(None, str(directory), ids(0).schema, kms=KMS, key_id="keyA", properties=properties)
    for start in (0, 10, 20):
        table.append(ids(start))
    return table


def ids(start: int) -> pyarrow.Table:
    return pyarrow.table({"id": range(start, start + 10)})


def changed(table: EncryptedTable, change: Callable[[dict[str, Any]], None]) -> EncryptedTable:
    """The table after somebody edited its metadata by hand."""
    catalog = catalog_table(None, table.metadata_location)
    state = catalog.load()
    fields = json.loads(json.dumps(dict(state.document.fields)))
    change(fields)
    return load_table(None, catalog.commit(state, fields).metadata_location, kms=KMS, allow_plaintext=True)


def test_clean_knows_files_that_are_named_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "lake").symlink_to("disk")
    table = make(tmp_path / "lake" / "t")
    moved = changed(table, lambda fields: fields.update(location=f"{tmp_path}/disk/t"))
    assert not iceberg.clean(moved, older_than=NOW).paths
    moved = changed(table, lambda fields: fields.update(location=f"{tmp_path}/disk/../disk//t/"))
    assert not iceberg.clean(moved, older_than=NOW).paths
    assert moved.scan().count() == 30


def test_expiry_keeps_what_is_needed_whatever_else_names_it_and_in_which_words(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    live = next(iter(table.scan().plan_files())).file.file_path
    old = table.document.fields["snapshots"][0]["snapshot-id"]

    def name_as_statistics(fields: dict[str, Any]) -> None:
        usual = {"snapshot-id": old, "file-size-in-bytes": 1, "file-footer-size-in-bytes": 1, "blob-metadata": []}
        paths = (live, live.replace("/t/", "/./t//"), table.metadata_location, f"{tmp_path}/t/old.stats")
        fields["statistics"] = [{**usual, "statistics-path": each} for each in paths]

    (tmp_path / "t" / "old.stats").write_bytes(b"PFA1")
    table = changed(table, name_as_statistics)
    report = iceberg.expire_snapshots(table)
    assert report.files["statistics"] == 2
    assert not (tmp_path / "t" / "old.stats").exists()
    table.refresh()
    assert table.scan().count() == 30


def test_clean_refuses_a_metadata_file_that_is_not_the_newest(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    old = table.metadata_location.removeprefix("file://")
    # Named as an engine names them: nobody can tell from the one name which is the next.
    newer = Path(old).with_name("00009-5b7b2f4e-6f0b-4d0a-9a49-1d7f5a9f0c77.metadata.json")
    newer.write_bytes(Path(old).read_bytes())
    opened = load_table(None, old, kms=KMS)
    with pytest.raises(ConflictError, match="higher number"):
        iceberg.clean(opened, older_than=NOW)
    assert newer.exists()


@pytest.mark.parametrize(
    ("fault", "raised"), [(FileNotFoundError(2, "gone"), ConflictError), (KeyboardInterrupt(), KeyboardInterrupt)]
)
def test_a_newer_metadata_file_explains_what_a_conversion_misses_and_keeps_no_interrupt(
    fault: BaseException, raised: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = Path(make(tmp_path / "t").metadata_location.removeprefix("file://"))
    old.with_name("00009-5b7b2f4e-6f0b-4d0a-9a49-1d7f5a9f0c77.metadata.json").write_bytes(old.read_bytes())

    def look(self: Conversion, state: TableState) -> OpenedState:
        raise fault

    monkeypatch.setattr(Conversion, "look", look)
    with pytest.raises(raised):
        iceberg.rekey_table(load_table(None, str(old), kms=KMS), data_keys=True)


def test_clean_refuses_the_directory_of_two_tables_whatever_the_catalog_calls_them(tmp_path: Path) -> None:
    catalog = SqlCatalog("sql", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path))
    catalog.create_namespace("db")
    place = (tmp_path / "t").as_uri()
    one, two = (
        create_table(catalog, f"db.{name}", ids(0).schema, kms=KMS, key_id="keyA", location=place) for name in "ab"
    )
    for table in (one, two):
        table.append(ids(0))
        with pytest.raises(UnsupportedError, match="metadata of another table in this one's location"):
            iceberg.clean(table, older_than=NOW)
    assert [table.scan().count() for table in (one, two)] == [10, 10]
    catalog.engine.dispose()


def test_clean_removes_old_metadata_files_of_the_table_itself(tmp_path: Path) -> None:
    table = make(tmp_path / "t", **{"write.metadata.previous-versions-max": "1"})
    report = iceberg.clean(table, older_than=NOW)
    assert [path.endswith(".metadata.json") for path in report.paths] == [True, True]
    assert table.refresh().scan().count() == 30


def test_a_file_in_hdfs_is_one_file_with_and_without_the_name_nodes_port() -> None:
    spellings = ("hdfs://nn/lake/t/a", "hdfs://nn:8020/lake/t/a", "hdfs:///lake/t/a", "hdfs:/lake/t/a")
    identity = expiry._Identities()
    assert len({identity(location_of(each)) for each in spellings}) == 1
    assert identity(location_of("s3://a/t")) != identity(location_of("s3://b/t"))


def test_a_conversion_that_expires_is_refused_before_its_commit_where_others_may_need_the_files(tmp_path: Path) -> None:
    table = make(tmp_path / "t", **{"gc.enabled": "false"})
    before = sorted(tmp_path.rglob("*"))
    plan = iceberg.plan_conversion(table, key_id="keyA", data_keys=True, expire=True)
    assert "gc.enabled" in "".join(plan.problems)
    for change in (
        lambda: iceberg.rekey_table(table, key_id="keyB", expire=True),
        lambda: iceberg.rekey_table(table, data_keys=True, expire=True),
        lambda: iceberg.decrypt_table(table, expire=True),
        lambda: iceberg.encrypt_table(table, key_id="keyA", steps=("enable", "convert", "expire")),
    ):
        with pytest.raises(UnsupportedError, match=r"gc\.enabled"):
            change()
        assert sorted(tmp_path.rglob("*")) == before


def test_a_snapshot_with_manifests_of_its_own_stops_nothing_else(tmp_path: Path) -> None:
    """Format version 1 may have such snapshots, and they stay when the table is upgraded."""
    table = make(tmp_path / "t")
    first, *_, last = table.snapshots()

    def inline(snapshot_id: int) -> Callable[[dict[str, Any]], None]:
        def change(fields: dict[str, Any]) -> None:
            (each,) = (each for each in fields["snapshots"] if each["snapshot-id"] == snapshot_id)
            del each["manifest-list"]
            each["manifests"] = []

        return change

    table = changed(table, inline(first.snapshot_id))
    assert table.scan().count() == 30
    with pytest.raises(FormatError, match=f"snapshot {first.snapshot_id} has no manifest list"):
        table.scan(snapshot_id=first.snapshot_id).count()
    assert iceberg.expire_snapshots(table).snapshots == [first.snapshot_id, table.snapshots()[1].snapshot_id]
    assert table.refresh().scan().count() == 30
    table = changed(table, inline(last.snapshot_id))
    with pytest.raises(FormatError, match=f"snapshot {last.snapshot_id} has no manifest list"):
        iceberg.decrypt_table(table)


def test_rows_never_get_the_ids_of_others(tmp_path: Path) -> None:
    table = changed(make(tmp_path / "t"), lambda fields: fields.pop("next-row-id"))
    for change in (lambda: table.append(ids(30)), lambda: iceberg.rekey_table(table, data_keys=True)):
        with pytest.raises(FormatError, match="no next-row-id"):
            change()


def test_clean_refuses_a_table_whose_files_others_may_need(tmp_path: Path) -> None:
    table = make(tmp_path / "t", **{"gc.enabled": "false"})
    orphan = tmp_path / "t" / "data" / "orphan.parquet"
    orphan.write_bytes(b"x")
    for act in (iceberg.expire_snapshots, lambda each: iceberg.clean(each, older_than=NOW)):
        with pytest.raises(UnsupportedError, match=r"gc\.enabled"):
            act(table)
    assert orphan.exists()


def test_clean_refuses_a_location_that_is_not_where_the_table_is(tmp_path: Path) -> None:
    theirs = tmp_path / "home" / "letter"
    theirs.parent.mkdir()
    theirs.write_text("dear")
    for number, place in enumerate((theirs.parent.as_uri(), "file:///")):
        table = make(tmp_path / f"t{number}")
        table = changed(table, lambda fields, place=place: fields.update(location=place))  # type: ignore[misc]
        with pytest.raises(UnsupportedError, match=r"nothing was removed|is not changed"):
            iceberg.clean(table, older_than=NOW)
    assert theirs.exists()


def test_clean_removes_nothing_elsewhere_because_of_a_journal_that_anybody_may_have_written(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    other = tmp_path / "others.txt"
    other.write_text("theirs")
    run = tmp_path / "t" / "metadata" / "ags1-conversion" / str(uuid.UUID(int=1))
    run.mkdir(parents=True)
    (run / "run.json").write_text('{"version": 1, "purpose": {}}')
    (run / "files-2.sealed").write_text(json.dumps({"files": [["x", str(other), 6, None, None]]}))
    iceberg.clean(table, older_than=NOW)
    assert other.exists()
    assert not run.exists()


def test_a_file_that_the_newest_snapshot_has_deleted_goes_with_expiry(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    plain = [each.file.file_path.removeprefix("file://") for each in table.scan().plan_files()]
    table.delete("id < 10")
    table.append(ids(50))
    report = iceberg.expire_snapshots(table)
    left = [path for path in plain if Path(path).exists()]
    assert len(left) == 2
    assert report.files["data"] == 1
    assert not iceberg.expire_snapshots(table).paths
    assert not iceberg.clean(table, older_than=NOW).paths
    table.refresh()
    assert table.scan().count() == 30


def test_plaintext_that_was_deleted_before_its_conversion_goes_with_expiry(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    iceberg.decrypt_table(table)
    table = load_table(None, str(tmp_path / "t"), kms=KMS, allow_plaintext=True)
    iceberg.encrypt_table(table, key_id="keyA", steps=("enable",))
    table.refresh()
    table.delete("id < 10")
    iceberg.encrypt_table(table, key_id="keyA", steps=("convert", "expire"))
    assert not beginning_with(tmp_path, PLAINTEXT)


def test_a_full_disk_leaves_nothing_of_a_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(tmp_path / "t")
    before = {path for path in tmp_path.rglob("*") if path.is_file()}

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("ags1.iceberg.catalogs.file.create", full)
    with pytest.raises(OSError, match="No space left"):
        table.append(ids(50))
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == before
