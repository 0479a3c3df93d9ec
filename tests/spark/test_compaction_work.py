"""What a task that compacts a table does, in this process: as `table.compact`, whatever attempts there are."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyiceberg")

from ags1.errors import AuthenticationError, FormatError
from ags1.iceberg import CompactionOptions, CompactionReport, EncryptedTable, clean, create_table
from ags1.iceberg.files.file_io import KnownFile, SnapshotFiles
from ags1.iceberg.keys.encryption_keys import EncryptionKeys
from ags1.iceberg.maintenance import compaction, rewriting
from ags1.iceberg.maintenance.compaction import compact
from ags1.iceberg.maintenance.rewriting import Bin, RewriteJob, Rewritten
from ags1.iceberg.metadata.locations import location_of
from ags1.iceberg.writing.change import WriteTarget
from ags1.kms import MemoryKms
from ags1.spark.engine.iceberg_work import TableCompacting, rewritten_of, unit_of_bin
from ags1.spark.engine.planning import Unit
from ags1.spark.engine.runner import Outcome
from ags1.spark.engine.sealing import Sealer
from ags1.storage import list_files
from tests.iceberg.test_compaction import KEYS, KMS, NOW, content, delete_by_value, new_table, opened, rows, stored
from tests.iceberg.test_maintenance import manifests
from tests.iceberg.test_store_requests import options as options_of
from tests.servers.s3 import S3Server

Run = Callable[[TableCompacting, list[Unit]], Iterable[Outcome]]
URL = "module:tests.spark.test_compaction_work.Keys"
METRICS = ("record_count", "value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds")


class Keys(MemoryKms):
    """The KMS of the tables, by its URL."""

    def __init__(self) -> None:
        super().__init__(KEYS)


def once(work: TableCompacting, units: list[Unit]) -> Iterable[Outcome]:
    return work.run(units)


class Elsewhere:
    """Bins as tasks do them: everything travels as bytes, to what has no KMS but that of the URL."""

    at_once = 1

    def __init__(self, table: EncryptedTable, run: Run) -> None:
        self._table, self._run = table, run
        self.sent, self.returned = b"", b""

    def __call__(self, job: RewriteJob, bins: list[tuple[Bin, list[KnownFile]]]) -> Iterable[Rewritten]:
        seal = Sealer.create(URL, "lake", EncryptionKeys(self._table.document.entries()).to_list())
        units = [unit_of_bin(*each) for each in bins]
        work = pickle.dumps(TableCompacting(job, seal.opener))
        outcomes = list(self._run(pickle.loads(work), pickle.loads(pickle.dumps(units))))
        self.sent, self.returned = work, pickle.dumps(outcomes)
        failed = next((each for each in outcomes if each.status != "ok"), None)
        if failed is not None:
            raise FormatError(failed.error)
        made = {each.path: each for each in outcomes}
        if len(made) > 1:
            first, second, *_ = outcomes
            with pytest.raises(AuthenticationError):
                rewritten_of(Outcome(first.path, detail=second.detail), seal)
        return [rewritten_of(made[each.path], seal) for each in units]


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., EncryptedTable]:
    """Tables with the same history; those without partitions have equality deletes too."""

    def made(name: str, *partition_by: str) -> EncryptedTable:
        place = tmp_path / name
        table = new_table(place, partition_by)
        table.upsert(rows(3, 100), on=["id"])
        table.delete("id = 7")
        if not partition_by:
            delete_by_value(place, 4, 1000)
        assert len(content(table.refresh())) == (60 if partition_by else 59)
        return table

    return made


def elsewhere(table: EncryptedTable, run: Run = once, **options: Any) -> tuple[CompactionReport, Elsewhere]:
    perform = Elsewhere(table, run)
    return compact(WriteTarget(table), CompactionOptions(**options), perform=perform), perform


def test_tasks_make_of_a_table_what_compact_makes_of_its_twin(
    make: Callable[..., EncryptedTable], monkeypatch: pytest.MonkeyPatch
) -> None:
    partitioned, whole = (
        (make(f"mine {name}", *by), make(f"twin {name}", *by)) for name, by in (("p", ["part"]), ("", []))
    )
    cases: tuple[tuple[tuple[EncryptedTable, EncryptedTable], int, dict[str, Any]], ...] = (
        (partitioned, 1 << 30, {"where": "part = 1"}),
        (whole, 1, {"rewrite_all": True, "target_bytes": 3000}),
        (partitioned, 1, {"rewrite_all": True}),
        (whole, 1 << 30, {"rewrite_all": True, "sort_by": ["text desc"]}),
    )
    for (mine, twin), least_moved, options in cases:
        before = content(mine)
        monkeypatch.setattr(rewriting, "_LEAST_MOVED", least_moved)
        report, perform = elsewhere(mine, min_input_files=2, **options)
        wanted = twin.compact(min_input_files=2, **options)
        assert content(mine) == content(twin) == before
        assert metrics(mine) == metrics(twin)
        counts = ("files", "added_files", "unchanged", "deleted_rows")
        assert [getattr(report, name) for name in counts] == [getattr(wanted, name) for name in counts]
        assert report.files, options
        # All files that have equality deletes are read.
        moves = least_moved == 1 and mine is partitioned[0]
        assert (report.moved_bytes > 0) == (wanted.moved_bytes > 0) == moves
        # Nothing that travels in the open has the key of a file.
        keys = [bytes(known.key_metadata.encryption_key) for known in known_files(mine)]
        assert keys
        assert not [key for key in keys if key in perform.sent or key in perform.returned]
        assert mine.verify().ok


def metrics(table: EncryptedTable) -> list[str]:
    """What the manifests have of the rows of each file."""
    source = SnapshotFiles(table.io)
    found = (each for listed in manifests(table) for each in source.entries(listed) if each.is_live)
    names = ("content", "partition", *METRICS, "sort_order_id")
    return sorted(repr([each.sequence_number, *(each.file.get(name) for name in names)]) for each in found)


def known_files(table: EncryptedTable) -> list[Any]:
    table.scan().plan_files()
    paths = [path for path in table.files()["path"].to_pylist() if table.io.keys.find(path) is not None]
    return [table.io.keys.find(path) for path in paths]


def test_files_of_attempts_that_do_not_count_are_removed(make: Callable[..., EncryptedTable], tmp_path: Path) -> None:
    table = make("t", "part")
    before, there = content(table), stored(tmp_path / "t")

    def twice(work: TableCompacting, units: list[Unit]) -> Iterable[Outcome]:
        list(once(work, units))
        assert len(stored(tmp_path / "t")) > len(there)
        return once(work, units)

    report, _ = elsewhere(table, twice, rewrite_all=True)
    assert len(stored(tmp_path / "t") - there) == report.added_files
    assert content(table) == before
    assert not clean(table, older_than=NOW).paths


def test_a_task_that_fails_leaves_the_table_and_its_directory_as_they_were(
    make: Callable[..., EncryptedTable], tmp_path: Path
) -> None:
    table = make("t", "part")
    before, there = content(table), stored(tmp_path / "t")
    (*_, damaged) = sorted(each.file.file_path for each in table.scan(row_filter="part = 1").plan_files())
    path = Path(damaged.removeprefix("file://"))
    whole = path.read_bytes()
    path.write_bytes(whole[:-40] + bytes(40))
    with pytest.raises(FormatError, match=path.name):
        elsewhere(table, rewrite_all=True)
    assert stored(tmp_path / "t") == there
    path.write_bytes(whole)
    assert content(opened(tmp_path / "t")) == before


def test_what_was_committed_before_a_task_failed_stays(
    make: Callable[..., EncryptedTable], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "_COMMITTED", 1)
    table = make("t", "part")
    before, runs = content(table), list[int]()

    def second_fails(work: TableCompacting, units: list[Unit]) -> Iterable[Outcome]:
        runs.append(len(units))
        found = list(once(work, units))
        return (
            found
            if len(runs) == 1
            else [Outcome(each.path, status="error", error="the disk is full") for each in units]
        )

    with pytest.raises(FormatError, match="the disk is full"):
        elsewhere(table, second_fails, rewrite_all=True)
    assert runs == [1, 1]
    assert content(table.refresh()) == before
    assert table.snapshots()[-1].summary.operation.value == "replace"
    assert not clean(table, older_than=NOW).paths
    report, _ = elsewhere(table)
    assert (report.files > 1, report.added_files) == (True, 1)
    assert content(table) == before


def test_what_others_change_meanwhile_is_theirs(make: Callable[..., EncryptedTable], tmp_path: Path) -> None:
    table, other = make("t", "part"), opened(tmp_path / "t")
    files = len(table.scan().plan_files())

    def meanwhile(work: TableCompacting, units: list[Unit]) -> Iterable[Outcome]:
        found = list(once(work, units))
        other.delete("id = 20")
        other.append(rows(500))
        return found

    report, _ = elsewhere(table, meanwhile, rewrite_all=True)
    # A bin of the partition of this row is left, and what was made of it is removed.
    assert 0 < len(report.left) < files
    assert report.files + len(report.left) == files
    ids = [each["id"] for each in content(table)]
    assert (20 in ids, 500 in ids, len(ids)) == (False, True, 60)
    assert not clean(table, older_than=NOW).paths


def test_tasks_get_no_kms_and_only_the_places_of_the_table(make: Callable[..., EncryptedTable]) -> None:
    table = make("t", "part")
    jobs: list[RewriteJob] = []

    def stop(work: TableCompacting, units: list[Unit]) -> Iterable[Outcome]:
        jobs.append(work.job)
        return [Outcome(each.path, status="error", error="stopped") for each in units]

    table.io.properties["ags1.kms"] = URL
    with pytest.raises(FormatError, match="stopped"):
        elsewhere(table, stop, rewrite_all=True)
    (job,) = jobs
    assert "ags1.kms" not in job.properties
    assert job.expected.allowed_locations == table.io.locations.roots != ()
    assert "encryption-keys" not in repr(job)
    # PyIceberg's files show their keys.
    tasks = table.scan().plan_files()
    assert tasks[0].file.file_path not in repr(Bin(tasks))


def test_tasks_write_into_a_store_and_what_does_not_count_is_removed(s3_server: S3Server, s3_bucket: str) -> None:
    place = f"s3://{s3_bucket}/t"
    table = create_table(None, place, rows(0).schema, kms=KMS, key_id="lake", storage_options=options_of(s3_server))
    for number in range(5):
        table.append(rows(number))
    before = content(table)

    def twice(work: TableCompacting, units: list[Unit]) -> Iterable[Outcome]:
        list(once(work, units))
        return once(work, units)

    report, _ = elsewhere(table, twice)
    assert (report.files, report.added_files) == (5, 1)
    assert content(table) == before
    files = list_files(location_of(f"{place}/data", table.io.properties))
    assert len(files) == 6
    assert not clean(table, older_than=NOW).paths
