"""Tables that no writer we have makes: a snapshot of a real table, written anew with some of it changed."""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro

import ags1
from ags1.iceberg import EncryptionKeys
from ags1.keys import KeyMetadata
from ags1.kms import MemoryKms
from tests.iceberg.keys import MASTER_KEYS
from tests.iceberg.warehouse import SparkTable, local_path

Change = Callable[[dict[str, Any]], None]


def changed_metadata(table: SparkTable, directory: Path, change: Callable[[dict[str, Any]], None]) -> str:
    """The location of the table's metadata with something changed in it; all other files stay where they are."""
    document = copy.deepcopy(table.document)
    change(document)
    path = directory / "00099-changed.metadata.json"
    path.write_text(json.dumps(document))
    return str(path)


def without_length(key_metadata: bytes) -> bytes:
    """Key metadata as iceberg-rust writes it."""
    return KeyMetadata.decode(key_metadata).with_length(None).encode()


def forged(
    table: SparkTable,
    directory: Path,
    *,
    entry: Change = lambda fields: None,
    manifest: Change = lambda fields: None,
    copies: int = 1,
) -> str:
    """The current snapshot, with its first manifest written anew: the location of its metadata.

    Parameters
    ----------
    entry : callable
        Changes a ``data_file`` of that manifest. With several copies it is called anew for each.
    manifest : callable
        Changes that manifest's fields in the manifest list.
    copies : int
        As many times the manifest is written, under different names.
    """
    document = copy.deepcopy(table.document)
    current = document["current-snapshot-id"]
    (snapshot,) = (each for each in document["snapshots"] if each["snapshot-id"] == current)
    kms = MemoryKms(MASTER_KEYS)
    properties = document["properties"]
    bits = 8 * int(properties.get("encryption.data-key-length", 16))
    keys = EncryptionKeys.from_table_metadata(document)
    list_key = keys.for_snapshot(document, current, kms)
    assert list_key is not None
    schema, metadata, listed = _read(snapshot["manifest-list"], list_key)
    original = listed.pop(0)
    for number in range(copies):
        fields = dict(original)
        content = _read(fields["manifest_path"], KeyMetadata.decode(fields["key_metadata"]))
        for each in content[2]:
            entry(each["data_file"])
        path = directory / f"forged-{number}-m0.avro"
        key = _write(path, bits, *content)
        fields |= {"manifest_path": str(path), "manifest_length": key.file_length, "key_metadata": key.encode()}
        manifest(fields)
        listed.append(fields)
    path = directory / "snap-forged.avro"
    snapshot["manifest-list"] = str(path)
    list_key = _write(path, bits, schema, metadata, listed)
    snapshot["key-id"] = keys.add_manifest_list_key(list_key, kms, properties["encryption.key-id"])
    document["snapshots"] = [snapshot]
    document["snapshot-log"] = []
    document["refs"] = {"main": {"snapshot-id": current, "type": "branch"}}
    document["encryption-keys"] = keys.prune(document).to_list()
    location = directory / "00099-forged.metadata.json"
    location.write_text(json.dumps(document))
    return str(location)


def _read(location: str, key: KeyMetadata) -> tuple[Any, dict[str, str], list[dict[str, Any]]]:
    with ags1.open(local_path(location), key_metadata=key) as stream:
        reader = fastavro.reader(stream)
        kept = {name: value for name, value in reader.metadata.items() if not name.startswith("avro.")}
        return reader.writer_schema, kept, list(reader)


def _write(path: Path, bits: int, schema: Any, metadata: dict[str, str], records: list[dict[str, Any]]) -> KeyMetadata:
    plain = io.BytesIO()
    fastavro.writer(plain, schema, records, metadata=metadata)
    key = KeyMetadata.generate(bits)
    path.write_bytes(ags1.encrypt(plain.getvalue(), key.encryption_key, aad_prefix=key.aad_prefix or b""))
    return key.with_length(path.stat().st_size)
