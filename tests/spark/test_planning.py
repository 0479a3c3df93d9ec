"""Plans: no task with much more than the others."""

from __future__ import annotations

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
    assert max(weights) <= share + max(map(weight_of, units)) + 1
    assert [each for some in packed for each in some] == units
    assert all(packed)


@given(st.lists(sizes, min_size=1, max_size=50), st.integers(1, 500))
def test_there_are_as_many_tasks_as_are_worth_it(found: list[int], slots: int) -> None:
    units = [Unit(str(index), size) for index, size in enumerate(found)]
    assert 1 <= bin_count(units, slots) <= min(len(units), 4 * slots)


def test_full_rounds_of_all_slots() -> None:
    assert bin_count([Unit(str(index), 0) for index in range(1000)], 8) == 8
    assert bin_count([Unit(str(index), GIB) for index in range(32)], 8) == 16
    assert bin_count([Unit(str(index), GIB) for index in range(1000)], 8) == 32
