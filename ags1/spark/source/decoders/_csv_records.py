"""The values of one record of CSV as univocity's parser, which Spark uses, finds them in any text.

It never fails: a quote that is not closed ends with the text, and one that stands where none may makes the value what
is written, quotes included.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ags1.errors import FormatError

_BLANKS = "".join(map(chr, range(33)))
_NONE = "\0"
_LINE_END = "\n"


@dataclass(frozen=True)
class Dialect:
    """Characters of a CSV text; empty ones are not used.

    Attributes
    ----------
    empty : str
        What a pair of quotes means.
    left, right : bool
        Whether blanks in front of values, and behind values without quotes, are left out.
    """

    sep: str
    quote: str
    escape: str
    empty: str = ""
    left: bool = False
    right: bool = False
    comment: str = ""


class _End(Exception):
    """The text ends."""


class _Parser:
    """Names and order are those of univocity's CsvParser, with unescaped quotes that stop at the separator."""

    def __init__(self, text: str, position: int, dialect: Dialect) -> None:
        self._text, self.position = text, position
        self._sep, self._left, self._right, self._empty = dialect.sep, dialect.left, dialect.right, dialect.empty
        self._quote = dialect.quote or None
        self._escape = dialect.escape or None
        # An escape in front of an escape; a quote that is its own escape has none.
        self._escaped = None if dialect.escape == dialect.quote else self._escape
        self._stops = re.compile("[" + re.escape(dialect.quote + dialect.escape) + "]" if self._quote else "(?!)")
        self._ends = re.compile("[" + re.escape(dialect.sep) + _LINE_END + "]")
        self._current = self._previous = _NONE
        self._unescaped = self._trim = False
        self._value: list[str] = []
        self.values: list[str | None] = []

    def _next(self) -> str:
        if self.position >= len(self._text):
            raise _End
        self.position += 1
        return self._text[self.position - 1]

    def _append_until(self, stops: re.Pattern[str]) -> str:
        """Append the current character and what follows it, up to a stop, which is returned."""
        begin = self.position - 1
        found = stops.search(self._text, begin)
        end = len(self._text) if found is None else found.start()
        self._value.append(self._text[begin:end])
        self.position = end
        return self._next()

    def _parsed(self) -> None:
        value = "".join(self._value)
        self.values.append((value.rstrip(_BLANKS) if self._trim else value) or self._empty)
        self._value = []

    def record(self) -> list[str | None]:
        """Parse up to the end of the record or of the text."""
        begin = self.position
        try:
            self._current = self._next()
            self._record()
        except _End:
            self._at_end(begin)
        except RecursionError:
            raise FormatError("a record of CSV has too many quotes that are not escaped") from None
        return self.values

    def _record(self) -> None:
        if self._left:
            self._skip_blanks()
        while self._current != _LINE_END:
            if self._left:
                self._skip_blanks()
            if self._current in (self._sep, _LINE_END):
                self.values.append(None)
            else:
                self._unescaped, self._previous = False, _NONE
                if self._current == self._quote:
                    self._trim = False
                    self._quoted()
                else:
                    self._trim = self._right
                    self._current = self._append_until(self._ends)
                self._parsed()
            if self._current != _LINE_END:
                self._current = self._next()
                if self._current == _LINE_END:
                    self.values.append(None)

    def _skip_blanks(self) -> None:
        while self._current <= " " and self._current not in (self._sep, self._quote, _LINE_END):
            self._current = self._next()

    def _at_end(self, begin: int) -> None:
        complete = self._current == self._quote and self._previous == self._quote
        if not complete:
            if self._current == self._quote and not self._unescaped:
                self._value.append(self._current)
            complete = self._previous != _NONE and self._current not in (self._sep, _LINE_END)
        if complete or any(self._value):
            self._parsed()
        elif self.values or self.position > begin:
            self.values.append(None)

    def _quoted(self) -> None:
        value, quote, escape = self._value, self._quote or "", self._escape
        if self._previous != _NONE:
            # A quote inside a quoted value: what is written up to the separator is the value.
            value.insert(0, quote)
            self._current = self._next()
            self._trim = self._right
            self._current = self._append_until(self._ends)
            return
        self._current = self._next()
        while True:
            current, previous = self._current, self._previous
            if previous == quote and (current <= " " or current == self._sep):
                break
            if current not in (quote, escape):
                if previous == quote:
                    self._unescaped = True
                    value += [quote, current]
                    self._previous = current
                    self._quoted()
                    return
                if previous == escape:
                    value.append(previous)
                self._previous = self._current = self._append_until(self._stops)
                self._current = self._next()
            else:
                self._process_escape()
                self._previous = self._current
                self._current = self._next()
                if self._unescaped and self._current in (self._sep, _LINE_END):
                    return
        if self._current not in (self._sep, _LINE_END):
            blanks = []
            while self._current <= " ":
                blanks.append(self._current)
                self._current = self._next()
                if self._current == _LINE_END:
                    return
            if self._current != self._sep:
                value += [quote, *blanks, self._current]
                self._previous = self._current
                self._quoted()

    def _process_escape(self) -> None:
        current, previous = self._current, self._previous
        if current == self._escape and previous == self._escaped and self._escaped:
            self._value.append(current)
            self._current = _NONE
        elif previous == self._escape:
            if current == self._quote:
                self._value.append(current)
                self._current = _NONE
            else:
                self._value.append(previous)
        elif previous == self._quote:
            self._value.append(previous)
            if current != self._quote:
                self._previous = current
                self._unquoted()

    def _unquoted(self) -> None:
        while self._current not in (self._sep, _LINE_END):
            if self._current in (self._quote, self._escape):
                self._process_escape()
            elif self._previous == self._quote:
                self._value.append(self._previous)
                self._previous = self._current
                continue
            else:
                self._value.append(self._current)
            self._previous = self._current
            self._current = self._next()


def values_of(text: str, dialect: Dialect) -> list[str | None]:
    """The values of the first record of a text; None for nothing at all."""
    return _Parser(text, 0, dialect).record()


def ends_of(text: str, dialect: Dialect) -> list[tuple[int, int]]:
    """Where the records of a text with line ends of LF begin and end, without the line ends."""
    found = []
    position = 0
    while position < len(text):
        if dialect.comment and text.startswith(dialect.comment, position):
            position = text.find(_LINE_END, position) + 1 or len(text)
            continue
        parser = _Parser(text, position, dialect)
        if parser.record():
            found.append((position, parser.position - text.startswith(_LINE_END, parser.position - 1)))
        position = parser.position
    return found
