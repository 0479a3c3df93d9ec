"""Lines of text files, plain or gzip, or all of their text.

A file whose name ends in ``.gz`` cannot be cut: the range that begins at 0 has all of it, and the others nothing. It
is unpacked in pieces: memory depends neither on the size of the file nor on that of its text.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from ags1.errors import Ags1Error, FormatError, LimitError, TruncatedError
from ags1.spark.source.decoders import Decoder, Plain
from ags1.spark.source.decoders.lines import BOM, chunks, chunks_of_stream, read_buffer
from ags1.spark.source.options import SourceOptions

_SCHEMA = pa.schema([("value", pa.string())])
_MAX_TEXT = (1 << 31) - 1
_MAGIC = b"\x1f\x8b"
_COMPRESSED = frozenset({"bz2", "xz", "zst", "lz4", "snappy", "zip", "deflate", "br"})


class _Text(Decoder):
    schema = _SCHEMA

    def read(self, file: Plain, start: int, end: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        _refuse_compressed(file.name)
        found = _whole if self._options.wholetext else _lines
        for values in found(file, start, end, self._options):
            yield pa.RecordBatch.from_arrays([values], schema=_SCHEMA)


def _lines(file: Plain, start: int, end: int, options: SourceOptions) -> Iterator[pa.Array]:
    """The lines that begin in a range of a file, in arrays of about a batch's bytes."""
    if not is_gzip(file.name):
        yield from chunks(file.source, start, end, options.line_sep, options.batch_bytes)
    elif start <= 0 < end:
        stream = Gunzip(file.source, file.name)
        yield from chunks_of_stream(stream, options.line_sep, options.batch_bytes, options.max_unpacked_bytes)


def _whole(file: Plain, start: int, end: int, options: SourceOptions) -> Iterator[pa.Array]:
    """All of a file, in the range that begins at 0. LimitError: it unpacks to more than the options allow."""
    if not start == 0 < end:
        return
    size = file.source.size
    if size > _MAX_TEXT:
        raise FormatError(f"{file.name}: {size} bytes do not fit one row; read it without wholetext")
    if is_gzip(file.name):
        most = options.max_unpacked_bytes
        text = Gunzip(file.source, file.name).read(most + 1)
        if len(text) > most:
            raise LimitError(
                f"{file.name}: it unpacks to more than {most} bytes, the limit of the option max_unpacked_bytes for a "
                "file that is read as one piece, with wholetext: raise it"
            )
    else:
        # An empty file has a tag, which this looks at.
        text = bytes(read_buffer(file.source, 0, max(1, size)))
    yield pa.array([text.removeprefix(BOM).decode("utf-8", "replace")], pa.string())


def is_gzip(name: str) -> bool:
    """Whether the name of a file ends in .gz, with or without the ending of AGS1 files."""
    return name.lower().removesuffix(".ags1").endswith(".gz")


def _refuse_compressed(name: str) -> None:
    """Refuse a file of another compression, which is not text."""
    ending = name.lower().removesuffix(".ags1").rpartition(".")[2]
    if ending in _COMPRESSED:
        raise FormatError(
            f"{name} is compressed, and only gzip is read here: leave it out with the option exclude=*."
            f"{ending}{'.ags1' if name.lower().endswith('.ags1') else ''}, or read it with decode=binary"
        )


class Gunzip:
    """The text of a gzip file, from its start. It has one or more members; zeros may follow the last one.

    The reader has the compressed plaintext. It is read to its end, so that all of it is authentic.
    """

    def __init__(self, reader: Any, name: str) -> None:
        self._reader = reader
        self.name = name
        reader.seek(0)
        self._file = gzip.GzipFile(fileobj=reader, mode="rb")

    def read(self, size: int) -> bytes:
        """Up to `size` bytes, fewer only at the end."""
        reader = self._reader
        if reader.size == 0:
            # It has a tag all the same.
            reader.pread(0, 1)
        try:
            return self._file.read(size)
        except Ags1Error:
            # Errors of the reader, also those that are an EOFError.
            raise
        except EOFError:
            raise self._truncated() from None
        except (gzip.BadGzipFile, zlib.error) as error:
            if not str(error).startswith("Not a gzipped file"):
                raise FormatError(
                    f"{self.name}: its gzip data is damaged near byte {reader.tell()} ({error}). What is encrypted is "
                    "authentic, so it was damaged before that"
                ) from None
            if reader.size == 1 and _MAGIC.startswith(reader.pread(0, 1)):
                raise self._truncated() from None
            is_begun = reader.pread(0, len(_MAGIC)) == _MAGIC
            what = "what follows its gzip data is none" if is_begun else "this is no gzip file"
            raise FormatError(
                f"{self.name}: {what}, though its name ends in .gz: rename it, leave it out with the option exclude, "
                "or read it with decode=binary"
            ) from None

    def _truncated(self) -> TruncatedError:
        what = f"{self.name}: the gzip file ends inside its data, after {self._reader.size} bytes: "
        if self._reader.length_trusted:
            return TruncatedError(f"{what}all that was encrypted is there, so it was not complete then")
        why = "it was not complete when it was encrypted, or it was cut since: its length is not trusted"
        return TruncatedError(what + why)


make = _Text
