"""The Thrift compact protocol as an ordered, typed tree: all that Parquet's metadata needs, and slow.

Nothing of the meaning of a field is known here, so whatever a file holds survives decoding and encoding.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

STOP, TRUE, FALSE, I8, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(13)
# Both codes of a boolean field stand for one type.
BOOL = TRUE
MAX_DEPTH = 32


class ThriftError(ValueError):
    """The bytes are no Thrift struct."""


@dataclass
class Sequence:
    """A list or a set, with the code of its elements' type."""

    element: int
    items: list[Any] = field(default_factory=list)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        return self.items[index]


@dataclass
class Mapping:
    """A map, with the codes of its keys' and values' types; both 0 if it is empty."""

    key: int
    value: int
    items: list[tuple[Any, Any]] = field(default_factory=list)


@dataclass
class Struct:
    """Fields by their number: a pair of the type's code and the value. Equal regardless of their order."""

    fields: dict[int, tuple[int, Any]] = field(default_factory=dict)

    def __contains__(self, number: int) -> bool:
        return number in self.fields

    def __getitem__(self, number: int) -> Any:
        return self.fields[number][1]

    def get(self, number: int, default: Any = None) -> Any:
        return self.fields[number][1] if number in self.fields else default

    def put(self, number: int, type_: int, value: Any) -> Struct:
        """Set a field, in place if it is there and in the order of the numbers otherwise; returns the struct."""
        known = number in self.fields
        self.fields[number] = (type_, value)
        if not known:
            self.fields = dict(sorted(self.fields.items()))
        return self

    def without(self, *numbers: int) -> Struct:
        """A shallow copy that lacks some fields."""
        return Struct({number: value for number, value in self.fields.items() if number not in numbers})

    def remove(self, *numbers: int) -> Struct:
        """Drop fields, if they are there; returns the struct."""
        for number in numbers:
            self.fields.pop(number, None)
        return self


class _Input:
    def __init__(self, data: bytes, position: int) -> None:
        self.data = data
        self.position = position

    def take(self, length: int) -> bytes:
        end = self.position + length
        if end > len(self.data):
            raise ThriftError(f"ends at byte {len(self.data)}, inside a value of {length} bytes at {self.position}")
        taken = self.data[self.position : end]
        self.position = end
        return taken

    def varint(self) -> int:
        value = shift = 0
        while True:
            octet = self.take(1)[0]
            value |= (octet & 0x7F) << shift
            if octet < 0x80:
                return value
            shift += 7
            if shift > 63:
                raise ThriftError(f"varint of more than 10 bytes before {self.position}")

    def zigzag(self) -> int:
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def count(self) -> int:
        number = self.varint()
        if number > len(self.data) - self.position:
            raise ThriftError(f"{number} elements do not fit behind byte {self.position}")
        return number

    def value(self, type_: int, depth: int) -> Any:
        if type_ in (TRUE, FALSE):
            return self.take(1)[0] == 1
        if type_ == I8:
            return struct.unpack("<b", self.take(1))[0]
        if type_ in (I16, I32, I64):
            return self.zigzag()
        if type_ == DOUBLE:
            # Kept as bytes, so that a NaN equals itself.
            return self.take(8)
        if type_ == BINARY:
            return self.take(self.varint())
        if type_ in (LIST, SET):
            header = self.take(1)[0]
            size = header >> 4
            if size == 15:
                size = self.count()
            return Sequence(header & 15, [self.value(header & 15, depth) for _ in range(size)])
        if type_ == MAP:
            size = self.count()
            types = self.take(1)[0] if size else 0
            key, value = types >> 4, types & 15
            return Mapping(key, value, [(self.value(key, depth), self.value(value, depth)) for _ in range(size)])
        if type_ == STRUCT:
            return self.struct(depth + 1)
        raise ThriftError(f"unknown type {type_} before byte {self.position}")

    def struct(self, depth: int = 0) -> Struct:
        if depth > MAX_DEPTH:
            raise ThriftError(f"nested more than {MAX_DEPTH} deep")
        fields: dict[int, tuple[int, Any]] = {}
        number = 0
        while (header := self.take(1)[0]) != STOP:
            type_ = header & 15
            number = number + (header >> 4) if header >> 4 else self.zigzag()
            if number in fields:
                raise ThriftError(f"field {number} twice")
            if type_ in (TRUE, FALSE):
                fields[number] = (BOOL, type_ == TRUE)
            else:
                fields[number] = (type_, self.value(type_, depth))
        return Struct(fields)


def decode(data: bytes, position: int = 0) -> tuple[Struct, int]:
    """The struct at a position, and the position behind it."""
    source = _Input(data, position)
    return source.struct(), source.position


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _zigzag(value: int) -> bytes:
    return _varint(value << 1 if value >= 0 else (-value << 1) - 1)


def _encode_value(type_: int, value: Any) -> bytes:
    if type_ in (TRUE, FALSE):
        return b"\x01" if value else b"\x02"
    if type_ == I8:
        return struct.pack("<b", value)
    if type_ in (I16, I32, I64):
        return _zigzag(value)
    if type_ == DOUBLE:
        return bytes(value)
    if type_ == BINARY:
        return _varint(len(value)) + value
    if type_ in (LIST, SET):
        size = len(value)
        header = bytes([size << 4 | value.element]) if size < 15 else bytes([0xF0 | value.element]) + _varint(size)
        return header + b"".join(_encode_value(value.element, item) for item in value)
    if type_ == MAP:
        if not value.items:
            return b"\x00"
        pairs = (_encode_value(value.key, key) + _encode_value(value.value, item) for key, item in value.items)
        return _varint(len(value.items)) + bytes([value.key << 4 | value.value]) + b"".join(pairs)
    assert type_ == STRUCT, type_
    return encode(value)


def encode(value: Struct) -> bytes:
    """The bytes of a struct, its fields in the order in which it has them."""
    out = bytearray()
    last = 0
    for number, (type_, item) in value.fields.items():
        code = type_ if type_ != BOOL else TRUE if item else FALSE
        if 1 <= number - last <= 15:
            out.append((number - last) << 4 | code)
        else:
            out.append(code)
            out += _zigzag(number)
        last = number
        if type_ != BOOL:
            out += _encode_value(type_, item)
    out.append(STOP)
    return bytes(out)
