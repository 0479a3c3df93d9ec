"""Records that cannot be read: kept as nulls with their text, dropped, or an error, as the option ``mode`` says."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from ags1.errors import FormatError
from ags1.spark._source_options import DROP, FAIL, SourceOptions
from ags1.spark.decoders._lines import Chunk
from ags1.spark.decoders._types import nulls

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["assembled", "refuse", "split_schema"]


def split_schema(schema: pa.Schema, options: SourceOptions) -> tuple[pa.Schema, int]:
    """The columns that are data, and where the column for the text of bad records stands; -1 for nowhere."""
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

    Parameters
    ----------
    bad : numpy.ndarray of bool, or None
        Which lines could not be read, or not all of them.
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
    _check_nulls(batch, data, name)
    return batch


def _check_nulls(batch: pa.RecordBatch, data: pa.Schema, name: str) -> None:
    for field in data:
        if not field.nullable and batch.column(batch.schema.get_field_index(field.name)).null_count:
            raise FormatError(f"{name}: the column {field.name!r} has nulls, and the schema does not let it be null")


def _texts(chunk: Chunk, bad: Any) -> pa.Array:
    kept = Chunk(chunk.offset, chunk.data, chunk.starts[bad], chunk.ends[bad]).strings()
    places = np.cumsum(bad) - 1
    return kept.take(pa.array(places, mask=~bad))


def without_columns(count: int) -> pa.RecordBatch:
    """A batch of rows without columns, for queries that want those of the path only."""
    return pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), count, [None], children=[]))


def unique(names: Iterable[str]) -> list[str]:
    """Names, each once: later ones get a number."""
    seen: dict[str, int] = {}
    made = []
    for name in names:
        count = seen.get(name, 0)
        seen[name] = count + 1
        made.append(f"{name}{count}" if count else name)
    return made
