"""Rows as JSON, in one form for what Spark collects and for what PyArrow reads.

Each row is a list of its columns' values. Decimals, dates, times and UUIDs are text, binary is hexadecimal text,
timestamps with a time zone end in ``Z``, a struct is an object, a map is a sorted list of pairs, and floats that JSON
lacks are their names. Nothing is rounded.
"""

from __future__ import annotations

import datetime
import decimal
import json
import math
import uuid
from collections.abc import Iterable
from typing import Any


def canonical(value: Any) -> Any:
    """One value in that form."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).hex()
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, datetime.datetime):
        return _timestamp(value)
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, dict):
        return {name: canonical(field) for name, field in value.items()}
    if isinstance(value, list):
        # PyArrow has pairs, which nothing else has, in the place of a map.
        if value and all(isinstance(item, tuple) for item in value):
            return canonical_map(value)
        return [canonical(item) for item in value]
    raise TypeError(f"no form is defined for {type(value).__name__}")


def canonical_map(pairs: Iterable[tuple[Any, Any]]) -> list[list[Any]]:
    """A map in that form."""
    return sorted(([canonical(key), canonical(value)] for key, value in pairs), key=_order)


def sorted_rows(rows: Iterable[list[Any]]) -> list[list[Any]]:
    """The rows in an order of their own: a table has none."""
    return sorted(rows, key=_order)


def arrow_rows(table: Any) -> list[list[Any]]:
    """The rows of a PyArrow table in that form, in order."""
    columns = [[canonical(value) for value in column.to_pylist()] for column in table.columns]
    return sorted_rows([list(row) for row in zip(*columns, strict=True)])


def _timestamp(value: datetime.datetime) -> str:
    if value.tzinfo is None:
        return value.isoformat(timespec="microseconds")
    utc = value.astimezone(datetime.timezone.utc).replace(tzinfo=None)
    return utc.isoformat(timespec="microseconds") + "Z"


def _order(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
