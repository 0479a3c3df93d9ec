"""Whoever holds the encrypted bytes changes them: every way to read must refuse, and none may answer wrong bytes."""

from __future__ import annotations

import io
import itertools
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import ags1
from tests import checks, reference
from tests.checks import HEADER, KEY, OTHER_KEY, OVERHEAD, PREFIX, blocks_of, flip, pattern

BLOCK = 32
STRIDE = BLOCK + OVERHEAD
PLAIN = pattern(2 * BLOCK + 5)
STREAM = reference.encrypt(PLAIN, KEY, PREFIX, BLOCK)
FULL_PLAIN = pattern(3 * BLOCK, seed=1)
FULL_STREAM = reference.encrypt(FULL_PLAIN, KEY, PREFIX, BLOCK)
REFUSALS = (ags1.FormatError, ags1.AuthenticationError, ags1.LimitError)


# -- every way to read ---------------------------------------------------------------------------------------

# Each takes the stream, its trusted length or None, and a directory; answers all of the plaintext or raises.
Route = Callable[[bytes, "int | None", Path], bytes]
OPTIONS: dict[str, Any] = {"aad_prefix": PREFIX}


def by_decrypt(stream: bytes, length: int | None, _: Path) -> bytes:
    return ags1.decrypt(stream, KEY, length=length, **OPTIONS)


def by_threads(stream: bytes, length: int | None, _: Path) -> bytes:
    return ags1.decrypt(stream, KEY, length=length, threads=3, **OPTIONS)


def by_decrypt_into(stream: bytes, length: int | None, _: Path) -> bytes:
    out = bytearray(len(stream))
    return bytes(out[: ags1.decrypt_into(stream, out, KEY, length=length, **OPTIONS)])


def by_decrypt_many(stream: bytes, length: int | None, _: Path) -> bytes:
    found = ags1.decrypt_many(
        [STREAM, stream, STREAM], KEY, aad_prefixes=[PREFIX] * 3, lengths=[None, length, len(STREAM)]
    )
    assert bytes(found[0]) == bytes(found[2]) == PLAIN
    return bytes(found[1])


def by_reader(stream: bytes, length: int | None, _: Path) -> bytes:
    with ags1.Reader(stream, KEY, length=length, **OPTIONS) as reader:
        return reader.read()


def by_small_reads(stream: bytes, length: int | None, _: Path) -> bytes:
    with ags1.Reader(io.BytesIO(stream), KEY, length=length, threads=1, **OPTIONS) as reader:
        return b"".join(iter(lambda: reader.read(7), b""))


def by_pread(stream: bytes, length: int | None, _: Path) -> bytes:
    with ags1.Reader(stream, KEY, length=length, **OPTIONS) as reader:
        assert reader.size is not None
        # From the end to the start: nothing before a block may vouch for it.
        starts = range(0, max(reader.size, 1), 11)
        return b"".join([reader.pread(start, 11) for start in reversed(starts)][::-1])


def by_pipe(stream: bytes, length: int | None, _: Path) -> bytes:
    with ags1.Reader(checks.Pipe(stream), KEY, length=length, **OPTIONS) as reader:
        return reader.read()


def by_path(stream: bytes, length: int | None, directory: Path) -> bytes:
    path = directory / "stream.ags1"
    path.write_bytes(stream)
    with ags1.open(path, key=KEY, length=length, **OPTIONS) as reader:
        return reader.read()


def by_decrypt_file(stream: bytes, length: int | None, directory: Path) -> bytes:
    source, target = directory / "stream.ags1", directory / "plain"
    source.write_bytes(stream)
    target.unlink(missing_ok=True)
    try:
        ags1.decrypt_file(source, target, KEY, length=length, **OPTIONS)
    except BaseException:
        assert not target.exists()
        raise
    return target.read_bytes()


def by_verify_file(stream: bytes, length: int | None, directory: Path) -> bytes:
    path = directory / "stream.ags1"
    path.write_bytes(stream)
    report = ags1.verify_file(path, KEY, length=length, **OPTIONS)
    if not report.ok:
        raise ags1.AuthenticationError.for_block(report.findings[0].details["blocks"][0])
    # A report has no plaintext: that of the reference stands in for it.
    return reference.decrypt(stream, KEY, PREFIX)


ROUTES: dict[str, Route] = {
    name.removeprefix("by_"): function
    for name, function in list(globals().items())
    if name.startswith("by_") and callable(function)
}
EVERY_ROUTE = pytest.mark.parametrize("route", ROUTES.values(), ids=ROUTES.keys())


@EVERY_ROUTE
def test_an_untouched_stream_is_read(route: Route, tmp_path: Path) -> None:
    for stream, plain in ((STREAM, PLAIN), (FULL_STREAM, FULL_PLAIN)):
        assert route(stream, None, tmp_path) == route(stream, len(stream), tmp_path) == plain


# -- one bit -------------------------------------------------------------------------------------------------


@EVERY_ROUTE
def test_any_byte_flipped_behind_the_header_fails_its_block(route: Route, tmp_path: Path) -> None:
    for position in range(HEADER, len(STREAM)):
        block = (position - HEADER) // STRIDE
        with pytest.raises(ags1.AuthenticationError, match=rf"block {block} failed authentication") as caught:
            route(flip(STREAM, position, position % 8), None, tmp_path)
        assert caught.value.block_index == block


@EVERY_ROUTE
def test_any_byte_flipped_in_the_magic_is_not_ags1(route: Route, tmp_path: Path) -> None:
    for position, bit in itertools.product(range(4), range(8)):
        with pytest.raises(ags1.FormatError, match="not an AGS1 stream: it starts with"):
            route(flip(STREAM, position, bit), len(STREAM), tmp_path)


@EVERY_ROUTE
@pytest.mark.parametrize("trusted", [False, True])
def test_any_bit_flipped_in_the_block_length_is_refused(route: Route, trusted: bool, tmp_path: Path) -> None:
    for position, bit in itertools.product(range(4, 8), range(8)):
        with pytest.raises(REFUSALS, match=r"block length|failed authentication|truncated"):
            route(flip(STREAM, position, bit), len(STREAM) if trusted else None, tmp_path)


def test_any_bit_of_any_byte_is_refused() -> None:
    for position, bit in itertools.product(range(len(STREAM)), range(8)):
        with pytest.raises(REFUSALS):
            ags1.decrypt(flip(STREAM, position, bit), KEY, **OPTIONS)


def test_two_damaged_blocks_are_both_named_by_verify_and_the_first_by_everyone(tmp_path: Path) -> None:
    stream = flip(flip(STREAM, HEADER + 2 * STRIDE), HEADER + 20)
    path = tmp_path / "stream.ags1"
    path.write_bytes(stream)
    assert ags1.verify_file(path, KEY, **OPTIONS).findings[0].details["blocks"] == [0, 2]
    for name in ("decrypt", "threads", "decrypt_file", "decrypt_many", "reader"):
        with pytest.raises(ags1.AuthenticationError, match="block 0 failed"):
            ROUTES[name](stream, None, tmp_path)


def test_a_flipped_bit_in_a_file_too_large_for_one_thread(tmp_path: Path) -> None:
    stream = bytearray(ags1.encrypt(checks.large(), KEY, **OPTIONS))
    count = len(blocks_of(stream, checks.MIB))
    for block in (0, 1, count // 2, count - 1):
        position = checks.block_start(block, checks.MIB) + 13
        stream[position] ^= 1
        for name in ("decrypt", "decrypt_file", "reader"):
            with pytest.raises(ags1.AuthenticationError, match=f"block {block} failed"):
                ROUTES[name](bytes(stream), len(stream), tmp_path)
        stream[position] ^= 1


# -- whole blocks --------------------------------------------------------------------------------------------


def with_blocks(stream: bytes, order: tuple[int, ...]) -> bytes:
    blocks = blocks_of(stream, BLOCK)
    return stream[:HEADER] + b"".join(blocks[index] for index in order)


def orders() -> Iterator[tuple[int, ...]]:
    for count in range(1, 5):
        yield from itertools.product(range(3), repeat=count)


@EVERY_ROUTE
def test_blocks_swapped_repeated_dropped_or_inserted(route: Route, tmp_path: Path) -> None:
    # Every sequence of one to four of its three blocks: only the beginning of the stream itself may pass, and
    # even that only where nobody knows the true length.
    for order in orders():
        stream = with_blocks(FULL_STREAM, order)
        if order == (0, 1, 2)[: len(order)]:
            assert route(stream, None, tmp_path) == FULL_PLAIN[: BLOCK * len(order)]
        else:
            with pytest.raises(ags1.AuthenticationError, match=r"block \d failed authentication"):
                route(stream, None, tmp_path)
        if order != (0, 1, 2):
            with pytest.raises(REFUSALS, match=r"trusted length|failed authentication"):
                route(stream, len(FULL_STREAM), tmp_path)


@EVERY_ROUTE
def test_a_short_last_block_in_another_place(route: Route, tmp_path: Path) -> None:
    for order in orders():
        if order in ((0,), (0, 1), (0, 1, 2)):
            continue
        with pytest.raises(REFUSALS):
            route(with_blocks(STREAM, order), None, tmp_path)


def test_blocks_of_another_file_under_the_same_key_and_another_prefix() -> None:
    other = reference.encrypt(PLAIN[::-1], KEY, b"another file", BLOCK)
    mine, theirs = blocks_of(STREAM, BLOCK), blocks_of(other, BLOCK)
    for index in range(3):
        mixed = STREAM[:HEADER] + b"".join([*mine[:index], theirs[index], *mine[index + 1 :]])
        with pytest.raises(ags1.AuthenticationError, match=f"block {index} failed"):
            ags1.decrypt(mixed, KEY, aad_prefix=PREFIX, length=len(mixed))
    with pytest.raises(ags1.AuthenticationError, match="block 0 failed"):
        ags1.decrypt(other, KEY, aad_prefix=PREFIX)


def test_what_no_prefix_does_not_protect() -> None:
    # Under one key and without prefixes a block authenticates in any file at its own index. This is the format,
    # and the reason for AAD prefixes; only another index is noticed.
    first, second = (reference.encrypt(data, KEY, b"", BLOCK) for data in (PLAIN, PLAIN[::-1]))
    mine, theirs = blocks_of(first, BLOCK), blocks_of(second, BLOCK)
    mixed = first[:HEADER] + mine[0] + theirs[1] + mine[2]
    expected = PLAIN[:BLOCK] + PLAIN[::-1][BLOCK : 2 * BLOCK] + PLAIN[2 * BLOCK :]
    assert ags1.decrypt(mixed, KEY, length=len(first)) == expected
    with pytest.raises(ags1.AuthenticationError, match="block 1 failed"):
        ags1.decrypt(first[:HEADER] + mine[0] + theirs[0] + mine[2], KEY)


def test_an_empty_and_no_prefix_are_the_same_and_a_longer_one_is_not() -> None:
    stream = ags1.encrypt(PLAIN, KEY, aad_prefix=b"", block_length=BLOCK)
    assert ags1.decrypt(stream, KEY) == PLAIN
    # The index is the end of the AAD: a prefix that ends like an index must not stand for it.
    for prefix in (b"\0", struct.pack("<i", 0), b"\0" * 8):
        with pytest.raises(ags1.AuthenticationError, match="block 0 failed"):
            ags1.decrypt(stream, KEY, aad_prefix=prefix)


@EVERY_ROUTE
def test_a_whole_stream_under_another_key_or_prefix(route: Route, tmp_path: Path) -> None:
    for key, prefix in ((OTHER_KEY, PREFIX), (KEY, b""), (KEY, PREFIX + b"\0"), (KEY, PREFIX[:-1])):
        with pytest.raises(ags1.AuthenticationError, match=r"block \d failed"):
            route(reference.encrypt(PLAIN, key, prefix, BLOCK), None, tmp_path)


@EVERY_ROUTE
def test_an_empty_stream_is_authenticated_too(route: Route, tmp_path: Path) -> None:
    empty = reference.encrypt(b"", KEY, PREFIX, BLOCK)
    assert route(empty, len(empty), tmp_path) == b""
    for position in range(HEADER, len(empty)):
        with pytest.raises(ags1.AuthenticationError, match="block 0 failed"):
            route(flip(empty, position), len(empty), tmp_path)


# -- the end -------------------------------------------------------------------------------------------------


@EVERY_ROUTE
def test_truncation_at_every_length(route: Route, tmp_path: Path) -> None:
    for stream, plain in ((STREAM, PLAIN), (FULL_STREAM, FULL_PLAIN)):
        for length in range(len(stream)):
            cut = stream[:length]
            with pytest.raises(ags1.TruncatedError, match=r"trusted length is|truncated|shorter"):
                route(cut, len(stream), tmp_path)
            whole, rest = divmod(length - HEADER, STRIDE)
            if whole > 0 and rest == 0:
                # What only a trusted length can tell: all blocks there are, are authentic.
                assert route(cut, None, tmp_path) == plain[: whole * BLOCK]
            else:
                with pytest.raises(REFUSALS, match=r"truncated|shorter|failed auth|empty block"):
                    route(cut, None, tmp_path)


@pytest.mark.parametrize("route", [by_reader, by_small_reads, by_pread, by_pipe, by_path, by_decrypt_file])
def test_a_cut_inside_a_block_is_called_one_and_no_fault_of_the_key(route: Route, tmp_path: Path) -> None:
    for length in range(HEADER + STRIDE, len(STREAM)):
        if (length - HEADER) % STRIDE:
            with pytest.raises(REFUSALS, match="truncated") as caught:
                route(STREAM[:length], None, tmp_path)
            assert "wrong key" not in str(caught.value)
    cut = STREAM[: HEADER + STRIDE + 40]
    # Nothing vouches for the key where no block is authentic, and a cut leaves no whole block that fails.
    for stream in (flip(cut, HEADER), cut[: HEADER + 40], flip(FULL_STREAM, len(FULL_STREAM) - 1)):
        with pytest.raises(ags1.AuthenticationError, match="wrong key, wrong AAD prefix, or damaged data"):
            route(stream, None, tmp_path)
    # A file of the right length was not cut.
    with pytest.raises(ags1.AuthenticationError, match="wrong key, wrong AAD prefix, or damaged data"):
        route(flip(STREAM, len(STREAM) - 1), len(STREAM), tmp_path)


@EVERY_ROUTE
def test_extension_by_every_small_amount(route: Route, tmp_path: Path) -> None:
    for stream, extra in itertools.product((STREAM, FULL_STREAM), range(1, 2 * STRIDE + 2)):
        for added in (bytes(extra), stream[-extra:]):
            with pytest.raises(REFUSALS, match=r"truncated|failed authentication|empty block"):
                route(stream + added, None, tmp_path)
            with pytest.raises(ags1.FormatError, match=r"trusted length is \d+"):
                route(stream + added, len(stream), tmp_path)


@EVERY_ROUTE
def test_a_trusted_length_of_another_file(route: Route, tmp_path: Path) -> None:
    for length in (0, 1, 8, 36, len(STREAM) - STRIDE, len(STREAM) - 1, len(STREAM) + 1, 1 << 40, (1 << 63) - 1):
        with pytest.raises(ags1.FormatError, match="trusted length is"):
            route(STREAM, length, tmp_path)


# -- the header, which no tag covers -------------------------------------------------------------------------


def with_block_length(stream: bytes, block_length: int) -> bytes:
    return stream[:4] + struct.pack("<I", block_length) + stream[HEADER:]


def other_block_lengths() -> list[int]:
    edges = [1 << power for power in range(8, 32)]
    # Such that the stream has the same number of blocks, or parts exactly into more or fewer.
    return [*range(1, 300), *edges, *(edge - 1 for edge in edges), 0xFFFFFFFF, 0x80000000]


@EVERY_ROUTE
def test_another_block_length_over_many_blocks(route: Route, tmp_path: Path) -> None:
    for stream, block_length in itertools.product((STREAM, FULL_STREAM), other_block_lengths()):
        if block_length == BLOCK:
            continue
        with pytest.raises(REFUSALS, match=r"block length|failed authentication"):
            route(with_block_length(stream, block_length), len(stream), tmp_path)


def test_a_file_made_to_have_two_readings_has_one() -> None:
    # A writer who chooses all lengths still cannot make a second cut authenticate: the tags cover whole blocks.
    for block_length in (1, 2, 3, 28, 29, 56, 57):
        stream = reference.encrypt(pattern(6 * 57), KEY, PREFIX, block_length)
        accepted = []
        for other in range(1, len(stream)):
            try:
                accepted.append(ags1.decrypt(with_block_length(stream, other), KEY, **OPTIONS))
            except REFUSALS:
                continue
        assert accepted == [pattern(6 * 57)]


@EVERY_ROUTE
def test_another_block_length_over_one_block_changes_nothing_or_is_refused(route: Route, tmp_path: Path) -> None:
    # A single block reads the same under every block length that holds it. Nothing is gained by the change.
    for length in (0, 1, BLOCK - 1, BLOCK):
        plain = pattern(length)
        stream = reference.encrypt(plain, KEY, PREFIX, BLOCK)
        for block_length in (1, 2, 27, 28, 31, 32, 33, 1 << 20, (1 << 31) - 1):
            changed = with_block_length(stream, block_length)
            if length <= block_length:
                assert route(changed, len(stream), tmp_path) == plain
            else:
                with pytest.raises(REFUSALS):
                    route(changed, len(stream), tmp_path)


def test_a_reader_that_failed_stays_failed(tmp_path: Path) -> None:
    path = tmp_path / "stream.ags1"
    path.write_bytes(flip(STREAM, HEADER + STRIDE + 20))
    with ags1.open(path, key=KEY, **OPTIONS) as reader:
        assert reader.pread(0, BLOCK) == PLAIN[:BLOCK]
        with pytest.raises(ags1.AuthenticationError, match="block 1 failed"):
            reader.pread(BLOCK, 1)
        # Mending the file behind its back is no way back: what was read meanwhile is not known.
        path.write_bytes(STREAM)
        attempts: list[Callable[[], object]] = [
            lambda: reader.pread(0, 1), lambda: reader.read(1), reader.read, reader.readline,
            lambda: reader.readinto(bytearray(4)), lambda: reader.pread_into(0, bytearray(4)), lambda: reader.read1(3),
        ]  # fmt: skip
        for attempt in attempts:
            with pytest.raises(ags1.AuthenticationError, match="failed before and refuses everything since"):
                attempt()


def test_a_file_exchanged_while_it_is_open_is_not_mixed(tmp_path: Path) -> None:
    # The name now belongs to another file; the open one is still what was opened.
    path = tmp_path / "stream.ags1"
    path.write_bytes(STREAM)
    with ags1.open(path, key=KEY, **OPTIONS) as reader:
        other = tmp_path / "other"
        other.write_bytes(reference.encrypt(PLAIN[::-1], KEY, PREFIX, BLOCK))
        os.replace(other, path)
        assert reader.read() == PLAIN
