"""Records that cannot be read: kept as nulls with their text, dropped, or an error, by the option ``mode``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from ags1.errors import FormatError
from ags1.spark.source._options import DROP, FAIL, SourceOptions
from ags1.spark.source.decoders._lines import Chunk
from ags1.spark.source.decoders._types import check_nulls, nulls, without_columns


def split_schema(schema: pa.Schema, options: SourceOptions) -> tuple[pa.Schema, int]:
    """The columns with data, and the index of the column for the text of bad records, or -1."""
    index = schema.get_field_index(options.corrupt_column)
    if index < 0:
        return schema, -1
    if not pa.types.is_string(schema.field(index).type) or not schema.field(index).nullable:
        raise ValueError(f"the column {options.corrupt_column!r}, for bad records, must be a string that may be null")
    return schema.remove(index), index


def refuse(name: str, offset: int, what: str) -> FormatError:
    """The error of mode FAILFAST. It does not show the record."""
    return FormatError(
        f"{name}: {what} near byte {offset} cannot be read, and mode=FAILFAST; PERMISSIVE makes it null, "
        "DROPMALFORMED leaves it out"
    )


def assembled(
    chunk: Chunk,
    columns: list[pa.Array],
    bad: Any,
    schema: pa.Schema,
    options: SourceOptions,
    name: str,
    what: str,
) -> pa.RecordBatch:
    """A batch of `schema` from the columns of its data, one row for each line of the chunk.

    `bad` marks the lines that could not be read, or only in part.
    """
    if bad is not None and not bad.any():
        bad = None
    if bad is not None and options.mode == FAIL:
        raise refuse(name, chunk.offset + int(chunk.starts[int(np.argmax(bad))]), what)
    data, index = split_schema(schema, options)
    made = list(columns)
    if index >= 0:
        made.insert(index, _texts(chunk, bad) if bad is not None else nulls(schema.field(index), len(chunk), name))
    if not made:
        count = len(chunk) - (int(bad.sum()) if bad is not None and options.mode == DROP else 0)
        return without_columns(count)
    batch = pa.RecordBatch.from_arrays(made, schema=schema)
    if bad is not None and options.mode == DROP:
        batch = batch.filter(pa.array(~bad))
    for field in data:
        check_nulls(batch.column(batch.schema.get_field_index(field.name)), field, name)
    return batch


def _texts(chunk: Chunk, bad: Any) -> pa.Array:
    kept = chunk.some(bad).strings()
    places = np.cumsum(bad) - 1
    return kept.take(pa.array(places, mask=~bad))
