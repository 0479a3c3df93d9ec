"""Columns from directories: ``year=2026/month=02/part-0.csv`` has a year and a month, as Hive and Spark write them."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from ags1.errors import FormatError
from ags1.spark.decoders._types import parsed

__all__ = ["constant", "inferred", "is_hidden", "values_of"]

NULL = "__HIVE_DEFAULT_PARTITION__"
_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
# From the narrowest to the widest; a date fits nothing but itself and text.
_INT, _LONG, _DOUBLE, _DAY, _TEXT = range(5)
_TYPES = (pa.int32(), pa.int64(), pa.float64(), pa.date32(), pa.string())


def is_hidden(name: str) -> bool:
    """Whether Spark takes a file for no data: a part of its name begins with a point, or with _ and has no =."""
    return any(part.startswith(".") or (part.startswith("_") and "=" not in part) for part in name.split("/"))


def values_of(name: str) -> dict[str, str | None]:
    """What the directories of a relative path say; None is null."""
    found: dict[str, str | None] = {}
    for part in name.split("/")[:-1]:
        key, equals, value = part.partition("=")
        if equals and key:
            found[unquote(key)] = None if value == NULL else unquote(value)
    return found


def inferred(names: Iterable[str]) -> list[tuple[str, pa.DataType]]:
    """Columns that the directories of some files make, in the order in which they appear, with their types."""
    kinds: dict[str, int | None] = {}
    last = None
    for name in names:
        directory = name.rpartition("/")[0]
        if directory == last:
            continue
        last = directory
        for key, value in values_of(name).items():
            kind = None if value is None else _kind_of(value)
            kinds[key] = _wider(kinds.get(key), kind)
    return [(key, _TYPES[_TEXT if kind is None else kind]) for key, kind in kinds.items()]


def _kind_of(value: str) -> int:
    if _INTEGER.fullmatch(value):
        number = int(value) if len(value) < 25 else 1 << 99
        if -(1 << 31) <= number < 1 << 31:
            return _INT
        # What is longer is no number to count with, but a name of digits.
        return _LONG if -(1 << 63) <= number < 1 << 63 else _TEXT
    if _NUMBER.fullmatch(value):
        return _DOUBLE
    if _DATE.fullmatch(value):
        try:
            datetime.date.fromisoformat(value)
        except ValueError:
            return _TEXT
        return _DAY
    return _TEXT


def _wider(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    if one != other and _DAY in (one, other):
        return _TEXT
    return max(one, other)


def constant(value: str | None, field: pa.Field, name: str, time_zone: str) -> Any:
    """The value of a directory as an Arrow scalar of a column's type."""
    if value is None:
        return pa.scalar(None, field.type)
    text = value.lstrip("+") if pa.types.is_integer(field.type) else value
    try:
        return parsed(pa.array([text], pa.string()), field.type, time_zone)[0]
    except (ValueError, pa.ArrowNotImplementedError):
        raise FormatError(
            f"{name}: its directory says {field.name}={value}, which is no value of the column's type {field.type}"
        ) from None
