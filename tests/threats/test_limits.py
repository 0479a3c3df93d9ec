"""The edges of the format, and sizes that a hostile stream claims: no wrap-around, no memory for what is not there."""

from __future__ import annotations

import io
import mmap
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import ags1
import ags1.arrow
from ags1.core import blocks as native_blocks
from ags1.core import descriptors, gcm
from ags1.parquet.native import modules
from tests import checks, reference
from tests.checks import KEY, OVERHEAD, PREFIX, pattern, run_python

LAST = (1 << 31) - 2  # the index of the last block that a stream can have
BLOCK = 20


# -- block indices -------------------------------------------------------------------------------------------


def sealed_by_reference(data: bytes, first_block: int, block_length: int = BLOCK) -> bytes:
    starts = range(0, len(data), block_length)
    blocks = [data[start : start + block_length] for start in starts]
    nonce = bytes(12)
    return b"".join(
        reference.seal_block(block, KEY, PREFIX, first_block + index, nonce) for index, block in enumerate(blocks)
    )


def seal(data: bytes, first_block: int, threads: int = 1) -> bytes:
    out = bytearray(len(data) + OVERHEAD * -(-len(data) // BLOCK))
    assert native_blocks.seal_blocks(data, out, KEY, PREFIX, BLOCK, first_block, threads) == len(out)
    return bytes(out)


def open_(data: bytes, first_block: int, threads: int = 1) -> bytes:
    out = bytearray(len(data))
    return bytes(out[: native_blocks.open_blocks(data, out, KEY, PREFIX, BLOCK, first_block, threads)])


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("first", [0, 255, 256, 65_535, (1 << 24) - 1, (1 << 31) - 6, LAST - 3])
def test_blocks_up_to_the_last_index_have_the_references_aad(first: int, threads: int) -> None:
    data = pattern(4 * BLOCK - 3)
    assert open_(sealed_by_reference(data, first), first, threads) == data
    made = seal(data, first, threads)
    for index, block in enumerate(checks.blocks_of(bytes(8) + made, BLOCK)):
        again = reference.seal_block(data[index * BLOCK :][:BLOCK], KEY, PREFIX, first + index, block[:12])
        assert again == block


def test_the_last_index_works_and_the_next_is_refused() -> None:
    data = pattern(BLOCK)
    assert open_(seal(data, LAST), LAST) == data
    for first in (LAST + 1, 1 << 31, (1 << 32) - 1, 1 << 32, (1 << 32) + 1, 1 << 63, 1 << 64):
        with pytest.raises(ags1.LimitError, match=r"block \d+ is above the 2147483647 blocks"):
            seal(data, first)
        with pytest.raises(ags1.LimitError, match=r"block \d+ is above the 2147483647 blocks"):
            open_(bytes(BLOCK + OVERHEAD), first)
    with pytest.raises(ags1.LimitError, match="above the 2147483647 blocks"):
        seal(pattern(2 * BLOCK), LAST)


def test_an_index_beyond_32_bits_does_not_stand_for_a_small_one() -> None:
    # The AAD has 32 bits of the index. Behind 2^32 blocks of a pipe, block 0 must not authenticate once more.
    block = sealed_by_reference(pattern(BLOCK), 0)
    for first in (1 << 32, -(1 << 32), 2 << 32):
        with pytest.raises((ags1.LimitError, ags1.AuthenticationError)):
            open_(block, first)
    highest = reference.NONCE_LENGTH * b"\0" + reference.AESGCM(KEY).encrypt(
        bytes(12), pattern(BLOCK), PREFIX + struct.pack("<I", 0xFFFFFFFF)
    )
    with pytest.raises((ags1.LimitError, ags1.AuthenticationError)):
        open_(highest, -1)


def test_descriptors_refuse_the_same_indices(tmp_path: Path) -> None:
    data = pattern(BLOCK)
    path = tmp_path / "blocks"
    path.write_bytes(sealed_by_reference(data, LAST))
    with open(path, "rb") as file, open(tmp_path / "out", "wb+") as target:
        out = bytearray(BLOCK)
        descriptors.open_from_file(file.fileno(), 0, out, KEY, PREFIX, BLOCK, LAST, 1)
        assert out == data
        for first in (LAST + 1, 1 << 32, (1 << 63) - 1):
            with pytest.raises(ags1.LimitError, match="above the 2147483647 blocks"):
                descriptors.open_from_file(file.fileno(), 0, out, KEY, PREFIX, BLOCK, first, 1)
            with pytest.raises(ags1.LimitError, match="above the 2147483647 blocks"):
                descriptors.seal_into_file(data, target.fileno(), 0, KEY, PREFIX, BLOCK, first, 1)
        descriptors.seal_into_file(data, target.fileno(), 0, KEY, PREFIX, BLOCK, LAST, 1)
    assert open_((tmp_path / "out").read_bytes(), LAST) == data


def test_a_writer_stops_before_the_index_runs_over() -> None:
    # 2^31 blocks cannot be written in a test: the counter is moved instead.
    sink = io.BytesIO()
    writer = ags1.Writer(sink, KEY, block_length=BLOCK, threads=1)
    writer.write(pattern(BLOCK))
    writer.flush()
    writer._next_block = LAST
    writer.write(pattern(BLOCK))
    writer.flush()
    writer.write(pattern(1))
    with pytest.raises(ags1.LimitError, match="needs more than 2147483647 blocks of 20 bytes"):
        writer.close()
    writer.close()
    with pytest.raises(ags1.Ags1Error):
        ags1.decrypt(sink.getvalue(), KEY)


def test_sparse_files_with_more_blocks_than_there_are_indices(tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    with open(path, "wb") as file:
        file.write(b"AGS1" + struct.pack("<I", 1))
        try:
            file.truncate(8 + 29 * (1 << 31))
        except OSError:
            pytest.skip("this file system has no such large files")
    for call in (ags1.verify_file, lambda path, key: ags1.open(path, key=key)):
        with pytest.raises(ags1.LimitError, match="more than 2147483647 blocks"):
            call(path, KEY)
    with pytest.raises(ags1.LimitError, match="more than 2147483647 blocks"):
        ags1.decrypt_file(path, tmp_path / "out", KEY)
    with open(path, "r+b") as file:
        file.truncate(8 + 29 * ((1 << 31) - 1))
    with ags1.open(path, key=KEY) as reader:
        assert reader.size == (1 << 31) - 1
        with pytest.raises(ags1.AuthenticationError, match="block 2147483646 failed"):
            reader.pread(LAST, 1)


# -- messages under one key ------------------------------------------------------------------------------------

MOST = 1 << 32
WINDOWS = (1 << 17) + 5  # more blocks than nonces are drawn for at once

SEALING: dict[str, tuple[int, Callable[[ags1.Key, Path], object]]] = {
    "encrypt": (3, lambda key, _: ags1.encrypt(bytes(2 * BLOCK + 1), key, block_length=BLOCK)),
    "encrypt nothing": (1, lambda key, _: ags1.encrypt(b"", key)),
    "encrypt_into": (2, lambda key, _: ags1.encrypt_into(bytes(2 * BLOCK), bytearray(999), key, block_length=BLOCK)),
    "encrypt_many": (5, lambda key, _: ags1.encrypt_many([bytes(BLOCK), b"", bytes(50)], key, block_length=BLOCK)),
    "encrypt_many with windows": (
        WINDOWS,
        lambda key, _: ags1.encrypt_many([bytes(WINDOWS)], key, block_length=1),
    ),
    "encrypt_many with keys": (4, lambda key, _: ags1.encrypt_many([b""] * 4, [key] * 4)),
    "Writer over memory": (3, lambda key, _: write(io.BytesIO(), key)),
    "Writer to a path": (3, lambda key, path: write(path / "out", key)),
    "encrypt_file": (3, lambda key, path: ags1.encrypt_file(path / "in", path / "out", key, block_length=BLOCK)),
    "encrypt_file of an object": (
        3,
        lambda key, path: ags1.encrypt_file(io.BytesIO(bytes(50)), path / "out", key, block_length=BLOCK),
    ),
    "arrow": (1, lambda key, _: ags1.arrow.encrypt_buffers([pa.py_buffer(b"data")], key)),
    "a wrapped key": (1, lambda key, _: gcm.seal_message(b"key", key, bytes(12))),
    "a Parquet module": (1, lambda key, _: modules.seal_module(b"module", key, b"")),
    "a Parquet CTR module": (1, lambda key, _: modules.seal_module(b"module", key, b"", True)),
    "a Parquet footer": (1, lambda key, _: modules.sign_footer(b"footer", key, b"")),
}


def write(sink: Any, key: ags1.Key) -> None:
    with ags1.Writer(sink, key, block_length=BLOCK) as writer:
        writer.write(bytes(BLOCK + 1))
        writer.flush()
        writer.write(bytes(BLOCK))


@pytest.mark.parametrize("name", SEALING)
def test_a_key_counts_all_that_it_seals_and_refuses_more_than_two_to_the_32(name: str, tmp_path: Path) -> None:
    messages, call = SEALING[name]
    (tmp_path / "in").write_bytes(bytes(2 * BLOCK + 1))
    key = ags1.Key(KEY)
    count = checks.count_of_messages(key)
    for start in (0, MOST - messages):
        count.value = start
        call(key, tmp_path)
        assert count.value == start + messages
    (tmp_path / "out").unlink(missing_ok=True)
    count.value = MOST - messages + 1
    with pytest.raises(ags1.LimitError, match=r"one key may seal 4294967296 messages.*use a fresh key"):
        call(key, tmp_path)
    assert not (tmp_path / "out").exists()
    assert count.value <= MOST


def test_reading_counts_nothing_and_other_keys_count_for_themselves() -> None:
    key, other = ags1.Key(KEY), ags1.Key(KEY)
    count = checks.count_of_messages(key)
    count.value = MOST
    stream = ags1.encrypt(pattern(50), other, block_length=BLOCK)
    assert ags1.decrypt(stream, key) == pattern(50)
    assert ags1.Reader(stream, key).read() == pattern(50)
    assert ags1.decrypt_many([stream], key) == [pattern(50)]
    assert count.value == MOST
    # Bytes of a key are a key of their own in each call.
    assert ags1.decrypt(ags1.encrypt(b"x", bytes(key)), key) == b"x"


# -- sizes that are only claimed -----------------------------------------------------------------------------

MEASURED = """
        import io, os, resource, struct, sys, tempfile
        import ags1
        from tests import checks

        KEY, PREFIX = checks.KEY, checks.PREFIX

        def used():
            with open("/proc/self/status") as status:
                fields = dict(line.split(":", 1) for line in status)
            return int(fields["VmHWM"].split()[0]), int(fields["VmPeak"].split()[0])

        def refused(call):
            try:
                call()
            except ags1.Ags1Error as error:
                return error
            raise SystemExit("accepted")

        def limit(mebibytes):
            # Of address space, on top of what is taken already: also memory that is never touched counts.
            resource.setrlimit(resource.RLIMIT_AS, ((used()[1] << 10) + (mebibytes << 20),) * 2)
"""


def test_claimed_block_lengths_take_no_memory(tmp_path: Path) -> None:
    run_python(
        MEASURED
        + """
        limit(64)
        for claimed in (1, 1 << 20, (1 << 30) - 1, (1 << 31) - 1, 1 << 31, (1 << 32) - 1):
            for body in (b"", bytes(27), bytes(28), bytes(29), bytes(100)):
                stream = b"AGS1" + struct.pack("<I", claimed) + body
                path = sys.argv[1] + "/stream"
                with open(path, "wb") as file:
                    file.write(stream)
                calls = [
                    lambda: ags1.decrypt(stream, KEY),
                    lambda: ags1.decrypt(stream, KEY, threads=4),
                    lambda: ags1.decrypt_many([stream] * 9, KEY, threads=4),
                    lambda: ags1.Reader(stream, KEY).read(),
                    lambda: ags1.Reader(stream, KEY).pread(0, 1 << 62),
                    lambda: ags1.Reader(path, KEY).read(1),
                    lambda: ags1.Reader(io.BytesIO(stream), KEY).readline(),
                    lambda: ags1.Reader(checks.Pipe(stream), KEY).read(),
                    lambda: ags1.decrypt_file(path, path + ".plain", KEY, threads=4),
                    lambda: ags1.decrypt_file(checks.Pipe(stream), io.BytesIO(), KEY),
                ]
                for call in calls:
                    refused(call)
                if len(body) >= 28:
                    try:
                        assert not ags1.verify_file(path, KEY).ok
                    except ags1.FormatError:
                        pass
        """,
        str(tmp_path),
    )


def test_claimed_block_lengths_of_authentic_streams_take_no_memory() -> None:
    run_python(
        MEASURED
        + """
        limit(64)
        small = ags1.encrypt(b"small", KEY, block_length=(1 << 31) - 1, threads=4)
        assert ags1.decrypt(small, KEY, threads=4) == b"small"
        with ags1.Reader(checks.Pipe(small), KEY) as reader:
            assert reader.read() == b"small"
        with ags1.Reader(small, KEY) as reader:
            assert reader.read(2) + reader.pread(2, 1 << 40) == b"small"
        sink = io.BytesIO()
        with ags1.Writer(sink, KEY, block_length=(1 << 31) - 1) as writer:
            writer.write(b"small")
        assert ags1.decrypt(sink.getvalue(), KEY) == b"small"
        """
    )


def test_claimed_lengths_in_key_metadata_take_no_memory() -> None:
    run_python(
        MEASURED
        + """
        limit(32)
        whole = ags1.KeyMetadata(KEY, PREFIX, (1 << 63) - 1).encode()
        ags1.KeyMetadata.decode(whole)
        huge = b"\\xfe" + b"\\xff" * 8 + b"\\x01"
        for data in (b"\\x01" + huge, b"\\x01\\x40" + KEY + b"\\x02" + huge, b"\\x01" + b"\\xff" * 1000):
            refused(lambda: ags1.KeyMetadata.decode(data))
        """
    )


def test_a_large_file_of_one_huge_block_costs_memory_only_where_it_is_read(tmp_path: Path) -> None:
    # Nothing but its size on the disk entitles a stream to memory, and what needs no block of it takes none.
    run_python(
        MEASURED
        + """
        path = sys.argv[1] + "/sparse"
        with open(path, "wb") as file:
            file.write(b"AGS1" + struct.pack("<I", (1 << 31) - 1))
            file.truncate(3 << 30)
        limit(64)
        with ags1.open(path, key=KEY) as reader:
            assert reader.size > 1 << 31 and reader.seek(5) == 5
            try:
                reader.read(1)
            except MemoryError:
                pass
            else:
                raise SystemExit("a block of 2 GiB in 64 MiB?")
        from ags1.cli import main
        assert main(["inspect", path]) == 0
        """,
        str(tmp_path),
    )


def test_a_batch_whose_sum_is_beyond_64_bits_is_refused() -> None:
    # The same 32 TiB of address space again and again, such that the sum of the results is a few bytes in 64 bits.
    if not os.path.isdir("/dev/shm"):
        pytest.skip("no tmpfs for a file of 32 TiB")
    run_python(
        """
        import mmap, os
        import ags1
        BLOCK = (1 << 31) - 1
        descriptor = os.open("/dev/shm", os.O_TMPFILE | os.O_RDWR)
        os.ftruncate(descriptor, 1 << 45)
        whole = memoryview(mmap.mmap(descriptor, 1 << 45, prot=mmap.PROT_READ))
        length = ags1.encrypted_length(1 << 45, BLOCK)
        count, rest = divmod(1 << 64, length)
        last = rest + 4096
        last -= 8 + 28 * -(-last // (BLOCK + 28))
        assert (count * length + ags1.encrypted_length(last, BLOCK)) % (1 << 64) < 10_000
        try:
            ags1.encrypt_many([whole] * count + [whole[:last]], bytes(32), block_length=BLOCK)
        except (MemoryError, ags1.LimitError) as error:
            print("refused", error)
        else:
            raise SystemExit("accepted")
        """
    )


@pytest.mark.parametrize("call", ["encrypt", "batch", "pread", "read"])
def test_sizes_that_no_memory_has_are_memory_errors(call: str) -> None:
    calls: dict[str, Any] = {
        "encrypt": lambda huge: ags1.encrypt(huge, KEY, block_length=(1 << 31) - 1),
        "batch": lambda huge: ags1.encrypt_many([huge], KEY, block_length=(1 << 31) - 1),
        "pread": lambda huge: ags1.Reader(huge, KEY).pread(0, 1 << 46),
        "read": lambda huge: ags1.Reader(huge, KEY).read(),
    }
    if not os.path.isdir("/dev/shm"):
        pytest.skip("no tmpfs for a file of 32 TiB")
    descriptor = os.open("/dev/shm", os.O_TMPFILE | os.O_RDWR)
    try:
        os.ftruncate(descriptor, 1 << 45)
        os.pwrite(descriptor, b"AGS1" + struct.pack("<I", 1 << 20), 0)
        with mmap.mmap(descriptor, 1 << 45, prot=mmap.PROT_READ) as huge:
            with pytest.raises(MemoryError):
                calls[call](huge)
    finally:
        os.close(descriptor)
