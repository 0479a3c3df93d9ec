"""Files of lines, plain or gzip: their lines, their first one, and all of their text.

A file whose name ends in ``.gz`` cannot be cut: the range that begins at 0 has all of it, and the others nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from ags1.errors import LimitError
from ags1.spark._source_options import SourceOptions
from ags1.spark.decoders import Plain
from ags1.spark.decoders._gzip import Gunzip, is_gzip
from ags1.spark.decoders._lines import Chunk, chunks, chunks_of_stream, first_of, read_buffer, refuse_compressed

__all__ = ["first_line_of", "lines_of", "sampled_lines_of", "text_of"]

_STEP = 64 << 10
_END = 1 << 62


def lines_of(file: Plain, start: int, end: int, options: SourceOptions) -> Iterator[Chunk]:
    """The lines of a range of a file."""
    if not is_gzip(file.name):
        refuse_compressed(file.name)
        return chunks(file.source, start, end, options.line_sep, options.batch_bytes)
    return _from_start(file, _END, options.batch_bytes, options) if start == 0 < end else iter(())


def sampled_lines_of(file: Plain, size: int, options: SourceOptions) -> Iterator[Chunk]:
    """The lines that begin in the first `size` bytes of the text."""
    return _from_start(file, size, min(size, options.batch_bytes), options)


def first_line_of(file: Plain, options: SourceOptions) -> tuple[int, bytes] | None:
    """Offset and bytes of the first line that is not empty; None if there is none."""
    return first_of(_from_start(file, _END, _STEP, options))


def _from_start(file: Plain, end: int, step: int, options: SourceOptions) -> Iterator[Chunk]:
    if is_gzip(file.name):
        stream = Gunzip(file.source, file.name)
        return chunks_of_stream(stream, end, options.line_sep, step, options.max_unpacked_bytes)
    refuse_compressed(file.name)
    return chunks(file.source, 0, end, options.line_sep, step)


def text_of(file: Plain, options: SourceOptions) -> pa.Buffer:
    """All of a file. One that unpacks to more than the options let it raises LimitError."""
    if not is_gzip(file.name):
        refuse_compressed(file.name)
        # An empty file has a tag, which this looks at.
        return read_buffer(file.source, 0, max(1, file.source.size))
    most = options.max_unpacked_bytes
    text = Gunzip(file.source, file.name).read(most + 1)
    if len(text) > most:
        raise LimitError(
            f"{file.name}: it unpacks to more than {most} bytes, which the option max_unpacked_bytes lets a file have "
            "that is read as one piece, with wholetext or multiLine: raise it"
        )
    return pa.py_buffer(text)
