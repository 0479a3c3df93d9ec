"""That the tables Spark made are what their names say, and that their every file opens with what ags1 has."""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ags1
from ags1 import parquet
from ags1.iceberg import EncryptionKeys
from ags1.iceberg.metadata.manifests import readable
from ags1.keys import KeyMetadata
from ags1.kms import MemoryKms
from tests.iceberg.canonical import arrow_rows
from tests.iceberg.spark_tables import DEFINITIONS
from tests.iceberg.warehouse import SparkReader, SparkReadError, SparkTable, SparkTables, local_path

DELETED = 2
POSITION_DELETES, EQUALITY_DELETES = 1, 2
ENCRYPTED = [each.name for each in DEFINITIONS if "encrypted" in each.features and "no snapshot" not in each.features]


@dataclass(frozen=True)
class OpenedFile:
    """A live file as a manifest has it."""

    fields: dict[str, Any]

    @property
    def path(self) -> Path:
        return local_path(self.fields["file_path"])

    @property
    def key_metadata(self) -> KeyMetadata | None:
        encoded = self.fields["key_metadata"]
        return None if encoded is None else KeyMetadata.decode(encoded)


def _avro(location: str, key_metadata: KeyMetadata | bytes | None) -> list[dict[str, Any]]:
    if key_metadata is None:
        plain = local_path(location).read_bytes()
    else:
        with ags1.open(local_path(location), key_metadata=key_metadata) as stream:
            plain = stream.read()
    return list(fastavro.reader(io.BytesIO(readable(plain))))


def _live_files(table: SparkTable, snapshot_id: int, kms: MemoryKms) -> Iterator[OpenedFile]:
    keys = EncryptionKeys.from_table_metadata(table.document)
    list_key = keys.for_snapshot(table.document, snapshot_id, kms)
    assert list_key is not None
    (snapshot,) = (each for each in table.document["snapshots"] if each["snapshot-id"] == snapshot_id)
    for manifest in _avro(snapshot["manifest-list"], list_key):
        assert manifest["key_metadata"] is not None or "plaintext manifest" in table.features
        for entry in _avro(manifest["manifest_path"], manifest["key_metadata"]):
            if entry["status"] != DELETED:
                yield OpenedFile(entry["data_file"])


def _open(file: OpenedFile) -> Any:
    """The plaintext of any encrypted file."""
    assert file.key_metadata is not None
    if file.fields["file_format"] == "PARQUET":
        return parquet.open(file.path, parquet.DecryptionConfig.for_iceberg(file.key_metadata))
    return ags1.open(file.path, key_metadata=file.key_metadata)


def _count(file: OpenedFile) -> int | None:
    """The number of records in the file itself."""
    with _open(file) as stream:
        if file.fields["file_format"] == "PARQUET":
            return pq.ParquetFile(stream).scan_contents()
        if file.fields["file_format"] == "AVRO":
            return sum(1 for _ in fastavro.reader(stream))
        return None


@pytest.mark.parametrize("name", ENCRYPTED)
def test_every_snapshot_leads_to_its_files(spark_tables: SparkTables, table_kms: MemoryKms, name: str) -> None:
    table = spark_tables[name]
    assert table.document["format-version"] == 3
    assert {each["snapshot-id"] for each in table.document["snapshots"]} == {each.id for each in table.snapshots}
    for snapshot in table.snapshots:
        found = list(_live_files(table, snapshot.id, table_kms))
        if snapshot == table.current:
            assert sorted(
                (each.fields["content"], each.fields["file_path"], each.fields["record_count"]) for each in found
            ) == sorted((each.content, each.location, each.records) for each in table.files)


@pytest.mark.parametrize("name", ENCRYPTED)
def test_every_file_opens_with_the_key_that_its_manifest_has(
    spark_tables: SparkTables, table_kms: MemoryKms, name: str
) -> None:
    table = spark_tables[name]
    for file in _live_files(table, table.document["current-snapshot-id"], table_kms):
        if file.key_metadata is None:
            assert "plaintext files" in table.features
            continue
        assert file.key_metadata.file_length == file.path.stat().st_size == file.fields["file_size_in_bytes"]
        assert file.path.read_bytes()[:4] == (b"PARE" if file.fields["file_format"] == "PARQUET" else b"AGS1")
        records = _count(file)
        assert records is None or records == file.fields["record_count"]


@pytest.mark.parametrize("name", ["types", "bulk"])
def test_a_first_snapshots_parquet_files_have_the_rows_that_spark_read(
    spark_tables: SparkTables, table_kms: MemoryKms, name: str
) -> None:
    first = spark_tables[name].snapshots[0]
    parts = []
    for file in _live_files(spark_tables[name], first.id, table_kms):
        with _open(file) as view:
            parts.append(pq.read_table(view))
    found = pa.concat_tables(parts)
    assert found.column_names == first.columns
    assert arrow_rows(found) == first.rows


def test_deletion_vectors_are_inside_their_puffin_files(spark_tables: SparkTables, table_kms: MemoryKms) -> None:
    for table in spark_tables.having("vectors"):
        vectors = [
            each
            for each in _live_files(table, table.document["current-snapshot-id"], table_kms)
            if each.fields["file_format"] == "PUFFIN"
        ]
        assert vectors
        for each in vectors:
            with _open(each) as stream:
                assert stream.read(4) == b"PFA1"
                stream.seek(each.fields["content_offset"])
                blob = stream.read(each.fields["content_size_in_bytes"])
            assert blob[4:8] == bytes.fromhex("d1d33964")
            assert each.fields["referenced_data_file"]


@pytest.mark.parametrize(("name", "format_"), [("deletes", "PARQUET"), ("deletes_avro", "AVRO")])
def test_deletes_of_every_kind_lie_in_one_table(
    spark_tables: SparkTables, table_kms: MemoryKms, name: str, format_: str
) -> None:
    table = spark_tables[name]
    found = {(each.content, each.format) for each in table.files}
    assert found == {
        (0, format_),
        (POSITION_DELETES, format_),
        (POSITION_DELETES, "PUFFIN"),
        (EQUALITY_DELETES, format_),
    }
    assert table.current is not None
    assert [len(each.rows) for each in table.snapshots] == [30, 25, 35, 32, 42, 40, 37]


@pytest.mark.parametrize(("name", "length"), [("events", 16), ("evolution", 24), ("types", 32), ("events_avro", 32)])
def test_every_key_has_the_length_that_the_table_asks_for(
    spark_tables: SparkTables, table_kms: MemoryKms, name: str, length: int
) -> None:
    table = spark_tables[name]
    keys = EncryptionKeys.from_table_metadata(table.document)
    for snapshot in table.snapshots:
        list_key = keys.for_snapshot(table.document, snapshot.id, table_kms)
        assert list_key is not None
        assert len(list_key.encryption_key) == length
        for file in _live_files(table, snapshot.id, table_kms):
            assert file.key_metadata is not None
            assert len(file.key_metadata.encryption_key) == length


@pytest.mark.parametrize("name", ["events", "events_avro"])
def test_a_table_has_the_rows_of_its_plaintext_twin_at_every_snapshot(spark_tables: SparkTables, name: str) -> None:
    table, twin = spark_tables[name], spark_tables["events_plain"]
    assert twin.document["format-version"] == 2
    assert "encryption-keys" not in twin.document
    assert len(table.snapshots) == 8
    for encrypted, plaintext in zip(table.snapshots, twin.snapshots, strict=True):
        assert (encrypted.operation, encrypted.columns, encrypted.rows) == (
            plaintext.operation,
            plaintext.columns,
            plaintext.rows,
        )


def test_no_file_of_an_encrypted_table_shows_its_content(spark_tables: SparkTables) -> None:
    seen = 0
    for name in ("events", "events_avro"):
        for path in spark_tables[name].location.rglob("*"):
            if path.is_file() and not path.name.endswith(".metadata.json"):
                content = path.read_bytes()
                seen += 1
                assert content[:4] in (b"AGS1", b"PARE"), path
                assert not any(word in content for word in (b"note 1", b"updated", b"manifest_path", b"region")), path
    assert seen > 50


@pytest.mark.parametrize(("name", "format_"), [("mixed", "PARQUET"), ("added", "PARQUET"), ("orc", "ORC")])
def test_added_files_have_no_key(spark_tables: SparkTables, table_kms: MemoryKms, name: str, format_: str) -> None:
    table = spark_tables[name]
    files = list(_live_files(table, table.document["current-snapshot-id"], table_kms))
    assert [each.fields["file_format"] for each in files if each.key_metadata is None] == [format_]
    assert [each.fields["file_format"] for each in files if each.key_metadata is not None] == ["PARQUET"]


def test_keys_of_expired_snapshots_are_left(spark_tables: SparkTables) -> None:
    table = spark_tables["maintained"]
    named = {each["key-id"] for each in table.document["snapshots"]}
    wrapped = {each["key-id"] for each in table.document["encryption-keys"] if "properties" not in each}
    assert named < wrapped
    assert set(table.document["refs"]) == {"main", "side", "kept"}


def test_a_table_without_snapshots_has_no_keys(spark_tables: SparkTables) -> None:
    document = spark_tables["empty"].document
    assert document["properties"]["encryption.key-id"] == "keyA"
    assert not document["snapshots"]
    assert "encryption-keys" not in document


@pytest.mark.parametrize("name", ["bulk", "bulk_avro"])
def test_large_files_have_several_blocks_or_row_groups(
    spark_tables: SparkTables, table_kms: MemoryKms, name: str
) -> None:
    table = spark_tables[name]
    (file,) = _live_files(table, table.snapshots[0].id, table_kms)
    if file.fields["file_format"] == "PARQUET":
        with _open(file) as view:
            assert pq.ParquetFile(view).num_row_groups > 1
        assert len(file.fields["split_offsets"]) > 1
    else:
        assert file.path.stat().st_size > 2 << 20


# -- Spark as a reader of changed metadata -------------------------------------------------------------------


def _changed(table: SparkTable, directory: Path, document: dict[str, Any]) -> Path:
    path = directory / "00099-changed.metadata.json"
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize("name", ["events", "deletes_avro"])
def test_spark_reads_a_table_by_its_metadata_alone(
    spark_tables: SparkTables, spark_reader: SparkReader, name: str
) -> None:
    table = spark_tables[name]
    assert table.current is not None
    assert spark_reader.read(table.metadata) == (table.current.columns, table.current.rows)
    first = table.snapshots[0]
    assert spark_reader.read(table.metadata, first.id) == (first.columns, first.rows)


def test_spark_reads_a_table_whose_keys_were_rewrapped_and_pruned(
    spark_tables: SparkTables, spark_reader: SparkReader, table_kms: MemoryKms, tmp_path: Path
) -> None:
    table = spark_tables["maintained"]
    keys = EncryptionKeys.from_table_metadata(table.document)
    fewer = keys.prune(table.document).rewrap(table_kms, "keyB")
    assert len(fewer) < len(keys)
    document = fewer.to_table_metadata(copy.deepcopy(table.document))
    document["properties"]["encryption.key-id"] = "keyB"
    changed = _changed(table, tmp_path, document)
    for snapshot in table.snapshots:
        assert spark_reader.read(changed, snapshot.id) == (snapshot.columns, snapshot.rows)


def test_spark_refuses_a_table_whose_master_key_is_not_there(
    spark_tables: SparkTables, spark_reader: SparkReader, tmp_path: Path
) -> None:
    table = spark_tables["events"]
    document = json.loads(json.dumps(table.document))
    document["properties"]["encryption.key-id"] = "keyC"
    with pytest.raises(SparkReadError, match="There is no master key keyC"):
        spark_reader.read(_changed(table, tmp_path, document))


def test_spark_refuses_a_damaged_manifest_list_and_the_damage_is_undone(
    spark_tables: SparkTables, spark_reader: SparkReader
) -> None:
    table = spark_tables["events"]
    (newest,) = (
        each for each in table.document["snapshots"] if each["snapshot-id"] == table.document["current-snapshot-id"]
    )
    path = local_path(newest["manifest-list"])
    intact = path.read_bytes()
    with table.damaged(newest["manifest-list"], intact[:-1] + bytes([intact[-1] ^ 1])):
        with pytest.raises(SparkReadError, match="GCM tag check failed"):
            spark_reader.read(table.metadata)
    assert path.read_bytes() == intact
    with pytest.raises(ValueError, match="is no file of events"), table.damaged(Path("elsewhere"), b""):
        pass
