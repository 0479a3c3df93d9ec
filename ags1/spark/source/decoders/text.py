"""Lines of text, or whole files."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from ags1.errors import FormatError
from ags1.spark.source._options import SourceOptions
from ags1.spark.source.decoders import Decoder, Plain
from ags1.spark.source.decoders._text_files import lines_of, text_of
from ags1.spark.source.decoders._types import conformed

_SCHEMA = pa.schema([("value", pa.string())])
_MAX_TEXT = (1 << 31) - 1


class _Text(Decoder):
    schema = _SCHEMA

    def read(self, file: Plain, start: int, end: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        if self._options.wholetext:
            if start == 0 < end:
                yield conformed(_batch(_whole(file, self._options)), schema, file.name)
            return
        for lines in lines_of(file, start, end, self._options):
            yield conformed(_batch(lines), schema, file.name)


def _batch(values: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([values], schema=_SCHEMA)


def _whole(file: Plain, options: SourceOptions) -> pa.Array:
    size = file.source.size
    if size > _MAX_TEXT:
        raise FormatError(f"{file.name}: {size} bytes do not fit one row; read it without wholetext")
    text = memoryview(text_of(file, options)).cast("B")
    begin = 3 if bytes(text[:3]) == b"\xef\xbb\xbf" else 0
    return pa.array([bytes(text[begin:]).decode("utf-8", "replace")], pa.string())


make = _Text
