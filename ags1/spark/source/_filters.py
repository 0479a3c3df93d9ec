"""Spark's filters that skip data: files by their path and directories, row groups by their statistics.

An unknown filter passes everything: Spark filters the rows again. Only filters on the path are complete here.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "EqualTo": lambda value, wanted: value == wanted,
    "EqualNullSafe": lambda value, wanted: value == wanted,
    "GreaterThan": lambda value, wanted: value > wanted,
    "GreaterThanOrEqual": lambda value, wanted: value >= wanted,
    "LessThan": lambda value, wanted: value < wanted,
    "LessThanOrEqual": lambda value, wanted: value <= wanted,
    "StringStartsWith": lambda value, wanted: value.startswith(wanted),
    "StringEndsWith": lambda value, wanted: value.endswith(wanted),
    "StringContains": lambda value, wanted: wanted in value,
}
# Not float: statistics omit NaN. Not datetime: it has fewer digits than the times in files may have.
_ORDERED = (int, str, datetime.date, decimal.Decimal)


@dataclass(frozen=True)
class Condition:
    """A filter on one column; `kind` is the name of the class of Spark's filter."""

    column: str
    kind: str
    value: Any = None
    negated: bool = False

    def accepts(self, value: Any) -> bool | None:
        """Whether a row with this value passes; None if that is not known."""
        if self.kind in ("IsNull", "IsNotNull"):
            return ((value is None) == (self.kind == "IsNull")) != self.negated
        if self.kind == "EqualNullSafe" and (value is None or self.value is None):
            return (value is self.value) != self.negated
        if value is None:
            return False
        if self.kind == "In":
            found = [_alike(value, each) and value == each for each in self.value if each is not None]
            if not all(_alike(value, each) for each in self.value if each is not None):
                return None
            # A null among them makes "not in" unknown for every row.
            return any(found) if not self.negated else not any(found) and None not in self.value
        compare = _COMPARISONS.get(self.kind)
        if compare is None or not _alike(value, self.value):
            return None
        return compare(value, self.value) != self.negated


def understood(each: Any) -> Condition | None:
    """A filter of Spark's as a condition; None for those on nested columns and unknown ones."""
    negated = type(each).__name__ == "Not"
    inner = each.child if negated else each
    kind = type(inner).__name__
    attribute: tuple[str, ...] = getattr(inner, "attribute", ())
    if len(attribute) != 1 or not (kind in _COMPARISONS or kind in ("In", "IsNull", "IsNotNull")):
        return None
    return Condition(attribute[0], kind, getattr(inner, "value", None), negated)


def _alike(one: Any, other: Any) -> bool:
    """Whether Python compares two values as Spark does."""
    for kind in _ORDERED:
        if isinstance(one, kind):
            return (
                isinstance(other, kind)
                and isinstance(one, bool) == isinstance(other, bool)
                and not (isinstance(one, datetime.datetime) or isinstance(other, datetime.datetime))
            )
    return False


def may_have(group: Any, conditions: list[Condition], types: Mapping[str, pa.DataType]) -> bool:
    """Whether a row group of a Parquet file may have a row that meets all conditions.

    Where a file has another type than the column gets, its statistics say nothing.
    """
    if not conditions:
        return True
    by_name: dict[str, Any] = {}
    for index in range(group.num_columns):
        column = group.column(index)
        name = column.path_in_schema.lower()
        # Of two columns, such as `a.b` and `b` of `a`, the names do not tell which one is meant.
        by_name[name] = None if name in by_name else column
    for each in conditions:
        column = by_name.get(each.column.lower())
        kind = types.get(each.column)
        if column is None or kind is None or pa.types.is_nested(kind) or not column.is_stats_set:
            continue
        if not _may_meet(each, column.statistics, kind, group.num_rows):
            return False
    return True


def _may_meet(each: Condition, statistics: Any, kind: pa.DataType, rows: int) -> bool:
    if each.negated:
        return True
    empty = statistics.has_null_count and statistics.null_count == rows
    if each.kind == "IsNull":
        return not (statistics.has_null_count and statistics.null_count == 0)
    if each.kind == "EqualNullSafe" and each.value is None:
        return True
    if empty:
        return False
    if not statistics.has_min_max:
        return True
    low, high = statistics.min, statistics.max
    wanted = list(each.value) if each.kind == "In" else [each.value]
    if not all(_comparable(low, value, kind) and _comparable(high, value, kind) for value in wanted):
        return True
    if each.kind in ("EqualTo", "EqualNullSafe", "In"):
        return any(low <= value <= high for value in wanted)
    if each.kind.startswith(("GreaterThan", "LessThan")):
        return _COMPARISONS[each.kind](high if each.kind.startswith("Greater") else low, wanted[0])
    return True


def _comparable(bound: Any, value: Any, kind: pa.DataType) -> bool:
    """Whether a bound can be compared with a value of a column: both as the column has them."""
    types = pa.types
    fits = (
        (types.is_integer(kind) and isinstance(bound, int))
        or (types.is_string(kind) and isinstance(bound, str))
        or (types.is_date32(kind) and isinstance(bound, datetime.date))
        or (types.is_decimal(kind) and isinstance(bound, decimal.Decimal))
    )
    return fits and _alike(bound, value)
