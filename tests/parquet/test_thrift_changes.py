"""Changes of Thrift structures are what was asked for; other kinds than expected are refused."""

from __future__ import annotations

import gc
import math
import pickle
import sys
from typing import Any

import pytest

import ags1
from ags1.parquet.native import thrift
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
from tests.parquet.thrift_trees import EVERYTHING, NESTINGS, encode, plain

# -- kinds that callers expect -------------------------------------------------------------------------------


def test_getters_refuse_other_kinds() -> None:
    parsed = Struct.parse(EVERYTHING, what="footer")
    getters = {
        "i64": (parsed.integer, {3, 4, 5, 6, 700}), "bool": (parsed.boolean, {1, 2}), "binary": (parsed.binary, {8}),
        "struct": (parsed.struct, {12}), "list": (parsed.list, {9, 10, 701}),
    }  # fmt: skip
    for name, (getter, right) in getters.items():
        for field_id in parsed.ids():
            if field_id in right:
                assert getter(field_id) is not None
            else:
                with pytest.raises(
                    ags1.FormatError, match=f"footer: field {field_id} is of kind [a-z0-9]+, not {name}"
                ):
                    getter(field_id)
        assert getter(99) is None
        assert getter(99, "other") == "other"


def test_lists_of_other_kinds_are_refused() -> None:
    parsed = Struct.parse(EVERYTHING, what="footer")
    numbers, structs = parsed.get(9), parsed.get(701)
    with pytest.raises(ags1.FormatError, match="footer: a list has items of kind i32, not struct"):
        numbers.structs()
    with pytest.raises(ags1.FormatError, match="items of kind struct, not i64"):
        structs.integers()


# -- changes -------------------------------------------------------------------------------------------------


def test_only_what_changed_is_written_anew() -> None:
    odd = b"\x1c\x15\x82\x80\0\0"  # field 1: a struct with an overlong varint
    data = odd[:-1] + b"\0" + b"\x05\x04\x02" + b"\x19\x42\x01\x00\x02\x00" + b"\x1c\x15\x02\0\0"
    parsed = Struct.parse(data, trailing=False)
    assert parsed.ids() == [1, 2, 3, 4]
    inner = parsed.struct(4)
    assert inner is not None
    inner.set(1, I32, 7)
    # The header of field 2 is short now; every other byte is where it was.
    assert parsed.encode() == odd[:-1] + b"\0" + b"\x15\x02" + b"\x19\x42\x01\x00\x02\x00" + b"\x1c\x15\x0e\0\0"
    flags = parsed.list(3)
    assert flags is not None
    flags.append(False)
    assert parsed.encode()[9:16] == b"\x52\x01\x00\x02\x00\x02\x1c"


def test_what_is_got_is_part_of_the_tree() -> None:
    parsed = Struct.parse(EVERYTHING)
    structs = parsed.list(701)
    assert structs is not None
    assert structs is parsed.get(701)
    assert structs is parsed.get(701)
    first = structs[0]
    assert first is structs[-3]
    assert first is next(iter(structs))
    assert first is next(structs.structs())
    assert not parsed.changed
    del structs
    gc.collect()
    first.set(1, I64, 999)
    assert parsed.changed
    assert parsed.nbytes == len(EVERYTHING)
    assert Struct.parse(parsed.encode()).get(701)[0].integer(1) == 999


def test_what_is_set_is_copied() -> None:
    source = Struct.parse(EVERYTHING)
    target = Struct()
    part = source.struct(12)
    assert part is not None
    target.set(1, STRUCT, part)
    target.set(2, LIST, source.get(701))
    part.remove(1)
    source.get(701)[0].set(1, I64, 50)
    expected = [
        (1, STRUCT, [(1, LIST, (BOOL, [True, False]))]),
        (2, LIST, (STRUCT, [[(1, I64, 1)], [], [(2, BOOL, True)]])),
    ]
    assert plain(target, STRUCT) == expected
    assert target.get(1) is not part
    # Except where it already is.
    own = target.struct(1)
    target.set(1, STRUCT, own)
    assert target.get(1) is own
    # So nothing can be inside itself.
    before = target.encode()
    target.set(9, STRUCT, target)
    assert target.get(9).encode() == before


def test_what_was_removed_lives_on_alone() -> None:
    parsed = Struct.parse(EVERYTHING)
    part = parsed.struct(12)
    assert part is not None
    parsed.remove(12)
    parsed.remove(12)
    part.set(3, I32, 1)
    assert 12 not in parsed
    assert 12 not in Struct.parse(parsed.encode())
    assert part.ids() == [1, 3]


def test_a_copy_is_independent() -> None:
    parsed = Struct.parse(EVERYTHING)
    parsed.get(701)[0].set(1, I64, 2)
    twin = parsed.copy()
    assert twin == parsed
    twin.get(701)[1].set(1, BINARY, b"twin")
    parsed.get(12).set(5, BOOL, True)
    assert 1 not in parsed.get(701)[1]
    assert 5 not in twin.get(12)
    assert twin.get(701)[0].integer(1) == 2
    assert not Struct.parse(EVERYTHING).copy().changed


def test_where_a_new_field_goes() -> None:
    made = Struct.parse(encode([(1, I32, 1), (20, I32, 1), (3, I32, 1)]))
    made.set(2, I32, 2)
    made.set(30, I32, 2)
    made.set(-1, I32, 2)
    made.set(3, BINARY, b"another kind")
    assert made.ids() == [-1, 1, 2, 20, 3, 30]
    assert made.encode() == encode(
        [(-1, I32, 2), (1, I32, 1), (2, I32, 2), (20, I32, 1), (3, BINARY, b"another kind"), (30, I32, 2)]
    )


@pytest.mark.parametrize(("delta", "header"), [(1, "15"), (15, "f5"), (16, "0520"), (32767, "05feff03"), (-1, "0501")])
def test_headers_of_fields(delta: int, header: str) -> None:
    made = Struct()
    made.set(delta, I32, 0)
    assert made.encode() == bytes.fromhex(header) + b"\0\0"


def test_lists_change() -> None:
    made = List(I32, range(14))
    holder = Struct()
    holder.set(1, LIST, made)
    assert holder.encode()[1] == 0xE5
    inner = holder.list(1)
    assert inner is not None
    inner.append(-1)
    assert holder.encode()[1:3] == b"\xf5\x0f"
    assert inner.integers() == [*range(14), -1]
    assert List(I32, [1]) == List(I32, [1])
    assert List(I32, [1]) != List(I64, [1])
    assert made != [1]
    for index in (15, -16):
        with pytest.raises(IndexError, match="is outside a List of 15"):
            inner[index]


REFUSED_VALUES = [
    (I8, 128, ValueError, "an i8 cannot be 128"),
    (I16, -32769, ValueError, "an i16 cannot be -32769"),
    (I32, 1 << 31, ValueError, "an i32 cannot be 2147483648"),
    (I64, 1 << 63, ValueError, "an i64 cannot be 9223372036854775808"),
    (I32, True, TypeError, "must be an integer, not bool"),
    (I32, 1.0, TypeError, "must be an integer, not float"),
    (I32, "1", TypeError, "must be an integer, not str"),
    (BOOL, 1, TypeError, "must be True or False, not int"),
    (DOUBLE, "1", TypeError, "real number"),
    (DOUBLE, 10**400, ValueError, "a double cannot be so large"),
    (BINARY, "text", TypeError, "must be a bytes-like object.*encode it first"),
    (BINARY, None, TypeError, "must be a bytes-like object"),
    (UUID, bytes(15), ValueError, "a UUID must be 16 bytes, got 15"),
    (STRUCT, {}, TypeError, "a struct must be a Struct, not dict"),
    (LIST, [1], TypeError, "a list must be a List, not list"),
    (SET, {1}, TypeError, "a set must be a List, not set"),
    (MAP, b"\0", ValueError, "a map is kept as it is, and cannot be set"),
    (0, 1, ValueError, "kind must be one of the constants"),
    (14, 1, ValueError, "kind must be one of the constants"),
]


@pytest.mark.parametrize(("kind", "value", "error", "message"), REFUSED_VALUES)
def test_values_that_do_not_fit(kind: int, value: Any, error: type[Exception], message: str) -> None:
    made = Struct.parse(EVERYTHING)
    for field_id in (1, 99):
        with pytest.raises(error, match=message):
            made.set(field_id, kind, value)
    with pytest.raises(error, match=message):
        List(kind, [value])
    assert made.encode() == EVERYTHING
    assert not made.changed


def test_other_wrong_arguments() -> None:
    with pytest.raises(ValueError, match="field_id must fit 16 bits, got 32768"):
        Struct().set(1 << 15, I32, 1)
    with pytest.raises(ValueError, match="offset must be 0 to 1, the length of data, got 2"):
        Struct.parse(b"\0", 2)
    with pytest.raises(ValueError, match="offset must be 0 to 1"):
        Struct.parse(b"\0", -1)
    for wrong in checks.NOT_BUFFERS:
        with pytest.raises(TypeError, match="data must be a bytes-like object"):
            Struct.parse(wrong)  # type: ignore[arg-type]
    assert Struct() != 1
    assert repr(Struct()) == "<Struct without fields>"
    for each in (Struct(), List(I32)):
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(each)
        with pytest.raises(TypeError, match="unhashable"):
            hash(each)


def test_numbers_that_are_no_int_and_buffers_that_are_no_bytes() -> None:
    import numpy as np

    made = Struct()
    made.set(1, I64, np.int64(-5))
    made.set(2, DOUBLE, 3)
    made.set(3, BINARY, np.arange(2, dtype="<u2"))
    made.set(4, DOUBLE, math.nan)
    assert made.integer(1) == -5
    assert made.binary(3) == b"\0\0\1\0"
    assert math.isnan(Struct.parse(made.encode()).get(4))


@pytest.mark.parametrize("how", ["one below the other", "as a value", "not looked at"])
def test_callers_cannot_nest_deeper_than_64_either(how: str) -> None:
    deepest: Any = Struct()
    if how == "one below the other":
        for _ in range(63):
            deepest.set(1, STRUCT, Struct())
            deepest = deepest.get(1)
        with pytest.raises(ValueError, match="64 deep at most"):
            deepest.set(1, STRUCT, Struct())
        return
    if how == "not looked at":
        deepest = Struct.parse(NESTINGS["structs"](64))
        holder = Struct()
        with pytest.raises(ValueError, match="64 deep at most"):
            holder.set(1, STRUCT, deepest)
        holder.set(1, STRUCT, deepest.get(1))
        assert Struct.parse(holder.encode()) == deepest
        # Changed above, so that it is copied field by field.
        deepest.set(2, I32, 1)
        with pytest.raises(ValueError, match="64 deep at most"):
            Struct().set(1, STRUCT, deepest)
        return
    for _ in range(63):
        outer = Struct()
        outer.set(1, STRUCT, deepest)
        deepest = outer
    with pytest.raises(ValueError, match="64 deep at most"):
        Struct().set(1, STRUCT, deepest)
    assert Struct.parse(deepest.encode()) == deepest


# -- objects -------------------------------------------------------------------------------------------------


def test_values_that_run_code_cannot_confuse_it() -> None:
    made = Struct.parse(EVERYTHING)

    class Number:
        def __index__(self) -> int:
            for field_id in made.ids():
                made.remove(field_id)
            return 7

    made.set(701, I32, Number())
    assert made.encode() == encode([(701, I32, 7)])
    items = List(I32, [1])

    class Grows:
        def __index__(self) -> int:
            for number in range(1000):
                items.append(number)
            return 7

    items.append(Grows())
    assert len(items) == 1002
    assert items[-1] == 7


def test_a_list_that_grows_while_it_is_iterated() -> None:
    items = List(I32, [1, 2])
    for number in items:
        if len(items) < 50:
            items.append(number)
    assert list(items) == [1, 2, 1, 2]


def test_nothing_is_kept_and_the_garbage_collector_is_not_asked() -> None:
    value = b"a value that only this test has"
    before = sys.getrefcount(value)
    source = bytes(bytearray(EVERYTHING))
    of_source = sys.getrefcount(source)
    gc.disable()
    try:
        for _ in range(50):
            made = Struct.parse(source)
            plain(made, STRUCT)
            made.set(1, BINARY, value)
            made.get(701)[0].set(3, BINARY, value)
            made.set(40, LIST, List(BINARY, [value] * 3))
            twin = made.copy()
            twin.set(1, BINARY, value)
            twin.remove(1)
            twin.get(40).append(b"other")
        assert not any(gc.is_tracked(each) for each in (made, made.get(701), made.get(12)))
        del made, twin
        assert sys.getrefcount(value) == before
        assert sys.getrefcount(source) == of_source
    finally:
        gc.enable()


def test_a_large_structure_is_parsed_beside_other_threads() -> None:
    data = encode([(1, LIST, (BINARY, [bytes(1000)] * 3000))])
    parsed = Struct.parse(data)
    found = checks.in_threads([lambda: parsed.get(1)] * 2 + [lambda: Struct.parse(data)] * 2)
    assert all(each == found[0] for each in found[:2])
    sizes = checks.in_threads([lambda: len(found[0])] * 4)
    assert sizes == [3000] * 4
    assert [len(each) for each in found[0]] == [1000] * 3000


def test_constants_are_the_codes_of_the_protocol() -> None:
    kinds = {name for name in vars(thrift) if name.isupper() and isinstance(getattr(thrift, name), int)}
    assert kinds == {"BOOL", "I8", "I16", "I32", "I64", "DOUBLE", "BINARY", "LIST", "SET", "MAP", "STRUCT", "UUID"}
    codes = [BOOL, I8, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT, UUID]
    assert codes == [1, *range(3, 14)]
