"""Plans: no task with much more than the others."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from ags1.spark.engine.planning import Unit, bin_count, pack, weight_of
from tests.checks import MIB

GIB = 1 << 30

sizes = st.integers(0, 100) | st.integers(0, 50 * MIB) | st.sampled_from((0, 1, MIB - 1, MIB, MIB + 1, 9 * MIB))


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
