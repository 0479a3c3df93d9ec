"""Thrift compact structures: every byte survives, and hostile bytes are refused."""

from __future__ import annotations

import gc
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ags1
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
from tests import checks
from tests.parquet.thrift_trees import (
    EVERYTHING,
    NESTINGS,
    TREES,
    WIDTHS,
    WITHOUT_MAPS,
    Encoder,
    Fields,
    built,
    encode,
    encoded_map,
    plain,
    varint,
    zigzag,
)

# -- round trips ---------------------------------------------------------------------------------------------


@given(TREES, st.randoms(use_true_random=False), st.binary(max_size=5))
def test_what_was_parsed_is_written_byte_for_byte(tree: Fields, chance: random.Random, after: bytes) -> None:
    data = Encoder(chance).struct(tree)
    parsed = Struct.parse(b"##" + data + after, 2)
    assert parsed.nbytes == len(data)
    assert parsed.encode() == data
    assert plain(parsed, STRUCT) == tree
    assert parsed.encode() == data, "looking at it changed it"
    assert not parsed.changed
    assert parsed.copy().encode() == data


@given(WITHOUT_MAPS)
def test_what_was_built_is_what_another_encoder_writes(tree: Fields) -> None:
    ascending = sorted(tree)
    made = built(tree, STRUCT)
    assert made.ids() == [each[0] for each in ascending]
    assert made.changed
    inner = plain(made, STRUCT)
    assert made.encode() == encode(inner)
    assert made.nbytes == len(made.encode())
    assert Struct.parse(made.encode(), trailing=False) == made


def fields_below(node: Struct) -> list[tuple[Struct, int]]:
    """Every field of every struct below this one, with its struct."""
    found = []
    nodes: list[Any] = [node]
    while nodes:
        each = nodes.pop()
        if isinstance(each, Struct):
            found += [(each, field_id) for field_id in each.ids()]
            nodes += [each.get(field_id) for field_id in each.ids()]
        elif isinstance(each, List):
            nodes += list(each)
    return found


@settings(max_examples=150)
@given(TREES, st.randoms(use_true_random=False), st.lists(st.integers(0, 1 << 20), max_size=5))
def test_changes_anywhere_in_any_tree(tree: Fields, chance: random.Random, choices: list[int]) -> None:
    parsed = Struct.parse(Encoder(chance).struct(tree))
    for choice in choices:
        fields = fields_below(parsed)
        if not fields:
            break
        node, field_id = fields[choice % len(fields)]
        if choice % 3 == 0:
            node.remove(field_id)
        elif choice % 3 == 1:
            node.set(field_id, I32, choice)
        else:
            node.set(choice % (1 << 15), STRUCT, built([(1, BINARY, b"new")], STRUCT))
        assert parsed.changed
        expected = plain(parsed, STRUCT)
        again = Struct.parse(parsed.encode(), trailing=False)
        assert plain(again, STRUCT) == expected
        twin = parsed.copy()
        assert twin.encode() == parsed.encode()
        assert plain(twin, STRUCT) == expected


def test_all_kinds() -> None:
    parsed = Struct.parse(EVERYTHING, trailing=False)
    assert parsed.ids() == [*range(1, 14), 700, 701]
    assert [parsed.kind(each) for each in parsed.ids()] == [
        BOOL, BOOL, I8, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT, UUID, I32, LIST,
    ]  # fmt: skip
    assert [parsed.get(each) for each in range(1, 9)] == [
        True, False, -7, -300, 1 << 30, -(1 << 63), -1.5, b"octets",
    ]  # fmt: skip
    assert parsed.get(13) == bytes(range(16))
    assert parsed.get(99) is None
    assert parsed.get(99, "other") == "other"
    assert parsed.kind(99) is None
    assert 700 in parsed
    assert 99 not in parsed
    numbers = parsed.list(9)
    assert numbers is not None
    assert numbers.integers() == list(range(20))
    assert numbers[-1] == 19
    assert len(numbers) == 20
    names = parsed.list(10)
    assert names is not None
    assert list(names) == [b"", b"x"]
    assert parsed.get(11) == encoded_map(BINARY, STRUCT, [(b"k", [(1, I32, 5)])])
    structs = parsed.list(701)
    assert structs is not None
    assert [each.ids() for each in structs.structs()] == [[1], [], [2]]
    assert repr(parsed).startswith("<Struct fields 1, 2, 3,")
    assert repr(numbers) == "<List of 20 i32>"


# -- hostile bytes -------------------------------------------------------------------------------------------


def refused(data: bytes, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Struct.parse(data, what="footer of a.parquet")


@pytest.mark.parametrize("kind", checks.BUFFER_KINDS, ids=str)
def test_any_buffer_is_read_without_a_copy(kind: checks.BufferKind) -> None:
    data = EVERYTHING + bytes(kind.rounded(len(EVERYTHING)) - len(EVERYTHING))
    buffer = kind.make(data)
    parsed = Struct.parse(buffer)
    assert parsed.encode() == EVERYTHING
    del buffer
    gc.collect()
    assert plain(parsed, STRUCT)[7] == (8, BINARY, b"octets")


def test_the_source_is_held_until_nothing_needs_it() -> None:
    data = bytearray(EVERYTHING)
    item = Struct.parse(data).get(701)[0]
    with pytest.raises(BufferError):
        data.append(1)
    assert item.integer(1) == 1
    del item
    data.append(1)


def test_truncation_at_every_byte() -> None:
    for length in range(len(EVERYTHING)):
        with pytest.raises(ags1.TruncatedError, match=r"^footer: ") as caught:
            Struct.parse(EVERYTHING[:length], what="footer")
        assert "end inside" in str(caught.value) or "larger than all that is left" in str(caught.value)


@checks.every("position", range(len(EVERYTHING)))
def test_every_byte_damaged_in_every_bit(position: int) -> None:
    for bit in range(8):
        data = checks.flip(EVERYTHING, position, bit)
        try:
            parsed = Struct.parse(data)
            assert parsed.encode() == data[: parsed.nbytes]
            plain(parsed, STRUCT)
        except ags1.FormatError:
            continue
        assert parsed.encode() == data[: parsed.nbytes]


@given(st.binary(max_size=60))
def test_random_bytes(data: bytes) -> None:
    try:
        parsed = Struct.parse(data)
        plain(parsed, STRUCT)
    except ags1.FormatError:
        return
    assert parsed.encode() == data[: parsed.nbytes]


@pytest.mark.parametrize("shape", NESTINGS)
def test_nesting_ends_at_64(shape: str) -> None:
    made = NESTINGS[shape](64)
    parsed = Struct.parse(made, trailing=False)
    plain(parsed, STRUCT)
    assert parsed.copy() == parsed
    refused(NESTINGS[shape](65), ags1.FormatError, "^footer of a.parquet: byte 6[0-9]|1[0-9]+: .*nested deeper than 64")
    refused(NESTINGS[shape](1_000_000), ags1.FormatError, "nested deeper than 64")


@pytest.mark.parametrize(
    "data",
    [
        b"\x19\xfc" + varint(1 << 62) + bytes(100),
        b"\x19\xf7" + varint(100) + bytes(101),
        b"\x19\xf5" + varint((1 << 64) - 1) + bytes(100),
        b"\x18" + varint(1 << 40) + bytes(100),
        b"\x18" + varint((1 << 64) - 1) + bytes(100),
        b"\x1b" + varint(1 << 63) + b"\x55" + bytes(100),
        b"\x1b" + varint(60) + b"\x55" + bytes(100),
    ],
)
def test_claimed_sizes_are_not_believed(data: bytes) -> None:
    refused(data, ags1.TruncatedError, "the size before it is larger than all that is left|end inside")


def test_one_claim_in_many_bytes_costs_no_memory() -> None:
    # 48 MiB of items and one missing: found without a record of any of them.
    answer = checks.run_python("""
        from ags1 import FormatError
        from ags1.parquet.native.thrift import Struct
        from tests import peak_memory
        data = bytes.fromhex("19fc") + bytes.fromhex("818080 18") + bytes(48 << 20)
        before = peak_memory.begin()
        try:
            Struct.parse(data)
        except FormatError:
            print(peak_memory.grown(before))
    """)
    assert int(answer) < 8 << 20


def test_varints() -> None:
    longest = b"\x16" + zigzag(-(1 << 63)) + b"\0"
    assert len(longest) == 12
    assert Struct.parse(longest).get(1) == -(1 << 63)
    overlong = b"\x15\x82\x80\x80\x80\x80\x80\x80\x80\x80\0\0"
    parsed = Struct.parse(overlong)
    assert parsed.get(1) == 1
    assert parsed.encode() == overlong
    refused(b"\x16" + b"\x80" * 10 + b"\0\0", ags1.FormatError, "byte 11: a varint of more than 64 bits")
    refused(b"\x16" + b"\xff" * 9 + b"\x02\0", ags1.FormatError, "byte 11: a varint of more than 64 bits")
    refused(b"\x18" + b"\xff" * 9 + b"\x7f\0", ags1.FormatError, "byte 11: a varint of more than 64 bits")


@pytest.mark.parametrize("kind", [I8, I16, I32])
def test_integers_beyond_their_kind_are_refused_when_looked_at(kind: int) -> None:
    number = 1 << WIDTHS[kind] - 1
    data = bytes([0x10 | kind]) + zigzag(number) + b"\0"
    if kind == I8:
        # A byte cannot be too large.
        assert Struct.parse(b"\x13\xff\0").get(1) == -1
        return
    parsed = Struct.parse(data, what="footer")
    name = {I16: "i16", I32: "i32"}[kind]
    for look in (parsed.get, parsed.integer):
        with pytest.raises(ags1.FormatError, match=f"footer: byte .*field 1 is {number}, too large for {name}"):
            look(1)
    assert parsed.encode() == data
    items = Struct.parse(bytes([0x19, 0x10 | kind]) + zigzag(number) + b"\0").list(1)
    assert items is not None
    with pytest.raises(ags1.FormatError, match=f"too large for {name}"):
        items.integers()


@pytest.mark.parametrize(
    "data", [b"\x1e\0\0", b"\x1f\0\0", b"\x10\0\0", b"\x19\x1e\0\0", b"\x19\x10\0\0", b"\x19\x0e\0"]
)
def test_kinds_that_do_not_exist(data: bytes) -> None:
    refused(data, ags1.FormatError, "kind of value that does not exist")


@pytest.mark.parametrize("kinds", [0x05, 0x50, 0xE5, 0x5F, 0x00])
def test_kinds_of_maps_that_do_not_exist(kinds: int) -> None:
    refused(bytes([0x1B, 0x01, kinds, 0, 0, 0, 0]), ags1.FormatError, "kind of value that does not exist")


def test_an_empty_list_may_lack_its_kind() -> None:
    parsed = Struct.parse(b"\x19\0\0")
    items = parsed.list(1)
    assert items is not None
    assert items.kind == 0
    assert items.integers() == []
    assert list(items.structs()) == []
    with pytest.raises(ValueError, match="kind must be one of"):
        items.append(3)
    assert parsed.encode() == b"\x19\0\0"


def test_field_ids_are_16_bits() -> None:
    assert Struct.parse(b"\x05" + zigzag(-(1 << 15)) + b"\x02\0").get(-(1 << 15)) == 1
    refused(b"\x05" + zigzag(1 << 15) + b"\x02\0", ags1.FormatError, "byte 4: a field id does not fit 16 bits")
    refused(b"\x05" + zigzag((1 << 15) - 1) + b"\x02\x15\x02\0", ags1.FormatError, "field id does not fit 16 bits")


def test_a_field_twice() -> None:
    refused(b"\x15\x02\x05\x02\x04\0", ags1.FormatError, "byte 6: .*has field 1 twice")
    # Not next to each other, and downwards.
    refused(b"\x05\x0a\x02\x05\x02\x02\x05\x0a\x02\0", ags1.FormatError, "has field 5 twice")
    inner = Struct.parse(b"\x1c\x15\x02\x05\x02\x04\0\0").struct(1)
    assert inner is not None
    with pytest.raises(ags1.FormatError, match="has field 1 twice"):
        inner.ids()
    assert Struct.parse(b"\x05\x0a\x02\x05\x02\x04\0").ids() == [5, 1]


def test_more_fields_than_there_are_ids() -> None:
    every = b"".join(b"\x01" + zigzag(field_id) for field_id in range(-(1 << 15), 1 << 15))
    assert len(Struct.parse(every + b"\0").ids()) == 1 << 16
    refused(every + b"\x01\0\0", ags1.FormatError, "has field 0 twice")
    refused(b"\x01\x02" * 3_000_000, ags1.FormatError, "has field 1 twice")


def test_bytes_behind_the_end() -> None:
    assert Struct.parse(b"\x15\x02\0\0\0").nbytes == 3
    with pytest.raises(ags1.FormatError, match=r"footer: it ends at byte 5, but 2 more bytes follow"):
        Struct.parse(b"##\x15\x02\0\0\0", 2, what="footer", trailing=False)


def test_bools_in_lists() -> None:
    items = Struct.parse(b"\x19\x42\x01\x02\x00\x03\0").list(1)
    assert items is not None
    assert items.kind == BOOL
    assert [items[0], items[1], items[2]] == [True, False, False]
    with pytest.raises(ags1.FormatError, match="byte 5: a bool in a list is 3"):
        items[3]


@given(st.randoms(use_true_random=False))
def test_a_source_that_changes_is_read_wrongly_but_safely(chance: random.Random) -> None:
    data = bytearray(EVERYTHING)
    parsed = Struct.parse(data)
    parts = [parsed.get(each) for each in parsed.ids()]
    for _ in range(10):
        data[chance.randrange(len(data))] = chance.randrange(256)
    for look in (*parts, parsed):
        try:
            if isinstance(look, Struct | List):
                plain(look, STRUCT if isinstance(look, Struct) else LIST)
        except ags1.FormatError:
            continue
    assert len(parsed.encode()) == len(EVERYTHING)
