"""Small plaintext tables with delete files of any kind and age, made file by file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.conversions import to_bytes
from pyiceberg.io.pyarrow import PyArrowFileIO, schema_to_pyarrow
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriterV2,
    write_manifest_list,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record

from ags1.iceberg import EncryptedTable, open_table

SNAPSHOT = 77

Rows = Sequence[dict[str, Any]]


class DeleteManifestWriter(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES


class DeleteLake:
    """A table. The last of its schemas is the current one."""

    def __init__(
        self,
        directory: Path,
        *schemas: Schema,
        specs: Sequence[PartitionSpec] = (UNPARTITIONED_PARTITION_SPEC,),
        format_version: int = 2,
    ) -> None:
        self._version = format_version
        self.directory = directory
        self.schemas = [each.model_copy(update={"schema_id": index}) for index, each in enumerate(schemas)]
        self.specs = list(specs)
        self.io = PyArrowFileIO()
        self._manifests: list[Any] = []
        self._newest = 0

    def path(self, name: str) -> str:
        return str(self.directory / name)

    def add(
        self,
        rows: Rows,
        sequence_number: int,
        *,
        schema: Schema | None = None,
        equality_ids: Sequence[int] | None = None,
        content: DataFileContent = DataFileContent.DATA,
        spec_id: int = 0,
        partition: Sequence[Any] = (),
        bounds: dict[int, tuple[Any, Any]] | None = None,
        file_format: FileFormat = FileFormat.PARQUET,
    ) -> str:
        """Add a data file, or with `equality_ids` an equality delete file; return its path."""
        schema = schema or self.schemas[-1]
        if equality_ids is not None:
            content = DataFileContent.EQUALITY_DELETES
        path = self.path(f"{len(self._manifests)}-{content.name.lower()}.{file_format.value.lower()}")
        if file_format == FileFormat.AVRO:
            _write_avro(path, schema, rows)
        else:
            # Several batches, each a row group.
            made = pa.Table.from_pylist(list(rows), schema=schema_to_pyarrow(schema))
            pq.write_table(made, path, row_group_size=max(1, len(rows) // 3))
        lower, upper = {}, {}
        for field_id, (least, most) in (bounds or {}).items():
            kind = schema.find_type(field_id)
            lower[field_id], upper[field_id] = to_bytes(kind, least), to_bytes(kind, most)
        file = DataFile.from_args(
            content=content,
            file_path=path,
            file_format=file_format,
            partition=Record(*partition),
            record_count=len(rows),
            file_size_in_bytes=Path(path).stat().st_size,
            equality_ids=None if equality_ids is None else list(equality_ids),
            lower_bounds=lower or None,
            upper_bounds=upper or None,
            value_counts={field_id: len(rows) for field_id in lower} or None,
            null_value_counts=dict.fromkeys(lower, 0) or None,
        )
        self.add_file(file, sequence_number, spec_id)
        return path

    def add_file(self, file: DataFile, sequence_number: int, spec_id: int = 0) -> None:
        """Add a file that exists."""
        writer_class = ManifestWriterV2 if file.content == DataFileContent.DATA else DeleteManifestWriter
        (spec,) = (each for each in self.specs if each.spec_id == spec_id)
        output = self.io.new_output(self.path(f"manifest-{len(self._manifests)}.avro"))
        with writer_class(spec, self.schemas[-1], output, SNAPSHOT, "null") as writer:
            writer.add_entry(
                ManifestEntry.from_args(
                    status=ManifestEntryStatus.EXISTING,
                    snapshot_id=SNAPSHOT,
                    sequence_number=sequence_number,
                    file_sequence_number=sequence_number,
                    data_file=file,
                )
            )
        self._manifests.append(writer.to_manifest_file())
        self._newest = max(self._newest, sequence_number)

    def open(self) -> EncryptedTable:
        """Commit what was added, as the only snapshot."""
        listed = self.path("snapshot.avro")
        with write_manifest_list(2, self.io.new_output(listed), SNAPSHOT, None, self._newest, "null") as writer:
            writer.add_manifests(self._manifests)
        schema = self.schemas[-1]
        document = {
            "format-version": self._version,
            "table-uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1",
            "location": str(self.directory),
            "last-sequence-number": self._newest,
            "last-updated-ms": 1_700_000_000_000,
            "last-column-id": 1000,
            "next-row-id": 0,
            "schemas": [json.loads(each.model_dump_json()) for each in self.schemas],
            "current-schema-id": schema.schema_id,
            "partition-specs": [json.loads(each.model_dump_json()) for each in self.specs],
            "default-spec-id": self.specs[-1].spec_id,
            "last-partition-id": 1999,
            "sort-orders": [{"order-id": 0, "fields": []}],
            "default-sort-order-id": 0,
            "current-snapshot-id": SNAPSHOT,
            "snapshots": [
                {
                    "snapshot-id": SNAPSHOT,
                    "sequence-number": self._newest,
                    "timestamp-ms": 1_700_000_000_000,
                    "manifest-list": listed,
                    "schema-id": schema.schema_id,
                    "summary": {"operation": "append"},
                }
            ],
        }
        location = self.directory / "00001.metadata.json"
        location.write_text(json.dumps(document))
        return open_table(str(location), None, allow_plaintext=True)


def _write_avro(path: str, schema: Schema, rows: Rows) -> None:
    """Only with columns of the types long and string."""
    fields = [
        {"name": each.name, "type": ["null", str(each.field_type)], "default": None, "field-id": each.field_id}
        for each in schema.fields
    ]
    with open(path, "wb") as stream:
        fastavro.writer(stream, {"type": "record", "name": "row", "fields": fields}, rows)
