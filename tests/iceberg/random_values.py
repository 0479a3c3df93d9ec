"""Awkward values of every type, for random tables and filters, in Python and in Spark's SQL."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

from pydantic import TypeAdapter
from pyiceberg.types import IcebergType

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
_SQL = {"long": "BIGINT", "timestamptz": "TIMESTAMP", "timestamp": "TIMESTAMP_NTZ"}


def sql_text(value: str) -> str:
    """Return a text literal of Spark's SQL."""
    return "'" + value.replace("\\", r"\\").replace("'", "''") + "'"


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


_TYPES: TypeAdapter[IcebergType] = TypeAdapter(IcebergType)


def iceberg_type(kind: str) -> IcebergType:
    """Return the type of a pool."""
    return _TYPES.validate_python(kind)


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
