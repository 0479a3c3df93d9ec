"""Rectangles of a treemap: all of the area, each in proportion, none over another."""

from __future__ import annotations

import random

import pytest

from ags1.audit._html import Rectangle, squarified


@pytest.mark.parametrize("seed", range(20))
def test_rectangles_have_the_areas_and_fill_the_whole(seed: int) -> None:
    chance = random.Random(seed)
    sizes = sorted((chance.paretovariate(0.5) for _ in range(chance.randint(1, 80))), reverse=True)
    inside = Rectangle(3, 5, chance.uniform(50, 2000), chance.uniform(50, 2000))
    found = squarified(sizes, inside)
    area = inside.width * inside.height
    assert len(found) == len(sizes)
    for size, each in zip(sizes, found, strict=True):
        assert each.width * each.height == pytest.approx(area * size / sum(sizes), rel=1e-6, abs=1e-9)
        assert inside.x - 1e-6 <= each.x
        assert each.x + each.width <= inside.x + inside.width + 1e-6
        assert inside.y - 1e-6 <= each.y
        assert each.y + each.height <= inside.y + inside.height + 1e-6
    for number, one in enumerate(found):
        for other in found[number + 1 :]:
            wide = min(one.x + one.width, other.x + other.width) - max(one.x, other.x)
            high = min(one.y + one.height, other.y + other.height) - max(one.y, other.y)
            assert wide <= 1e-6 or high <= 1e-6


def test_equal_sizes_in_a_square_are_nearly_squares() -> None:
    for each in squarified([1.0] * 16, Rectangle(0, 0, 100, 100)):
        assert each.width == pytest.approx(each.height)


def test_nothing_has_no_rectangles() -> None:
    assert squarified([], Rectangle(0, 0, 1, 1)) == []
