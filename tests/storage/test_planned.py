"""Planned ranges: whatever was planned, and in whatever order it is read, the bytes are those of the source."""

from __future__ import annotations

import random
import threading

import pytest

from ags1.storage import MemorySource, PlannedSource
from ags1.storage.read_ahead import SEQUENTIAL_PIECE

DATA = random.Random(7).randbytes(5 * SEQUENTIAL_PIECE + 12_345)


@pytest.mark.parametrize("seed", range(20))
def test_ranges_that_overlap_and_repeat_are_read_as_they_are(seed: int) -> None:
    chooser = random.Random(seed)

    def some() -> tuple[int, int]:
        begin = chooser.randrange(len(DATA))
        return begin, min(len(DATA), begin + chooser.choice([1, 1000, 1 << 20, SEQUENTIAL_PIECE, 2 * SEQUENTIAL_PIECE]))

    source = PlannedSource(MemorySource(DATA), chooser.choice([None, 1, SEQUENTIAL_PIECE]))
    for _ in range(chooser.randrange(1, 5)):
        source.will_read([some() for _ in range(chooser.randrange(1, 6))])
        for _ in range(10):
            begin, end = some()
            assert bytes(memoryview(source.read(begin, end - begin))) == DATA[begin:end]
    source.close()


def test_threads_read_what_is_planned_at_once() -> None:
    source = PlannedSource(MemorySource(DATA))
    source.will_read([(0, len(DATA))])
    wrong: list[int] = []

    def read(first: int) -> None:
        for begin in range(first, len(DATA), 400_000):
            size = min(400_000, len(DATA) - begin)
            if bytes(memoryview(source.read(begin, size))) != DATA[begin : begin + size]:
                wrong.append(begin)

    threads = [threading.Thread(target=read, args=(first,)) for first in (0, 100_000, 200_000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not wrong
    source.close()
