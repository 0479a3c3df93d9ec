"""One-shot functions: AGS1 comes out, whatever memory goes in; nothing is written that should not be."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ags1
from tests import reference
from tests.checks import (
    BUFFER_KINDS,
    KEY,
    KEY_LENGTHS,
    KEYS,
    MIB,
    NON_CONTIGUOUS,
    NOT_BUFFERS,
    OTHER_KEY,
    PREFIX,
    READ_ONLY_KINDS,
    WRITABLE_KINDS,
    BufferKind,
    damage,
    edge_lengths,
    flip,
    in_child,
    large,
    nonces_of,
    octets,
    pattern,
)

BLOCK = 100
# 192 bytes encrypted, 128 plain: multiples of every item size.
PLAIN = pattern(128)
STREAM = reference.encrypt(PLAIN, KEY, PREFIX, BLOCK)


def encrypt_into(data: Any, **arguments: Any) -> bytes:
    """What encrypt_into writes."""
    out = bytearray(ags1.encrypted_length(memoryview(data).nbytes, arguments.get("block_length", MIB)))
    assert ags1.encrypt_into(data, out, **arguments) == len(out)
    return bytes(out)


def decrypt_into(data: Any, **arguments: Any) -> bytes:
    """What decrypt_into writes."""
    out = bytearray(len(data))
    return bytes(out[: ags1.decrypt_into(data, out, **arguments)])


# -- the format ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encrypt", [ags1.encrypt, encrypt_into])
@pytest.mark.parametrize("key_length", KEY_LENGTHS)
@pytest.mark.parametrize("block_length", [1, 16, 100, 4096])
def test_the_reference_reads_what_ags1_writes(encrypt: Any, key_length: int, block_length: int) -> None:
    key = KEYS[key_length]
    for length in edge_lengths(block_length):
        data = pattern(length)
        for prefix in (b"", PREFIX):
            stream = encrypt(data, key=key, aad_prefix=prefix, block_length=block_length)
            assert len(stream) == ags1.encrypted_length(length, block_length)
            assert reference.decrypt(stream, key, prefix) == data


@pytest.mark.parametrize("decrypt", [ags1.decrypt, decrypt_into])
@pytest.mark.parametrize("key_length", KEY_LENGTHS)
@pytest.mark.parametrize("block_length", [1, 16, 100, 4096])
def test_ags1_reads_what_the_reference_writes(decrypt: Any, key_length: int, block_length: int) -> None:
    key = KEYS[key_length]
    for length in edge_lengths(block_length):
        data = pattern(length)
        for prefix in (b"", PREFIX):
            stream = reference.encrypt(data, key, prefix, block_length)
            assert decrypt(stream, key=key, aad_prefix=prefix) == data
            assert decrypt(stream, key=key, aad_prefix=prefix, length=len(stream)) == data


@pytest.mark.parametrize("length", edge_lengths(MIB))
@pytest.mark.parametrize("threads", [None, 1, 3])
def test_streams_of_the_default_block_length_agree_with_the_reference(length: int, threads: int | None) -> None:
    data = pattern(length)
    stream = ags1.encrypt(data, KEY, aad_prefix=PREFIX, threads=threads)
    assert stream[:8] == b"AGS1" + struct.pack("<I", MIB)
    assert reference.decrypt(stream, KEY, PREFIX) == data
    assert ags1.decrypt(reference.encrypt(data, KEY, PREFIX), KEY, aad_prefix=PREFIX, threads=threads) == data


@given(
    data=st.binary(max_size=2000),
    key=st.sampled_from(list(KEYS.values())),
    prefix=st.binary(max_size=600),
    block_length=st.integers(1, 700),
    threads=st.sampled_from([None, 1, 2, 7]),
)
def test_decrypt_undoes_encrypt(data: bytes, key: bytes, prefix: bytes, block_length: int, threads: int | None) -> None:
    stream = ags1.encrypt(data, key, aad_prefix=prefix, block_length=block_length, threads=threads)
    assert ags1.decrypt(stream, key, aad_prefix=prefix, length=len(stream), threads=threads) == data
    assert reference.decrypt(stream, key, prefix) == data


def test_the_largest_block_length_is_only_as_large_as_its_data() -> None:
    stream = ags1.encrypt(b"data", KEY, block_length=2**31 - 1)
    assert len(stream) == 40
    assert ags1.decrypt(stream, KEY) == b"data"


def test_an_empty_plaintext_is_authenticated_too() -> None:
    stream = ags1.encrypt(b"", KEY, aad_prefix=PREFIX)
    assert len(stream) == 36
    assert ags1.decrypt(stream, KEY, aad_prefix=PREFIX) == b""
    for wrong in (
        {"key": OTHER_KEY, "aad_prefix": PREFIX},
        {"key": KEY},
        {"key": KEY, "aad_prefix": b"another"},
    ):
        with pytest.raises(ags1.AuthenticationError, match="block 0 failed authentication"):
            ags1.decrypt(stream, **wrong)


# -- nonces --------------------------------------------------------------------------------------------------


def test_no_nonce_repeats_within_a_stream_or_between_streams_of_the_same_data() -> None:
    data = bytes(1000)
    nonces = [nonce for _ in range(20) for nonce in nonces_of(ags1.encrypt(data, KEY, block_length=1), 1)]
    assert len(nonces) == 20_000
    assert len(set(nonces)) == len(nonces)
    # A constant or counting part would leave fewer values in some byte.
    assert all(len({nonce[position] for nonce in nonces}) == 256 for position in range(12))


@pytest.mark.timeout(60)
def test_no_nonce_repeats_across_forks() -> None:
    def nonces() -> bytes:
        return b"".join(nonces_of(ags1.encrypt(bytes(200), KEY, block_length=1), 1))

    # The generator is in use before the forks, and the parent goes on after each of them.
    drawn = [nonces(), in_child(nonces), in_child(nonces), nonces(), in_child(nonces)]
    every = [each[start : start + 12] for each in drawn for start in range(0, len(each), 12)]
    assert len(every) == 1000
    assert len(set(every)) == 1000


@pytest.mark.timeout(60)
def test_a_forked_child_can_use_threads_after_its_parent_did() -> None:
    key = ags1.Key(KEY)
    stream = ags1.encrypt(large(), key, threads=4)

    def round_trip() -> bytes:
        again = ags1.encrypt(large(), key, threads=4)
        good = ags1.decrypt(stream, key, threads=4) == ags1.decrypt(again, key, threads=4) == large()
        return b"good" if good else b"bad"

    assert in_child(round_trip) == b"good"


# -- kinds of memory -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", BUFFER_KINDS, ids=str)
def test_data_may_be_any_kind_of_buffer(kind: BufferKind) -> None:
    data = kind.make(PLAIN)
    assert reference.decrypt(ags1.encrypt(data, KEY, block_length=BLOCK), KEY) == PLAIN
    assert reference.decrypt(encrypt_into(data, key=KEY, block_length=BLOCK), KEY) == PLAIN
    assert octets(data) == PLAIN
    stream = kind.make(STREAM)
    assert ags1.decrypt(stream, KEY, aad_prefix=PREFIX) == PLAIN
    assert ags1.decrypt(stream, KEY, aad_prefix=PREFIX, length=len(STREAM)) == PLAIN
    assert octets(stream) == STREAM


@pytest.mark.parametrize("kind", [kind for kind in BUFFER_KINDS if kind.may_be_empty], ids=str)
def test_empty_data_may_be_any_kind_of_buffer(kind: BufferKind) -> None:
    assert reference.decrypt(ags1.encrypt(kind.make(b""), KEY), KEY) == b""


@pytest.mark.parametrize("kind", WRITABLE_KINDS, ids=str)
def test_out_may_be_any_kind_of_writable_buffer(kind: BufferKind) -> None:
    out = kind.make(bytes(len(STREAM)))
    assert ags1.encrypt_into(PLAIN, out, KEY, aad_prefix=PREFIX, block_length=BLOCK) == len(STREAM)
    assert reference.decrypt(octets(out), KEY, PREFIX) == PLAIN
    out = kind.make(bytes(len(PLAIN)))
    assert ags1.decrypt_into(STREAM, out, KEY, aad_prefix=PREFIX) == len(PLAIN)
    assert octets(out) == PLAIN


@pytest.mark.parametrize("kind", BUFFER_KINDS, ids=str)
def test_key_and_prefix_may_be_any_kind_of_buffer(kind: BufferKind) -> None:
    stream = ags1.encrypt(PLAIN, kind.make(KEY), aad_prefix=kind.make(PREFIX))
    assert reference.decrypt(stream, KEY, PREFIX) == PLAIN
    assert ags1.decrypt(stream, ags1.Key(KEY), aad_prefix=kind.make(PREFIX)) == PLAIN


@pytest.mark.parametrize("kind", READ_ONLY_KINDS, ids=str)
@pytest.mark.parametrize("function", [ags1.encrypt_into, ags1.decrypt_into])
def test_a_read_only_out_is_refused(kind: BufferKind, function: Any) -> None:
    out = kind.make(bytes(1024))
    with pytest.raises(TypeError, match=f"out must be writable, but this {type(out).__name__} is read-only"):
        function(STREAM, out, KEY)
    assert octets(out) == bytes(1024)


@pytest.mark.parametrize("make", NON_CONTIGUOUS.values(), ids=NON_CONTIGUOUS)
def test_memory_with_gaps_is_refused_and_the_cure_named(make: Callable[[], Any]) -> None:
    calls: dict[str, Callable[[Any], Any]] = {
        "data": lambda buffer: ags1.encrypt(buffer, KEY),
        "out": lambda buffer: ags1.encrypt_into(b"", buffer, KEY),
        "key": lambda buffer: ags1.encrypt(b"", buffer),
        "aad_prefix": lambda buffer: ags1.encrypt(b"", KEY, aad_prefix=buffer),
    }
    for name, call in calls.items():
        with pytest.raises(ValueError, match=f"^{name} must be C-contiguous: pass a contiguous copy"):
            call(make())
    with pytest.raises(ValueError, match=r"^data must be C-contiguous"):
        ags1.decrypt(make(), KEY)
    with pytest.raises(ValueError, match=r"^out must be C-contiguous"):
        ags1.decrypt_into(STREAM, make(), KEY)


@pytest.mark.parametrize("function", [ags1.encrypt, ags1.decrypt])
def test_text_is_refused_with_the_hint_to_encode_it(function: Any) -> None:
    with pytest.raises(TypeError, match=r"^data must be a bytes-like object .*, not str; encode it first"):
        function("text", KEY)
    with pytest.raises(TypeError, match=r"^key must be a bytes-like object .*, not str; Key.load\(PATH\) reads one"):
        function(b"", "0123456789012345")
    with pytest.raises(TypeError, match=r"^aad_prefix must be a bytes-like object .*, not str; encode it first"):
        function(b"", KEY, aad_prefix="prefix")


@pytest.mark.parametrize("wrong", NOT_BUFFERS)
def test_what_is_no_buffer_is_a_type_error_that_names_the_argument(wrong: Any) -> None:
    name = type(wrong).__name__
    for function in (ags1.encrypt, ags1.decrypt):
        with pytest.raises(TypeError, match=rf"^data must be a bytes-like object .*, not {name}$"):
            function(wrong, KEY)
        with pytest.raises(TypeError, match=rf"^key must be a bytes-like object .*, not {name}$"):
            function(b"", wrong)
        with pytest.raises(TypeError, match=rf"^aad_prefix must be a bytes-like object .*, not {name}$"):
            function(b"", KEY, aad_prefix=wrong)
    for into in (ags1.encrypt_into, ags1.decrypt_into):
        with pytest.raises(TypeError, match=rf"^out must be a .*bytes-like object.*, not (None|{name})$"):
            into(STREAM, wrong, KEY)


# -- how much is written, and where --------------------------------------------------------------------------


def test_an_out_that_is_one_byte_too_small_is_refused_untouched() -> None:
    out = bytearray(b"\xaa" * (len(STREAM) - 1))
    with pytest.raises(ValueError, match=r"out has 191 bytes, but the encrypted stream takes 192: .*encrypted_length"):
        ags1.encrypt_into(PLAIN, out, KEY, block_length=BLOCK)
    assert set(out) == {0xAA}
    out = bytearray(b"\xaa" * (len(PLAIN) - 1))
    with pytest.raises(ValueError, match=r"out has 127 bytes, but the plaintext has 128: .*plaintext_length"):
        ags1.decrypt_into(STREAM, out, KEY, aad_prefix=PREFIX)
    assert set(out) == {0xAA}


@pytest.mark.parametrize("threads", [1, 4])
def test_an_out_that_is_larger_keeps_the_rest_as_it_was(threads: int) -> None:
    out = bytearray(b"\xaa" * 500)
    assert ags1.encrypt_into(PLAIN, out, KEY, aad_prefix=PREFIX, block_length=BLOCK, threads=threads) == 192
    assert out[192:] == b"\xaa" * 308
    assert reference.decrypt(bytes(out[:192]), KEY, PREFIX) == PLAIN
    out = bytearray(b"\xaa" * 500)
    assert ags1.decrypt_into(STREAM, out, KEY, aad_prefix=PREFIX, threads=threads) == 128
    assert out == PLAIN + b"\xaa" * 372


def test_working_over_its_own_data_is_refused_in_every_relation() -> None:
    memory = bytearray(pattern(800))
    memory[300:492] = STREAM
    before = bytes(memory)
    view = memoryview(memory)
    for start in (-191, -30, -1, 0, 1, 127):
        with pytest.raises(ValueError, match="data and out overlap in memory"):
            ags1.encrypt_into(view[300:428], view[300 + start : 492 + start], KEY, block_length=BLOCK)
    for start in (-127, -1, 0, 8, 20, 191):
        with pytest.raises(ValueError, match="data and out overlap in memory"):
            ags1.decrypt_into(view[300:492], view[300 + start : 428 + start], KEY, aad_prefix=PREFIX)
    assert memory == before


def test_memory_that_only_touches_does_not_overlap() -> None:
    memory = bytearray(1000)
    view = memoryview(memory)
    view[192:320] = PLAIN
    assert ags1.encrypt_into(view[192:320], view[:192], KEY, block_length=BLOCK) == 192
    assert ags1.encrypt_into(view[192:320], view[320:512], KEY, block_length=BLOCK) == 192
    assert reference.decrypt(bytes(view[:192]), KEY) == PLAIN
    assert ags1.decrypt_into(view[320:512], view[192:320], KEY) == 128
    assert view[192:320] == PLAIN


def test_a_prefix_that_would_be_overwritten_is_refused() -> None:
    out = bytearray(PREFIX + bytes(500))
    with pytest.raises(ValueError, match="aad_prefix and out overlap in memory"):
        ags1.encrypt_into(PLAIN, out, KEY, aad_prefix=memoryview(out)[:16])
    with pytest.raises(ValueError, match="aad_prefix and out overlap in memory"):
        ags1.decrypt_into(STREAM, out, KEY, aad_prefix=memoryview(out)[:16])
    assert out == PREFIX + bytes(500)


def test_a_key_inside_out_is_read_before_it_is_overwritten() -> None:
    out = bytearray(KEY + bytes(500))
    written = ags1.encrypt_into(PLAIN, out, memoryview(out)[:32])
    assert reference.decrypt(bytes(out[:written]), KEY) == PLAIN


def test_a_refused_call_writes_nothing() -> None:
    wrong: list[dict[str, Any]] = [
        {"threads": 0},
        {"threads": "2"},
        {"block_length": 0},
        {"aad_prefix": "text"},
        {"key": b"short"},
    ]
    for arguments in wrong:
        out = bytearray(b"\xaa" * 500)
        with pytest.raises((TypeError, ValueError)):
            ags1.encrypt_into(PLAIN, out, **{"key": KEY, **arguments})
        assert set(out) == {0xAA}, arguments


# -- numbers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block_length", [0, -1, 1 << 31, 1 << 64])
def test_impossible_block_lengths_are_refused(block_length: int) -> None:
    with pytest.raises(ValueError, match=f"block_length must be 1 to 2147483647 bytes, got {block_length}$"):
        ags1.encrypt(b"", KEY, block_length=block_length)


@pytest.mark.parametrize("block_length", [1.0, 1.5, "1", None, b"1"])
def test_block_lengths_that_are_no_integers_are_refused(block_length: Any) -> None:
    with pytest.raises(TypeError):
        ags1.encrypt(b"", KEY, block_length=block_length)


@pytest.mark.parametrize("function", [ags1.encrypt, lambda data, key, **more: ags1.decrypt(STREAM, key, **more)])
def test_bad_thread_counts_are_refused(function: Any) -> None:
    for threads in (0, -1, -(10**30)):
        with pytest.raises(ValueError, match=f"threads must be at least 1, got {threads}"):
            function(b"", KEY, threads=threads)
    for wrong in (True, False, 1.0, "1", b"1"):
        with pytest.raises(TypeError, match=f"threads must be an integer or None, not {type(wrong).__name__}"):
            function(b"", KEY, threads=wrong)


@pytest.mark.timeout(60)
def test_more_threads_than_anyone_has_are_harmless() -> None:
    stream = ags1.encrypt(large(), KEY, threads=10**9)
    assert ags1.decrypt(stream, KEY, threads=100_000) == large()


def test_more_blocks_than_an_int32_can_count_are_refused_before_anything_is_allocated() -> None:
    # Untouched private memory takes no room; the stream would take 58 GiB.
    with mmap.mmap(-1, 1 << 31, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as data:
        with pytest.raises(ags1.LimitError, match="needs more than 2147483647 blocks of 1 bytes"):
            ags1.encrypt(data, KEY, block_length=1)
        with pytest.raises(ags1.LimitError, match="needs more than 2147483647 blocks of 1 bytes"):
            ags1.encrypt_into(data, bytearray(10), KEY, block_length=1)


# -- damage --------------------------------------------------------------------------------------------------


def test_every_flipped_bit_of_a_stream_is_noticed() -> None:
    for position in range(len(STREAM)):
        for bit in range(8):
            with pytest.raises((ags1.AuthenticationError, ags1.FormatError)):
                ags1.decrypt(flip(STREAM, position, bit), KEY, aad_prefix=PREFIX, length=len(STREAM))


def test_no_shorter_stream_passes_for_a_whole_one() -> None:
    stream = reference.encrypt(pattern(250), KEY, PREFIX, BLOCK)
    for length in range(len(stream)):
        with pytest.raises(ags1.TruncatedError):
            ags1.decrypt(stream[:length], KEY, aad_prefix=PREFIX, length=len(stream))


def test_without_a_trusted_length_only_whole_blocks_can_be_lost() -> None:
    stream = reference.encrypt(pattern(250), KEY, PREFIX, BLOCK)
    passed = []
    for length in range(len(stream)):
        try:
            passed.append((length, ags1.decrypt(stream[:length], KEY, aad_prefix=PREFIX)))
        except (ags1.FormatError, ags1.AuthenticationError):
            continue
    assert passed == [(8 + 128, pattern(250)[:100]), (8 + 256, pattern(250)[:200])]


@pytest.mark.parametrize(
    ("length", "error", "message"),
    [
        (
            193,
            ags1.TruncatedError,
            "has 192 bytes, but its trusted length is 193: 1 bytes are missing at its end",
        ),
        (
            191,
            ags1.FormatError,
            "has 192 bytes, but its trusted length is 191: 1 bytes were added, or the length",
        ),
        (0, ags1.FormatError, "trusted length is 0: 192 bytes were added"),
        (10**30, ags1.TruncatedError, "bytes are missing at its end"),
        (-1, ValueError, "length must not be negative, got -1"),
        (192.0, TypeError, "length must be an integer or None, not float"),
        (True, TypeError, "length must be an integer or None, not bool"),
        ("192", TypeError, "length must be an integer or None, not str"),
    ],
)
def test_a_stream_must_have_exactly_its_trusted_length(length: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ags1.decrypt(STREAM, KEY, aad_prefix=PREFIX, length=length)
    with pytest.raises(error, match=message):
        ags1.decrypt_into(STREAM, bytearray(128), KEY, aad_prefix=PREFIX, length=length)


@pytest.mark.parametrize(
    ("stream", "error", "message"),
    [
        (b"", ags1.TruncatedError, "only 0 bytes"),
        (b"AGS1\x00\x00\x10", ags1.TruncatedError, "only 7 bytes"),
        (b"AGS1\x00\x00\x10\x00", ags1.TruncatedError, "8 bytes is shorter than the shortest AGS1 stream"),
        (b"AGS1\x00\x00\x00\x00" + bytes(28), ags1.FormatError, "block length is 0 bytes"),
        (b"AGS1\xff\xff\xff\xff" + bytes(28), ags1.FormatError, "block length is 4294967295 bytes"),
        (b"AGS1\x64\x00\x00\x00" + bytes(128 + 27), ags1.TruncatedError, "ends 27 bytes into a block"),
        (
            b"AGS1\x64\x00\x00\x00" + bytes(128 + 28),
            ags1.FormatError,
            "ends with an empty block after full ones",
        ),
        (b"PAR1" + bytes(100), ags1.FormatError, "starts like a Parquet file"),
        (b"plaintext" * 10, ags1.FormatError, "it may be plaintext"),
        (bytes(100), ags1.FormatError, "not an AGS1 stream"),
    ],
)
def test_each_defect_of_a_stream_is_told_apart(stream: bytes, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ags1.decrypt(stream, KEY)
    with pytest.raises(error, match=message):
        ags1.decrypt_into(stream, bytearray(200), KEY)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_no_plaintext_is_left_in_out_when_a_tag_fails(threads: int) -> None:
    block_length = 64 << 10
    data = large()[: 4 * MIB]
    stream = ags1.encrypt(data, KEY, block_length=block_length)
    out = bytearray(b"\xaa" * (len(data) + 50))
    with pytest.raises(ags1.AuthenticationError):
        ags1.decrypt_into(damage(stream, block_length, 40), out, KEY, threads=threads)
    assert out == bytes(len(data)) + b"\xaa" * 50


@pytest.mark.parametrize("threads", [1, 2, 3, 8, 32])
@pytest.mark.timeout(60)
def test_the_first_bad_block_is_named_whatever_the_threads_do(threads: int) -> None:
    block_length = 4096
    stream = ags1.encrypt(large()[: 2 * MIB], KEY, block_length=block_length)
    for index in (500, 300, 77, 76, 511):
        stream = damage(stream, block_length, index)
    for _ in range(30):
        with pytest.raises(ags1.AuthenticationError, match=r"^block 76 failed authentication") as caught:
            ags1.decrypt(stream, KEY, threads=threads)
        assert caught.value.block_index == 76


@pytest.mark.parametrize("first", [0, 15, 76])
@pytest.mark.parametrize("threads", [2, 3, 8])
@pytest.mark.timeout(60)
def test_the_first_of_bad_blocks_everywhere_is_named_whichever_thread_is_faster(first: int, threads: int) -> None:
    # Every thread fails, at about the same time.
    block_length = 4096
    data = large()[: 2 * MIB]
    cut = 8 + first * (block_length + 28)
    good, bad = (ags1.encrypt(data, key, block_length=block_length) for key in (KEY, OTHER_KEY))
    for _ in range(100):
        with pytest.raises(ags1.AuthenticationError, match=f"^block {first} failed authentication"):
            ags1.decrypt(good[:cut] + bad[cut:], KEY, threads=threads)


def test_a_failed_tag_says_no_more_than_that() -> None:
    stream = ags1.encrypt(b"secret", KEY, aad_prefix=PREFIX)
    messages = set()
    for key, prefix, data in (
        (OTHER_KEY, PREFIX, stream),
        (KEY, b"", stream),
        (KEY, PREFIX, flip(stream, -1)),
    ):
        with pytest.raises(ags1.AuthenticationError, match="wrong key, wrong AAD prefix, or damaged data") as caught:
            ags1.decrypt(data, key, aad_prefix=prefix)
        messages.add(str(caught.value))
    assert len(messages) == 1
