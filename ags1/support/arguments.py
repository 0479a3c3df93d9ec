"""Checks of arguments, whose messages name the argument, and the names of arguments in messages."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias, TypeVar

    T = TypeVar("T")
    Spelling: TypeAlias = Callable[[str, object], str | None]

_spelling: Spelling | None = None


def spelled(name: str, value: object = ...) -> str:
    """An argument, one value of it, or a function, as the reader of a message writes it: `name`, or `name=value`.

    Where a command shows the message (:func:`spell_by`), it is an option.
    """
    found = None if _spelling is None else _spelling(name, value)
    if found is not None:
        return found
    return f"`{name}`" if value is ... else f"`{name}={value!r}`"


def spell_by(spelling: Spelling | None) -> Spelling | None:
    """Let messages of this process, from now on, name arguments in another way; return how they did it before.

    The function gets the name and the value of an argument, and Ellipsis for no value. It returns None for a name that
    it does not know.
    """
    global _spelling
    before, _spelling = _spelling, spelling
    return before


def spelling() -> Spelling | None:
    """How messages of this process name arguments, for processes that work for it."""
    return _spelling


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
