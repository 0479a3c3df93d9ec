"""Manifests and manifest lists written in format version 3, so that an entry that was read keeps its bytes.

Source: Iceberg table spec, "Manifests" and "Manifest Lists".
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import fastavro
from pyiceberg.manifest import MANIFEST_ENTRY_SCHEMAS, MANIFEST_LIST_FILE_SCHEMAS
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from ags1.avro import read_header
from ags1.iceberg.metadata.manifests import DELETES, Manifest, pack_fixed, partition_of, without_logical_types
from ags1.support.avro_encoding import container_start

_VERSION = 3
_DATA_FILE, _PARTITION, _EQUALITY_IDS = 2, 102, 135


def write_manifest(manifest: Manifest) -> bytes:
    """Plaintext of a manifest of format version 3, which has at least one entry."""
    if not manifest.entries:
        raise ValueError("a manifest needs at least one entry")
    schema, plain = _entry_schema(json.dumps(manifest.partition), manifest.packed_fixed)
    header = {
        **manifest.header,
        "partition-spec-id": str(manifest.spec_id).encode(),
        "format-version": str(_VERSION).encode(),
        "content": b"deletes" if manifest.content == DELETES else b"data",
    }
    names = {each["field-id"]: each["name"] for each in manifest.partition["fields"]}

    def records() -> Iterator[dict[str, Any]]:
        for entry in manifest.entries:
            partition = {names[number]: value for number, value in entry.file["partition"].items()}
            yield {
                "status": entry.status,
                "snapshot_id": entry.snapshot_id,
                "sequence_number": entry.sequence_number,
                "file_sequence_number": entry.file_sequence_number,
                "data_file": {**entry.file, "partition": partition},
            }

    return _container(schema, plain, header, records())


def write_list(records: list[dict[str, Any]], snapshot: Mapping[str, Any]) -> bytes:
    """Plaintext of a manifest list of format version 3.

    `records` are as :func:`ags1.iceberg.metadata.manifests.read_list` returns them. Id, parent, sequence number and
    first row id of the snapshot's JSON go into the header.
    """
    parent = snapshot.get("parent-snapshot-id")
    header = {
        "snapshot-id": str(snapshot["snapshot-id"]),
        "parent-snapshot-id": "null" if parent is None else str(parent),
        "sequence-number": str(snapshot["sequence-number"]),
        "first-row-id": str(snapshot["first-row-id"]),
        "format-version": str(_VERSION),
    }
    schema = _avro_of(MANIFEST_LIST_FILE_SCHEMAS[_VERSION], "manifest_file")
    encoded = {name: text.encode() for name, text in header.items()}
    return _container(json.dumps(schema), without_logical_types(schema), encoded, iter(records))


def _container(schema: str, plain: Any, header: Mapping[str, bytes], records: Iterator[dict[str, Any]]) -> bytes:
    """A container of these records; the header has the schema with logical types, the values are as Avro has them."""
    out = io.BytesIO()
    fastavro.writer(out, plain, records, codec="deflate")
    data = out.getvalue()
    found = read_header(io.BytesIO(data))
    metadata = {**header, "avro.schema": schema.encode(), "avro.codec": found.metadata["avro.codec"]}
    return container_start(metadata, found.marker) + data[found.length :]


def _avro_of(schema: Any, name: str) -> dict[str, Any]:
    made: dict[str, Any] = AvroSchemaConversion().iceberg_to_avro(schema, schema_name=name)  # type: ignore[assignment]
    return made


@lru_cache(32)
def _entry_schema(partition: str, packed_fixed: bool) -> tuple[str, Any]:
    """The schema of the entries, as JSON; and the one by which fastavro writes the values as Avro has them."""
    schema = _avro_of(MANIFEST_ENTRY_SCHEMAS[_VERSION], "manifest_entry")
    file = _field(schema, _DATA_FILE)["type"]
    _field(file, _PARTITION)["type"] = json.loads(partition)
    # PyIceberg has long, and the specification int; Java reads nothing else.
    ids = next(each for each in _field(file, _EQUALITY_IDS)["type"] if each != "null")
    ids["items"] = "int"
    declared = json.dumps(schema)
    if packed_fixed:
        pack_fixed(partition_of(schema))
    return declared, fastavro.parse_schema(without_logical_types(schema))


def _field(record: dict[str, Any], number: int) -> dict[str, Any]:
    found: dict[str, Any] = next(each for each in record["fields"] if each.get("field-id") == number)
    return found
