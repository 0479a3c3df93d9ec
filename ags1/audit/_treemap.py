"""A treemap: rectangles whose areas are in proportion to numbers, as square as they can be.

Source: Bruls, Huizing, van Wijk: "Squarified Treemaps", 2000.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Rectangle", "squarified"]


@dataclass(frozen=True)
class Rectangle:
    """A rectangle, with its upper left corner."""

    x: float
    y: float
    width: float
    height: float


def squarified(sizes: list[float], inside: Rectangle) -> list[Rectangle]:
    """A rectangle for each size, together all of `inside`.

    Parameters
    ----------
    sizes : list of float
        Positive, in descending order.
    """
    found: list[Rectangle] = []
    rest, total = inside, sum(sizes)
    start = 0
    while start < len(sizes):
        scale = rest.width * rest.height / total if total > 0 else 0.0
        side = min(rest.width, rest.height)
        end = start + 1
        while end < len(sizes) and _worst(sizes[start : end + 1], side, scale) <= _worst(sizes[start:end], side, scale):
            end += 1
        row = sizes[start:end]
        placed, rest = _place(row, rest, sum(row) / total if total > 0 else 0.0)
        found += placed
        total -= sum(row)
        start = end
    return found


def _worst(row: list[float], side: float, scale: float) -> float:
    """The largest ratio of sides in a row along a side."""
    area = sum(row) * scale
    if area <= 0 or side <= 0:
        return float("inf")
    return max(side * side * row[0] * scale / area**2, area**2 / (side * side * row[-1] * scale))


def _place(row: list[float], rest: Rectangle, share: float) -> tuple[list[Rectangle], Rectangle]:
    """A row along the shorter side, and what is left."""
    found = []
    total = sum(row)
    if rest.width >= rest.height:
        width, y = rest.width * share, rest.y
        for size in row:
            height = rest.height * size / total
            found.append(Rectangle(rest.x, y, width, height))
            y += height
        return found, Rectangle(rest.x + width, rest.y, rest.width - width, rest.height)
    height, x = rest.height * share, rest.x
    for size in row:
        width = rest.width * size / total
        found.append(Rectangle(x, rest.y, width, height))
        x += width
    return found, Rectangle(rest.x, rest.y + height, rest.width, rest.height - height)
