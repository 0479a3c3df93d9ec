"""Values of nested types, value by value: random ones come back, and bytes of another type are refused."""

from __future__ import annotations

import datetime
import decimal
import mmap
import random
from typing import Any

import pytest

import ags1
from tests.checks import KEY

pa = pytest.importorskip("pyarrow")
np = pytest.importorskip("numpy")

from ags1 import arrow  # noqa: E402  needs pyarrow
from ags1.arrow.nested import pack, unpack  # noqa: E402

TYPES: tuple[Any, ...] = (
    pa.bool_(),
    pa.struct([("a", pa.int8()), ("b", pa.string())]),
    pa.struct([]),
    pa.list_(pa.bool_()),
    pa.large_list(pa.large_string()),
    pa.list_(pa.list_(pa.binary(3))),
    pa.list_(pa.struct([("a", pa.decimal128(20, 2)), ("b", pa.list_(pa.binary()))])),
    pa.map_(pa.string(), pa.int64()),
    pa.map_(pa.int32(), pa.map_(pa.date32(), pa.struct([("x", pa.timestamp("us", "UTC")), ("y", pa.float64())]))),
    pa.struct([("deep", pa.struct([("er", pa.list_(pa.map_(pa.string(), pa.list_(pa.bool_()))))]))]),
)


def value(chance: random.Random, kind: Any, *, null: bool = True) -> Any:
    """A value by chance."""
    types = pa.types
    if null and chance.random() < 0.2:
        return None
    count = chance.choice([0, 1, 2, 5])
    if types.is_struct(kind):
        return {field.name: value(chance, field.type) for field in kind}
    if types.is_map(kind):
        return [(value(chance, kind.key_type, null=False), value(chance, kind.item_type)) for _ in range(count)]
    if types.is_list(kind) or types.is_large_list(kind):
        return [value(chance, kind.value_type) for _ in range(count)]
    if types.is_boolean(kind):
        return chance.random() < 0.5
    if types.is_string(kind) or types.is_large_string(kind):
        return "ä" * chance.choice([0, 1, 40])
    if types.is_decimal(kind):
        return decimal.Decimal(chance.randrange(10**9)).scaleb(-2)
    if types.is_date(kind):
        return datetime.date.fromordinal(chance.randrange(1, 3_000_000))
    if types.is_timestamp(kind):
        return chance.randrange(1 << 50)
    if types.is_floating(kind):
        return chance.random()
    if types.is_integer(kind):
        return chance.randrange(-128, 128)
    return chance.randbytes(3 if types.is_fixed_size_binary(kind) else count)


def values(seed: int, kind: Any, count: int) -> Any:
    chance = random.Random(seed)
    return pa.array([value(chance, kind) for _ in range(count)], kind)


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_random_values_come_back_whole_sliced_filtered_and_in_chunks(kind: Any) -> None:
    array = values(1, kind, 60)
    mask = pa.array([index % 3 == 0 for index in range(60)])
    chunked = pa.chunked_array([array.slice(3, 20), array.slice(0, 0), array.slice(40)])
    for each in (
        array,
        array.slice(7, 30),
        array.slice(0, 0),
        array.filter(mask),
        chunked,
        array.take(pa.array([5, 5])),
    ):
        sealed = arrow.encrypt_array(each, KEY, form="gcm")
        again = arrow.decrypt_array(sealed, KEY, value_type=kind, form="gcm")
        again.validate(full=True)
        assert again.type == kind
        assert again.to_pylist() == each.to_pylist()
        assert sealed.is_valid().to_pylist() == each.is_valid().to_pylist()


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_a_value_has_the_same_bytes_whatever_stands_around_it(kind: Any) -> None:
    # So a value can be a row's key, and nothing under a null or of another row is in it.
    array = values(2, kind, 30)
    whole = pack(array).to_pylist()
    assert whole == [pack(array.slice(index, 1)).to_pylist()[0] for index in range(30)]
    assert whole == [pack(pa.array([each], kind)).to_pylist()[0] for each in array.to_pylist()]


def test_the_bytes_are_those_that_the_format_says() -> None:
    kind = pa.list_(pa.struct([("a", pa.int8()), ("b", pa.string())]))
    packed = pack(pa.array([[{"a": 7, "b": "xy"}, None]], kind))
    assert packed.to_pylist() == [bytes.fromhex("02000000 0100 0100 0700 0100 02000000 00000000") + b"xy"]


def test_what_lies_in_the_memory_of_nulls_is_not_in_a_value() -> None:
    mask = pa.array([False, True])
    text = pa.Array.from_buffers(pa.string(), 2, [pa.py_buffer(b"\1"), *pa.array(["ok", "secret"]).buffers()[1:]])
    number = pa.Array.from_buffers(pa.int64(), 2, [pa.py_buffer(b"\1"), pa.array([1, 0x736563726574]).buffers()[1]])
    for child in (text, number):
        array = pa.StructArray.from_arrays([child], ["a"])
        assert b"secret" not in pack(array)[1].as_py()
        assert b"terces" not in pack(array)[1].as_py()
    hidden = pa.StructArray.from_arrays([pa.array(["ok", "secret"])], ["a"], mask=mask)
    listed = pa.ListArray.from_arrays(pa.array([0, 2], pa.int32()), hidden)
    assert b"secret" not in pack(listed)[0].as_py()


@pytest.mark.parametrize("place", [4, 5, 6, 7])
def test_a_null_entry_or_key_of_a_map_is_refused_and_does_not_end_the_process(place: int) -> None:
    """The threat: a value that some key holder wrote ends whoever reads it."""
    kind = pa.map_(pa.string(), pa.int64())
    value = bytearray(pack(pa.array([[("a", 1), ("b", 2)]], kind))[0].as_py())
    # The number of entries, then of each entry and each key whether it is there.
    assert value[:8] == b"\x02\0\0\0" + b"\x01" * 4
    value[place] = 0
    for of, data in ((kind, value), (pa.struct([("a", kind)]), b"\x01" + value), (pa.list_(kind), listed(value))):
        with pytest.raises(ags1.FormatError, match=r"an entry of a map, or its key, is null"):
            unpack(pa.array([None, bytes(data)], pa.large_binary()), of)


def listed(value: bytes) -> bytes:
    """The bytes of a list with this one value in it."""
    return b"\x01\0\0\0" + b"\x01" + value


def test_bytes_of_another_type_are_refused() -> None:
    number, text = pa.struct([("a", pa.int64())]), pa.struct([("a", pa.string())])
    packed = pack(pa.array([{"a": 1}, None], number))
    for kind in (text, pa.struct([("a", pa.int32())]), pa.struct([("a", pa.int64()), ("b", pa.int8())]), pa.bool_()):
        with pytest.raises(ags1.FormatError, match=r"not of (this )?type"):
            unpack(packed, kind)
    with pytest.raises(ags1.FormatError, match="not of type string"):
        unpack(pack(pa.array([{"a": b"\xff"}], pa.struct([("a", pa.binary())]))), text)
    cut = pa.array([packed[0].as_py()[:-1]], pa.large_binary())
    with pytest.raises(ags1.FormatError, match="ends early"):
        unpack(cut, number)


def test_a_table_with_nested_columns_comes_back() -> None:
    table = pa.table({str(index): values(index, kind, 20) for index, kind in enumerate(TYPES)})
    for form in ("ags1", "gcm"):
        sealed = arrow.encrypt_columns(table, table.schema.names, KEY, aad_prefix=b"t", form=form)
        assert set(sealed.schema.types) == {pa.large_binary()}
        assert arrow.decrypt_columns(sealed, KEY, aad_prefix=b"t", form=form).equals(table, check_metadata=True)


@pytest.mark.parametrize("rows", [[["a", None]], [["a", None], None, []]])
@pytest.mark.parametrize("view", [pa.string_view(), pa.binary_view()])
def test_views_inside_of_values_come_back_beside_nulls(view: Any, rows: list[Any]) -> None:
    for kind in (pa.list_(view), pa.large_list(view), pa.list_(pa.struct([("x", view)])), pa.map_(pa.int8(), view)):
        values: Any = rows
        if pa.types.is_map(kind):
            values = [None if row is None else list(enumerate(row)) for row in rows]
        elif pa.types.is_struct(kind.value_type):
            values = [None if row is None else [{"x": each} for each in row] for row in rows]
        array = pa.array(values, kind)
        assert arrow.decrypt_array(arrow.encrypt_array(array, KEY), KEY, value_type=kind).equals(array)


def test_a_length_that_does_not_fit_into_its_place_is_refused() -> None:
    with mmap.mmap(-1, 1 << 32) as nothing:
        child = pa.Array.from_buffers(pa.int8(), 1 << 32, [None, pa.py_buffer(nothing)])
        places = pa.py_buffer(np.array([0, 1 << 32]))
        array = pa.Array.from_buffers(pa.large_list(pa.int8()), 1, [None, places], children=[child])
        with pytest.raises(ValueError, match="too long: divide it"):
            arrow.encrypt_array(array, KEY)
        del array, child


@pytest.mark.parametrize(
    "inner", [pa.string_view(), pa.string(), pa.list_(pa.field("e", pa.binary_view(), nullable=False))], ids=str
)
def test_nulls_beside_fields_that_are_not_nullable_come_back(inner: Any) -> None:
    kind = pa.struct([pa.field("x", inner, nullable=False), pa.field("y", pa.int16(), nullable=False)])
    one: Any = [b"a", b""] if pa.types.is_list(inner) else "a" * 20
    array = pa.array([None, {"x": one, "y": 1}, None, {"x": one, "y": -1}, None], kind)
    for each in (array, array[:1], pa.array([], kind)):
        again = arrow.decrypt_array(arrow.encrypt_array(each, KEY), KEY, value_type=kind)
        again.validate(full=True)
        assert again.type == kind
        assert again.to_pylist() == each.to_pylist()


FLAT: tuple[Any, ...] = (
    pa.int16(), pa.uint64(), pa.float16(), pa.float64(), pa.string(), pa.large_string(), pa.string_view(),
    pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(4), pa.decimal128(9, 2), pa.decimal256(50, 2),
    pa.date32(), pa.date64(), pa.time32("s"), pa.time64("ns"), pa.timestamp("us", "UTC"), pa.duration("ms"),
    pa.month_day_nano_interval(), pa.list_view(pa.int8()), pa.dictionary(pa.int8(), pa.string()), pa.null(),
    pa.run_end_encoded(pa.int32(), pa.int8()), pa.list_(pa.int8(), 2),
)  # fmt: skip


def pieces(chance: random.Random, array: Any) -> Any:
    """The array in chunks by chance: none, if it has no values, or some that are empty."""
    ends = sorted(chance.randrange(len(array) + 1) for _ in range(chance.randrange(4)))
    found = [array.slice(start, end - start) for start, end in zip([0, *ends], [*ends, len(array)], strict=True)]
    return pa.chunked_array(found if len(array) else found[: len(ends)], array.type)


@pytest.mark.parametrize("kind", [*TYPES, *FLAT], ids=str)
def test_chunks_of_every_number_and_length_are_encrypted_as_one_array_is(kind: Any) -> None:
    chance = random.Random(str(kind))
    nothing = pa.table({"a": pa.chunked_array([], kind)})
    try:
        arrow.nested.check_type(kind)
    except TypeError:
        for wrong in (nothing["a"], pa.nulls(2, kind)):
            with pytest.raises(TypeError, match="are not bytes"):
                arrow.encrypt_array(wrong, KEY)
        return
    known = kind in TYPES
    for count in (0, 0, 0, 1, 9):
        array = values(count, kind, count) if known else pa.nulls(count, kind)
        whole = arrow.decrypt_array(arrow.encrypt_array(array, KEY), KEY, value_type=kind)
        assert whole.equals(array)
        sealed = arrow.encrypt_array(pieces(chance, array), KEY)
        for again in (sealed, pieces(chance, sealed)):
            assert arrow.decrypt_array(again, KEY, value_type=kind).equals(array)
            plain, failed = arrow.decrypt_array(again, KEY, value_type=kind, on_error="null")
            assert (plain.equals(array), len(failed), failed.true_count) == (True, count, 0)
        table = pa.table({"a": pieces(chance, array)})
        columns = arrow.encrypt_columns(table, ["a"], KEY)
        assert arrow.decrypt_columns(columns, KEY).equals(table)
        # As a reader returns a table that has no batch.
        for empty in (columns.slice(0, 0), pa.Table.from_batches([], columns.schema)):
            assert arrow.decrypt_columns(empty, KEY).equals(nothing)
