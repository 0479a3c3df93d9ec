"""A deletion vector deletes the rows of the file that its manifest entry binds it to, and of no other."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ags1
from ags1.iceberg import EncryptedTable, open_table
from ags1.keys import KeyMetadata
from ags1.kms import MemoryKms
from tests.iceberg.canonical import arrow_rows
from tests.iceberg.rebuilt import RebuiltTable
from tests.iceberg.warehouse import SparkReader, SparkTables, local_path

SHARED = ("vector_removed", "file_again")


def vectors_of(table: RebuiltTable) -> list[dict[str, Any]]:
    return [each for each in table.data_files if each["file_format"].lower() == "puffin"]


def assert_sound(table: EncryptedTable) -> None:
    report = table.verify()
    assert report.ok, str(report)
    assert table.audit().ok, str(table.audit())


@pytest.mark.parametrize("name", SHARED)
def test_a_vector_that_was_removed_deletes_nothing_while_its_file_serves_another(
    name: str, spark_tables: SparkTables, table_kms: MemoryKms
) -> None:
    made = spark_tables[name]
    table = open_table(made.metadata, table_kms)
    for snapshot in made.snapshots:
        scan = table.scan(snapshot_id=snapshot.id)
        assert arrow_rows(scan.to_arrow()) == snapshot.rows
        assert scan.count() == len(snapshot.rows)
        assert sum(batch.num_rows for batch in scan.to_record_batches()) == len(snapshot.rows)
    assert made.current is not None
    assert len(made.current.rows) == 18
    assert_sound(table)


def test_vectors_of_one_file_of_which_footers_name_other_paths_than_manifests(
    spark_tables: SparkTables, table_kms: MemoryKms, spark_reader: SparkReader, tmp_path: Path
) -> None:
    source = spark_tables["bulk"]
    table = RebuiltTable(source, tmp_path, table_kms)
    moved: dict[str, str] = {}
    for index, file in enumerate(table.data_files):
        if file["content"] == 0:
            copy = tmp_path / f"moved-{index}.parquet"
            copy.write_bytes(local_path(file["file_path"]).read_bytes())
            moved[file["file_path"]] = file["file_path"] = f"file:{copy}"
    for vector in vectors_of(table):
        vector["referenced_data_file"] = moved[vector["referenced_data_file"]]
    location = table.write()
    opened = open_table(location, table_kms)
    assert source.current is not None
    rows = arrow_rows(opened.scan().to_arrow())
    assert rows == source.current.rows
    assert rows == spark_reader.read(Path(location))[1]
    assert opened.scan().count() == len(rows)
    report = opened.verify()
    assert report.ok
    (finding,) = report.having("contradiction")
    assert "and the manifest, which counts, for file:" in finding.message


def test_a_file_with_a_vector_has_no_position_deletes_besides(
    spark_tables: SparkTables, table_kms: MemoryKms, spark_reader: SparkReader, tmp_path: Path
) -> None:
    table = RebuiltTable(spark_tables["deletes"], tmp_path, table_kms)
    (positions,) = (each for each in table.data_files if each["content"] == 1 and each not in vectors_of(table))
    (vector,) = vectors_of(table)
    scoped = positions["referenced_data_file"]
    if scoped is None:
        scoped = next(each["value"] for each in positions["lower_bounds"] if each["key"] == 2147483546).decode()
    vector["referenced_data_file"] = scoped
    location = table.write()
    rows = arrow_rows(open_table(location, table_kms).scan().to_arrow())
    assert rows == spark_reader.read(Path(location))[1]
    assert len(rows) == 41


def change(field: str, value: Callable[[Any], Any]) -> Callable[[RebuiltTable], None]:
    def apply(table: RebuiltTable) -> None:
        (vector,) = vectors_of(table)
        vector[field] = value(vector[field])

    return apply


def twice(table: RebuiltTable) -> None:
    for manifest in table.manifests:
        for entry in list(manifest.records):
            if entry["data_file"]["file_format"].lower() == "puffin":
                other = json.loads(json.dumps(entry, default=lambda data: data.hex()))
                other["data_file"] = dict(entry["data_file"], record_count=7)
                manifest.records.append(other)


def newer_data(table: RebuiltTable) -> None:
    for manifest in table.manifests:
        for entry in manifest.records:
            if entry["data_file"]["content"] == 0:
                entry.update(status=0, sequence_number=99, file_sequence_number=99, snapshot_id=1)


@pytest.mark.parametrize(
    ("damage", "message", "is_bound_wrong"),
    [
        (change("record_count", lambda count: count + 1), "and the manifest says", False),
        (change("content_offset", lambda offset: offset + 1), "does not begin as one", False),
        (change("content_offset", lambda offset: 1 << 40), "ends behind the end of the file", False),
        (change("content_size_in_bytes", lambda size: size - 1), "does not begin as one", False),
        (change("content_size_in_bytes", lambda size: 1 << 40), "the manifest says that", True),
        (change("content_size_in_bytes", lambda size: None), "does not say where in it", True),
        (change("content_offset", lambda offset: None), "does not say where in it", True),
        (change("content_offset", lambda offset: -4), "does not say where in it", True),
        (change("referenced_data_file", lambda path: None), "does not say which data file", True),
        (twice, "two deletion vectors for", True),
        (newer_data, "is older than", True),
    ],
)
def test_a_vector_that_is_not_what_its_manifest_says_is_refused(
    damage: Callable[[RebuiltTable], None],
    message: str,
    is_bound_wrong: bool,
    spark_tables: SparkTables,
    table_kms: MemoryKms,
    tmp_path: Path,
) -> None:
    table = RebuiltTable(spark_tables["bulk"], tmp_path, table_kms)
    damage(table)
    opened = open_table(table.write(), table_kms)
    with pytest.raises(ags1.FormatError, match=message) as caught:
        opened.scan().to_arrow()
    assert ".puffin" in str(caught.value)
    report = opened.verify()
    assert not report.ok
    found = [each for each in report.findings if each.severity == "error"]
    assert [each.details["kind"] for each in found] == ["deletion vectors"]
    assert message in found[0].message or damage is twice
    assert opened.audit().ok is not (is_bound_wrong or "behind the end" in message)


@pytest.mark.parametrize(
    ("at", "message"), [(0, "does not begin as one"), (5, "does not begin as one"), (20, "has a wrong checksum")]
)
def test_a_vector_that_authenticates_and_has_other_bytes_is_refused(
    at: int, message: str, spark_tables: SparkTables, table_kms: MemoryKms, tmp_path: Path
) -> None:
    table = RebuiltTable(spark_tables["bulk"], tmp_path, table_kms)
    (vector,) = vectors_of(table)
    with ags1.open(local_path(vector["file_path"]), key_metadata=vector["key_metadata"]) as stream:
        plain = bytearray(stream.read())
    plain[vector["content_offset"] + at] ^= 1
    path = tmp_path / "changed.puffin"
    key = KeyMetadata.generate(128)
    path.write_bytes(ags1.encrypt(plain, key.encryption_key, aad_prefix=key.aad_prefix or b""))
    vector.update(
        file_path=path.as_uri(),
        file_size_in_bytes=path.stat().st_size,
        key_metadata=key.with_length(path.stat().st_size).encode(),
    )
    opened = open_table(table.write(), table_kms)
    with pytest.raises(ags1.FormatError, match=message):
        opened.scan().to_arrow()
    assert not opened.verify().ok
