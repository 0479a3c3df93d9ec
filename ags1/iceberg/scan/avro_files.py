"""Avro data and delete files of Iceberg tables, which PyIceberg does not read.

    blocks of the container  --decompress-->  fastavro  --rows-->  Arrow columns  --PyIceberg-->  the scan's schema
    one at a time                             without logical types                deletes, evolution

The container is read and decompressed by :mod:`ags1.avro`, which checks its lengths: fastavro then needs no further
packages for the codecs, and the memory of a batch is bounded.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import Any

import pyarrow

from ags1.avro import AvroBlock, PlainContainer, plain_blocks, read_header
from ags1.avro.arrow_rows import record_batch
from ags1.avro.schemas import AvroType, has_field_ids, iceberg_schema, parse, plain
from ags1.errors import FormatError
from ags1.iceberg.files.file_io import naming
from ags1.iceberg.metadata.pyiceberg_view import avro_variants
from ags1.iceberg.scan.projection import FileColumns, Projection, expected_type, mapped_field, name_mapping

# A batch has no more rows, nor values in their columns, and ends with the block in which it reaches so many bytes.
_BATCH_ROWS, _BATCH_VALUES = 1 << 16, 1 << 21
_BATCH_BYTES = 16 << 20


def read_task(scan: Any, task: Any) -> Iterator[tuple[int, pyarrow.RecordBatch]]:
    """Return the rows of an Avro data file as the scan's columns, and the position of the first row of each batch.

    A FormatError names a file that is damaged or does not fit the table.
    """
    path = task.file.file_path
    with scan.ahead.input_of(path).open() as file:
        with naming(path, "its schema cannot be read"):
            container = _Container(file, name_mapping(scan))
            file_schema = iceberg_schema(container.record, lambda field_id: expected_type(scan, field_id))
        columns = FileColumns(scan, file_schema)
        projection = Projection(scan, task, columns)
        for start, batch in _batches(container, path, columns.schema):
            with naming(path, "its columns do not fit the table's schema"):
                rows = projection.rows(batch, start)
            yield start, rows


def read_columns(file: Any, fields: Mapping[int, str]) -> list[pyarrow.ChunkedArray]:
    """Return whole columns of an Avro file by their field ids; a FormatError if the file lacks one."""
    container = _Container(file, [mapped_field(*each) for each in fields.items()])
    names = {each.id: each.name for each in container.record.fields}
    for field_id, name in fields.items():
        if field_id not in names:
            raise FormatError(f"the schema of this file has no field with the id {field_id} ({name})")
    columns: dict[int, list[Any]] = {field_id: [] for field_id in fields}
    for rows in container.rows(frozenset(fields)):
        for field_id, values in columns.items():
            values += map(itemgetter(names[field_id]), rows)
    return [pyarrow.chunked_array([pyarrow.array(values)]) for values in columns.values()]


def _batches(container: _Container, path: str, schema: Any) -> Iterator[tuple[int, pyarrow.RecordBatch]]:
    """Batches with the columns of a schema, and the position in the file of the first row of each."""
    struct, start = schema.as_struct(), 0
    chunks = container.rows(frozenset(schema.field_ids))
    while True:
        with naming(path, "its rows cannot be decoded"):
            rows = next(chunks, None)
            if rows is None:
                return
            batch = record_batch(rows, container.record, struct)
        yield start, batch
        start += batch.num_rows


class _Container:
    """An open Avro file with field ids; `record` is its schema."""

    record: AvroType

    def __init__(self, file: Any, mapping: Any) -> None:
        self._file = file
        metadata = read_header(file).metadata
        if "avro.schema" not in metadata:
            raise FormatError("the Avro header has no schema")
        schema = json.loads(metadata["avro.schema"])
        self.record = avro_variants(parse(schema, None if has_field_ids(schema) else mapping))

    def rows(self, keep: frozenset[int]) -> Iterator[list[dict[str, Any]]]:
        """Lists of rows, each of bounded size; only fields with these ids are sure to be in them."""
        rows: list[dict[str, Any]] = []
        size = 0

        def blocks() -> Iterator[AvroBlock]:
            nonlocal size
            for block in plain_blocks(self._file):
                size += len(block.data)
                yield block

        metadata = {"avro.schema": json.dumps(plain(self.record)).encode()}
        ids = _ids(self.record)
        # fastavro matches the schemas for each value again, which takes about as long as decoding one more value.
        skips = 2 * sum(each in keep for each in ids) <= len(ids)
        wanted = plain(self.record, keep) if skips else None
        most = max(1, min(_BATCH_ROWS, _BATCH_VALUES // max(1, len(ids))))
        for row in PlainContainer(metadata, bytes(16), blocks()).rows(wanted):
            rows.append(row)
            if len(rows) >= most or size >= _BATCH_BYTES:
                yield rows
                rows, size = [], 0
        if rows:
            yield rows


def _ids(avro: AvroType) -> list[int | None]:
    """Of all fields with a value of their own."""
    return [found for each in avro.fields for found in ([each.id] if not each.type.fields else _ids(each.type))]
