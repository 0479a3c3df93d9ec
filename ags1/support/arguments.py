"""Checks of arguments; the messages name the argument."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    T = TypeVar("T")


def one_of(value: T, choices: tuple[T, ...], what: str) -> T:
    """Return the value if it is one of `choices`, else raise ValueError."""
    if value not in choices or isinstance(value, bool):
        *others, last = map(repr, choices)
        raise ValueError(f"{what} must be {', '.join(others)} or {last}, not {value!r}")
    return value


def at_least_one(number: int | None, what: str) -> None:
    """Raise ValueError for a number below 1. None is the default of the argument."""
    if number is not None and number < 1:
        raise ValueError(f"{what} must be at least 1, got {number}")
