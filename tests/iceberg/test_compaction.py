"""Compaction: fewer files with the same rows, whatever others do meanwhile and whenever it is killed."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow
import pytest

from ags1.errors import AuthenticationError, KeyAccessError, UnsupportedError
from ags1.iceberg import EncryptedTable, clean, create_table, expire_snapshots, load_table, rekey_table
from ags1.iceberg.catalogs import catalog_table
from ags1.iceberg.files.file_io import SnapshotFiles
from ags1.iceberg.metadata.locations import location_of
from ags1.iceberg.metadata.manifests import ADDED, DELETES, EQUALITY_DELETES, ManifestEntry
from ags1.iceberg.writing.commit import TableFiles, commit
from ags1.iceberg.writing.metadata import TableMetadata
from ags1.iceberg.writing.partitioning import Partitioning
from ags1.iceberg.writing.snapshot import SnapshotSummary, SnapshotWriter
from ags1.kms import MemoryKms
from ags1.parquet import EncryptionConfig, write_table

KEYS = {"lake": bytes(16), "other": bytes(range(16))}
KMS = MemoryKms(KEYS)
SCHEMA = pyarrow.schema([("id", pyarrow.int64()), ("part", pyarrow.int32()), ("text", pyarrow.string())])
COLUMNS = [*SCHEMA.names, "_row_id", "_last_updated_sequence_number"]
NOW = datetime.timedelta(0)


def rows(*numbers: int) -> pyarrow.Table:
    texts = [f"row {each}" for each in numbers]
    return pyarrow.table([numbers, [each % 2 for each in numbers], texts], schema=SCHEMA)


def new_table(place: Path, partition_by: Sequence[str] = (), files: int = 6, **properties: str) -> EncryptedTable:
    """A table of so many appends of ten rows each."""
    made = create_table(None, str(place), SCHEMA, partition_by, kms=KMS, key_id="lake", properties=properties)
    for number in range(files):
        made.append(rows(*range(10 * number, 10 * number + 10)))
    return made


def opened(place: Path) -> EncryptedTable:
    return load_table(None, str(place), kms=KMS)


def content(table: EncryptedTable, **options: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.scan(columns=COLUMNS, **options).to_arrow().sort_by("_row_id").to_pylist()
    return found


def paths(table: EncryptedTable) -> set[str]:
    return {task.file.file_path for task in table.scan().plan_files()}


def stored(place: Path) -> set[Path]:
    return {path for path in (place / "data").rglob("*") if path.is_file()}


def meanwhile(act: Callable[[], object]) -> Callable[[int, int | None], None]:
    """Progress that does something once, after the first file was read and before the commit."""
    waiting = [act]

    def progress(done: int, total: int | None) -> None:
        if done and waiting:
            waiting.pop()()

    return progress


def delete_by_value(place: Path, *ids: int) -> None:
    """Commit an equality delete file, as Flink does."""
    table = opened(place)

    def attempt(state: Any, metadata: TableMetadata, files: TableFiles) -> bool:
        path, location, key = files.new_data_file()
        assert key is not None
        field = pyarrow.field("id", pyarrow.int64(), metadata={"PARQUET:field_id": "1"})
        write_table(pyarrow.table([ids], schema=pyarrow.schema([field])), location, EncryptionConfig.for_iceberg(key))
        size = Path(location.path).stat().st_size
        file = {
            "content": EQUALITY_DELETES, "file_path": path, "file_format": "PARQUET", "partition": {},
            "record_count": len(ids), "file_size_in_bytes": size, "key_metadata": key.with_length(size).encode(),
            "equality_ids": [1],
        }  # fmt: skip
        writer, summary = SnapshotWriter(metadata, files, KMS), SnapshotSummary()
        summary.add(file, 0)
        parent = metadata.snapshot_of("main")
        assert parent is not None
        for each in SnapshotFiles(opened(place).io).manifests(parent):
            writer.keep(each)
        entries = [ManifestEntry(ADDED, 0, None, None, file)]
        writer.add(Partitioning(table.table.spec(), table.schema).manifest(DELETES, entries), None)
        writer.finish("delete", summary.fields(parent, writer.manifests))
        return True

    commit(catalog_table(None, str(place)), location_of, attempt)


# -- what it does ------------------------------------------------------------------------------------------------


def test_small_files_become_one_of_each_partition_and_rows_keep_their_numbers(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t", ["part"])
    table.upsert(rows(3, 100), on=["id"])
    table.delete("id = 7")
    before = content(table)
    report = table.compact()
    assert content(table) == before
    assert len(paths(table)) == report.added_files == 2
    assert report.files == 14
    # The old row of the upsert, and the deleted one.
    assert report.deleted_rows == 2
    assert {task.file.partition[0] for task in table.scan().plan_files()} == {0, 1}
    assert not any(task.delete_files for task in table.scan().plan_files())
    assert str(report).startswith(f"{report.table}: main: 14 files,")
    assert table.verify().ok
    assert table.audit().ok
    again = table.compact()
    assert (again.snapshots, again.files, again.unchanged) == ([], 0, 2)


def test_its_snapshot_is_a_replacement_that_adds_no_rows(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t")
    number = table.document.fields["last-sequence-number"]
    (snapshot_id,) = table.compact(snapshot_properties={"by": "night"}).snapshots
    metadata = TableMetadata(table.document.fields)
    summary = metadata.snapshot(snapshot_id)["summary"]
    assert summary["operation"] == "replace"
    assert summary["by"] == "night"
    wanted = {"added-data-files": 1, "deleted-data-files": 6, "added-records": 60, "deleted-records": 60}
    wanted |= {"total-data-files": 1, "total-records": 60}
    assert {name: int(summary[name]) for name in wanted} == wanted
    (task,) = table.scan().plan_files()
    # As old as what was read, so that equality deletes that are under way apply to it.
    assert task.sequence_number == number


def test_only_what_is_worth_it_is_written_again(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t", ["part"], files=4)
    assert not table.compact().snapshots
    assert table.compact(min_input_files=4, dry_run=True).files == 8
    assert not table.compact(min_input_files=4, where="part = 0 and id < 10").snapshots
    report = table.compact(min_input_files=4, where="part = 0")
    assert (report.files, report.added_files) == (4, 1)
    untouched = {task.file.file_path for task in table.scan(row_filter="part = 1").plan_files()}
    assert len(untouched) == 4
    table.delete("part = 1 and id < 10 and id > 4")
    before = content(table)
    # A third of the rows of a file is deleted: it is worth it, and the small files beside it come along.
    assert table.compact().files == 4
    assert content(table) == before
    large = table.compact(rewrite_all=True, target_bytes=1 << 40)
    assert (large.files, large.added_files) == (2, 2)
    with pytest.raises(ValueError, match="target_bytes must be at least 1"):
        table.compact(target_bytes=0)


def test_files_of_older_partition_specs_get_the_current_one(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t")
    with table.table.update_spec() as update:
        update.add_identity("part")
    table.refresh()
    before = content(table)
    assert table.compact().added_files == 2
    assert content(table) == before
    assert sorted(task.file.partition[0] for task in table.scan().plan_files()) == [0, 1]


def test_rows_are_sorted_where_that_is_asked_for(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t")
    before = content(table)
    table.compact(sort_by=["part", "id desc"])
    found = table.scan().to_arrow().select(["part", "id"]).to_pylist()
    assert found == sorted(found, key=lambda each: (each["part"], -each["id"]))
    assert content(table) == before


def test_a_branch_is_compacted_alone(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t")
    table.table.manage_snapshots().create_branch(table.refs["main"], "side").commit()
    table.refresh()
    before, main = content(table), table.refs["main"]
    table.compact(ref="side")
    assert content(table, ref="side") == before
    assert len(table.scan(ref="side").plan_files()) == 1
    assert (table.refs["main"], len(paths(table))) == (main, 6)


def test_equality_deletes_are_applied_and_rows_that_came_back_stay(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t", files=3)
    delete_by_value(tmp_path / "t", 3, 14, 1000)
    table.refresh().append(rows(3))
    before = content(table)
    assert [each["id"] for each in before if each["id"] in (3, 14)] == [3]
    report = table.compact()
    # The file of the row that came back is small, and comes along.
    assert (report.files, report.deleted_rows) == (4, 2)
    assert content(table) == before
    assert not any(task.delete_files for task in table.scan().plan_files())


def test_a_table_without_rows_has_nothing_to_compact(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t", files=0)
    assert not table.compact(rewrite_all=True).snapshots
    table.append(rows(1))
    table.delete("id >= 0")
    assert str(table.compact(rewrite_all=True)).endswith("unchanged: 0 files")


# -- beside others -----------------------------------------------------------------------------------------------


def test_what_others_append_meanwhile_is_kept(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t")
    report = table.compact(progress=meanwhile(lambda: opened(tmp_path / "t").append(rows(100, 101))))
    assert (report.files, report.left) == (6, [])
    assert [each["id"] for each in content(table)] == [*range(60), 100, 101]
    assert len(paths(table)) == 2


@pytest.mark.parametrize("way", ["vector", "whole file", "equality"])
def test_rows_that_others_delete_meanwhile_stay_deleted(way: str, tmp_path: Path) -> None:
    place = tmp_path / "t"
    table = new_table(place, ["part"])
    acts: dict[str, Callable[[], object]] = {
        "vector": lambda: opened(place).delete("id = 4"),
        "whole file": lambda: opened(place).delete("id in (0, 2, 4, 6, 8)"),
        "equality": lambda: delete_by_value(place, 4),
    }
    if way == "equality":
        # One without partitions, which its deletes have no partition of either.
        table = new_table(tmp_path / "e")
        place = tmp_path / "e"
    report = table.compact(progress=meanwhile(acts[way]))
    gone = {0, 2, 4, 6, 8} if way == "whole file" else {4}
    assert sorted(each["id"] for each in content(table)) == [each for each in range(60) if each not in gone]
    if way == "equality":
        assert report.left == []
    else:
        # Those of the other partition are compacted.
        assert (report.files, len(report.left)) == (6, 6)
    left = report.left
    assert all(Path(each.removeprefix("file://")).exists() for each in left)
    before = content(table)
    table.compact(rewrite_all=True)
    assert content(table) == before
    expire_snapshots(table)
    assert len(clean(table, older_than=NOW).paths) == 0


def test_a_table_that_is_rekeyed_meanwhile_loses_nothing(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t")
    before = content(table)
    report = table.compact(
        progress=meanwhile(lambda: rekey_table(opened(tmp_path / "t"), key_id="other", data_keys=True))
    )
    assert len(report.left) == 6
    table.refresh()
    assert table.document.fields["properties"]["encryption.key-id"] == "other"
    assert content(table) == before
    table.compact()
    assert content(table) == before
    assert table.verify(None).ok


# -- what is refused ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("attack", ["flipped", "swapped", "wrong key", "gone"])
def test_files_that_cannot_be_trusted_are_not_compacted_and_nothing_is_left(attack: str, tmp_path: Path) -> None:
    place = tmp_path / "t"
    table = new_table(place)
    victim, other = sorted(stored(place))[:2]
    content_of_victim = victim.read_bytes()
    kms = KMS
    wanted: Any = AuthenticationError
    if attack == "flipped":
        victim.write_bytes(bytes([*content_of_victim[:100], content_of_victim[100] ^ 1, *content_of_victim[101:]]))
    elif attack == "swapped":
        victim.write_bytes(other.read_bytes())
    elif attack == "wrong key":
        kms, wanted = MemoryKms({"lake": bytes(range(1, 17))}), (AuthenticationError, KeyAccessError)
    else:
        victim.unlink()
        wanted = FileNotFoundError
    before = stored(place)
    with pytest.raises(wanted):
        load_table(None, str(place), kms=kms).compact()
    assert stored(place) == before
    victim.write_bytes(content_of_victim)
    assert opened(place).refs == table.refs
    assert opened(place).verify().ok


def test_an_error_of_progress_ends_the_work_and_nothing_is_left(tmp_path: Path) -> None:
    def fail() -> None:
        raise RuntimeError("enough")

    table = new_table(tmp_path / "t", ["part"])
    before = stored(tmp_path / "t")
    with pytest.raises(RuntimeError, match="enough"):
        table.compact(progress=meanwhile(fail))
    assert stored(tmp_path / "t") == before
    assert opened(tmp_path / "t").refs == table.refs


def test_a_tag_and_a_table_that_was_opened_by_its_metadata_file_are_refused(tmp_path: Path) -> None:
    from ags1.iceberg import decrypt_table, open_table

    table = new_table(tmp_path / "t")
    table.table.manage_snapshots().create_tag(table.refs["main"], "kept").commit()
    with pytest.raises(ValueError, match="'kept' is a tag"):
        table.refresh().compact(ref="kept")
    with pytest.raises(ValueError, match="opened by its metadata file"):
        open_table(table.metadata_location, KMS).compact()
    decrypt_table(table)
    with pytest.raises(UnsupportedError, match="not encrypted"):
        load_table(None, str(tmp_path / "t"), kms=KMS, allow_plaintext=True).compact()
