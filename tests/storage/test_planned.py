"""Planned ranges: whatever was planned, and in whatever order it is read, the bytes are those of the source."""

from __future__ import annotations

import random
import threading

import pytest

from ags1.storage import MemorySource, PlannedSource
from ags1.storage.read_ahead import SEQUENTIAL_PIECE
from ags1.support.typing import Buffer

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
        thread.join()
    assert not wrong
    source.close()


class Counted(MemorySource):
    """Says what was asked for."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.asked: list[tuple[int, int]] = []

    def read(self, offset: int, size: int) -> Buffer:
        self.asked.append((offset, size))
        return super().read(offset, size)


def test_a_look_at_the_end_has_nothing_fetched_twice() -> None:
    counted = Counted(DATA)
    source = PlannedSource(counted)
    # Too far from one another to be fetched together.
    *ranges, ending = [(at, at + 100) for at in range(0, len(DATA) - 100, len(DATA) // 20)]
    source.will_read([ending])
    source.will_read(ranges)
    for begin, end in (ending, *ranges):
        assert bytes(memoryview(source.read(begin, end - begin))) == DATA[begin:end]
    source.close()
    assert len(counted.asked) == len(set(counted.asked)) == 1 + len(ranges)


def test_what_is_passed_over_is_given_up() -> None:
    counted = Counted(DATA)
    source = PlannedSource(counted, SEQUENTIAL_PIECE)
    step = len(DATA) // 40
    ranges = [(at, at + 1) for at in range(0, len(DATA), step)]
    for each in ranges:
        source.will_read([each])
    for begin, end in ranges[1:]:
        source.read(begin, end - begin)
    assert source._budget.taken <= 1, "a piece that nobody asks for holds memory for ever"
    source.close()


@pytest.mark.parametrize("length", [1, 1000, SEQUENTIAL_PIECE, SEQUENTIAL_PIECE + 1000, 3 * SEQUENTIAL_PIECE + 1])
def test_no_piece_is_for_a_few_bytes(length: int) -> None:
    counted = Counted(DATA)
    source = PlannedSource(counted)
    source.will_read([(0, length)])
    assert bytes(memoryview(source.read(0, length))) == DATA[:length]
    source.close()
    assert all(2 * size >= min(length, SEQUENTIAL_PIECE) for _, size in counted.asked)
