"""The values of one JSON text, as Spark's parser finds them where Python's is too strict, or forgets what was written.

Single quotes are quotes; NaN, Infinity and INF are numbers; what follows the first value is ignored. Each value but a
text and null is a :class:`JsonNode`.
"""

from __future__ import annotations

import decimal
import json
import math
import re
from typing import Any, NamedTuple

_BLANK = re.compile(r"[ \t\r\n]*")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
_WORD = re.compile(r"(true|false|null|NaN|Infinity|([+-])(?:INF|Infinity))(?![\w$])")
_WORDS = {"true": True, "false": False, "NaN": math.nan, "Infinity": math.inf}
_TEXTS = {quote: re.compile(rf"{quote}((?:[^{quote}\\\x00-\x1f]|\\.)*){quote}", re.DOTALL) for quote in "\"'"}
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPES = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r"}


class JsonNode(NamedTuple):
    """A value and its text."""

    value: Any
    text: str


def plain(node: Any) -> Any:
    """A value without its text."""
    return node.value if isinstance(node, JsonNode) else node


def loaded(text: str) -> Any:
    """The first value of a text, without its text where it is not needed to read it. Raise ValueError if it is invalid.

    Numbers with a point or an exponent are decimals.
    """
    try:
        return json.loads(text, parse_float=decimal.Decimal)
    except ValueError:
        return scanned(text)
    except RecursionError:
        raise ValueError("too deep") from None


def scanned(text: str) -> Any:
    """The first value of a text. Raise ValueError if it is invalid."""
    try:
        return _value(text, _blank(text, 0))[0]
    except (IndexError, RecursionError):
        raise ValueError("invalid JSON") from None


def _blank(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    return at if found is None else found.end()


def _value(text: str, at: int) -> tuple[Any, int]:
    letter = text[at]
    value: Any
    if letter in _TEXTS:
        return _text(text, at)
    if letter == "{":
        value, end = _object(text, at)
    elif letter == "[":
        value, end = _array(text, at)
    elif (found := _WORD.match(text, at)) is not None:
        end = found.end()
        if found[1] == "null":
            return None, end
        value = _WORDS.get(found[1], -math.inf if found[2] == "-" else math.inf)
    elif (found := _NUMBER.match(text, at)) is not None:
        end = found.end()
        value = decimal.Decimal(found[0]) if found[1] or found[2] else int(found[0])
    else:
        raise ValueError("no value")
    return JsonNode(value, text[at:end]), end


def _object(text: str, at: int) -> tuple[dict[str, Any], int]:
    fields: dict[str, Any] = {}
    at = _blank(text, at + 1)
    if text[at] == "}":
        return fields, at + 1
    while True:
        name, at = _text(text, at)
        at = _blank(text, at)
        if text[at] != ":":
            raise ValueError("no colon")
        fields[name], at = _value(text, _blank(text, at + 1))
        at = _blank(text, at)
        if text[at] == "}":
            return fields, at + 1
        if text[at] != ",":
            raise ValueError("no comma")
        at = _blank(text, at + 1)


def _array(text: str, at: int) -> tuple[list[Any], int]:
    values: list[Any] = []
    at = _blank(text, at + 1)
    if text[at] == "]":
        return values, at + 1
    while True:
        value, at = _value(text, at)
        values.append(value)
        at = _blank(text, at)
        if text[at] == "]":
            return values, at + 1
        if text[at] != ",":
            raise ValueError("no comma")
        at = _blank(text, at + 1)


def _text(text: str, at: int) -> tuple[str, int]:
    found = _TEXTS[text[at]].match(text, at) if text[at] in _TEXTS else None
    if found is None:
        raise ValueError("no text")
    value = _ESCAPE.sub(_unescaped, found[1])
    if any("\ud800" <= letter <= "\udfff" for letter in value):
        # Halves of a pair are one letter.
        value = value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return value, found.end()


def _unescaped(found: re.Match[str]) -> str:
    what = found[1]
    if len(what) == 5:
        return chr(int(what[1:], 16))
    if what in "\"'\\/":
        return what
    if what not in _ESCAPES:
        raise ValueError("an escape that there is not")
    return _ESCAPES[what]
