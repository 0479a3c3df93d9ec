"""Codecs of Avro containers.

A block is decompressed with a bound: 32 MiB, and 32 bytes more for each stored byte. Writers end a block after about
64 KiB of rows; only a single larger row makes a larger block. Without the bound, a crafted block of one megabyte
expands to a gigabyte.
"""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

from ags1.errors import FormatError, UnsupportedError

_FREE, _RATIO = 32 << 20, 32
# Snappy makes at most 64 bytes from three; a larger length is forged.
_SNAPPY_RATIO = 64
# Slightly more than decompression of xz -9 needs.
_XZ_MEMORY = 128 << 20
_PIECE = 1 << 20
# Compressors make a stream of some hundred kilobytes; what follows so many is not read, so that rows are missing.
_MOST_STREAMS = 1000
_LIBRARIES = {"snappy": "pyarrow", "zstandard": "pyarrow", "bzip2": "bz2", "xz": "lzma"}


def largest_plain(stored: int) -> int:
    """The largest permitted size in bytes of a decompressed block."""
    return _FREE + _RATIO * stored


def decompressor(codec: str) -> Callable[[bytes], bytes]:
    """The function that decompresses the blocks of a container.

    It raises UnsupportedError for a block that becomes larger than :func:`largest_plain`; for a damaged block,
    FormatError or an exception of the codec's library. UnsupportedError: the codec is not available.
    """
    known: dict[str, Callable[[Any, bytes], bytes]] = {
        "deflate": _deflate,
        "snappy": _snappy,
        "zstandard": _zstandard,
        "bzip2": _bzip2,
        "xz": _xz,
    }
    if codec == "null":
        return bytes
    if codec not in known:
        raise UnsupportedError(
            f"the Avro codec {codec!r:.60} is not supported: Iceberg writes deflate, zstandard and snappy"
        )
    name = _LIBRARIES.get(codec, "zlib")
    try:
        library = importlib.import_module(name)
    except ImportError:
        # Some builds of Python lack bz2 or lzma.
        raise UnsupportedError(f"the {codec} codec is supported but you need to install {name}") from None
    if name == "pyarrow" and not library.Codec.is_available("zstd" if codec == "zstandard" else codec):
        raise UnsupportedError(f"this build of pyarrow lacks the Avro codec {codec!r}: install its wheel")
    return partial(known[codec], library)


def _refuse_length(length: int, data: bytes) -> None:
    most = largest_plain(len(data))
    if length > most:
        raise UnsupportedError(
            f"a compressed Avro block of {len(data):,} bytes becomes more than {most:,}, which is the limit: "
            "if the file is valid, write it again with smaller blocks"
        )


def _unpacked(new_decoder: Callable[[], Any], data: bytes, most: int = _MOST_STREAMS) -> bytes:
    """Decompress up to `most` streams with decoders of the standard library, which stop at the limit."""
    made, left = b"", data
    for _ in range(most):
        decoder = new_decoder()
        made += decoder.decompress(left, largest_plain(len(data)) + 1 - len(made))
        _refuse_length(len(made), data)
        if not decoder.eof:
            raise FormatError("a compressed Avro block ends too early")
        # Streams of xz may have zeros between them.
        left = decoder.unused_data.lstrip(b"\0")
        if not left:
            break
    return made


def _deflate(library: Any, data: bytes) -> bytes:
    # Avro's deflate has no header and no checksum.
    return _unpacked(lambda: library.decompressobj(-zlib.MAX_WBITS), data, 1)


def _bzip2(library: Any, data: bytes) -> bytes:
    return _unpacked(library.BZ2Decompressor, data)


def _xz(library: Any, data: bytes) -> bytes:
    return _unpacked(lambda: library.LZMADecompressor(memlimit=_XZ_MEMORY), data)


def _snappy(library: Any, data: bytes) -> bytes:
    length = shift = 0
    for octet in data[:5]:
        length |= (octet & 0x7F) << shift
        shift += 7
        if octet < 0x80:
            break
    if len(data) < 5 or length > _SNAPPY_RATIO * len(data):
        raise FormatError("a Snappy-compressed Avro block has an impossible length")
    _refuse_length(length, data)
    made: bytes = library.Codec("snappy").decompress(data[:-4], decompressed_size=length, asbytes=True)
    if zlib.crc32(made) != int.from_bytes(data[-4:], "big"):
        raise FormatError("the checksum of a Snappy-compressed Avro block is wrong")
    return made


def _zstandard(library: Any, data: bytes) -> bytes:
    # As a stream: Java does not write the length into the frame.
    pieces: list[bytes] = []
    length = 0
    with library.CompressedInputStream(library.BufferReader(data), "zstd") as stream:
        while piece := stream.read(_PIECE):
            pieces.append(piece)
            length += len(piece)
            _refuse_length(length, data)
    return b"".join(pieces)
