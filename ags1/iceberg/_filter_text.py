"""Row filters as text: PyIceberg's language, with quoted names of any characters."""

from __future__ import annotations

import re
from typing import Any

from pyiceberg import expressions as written
from pyiceberg.expressions.parser import parse
from pyparsing import ParseBaseException

__all__ = ["parse_filter"]

# A text, which stays as it is, or a name in double quotes.
_QUOTED = re.compile(r"""'(?:[^']|'')*'|"((?:[^"\\]|\\.)+)\"""", re.DOTALL)


def parse_filter(text: str) -> Any:
    """PyIceberg's expression for a row filter such as ``amount > 10 and "unit price" is not null``; or a ValueError."""
    prefix = "_q"
    while prefix in text:
        prefix += "q"
    names: dict[str, str] = {}

    def hidden(found: re.Match[str]) -> str:
        if found[1] is None:
            return found[0]
        mark = f"{prefix}{len(names)}"
        names[mark] = re.sub(r"\\(.)", r"\1", found[1])
        return mark.ljust(len(found[0]))

    # PyIceberg refuses quoted names with dots.
    plain = _QUOTED.sub(hidden, text)
    try:
        made = parse(plain)
    except ParseBaseException as error:
        quotes = "; a text stands in single quotes, a name in double ones" if '"' in text else ""
        # Its own message lists the whole grammar.
        raise ValueError(
            f"the filter {text!r} cannot be understood, from character {error.column} on: write amount > 10 and "
            f"country = 'CH', with and, or, not, in, is null, is nan, like and between{quotes}"
        ) from None
    return _named(made, names) if names else made


def _named(expression: Any, names: dict[str, str]) -> Any:
    """The expression with the names that stand for its marks."""
    if isinstance(expression, written.Not):
        return written.Not(_named(expression.child, names))
    if isinstance(expression, (written.And, written.Or)):
        return type(expression)(_named(expression.left, names), _named(expression.right, names))
    if isinstance(expression, written.UnboundPredicate):
        column: Any = expression.term
        parts = column.name.split(".")
        term = written.Reference(".".join(names.get(each, each) for each in parts))
        if isinstance(expression, written.SetPredicate):
            return type(expression)(term, expression.literals)
        if isinstance(expression, written.LiteralPredicate):
            return type(expression)(term, expression.literal)
        return type(expression)(term)
    return expression
