"""Manifests and manifest lists of writers that leave out field ids: the same entries, by the names."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from ags1.avro import read_header
from ags1.errors import FormatError
from ags1.iceberg import encrypt_table, load_table
from ags1.iceberg.metadata.manifests import read_list, read_manifest, readable
from ags1.kms import MemoryKms
from ags1.support.avro_encoding import container_start

KMS = MemoryKms({"lake": bytes(16)})
IDS = ("field-id", "element-id", "key-id", "value-id")
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False), NestedField(2, "a text", StringType(), required=False)
)
SPEC = PartitionSpec(
    PartitionField(source_id=2, field_id=1000, transform=IdentityTransform(), name="a text"),
    PartitionField(source_id=1, field_id=1001, transform=IdentityTransform(), name="id-part"),
)
ROWS = pyarrow.table({"id": pyarrow.array(range(6)), "a text": [f"t{each % 3}" for each in range(6)]})


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A manifest list and its manifest, in a directory that is a table's."""
    catalog = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=tmp_path.as_uri())
    catalog.create_namespace("db")
    table = catalog.create_table("db.t", SCHEMA, partition_spec=SPEC, location=(tmp_path / "t").as_uri())
    table.append(ROWS)
    catalog.engine.dispose()
    (listed,) = (tmp_path / "t" / "metadata").glob("snap-*.avro")
    (manifest,) = (each for each in (tmp_path / "t" / "metadata").glob("*.avro") if each != listed)
    return listed, manifest


def edited(data: bytes, edit: Callable[[Any], None], *without: str) -> bytes:
    """An Avro file with another schema in its header."""
    header = read_header(io.BytesIO(data))
    schema = json.loads(header.metadata["avro.schema"])
    edit(schema)
    metadata = {**header.metadata, "avro.schema": json.dumps(schema).encode()}
    for name in without:
        del metadata[name]
    return container_start(metadata, header.marker) + data[header.length :]


def schema_of(data: bytes) -> Any:
    return json.loads(read_header(io.BytesIO(data)).metadata["avro.schema"])


def strip(schema: Any, chosen: Callable[[], bool] = lambda: True) -> None:
    """Remove ids from a schema, in place."""
    if isinstance(schema, dict):
        for name in IDS:
            if name in schema and chosen():
                del schema[name]
    for each in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        strip(each, chosen)


def below(schema: Any) -> None:
    for each in schema["fields"]:
        strip(each["type"])


def partition_of(schema: Any) -> Any:
    (file,) = (each["type"] for each in schema["fields"] if each["name"] == "data_file")
    (found,) = (each["type"] for each in file["fields"] if each["name"] == "partition")
    return found


def test_entries_are_the_same_without_any_or_some_ids(files: tuple[Path, Path]) -> None:
    listed, manifest = (each.read_bytes() for each in files)
    (entry,) = read_list(listed)
    expected = read_manifest(manifest, entry)
    draw = random.Random(7)
    edits: list[Callable[[Any], None]] = [strip, below, lambda schema: strip(schema["fields"][0])]
    edits += [lambda schema: strip(schema, lambda: draw.random() < 0.5) for _ in range(40)]
    for edit in edits:
        assert read_list(edited(listed, edit)) == [entry]
        found = read_manifest(edited(manifest, edit), entry)
        assert found == expected
        # PyIceberg's own reader finds fields by their ids alone.
        assert schema_of(readable(edited(manifest, edit))) == schema_of(readable(manifest))
    found = read_manifest(edited(manifest, lambda schema: strip(partition_of(schema))), entry)
    assert found == expected
    assert {tuple(each.file["partition"]) for each in found.entries} == {(1000, 1001)}


def test_names_of_format_version_1_are_known(files: tuple[Path, Path]) -> None:
    data = files[0].read_bytes()

    def rename(schema: Any) -> None:
        strip(schema)
        for each in schema["fields"]:
            each["name"] = each["name"].replace("_files_count", "_data_files_count")

    assert read_list(edited(data, rename)) == read_list(data)


def test_partition_values_that_nobody_names_are_refused(files: tuple[Path, Path]) -> None:
    listed, manifest = (each.read_bytes() for each in files)
    (entry,) = read_list(listed)
    with pytest.raises(FormatError, match="has no field id"):
        read_manifest(edited(manifest, strip, "partition-spec"), entry)


def test_a_table_without_ids_is_read_and_encrypted(files: tuple[Path, Path], tmp_path: Path) -> None:
    files[0].write_bytes(edited(files[0].read_bytes(), strip))
    table = load_table(None, str(tmp_path / "t"), kms=KMS, allow_plaintext=True)
    assert table.scan().count() == 6
    encrypt_table(table, key_id="lake", steps=("enable", "convert", "expire"))
    assert (
        load_table(None, str(tmp_path / "t"), kms=KMS)
        .scan()
        .to_arrow()
        .sort_by("id")
        .equals(ROWS.cast(table.schema.as_arrow()))
    )
    assert not files[0].exists()
