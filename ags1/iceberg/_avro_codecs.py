"""Codecs of Avro containers, by what PyIceberg needs anyway: Python's own modules and Arrow."""

from __future__ import annotations

import zlib
from collections.abc import Callable

from ags1.errors import FormatError

__all__ = ["decompressor"]

# Snappy cannot do better than 64 bytes for three; more is a length that somebody made up.
_SNAPPY_RATIO = 64


def decompressor(codec: str) -> Callable[[bytes], bytes]:
    """The function that decompresses the blocks of a container.

    Raises
    ------
    FormatError
        A codec that is not known.
    """
    found = {
        "null": _stored,
        "deflate": _deflate,
        "snappy": _snappy,
        "zstandard": _zstandard,
        "bzip2": _bzip2,
        "xz": _xz,
    }.get(codec)
    if found is None:
        raise FormatError(f"the Avro codec {codec!r} is not supported: Iceberg writes deflate, zstandard and snappy")
    return found


def _stored(data: bytes) -> bytes:
    return data


def _deflate(data: bytes) -> bytes:
    # No header and no checksum, as Avro has it.
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    made = inflater.decompress(data) + inflater.flush()
    if not inflater.eof:
        raise FormatError("a compressed Avro block ends too early")
    return made


def _snappy(data: bytes) -> bytes:
    import pyarrow

    length = shift = 0
    for octet in data[:5]:
        length |= (octet & 0x7F) << shift
        shift += 7
        if octet < 0x80:
            break
    if len(data) < 5 or length > _SNAPPY_RATIO * len(data):
        raise FormatError("a Snappy-compressed Avro block has an impossible length")
    made: bytes = pyarrow.Codec("snappy").decompress(data[:-4], decompressed_size=length, asbytes=True)
    if zlib.crc32(made) != int.from_bytes(data[-4:], "big"):
        raise FormatError("the checksum of a Snappy-compressed Avro block is wrong")
    return made


def _zstandard(data: bytes) -> bytes:
    import pyarrow

    # As a stream: Java does not write the length into the frame.
    with pyarrow.CompressedInputStream(pyarrow.BufferReader(data), "zstd") as stream:
        made: bytes = stream.read()
    return made


def _bzip2(data: bytes) -> bytes:
    import bz2

    return bz2.decompress(data)


def _xz(data: bytes) -> bytes:
    import lzma

    return lzma.decompress(data)
