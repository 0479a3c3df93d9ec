"""Manifests that an append merges: fewer of them, and every row keeps its numbers."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow
import pytest

from ags1.iceberg import EncryptedTable, create_table
from ags1.iceberg.files.file_io import SnapshotFiles
from ags1.iceberg.metadata.manifests import DATA, EXISTING
from ags1.iceberg.writing.commit import TableFiles
from ags1.iceberg.writing.metadata import TableMetadata
from ags1.iceberg.writing.snapshot import SnapshotWriter
from ags1.kms import MemoryKms
from ags1.storage import Location

KMS = MemoryKms({"lake": bytes(16)})
SCHEMA = pyarrow.schema(
    [("id", pyarrow.int64()), ("part", pyarrow.int32()), ("price", pyarrow.decimal128(9, 2)), ("x", pyarrow.float64())]
)
COUNT, SIZE = "commit.manifest.min-count-to-merge", "commit.manifest.target-size-bytes"


def rows(start: int) -> pyarrow.Table:
    numbers = range(start, start + 6)
    parts = [None if each % 6 == 5 else each % 2 for each in numbers]
    prices = [Decimal(each) / 4 for each in numbers]
    return pyarrow.table([numbers, parts, prices, [each / 2 for each in numbers]], schema=SCHEMA)


def new_table(place: Path, partition_by: list[str], **properties: str) -> EncryptedTable:
    return create_table(None, str(place), SCHEMA, partition_by, kms=KMS, key_id="lake", properties=properties)


def content(table: EncryptedTable) -> list[dict[str, Any]]:
    columns = [*SCHEMA.names, "_row_id", "_last_updated_sequence_number"]
    found: list[dict[str, Any]] = table.scan(columns=columns).to_arrow().sort_by("id").to_pylist()
    return found


def without_ids(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != "_row_id"} for row in found]


def data_manifests(table: EncryptedTable) -> list[dict[str, Any]]:
    snapshot = table.document.snapshots().current
    fields = next(each for each in table.document.fields["snapshots"] if each["snapshot-id"] == snapshot)
    return [each for each in SnapshotFiles(table.io).manifests(fields) if each["content"] == DATA]


@pytest.mark.parametrize("partition_by", [[], ["part"], ["price"], ["bucket(4, id)", "x"]], ids=str)
def test_rows_keep_their_ids_and_sequence_numbers_while_their_manifests_are_merged(
    tmp_path: Path, partition_by: list[str]
) -> None:
    table = new_table(tmp_path / "merged", partition_by, **{COUNT: "4"})
    twin = new_table(tmp_path / "twin", partition_by, **{"commit.manifest-merge.enabled": "false"})
    counts = []
    for number in range(9):
        before = {row["id"]: row for row in content(table)}
        if number == 5:
            # Leaves a manifest with a deleted entry, or a deletion vector.
            for each in (table, twin):
                each.delete("id < 3 or id = 13")
            before = {row["id"]: row for row in content(table)}
        for each in (table, twin):
            each.append(rows(6 * number))
        after = content(table)
        assert without_ids(after) == without_ids(content(twin))
        assert {row["id"]: row for row in after if row["id"] in before} == before
        ids = [row["_row_id"] for row in after]
        assert len(set(ids)) == len(ids)
        assert max(ids) < table.document.fields["next-row-id"]
        counts.append(len(data_manifests(table)))
    assert counts[:4] == [1, 2, 3, 1]
    assert max(counts) < 4
    assert len(data_manifests(twin)) == 9
    assert table.verify().ok
    assert table.audit().ok
    # A filter by partition finds what the merged summaries cover.
    for text in ("part = 1", "part is null", "price > 5", "id = 20"):
        assert len(table.scan(row_filter=text).to_arrow()) == len(twin.scan(row_filter=text).to_arrow())


def test_merged_entries_state_what_they_inherited(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t", [], **{COUNT: "3"})
    for number in range(3):
        table.append(rows(6 * number))
    (listed,) = data_manifests(table)
    added, *existing = SnapshotFiles(table.io).manifest(listed).entries
    assert [each.status for each in existing] == [EXISTING, EXISTING]
    assert [each.file["first_row_id"] for each in existing] == [0, 6]
    assert [(each.sequence_number, each.file_sequence_number) for each in existing] == [(1, 1), (2, 2)]
    assert [each.snapshot_id for each in existing] == [each.snapshot_id for each in table.snapshots()][:2]
    assert added.file["first_row_id"] == listed["first_row_id"] == 12
    assert listed["min_sequence_number"] == 1


def test_rows_that_are_written_again_keep_the_data_sequence_number_of_their_file(tmp_path: Path) -> None:
    """Compaction gives a new file the data sequence number of the rows before, as Iceberg Java does it by default."""
    table = new_table(tmp_path / "t", [])
    table.append(rows(0))
    table.append(rows(6))
    assert table.catalog_table is not None
    state = table.catalog_table.load()
    metadata = TableMetadata(state.document.fields)
    writer = SnapshotWriter(metadata, TableFiles(metadata, Location), KMS)
    source = SnapshotFiles(table.io)
    snapshot = metadata.snapshot_of("main")
    assert snapshot is not None
    for listed in source.manifests(snapshot):
        manifest = source.manifest(listed)
        for each in manifest.entries:
            each.status, each.sequence_number, each.file_sequence_number = EXISTING, 1, 3
        writer.add(manifest, listed.get("partitions"), listed.get("first_row_id"))
    writer.finish("replace", {"total-records": "12", "total-data-files": "2"})
    before = [{**row, "_last_updated_sequence_number": 1} for row in content(table)]
    table.refresh(table.catalog_table.commit(state, metadata.fields))
    assert content(table) == before
    columns = ["id", "_last_updated_sequence_number"]
    streamed = table.scan(columns=columns).to_record_batches().read_all()
    assert set(streamed[1].to_pylist()) == {1}


def test_manifests_of_the_target_size_stay_as_they_are(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t", [], **{COUNT: "2", SIZE: "1"})
    for number in range(4):
        table.append(rows(6 * number))
    assert len(data_manifests(table)) == 4
    assert [row["id"] for row in content(table)] == list(range(24))


def test_a_property_that_is_no_number_is_refused_by_name(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t", [], **{COUNT: "many"})
    with pytest.raises(ValueError, match=f"{COUNT} is 'many'"):
        table.append(rows(0))
    assert table.refresh().snapshots() == []
