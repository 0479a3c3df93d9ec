"""One Reader for many threads, and for a forked process: nothing that it reads is wrong, and nothing leaks."""

from __future__ import annotations

import functools
import hashlib
import io
import itertools
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ags1
from tests import checks
from tests.checks import open_descriptors, pattern
from tests.streams.test_stream import BIG_BLOCK, LENGTH, reader_of, sealed

IGNORE_FORK_WARNING = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
THREADED_SOURCES: dict[str, Callable[[Path], Any]] = {
    "path": lambda path: path,
    "memory": lambda path: path.read_bytes(),
    "file object": lambda path: io.BytesIO(path.read_bytes()),
}


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("streams") / "big.ags1"
    path.write_bytes(sealed(LENGTH, BIG_BLOCK))
    return path


def check_preads(reader: ags1.Reader, seed: int, rounds: int = 60) -> None:
    data = pattern(LENGTH)
    choose = random.Random(seed)
    for number in range(rounds):
        offset, size = choose.randrange(LENGTH), choose.choice([1, 4096, BIG_BLOCK, 300_000])
        expected = data[offset : offset + size]
        if number % 2:
            assert reader.pread(offset, size) == expected
        else:
            memory = bytearray(size)
            assert reader.pread_into(offset, memory) == len(expected)
            assert memory[: len(expected)] == expected


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", sorted(THREADED_SOURCES))
def test_eight_threads_on_one_reader(kind: str, big: Path) -> None:
    with reader_of(THREADED_SOURCES[kind](big)) as reader:
        jobs = [functools.partial(check_preads, reader, seed) for seed in range(8)]
        checks.in_threads(jobs)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", sorted(THREADED_SOURCES))
def test_pread_beside_sequential_reading(kind: str, big: Path) -> None:
    def read_through(reader: ags1.Reader) -> None:
        pieces = iter(lambda: reader.read(10_007), b"")
        assert b"".join(pieces) == pattern(LENGTH)

    with reader_of(THREADED_SOURCES[kind](big)) as reader:
        jobs = [functools.partial(check_preads, reader, seed) for seed in range(3)]
        checks.in_threads([*jobs, functools.partial(read_through, reader)])


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", sorted(THREADED_SOURCES))
def test_closing_while_others_read(kind: str, big: Path) -> None:
    data = pattern(LENGTH)
    before = open_descriptors()
    for _ in range(10):
        reader = reader_of(THREADED_SOURCES[kind](big))
        started = threading.Barrier(5)

        def read_until_closed(seed: int, reader: ags1.Reader = reader, started: Any = started) -> None:
            choose = random.Random(seed)
            offsets = (choose.randrange(LENGTH) for _ in itertools.count())
            started.wait(600)
            with pytest.raises(ValueError, match=r"closed|released"):
                all(reader.pread(at, 100_000) == data[at : at + 100_000] for at in offsets)
            assert reader.closed, "and no read was wrong"

        def close(reader: ags1.Reader = reader, started: Any = started) -> None:
            started.wait(600)
            reader.close()

        checks.in_threads([close, *(functools.partial(read_until_closed, seed) for seed in range(4))])
    assert open_descriptors() == before


@IGNORE_FORK_WARNING
@pytest.mark.timeout(60)
def test_after_a_fork_parent_and_child_both_read_right(big: Path) -> None:
    data = pattern(LENGTH)
    with reader_of(big) as reader:
        assert reader.read(100_000) == data[:100_000]

        def child() -> bytes:
            rest = reader.read()
            check_preads(reader, 1)
            return hashlib.sha256(rest).digest()

        assert checks.in_child(child) == hashlib.sha256(data[100_000:]).digest()
        assert reader.read() == data[100_000:]
        check_preads(reader, 2)


@pytest.mark.timeout(120)
def test_idle_writers_keep_no_threads_and_go_on(tmp_path: Path) -> None:
    """The thread behind a Writer ends when nothing comes; the next window starts another."""
    before = checks.os_threads()
    data = pattern(LENGTH)
    key = bytes(16)
    writers = [ags1.Writer(tmp_path / f"{number}", key, block_length=1000, threads=2) for number in range(20)]
    most = 0
    for start, end in itertools.pairwise(range(0, LENGTH + 1, LENGTH // 4)):
        for writer in writers:
            for at in range(start, end, 100_000):
                writer.write(data[at : min(at + 100_000, end)])
            most = max(most, len(checks.os_threads() - before))
        while checks.os_threads() - before:
            pass
    assert most > 0
    for number, writer in enumerate(writers):
        writer.close()
        assert ags1.decrypt((tmp_path / f"{number}").read_bytes(), key) == data[: LENGTH // 4 * 4]
