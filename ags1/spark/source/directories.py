"""Columns from directories, as in Hive: ``year=2026/month=02/part-0.parquet`` has a year and a month."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from ags1.errors import FormatError

_NULL = "__HIVE_DEFAULT_PARTITION__"
_INTEGER = re.compile(r"-?\d{1,19}", re.ASCII)
_DOUBLE = re.compile(r"-?\d+\.\d+", re.ASCII)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_WIDER = {
    frozenset({pa.int32(), pa.int64()}): pa.int64(),
    frozenset({pa.int32(), pa.float64()}): pa.float64(),
}


def values_of(name: str) -> dict[str, str | None]:
    """Names and values in the directories of a relative path; None is null."""
    found: dict[str, str | None] = {}
    for part in name.split("/")[:-1]:
        key, equals, value = part.partition("=")
        if equals and key:
            found[unquote(key)] = None if value == _NULL else unquote(value)
    return found


def inferred(names: Iterable[str]) -> list[tuple[str, pa.DataType]]:
    """The columns of the directories of some files, in order of appearance: int, bigint, double, date, else string."""
    kinds: dict[str, tuple[str, pa.DataType | None]] = {}
    last = None
    for name in names:
        directory = name.rpartition("/")[0]
        if directory == last:
            continue
        last = directory
        for key, value in values_of(name).items():
            first, known = kinds.setdefault(key.lower(), (key, None))
            if value is not None:
                kind = _kind_of(value)
                wider = kind if known in (None, kind) else _WIDER.get(frozenset({known, kind}), pa.string())
                kinds[key.lower()] = first, wider
    return [(key, pa.string() if kind is None else kind) for key, kind in kinds.values()]


# Most directories repeat those above them.
@lru_cache(maxsize=1 << 14)
def _kind_of(value: str) -> pa.DataType:
    if _INTEGER.fullmatch(value):
        number = int(value)
        fitting = (
            kind for kind in (pa.int32(), pa.int64()) if -1 << kind.bit_width - 1 <= number < 1 << kind.bit_width - 1
        )
        return next(fitting, pa.string())
    if _DOUBLE.fullmatch(value):
        return pa.float64()
    if _DATE.fullmatch(value):
        try:
            datetime.date.fromisoformat(value)
        except ValueError:
            return pa.string()
        return pa.date32()
    return pa.string()


def constant(value: str | None, field: pa.Field, name: str) -> Any:
    """The value of a directory as an Arrow scalar of a column's type."""
    try:
        return pa.scalar(value, pa.string()).cast(field.type)
    except (ValueError, pa.ArrowNotImplementedError):
        raise FormatError(
            f"{name}: its directory has {field.name}={value}, which is not a value of the column's type {field.type}: "
            "give a schema in which it is a string, and cast the column"
        ) from None
