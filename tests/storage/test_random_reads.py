"""Random use of Readers and Writers, beside what the standard library does with the plaintext."""

from __future__ import annotations

import io
import random
from pathlib import Path
from typing import Any

import pytest

import ags1
from ags1.storage import Location, open_output, open_source
from ags1.storage.read_ahead import _process
from tests.checks import KEY, in_threads
from tests.servers.s3 import S3Server

MIB = 1 << 20
LARGE = random.Random(1).randbytes(24 * MIB + 77)
# Lines, too.
LINES = b"".join(b"%d,%s\n" % (number, b"x" * (number % 97)) for number in range(60_000))


def _use(reader: Any, reference: io.BufferedReader, seeded: random.Random, size: int) -> None:
    """Do the same to both, and compare."""
    what = seeded.randrange(9)
    length = seeded.choice([0, 1, 100, 5000, 65_536, MIB + 1, 6 * MIB])
    if what == 0:
        offset = seeded.randrange(size + 100)
        assert reader.seek(offset) == reference.seek(offset)
    elif what == 1:
        step = seeded.choice([1, 70_000, 2 * MIB])
        assert reader.seek(min(step, size - reader.tell()), io.SEEK_CUR) == reference.seek(
            min(step, size - reference.tell()), io.SEEK_CUR
        )
    elif what == 2:
        assert reader.readline() == reference.readline()
    elif what == 3:
        ours, its = bytearray(length), bytearray(length)
        assert reader.readinto(ours) == reference.readinto(its)
        assert ours == its
    elif what == 4:
        position = reader.tell()
        got = reader.read1(length)
        assert got == reference.read(len(got))
        assert got or not length or position >= size
    elif what == 5:
        position = reader.tell()
        got = reader.peek(length)
        assert LARGEST.get(size, b"")[position : position + len(got)] == got
        assert reader.tell() == position
    elif what == 6:
        offset = seeded.randrange(size)
        assert reader.pread(offset, length) == LARGEST[size][offset : offset + length]
    else:
        for _ in range(6):
            assert reader.read(length) == reference.read(length)
    assert reader.tell() == reference.tell()


LARGEST = {len(LARGE): LARGE, len(LINES): LINES}


def _differential(stream: Any, data: bytes, seed: int, rounds: int, **options: Any) -> None:
    seeded = random.Random(seed)
    before = _process.taken
    with ags1.open(stream, key=KEY, **options) as reader:
        reference = io.BufferedReader(io.BytesIO(data))  # type: ignore[arg-type]
        for _ in range(rounds):
            _use(reader, reference, seeded, len(data))

        def positional(seed: int) -> None:
            random_ = random.Random(seed)
            for _ in range(15):
                offset, size = random_.randrange(len(data)), random_.choice([1, 70_000, 3 * MIB])
                assert reader.pread(offset, size) == data[offset : offset + size]

        def sequential() -> None:
            reader.seek(0)
            while piece := reader.read(777_777):
                assert piece == data[reader.tell() - len(piece) : reader.tell()]

        in_threads([sequential, *(lambda seed=seed: positional(seed) for seed in range(3))])  # type: ignore[misc]
    assert _process.taken <= before


@pytest.mark.parametrize("budget", [None, MIB, 20 * MIB])
@pytest.mark.parametrize("block_length", [1000, MIB])
@pytest.mark.parametrize("data", [LARGE, LINES])
def test_a_reader_of_a_local_file_is_a_file(tmp_path: Path, data: bytes, block_length: int, budget: int | None) -> None:
    path = tmp_path / "stream"
    path.write_bytes(ags1.encrypt(data, KEY, block_length=block_length))
    _differential(path, data, block_length, 80, memory_budget=budget)


@pytest.mark.parametrize("budget", [None, MIB])
@pytest.mark.parametrize("block_length", [100_000, MIB])
@pytest.mark.parametrize("data", [LARGE, LINES])
def test_a_reader_of_an_object_is_a_file(
    s3_server: S3Server, s3_bucket: str, data: bytes, block_length: int, budget: int | None
) -> None:
    place = Location(f"s3://{s3_bucket}/stream", s3_server.storage_options())
    with open_output(place) as output:
        output.write(ags1.encrypt(data, KEY, block_length=block_length))
        output.commit()
    _differential(place, data, block_length, 60, memory_budget=budget)


@pytest.mark.parametrize("block_length", [1000, MIB])
@pytest.mark.parametrize("kind", ["local", "object"])
def test_a_writer_keeps_what_a_file_would(
    s3_server: S3Server, s3_bucket: str, tmp_path: Path, kind: str, block_length: int
) -> None:
    seeded = random.Random(block_length)
    place: Any = tmp_path / "stream"
    if kind == "object":
        place = Location(f"s3://{s3_bucket}/stream", s3_server.storage_options())
    for length in (0, 1, 3 * MIB, len(LARGE)):
        plain = io.BytesIO()
        with ags1.open(place, "wb", key=KEY, block_length=block_length) as writer:
            while plain.tell() < length:
                size = min(seeded.choice([1, 999, 65_536, MIB, 9 * MIB]), length - plain.tell())
                memory = bytearray(LARGE[plain.tell() : plain.tell() + size])
                assert writer.write(memory) == plain.write(memory)
                # The memory is the caller's again.
                memory[:] = bytes(size)
                if seeded.random() < 0.1:
                    writer.flush()
        opened: Any = open_source(place)
        assert ags1.decrypt(bytes(memoryview(opened.read(0, opened.size))), KEY) == plain.getvalue()


def test_a_failed_pread_beside_a_sequential_reader_is_one_error_for_both(tmp_path: Path) -> None:
    """The threat: one thread drops what is ahead while another copies from it."""
    for index in range(20):
        path = tmp_path / f"stream{index}"
        sealed = bytearray(ags1.encrypt(LARGE, KEY))
        sealed[-20] ^= 1
        path.write_bytes(sealed)
        before = _process.taken
        with ags1.open(path, key=KEY) as reader:

            def sequential(reader: Any = reader) -> None:
                at = 0
                try:
                    # The position is not asked for: after an error it is the end, lest the buffer is read.
                    while piece := reader.read(300_000):
                        assert piece == LARGE[at : at + len(piece)]
                        at += len(piece)
                except ags1.AuthenticationError:
                    return
                raise AssertionError("the damaged end was read")

            def positional(reader: Any = reader) -> None:
                with pytest.raises(ags1.AuthenticationError):
                    reader.pread(len(LARGE) - 10, 10)

            in_threads([sequential, positional])
        assert _process.taken <= before
