"""Thrift compact structures for tests: an encoder of its own, random trees, and what a parsed one holds.

Fields are ``(id, kind, value)``, a list is ``(kind, [value])``, a map ``(kind, kind, [(key, value)])``. Given chances,
the encoder writes what a reader must take although no writer of today does it: overlong varints, long headers, zeros
for false.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from ags1.parquet.native.thrift import (
    BINARY,
    BOOL,
    DOUBLE,
    I8,
    I16,
    I32,
    I64,
    LIST,
    MAP,
    SET,
    STRUCT,
    UUID,
    List,
    Struct,
)

Fields = list[tuple[int, int, Any]]
WIDTHS = {I8: 8, I16: 16, I32: 32, I64: 64}


def varint(number: int, longer: int = 0) -> bytes:
    octets = bytearray()
    while number > 0x7F:
        octets.append(number & 0x7F | 0x80)
        number >>= 7
    octets.append(number)
    for _ in range(min(longer, 10 - len(octets))):
        octets[-1] |= 0x80
        octets.append(0)
    return bytes(octets)


def zigzag(number: int, longer: int = 0) -> bytes:
    return varint((number << 1 ^ number >> 63) & (1 << 64) - 1, longer)


class Encoder:
    def __init__(self, chance: random.Random | None = None) -> None:
        self.chance = chance

    def odd(self) -> bool:
        return self.chance is not None and self.chance.random() < 0.2

    def longer(self) -> int:
        return self.chance.randrange(4) if self.chance is not None and self.odd() else 0

    def struct(self, fields: list[tuple[int, int, Any]]) -> bytes:
        out, before = b"", 0
        for field_id, kind, value in fields:
            code = (1 if value else 2) if kind == BOOL else kind
            if 1 <= field_id - before <= 15 and not self.odd():
                out += bytes([(field_id - before) << 4 | code])
            else:
                out += bytes([code]) + zigzag(field_id, self.longer())
            before = field_id
            if kind != BOOL:
                out += self.value(kind, value)
        return out + b"\0"

    def value(self, kind: int, value: Any) -> bytes:
        if kind == BOOL:
            return b"\1" if value else b"\0" if self.odd() else b"\2"
        if kind == I8:
            return struct.pack("b", value)
        if kind in WIDTHS:
            return zigzag(value, self.longer())
        if kind == DOUBLE:
            return struct.pack("<d", value)
        if kind == BINARY:
            return varint(len(value), self.longer()) + bytes(value)
        if kind == UUID:
            return bytes(value)
        if kind == STRUCT:
            return self.struct(value)
        if kind == MAP:
            return bytes(value)
        item, items = value
        code = 2 if item == BOOL and self.odd() else item
        if len(items) < 15 and not self.odd():
            head = bytes([len(items) << 4 | code])
        else:
            head = bytes([0xF0 | code]) + varint(len(items), self.longer())
        return head + b"".join(self.value(item, each) for each in items)


def encoded_map(keys: int, values: int, pairs: list[tuple[Any, Any]]) -> bytes:
    """A map, which the module keeps as its bytes."""
    head = varint(len(pairs)) + (bytes([keys << 4 | values]) if pairs else b"")
    of = Encoder().value
    return head + b"".join(of(keys, one) + of(values, other) for one, other in pairs)


def encode(fields: list[tuple[int, int, Any]]) -> bytes:
    return Encoder().struct(fields)


def plain(value: Any, kind: int) -> Any:
    """What a value of the module holds, as the encoder takes it."""
    if kind == STRUCT:
        return [(each, value.kind(each), plain(value.get(each), value.kind(each))) for each in value.ids()]
    if kind in (LIST, SET):
        return value.kind, [plain(each, value.kind) for each in value]
    return value


def built(value: Any, kind: int) -> Any:
    """A value for `set`, made by hand of what the encoder takes."""
    if kind == STRUCT:
        made = Struct()
        for field_id, inner, each in value:
            made.set(field_id, inner, built(each, inner))
        return made
    if kind in (LIST, SET):
        return List(value[0], [built(each, value[0]) for each in value[1]])
    return value


def integers(kind: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << WIDTHS[kind] - 1), (1 << WIDTHS[kind] - 1) - 1)


SCALARS: dict[int, st.SearchStrategy[Any]] = {
    BOOL: st.booleans(),
    **{kind: st.one_of(st.integers(-3, 100), integers(kind)) for kind in WIDTHS},
    DOUBLE: st.floats(allow_nan=False),
    BINARY: st.binary(max_size=20),
    UUID: st.binary(min_size=16, max_size=16),
}
FIELD_IDS = st.one_of(st.integers(1, 20), st.integers(-(1 << 15), (1 << 15) - 1))


def values_of(kind: int, levels: int, *, maps: bool = True) -> st.SearchStrategy[Any]:
    if kind in SCALARS:
        return SCALARS[kind]
    if kind == STRUCT:
        return fields_of(levels - 1, maps=maps)
    kinds = st.sampled_from([*SCALARS, *([LIST, STRUCT, *([MAP] if maps else [])] if levels > 1 else [])])
    if kind == MAP:
        return st.tuples(kinds, kinds).flatmap(
            lambda both: st.lists(
                st.tuples(values_of(both[0], levels - 1), values_of(both[1], levels - 1)), min_size=1, max_size=3
            ).map(lambda pairs: encoded_map(*both, pairs))
        )
    return kinds.flatmap(
        lambda item: st.lists(values_of(item, levels - 1, maps=maps), max_size=17).map(lambda items: (item, items))
    )


def fields_of(levels: int, *, maps: bool = True) -> st.SearchStrategy[list[tuple[int, int, Any]]]:
    kinds = st.sampled_from([*SCALARS, *([LIST, SET, STRUCT, *([MAP] if maps else [])] if levels > 0 else [])])
    field = st.tuples(FIELD_IDS, kinds).flatmap(
        lambda both: values_of(both[1], levels, maps=maps).map(lambda value: (both[0], both[1], value))
    )
    return st.lists(field, max_size=6, unique_by=lambda each: each[0])


TREES = fields_of(3)
WITHOUT_MAPS = fields_of(3, maps=False)

EVERYTHING = encode(
    [
        (1, BOOL, True), (2, BOOL, False), (3, I8, -7), (4, I16, -300), (5, I32, 1 << 30), (6, I64, -(1 << 63)),
        (7, DOUBLE, -1.5), (8, BINARY, b"octets"), (9, LIST, (I32, list(range(20)))), (10, SET, (BINARY, [b"", b"x"])),
        (11, MAP, encoded_map(BINARY, STRUCT, [(b"k", [(1, I32, 5)])])),
        (12, STRUCT, [(1, LIST, (BOOL, [True, False]))]),
        (13, UUID, bytes(range(16))), (700, I32, 3), (701, LIST, (STRUCT, [[(1, I64, 1)], [], [(2, BOOL, True)]])),
    ]
)  # fmt: skip

NESTINGS: dict[str, Callable[[int], bytes]] = {
    # Each: so many containers, the root included.
    "structs": lambda levels: b"\x1c" * (levels - 1) + bytes(levels),
    "lists": lambda levels: b"\x19" + b"\x19" * (levels - 2) + b"\x03" + b"\0",
    "sets": lambda levels: b"\x1a" + b"\x1a" * (levels - 2) + b"\x03" + b"\0",
    "maps": lambda levels: b"\x1b" + b"\x01\x3b\x07" * (levels - 2) + b"\0" + b"\0",
}
