"""Columns as texts, a column at a time, and files of lines."""

from __future__ import annotations

import base64
import zlib

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["GZIP", "Lines", "has_text", "joined", "text_of", "write_lines"]

GZIP = "gzip"
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
    """Whether values are bytes."""
    types = pa.types
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind))


def text_of(column: pa.Array) -> pa.Array:
    """The values of a column as texts that lose nothing; nulls stay.

    Floating point has a point or an exponent, and NaN, Infinity and -Infinity. Times are of ISO 8601, to the
    microsecond; those with a zone are of UTC, with a Z. Bytes are base64.
    """
    kind, types = column.type, pa.types
    if types.is_string(kind) or types.is_large_string(kind):
        return column.cast(pa.string())
    if types.is_floating(kind):
        # Arrow writes 1.0 as 1, which would be taken for an integer where types are inferred.
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


def write_lines(file: Any, lines: pa.Array) -> None:
    """Write texts, each with a line end."""
    if len(lines) == 0:
        return
    ended = pc.binary_join_element_wise(lines, "\n", "")
    # The texts of an array lie one behind the other: nothing is copied.
    offsets = np.frombuffer(ended.buffers()[1], np.int32)[ended.offset : ended.offset + len(ended) + 1]
    data = ended.buffers()[2]
    if data is not None:
        file.write(memoryview(data).cast("B")[int(offsets[0]) : int(offsets[-1])])


class Lines:
    """A file of lines, compressed if that is wanted.

    Parameters
    ----------
    file : binary file
        Where they go.
    compression : str
        "none" or "gzip".
    """

    def __init__(self, file: Any, compression: str) -> None:
        self._file = file
        self._packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP_WINDOW) if compression == GZIP else None

    def write(self, data: Any) -> None:
        """Add bytes."""
        if self._packer is not None:
            data = self._packer.compress(data)
        if len(data):
            self._file.write(data)

    def close(self) -> None:
        """Write what is left in the compressor."""
        if self._packer is not None:
            self._file.write(self._packer.flush())
