"""Avro and Parquet files with the same rows, and tables that consist of one of them."""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask
from pyiceberg.table.metadata import TableMetadataV3
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.typedef import Record
from pyiceberg.types import NestedField

import ags1
from ags1.expected import Expected
from ags1.iceberg import EncryptedFileIO
from ags1.iceberg.files.file_io import KnownFile
from ags1.iceberg.scan.row_filter import RowFilter
from ags1.iceberg.scan.table_scan import EncryptedArrowScan
from ags1.keys import KeyMetadata

KEY = bytes(range(16))
PREFIX = b"0123456789abcdef"


def optional(field_id: int, name: str, kind: Any, **options: Any) -> NestedField:
    return NestedField(field_id, name, kind, required=False, **options)


def required(field_id: int, name: str, kind: Any, **options: Any) -> NestedField:
    return NestedField(field_id, name, kind, required=True, **options)


class Lake:
    """Two files with the same rows, Avro and Parquet, and tables that consist of one of them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.io = EncryptedFileIO(expected=Expected(allow_plaintext=True))
        self.avro = str(directory / "data.avro")
        self.parquet = str(directory / "data.parquet")

    def write(self, schema: Any, rows: list[Any], *, codec: str = "null", encrypted: bool = False) -> None:
        """Write an Avro file of rows with Avro's own values."""
        self.write_bytes(avro_bytes(schema, rows, codec), encrypted=encrypted)

    def write_bytes(self, data: bytes, *, encrypted: bool = False) -> None:
        if not encrypted:
            Path(self.avro).write_bytes(data)
            return
        with ags1.open(self.avro, "wb", key=KEY, aad_prefix=PREFIX, block_length=1 << 20) as stream:
            stream.write(data)
        length = Path(self.avro).stat().st_size
        known = KeyMetadata(KEY, PREFIX, length)
        self.io.keys._files[self.avro] = KnownFile(self.avro, "data", "avro", known, length)

    def write_parquet(self, schema: Schema, rows: list[dict[str, Any]]) -> None:
        arrow = pa.schema([_stored(each) for each in schema_to_pyarrow(schema)])
        pq.write_table(pa.Table.from_pylist(rows, schema=arrow), self.parquet)

    def read(
        self,
        table: Schema,
        *,
        path: str | None = None,
        columns: Schema | None = None,
        row_filter: Any = None,
        deleted: list[list[int]] | None = None,
        vector: Any = None,
        limit: int | None = None,
        spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        partition: Record | None = None,
        properties: dict[str, str] | None = None,
    ) -> pa.Table:
        path = path or self.avro
        table = table.model_copy(update={"schema_id": 0})
        metadata = TableMetadataV3(
            location="file:///table",
            last_column_id=1000,
            schemas=[table],
            current_schema_id=0,
            partition_specs=[spec],
            default_spec_id=spec.spec_id,
            sort_orders=[UNSORTED_SORT_ORDER],
            default_sort_order_id=0,
            last_partition_id=1999,
            next_row_id=0,
            properties=properties or {},
        )
        file = data_file(path, FileFormat.AVRO if path.endswith(".avro") else FileFormat.PARQUET, partition)
        file.spec_id = spec.spec_id
        requested = table if columns is None else columns
        positions: list[Any] = []
        if vector is not None:
            positions = [vector]
        if deleted is not None:
            positions = [pa.chunked_array([pa.array(each, pa.int64())]) for each in deleted]
        bound = None if row_filter is None else RowFilter(row_filter, table)
        scan = EncryptedArrowScan(metadata, self.io, requested, bound, limit)
        batches = scan._rows(FileScanTask(file), positions, {})
        wanted = schema_to_pyarrow(requested, include_field_ids=False)
        return pa.Table.from_batches(batches, schema=wanted).combine_chunks()

    def read_both(self, table: Schema, **options: Any) -> pa.Table:
        """Rows of the Avro file, which must be those of the Parquet file."""
        ours = self.read(table, **options)
        ours.validate(full=True)
        theirs = self.read(table, path=self.parquet, **options)
        assert ours.schema == theirs.schema
        assert ours.equals(theirs) or ours.to_pylist() == theirs.to_pylist()
        return ours


def data_file(path: str, file_format: FileFormat, partition: Record | None = None, content: Any = None) -> Any:
    return DataFile.from_args(
        content=content or DataFileContent.DATA,
        file_path=path,
        file_format=file_format,
        partition=partition or Record(),
        record_count=1,
        file_size_in_bytes=1,
    )


def record(*fields: Any) -> Any:
    """An Avro schema: (id, name, type) of each field."""
    return {
        "type": "record",
        "name": "table",
        "fields": [{"name": name, "type": kind, "field-id": field_id} for field_id, name, kind in fields],
    }


def nullable(kind: Any) -> list[Any]:
    return ["null", kind]


def _without_logical_types(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_logical_types(each) for each in schema]
    if isinstance(schema, dict):
        return {name: _without_logical_types(each) for name, each in schema.items() if name != "logicalType"}
    return schema


def avro_bytes(schema: Any, rows: list[Any], codec: str = "null") -> bytes:
    """A container with this schema of rows whose values are as they are stored: integers for dates, bytes for UUIDs."""
    out = io.BytesIO()
    fastavro.writer(
        out,
        _without_logical_types(schema),
        rows,
        codec="null",
        sync_interval=4000,
        metadata={},
        sync_marker=bytes(range(16)),
        strict=False,
    )
    plain = out.getvalue()
    found = _blocks(plain)
    header = {b"avro.schema": json.dumps(schema).encode(), b"avro.codec": codec.encode()}
    parts = [b"Obj\x01", encoded_long(len(header))]
    parts += [encoded_long(len(each)) + each for entry in header.items() for each in entry]
    parts += [encoded_long(0), bytes(range(16))]
    for count, data in found:
        stored = _COMPRESS[codec](data)
        parts += [encoded_long(count), encoded_long(len(stored)), stored, bytes(range(16))]
    return b"".join(parts)


def _blocks(container: bytes) -> list[tuple[int, bytes]]:
    return [(each.num_records, each.bytes_.getvalue()) for each in fastavro.block_reader(io.BytesIO(container))]


def encoded_long(value: int) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, "long", value)
    return out.getvalue()


def _deflate(data: bytes) -> bytes:
    squeezed = zlib.compressobj(wbits=-15)
    return squeezed.compress(data) + squeezed.flush()


def _zstandard(data: bytes) -> bytes:
    out = pa.BufferOutputStream()
    with pa.CompressedOutputStream(out, "zstd") as stream:
        stream.write(data)
    return out.getvalue().to_pybytes()


def _snappy(data: bytes) -> bytes:
    return pa.Codec("snappy").compress(data, asbytes=True) + zlib.crc32(data).to_bytes(4, "big")


_COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "null": bytes,
    "deflate": _deflate,
    "zstandard": _zstandard,
    "snappy": _snappy,
    "lzo": bytes,
}


def _stored(field: pa.Field) -> pa.Field:
    """PyArrow makes no UUIDs from Python values inside lists; PyIceberg takes 16 bytes for one."""
    kind = field.type
    if kind == pa.uuid():
        kind = pa.binary(16)
    elif pa.types.is_struct(kind):
        kind = pa.struct([_stored(each) for each in kind])
    elif pa.types.is_large_list(kind):
        kind = pa.large_list(_stored(kind.value_field))
    elif pa.types.is_map(kind):
        kind = pa.map_(_stored(kind.key_field), _stored(kind.item_field))
    return field.with_type(kind)
