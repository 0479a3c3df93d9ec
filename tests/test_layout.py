"""Sizes, offsets and the header: inverse, monotonic, exact, and refusing what no writer makes."""

from __future__ import annotations

import struct
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

import ags1
from ags1 import layout
from tests.checks import MIB, OVERHEAD

MAX_BLOCKS = (1 << 31) - 1
MAX_BLOCK_LENGTH = (1 << 31) - 1

BLOCK_LENGTHS = st.one_of(st.integers(1, 64), st.just(MIB), st.integers(1, MAX_BLOCK_LENGTH), st.just(MAX_BLOCK_LENGTH))


@st.composite
def streams(draw: st.DrawFn) -> tuple[int, int]:
    """A block length, and the length of a plaintext that fits into a stream of it."""
    block_length = draw(BLOCK_LENGTHS)
    blocks = draw(st.one_of(st.integers(0, 5), st.integers(0, MAX_BLOCKS - 1)))
    rest = draw(st.one_of(st.integers(0, min(block_length, 40)), st.integers(0, block_length)))
    return block_length, blocks * block_length + rest


def written_length(plaintext_length: int, block_length: int) -> int:
    """Bytes that a writer emits, counted block by block."""
    length = 8
    while True:
        piece = min(plaintext_length, block_length)
        length += 12 + piece + 16
        plaintext_length -= piece
        if plaintext_length == 0:
            return length


# -- lengths -------------------------------------------------------------------------------------------------


def test_constants_are_those_of_the_specification() -> None:
    assert layout.MAGIC == b"AGS1"
    assert layout.HEADER_LENGTH == 4 + 4
    assert (layout.NONCE_LENGTH, layout.TAG_LENGTH, layout.BLOCK_OVERHEAD) == (12, 16, 28)
    assert layout.MIN_ENCRYPTED_LENGTH == 36
    assert layout.DEFAULT_BLOCK_LENGTH == 1_048_576
    assert layout.MAX_BLOCK_LENGTH == 2**31 - 1
    assert layout.MAX_BLOCKS == 2**31 - 1


@pytest.mark.parametrize(
    ("plaintext", "encrypted"),
    [
        (0, 36),
        (1, 37),
        (MIB - 1, 8 + 28 + MIB - 1),
        (MIB, 1_048_612),
        (MIB + 1, 1_048_641),
        (2 * MIB, 2_097_216),
        (1024 * MIB, 8 + 1024 * (MIB + 28)),
    ],
)
def test_lengths_that_iceberg_writes(plaintext: int, encrypted: int) -> None:
    assert ags1.encrypted_length(plaintext) == encrypted
    assert ags1.plaintext_length(encrypted) == plaintext


def test_picture_of_the_specification_three_blocks_of_1024_the_last_with_553_bytes() -> None:
    plaintext = 2 * 1024 + (553 - 28)
    assert layout.block_count(plaintext, 1024) == 3
    assert [layout.block_to_ciphertext(index, 1024) for index in range(3)] == [8, 1060, 2112]
    assert layout.encrypted_length(plaintext, 1024) == 2112 + 553 == 2665
    assert layout.plaintext_length(2665, 1024) == plaintext


@given(streams())
def test_plaintext_length_undoes_encrypted_length(stream: tuple[int, int]) -> None:
    block_length, plaintext = stream
    encrypted = layout.encrypted_length(plaintext, block_length)
    assert layout.plaintext_length(encrypted, block_length) == plaintext


@given(st.integers(1, 60), st.integers(0, 400))
def test_encrypted_length_is_what_a_writer_emits_block_by_block(block_length: int, plaintext: int) -> None:
    assert layout.encrypted_length(plaintext, block_length) == written_length(plaintext, block_length)


@given(streams())
def test_every_block_costs_28_bytes_and_the_header_8(stream: tuple[int, int]) -> None:
    block_length, plaintext = stream
    count = layout.block_count(plaintext, block_length)
    assert count == max(1, -(-plaintext // block_length))
    assert layout.encrypted_length(plaintext, block_length) == 8 + plaintext + OVERHEAD * count
    assert layout.stored_length(plaintext, block_length) == plaintext + OVERHEAD * count


@given(streams())
def test_a_longer_plaintext_makes_a_longer_stream(stream: tuple[int, int]) -> None:
    block_length, plaintext = stream
    assume(plaintext > 0)
    longer = layout.encrypted_length(plaintext, block_length)
    assert layout.encrypted_length(plaintext - 1, block_length) < longer


@pytest.mark.parametrize("block_length", [1, 2, 27, 28, 29, 100])
def test_every_length_that_no_writer_makes_is_refused_and_every_other_accepted(block_length: int) -> None:
    made = {written_length(plaintext, block_length): plaintext for plaintext in range(12 * block_length + 1)}
    for length in range(max(made) + 1):
        if length in made:
            assert layout.plaintext_length(length, block_length) == made[length]
        else:
            with pytest.raises(ags1.FormatError):
                layout.plaintext_length(length, block_length)


@pytest.mark.parametrize("length", [0, 7, 8, 35])
def test_a_stream_shorter_than_one_empty_block_is_truncated(length: int) -> None:
    with pytest.raises(ags1.TruncatedError, match=f"^{length} bytes is shorter than the shortest AGS1 stream"):
        ags1.plaintext_length(length)


@pytest.mark.parametrize("tail", [1, 12, 27])
def test_a_last_block_without_room_for_nonce_and_tag_is_truncated(tail: int) -> None:
    with pytest.raises(ags1.TruncatedError, match=f"ends {tail} bytes into a block"):
        ags1.plaintext_length(8 + MIB + OVERHEAD + tail)


def test_an_empty_block_after_a_full_one_is_refused_but_not_as_truncated() -> None:
    with pytest.raises(ags1.FormatError, match="empty block after full ones, which no writer makes") as caught:
        ags1.plaintext_length(8 + MIB + OVERHEAD + OVERHEAD)
    assert not isinstance(caught.value, ags1.TruncatedError)


# -- limits: arithmetic only, nobody has that much memory ----------------------------------------------------


@pytest.mark.parametrize("block_length", [1, 1024, MIB, MAX_BLOCK_LENGTH])
def test_the_last_block_that_an_int32_can_index_is_allowed_and_the_next_is_not(block_length: int) -> None:
    most = MAX_BLOCKS * block_length
    encrypted = 8 + MAX_BLOCKS * (block_length + OVERHEAD)
    assert layout.block_count(most, block_length) == MAX_BLOCKS
    assert layout.encrypted_length(most, block_length) == encrypted
    assert layout.plaintext_length(encrypted, block_length) == most
    assert layout.block_to_ciphertext(MAX_BLOCKS, block_length) == encrypted
    with pytest.raises(ags1.LimitError, match=f"more than {MAX_BLOCKS} blocks of {block_length} bytes"):
        layout.encrypted_length(most + 1, block_length)
    with pytest.raises(ags1.LimitError, match=f"more than {MAX_BLOCKS} blocks of {block_length} bytes"):
        layout.block_count(most + 1, block_length)
    with pytest.raises(ags1.LimitError, match=f"more than {MAX_BLOCKS} blocks of {block_length} bytes"):
        layout.plaintext_length(encrypted + OVERHEAD + 1, block_length)
    with pytest.raises(ags1.LimitError, match=f"block index {MAX_BLOCKS + 1} is above {MAX_BLOCKS}"):
        layout.block_to_ciphertext(MAX_BLOCKS + 1, block_length)


@pytest.mark.parametrize("beyond", [1 << 62, (1 << 63) - 1, 1 << 63, 1 << 64, 1 << 200])
def test_lengths_that_overflow_64_bits_are_refused_and_do_not_wrap(beyond: int) -> None:
    with pytest.raises(ags1.LimitError, match=r"2\^31 - 1 blocks|2147483647 blocks"):
        layout.encrypted_length(beyond, 1)
    with pytest.raises(ags1.LimitError, match=r"2\^31 - 1 blocks|2147483647 blocks"):
        layout.plaintext_length(beyond, 1)
    with pytest.raises(ags1.LimitError, match=r"2\^31 - 1 blocks|2147483647"):
        layout.ciphertext_to_plaintext(beyond, 1)


FUNCTIONS_OF_A_LENGTH = (
    layout.encrypted_length,
    layout.plaintext_length,
    layout.block_count,
    layout.stored_length,
    layout.plaintext_to_block,
    layout.block_to_ciphertext,
    layout.ciphertext_to_plaintext,
)


@pytest.mark.parametrize("function", FUNCTIONS_OF_A_LENGTH)
@pytest.mark.parametrize("block_length", [0, -1, 1 << 31, 1 << 32, 1 << 70])
def test_block_lengths_outside_1_to_2_31_minus_1_are_refused(function: Any, block_length: int) -> None:
    with pytest.raises(ValueError, match=f"block_length must be 1 to 2147483647 bytes, got {block_length}$"):
        function(100, block_length)


@pytest.mark.parametrize("block_length", [0, -1, 1 << 31])
def test_a_header_or_a_split_with_a_bad_block_length_is_refused(block_length: int) -> None:
    with pytest.raises(ValueError, match="block_length must be 1 to 2147483647"):
        layout.write_header(block_length)
    with pytest.raises(ValueError, match="block_length must be 1 to 2147483647"):
        layout.split_offsets(100, 10, block_length)


@pytest.mark.parametrize("function", FUNCTIONS_OF_A_LENGTH)
def test_negative_lengths_are_refused(function: Any) -> None:
    with pytest.raises(ValueError, match="must not be negative, got -1"):
        function(-1)


@pytest.mark.parametrize("function", FUNCTIONS_OF_A_LENGTH)
@pytest.mark.parametrize("wrong", [100.0, "100", None, b"100", Fraction(100)])
def test_lengths_that_are_no_integers_are_a_type_error(function: Any, wrong: Any) -> None:
    with pytest.raises(TypeError):
        function(wrong)
    with pytest.raises(TypeError):
        function(100, wrong)


def test_integers_of_other_libraries_are_integers() -> None:
    assert layout.encrypted_length(np.int64(10), np.uint32(4)) == layout.encrypted_length(10, 4)


# -- offsets -------------------------------------------------------------------------------------------------


@given(streams(), st.data())
def test_a_byte_is_found_in_the_block_that_holds_it(stream: tuple[int, int], data: st.DataObject) -> None:
    block_length, plaintext = stream
    assume(plaintext > 0)
    offset = data.draw(st.integers(0, plaintext - 1))
    index = layout.plaintext_to_block(offset, block_length)
    assert index * block_length <= offset < (index + 1) * block_length
    start = layout.block_to_ciphertext(index, block_length)
    stored_at = start + 12 + offset % block_length
    assert stored_at + 16 < layout.encrypted_length(plaintext, block_length)
    assert layout.ciphertext_to_plaintext(stored_at, block_length, exact=True) == offset


@given(BLOCK_LENGTHS, st.integers(0, MAX_BLOCKS - 1))
@example(block_length=1, index=0)
def test_the_start_of_a_block_maps_to_its_first_byte(block_length: int, index: int) -> None:
    start = layout.block_to_ciphertext(index, block_length)
    assert layout.ciphertext_to_plaintext(start, block_length) == index * block_length
    assert layout.plaintext_to_block(index * block_length, block_length) == index
    if index:
        assert layout.ciphertext_to_plaintext(start - 1, block_length) <= index * block_length


@given(st.integers(1, 64), st.integers(8, 2000), st.booleans())
def test_ciphertext_to_plaintext_never_decreases_and_never_leaves_its_block(
    block_length: int, offset: int, exact: bool
) -> None:
    here = layout.ciphertext_to_plaintext(offset, block_length, exact=exact)
    assert here <= layout.ciphertext_to_plaintext(offset + 1, block_length, exact=exact)
    index = (offset - 8) // (block_length + OVERHEAD)
    assert index * block_length <= here <= (index + 1) * block_length


def test_exact_counts_from_the_ciphertext_and_the_default_from_the_nonce() -> None:
    start = layout.block_to_ciphertext(3, 100)
    assert layout.ciphertext_to_plaintext(start + 20, 100) == 320
    assert layout.ciphertext_to_plaintext(start + 20, 100, exact=True) == 308
    assert layout.ciphertext_to_plaintext(start + 5, 100, exact=True) == 300
    assert layout.ciphertext_to_plaintext(start + 127, 100, exact=True) == 400


@given(st.integers(1, 64), st.integers(0, 500), st.integers(1, 700))
def test_ranges_that_tile_the_ciphertext_tile_the_plaintext(block_length: int, plaintext: int, step: int) -> None:
    encrypted = layout.encrypted_length(plaintext, block_length)
    cuts = [*range(8, encrypted, step), encrypted]
    offsets = [layout.ciphertext_to_plaintext(cut, block_length, plaintext_size=plaintext) for cut in cuts]
    assert offsets[0] == 0
    assert offsets[-1] == plaintext
    assert offsets == sorted(offsets)


def test_a_split_that_starts_behind_the_plaintext_is_clamped_to_its_end() -> None:
    # Iceberg plans Avro splits over the length of the ciphertext: the last may start where no plaintext is.
    assert layout.ciphertext_to_plaintext(10**9, 1024, plaintext_size=2573) == 2573
    with pytest.raises(ValueError, match="plaintext_size must not be negative, got -1"):
        layout.ciphertext_to_plaintext(100, 1024, plaintext_size=-1)


@pytest.mark.parametrize("offset", [0, 7])
def test_an_offset_inside_the_header_has_no_plaintext(offset: int) -> None:
    with pytest.raises(ValueError, match=f"offset {offset} is inside the 8-byte header"):
        layout.ciphertext_to_plaintext(offset)


@given(st.integers(1, 64), st.integers(0, 3000), st.integers(1, 700))
def test_splits_tile_the_plaintext_exactly_on_block_boundaries(block_length: int, size: int, split: int) -> None:
    offsets = ags1.split_offsets(size, split, block_length)
    ends = [*offsets[1:], size]
    assert offsets[0] == 0
    assert all(offset % block_length == 0 for offset in offsets)
    assert b"".join(bytes(end - start) for start, end in zip(offsets, ends, strict=True)) == bytes(size)
    if size:
        assert all(0 < end - start <= max(split, block_length) for start, end in zip(offsets, ends, strict=True))


def test_splits_are_as_large_as_whole_blocks_allow() -> None:
    assert ags1.split_offsets(1000, 250, 100) == [0, 200, 400, 600, 800]
    assert ags1.split_offsets(1000, 1, 400) == [0, 400, 800]
    assert ags1.split_offsets(1000, 10**30, 100) == [0]
    assert ags1.split_offsets(0, 128 * MIB) == [0]
    assert ags1.split_offsets(256 * MIB, 128 * MIB) == [0, 128 * MIB]


@pytest.mark.parametrize("split_size", [0, -1])
def test_a_split_of_no_bytes_is_refused(split_size: int) -> None:
    with pytest.raises(ValueError, match=f"split_size must be at least 1 byte, got {split_size}"):
        ags1.split_offsets(100, split_size)


def test_splits_of_a_negative_or_a_fractional_size_are_refused() -> None:
    with pytest.raises(ValueError, match="plaintext_size must not be negative"):
        ags1.split_offsets(-1, 10)
    with pytest.raises(TypeError):
        ags1.split_offsets(100, 10.0)


# -- header --------------------------------------------------------------------------------------------------


@given(BLOCK_LENGTHS, st.binary(max_size=30))
def test_read_header_undoes_write_header_whatever_follows(block_length: int, rest: bytes) -> None:
    header = layout.write_header(block_length)
    assert header == b"AGS1" + struct.pack("<i", block_length)
    assert layout.read_header(header + rest) == block_length


@pytest.mark.parametrize("block_length", [0, 1 << 31, (1 << 32) - 1])
def test_a_header_with_an_impossible_block_length_is_damaged(block_length: int) -> None:
    with pytest.raises(ags1.FormatError, match=f"block length is {block_length} bytes, outside 1 to 2147483647"):
        layout.read_header(b"AGS1" + struct.pack("<I", block_length))


@pytest.mark.parametrize("length", range(8))
def test_a_header_cut_short_is_truncated(length: int) -> None:
    with pytest.raises(ags1.TruncatedError, match=f"only {length} bytes, but an AGS1 stream has at least 36"):
        layout.read_header(layout.write_header()[:length])


@pytest.mark.parametrize(
    ("start", "what"),
    [
        (b"PAR1\x15\x04\x15\x10", "a Parquet file"),
        (b"PARE\x15\x04\x15\x10", "an encrypted Parquet file: Parquet Modular Encryption, not AGS1"),
        (b"Obj\x01\x04\x16avro", "an unencrypted Avro file"),
        (b"ORC\x08\x01\x08\x01\x08", "an ORC file"),
        (b"ARROW1\x00\x00", "an unencrypted Arrow IPC file"),
        (b"PFA1\x00\x00\x00\x00", "an unencrypted Puffin file"),
        (b"\x1f\x8b\x08\x00\x00\x00\x00\x00", "a gzip file"),
        (b"\x28\xb5\x2f\xfd\x04\x00\x00\x00", "a Zstandard file"),
        (b"PK\x03\x04\x14\x00\x00\x00", "a zip file"),
    ],
)
@pytest.mark.parametrize("length", [16, 8, 6])
def test_another_format_is_called_by_its_name(start: bytes, what: str, length: int) -> None:
    with pytest.raises(ags1.FormatError, match=f"^not an AGS1 stream: it starts like {what}") as caught:
        layout.read_header(start.ljust(16, b"\x00")[:length])
    assert not isinstance(caught.value, ags1.TruncatedError)


def test_plaintext_is_said_to_look_like_plaintext() -> None:
    with pytest.raises(ags1.FormatError, match=r"starts with 7b 22 66 6f instead of 41 47 53 31 .*plaintext"):
        layout.read_header(b'{"format-version": 3}')
    with pytest.raises(ags1.FormatError, match="starts with 68 69 instead of"):
        layout.read_header(b"hi")


def test_the_error_names_the_file_if_its_name_is_known() -> None:
    with pytest.raises(ags1.FormatError, match=r"^s3://bucket/x\.avro: not an AGS1 stream"):
        layout.read_header(b"Obj\x01rest", "s3://bucket/x.avro")
    with pytest.raises(ags1.TruncatedError, match=r"^x\.avro: only 0 bytes.*it is empty or truncated"):
        layout.read_header(b"", "x.avro")


# -- under the names of the AGS1 discussion ------------------------------------------------------------------


@pytest.mark.parametrize("block_length", [1, 1024, 1 << 20, (1 << 31) - 1])
def test_cipher_block_index_is_the_inverse_of_the_start_of_a_block(block_length: int) -> None:
    stride = block_length + 28
    for index in (0, 1, 2, 1000, (1 << 31) - 2):
        start = layout.block_to_ciphertext(index, block_length)
        for offset in (start, start + 1, start + stride - 1):
            assert layout.cipher_block_index(offset, block_length) == index == (offset - 8) // stride
    for offset in (0, 7):
        with pytest.raises(ValueError, match=f"offset {offset} is inside the 8-byte header"):
            layout.cipher_block_index(offset, block_length)
    with pytest.raises((ags1.LimitError, OverflowError)):
        layout.cipher_block_index(8 + ((1 << 31) + 1) * stride, block_length)
    assert layout.cipher_block_index(8 + (1 << 20) + 28) == 1
