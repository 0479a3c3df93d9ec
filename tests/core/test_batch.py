"""Many buffers in one call: each a stream of its own, one arena for the results, the damaged one named."""

from __future__ import annotations

import contextlib
import gc
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ags1
from tests import reference
from tests.checks import (
    BUFFER_KINDS,
    KEY,
    KEYS,
    MIB,
    NON_CONTIGUOUS,
    OTHER_KEY,
    PREFIX,
    BufferKind,
    damage,
    flip,
    in_child,
    in_threads,
    nonces_of,
    pattern,
)

MIXED_LENGTHS = (0, 1, 99, 100, 101, 0, 250, 64 << 10, MIB - 1, MIB, MIB + 1, 0, 3 * MIB, 7)


def mixed() -> list[bytes]:
    """Buffers of very different lengths."""
    return [pattern(length, seed) for seed, length in enumerate(MIXED_LENGTHS)]


def plain(results: Iterable[Any]) -> list[bytes]:
    """Results as bytes."""
    return [bytes(result) for result in results]


# -- the format ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [None, 1, 2, 5])
def test_each_result_is_the_stream_of_its_buffer(threads: int | None) -> None:
    buffers = mixed()
    streams = ags1.encrypt_many(buffers, KEY, threads=threads)
    assert [len(stream) for stream in streams] == [ags1.encrypted_length(length) for length in MIXED_LENGTHS]
    assert [reference.decrypt(bytes(stream), KEY) for stream in streams] == buffers
    assert plain(ags1.decrypt_many(streams, KEY, threads=threads)) == buffers


@pytest.mark.parametrize("threads", [None, 1, 2, 5])
def test_streams_of_the_reference_are_read(threads: int | None) -> None:
    buffers = mixed()
    streams = [reference.encrypt(data, KEY, block_length=MIB // 4) for data in buffers]
    assert plain(ags1.decrypt_many(streams, KEY, threads=threads)) == buffers


@given(
    buffers=st.lists(st.binary(max_size=300), max_size=20),
    block_length=st.integers(1, 200),
    threads=st.sampled_from([None, 1, 3]),
)
def test_decrypt_many_undoes_encrypt_many(buffers: list[bytes], block_length: int, threads: int | None) -> None:
    prefixes = [data[:7] for data in buffers]
    streams = ags1.encrypt_many(buffers, KEY, aad_prefixes=prefixes, block_length=block_length, threads=threads)
    lengths = [len(stream) for stream in streams]
    again = ags1.decrypt_many(streams, KEY, aad_prefixes=prefixes, lengths=lengths, threads=threads)
    assert plain(again) == buffers
    for stream, prefix, data in zip(streams, prefixes, buffers, strict=True):
        assert reference.decrypt(bytes(stream), KEY, prefix) == data


@pytest.mark.parametrize("threads", [None, 1, 3])
def test_streams_of_different_block_lengths_go_together(threads: int | None) -> None:
    buffers = [pattern(1000, seed) for seed in range(6)]
    streams = [
        ags1.encrypt(data, KEY, block_length=block_length)
        for data, block_length in zip(buffers, (1, 16, 100, 999, 1000, MIB), strict=True)
    ]
    assert plain(ags1.decrypt_many(streams, KEY, threads=threads)) == buffers


@pytest.mark.parametrize("threads", [None, 1, 3])
def test_each_buffer_may_have_its_own_key_and_prefix(threads: int | None) -> None:
    buffers = [pattern(length, 1) for length in (0, 500, 3 * MIB, 1)]
    keys = [KEYS[16], ags1.Key(KEYS[24]), bytearray(KEYS[32]), KEYS[16]]
    prefixes = [b"", PREFIX, bytearray(b"another"), memoryview(b"x" * 5000)]
    streams = ags1.encrypt_many(buffers, keys, aad_prefixes=prefixes, threads=threads)
    for stream, key, prefix, data in zip(streams, keys, prefixes, buffers, strict=True):
        assert reference.decrypt(bytes(stream), bytes(key), bytes(prefix)) == data
    assert plain(ags1.decrypt_many(streams, tuple(keys), aad_prefixes=prefixes, threads=threads)) == buffers


def test_streams_that_changed_places_are_refused_under_their_prefixes() -> None:
    first, second = ags1.encrypt_many([b"first", b"second"], KEY, aad_prefixes=[b"1", b"2"])
    with pytest.raises(ags1.AuthenticationError, match=r"^buffer 0: block 0 failed"):
        ags1.decrypt_many([second, first], KEY, aad_prefixes=[b"1", b"2"])


def test_no_buffers_give_no_results() -> None:
    assert ags1.encrypt_many([], KEY) == []
    assert ags1.decrypt_many([], KEY) == []
    assert ags1.encrypt_many([], [], aad_prefixes=[]) == []
    assert ags1.decrypt_many((), (), aad_prefixes=(), lengths=()) == []


def test_a_batch_of_nothing_but_empty_buffers() -> None:
    streams = ags1.encrypt_many([b""] * 100, KEY)
    assert {len(stream) for stream in streams} == {36}
    assert plain(ags1.decrypt_many(streams, KEY)) == [b""] * 100
    with pytest.raises(ags1.AuthenticationError, match=r"^buffer 0: block 0 failed"):
        ags1.decrypt_many(streams, OTHER_KEY)


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.timeout(60)
def test_more_buffers_than_are_held_or_have_their_nonces_drawn_at_once(threads: int) -> None:
    buffers = [index.to_bytes(3, "little") for index in range((1 << 17) + 4097)]
    streams = ags1.encrypt_many(buffers, KEY, threads=threads)
    assert plain(ags1.decrypt_many(streams, KEY, threads=threads)) == buffers
    assert len({bytes(stream[8:20]) for stream in streams}) == len(buffers)
    damaged = [*streams[:100_000], flip(bytes(streams[100_000]), 22), *streams[100_001:]]
    with pytest.raises(ags1.AuthenticationError, match=r"^buffer 100000: block 0 failed"):
        ags1.decrypt_many(damaged, KEY, threads=threads)


@pytest.mark.parametrize("threads", [1, 3])
def test_a_buffer_of_more_blocks_than_nonces_are_drawn_for_at_once_among_others(threads: int) -> None:
    buffers = [b"before", pattern((1 << 17) + 3), b"", b"after"]
    streams = ags1.encrypt_many(buffers, KEY, block_length=1, threads=threads)
    assert plain(ags1.decrypt_many(streams, KEY, threads=threads)) == buffers
    nonces = [nonce for stream in streams for nonce in nonces_of(bytes(stream), 1)]
    assert len(set(nonces)) == len(nonces)


def test_no_nonce_repeats_between_batches_and_across_forks() -> None:
    def nonces() -> bytes:
        return b"".join(bytes(stream[8:20]) for stream in ags1.encrypt_many([b"same"] * 200, KEY))

    drawn = [nonces(), in_child(nonces), in_child(nonces), nonces()]
    every = [each[start : start + 12] for each in drawn for start in range(0, len(each), 12)]
    assert len(set(every)) == len(every) == 800


# -- arguments -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", BUFFER_KINDS, ids=str)
def test_buffers_may_be_of_any_kind_and_mixed(kind: BufferKind) -> None:
    data = pattern(kind.rounded(128))
    streams = ags1.encrypt_many([kind.make(data), b"bytes", kind.make(data)], KEY, block_length=100)
    assert [reference.decrypt(bytes(stream), KEY) for stream in streams] == [data, b"bytes", data]
    assert len(streams[0]) == 192
    assert plain(ags1.decrypt_many([kind.make(bytes(streams[0])), streams[1]], KEY)) == [data, b"bytes"]


def test_buffers_may_come_from_a_generator() -> None:
    def streams() -> Iterator[memoryview]:
        yield from ags1.encrypt_many((data for data in mixed()), KEY)

    assert plain(ags1.decrypt_many(streams(), KEY)) == mixed()


def test_an_error_of_the_generator_is_the_callers_error() -> None:
    def broken() -> Iterator[bytes]:
        yield b"one"
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        ags1.encrypt_many(broken(), KEY)


@pytest.mark.parametrize("function", [ags1.encrypt_many, ags1.decrypt_many])
@pytest.mark.parametrize("count", [0, 1, 3])
def test_counts_that_do_not_agree_are_refused(function: Any, count: int) -> None:
    with pytest.raises(ValueError, match=f"{count} keys for 2 buffers: give one for all, or one each"):
        function([b"", b""], [KEY] * count)
    with pytest.raises(ValueError, match=f"{count} aad_prefixes for 2 buffers: give one each"):
        function([b"", b""], KEY, aad_prefixes=[PREFIX] * count)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_wrong_count_of_lengths_is_refused(count: int) -> None:
    with pytest.raises(ValueError, match=f"{count} lengths for 2 buffers: give one each"):
        ags1.decrypt_many([b"", b""], KEY, lengths=[36] * count)


@pytest.mark.parametrize("prefix", [b"ab", bytearray(b"ab"), memoryview(b"ab")], ids=type)
def test_one_prefix_is_that_of_every_buffer(prefix: Any) -> None:
    streams = ags1.encrypt_many([b"1", b"2"], KEY, aad_prefixes=prefix)
    assert [reference.decrypt(bytes(stream), KEY, b"ab") for stream in streams] == [b"1", b"2"]
    assert ags1.decrypt_many(streams, KEY, aad_prefixes=prefix) == [b"1", b"2"]


def test_text_is_no_prefix() -> None:
    # A sequence of two letters is what it would be taken for.
    for function in (ags1.encrypt_many, ags1.decrypt_many):
        with pytest.raises(TypeError, match="aad_prefixes must be one prefix for all buffers, or one each, as bytes"):
            function([b"", b""], KEY, aad_prefixes="ab")


@pytest.mark.parametrize("function", [ags1.encrypt_many, ags1.decrypt_many])
def test_the_wrong_one_of_many_arguments_is_named(function: Any) -> None:
    good = ags1.encrypt(b"", KEY)
    with pytest.raises(TypeError, match=r"^buffer 2 must be a bytes-like object .*not str; encode it first"):
        function([good, good, "text"], KEY)
    with pytest.raises(TypeError, match=r"^buffer 1 must be a bytes-like object .*not NoneType"):
        function([good, None], KEY)
    with pytest.raises(ValueError, match=r"^buffer 1: key must be 16, 24 or 32 bytes .* got 5"):
        function([good, good], [KEY, b"short"])
    with pytest.raises(TypeError, match=r"^buffer 1: key must be a bytes-like object .*not NoneType"):
        function([good, good], [KEY, None])
    with pytest.raises(TypeError, match=r"^aad_prefix of buffer 1 must be a bytes-like object .*not NoneType"):
        function([good, good], KEY, aad_prefixes=[b"", None])


@pytest.mark.parametrize("make", NON_CONTIGUOUS.values(), ids=NON_CONTIGUOUS)
def test_memory_with_gaps_is_refused_and_the_buffer_named(make: Callable[[], Any]) -> None:
    for function in (ags1.encrypt_many, ags1.decrypt_many):
        with pytest.raises(ValueError, match=r"^buffer 0 must be C-contiguous"):
            function([make()], KEY)


def test_an_array_of_objects_is_refused_and_the_buffer_named() -> None:
    numpy = pytest.importorskip("numpy")
    with pytest.raises(TypeError, match=r"^buffer 1 is an array of Python objects"):
        ags1.encrypt_many([b"", numpy.array(["a", None], object)], KEY)


@pytest.mark.parametrize("block_length", [0, -1, 1 << 31])
def test_impossible_block_lengths_are_refused(block_length: int) -> None:
    with pytest.raises(ValueError, match="block_length must be 1 to 2147483647"):
        ags1.encrypt_many([b""], KEY, block_length=block_length)


def test_bad_numbers_are_refused_even_for_no_buffers() -> None:
    for function in (ags1.encrypt_many, ags1.decrypt_many):
        with pytest.raises(ValueError, match="threads must be at least 1, got 0"):
            function([], KEY, threads=0)
        with pytest.raises(TypeError, match="threads must be an integer or None, not str"):
            function([], KEY, threads="2")
    with pytest.raises(TypeError):
        ags1.encrypt_many([], KEY, block_length=1.5)


@pytest.mark.parametrize("function", [ags1.encrypt_many, ags1.decrypt_many])
def test_failed_calls_hold_no_buffer(function: Any) -> None:
    owners = [bytearray(100), bytearray(100)]
    with pytest.raises((TypeError, ags1.FormatError)):
        function([*owners, None], KEY)
    gc.collect()
    for owner in owners:
        owner.append(1)


# -- results -------------------------------------------------------------------------------------------------


def test_results_share_one_arena_and_are_read_only() -> None:
    for results in (ags1.encrypt_many(mixed(), KEY), ags1.decrypt_many(ags1.encrypt_many(mixed(), KEY), KEY)):
        assert len({id(result.obj) for result in results}) == 1
        for result in results:
            assert (result.readonly, result.format, result.contiguous) == (True, "B", True)
        with pytest.raises(TypeError, match="read-only"):
            results[1][0] = 0


def test_results_outlive_their_buffers_and_each_other() -> None:
    buffers = [bytearray(b"one"), bytearray(b"two")]
    _, second = ags1.encrypt_many(buffers, KEY)
    buffers[1][:] = b"gone"
    buffers.clear()
    gc.collect()
    assert ags1.decrypt(second, KEY) == b"two"


# -- damage --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.timeout(60)
def test_one_damaged_buffer_of_many_is_named_with_its_block(threads: int) -> None:
    buffers = [pattern(5000, seed) for seed in range(300)]
    streams: list[Any] = list(ags1.encrypt_many(buffers, KEY, block_length=1000))
    streams[217] = damage(bytes(streams[217]), 1000, 3)
    with pytest.raises(ags1.AuthenticationError, match=r"^buffer 217: block 3 failed authentication") as caught:
        ags1.decrypt_many(streams, KEY, threads=threads)
    assert caught.value.block_index == 3


@pytest.mark.parametrize("threads", [2, 3, 16])
@pytest.mark.timeout(60)
def test_the_first_of_several_damaged_buffers_is_named_whatever_the_threads_do(threads: int) -> None:
    streams: list[Any] = list(ags1.encrypt_many([pattern(8000, seed) for seed in range(300)], KEY, block_length=1000))
    for index, block in ((250, 0), (90, 7), (90, 5), (91, 0), (299, 1)):
        streams[index] = damage(bytes(streams[index]), 1000, block)
    for _ in range(20):
        with pytest.raises(ags1.AuthenticationError, match=r"^buffer 90: block 5 failed"):
            ags1.decrypt_many(streams, KEY, threads=threads)


@pytest.mark.parametrize("threads", [2, 3, 8])
@pytest.mark.timeout(60)
def test_the_first_buffer_is_named_when_all_are_damaged(threads: int) -> None:
    streams = ags1.encrypt_many([pattern(8000, seed) for seed in range(300)], KEY, block_length=1000)
    for _ in range(100):
        with pytest.raises(ags1.AuthenticationError, match=r"^buffer 0: block 0 failed"):
            ags1.decrypt_many(streams, OTHER_KEY, threads=threads)


@pytest.mark.parametrize(
    ("broken", "error", "message"),
    [
        (b"", ags1.TruncatedError, "^buffer 1: only 0 bytes"),
        (
            b"PAR1" + bytes(50),
            ags1.FormatError,
            "^buffer 1: not an AGS1 stream: it starts like a Parquet file",
        ),
        (b"AGS1" + bytes(50), ags1.FormatError, "^buffer 1: the header's block length is 0"),
        (b"AGS1\x64\x00\x00\x00" + bytes(27), ags1.TruncatedError, "^buffer 1: 35 bytes is shorter than"),
        (
            b"AGS1\x64\x00\x00\x00" + bytes(156),
            ags1.FormatError,
            "^buffer 1: .*an empty block after full ones",
        ),
    ],
)
def test_a_buffer_that_is_no_stream_is_named(broken: bytes, error: type[Exception], message: str) -> None:
    good = ags1.encrypt(b"good", KEY)
    with pytest.raises(error, match=message):
        ags1.decrypt_many([good, broken, good], KEY)


def test_lengths_are_trusted_for_each_buffer() -> None:
    streams = [bytes(stream) for stream in ags1.encrypt_many([pattern(250), b"two"], KEY, block_length=100)]
    lengths = [len(stream) for stream in streams]
    assert plain(ags1.decrypt_many(streams, KEY, lengths=lengths)) == [pattern(250), b"two"]
    assert plain(ags1.decrypt_many(streams, KEY, lengths=[None, lengths[1]])) == [pattern(250), b"two"]
    cut = streams[0][: 8 + 128]
    assert bytes(ags1.decrypt_many([cut, streams[1]], KEY)[0]) == pattern(250)[:100]
    with pytest.raises(ags1.TruncatedError, match=f"^buffer 0: has 136 bytes, but its trusted length is {lengths[0]}"):
        ags1.decrypt_many([cut, streams[1]], KEY, lengths=lengths)
    with pytest.raises(ags1.FormatError, match=r"^buffer 1: has 39 bytes, but its trusted length is 38"):
        ags1.decrypt_many(streams, KEY, lengths=[None, 38])


@pytest.mark.parametrize(
    ("length", "error", "message"),
    [
        (-1, ValueError, "^buffer 0: length must not be negative, got -1"),
        (37.0, TypeError, "^buffer 0: length must be an integer or None, not float"),
        (True, TypeError, "^buffer 0: length must be an integer or None, not bool"),
        ("37", TypeError, "^buffer 0: length must be an integer or None, not str"),
    ],
)
def test_lengths_that_are_no_lengths_are_refused(length: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        ags1.decrypt_many([ags1.encrypt(b"1", KEY)], KEY, lengths=[length])
    assert not isinstance(caught.value, ags1.FormatError)


class Meddling(int):
    """A thread count that runs the caller's code after the buffers were measured."""

    meddle: Callable[[], object]

    def __lt__(self, other: object) -> bool:
        self.meddle()
        return False


@pytest.mark.parametrize("change", [lambda owner: owner.extend(bytes(1 << 20)), lambda owner: owner.clear()])
@pytest.mark.parametrize("position", [0, 1, 2])
def test_a_buffer_that_changes_its_size_meanwhile_is_refused(
    change: Callable[[bytearray], object], position: int
) -> None:
    owners = [bytearray(pattern(1000, seed)) for seed in range(3)]
    threads = Meddling(1)
    threads.meddle = lambda: change(owners[position])
    with pytest.raises(ValueError, match=f"^buffer {position} changed its size"):
        ags1.encrypt_many(owners, KEY, threads=threads)
    owners = [bytearray(ags1.encrypt(pattern(1000), KEY)) for _ in range(3)]
    threads.meddle = lambda: change(owners[position])
    with pytest.raises(ValueError, match=f"^buffer {position}"):
        ags1.decrypt_many(owners, KEY, threads=threads)


@pytest.mark.parametrize("function", [ags1.encrypt_many, ags1.decrypt_many])
@pytest.mark.timeout(60)
def test_an_error_while_others_are_at_work_waits_for_them_and_lets_everything_go(function: Any) -> None:
    # Enough for several rounds, so that the last buffer is looked at while threads work on the first ones.
    stream = ags1.encrypt(bytes(2000), KEY)
    owners = [bytearray(stream) for _ in range(20_000)]
    threads = Meddling(4)
    threads.meddle = lambda: owners[-1].clear()
    with pytest.raises(ValueError, match=r"^buffer 19999"):
        function(owners, KEY, threads=threads)
    for owner in owners:
        owner.clear()


def test_a_block_length_that_changes_meanwhile_cannot_move_the_results() -> None:
    owner = bytearray(ags1.encrypt(pattern(1000), KEY, block_length=1000))
    threads = Meddling(1)

    def meddle() -> None:
        # The same size, but now 10 blocks: less plaintext than there was room made for.
        owner[4:8] = (75).to_bytes(4, "little")

    threads.meddle = meddle
    with pytest.raises(ValueError, match="buffer 0"):
        ags1.decrypt_many([owner], KEY, threads=threads)


# -- threads -------------------------------------------------------------------------------------------------


@pytest.mark.timeout(120)
def test_many_python_threads_run_batches_at_once() -> None:
    key, buffers = ags1.Key(KEY), mixed()

    def work() -> bool:
        streams = ags1.encrypt_many(buffers, key, threads=2)
        return plain(ags1.decrypt_many(streams, key, threads=3)) == buffers

    assert all(in_threads([work] * 8))


@pytest.mark.timeout(90)
def test_python_runs_while_a_batch_is_encrypted() -> None:
    # A buffer that the call holds cannot be resized: Python code sees that only in the middle of the call.
    owner = bytearray(24 * MIB)
    seen, stop = threading.Event(), threading.Event()

    def watch() -> None:
        while not stop.is_set() and not seen.is_set():
            try:
                owner.append(0)
                owner.pop()
            except BufferError:
                seen.set()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    deadline = time.monotonic() + 600
    while not seen.is_set() and time.monotonic() < deadline:
        # The watcher may change the size between measuring and holding; the next attempt comes soon.
        with contextlib.suppress(ValueError):
            ags1.encrypt_many([owner], KEY, threads=1)
    stop.set()
    watcher.join(600)
    assert seen.is_set()
