"""The type of a column of CSV, by the rules of Spark's inference: the narrowest that all values seen so far have.

A type is a text, a decimal's precision, or None before the first value. A value is looked at with the types from the
column's own on, so that a type never becomes narrower.
"""

from __future__ import annotations

import decimal
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ags1.spark.source.decoders._values import decimal_of, parsed_or_null

_INT, _LONG, _DOUBLE, _DAY, _MOMENT, _FLAG, _TEXT = "int", "long", "double", "day", "moment", "flag", "text"
_ARROW = {
    _INT: pa.int32(),
    _LONG: pa.int64(),
    _DOUBLE: pa.float64(),
    _DAY: pa.date32(),
    _MOMENT: pa.timestamp("us", "UTC"),
    _FLAG: pa.bool_(),
}
_DIGITS = {_INT: 10, _LONG: 20}
_MAX_PRECISION = 38
_FEW = 1000
_DATE = r"^(-?[0-9]{4}|[+-][0-9]{5,7})-[0-9]{2}-[0-9]{2}$"


def arrow_type(kind: Any) -> pa.DataType:
    return pa.decimal128(kind, 0) if isinstance(kind, int) else _ARROW.get(kind, pa.string())


def widened(kind: Any, texts: pa.Array, time_zone: str, numbers: Mapping[str, float]) -> Any:
    """The type of a column with further values. Nulls and empty texts have no type."""
    texts = texts.filter(pc.greater(pc.binary_length(texts), 0))
    start = 0
    while start < len(texts) and kind != _TEXT:
        # Most types show in a few values.
        some = texts.slice(start, _FEW if start < _FEW else None)
        bad = _others(kind, some, time_zone, numbers)
        if bad is None or not bad.any():
            start += len(some)
            continue
        index = int(np.argmax(bad))
        kind = _common(kind, _type_of(some[index].as_py(), kind, time_zone, numbers))
        start += index + 1
    return kind


def _others(kind: Any, texts: pa.Array, time_zone: str, numbers: Mapping[str, float]) -> Any:
    """Which texts may not be of a type, or None."""
    if kind not in _ARROW:
        return np.ones(len(texts), bool)
    _, bad = parsed_or_null(texts, _ARROW[kind], time_zone, numbers)
    if kind == _DAY:
        # Other dates than these are times here.
        plain = pc.match_substring_regex(texts, _DATE).to_numpy(zero_copy_only=False)
        return ~plain if bad is None else bad | ~plain
    return bad


def _type_of(text: str, kind: Any, time_zone: str, numbers: Mapping[str, float]) -> Any:
    """The type of a value in a column of a type."""
    texts = pa.array([text], pa.string())

    def is_a(which: str) -> bool:
        return parsed_or_null(texts, _ARROW[which], time_zone, numbers)[1] is None

    if kind in (None, _INT) and is_a(_INT):
        return _INT
    if kind in (None, _INT, _LONG) and is_a(_LONG):
        return _LONG
    if kind in (None, _INT, _LONG) or isinstance(kind, int):
        precision = _precision_of(text)
        if precision:
            return precision
    if kind not in (_DAY, _MOMENT, _FLAG) and is_a(_DOUBLE):
        return _DOUBLE
    if kind not in (_MOMENT, _FLAG) and not _others(_DAY, texts, time_zone, numbers).any():
        return _DAY
    if kind != _FLAG and is_a(_MOMENT):
        return _MOMENT
    return _FLAG if is_a(_FLAG) else _TEXT


def _precision_of(text: str) -> int:
    """The digits of a whole number as Java's BigDecimal counts them, or 0."""
    try:
        _, digits, exponent = decimal_of(text).as_tuple()
    except (ValueError, decimal.InvalidOperation):
        return 0
    return len(digits) if exponent == 0 and len(digits) <= _MAX_PRECISION else 0


def _common(one: Any, other: Any) -> Any:
    if one is None or one == other:
        return other
    numbers = (_INT, _LONG, _DOUBLE)
    if {one, other} == {_INT, _LONG}:
        return _LONG
    if {one, other} == {_DAY, _MOMENT}:
        return _MOMENT
    if all(each in numbers or isinstance(each, int) for each in (one, other)):
        return _DOUBLE if _DOUBLE in (one, other) else max(_DIGITS.get(one, one), _DIGITS.get(other, other))
    return _TEXT
