"""Rows by directory: ``year=2026/month=02/`` for the values of some columns, as Hive and Spark write them."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ags1.spark._source_directories import NULL
from ags1.spark.encoders._texts import has_text, is_octets, text_of

__all__ = ["Directories", "escaped", "partitioned_schema"]

# What Hive escapes, and so Spark.
_SPECIAL = re.compile(r"[\x01-\x1f\x7f\"#%'*/:=?\\{\[\]^]")


def escaped(text: str) -> str:
    """A name or a value as it is in the name of a directory."""
    return _SPECIAL.sub(lambda found: f"%{ord(found[0]):02X}", text)


def partitioned_schema(schema: pa.Schema, columns: tuple[str, ...]) -> pa.Schema:
    """What is left for the files when some columns become directories."""
    for name in columns:
        index = schema.get_field_index(name)
        if index < 0:
            raise ValueError(f"the option partition_by names {name!r}; the columns are {', '.join(schema.names)}")
        kind = schema.field(index).type
        if not has_text(kind) or is_octets(kind):
            raise ValueError(f"the column {name!r} cannot be in partition_by: it is of the type {kind}")
    rest = pa.schema([field for field in schema if field.name not in columns])
    if columns and not rest.names:
        raise ValueError("the option partition_by names all columns: one has to be left for the files")
    return rest


class Directories:
    """Gathers rows, up to about so much Arrow memory, so that those of one directory come together."""

    def __init__(self, columns: tuple[str, ...], gathered_bytes: int) -> None:
        self._columns = columns
        self._limit = gathered_bytes
        self._gathered: list[pa.RecordBatch] = []
        self._size = 0

    def add(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Take rows; return those that are to be written now, by directory."""
        if batch.num_rows:
            self._gathered.append(batch)
            self._size += batch.nbytes
        if self._size >= self._limit:
            yield from self.rest()

    def rest(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The rows that are still here."""
        if not self._gathered:
            return
        table = pa.Table.from_batches(self._gathered).combine_chunks()
        self._gathered, self._size = [], 0
        codes, names = self._directories(table)
        order = np.argsort(codes, kind="stable")
        table = table.drop_columns(list(self._columns)).take(pa.array(order))
        sorted_codes = codes[order]
        starts = np.flatnonzero(np.r_[True, sorted_codes[1:] != sorted_codes[:-1]])
        for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(codes)], strict=True):
            for batch in table.slice(start, end - start).combine_chunks().to_batches():
                yield names[int(sorted_codes[start])], batch

    def _directories(self, table: pa.Table) -> tuple[np.ndarray[tuple[int], np.dtype[np.int32]], list[str]]:
        """For each row the number of its directory; and their names."""
        parts = []
        for name in self._columns:
            column = table.column(name).combine_chunks()
            array = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
            encoded = pc.fill_null(text_of(array), "").dictionary_encode()
            # Hive has no other name for an empty text than for none.
            values = [f"{escaped(name)}={escaped(value) or NULL}/" for value in encoded.dictionary.to_pylist()]
            parts.append(pa.array(values, pa.string()).take(encoded.indices))
        whole = (parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, "")).dictionary_encode()
        return whole.indices.to_numpy(zero_copy_only=False), whole.dictionary.to_pylist()
