"""Blocks in memory: positions are authenticated, limits hold, threads share the work, the GIL is free."""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import ags1
from ags1.core import blocks as native_blocks
from tests import reference
from tests.checks import (
    KEY,
    MIB,
    OTHER_KEY,
    OVERHEAD,
    PREFIX,
    blocks_of,
    edge_lengths,
    flip,
    in_threads,
    large,
    nonces_of,
    os_threads,
    pattern,
)

MAX_BLOCKS = (1 << 31) - 1
# More blocks than have their nonces drawn at once.
BEYOND_WINDOW = (1 << 17) + 5


def seal(data: bytes, block_length: int, first_block: int, threads: int | None = 1, prefix: bytes = PREFIX) -> bytes:
    """Blocks of the data, without a header."""
    out = bytearray(len(data) + OVERHEAD * max(1, -(-len(data) // block_length)))
    assert native_blocks.seal_blocks(data, out, KEY, prefix, block_length, first_block, threads) == len(out)
    return bytes(out)


def open_(data: bytes, block_length: int, first_block: int, threads: int | None = 1, **more: Any) -> bytes:
    """Plaintext of blocks without a header."""
    out = bytearray(len(data))
    count = native_blocks.open_blocks(data, out, KEY, PREFIX, block_length, first_block, threads, **more)
    return bytes(out[:count])


@pytest.mark.parametrize("first_block", [0, 1, 255, 256, 65_535, 1 << 24, MAX_BLOCKS - 4])
def test_blocks_carry_their_position_as_the_reference_has_it(first_block: int) -> None:
    for length in edge_lengths(50):
        data = pattern(length)
        sealed = seal(data, 50, first_block)
        again = b""
        for number, block in enumerate(blocks_of(bytes(8) + sealed, 50)):
            part = data[50 * number : 50 * number + 50]
            again += reference.seal_block(part, KEY, PREFIX, first_block + number, block[:12])
        assert sealed == again
        assert open_(sealed, 50, first_block) == data


def test_a_block_opens_at_its_own_position_only() -> None:
    sealed = seal(pattern(150), 50, 7)
    for first_block in (0, 6, 8, 7 + (1 << 8), MAX_BLOCKS - 3):
        with pytest.raises(ags1.AuthenticationError, match=f"^block {first_block} failed authentication"):
            open_(sealed, 50, first_block)


def test_blocks_that_change_places_fail() -> None:
    first, second = blocks_of(bytes(8) + seal(pattern(100), 50, 0), 50)
    with pytest.raises(ags1.AuthenticationError, match=r"^block 0 failed"):
        open_(second + first, 50, 0)
    with pytest.raises(ags1.AuthenticationError, match=r"^block 1 failed"):
        open_(first + first, 50, 0)


def test_the_error_names_the_stream_and_the_position_in_it() -> None:
    sealed = flip(seal(pattern(150), 50, 7), 78 + 20)
    with pytest.raises(ags1.AuthenticationError, match=r"^a/b\.avro: block 8 failed authentication") as caught:
        open_(sealed, 50, 7, name="a/b.avro")
    assert caught.value.block_index == 8


def test_no_block_has_an_index_that_an_int32_cannot_hold() -> None:
    assert open_(seal(b"last", 50, MAX_BLOCKS - 1), 50, MAX_BLOCKS - 1) == b"last"
    for first_block, length in ((MAX_BLOCKS, 1), (MAX_BLOCKS - 1, 51), (1 << 32, 1), (1 << 70, 1)):
        with pytest.raises(ags1.LimitError, match=f"above the {MAX_BLOCKS} blocks that a stream can have"):
            seal(bytes(length), 50, first_block)
        with pytest.raises(ags1.LimitError, match=f"above the {MAX_BLOCKS} blocks that a stream can have"):
            open_(bytes(length + OVERHEAD * -(-length // 50)), 50, first_block)


@pytest.mark.parametrize("prefix_length", [0, 1, 16, 507, 508, 509, 4096, 100_000])
@pytest.mark.parametrize("threads", [1, 3])
def test_prefixes_of_any_length_are_authenticated_to_their_last_byte(prefix_length: int, threads: int) -> None:
    prefix, data = pattern(prefix_length), pattern(5 * 64 << 10)
    stream = ags1.encrypt(data, KEY, aad_prefix=prefix, block_length=64 << 10, threads=threads)
    assert reference.decrypt(stream, KEY, prefix) == data
    assert ags1.decrypt(stream, KEY, aad_prefix=prefix, threads=threads) == data
    if prefix:
        with pytest.raises(ags1.AuthenticationError, match=r"^block 0 failed"):
            ags1.decrypt(stream, KEY, aad_prefix=flip(prefix, -1), threads=threads)


@pytest.mark.parametrize("nbytes", [0, 1, 27, 78 + 1, 78 + 27, 78 + 28])
def test_what_is_not_whole_blocks_is_refused(nbytes: int) -> None:
    with pytest.raises(ValueError, match=rf"{nbytes} bytes are not whole blocks of 50 \+ 28 bytes"):
        open_(bytes(nbytes), 50, 0)


def test_out_must_have_room_and_must_be_elsewhere() -> None:
    memory = memoryview(bytearray(1000))
    with pytest.raises(ValueError, match="out has 155 bytes, but 2 blocks of this data take 156"):
        native_blocks.seal_blocks(bytes(100), memory[:155], KEY, PREFIX, 50, 0, 1)
    with pytest.raises(ValueError, match="out has 99 bytes, but the plaintext has 100"):
        native_blocks.open_blocks(bytes(156), memory[:99], KEY, PREFIX, 50, 0, 1)
    with pytest.raises(ValueError, match="data and out overlap"):
        native_blocks.seal_blocks(memory[:100], memory[99:500], KEY, PREFIX, 50, 0, 1)
    with pytest.raises(ValueError, match="data and out overlap"):
        native_blocks.open_blocks(memory[:156], memory[155:500], KEY, PREFIX, 50, 0, 1)
    with pytest.raises(ValueError, match="data and out overlap"):
        native_blocks.open_blocks(memory[:156], memory[12:], KEY, PREFIX, 50, 0, 1)


def test_one_block_is_opened_where_it_is() -> None:
    memory = memoryview(bytearray(ags1.encrypt(b"plaintext", KEY, aad_prefix=PREFIX)))
    assert native_blocks.open_blocks(memory[8:], memory[20:29], KEY, PREFIX, 1 << 20, 0, 1) == 9
    assert memory[20:29] == b"plaintext"
    with pytest.raises(ags1.AuthenticationError):
        native_blocks.open_blocks(memory[8:], memory[20:29], KEY, PREFIX, 1 << 20, 0, 1)
    assert not any(memory[20:29])


@pytest.mark.parametrize("block_length", [0, -1, 1 << 31])
def test_impossible_block_lengths_are_refused(block_length: int) -> None:
    with pytest.raises(ValueError, match="block_length must be 1 to 2147483647"):
        native_blocks.seal_blocks(b"", bytearray(100), KEY, PREFIX, block_length, 0, 1)
    with pytest.raises(ValueError, match="block_length must be 1 to 2147483647"):
        native_blocks.open_blocks(bytes(28), bytearray(100), KEY, PREFIX, block_length, 0, 1)


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.timeout(60)
def test_streams_of_more_blocks_than_nonces_are_drawn_for_at_once(threads: int) -> None:
    data = pattern(BEYOND_WINDOW)
    stream = ags1.encrypt(data, KEY, block_length=1, threads=threads)
    assert ags1.decrypt(stream, KEY, threads=threads) == data
    assert len(set(nonces_of(stream, 1))) == BEYOND_WINDOW
    # Blocks behind the window's end, by their own position.
    tail = blocks_of(stream, 1)[-7:]
    assert b"".join(open_one(block, BEYOND_WINDOW - 7 + number) for number, block in enumerate(tail)) == data[-7:]


def open_one(block: bytes, index: int) -> bytes:
    """Plaintext of one block of a stream without a prefix."""
    out = bytearray(1)
    native_blocks.open_blocks(block, out, KEY, b"", 1, index, 1)
    return bytes(out)


@pytest.mark.parametrize("block_length", [1 << 12, 1 << 16, 1 << 20, 3 * MIB + 1, 1 << 26])
@pytest.mark.parametrize("threads", [1, 2, 3, 7, 64])
@pytest.mark.timeout(60)
def test_every_block_is_converted_once_however_it_is_shared_out(block_length: int, threads: int) -> None:
    data = large()[: 9 * MIB + 17]
    stream = ags1.encrypt(data, KEY, block_length=block_length, threads=threads)
    assert ags1.decrypt(stream, KEY, threads=1) == data
    assert ags1.decrypt(stream, KEY, threads=threads) == data


# -- threads -------------------------------------------------------------------------------------------------


def most_threads_during(call: Callable[[], Any], enough: Callable[[list[int]], bool]) -> int:
    """How many threads were seen at once inside repeated calls that were not there before them."""
    inside, stop = threading.Event(), threading.Event()
    known: frozenset[str] = frozenset()
    seen: list[int] = []

    def watch() -> None:
        while not stop.is_set():
            if inside.is_set():
                found = os_threads()
                # Still inside: what was found belongs to the call.
                if inside.is_set():
                    seen.append(len(found - known))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    # By their ids: a thread that has just ended may be listed a little longer.
    known = os_threads()
    deadline = time.monotonic() + 600
    try:
        while not enough(seen) and time.monotonic() < deadline:
            inside.set()
            call()
            inside.clear()
    finally:
        stop.set()
        watcher.join(600)
    return max(seen)


@pytest.mark.parametrize("function", [ags1.encrypt, ags1.decrypt])
@pytest.mark.timeout(90)
def test_one_thread_means_that_no_thread_is_started(function: Any) -> None:
    data = ags1.encrypt(large(), KEY)
    started = most_threads_during(lambda: function(data, KEY, threads=1), lambda seen: len(seen) > 500)
    assert started == 0


@pytest.mark.parametrize("function", [ags1.encrypt, ags1.decrypt])
@pytest.mark.timeout(90)
def test_four_threads_are_the_caller_and_three_more(function: Any) -> None:
    data = ags1.encrypt(large(), KEY)
    started = most_threads_during(lambda: function(data, KEY, threads=4), lambda seen: 3 in seen)
    assert started >= 3


@pytest.mark.timeout(60)
def test_no_thread_outlives_its_call() -> None:
    before = os_threads()
    ags1.decrypt(ags1.encrypt(large(), KEY, threads=8), KEY, threads=8)
    # The kernel may list a thread a little longer than it runs.
    deadline = time.monotonic() + 600
    while os_threads() - before and time.monotonic() < deadline:
        os.sched_yield()
    assert not os_threads() - before


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="threads choose their processors on Linux only")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("count", [1, 2])
def test_threads_may_run_wherever_their_caller_may(count: int) -> None:
    """They begin on other processors than the caller's, if there are any; after that they are bound to none."""
    allowed = os.sched_getaffinity(0)
    mine = set(sorted(allowed)[:count])
    data = ags1.encrypt(large(), KEY)
    stop = threading.Event()
    masks: list[set[int]] = []

    def watch() -> None:
        known = before | {str(threading.get_native_id())}
        while not stop.is_set():
            for thread in os_threads() - known:
                with contextlib.suppress(OSError):
                    masks.append(os.sched_getaffinity(int(thread)))

    watcher = threading.Thread(target=watch, daemon=True)
    before = os_threads()
    watcher.start()
    deadline = time.monotonic() + 500
    os.sched_setaffinity(0, mine)
    try:
        while mine not in masks and time.monotonic() < deadline:
            assert ags1.decrypt(data, KEY, threads=3) == large()
    finally:
        os.sched_setaffinity(0, allowed)
        stop.set()
        watcher.join(600)
    assert mine in masks
    assert all(mask <= mine for mask in masks)


@pytest.mark.timeout(60)
def test_little_data_starts_no_thread_by_default() -> None:
    data = bytes(64 << 10)
    assert most_threads_during(lambda: ags1.encrypt(data, KEY), lambda seen: len(seen) > 200) == 0


def is_seen_half_done(call: Callable[[bytearray], Any], size: int, first: slice) -> bool:
    """Whether another thread's Python code sees that `call` has written the first bytes of a buffer only.

    That code can only have run in the middle of the call.
    """
    out = bytearray(size)
    # Odd while `out` was clear before the call: what is seen while it is being cleared proves nothing.
    phase = 0
    seen, stop = threading.Event(), threading.Event()

    def watch() -> None:
        while not stop.is_set() and not seen.is_set():
            before = phase
            is_half_done = any(out[first]) and not any(out[-16:])
            if is_half_done and before % 2 == 1 and before == phase:
                seen.set()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    deadline = time.monotonic() + 600
    while not seen.is_set() and time.monotonic() < deadline:
        phase += 1
        call(out)
        phase += 1
        out[:] = bytes(size)
    stop.set()
    watcher.join(600)
    return seen.is_set()


@pytest.mark.timeout(120)
def test_python_runs_while_a_stream_is_encrypted() -> None:
    # The header may be written before the GIL is released; the first nonce is not.
    assert is_seen_half_done(
        lambda out: ags1.encrypt_into(large(), out, KEY, threads=1),
        ags1.encrypted_length(len(large())),
        slice(8, 20),
    )


@pytest.mark.timeout(120)
def test_python_runs_while_a_stream_is_decrypted() -> None:
    data = b"\xff" * len(large())
    stream = ags1.encrypt(data, KEY)
    assert is_seen_half_done(lambda out: ags1.decrypt_into(stream, out, KEY, threads=1), len(data), slice(0, 16))


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.timeout(120)
def test_many_python_threads_share_one_key_and_one_source(threads: int) -> None:
    key, data = ags1.Key(KEY), large()[: 5 * MIB + 3]
    bad = flip(ags1.encrypt(data, key), 8 + MIB)

    def work() -> list[bytes]:
        nonces = []
        for _ in range(3):
            stream = ags1.encrypt(data, key, aad_prefix=PREFIX, threads=threads)
            assert ags1.decrypt(stream, key, aad_prefix=PREFIX, threads=threads) == data
            with pytest.raises(ags1.AuthenticationError, match=r"^block 0 failed"):
                ags1.decrypt(bad, key, threads=threads)
            nonces += nonces_of(stream, MIB)
        return nonces

    nonces = [nonce for found in in_threads([work] * 8) for nonce in found]
    assert len(set(nonces)) == len(nonces) == 8 * 3 * 6


@pytest.mark.timeout(60)
def test_a_failure_in_one_python_thread_is_not_another_threads() -> None:
    good = ags1.encrypt(large()[:MIB], KEY)

    def succeed() -> int:
        return sum(ags1.decrypt(good, KEY) == large()[:MIB] for _ in range(50))

    def fail() -> int:
        failures = 0
        for _ in range(50):
            with pytest.raises(ags1.AuthenticationError):
                ags1.decrypt(good, OTHER_KEY)
            failures += 1
        return failures

    assert in_threads([succeed, fail, succeed, fail]) == [50] * 4


# -- fresh memory --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [0, 1, 2, 100, 5 * MIB, 32 * MIB, 32 * MIB + 1, 34 * MIB - 64, 34 * MIB - 63])
def test_fresh_bytes_are_filled_through_their_view(length: int) -> None:
    fresh = native_blocks.fresh_bytes(length)
    with native_blocks.writable_view(fresh) as view:
        view[:] = pattern(length)
    assert fresh == pattern(length)
    assert len(fresh) == length
    # What takes bytes for a C string reads on to here.
    assert ctypes.string_at(id(fresh) + bytes.__basicsize__ - 1 + length, 1) == b"\0"
    assert bytes(0) == b""
    assert bytes([1]) == b"\x01"
