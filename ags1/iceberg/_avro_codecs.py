"""Codecs of Avro containers, by what PyIceberg needs anyway: Python's own modules and Arrow."""

from __future__ import annotations

import importlib
import io
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from ags1._avro_encoding import container_start, varint
from ags1.avro import AvroHeader, iter_blocks, read_header
from ags1.errors import Ags1Error, FormatError, UnsupportedError

__all__ = ["decompressor", "plain_blocks", "without_codec"]

# Snappy cannot do better than 64 bytes for three; more is a length that somebody made up.
_SNAPPY_RATIO = 64
_OF_ARROW = {"snappy": "snappy", "zstandard": "zstd"}
# What PyIceberg and fastavro read by themselves.
_COMMON = (b"null", b"deflate")
# iter_blocks stops at the end by itself.
_WHOLE_FILE = 1 << 62


def decompressor(codec: str) -> Callable[[bytes], bytes]:
    """The function that decompresses the blocks of a container; an UnsupportedError for a codec that is not there."""
    known: dict[str, Callable[[bytes], bytes]] = {
        "null": bytes,
        "deflate": _deflate,
        "snappy": _snappy,
        "zstandard": _zstandard,
        "bzip2": partial(_by_python, "bz2"),
        "xz": partial(_by_python, "lzma"),
    }
    found = known.get(codec)
    if found is None:
        raise UnsupportedError(
            f"the Avro codec {codec!r} is not supported: Iceberg writes deflate, zstandard and snappy"
        )
    name = _OF_ARROW.get(codec)
    if name is not None:
        import pyarrow

        if not pyarrow.Codec.is_available(name):
            raise UnsupportedError(f"this build of pyarrow lacks the Avro codec {codec!r}: install its wheel")
    return found


def without_codec(data: bytes) -> bytes:
    """An Avro container that any reader can read: the same, unless its codec is a rare one."""
    file = io.BytesIO(data)
    header = read_header(file)
    if header.metadata.get("avro.codec") in _COMMON:
        return data
    start = container_start({**header.metadata, "avro.codec": b"null"}, header.marker)
    return b"".join((start, *plain_blocks(file, header)))


def plain_blocks(file: Any, header: AvroHeader) -> Iterator[bytes]:
    """The blocks of a container as one without a codec has them, each with the marker behind it."""
    codec = header.metadata.get("avro.codec", b"null").decode("utf-8", "replace")
    decompress = decompressor(codec)
    try:
        for block in iter_blocks(file, 0, _WHOLE_FILE):
            data = decompress(block.data)
            yield b"".join((varint(block.count), varint(len(data)), data, header.marker))
    except (Ags1Error, OSError, MemoryError, ImportError):
        raise
    except Exception as error:
        # Each codec has errors of its own.
        raise FormatError(f"a block that is compressed by {codec} is damaged: {error}") from None


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


def _by_python(module: str, data: bytes) -> bytes:
    # Some builds of Python lack them.
    made: bytes = importlib.import_module(module).decompress(data)
    return made
