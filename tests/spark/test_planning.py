"""Plans: every byte of every file in one task, ranges of whole blocks, and no task with much more than the others."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from ags1.spark.engine._planning import PART_BYTES, Unit, bin_count, cut, pack, plan, weight_of
from tests.checks import MIB

GIB = 1 << 30

sizes = st.integers(0, 100) | st.integers(0, 50 * MIB) | st.sampled_from((0, 1, MIB - 1, MIB, MIB + 1, 9 * MIB))
trees = st.lists(sizes, max_size=60).map(lambda found: [(f"{index:03}", size) for index, size in enumerate(found)])


@given(trees, st.integers(1, 20 * MIB), st.integers(1, 20))
def test_every_byte_of_every_file_is_in_exactly_one_unit(
    files: list[tuple[str, int]], part_bytes: int, bins: int
) -> None:
    planned = plan(files, part_bytes, bins)
    assert len(planned) <= bins
    assert all(planned)
    units = sorted((unit for each in planned for unit in each), key=lambda unit: (unit.path, unit.start))
    found: dict[str, list[Unit]] = {}
    for unit in units:
        found.setdefault(unit.path, []).append(unit)
    assert sorted(found) == [path for path, _ in files]
    for path, size in files:
        ranges = found[path]
        assert [unit.start for unit in ranges] == [0, *itertools.accumulate(unit.size for unit in ranges[:-1])]
        assert sum(unit.size for unit in ranges) == size
        assert {unit.whole for unit in ranges} == ({size} if len(ranges) > 1 else {-1})
        # Ranges begin where blocks do, and only the last one ends elsewhere.
        assert all(unit.start % MIB == 0 for unit in ranges)
        assert len({unit.size for unit in ranges[:-1]}) <= 1
        assert all(unit.size > 0 for unit in ranges) or size == 0


def test_the_smallest_and_the_largest_files() -> None:
    def ranges(size: int, part_bytes: int = PART_BYTES) -> list[Unit]:
        return list(cut("file", size, part_bytes))

    assert [unit.whole for unit in ranges(0)] == [unit.whole for unit in ranges(PART_BYTES)] == [-1]
    assert [(unit.size, unit.whole) for unit in ranges(PART_BYTES + 1)] == [
        (PART_BYTES, PART_BYTES + 1),
        (1, PART_BYTES + 1),
    ]
    assert len(ranges(200 * GIB)) == 800
    # A name has a number of five digits for each.
    assert 50_000 < len(ranges(5 << 40, 1)) <= 99_999


@given(st.lists(st.integers(0, 20 * MIB), min_size=1, max_size=200), st.integers(1, 16))
def test_no_bin_has_much_more_than_its_share(found: list[int], bins: int) -> None:
    units = [Unit(f"{index:04}", size) for index, size in enumerate(found)]
    packed = pack(units, bins)
    weights = [sum(map(weight_of, each)) for each in packed]
    share = sum(weights) / bins
    # What list scheduling can promise: the share, and one more piece, which is a unit or small ones together.
    assert max(weights) <= share + max(map(weight_of, units)) + share / 64 + 1
    assert all([each.path for each in units] == sorted(each.path for each in units) for units in packed)


@given(st.lists(st.integers(0, 64).map(lambda size: size * MIB), min_size=1, max_size=7), st.integers(1, 3))
def test_the_heaviest_bin_is_hardly_more_than_a_third_over_the_best_there_is(found: list[int], bins: int) -> None:
    units = [Unit(str(index), size) for index, size in enumerate(found)]
    best = min(heaviest(units, choice, bins) for choice in itertools.product(range(bins), repeat=len(units)))
    assert max(sum(map(weight_of, each)) for each in pack(units, bins)) <= best * (4 / 3) * (1 + 1 / 16)


def heaviest(units: Sequence[Unit], choice: Sequence[int], bins: int) -> int:
    weights = [0] * bins
    for unit, number in zip(units, choice, strict=True):
        weights[number] += weight_of(unit)
    return max(weights)


@given(st.lists(sizes, min_size=1, max_size=50), st.integers(1, 500))
def test_there_are_as_many_tasks_as_are_worth_it(found: list[int], slots: int) -> None:
    units = [Unit(str(index), size) for index, size in enumerate(found)]
    assert 1 <= bin_count(units, slots) <= min(len(units), 4 * slots)


def test_full_rounds_of_all_slots() -> None:
    assert bin_count([Unit(str(index), 0) for index in range(1000)], 8) == 8
    assert bin_count([Unit(str(index), GIB) for index in range(32)], 8) == 16
    assert bin_count([Unit(str(index), GIB) for index in range(1000)], 8) == 32


def test_neighbours_stay_together() -> None:
    units = [Unit(f"{index:05}", 100) for index in range(10_000)]
    for each in pack(units, 4):
        steps = sum(int(after.path) - int(before.path) != 1 for before, after in itertools.pairwise(each))
        assert steps <= 64


def test_nothing_is_planned_for_nothing() -> None:
    assert plan([]) == []
    assert [len(each) for each in plan([("a", 0)])] == [1]


@pytest.mark.parametrize("numbers", [{"part_bytes": 0}, {"bins": 0}, {"slots": 0}, {"bins": -1}])
def test_numbers_below_1_are_refused(numbers: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="part_bytes, bins and slots must be at least 1"):
        plan([("a", 1)], **numbers)


def test_a_negative_size_is_refused_by_the_name_of_its_file() -> None:
    with pytest.raises(ValueError, match="a/b cannot have -1 bytes"):
        plan([("a/b", -1)])
