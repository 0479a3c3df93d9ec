"""That manifests which ags1 writes say what Spark's said: read, written again, and read by ags1 and by Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ags1.iceberg import open_table
from ags1.iceberg.files.file_io import EncryptedFileIO, SnapshotFiles
from ags1.iceberg.metadata.manifests import EXISTING, Manifest
from ags1.iceberg.writing.commit import TableFiles
from ags1.iceberg.writing.metadata import TableMetadata
from ags1.iceberg.writing.snapshot import SnapshotWriter
from ags1.kms import MemoryKms
from ags1.storage import Location
from tests.iceberg.canonical import arrow_rows, sorted_rows
from tests.iceberg.spark_tables import DEFINITIONS
from tests.iceberg.warehouse import SparkReader, SparkTable, SparkTables

WITH_SNAPSHOTS = [each.name for each in DEFINITIONS if "no snapshot" not in each.features]
LINEAGE = ["_row_id", "_last_updated_sequence_number"]


def _location(path: str) -> Location:
    return Location(path.removeprefix("file:") if path.startswith("file:/") else path)


def _as_existing(manifest: Manifest) -> Manifest:
    live = [each for each in manifest.entries if each.is_live]
    for each in live:
        each.status = EXISTING
    return manifest.like(live)


def _rewritten(table: SparkTable, directory: Path, kms: MemoryKms, key_id: str) -> str:
    """The table with the manifests of its current snapshot written again; return its metadata's location."""
    import json

    file_io = EncryptedFileIO({"ags1.allow-plaintext": "true"}, kms=kms)
    metadata = TableMetadata(file_io.read_metadata(table.metadata).fields)
    source = SnapshotFiles(file_io)
    # Below the directory of the test; the data files stay where they are.
    metadata.properties["write.metadata.path"] = directory.as_uri()
    metadata.set_encryption(key_id)
    files = TableFiles(metadata, _location)
    snapshot = metadata.snapshot_of("main")
    assert snapshot is not None
    writer = SnapshotWriter(metadata, files, kms)
    for listed in source.manifests(snapshot):
        made = _as_existing(source.manifest(listed))
        if made.entries:
            writer.add(made, listed.get("partitions"), listed.get("first_row_id"))
    totals = {name: text for name, text in snapshot["summary"].items() if name.startswith("total-")}
    writer.finish("replace", totals)
    path = directory / "00099-rewritten.metadata.json"
    # As a commit does; the tables may have been made long before.
    path.write_text(json.dumps({**metadata.fields, "last-updated-ms": metadata.now_ms()}))
    return str(path)


def _rows(location: str, kms: MemoryKms, columns: list[str] | None = None) -> list[list[Any]]:
    table = open_table(location, kms, allow_plaintext=True)
    return sorted_rows(arrow_rows(table.scan(columns=columns).to_arrow()))


@pytest.mark.parametrize("name", WITH_SNAPSHOTS)
def test_manifests_written_again_have_the_same_rows_and_row_ids(
    name: str, spark_tables: SparkTables, tmp_path: Path, table_kms: MemoryKms
) -> None:
    table = spark_tables[name]
    assert table.current is not None
    location = _rewritten(table, tmp_path, table_kms, "keyA")
    assert _rows(location, table_kms) == sorted_rows(table.current.rows)
    if "encrypted" in table.features:
        columns = [*table.current.columns, *LINEAGE]
        assert _rows(location, table_kms, columns) == sorted_rows(table.lineage.rows)


@pytest.mark.parametrize("name", WITH_SNAPSHOTS)
def test_spark_reads_them(
    name: str, spark_tables: SparkTables, spark_reader: SparkReader, tmp_path: Path, table_kms: MemoryKms
) -> None:
    table = spark_tables[name]
    assert table.current is not None
    location = _rewritten(table, tmp_path, table_kms, "keyA")
    assert spark_reader.read(Path(location))[1] == sorted_rows(table.current.rows)
    if "encrypted" in table.features:
        assert spark_reader.read(Path(location), columns="*, _row_id, _last_updated_sequence_number")[1] == sorted_rows(
            table.lineage.rows
        )
