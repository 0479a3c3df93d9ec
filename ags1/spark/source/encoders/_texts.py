"""Columns as texts, a column at a time, and files of lines."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ags1.spark.source._options import WriteOptions
from ags1.spark.source.encoders import Encoding, FileEncoder

_LEVEL = 6
_GZIP_WINDOW = 31


def has_text(kind: pa.DataType) -> bool:
    """Whether :func:`text_of` knows a type."""
    types = pa.types
    return bool(
        types.is_boolean(kind)
        or types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_decimal(kind)
        or types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_date(kind)
        or types.is_timestamp(kind)
        or types.is_time(kind)
        or is_octets(kind)
    )


def is_octets(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind))


def text_of(column: pa.Array) -> pa.Array:
    """The values of a column as texts, without loss; nulls stay.

    Floating-point numbers have a point or an exponent, or are NaN, Infinity or -Infinity. Times are in ISO 8601, to
    the microsecond; those with a zone are in UTC, with a Z. Bytes are base64.
    """
    kind, types = column.type, pa.types
    if types.is_string(kind) or types.is_large_string(kind):
        return column.cast(pa.string())
    if types.is_floating(kind):
        # Arrow writes 1.0 as 1, which type inference would read as an integer.
        texts = pc.replace_substring_regex(column.cast(pa.string()), r"^(-?\d+)$", r"\1.0")
        texts = pc.replace_substring_regex(texts, "^nan$", "NaN")
        return pc.replace_substring_regex(texts, "^(-?)inf$", r"\1Infinity")
    if types.is_timestamp(kind):
        zoned = kind.tz is not None
        naive = column.cast(pa.timestamp(kind.unit, "UTC")).cast(pa.timestamp(kind.unit)) if zoned else column
        texts = pc.replace_substring(naive.cast(pa.string()), " ", "T")
        return pc.binary_join_element_wise(texts, "Z", "") if zoned else texts
    if is_octets(kind):
        values = [None if value is None else base64.b64encode(value).decode("ascii") for value in column.to_pylist()]
        return pa.array(values, pa.string())
    return column.cast(pa.string())


def joined(parts: list[Any], separator: str) -> pa.Array:
    """Texts of several columns, row by row. None of them may be null."""
    return parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, separator)


_NOTHING = pa.array([], pa.string())


def of_lines(
    options: WriteOptions, ending: str, lines: Callable[[pa.RecordBatch], pa.Array], head: pa.Array = _NOTHING
) -> Encoding:
    """A format of lines of text, which may be compressed with gzip.

    `lines` returns a line for each row, and can be pickled; `head` are the lines in front of all rows.
    """
    is_packed = options.compression == "gzip"
    return Encoding(f"{ending}.gz" if is_packed else ending, partial(_LineFile, is_packed, lines, head))


class _LineFile(FileEncoder):
    def __init__(self, is_packed: bool, lines: Any, head: pa.Array, file: Any, gathered_bytes: int) -> None:
        self._file = file
        self._lines = lines
        self._packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP_WINDOW) if is_packed else None
        self._write_lines(head)

    def write(self, batch: pa.RecordBatch) -> None:
        self._write_lines(self._lines(batch))

    def _write_lines(self, lines: pa.Array) -> None:
        if len(lines) == 0:
            return
        ended = pc.binary_join_element_wise(lines, "\n", "")
        data = ended.buffers()[2]
        # The texts of an array are contiguous: nothing is copied.
        offsets = np.frombuffer(ended.buffers()[1], np.int32)[ended.offset : ended.offset + len(ended) + 1]
        texts = memoryview(data).cast("B")[int(offsets[0]) : int(offsets[-1])]
        self._file.write(texts if self._packer is None else self._packer.compress(texts))

    def close(self) -> None:
        if self._packer is not None:
            self._file.write(self._packer.flush())
