"""Real tables with other manifests: read to the last entry, changed, and encrypted again with keys of their own."""

from __future__ import annotations

import copy
import io
import json
import shutil
from pathlib import Path
from typing import Any

import fastavro
import zstandard

import ags1
from ags1.avro import iter_blocks, read_header
from ags1.iceberg import EncryptionKeys
from ags1.iceberg.metadata.manifests import readable
from ags1.keys import KeyMetadata
from ags1.support.avro_encoding import container_start, encoded_block
from tests.iceberg.warehouse import SparkTable, local_path

_FASTAVROS_OWN = ("avro.schema", "avro.codec")


class AvroContent:
    """Schema, records and further metadata of an Avro file."""

    def __init__(self, data: bytes) -> None:
        reader = fastavro.reader(io.BytesIO(readable(data)))
        self.codec = "null"
        self.metadata = {name: value for name, value in reader.metadata.items() if name not in _FASTAVROS_OWN}
        self.schema: Any = json.loads(reader.metadata["avro.schema"])
        self.records: list[Any] = list(reader)

    def encode(self) -> bytes:
        out = io.BytesIO()
        zstd = self.codec == "zstandard"
        fastavro.writer(out, self.schema, self.records, codec="null" if zstd else self.codec, metadata=self.metadata)
        return _with_zstd(out.getvalue()) if zstd else out.getvalue()


def _with_zstd(data: bytes) -> bytes:
    """The container compressed by Zstandard, for which fastavro has no package on every Python."""
    header = read_header(io.BytesIO(data))
    made = [container_start({**header.metadata, "avro.codec": b"zstandard"}, header.marker)]
    for block in iter_blocks(io.BytesIO(data), 0, len(data)):
        packed = zstandard.compress(block.data)
        made.append(encoded_block(block.count, packed, header.marker))
    return b"".join(made)


class RebuiltTable:
    """The newest snapshot of a table, with its data files where they are.

    Attributes
    ----------
    document : dict
        Its metadata, with this snapshot alone.
    listed : AvroContent
        The manifest list; its records are in the order of `manifests`.
    manifests : list of AvroContent
    """

    def __init__(self, table: SparkTable, directory: Path, kms: Any) -> None:
        self._directory, self._kms = directory, kms
        self.document = copy.deepcopy(table.document)
        self._master = self.document["properties"]["encryption.key-id"]
        current = self.document["current-snapshot-id"]
        (self.snapshot,) = (each for each in self.document["snapshots"] if each["snapshot-id"] == current)
        self.document["snapshots"] = [self.snapshot]
        self.document["snapshot-log"] = self.document["metadata-log"] = []
        self.document["refs"] = {"main": {"snapshot-id": current, "type": "branch"}}
        keys = EncryptionKeys.from_table_metadata(self.document)
        list_key = keys.for_snapshot(self.document, current, kms)
        assert list_key is not None
        self.listed = AvroContent(_opened(self.snapshot["manifest-list"], list_key.encode()))
        self.manifests = [
            AvroContent(_opened(each["manifest_path"], each["key_metadata"])) for each in self.listed.records
        ]

    @property
    def data_files(self) -> list[dict[str, Any]]:
        """The live data and delete files of all manifests, as they are there."""
        return [each["data_file"] for manifest in self.manifests for each in manifest.records if each["status"] != 2]

    @property
    def list_path(self) -> Path:
        """The manifest list that was written."""
        return self._directory / "list.avro"

    def manifest_path(self, index: int) -> Path:
        """A manifest that was written."""
        return self._directory / f"manifest-{index}.avro"

    def copy_files(self) -> list[Path]:
        """Give the table copies of its data files, which a test may damage; not for tables with deletes by path."""
        copies = []
        for index, file in enumerate(self.data_files):
            path = local_path(file["file_path"])
            copies.append(Path(shutil.copy(path, self._directory / f"data-{index}{path.suffix}")))
            file["file_path"] = copies[-1].as_uri()
        return copies

    def write(
        self, *, with_lengths: bool = True, encrypted: bool = True, contents: dict[int, bytes] | None = None
    ) -> str:
        """Write it all; return the location of the metadata.

        Parameters
        ----------
        with_lengths : bool
            Without, key metadata has no lengths, and the manifest list has those of the manifests' plaintext: as
            iceberg-rust writes them.
        encrypted : bool
            Whether manifests and their list are.
        contents : dict, optional
            Other plaintext for manifests, by index.
        """
        for index, (record, manifest) in enumerate(zip(self.listed.records, self.manifests, strict=True)):
            if not with_lengths:
                for entry in manifest.records:
                    entry["data_file"]["key_metadata"] = _without_length(entry["data_file"]["key_metadata"])
            plain = (contents or {}).get(index, manifest.encode())
            path = self.manifest_path(index)
            key = _store(path, plain, encrypted, with_lengths)
            record["manifest_path"] = path.as_uri()
            record["manifest_length"] = path.stat().st_size if with_lengths else len(plain)
            record["key_metadata"] = None if key is None else key.encode()
        key = _store(self.list_path, self.listed.encode(), encrypted, with_lengths)
        self.snapshot["manifest-list"] = self.list_path.as_uri()
        if key is None:
            self.snapshot.pop("key-id", None)
        else:
            keys = EncryptionKeys.from_table_metadata(self.document)
            self.snapshot["key-id"] = keys.add_manifest_list_key(key, self._kms, self._master)
            self.document = keys.to_table_metadata(self.document)
            self.snapshot = self.document["snapshots"][0]
        return self.write_metadata()

    def write_metadata(self) -> str:
        """Write only the metadata, which a test has changed."""
        path = self._directory / "00099-rebuilt.metadata.json"
        path.write_text(json.dumps(self.document))
        return str(path)


def _opened(location: str, key_metadata: bytes | None) -> bytes:
    if key_metadata is None:
        return local_path(location).read_bytes()
    with ags1.open(local_path(location), key_metadata=key_metadata) as stream:
        return stream.read()


def _store(path: Path, plain: bytes, encrypted: bool, with_length: bool) -> KeyMetadata | None:
    if not encrypted:
        path.write_bytes(plain)
        return None
    key = KeyMetadata.generate(128)
    assert key.aad_prefix is not None
    path.write_bytes(ags1.encrypt(plain, key.encryption_key, aad_prefix=key.aad_prefix))
    return key.with_length(path.stat().st_size) if with_length else key


def _without_length(encoded: bytes | None) -> bytes | None:
    return None if encoded is None else KeyMetadata.decode(encoded).with_length(None).encode()
