"""Random row filters as text: conditions of Spark's SQL, in all the spellings that ags1 takes.

Everything follows from the chance that is given. Values come from pools of awkward ones, so that filters hit them.
"""

from __future__ import annotations

import datetime
import decimal
import random
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import pyarrow
from pydantic import TypeAdapter
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, NestedField

from ags1.iceberg.scan._filter_text import TextFilter
from ags1.iceberg.scan._row_filter import RowFilter

WORDS = (
    "",
    "a",
    "ab",
    "abc",
    "abd",
    "b",
    "B",
    "ab\u00fc",
    "\u65e5\u672c",
    "\U0001f511",
    "\uffee",
    "a" * 20,
    "a" * 19 + "b",
    "a\tb",
    "a b",
    "a    b",
    "\t",
    "line\nline",
    "\r\n",
    "it's",
    "'",
    "''",
    'say "a"',
    "back\\slash",
    "ends in \\",
    "\\",
    "a_b",
    "a%b",
    "\\%",
    "`c0`",
    "-- no comment",
    "null",
    "\x00\x1a\x08",
)
FLOATS = ("NaN", "Infinity", "-Infinity", "-0.0", "0.0", "0.1", "0.5", "1.5", "-2.25", "16777216", "3.0E38")
DATES = (
    "0001-01-01",
    "1582-10-10",
    "1969-01-01",
    "1969-12-31",
    "1970-01-01",
    "1970-01-02",
    "2020-02-29",
    "9999-12-31",
)
CLOCKS = ("00:00:00.000000", "23:59:59.999999", "12:00:00.000001", "10:30:00.500000")
INTS = (-(2**31), -100, -11, -10, -1, 0, 1, 2, 3, 5, 7, 10, 100, 16777217, 2**31 - 1)
LONGS = (*INTS, -(2**63), -(2**53) - 1, 2**53 + 1, 2**63 - 1)
BYTES = ("", "00", "00ff", "7f80", "80", "ff", "ff" * 20)
POOLS: dict[str, tuple[Any, ...]] = {
    "boolean": (True, False),
    "int": INTS,
    "long": LONGS,
    "float": FLOATS,
    "double": (*FLOATS, "1.0E300", "0.10000000149011612"),
    "decimal(9, 2)": ("0.00", "-0.01", "0.10", "15.00", "15.25", "-15.00", "1234567.89", "-9999999.99"),
    "decimal(20, 2)": ("0.00", "-0.01", "0.10", "15.00", "15.25", "-15.00", "123456789012345678.90"),
    "decimal(38, 10)": (
        "0.0000000000",
        "15.0000000000",
        "0.1000000000",
        "-0.0000000001",
        "1234567890123456789.5000000000",
    ),
    "date": DATES,
    "timestamptz": tuple(f"{day} {clock}" for day in DATES[2:7] for clock in CLOCKS),
    "timestamp": tuple(f"{day} {clock}" for day in DATES[2:7] for clock in CLOCKS),
    "string": WORDS,
    "binary": BYTES,
}
WHOLE = ("int", "long")
MARKS = {True: "1", False: "0", None: "n"}
_ESCAPED = {"\t": r"\t", "\n": r"\n", "\r": r"\r", "\x08": r"\b", "\x00": r"\0", "\x1a": r"\Z", "\\": r"\\", "'": r"\'"}
_COMPARISONS = ("=", "==", "<>", "!=", "<", "<=", ">", ">=", "<=>", "is distinct from", "is not distinct from")
_SQL = {"long": "BIGINT", "timestamptz": "TIMESTAMP", "timestamp": "TIMESTAMP_NTZ"}
_SPACES = (" ", " ", " ", "  ", "\t", "\n", " \r\n ")


def sql_text(value: str, chance: random.Random | None = None) -> str:
    """Return a text literal of Spark's SQL; by chance in one of its spellings."""
    if chance is not None and chance.random() < 0.1 and "'" not in value:
        return f"{chance.choice('rR')}'{value}'"
    made = []
    for character in value:
        if character == "\\":
            made.append(r"\\")
        elif chance is None or chance.random() < 0.5:
            made.append("''" if character == "'" else character)
        elif chance.random() < 0.2 and character > "\x7f":
            point = ord(character)
            made.append(f"\\u{point:04x}" if point < 1 << 16 else f"\\U{point:08x}")
        elif chance.random() < 0.1 and character < "\x80":
            made.append(f"\\{ord(character):03o}" if chance.random() < 0.5 else f"\\u{ord(character):04x}")
        else:
            made.append(_ESCAPED.get(character, character))
    return f"'{''.join(made)}'"


def sql_type(kind: str) -> str:
    """Return the name of a type in Spark's SQL."""
    return _SQL.get(kind, kind.upper())


def sql_value(kind: str, value: Any) -> str:
    """Return a value of a pool as SQL of its type."""
    if kind == "binary":
        return f"X'{value}'"
    if kind == "timestamptz":
        return f"TIMESTAMP'{value}+00:00'"
    if kind in ("timestamp", "date"):
        return f"{sql_type(kind)}'{value}'"
    if kind in ("string", "boolean"):
        return sql_text(value) if kind == "string" else str(value).lower()
    return f"CAST('{value}' AS {sql_type(kind)})"


class PlainRows:
    """Rows with every value of every pool, and nulls: a view for Spark, and the same as an Arrow table.

    Attributes
    ----------
    columns : list of (str, str)
        The name and the kind of each column.
    schema : pyiceberg.schema.Schema
    """

    def __init__(self) -> None:
        self.columns = [(f"c{place}", kind) for place, kind in enumerate(POOLS)]
        self.schema = Schema(
            *(
                NestedField(place, name, _TYPES.validate_python(kind))
                for place, (name, kind) in enumerate(self.columns, 1)
            )
        )
        count = max(map(len, POOLS.values()))
        self._rows = [
            # The last row has nulls alone.
            [
                None if row == count or (row + place) % 7 == 0 else POOLS[kind][row % len(POOLS[kind])]
                for place, kind in enumerate(POOLS)
            ]
            for row in range(count + 1)
        ]

    @cached_property
    def _table(self) -> pyarrow.Table:
        return self.table()

    @property
    def view(self) -> str:
        """The rows as a query; `id` counts them."""
        rows = [
            ", ".join(
                [f"{number}L"]
                + [
                    f"CAST(null AS {sql_type(kind)})" if value is None else sql_value(kind, value)
                    for value, kind in zip(row, POOLS, strict=True)
                ]
            )
            for number, row in enumerate(self._rows)
        ]
        names = ", ".join(["id", *(name for name, _ in self.columns)])
        return f"SELECT * FROM VALUES ({'), ('.join(rows)}) AS v({names})"

    def table(self) -> pyarrow.Table:
        """The rows without `id`."""
        fields = schema_to_pyarrow(self.schema, include_field_ids=False)
        arrays = [
            pyarrow.array([python_value(kind, row[place]) for row in self._rows], fields.field(place).type)
            for place, kind in enumerate(POOLS)
        ]
        return pyarrow.Table.from_arrays(arrays, schema=fields)

    def truths(self, text: str) -> str:
        """Whether ags1 has a filter for true (1), false (0) or null (n), row by row."""
        table = self._table
        found = RowFilter(TextFilter(text), self.schema)._root.evaluate(
            lambda field_id: table.column(field_id - 1).combine_chunks(), table.num_rows
        )
        return "".join(MARKS[each] for each in found.to_pylist())


_TYPES: TypeAdapter[IcebergType] = TypeAdapter(IcebergType)


def python_value(kind: str, value: Any) -> Any:
    """A value of `POOLS` as Python and PyArrow have it."""
    if value is None or kind in ("boolean", "string", *WHOLE):
        return value
    if kind == "binary":
        return bytes.fromhex(value)
    if kind in ("float", "double"):
        return float(value)
    if kind == "date":
        return datetime.date.fromisoformat(value)
    if kind.startswith("timestamp"):
        return datetime.datetime.fromisoformat(f"{value}+00:00" if kind == "timestamptz" else value)
    return decimal.Decimal(value)


class RandomText:
    """Makes filters on columns: each is a path in SQL, and a kind of `POOLS`, or another that is compared with null."""

    def __init__(self, chance: random.Random, columns: Sequence[tuple[str, str]]) -> None:
        self._chance, self._columns = chance, list(columns)

    def filter(self, depth: int = 2) -> str:
        """Return a filter, which may have some more around it."""
        chance = self._chance
        if depth and chance.random() < 0.55:
            left = self.filter(depth - 1)
            sort = chance.random()
            if sort < 0.2:
                return f"not ({left})"
            if sort < 0.3:
                return f"({left}) is {self._not()}{chance.choice(('null', 'true', 'false', 'unknown'))}"
            word = chance.choice(("and", "or", "AND", "Or"))
            if sort < 0.5:
                # Without parentheses, which decide what belongs together.
                return f"{self.filter(0)} {word} not {left}"
            return f"({left}) {word} ({self.filter(depth - 1)})"
        if chance.random() < 0.03:
            return chance.choice(("true", "false", "null", "TRUE"))
        return self._predicate()

    def _not(self) -> str:
        return self._chance.choice(("", "", "not "))

    def _predicate(self) -> str:
        chance = self._chance
        path, kind = chance.choice(self._columns)
        space = chance.choice(_SPACES)
        if kind not in POOLS or chance.random() < 0.12:
            tests = [f"{path} is {self._not()}null", f"isnull({path})", f"isnotnull( {path})"]
            return chance.choice(tests)
        if kind == "boolean" and chance.random() < 0.4:
            return chance.choice((path, f"not {path}", f"{path} is {self._not()}true", f"{path} is not false"))
        if kind in ("float", "double") and chance.random() < 0.12:
            return f"{self._not()}isnan({path})"
        if kind == "string" and chance.random() < 0.4:
            return f"{path}{space}{self._not()}like {self._pattern()}"
        if chance.random() < 0.25:
            listed = [self._literal(kind) for _ in range(chance.choice((1, 2, 3, 5, 12)))]
            if chance.random() < 0.15:
                listed.insert(chance.randrange(len(listed) + 1), "null")
            return f"{path} {self._not()}in ({f',{space}'.join(listed)})"
        if chance.random() < 0.2:
            low, high = self._literal(kind, ordered=True), self._literal(kind, ordered=True)
            return f"{path} {self._not()}between{space}{low} and {high}"
        operator = chance.choice(_COMPARISONS)
        literal = "null" if chance.random() < 0.03 else self._literal(kind, ordered=operator[0] in "<>")
        if chance.random() < 0.2:
            return f"{literal}{space}{operator} {path}"
        return f"{path}{space}{operator} {literal}"

    def _pattern(self) -> str:
        chance = self._chance
        escape = chance.choice(("\\", "\\", "\\", "!", "/"))
        pieces = []
        for character in chance.choice(WORDS):
            draw = chance.random()
            if draw < 0.15:
                pieces.append("_")
            elif draw < 0.25:
                pieces.append("%")
            elif draw < 0.32:
                pieces.append(chance.choice(("_%", "%%", "")))
            else:
                pieces.append(escape + character if character in ("_", "%", escape) else character)
        pattern = "".join(pieces)
        if chance.random() < 0.4:
            pattern = chance.choice((f"{pattern}%", f"%{pattern}", f"%{pattern}%", f"{pattern}_", f"_{pattern}"))
        made = sql_text(pattern, chance)
        return made if escape == "\\" else f"{made} escape {sql_text(escape)}"

    def _literal(self, kind: str, *, ordered: bool = False) -> str:
        """Return a literal that columns of a type can be compared with."""
        chance = self._chance
        value = chance.choice(POOLS[kind])
        if kind == "boolean":
            return str(value).lower()
        if kind == "binary":
            return f"{chance.choice('xX')}'{value if chance.random() < 0.5 else value.upper()}'"
        if kind == "string":
            return sql_text(value, chance)
        if kind == "date":
            return chance.choice((f"'{value}'", f"date'{value}'", f"DATE '{value}'", f"cast('{value}' as date)"))
        if kind == "timestamp":
            text = value.replace(" ", chance.choice("T "))
            return chance.choice((f"'{text}'", f"timestamp_ntz'{text}'", f"'{value[:10]}'", f"date'{value[:10]}'"))
        if kind == "timestamptz":
            text = value.replace(" ", chance.choice("T ")) + chance.choice(("Z", "+00:00", "+01:00", "-05:30"))
            return chance.choice((f"'{text}'", f"timestamp'{text}'", f"timestamp_ltz'{text}'"))
        return self._number(kind, ordered=ordered)

    def _number(self, kind: str, *, ordered: bool) -> str:
        chance = self._chance
        sort = chance.choice(("whole", "decimal", "double"))
        if sort == "double":
            found = chance.choice(POOLS["double"] if chance.random() < 0.5 or "decimal" in kind else POOLS[kind])
            number = float(found)
            spellings = [f"cast('{found}' as double)", f"double('{found}')", f"cast('{found}' as float)"]
            if kind in ("float", "double"):
                spellings += [f"'{found}'"] * 2
            if abs(number) < 1e30:
                spellings += [f"{number!r}D", f"{number:.3e}", f"{number!r}F", f"{number:.3e}D"]
            return chance.choice(spellings)
        if sort == "decimal":
            pool = ["0.0", "0.1", ".5", "15.", "0.10", "15.0", "15.25", "15.255", "-0.01", "-2.25"]
            if kind not in WHOLE or not ordered:
                # Spark takes `null < 99999999999999999999.5` for true, if null is a whole number.
                pool.append("99999999999999999999.5")
            text = chance.choice(POOLS[kind]) if "decimal" in kind and chance.random() < 0.6 else chance.choice(pool)
            return text if chance.random() < 0.8 or text.endswith(".") else f"{text}BD"
        pool = (*LONGS[:-4], *LONGS[-3:], 15)
        number = chance.choice(pool if kind in WHOLE else (*pool, 10**20, -(10**20)))
        return f"{number}L" if -(2**63) < number < 2**63 and chance.random() < 0.2 else str(number)
