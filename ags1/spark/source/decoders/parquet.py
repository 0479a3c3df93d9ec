"""Parquet: plaintext files inside of AGS1, and files that are encrypted themselves, through their plaintext view."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import ags1.parquet.view.view as _view
from ags1.errors import Ags1Error, FormatError
from ags1.spark.source._options import SourceOptions
from ags1.spark.source.decoders import Decoder, Plain
from ags1.spark.source.decoders._types import conformed, find, spark_schema, without_columns

__all__ = ["make"]

_MAX_ROWS = 1 << 16


class _Parquet(Decoder):
    def schema_of(self, file: Plain) -> pa.Schema:
        with closing(_Opened(file, self._options, self._options.columns or None)) as opened:
            return spark_schema(opened.schema, file.name)

    def read(self, file: Plain, start: int, end: int, schema: pa.Schema, rows: Any) -> Iterator[pa.RecordBatch]:
        with closing(_Opened(file, self._options, schema.names)) as opened:
            metadata = opened.file.metadata
            groups = [
                index
                for index in range(metadata.num_row_groups)
                if start <= _begin(metadata.row_group(index), opened.size) < end
                and (rows is None or rows(metadata.row_group(index)))
            ]
            have = opened.schema
            found = [find(have, name) for name in schema.names]
            columns = [have.names[index] for index in found if index is not None]
            for group in groups:
                batches = opened.file.iter_batches(
                    batch_size=self._batch_rows(metadata.row_group(group)),
                    row_groups=[group],
                    columns=columns,
                    use_threads=False,
                )
                if not columns:
                    yield from _empty_rows(metadata.row_group(group).num_rows, schema, file.name)
                    continue
                try:
                    for batch in batches:
                        typed = pa.schema([have.field(name) for name in batch.schema.names])
                        yield conformed(conformed(batch, typed, file.name), schema, file.name, self._options.time_zone)
                except Ags1Error:
                    raise
                except (pa.ArrowException, OSError) as error:
                    if isinstance(error, OSError) and error.errno is not None:
                        raise
                    raise FormatError(f"{file.name}: row group {group} cannot be read: {error}") from None

    def _batch_rows(self, group: Any) -> int:
        per_row = max(1, group.total_byte_size // max(1, group.num_rows))
        rows = int(self._options.batch_bytes // per_row)
        return max(1, min(_MAX_ROWS, rows))


def _empty_rows(count: int, schema: pa.Schema, name: str) -> Iterator[pa.RecordBatch]:
    """Rows of a row group without any column of the schema."""
    while count > 0:
        some = min(count, _MAX_ROWS)
        yield conformed(without_columns(some), schema, name)
        count -= some


def _begin(group: Any, size: int) -> int:
    """Where a row group begins; always inside the file, so that a range has it."""
    offsets = []
    for index in range(group.num_columns):
        column = group.column(index)
        offsets.append(column.data_page_offset)
        if column.has_dictionary_page and column.dictionary_page_offset:
            offsets.append(column.dictionary_page_offset)
    return max(0, min([*map(int, offsets), size - 1]))


def _with_instants(file: pq.ParquetFile) -> pa.Schema:
    """The schema of a file as Spark sees it: INT96, which Spark writes by default, is an instant."""
    columns = [file.schema.column(index).physical_type for index in range(len(file.schema))]
    if "INT96" not in columns:
        return file.schema_arrow
    # Leaves of Arrow types have the order of the columns.
    leaves = iter(columns)

    def typed(field: pa.Field) -> pa.Field:
        kind = field.type
        if pa.types.is_struct(kind):
            return field.with_type(pa.struct([typed(each) for each in kind]))
        if pa.types.is_map(kind):
            return field.with_type(pa.map_(typed(kind.key_field), typed(kind.item_field)))
        if pa.types.is_list(kind):
            return field.with_type(pa.list_(typed(kind.value_field)))
        return field.with_type(pa.timestamp("us", "UTC")) if next(leaves) == "INT96" else field

    return pa.schema([typed(field) for field in file.schema_arrow])


class _Opened:
    """A Parquet file for pyarrow, with any encryption."""

    def __init__(self, file: Plain, options: SourceOptions, columns: Iterable[str] | None) -> None:
        wanted = None if columns is None else {name.lower() for name in columns}
        self._view = _view.open(
            file.source,
            file.decryption,
            columns=None if wanted is None else lambda path: path[0].lower() in wanted,
            missing_keys=options.missing_keys,
            threads=options.threads,
        )
        self.size = self._view.stored_size
        try:
            # Threads that read a file of Python's may outlive the interpreter.
            self.file = pq.ParquetFile(
                pa.PythonFile(self._view, mode="r"), pre_buffer=False, coerce_int96_timestamp_unit="us"
            )
            self.schema = _with_instants(self.file)
        except pa.ArrowException as error:
            self._view.close()
            raise FormatError(f"{file.name}: this is not a readable Parquet file: {error}") from None
        except BaseException:
            self._view.close()
            raise

    def close(self) -> None:
        self._view.close()


make = _Parquet
