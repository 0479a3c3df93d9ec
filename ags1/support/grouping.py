"""Neighbours in groups of about the same size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    Item = TypeVar("Item")


def grouped(items: Iterable[Item], size_of: Callable[[Item], int], enough: int) -> Iterator[list[Item]]:
    """Yield the items in lists, each of which ends with the item that brings its size to `enough`, or with the last."""
    waiting: list[Item] = []
    size = 0
    for each in items:
        waiting.append(each)
        size += size_of(each)
        if size >= enough:
            yield waiting
            waiting, size = [], 0
    if waiting:
        yield waiting
