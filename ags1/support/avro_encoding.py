"""Avro's binary encoding, as far as key metadata and the frames of containers need it."""

from __future__ import annotations

from collections.abc import Mapping


def encoded_block(count: int, data: bytes, marker: bytes) -> bytes:
    """A block of a container, with the marker behind it."""
    return b"".join((varint(count), varint(len(data)), data, marker))


def varint(value: int) -> bytes:
    """Encode a number that is not negative: zigzag doubles it."""
    value <<= 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def container_start(metadata: Mapping[str, bytes], marker: bytes) -> bytes:
    """The header of a container."""
    pieces = [b"Obj\x01", varint(len(metadata))]
    for name, value in metadata.items():
        key = name.encode("utf-8")
        pieces += (varint(len(key)), key, varint(len(value)), value)
    return b"".join((*pieces, varint(0), marker))
