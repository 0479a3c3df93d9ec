"""Lines of text, or whole files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from ags1.errors import FormatError
from ags1.spark._source_options import SourceOptions
from ags1.spark.decoders import Plain
from ags1.spark.decoders._lines import chunks, read_buffer, refuse_compressed
from ags1.spark.decoders._types import conformed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["make"]

_SCHEMA = pa.schema([("value", pa.string())])
_MAX_TEXT = (1 << 31) - 1


def make(options: SourceOptions) -> _Text:
    """The decoder."""
    return _Text(options)


class _Text:
    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def infer(self, files: Iterable[Plain]) -> pa.Schema:
        return _SCHEMA

    def read(self, file: Plain, start: int, end: int, schema: pa.Schema, rows: Any) -> Iterator[pa.RecordBatch]:
        refuse_compressed(file.name)
        if self._options.wholetext:
            if start == 0 < end:
                yield conformed(_batch(_whole(file)), schema, file.name)
            return
        for chunk in chunks(file.source, start, end, self._options.line_sep, self._options.batch_bytes):
            yield conformed(_batch(chunk.strings()), schema, file.name)


def _batch(values: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([values], schema=_SCHEMA)


def _whole(file: Plain) -> pa.Array:
    size = file.source.size
    if size > _MAX_TEXT:
        raise FormatError(f"{file.name}: {size} bytes do not fit one row; read it without wholetext")
    # An empty file has a tag, which this looks at.
    data = read_buffer(file.source, 0, max(1, size))
    text = memoryview(data).cast("B")
    begin = 3 if bytes(text[:3]) == b"\xef\xbb\xbf" else 0
    return pa.array([bytes(text[begin:]).decode("utf-8", "replace")], pa.string())
