"""What batches are made of: every form of many items, keys and prefixes, and lies."""

from __future__ import annotations

import itertools
import mmap
import pickle
import random
import threading
from array import array as typed_array
from collections.abc import Callable
from typing import Any

import pytest

import ags1
from tests.batch_items import ITEMS, NULLS, opened, pair_of, texts
from tests.checks import KEY, KEYS, OTHER_KEY, flip, pattern

np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")

FORMS: dict[str, Callable[[list[bytes]], Any]] = {
    "list": lambda items: items,
    "tuple": tuple,
    "generator": iter,
    "bytearrays": lambda items: [bytearray(item) for item in items],
    "mixed": lambda items: [item if index % 2 else memoryview(item) for index, item in enumerate(items)],
    "pair": pair_of,
    "pair32": lambda items: pair_of(items, np.int32),
    "pair of arrays": lambda items: (np.frombuffer(pair_of(items)[0], np.uint8), pair_of(items)[1]),
    "Batch": lambda items: ags1.Batch(*pair_of(items)),
    "slice of a Batch": lambda items: ags1.Batch(*pair_of([b"before", *items, b"behind"]))[1:-1],
    "object array": lambda items: np.array([*items, None], object)[:-1],
    "binary": lambda items: pa.array(items, pa.binary()),
    "large_binary": lambda items: pa.array(items, pa.large_binary()),
    "binary_view": lambda items: pa.array(items, pa.binary_view()),
    "sliced": lambda items: pa.array([b"before", None, *items, b"behind"], pa.binary()).slice(2, len(items)),
    "chunked": lambda items: pa.chunked_array([items[:2], [], items[2:3], items[3:]], pa.binary()),
    "chunked views": lambda items: pa.chunked_array([items[:4], items[4:]], pa.binary_view()),
}


def polars_series(items: list[bytes]) -> Any:
    return pytest.importorskip("polars").Series(items)


def pandas_series(items: list[bytes]) -> Any:
    return pytest.importorskip("pandas").Series(items)


FORMS |= {"polars": polars_series, "pandas": pandas_series}


# -- forms of many items -------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 2, None])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_items_gives_what_a_list_gives(form: str, threads: int | None) -> None:
    streams = ags1.encrypt_many(FORMS[form](ITEMS), KEY, threads=threads)
    assert opened(streams) == ITEMS
    sealed = [ags1.encrypt(item, KEY) for item in ITEMS]
    assert texts(ags1.decrypt_many(FORMS[form](sealed), KEY, threads=threads)) == ITEMS


@pytest.mark.parametrize("form", FORMS)
def test_no_items_in_any_form(form: str) -> None:
    empty = FORMS[form]([]) if form != "object array" else np.array([], object)
    assert ags1.encrypt_many(empty, KEY) == []
    assert ags1.decrypt_many(FORMS[form]([]) if form != "object array" else empty, KEY) == []


@pytest.mark.parametrize(
    "kind",
    [pa.binary(), pa.large_binary(), pa.binary_view(), pa.string(), pa.large_string(), pa.string_view(), pa.null()],
    ids=str,
)
@pytest.mark.parametrize("slicing", [slice(0, 6), slice(1, 5), slice(3, 3), slice(1, 2)], ids=str)
def test_nulls_stay_null_in_arrays_of_every_type(kind: Any, slicing: slice) -> None:
    items = NULLS if not pa.types.is_null(kind) else [None] * 6
    values = [None if item is None else item.decode() for item in items] if "string" in str(kind) else items
    array = pa.array(values, kind)[slicing]
    streams = ags1.encrypt_many(array, KEY)
    assert opened(streams) == items[slicing]
    column = streams.to_arrow()
    column.validate(full=True)
    assert column.null_count == streams.null_count == items[slicing].count(None)
    for again in (ags1.decrypt_many(column, KEY), ags1.decrypt_many(streams, KEY)):
        assert texts(again) == items[slicing]


@pytest.mark.parametrize("slicing", [slice(0, 9), slice(2, 7), slice(8, 9), slice(4, 4)], ids=str)
def test_fixed_size_arrays_and_their_nulls(slicing: slice) -> None:
    items = [None if index % 4 == 1 else pattern(5, index) for index in range(9)]
    array = pa.array(items, pa.binary(5))[slicing]
    assert opened(ags1.encrypt_many(array, KEY)) == items[slicing]
    assert texts(ags1.Batch.from_arrow(array)) == items[slicing]


@pytest.mark.parametrize("kind", [np.uint8, np.int8, np.uint16, np.float64], ids=lambda kind: kind.__name__)
def test_each_row_of_an_array_is_an_item(kind: Any) -> None:
    rows = np.frombuffer(pattern(240), np.uint8).view(kind).reshape(5, -1)
    for array in (rows, rows[::-1], rows[::2], rows[1:1], rows.reshape(5, -1, 2), rows[:, 1:3]):
        expected = [np.ascontiguousarray(row).tobytes() for row in array]
        assert opened(ags1.encrypt_many(array, KEY)) == expected
    with pytest.raises(ValueError, match="rows of this array of buffers must be C-contiguous"):
        ags1.encrypt_many(rows[:, ::2], KEY)
    with pytest.raises(ValueError, match="rows of this array of buffers must be C-contiguous"):
        ags1.encrypt_many(np.asfortranarray(rows), KEY)


def test_chunks_of_items_keys_and_prefixes_need_not_agree() -> None:
    chance = random.Random(3)
    for _ in range(30):
        items = [pattern(chance.randrange(80), seed) for seed in range(chance.randrange(40))]
        keys = [pattern(32, seed) for seed in range(len(items))]
        prefixes = [pattern(chance.randrange(30), seed) for seed in range(len(items))]

        def chunked(values: list[bytes], kind: Any) -> Any:
            cuts = sorted(chance.randrange(len(values) + 1) for _ in range(chance.randrange(4)))
            edges = [0, *cuts, len(values)]
            return pa.chunked_array([values[a:b] for a, b in itertools.pairwise(edges)], kind)

        forms = chunked(items, pa.binary()), chunked(keys, pa.binary(32)), chunked(prefixes, pa.binary_view())
        for threads in (1, 3):
            streams = ags1.encrypt_many(forms[0], forms[1], aad_prefixes=forms[2], threads=threads)
            for stream, item, key, prefix in zip(streams, items, keys, prefixes, strict=True):
                assert ags1.decrypt(stream, key, aad_prefix=prefix) == item
            again = ags1.decrypt_many(streams, keys, aad_prefixes=forms[2], threads=threads)
            assert texts(again) == items


def test_random_batches_are_what_a_loop_of_single_calls_makes() -> None:
    chance = random.Random(11)
    for turn in range(60):
        count = chance.choice([0, 1, 2, 17, 300])
        items = [pattern(chance.choice([0, 1, 15, 16, 100, chance.randrange(3000)]), turn + i) for i in range(count)]
        block_length = chance.choice([1, 7, 64, 1000, 1 << 20])
        prefixes = ags1.NumberedPrefixes(pattern(chance.randrange(9)), chance.randrange(1 << 40))
        form = chance.choice([name for name in FORMS if name != "object array"])
        threads = chance.choice([1, 2, 5])
        streams = ags1.encrypt_many(
            FORMS[form](items), KEY, aad_prefixes=prefixes, block_length=block_length, threads=threads
        )
        one_by_one = [ags1.decrypt(stream, KEY, aad_prefix=prefixes[i]) for i, stream in enumerate(streams)]
        assert one_by_one == items
        sealed = [
            ags1.encrypt(item, KEY, aad_prefix=prefixes[i], block_length=chance.choice([1, 50, 1 << 20]))
            for i, item in enumerate(items)
        ]
        again = ags1.decrypt_many(FORMS[form](sealed), KEY, aad_prefixes=prefixes, threads=threads)
        assert texts(again) == items
        if count:
            bad = chance.randrange(count)
            sealed[bad] = flip(sealed[bad], chance.randrange(8, len(sealed[bad])))
            with pytest.raises(ags1.AuthenticationError, match=rf"^buffer {bad}: block"):
                ags1.decrypt_many(FORMS[form](sealed), KEY, aad_prefixes=prefixes, threads=threads)


# -- keys and prefixes ---------------------------------------------------------------------------------------


def test_keys_may_be_an_array_and_each_must_be_a_key() -> None:
    keys = [KEYS[32], OTHER_KEY, KEYS[32]]
    rows = np.frombuffer(b"".join(keys), np.uint8).reshape(3, 32)
    for form in (keys, rows, pa.array(keys), ags1.Batch(*pair_of(keys)), pair_of(keys)):
        streams = ags1.encrypt_many([b"1", b"2", b"3"], form)
        assert [ags1.decrypt(stream, key) for stream, key in zip(streams, keys, strict=True)] == [b"1", b"2", b"3"]
    with pytest.raises(ValueError, match=r"^buffer 1: key must be 16, 24 or 32 bytes .* got 5"):
        ags1.encrypt_many([b"1", b"2"], pa.array([KEY, b"short"]))
    with pytest.raises(ValueError, match=r"^buffer 1: its key is null"):
        ags1.encrypt_many([b"1", b"2"], pa.array([KEY, None]))
    with pytest.raises(ValueError, match=r"3 keys for 2 buffers"):
        ags1.encrypt_many([b"1", b"2"], rows)


def test_prefixes_may_be_an_array_and_none_may_be_null() -> None:
    prefixes = [b"a", b"", b"c" * 600]
    for form in (prefixes, pa.array(prefixes), pair_of(prefixes), ags1.Batch(*pair_of(prefixes))):
        assert opened(ags1.encrypt_many([b"1", b"2", b"3"], KEY, aad_prefixes=form), KEY, prefixes) == [
            b"1",
            b"2",
            b"3",
        ]
    with pytest.raises(ValueError, match=r"^aad_prefix of buffer 1 is null"):
        ags1.encrypt_many([b"1", b"2"], KEY, aad_prefixes=pa.array([b"a", None]))


def test_numbered_prefixes_bind_items_to_their_positions() -> None:
    prefixes = ags1.NumberedPrefixes(b"orders/", first=300)
    assert prefixes[2] == b"orders/" + (302).to_bytes(8, "little")
    streams = ags1.encrypt_many([b"1", b"", b"3"], KEY, aad_prefixes=prefixes)
    assert opened(streams, KEY, [prefixes[index] for index in range(3)]) == [b"1", b"", b"3"]
    part = ags1.NumberedPrefixes(b"orders/", first=301)
    assert texts(ags1.decrypt_many(streams[1:], KEY, aad_prefixes=part)) == [b"", b"3"]
    with pytest.raises(ags1.AuthenticationError, match=r"^buffer 0: block 0"):
        ags1.decrypt_many(streams[1:], KEY, aad_prefixes=prefixes)
    with pytest.raises(ags1.AuthenticationError, match=r"^buffer 0: block 0"):
        ags1.decrypt_many([streams[2], streams[1], streams[0]], KEY, aad_prefixes=prefixes)


def test_nulls_are_numbered_too() -> None:
    prefixes = ags1.NumberedPrefixes(b"p")
    streams = ags1.encrypt_many(pa.array([b"1", None, b"3"]), KEY, aad_prefixes=prefixes)
    assert ags1.decrypt(streams[2], KEY, aad_prefix=prefixes[2]) == b"3"


def test_numbers_that_prefixes_cannot_have_are_refused() -> None:
    for first in (-1, 1 << 63):
        with pytest.raises(ValueError, match="first must be 0 to"):
            ags1.NumberedPrefixes(b"", first)
    with pytest.raises(TypeError):
        ags1.NumberedPrefixes(b"", 1.5)  # type: ignore[arg-type]
    last = ags1.NumberedPrefixes(b"", (1 << 63) - 2)
    assert opened(ags1.encrypt_many([b"1"], KEY, aad_prefixes=last), KEY, [last[0]]) == [b"1"]
    with pytest.raises(ValueError, match="do not reach for 2 buffers"):
        ags1.encrypt_many([b"1", b"2"], KEY, aad_prefixes=last)
    for index in (-1, 2):
        with pytest.raises(IndexError, match="has no number"):
            last[index]
    assert pickle.loads(pickle.dumps(last))[0] == last[0]


# -- lies ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [np.int64, np.int32])
@pytest.mark.parametrize(
    ("offsets", "place"),
    [([0, 5, 3, 9], 1), ([-1, 5, 9], 0), ([0, 5, 11], 1), ([0, 5, 2**31 - 1, 9], 1), ([11, 11], 0), ([9, 0], 0)],
)
def test_offsets_that_descend_or_leave_the_data_are_refused(offsets: list[int], place: int, kind: Any) -> None:
    data = bytes(10)
    for call in (
        lambda: ags1.encrypt_many((data, np.array(offsets, kind)), KEY),
        lambda: ags1.Batch(data, np.array(offsets, kind)),
        lambda: ags1.encrypt_many([b""] * (len(offsets) - 1), KEY, aad_prefixes=(data, np.array(offsets, kind))),
    ):
        with pytest.raises(ValueError, match=rf"{place}: its offsets are {offsets[place]} and {offsets[place + 1]}"):
            call()


def every_kind_of_offsets(values: list[int]) -> dict[str, Any]:
    """The same offsets as every kind of array of integers, also of other machines."""
    kinds: dict[str, Any] = {
        f"{order}{letter}{size}": np.array(values, f"{order}{letter}{size}")
        for order in "<>"
        for letter in "iu"
        for size in (1, 2, 4, 8)
    }
    kinds |= {f"array {letter}": typed_array(letter, values) for letter in "bBhHiIlLqQ"}
    kinds |= {f"memoryview {letter}": memoryview(typed_array(letter, values)) for letter in "hHiIlLqQ"}
    for kind in (pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64()):
        kinds[f"arrow {kind}"] = pa.array(values, kind)
        kinds[f"slice of arrow {kind}"] = pa.array([7, 9, *values, 3], kind)[2:-1]
        kinds[f"chunks of arrow {kind}"] = pa.chunked_array([values[:2], [], values[2:]], kind)
    return kinds


def test_offsets_are_read_as_offsets_whatever_integers_they_are() -> None:
    values = [0, 3, 3, 10, 110]
    data = b"onetwoalso" + bytes(range(100))
    items = [data[start:end] for start, end in itertools.pairwise(values)]
    for kind, offsets in every_kind_of_offsets(values).items():
        assert opened(ags1.encrypt_many((data, offsets), KEY)) == items, kind
        assert ags1.Batch(data, offsets) == items, kind
        sealed = ags1.encrypt_many([b"x"] * 4, KEY, aad_prefixes=(data, offsets))
        assert ags1.decrypt(sealed[3], KEY, aad_prefix=items[3]) == b"x", kind
    polars = pytest.importorskip("polars")
    assert ags1.Batch(data, polars.Series(values)) == items
    lengths = np.array([0, *map(len, items)], np.uint32)
    assert ags1.Batch(data, np.cumsum(lengths)) == items
    generator = random.Random(12)
    for _ in range(30):
        places = sorted(generator.choices(range(len(data) + 1), k=generator.randrange(1, 9)))
        expected = [data[start:end] for start, end in itertools.pairwise(places)]
        for kind, offsets in every_kind_of_offsets(places).items():
            assert ags1.Batch(data, offsets) == expected, (kind, places)


def test_offsets_that_are_no_offsets_are_refused_and_never_read_as_a_message() -> None:
    data = bytes(10)
    refused: list[tuple[Any, type[Exception], str]] = [
        (np.zeros(3), TypeError, "must be integers in one dimension, not ndarray of the format 'd'"),
        (np.zeros(3, np.float32), TypeError, "must be integers"),
        (np.zeros(3, bool), TypeError, "must be integers"),
        (np.zeros(3, complex), TypeError, "must be integers"),
        (np.zeros((2, 3), np.int64), TypeError, "not 2 dimensions"),
        (np.zeros((1, 3), np.uint8), TypeError, "not 2 dimensions"),
        (np.int64(3), TypeError, "not 0 dimensions"),
        (typed_array("d", [0, 3]), TypeError, "must be integers"),
        (pa.array([0.0, 3.0]), TypeError, "not an Arrow array of the format 'g'"),
        (pa.array([b"0", b"3"]), TypeError, "not an Arrow array"),
        (pa.array([0, 3]).dictionary_encode(), TypeError, "not an Arrow array"),
        (pa.array([0, None, 3]), ValueError, "offset 1 is null"),
        (pa.chunked_array([[0], [1, None]]), ValueError, "offset 2 is null"),
        (np.array([0, 1 << 63], np.uint64), ValueError, "offset 1 is 9223372036854775808, beyond any memory"),
        (pa.array([0, (1 << 64) - 1], pa.uint64()), ValueError, "offset 1 is 18446744073709551615, beyond"),
        (np.array([0, 11], np.uint16), ValueError, "0: its offsets are 0 and 11, but offsets must ascend"),
        (np.array([0, 5, 4], np.uint8), ValueError, "1: its offsets are 5 and 4, but offsets must ascend"),
        (np.array([-1, 4], ">i2"), ValueError, "0: its offsets are -1 and 4, but offsets must ascend"),
        (np.zeros(0, np.int64), ValueError, "one entry more than there are items"),
        (np.zeros(0, np.uint8), ValueError, "one entry more than there are items"),
        (pa.array([], pa.int64()), ValueError, "one entry more than there are items"),
        (np.zeros(6, np.int64)[::2], ValueError, "offsets must be C-contiguous"),
    ]
    for offsets, error, message in refused:
        for call in (
            lambda offsets=offsets: ags1.encrypt_many((data, offsets), KEY),
            lambda offsets=offsets: ags1.encrypt_many(
                [b""] * (np.size(offsets) - 1), KEY, aad_prefixes=(data, offsets)
            ),
            lambda offsets=offsets: ags1.Batch(data, offsets),
        ):
            with pytest.raises(error, match=message):
                call()
    # A Buffer of Arrow has no type: two of them may be two messages.
    column = pa.array([b"one", b"two"])
    with pytest.raises(TypeError, match="tuple of two Arrow buffers is ambiguous"):
        ags1.encrypt_many((column.buffers()[2], column.buffers()[1]), KEY)
    assert ags1.Batch(column.buffers()[2], np.frombuffer(column.buffers()[1], np.int32)) == [b"one", b"two"]
    for untyped in (bytes(16), bytearray(16), memoryview(bytes(16)), pa.py_buffer(bytes(16))):
        with pytest.raises(TypeError, match="must be integers"):
            ags1.Batch(data, untyped)
    for wide in (np.zeros(3), np.zeros(3, np.int64)):
        with pytest.raises(TypeError, match="must be single bytes"):
            ags1.encrypt_many((wide, np.array([0, 3])), KEY)
    with pytest.raises(ValueError, match="validity has 1 bytes, which are too few for 9 items"):
        ags1.Batch(data, np.arange(10, dtype=np.int64), b"\xff")


def test_a_tuple_of_two_buffers_without_a_type_is_two_items() -> None:
    for second in (b"two", bytearray(b"two"), memoryview(b"two"), mmap.mmap(-1, 3)):
        assert opened(ags1.encrypt_many((b"one", second), KEY)) == [b"one", bytes(second)]


def test_a_huge_item_that_comes_many_times_is_refused_before_memory_is_taken() -> None:
    # Nothing of it is there but one byte; encrypting does not read before it has memory for the result.
    huge = np.lib.stride_tricks.as_strided(np.zeros(1, np.uint8), (1 << 12, 1 << 50), (0, 1))
    with pytest.raises(MemoryError, match="larger than any memory"):
        ags1.encrypt_many(huge, KEY)


def from_damaged_file(offsets: list[int]) -> Any:
    """An Arrow array whose offsets somebody changed in a file: reading one checks nothing."""
    batch = pa.record_batch({"a": pa.array([b"abcd", b"efgh"], pa.large_binary())})
    content = batch.serialize().to_pybytes()
    good, bad = (np.array(each, np.int64).tobytes() for each in ([0, 4, 8], offsets))
    assert content.count(good) == 1
    return pa.ipc.read_record_batch(pa.py_buffer(content.replace(good, bad)), batch.schema).column(0)


@pytest.mark.parametrize("offsets", [[0, 4, 1 << 40], [0, 9, 8], [-3, 4, 8], [0, 1 << 40, 8]], ids=str)
def test_arrow_arrays_of_damaged_files_are_refused(offsets: list[int]) -> None:
    array = from_damaged_file(offsets)
    for call in (
        lambda: ags1.encrypt_many(array, KEY),
        lambda: ags1.decrypt_many(pa.chunked_array([array]), KEY),
        lambda: ags1.Batch.from_arrow(array),
        lambda: ags1.encrypt_many([b"", b""], KEY, aad_prefixes=array),
    ):
        with pytest.raises(ValueError, match=r"offset|Offset|span"):
            call()


def test_views_of_damaged_files_are_refused() -> None:
    views = pa.array([b"x" * 50, b"short"], pa.binary_view())
    broken = bytearray(views.buffers()[1])
    broken[12:16] = (40).to_bytes(4, "little")
    array = pa.Array.from_buffers(pa.binary_view(), 2, [None, pa.py_buffer(bytes(broken)), *views.buffers()[2:]])
    with pytest.raises(ValueError, match="buffer 0: its view points outside"):
        ags1.encrypt_many(array, KEY)


def test_arrays_that_hold_no_bytes_are_refused_with_what_to_do() -> None:
    table = pa.table({"a": [b"1"]})
    for wrong, message in (
        (table, "pass one of its columns"),
        (table.to_batches()[0], "pass one of its columns"),
        (pa.array([1, 2]), "must be an Arrow array of binary"),
        (pa.array([[b"1"]]), "must be an Arrow array of binary"),
        (pa.array([b"1"]).dictionary_encode(), "dictionary-encoded"),
        (pa.chunked_array([], pa.int64()), "must be an Arrow array of binary"),
        (pytest.importorskip("polars").Series([object(), object()]), "array of Python objects"),
        (b"bytes", "not one bytes"),
        (np.zeros(3, np.uint8), "not one ndarray"),
        ("text", "not str"),
        ({b"a": 1}, "not dict"),
    ):
        with pytest.raises(TypeError, match=message):
            ags1.encrypt_many(wrong, KEY)


def test_memory_that_changes_meanwhile_is_never_left() -> None:
    offsets, data = np.arange(0, 40_001, 4, dtype=np.int64), np.zeros(40_000, np.uint8)
    stop = threading.Event()

    def meddle() -> None:
        chance = random.Random(1)
        while not stop.is_set():
            place, before = chance.randrange(1, 10_000), chance.choice([-(1 << 62), 1 << 62, 0, 40_000, 1 << 33])
            was = int(offsets[place])
            offsets[place] = before
            offsets[place] = was

    thread = threading.Thread(target=meddle)
    thread.start()
    try:
        for threads in (1, 2) * 100:
            try:
                streams = ags1.encrypt_many((data, offsets), KEY, threads=threads)
            except ValueError as error:
                assert "buffer" in str(error)  # noqa: PT017
            else:
                assert len(streams) == 10_000
    finally:
        stop.set()
        thread.join()


def test_a_batch_of_offsets_that_change_never_shows_other_memory() -> None:
    offsets = np.array([0, 4, 8], np.int64)
    batch = ags1.Batch(b"12345678", offsets)
    offsets[1] = 1 << 40
    with pytest.raises(ValueError, match="its offsets were changed"):
        batch[0]
    offsets[1] = -5
    with pytest.raises(ValueError, match="its offsets were changed"):
        list(batch)
