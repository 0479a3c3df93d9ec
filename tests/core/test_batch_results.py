"""What becomes of batches: `Batch`, `out=`, good items beside damaged ones, and memory that is used again."""

from __future__ import annotations

import gc
import inspect
import itertools
import pickle
import random
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import ags1
from tests.batch_items import ITEMS, NULLS, opened, pair_of, texts
from tests.checks import KEY, OTHER_KEY, flip, pattern

np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")

# -- Batch ---------------------------------------------------------------------------------------------------


def test_a_batch_is_a_sequence_of_read_only_memoryviews() -> None:
    batch = ags1.encrypt_many(ITEMS, KEY)
    assert isinstance(batch, Sequence)
    assert len(batch) == len(list(batch)) == len(ITEMS)
    assert all(isinstance(item, memoryview) and item.readonly and item.format == "B" for item in batch)
    assert batch[-1] == batch[len(ITEMS) - 1] == list(batch)[-1]
    assert [*reversed(batch)] == [*batch][::-1]
    for index in (len(ITEMS), -len(ITEMS) - 1):
        with pytest.raises(IndexError):
            batch[index]
    for wrong in ("0", 1.9, 1.0, None):
        with pytest.raises(TypeError):
            batch[wrong]
    assert batch[np.int16(1)] == batch[1]
    assert batch.index(batch[3]) == 3
    assert (batch.count(batch[3]), batch[3] in batch, b"other" in batch) == (1, True, False)
    with pytest.raises(ValueError, match="no item"):
        batch.index(b"other")
    plain = ags1.decrypt_many(batch, KEY)
    assert plain == ITEMS
    assert plain == tuple(ITEMS)
    assert plain != ITEMS[1:]
    assert plain != 3
    assert "one" not in repr(plain)
    with pytest.raises(TypeError, match="unhashable"):
        hash(batch)


def test_native_classes_show_their_arguments() -> None:
    assert str(inspect.signature(ags1.Batch)) == "(data, offsets, validity=None)"
    assert str(inspect.signature(ags1.NumberedPrefixes)) == "(fixed=b'', first=0)"
    assert str(inspect.signature(ags1.Key)) == "(key)"
    for kind in (ags1.Batch, ags1.NumberedPrefixes, ags1.Key):
        assert (inspect.getdoc(kind) or "").startswith("A"), "help() shows the description first"


def test_slices_share_the_memory() -> None:
    batch = ags1.Batch(*pair_of(ITEMS))
    for start, stop in itertools.product(range(-7, 8), repeat=2):
        part = batch[start:stop]
        assert texts(part) == ITEMS[start:stop]
        assert part.nbytes == sum(map(len, ITEMS[start:stop]))
        assert part.offsets.tolist() == batch.offsets.tolist()[slice(*slice(start, stop).indices(6)[:2])] + [
            batch.offsets[max(slice(start, stop).indices(6)[:2])]
        ]
        assert np.shares_memory(np.asarray(part.data), np.asarray(batch.data))
        assert part[1:] == ITEMS[start:stop][1:]
    with pytest.raises(ValueError, match="has no step"):
        batch[::2]


def test_arrow_shares_the_memory_both_ways() -> None:
    for values in (ITEMS, NULLS):
        array = pa.array(values, pa.large_binary())
        for part in (array, array[2:], array[1:4]):
            batch = ags1.Batch.from_arrow(part)
            again = batch.to_arrow()
            assert again.equals(part)
            assert again.type == pa.large_binary()
            assert again.buffers()[2].address == part.buffers()[2].address
            assert batch[1:].to_arrow().equals(part[1:])
            assert batch.null_count == part.null_count
    short = pa.array(NULLS, pa.binary())
    batch = ags1.Batch.from_arrow(short[1:])
    assert batch.to_arrow().to_pylist() == NULLS[1:]
    assert batch.to_arrow().buffers()[2].address == short.buffers()[2].address
    for other in (pa.array(NULLS, pa.binary_view()), pa.chunked_array([NULLS[:2], NULLS[2:]], pa.binary())):
        assert ags1.Batch.from_arrow(other).to_arrow().to_pylist() == NULLS
    with pytest.raises(TypeError, match="an Arrow array is needed, not list"):
        ags1.Batch.from_arrow(ITEMS)  # type: ignore[arg-type]


def test_other_libraries_read_a_batch() -> None:
    polars = pytest.importorskip("polars")
    batch = ags1.Batch.from_arrow(pa.array(NULLS, pa.large_binary()))
    assert polars.Series(batch.to_arrow()).to_list() == NULLS
    assert pa.array(batch[1:]).to_pylist() == NULLS[1:]


def test_memory_lives_as_long_as_anything_made_of_it() -> None:
    streams = ags1.encrypt_many(pa.array(ITEMS), KEY)
    column, part, item, offsets = streams.to_arrow(), streams[2:4], streams[3], streams.offsets
    expected = texts(streams)
    del streams
    gc.collect()
    assert column.to_pylist() == expected
    assert texts(part) == expected[2:4]
    assert bytes(item) == expected[3]
    assert offsets[-1] == sum(len(each or b"") for each in expected)


@pytest.mark.parametrize("values", [ITEMS, NULLS, [], [None]], ids=len)
@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_batches_are_pickled_and_only_what_they_show(values: Any, protocol: int) -> None:
    batch = ags1.Batch.from_arrow(pa.array([b"hidden before", *values, b"hidden behind"], pa.large_binary()))[1:-1]
    dumped = pickle.dumps(batch, protocol)
    assert b"hidden" not in dumped
    assert texts(pickle.loads(dumped)) == values


def test_pickling_out_of_band_copies_nothing() -> None:
    batch = ags1.encrypt_many([bytes(1000)] * 1000, KEY)
    buffers: list[pickle.PickleBuffer] = []
    dumped = pickle.dumps(batch, 5, buffer_callback=buffers.append)
    assert len(dumped) < 500
    assert sum(buffer.raw().nbytes for buffer in buffers) == batch.nbytes + 8 * 1001
    again = pickle.loads(dumped, buffers=buffers)
    assert again == batch
    assert np.shares_memory(np.asarray(again.data), np.asarray(batch.data))
    moved = pickle.loads(dumped, buffers=[bytes(buffer) for buffer in buffers])
    assert ags1.decrypt_many(moved, KEY)[999] == bytes(1000)


# -- results into memory that is there -----------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 3])
def test_results_go_into_memory_of_the_callers(threads: int) -> None:
    streams = ags1.encrypt_many(ITEMS, KEY)
    memory = bytearray(b"\xee" * (streams.nbytes + 10))
    made = ags1.encrypt_many(ITEMS, KEY, out=memory, threads=threads)
    assert opened(made) == ITEMS
    assert memory[-10:] == b"\xee" * 10
    assert np.shares_memory(np.asarray(made.data), np.frombuffer(memory, np.uint8))
    assert all(item.readonly for item in made)
    room = np.zeros(sum(map(len, ITEMS)), np.uint8)
    assert ags1.decrypt_many(streams, KEY, out=room, threads=threads) == ITEMS
    assert room.tobytes() == b"".join(ITEMS)


def test_memory_that_is_too_small_or_read_only_is_refused_untouched() -> None:
    memory = bytearray(b"\xee" * 100)
    with pytest.raises(ValueError, match="out has 100 bytes, but the results of this batch take 111"):
        ags1.encrypt_many([b"1", b"2", b"3"], KEY, out=memory)
    assert memory == b"\xee" * 100
    for wrong in (bytes(200), "text", [bytearray(200)], ags1.Batch(b"", np.zeros(1, np.int64))):
        with pytest.raises(TypeError, match="out"):
            ags1.encrypt_many([b"1"], KEY, out=wrong)


def test_memory_that_overlaps_what_is_read_is_refused() -> None:
    memory = np.zeros(1000, np.uint8)
    offsets = np.array([0, 10, 20], np.int64)
    view = memoryview(memory)
    wide = np.zeros(200, np.int64)
    calls: list[Callable[[], Any]] = [
        lambda: ags1.encrypt_many([b"1", view[5:9]], KEY, out=memory),
        lambda: ags1.encrypt_many((memory, offsets), KEY, out=memory),
        lambda: ags1.encrypt_many((bytes(30), wide[:3]), KEY, out=wide.view(np.uint8)),
        lambda: ags1.encrypt_many(memory[:40].reshape(2, 20), KEY, out=memory[30:]),
        lambda: ags1.encrypt_many(ags1.Batch(memory, offsets), KEY, out=memory),
        lambda: ags1.encrypt_many([b"1"], KEY, aad_prefixes=[view[:3]], out=memory),
        lambda: ags1.encrypt_many([b"1"], KEY, aad_prefixes=view[:3], out=memory),
        lambda: ags1.encrypt_many([b"1"], memory[:32].reshape(1, 32), out=memory),
        lambda: ags1.encrypt_many(
            pa.Array.from_buffers(pa.binary(5), 2, [None, pa.py_buffer(memory)]), KEY, out=memory
        ),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="and out overlap in memory"):
            call()
    assert not memory.any()


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("bad", [0, 2500, 4999])
def test_a_batch_with_one_bad_stream_leaves_nothing_in_the_callers_memory(threads: int, bad: int) -> None:
    streams = texts(ags1.encrypt_many([pattern(100, seed) for seed in range(5000)], KEY))
    streams[bad] = flip(streams[bad] or b"", -1)
    memory = bytearray(5000 * 100)
    with pytest.raises(ags1.AuthenticationError, match=rf"^buffer {bad}: block 0"):
        ags1.decrypt_many(streams, KEY, out=memory, threads=threads)
    assert not any(memory)


# -- damage beside good items --------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 4])
def test_damaged_items_become_null_and_the_others_are_what_they_were(threads: int) -> None:
    generator = random.Random(3)
    for block_length, count in ((1000, 300), (1 << 20, 3000), (1000, 2)):
        plain: list[bytes | None] = [generator.randbytes(generator.randrange(5000)) for _ in range(count)]
        plain[-1] = None
        streams: list[Any] = texts(
            ags1.encrypt_many(pa.array(plain, pa.large_binary()), KEY, block_length=block_length)
        )
        damaged = sorted(generator.sample(range(count - 1), max(0, count // 10)))
        for index in damaged:
            streams[index] = flip(streams[index], generator.randrange(8, len(streams[index])))
        given = pa.array(streams, pa.large_binary())
        expected = [None if index in damaged else item for index, item in enumerate(plain)]
        memory = bytearray(b"\xaa" * sum(len(item or b"") for item in plain))
        for out in (None, memory, ags1.Batch.reserve()):
            batch = ags1.decrypt_many(given, KEY, threads=threads, on_error="null", out=out)
            assert batch == expected
            assert batch.failed == tuple(damaged)
            assert batch.null_count == len(damaged) + 1
            assert batch.to_arrow().to_pylist() == expected
            for index in damaged:
                start, end = batch.offsets[index], batch.offsets[index + 1]
                assert end - start == len(plain[index] or b"")
                assert not any(batch.data[start:end]), "plaintext of an item whose tag failed is released"
            part = batch[count // 3 : -1]
            assert part.failed == tuple(index - count // 3 for index in damaged if index >= count // 3)
            for protocol in (4, 5):
                assert pickle.loads(pickle.dumps(part, protocol)).failed == part.failed
        if damaged:
            with pytest.raises(ags1.AuthenticationError) as caught:
                ags1.decrypt_many(given, KEY, threads=threads)
            assert caught.value.item_index == damaged[0]


def test_only_a_failed_tag_makes_an_item_null() -> None:
    streams: list[Any] = texts(ags1.encrypt_many(ITEMS, KEY))
    prefixes = ags1.NumberedPrefixes(b"other")
    for first, call in (
        (0, lambda: ags1.decrypt_many(streams, OTHER_KEY, on_error="null")),
        (0, lambda: ags1.decrypt_many(streams, KEY, aad_prefixes=prefixes, on_error="null")),
        (0, lambda: ags1.decrypt_many(streams[:1], OTHER_KEY, on_error="null")),
        (1, lambda: ags1.decrypt_many(pa.array([None, *streams]), OTHER_KEY, on_error="null")),
    ):
        with pytest.raises(ags1.AuthenticationError, match=rf"^buffer {first}: block 0") as caught:
            call()
        assert (caught.value.item_index, caught.value.block_index) == (first, 0)
    for broken, error in ((b"", ags1.TruncatedError), (b"PAR1" + bytes(50), ags1.FormatError)):
        with pytest.raises(error, match="buffer 6"):
            ags1.decrypt_many([*streams, broken], KEY, on_error="null")
    with pytest.raises(ags1.TruncatedError, match="trusted length"):
        ags1.decrypt_many(streams, KEY, lengths=[1 << 20] * 6, on_error="null")
    with pytest.raises(ValueError, match="key must be 16, 24 or 32 bytes"):
        ags1.decrypt_many(streams, [KEY] * 5 + [b"short"], on_error="null")
    with pytest.raises(ValueError, match="on_error must be 'raise' or 'null', not 'skip'"):
        ags1.decrypt_many(streams, KEY, on_error="skip")  # type: ignore[arg-type]
    for nothing in ([], pa.array([None, None], pa.binary())):
        assert ags1.decrypt_many(nothing, KEY, on_error="null").failed == ()


def test_a_reserved_batch_lends_its_memory_again_when_nobody_uses_it() -> None:
    room = ags1.Batch.reserve(nbytes=1 << 20, count=1000)
    assert len(room) == 0
    first = ags1.encrypt_many(ITEMS, KEY, out=room)
    where = np.asarray(first.data).ctypes.data
    kept = first[3]
    second = ags1.encrypt_many(ITEMS, KEY, out=room)
    assert np.asarray(second.data).ctypes.data != where
    assert opened(first) == opened(second) == ITEMS
    del first
    third = ags1.encrypt_many([b"other"], KEY, out=room)
    assert ags1.decrypt(kept, KEY) == ITEMS[3], "a memoryview of an old result must not change"
    del kept, second, third
    fourth = ags1.encrypt_many(ITEMS, KEY, out=room)
    del fourth
    gc.collect()
    places = set()
    for _ in range(20):
        result = ags1.encrypt_many(ITEMS, KEY, out=room)
        places.add(np.asarray(result.data).ctypes.data)
        assert opened(result) == ITEMS
    assert len(places) <= 2
    column = result.to_arrow()
    expected = column.to_pylist()
    for _ in range(5):
        ags1.encrypt_many([bytes(5000)] * 50, KEY, out=room)
    assert column.to_pylist() == expected


def test_a_reserved_batch_grows_with_what_is_put_into_it() -> None:
    room = ags1.Batch.reserve()
    for size in (0, 10, 100_000, 1 << 20, 5):
        items = [pattern(size, seed) for seed in range(4)]
        assert ags1.decrypt_many(ags1.encrypt_many(items, KEY, out=room), KEY, out=room) == items
    with pytest.raises(ValueError, match="must not be negative"):
        ags1.Batch.reserve(-1)
    for wrong in ({"nbytes": 1.9}, {"count": 1.9}, {"nbytes": "1"}, {"count": None}):
        with pytest.raises(TypeError, match="integer"):
            ags1.Batch.reserve(**wrong)  # type: ignore[arg-type]
    assert ags1.encrypt_many([b"a"], KEY, out=ags1.Batch.reserve(np.int64(5), np.uint8(1)))  # type: ignore[arg-type]


def test_threads_share_a_reserved_batch() -> None:
    room = ags1.Batch.reserve()
    failures: list[Any] = []

    def work(seed: int) -> None:
        for turn in range(50):
            items = [pattern(200, seed * 1000 + turn + index) for index in range(50)]
            if texts(ags1.decrypt_many(ags1.encrypt_many(items, KEY, out=room), KEY, out=room)) != items:
                failures.append((seed, turn))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
