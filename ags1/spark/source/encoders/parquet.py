"""Parquet files without Parquet's own encryption: AGS1 encrypts them. encrypt_parquet writes encrypted Parquet."""

from __future__ import annotations

from functools import partial
from typing import Any

import pyarrow as pa

from ags1.spark.source.decoders.types import conformed
from ags1.spark.source.encoders import Encoding, FileEncoder, refuse
from ags1.spark.source.options import WriteOptions


def make(options: WriteOptions, schema: pa.Schema) -> Encoding:
    """The format."""
    for field in schema:
        if not _is_known(field.type):
            raise refuse(field, "Parquet", "cast it, or use decode=arrow")
    columns = pa.schema([field.with_type(_optional(field.type)) for field in schema])
    return Encoding(".parquet", partial(_ParquetFile, options.compression, columns))


def _is_known(kind: pa.DataType) -> bool:
    types = pa.types
    if types.is_struct(kind):
        # pyarrow cannot write a group without columns.
        return kind.num_fields > 0 and all(_is_known(each.type) for each in kind)
    if types.is_map(kind):
        return _is_known(kind.key_type) and _is_known(kind.item_type)
    if types.is_list(kind) or types.is_large_list(kind):
        return _is_known(kind.value_type)
    return not types.is_interval(kind)


def _optional(kind: pa.DataType) -> pa.DataType:
    """A type whose structs have no required field: pyarrow refuses one below a struct that is null."""
    types = pa.types
    if types.is_struct(kind):
        return pa.struct([pa.field(each.name, _optional(each.type)) for each in kind])
    if types.is_map(kind):
        return pa.map_(*(each.with_type(_optional(each.type)) for each in (kind.key_field, kind.item_field)))
    if types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_optional(kind.value_type)))
    return kind


class _ParquetFile(FileEncoder):
    def __init__(self, compression: str, schema: pa.Schema, file: Any, gathered_bytes: int) -> None:
        self._schema = schema
        self._file = pa.PythonFile(file, mode="w")
        self._compression = compression
        self._gathered_bytes = gathered_bytes
        self._gathered: list[pa.RecordBatch] = []
        self._size = 0
        self._writer: Any = None

    def write(self, batch: pa.RecordBatch) -> None:
        self._gathered.append(conformed(batch, self._schema, "a row"))
        self._size += batch.nbytes
        if self._size >= self._gathered_bytes:
            self._flush()

    def _flush(self) -> None:
        """Write a row group: Spark's batches are much too small for one."""
        if not self._gathered:
            return
        table = pa.Table.from_batches(self._gathered)
        if self._writer is None:
            import pyarrow.parquet as pq

            self._writer = pq.ParquetWriter(self._file, table.schema, compression=self._compression)
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))
        self._gathered, self._size = [], 0

    def close(self) -> None:
        self._flush()
        if self._writer is not None:
            self._writer.close()

    def abort(self) -> None:
        if self._writer is not None:
            # Otherwise it would complete the file when it is garbage collected.
            self._writer.is_open = False
