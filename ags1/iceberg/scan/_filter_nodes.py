"""What row filters are made of: logic and predicates, over arrays and over ranges of values.

Logic has three values, as in SQL: a comparison with null is null, and rows that are null do not pass. Floats have
Spark's order: NaN equals NaN and is greater than any other number, and the zeros of both signs are equal. Every
comparison is built from "less", "in" and "like", with `not` around them.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import product
from typing import Any, Protocol

import pyarrow
import pyarrow.compute as compute
from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, NestedField

from ags1.iceberg.scan._literal_values import Value, decimal_bound
from ags1.iceberg.scan._projection import path_to
from ags1.iceberg.scan._value_range import FilteredColumn, ValueRange

Truth = bool | None
Ranges = Callable[[FilteredColumn], Iterable[ValueRange]]
Arrays = Callable[[int], pyarrow.Array]
_ALL: frozenset[Truth] = frozenset((True, False, None))


class FilterNode(Protocol):
    """A filter, or a part of one."""

    def columns(self) -> Iterator[FilteredColumn]:
        """Return the columns that it needs."""
        ...

    def evaluate(self, columns: Arrays, count: int) -> pyarrow.Array:
        """Return true, false or null for each row; `columns` returns the array of a field id."""
        ...

    def possible(self, ranges: Ranges) -> frozenset[Truth]:
        """Return the values that it may have; never too few."""
        ...


# -- logic ---------------------------------------------------------------------------------------------------------


class Constant:
    """True, false or null for all rows."""

    def __init__(self, value: Truth) -> None:
        self._value = value

    def columns(self) -> Iterator[FilteredColumn]:
        return iter(())

    def evaluate(self, columns: Arrays, count: int) -> pyarrow.Array:
        return pyarrow.repeat(pyarrow.scalar(self._value, pyarrow.bool_()), count)

    def possible(self, ranges: Ranges) -> frozenset[Truth]:
        return frozenset((self._value,))


class Not:
    """The opposite; null stays null."""

    def __init__(self, child: FilterNode) -> None:
        self._child = child

    def columns(self) -> Iterator[FilteredColumn]:
        return self._child.columns()

    def evaluate(self, columns: Arrays, count: int) -> pyarrow.Array:
        return compute.invert(self._child.evaluate(columns, count))

    def possible(self, ranges: Ranges) -> frozenset[Truth]:
        return frozenset(None if each is None else not each for each in self._child.possible(ranges))


class Both:
    """And; with `either`, or."""

    def __init__(self, left: FilterNode, right: FilterNode, *, either: bool) -> None:
        self._left, self._right, self._either = left, right, either

    def columns(self) -> Iterator[FilteredColumn]:
        yield from self._left.columns()
        yield from self._right.columns()

    def evaluate(self, columns: Arrays, count: int) -> pyarrow.Array:
        combine = compute.or_kleene if self._either else compute.and_kleene
        return combine(self._left.evaluate(columns, count), self._right.evaluate(columns, count))

    def possible(self, ranges: Ranges) -> frozenset[Truth]:
        pairs = product(self._left.possible(ranges), self._right.possible(ranges))
        return frozenset(self._combined(pair) for pair in pairs)

    def _combined(self, pair: tuple[Truth, Truth]) -> Truth:
        if self._either in pair:
            return self._either
        return None if None in pair else not self._either


class Is:
    """Whether a condition has this value, which may be null; never null itself."""

    def __init__(self, child: FilterNode, value: Truth) -> None:
        self._child, self._value = child, value

    def columns(self) -> Iterator[FilteredColumn]:
        return self._child.columns()

    def evaluate(self, columns: Arrays, count: int) -> pyarrow.Array:
        found = self._child.evaluate(columns, count)
        if self._value is None:
            return found.is_null()
        return (found if self._value else compute.invert(found)).fill_null(False)

    def possible(self, ranges: Ranges) -> frozenset[Truth]:
        return frozenset(each is self._value for each in self._child.possible(ranges))


# -- predicates ----------------------------------------------------------------------------------------------------


class _Predicate:
    """A predicate on one column."""

    def __init__(self, column: FilteredColumn) -> None:
        self._column = column

    def columns(self) -> Iterator[FilteredColumn]:
        yield self._column

    def evaluate(self, columns: Arrays, count: int) -> pyarrow.Array:
        return self._of(columns(self._column.field_id))

    def possible(self, ranges: Ranges) -> frozenset[Truth]:
        found = _ALL
        for each in ranges(self._column):
            found &= self._within(each)
        return found

    def _of(self, array: pyarrow.Array) -> pyarrow.Array:
        raise NotImplementedError

    def _within(self, found: ValueRange) -> frozenset[Truth]:
        raise NotImplementedError


class IsNull(_Predicate):
    """Never null."""

    def _of(self, array: pyarrow.Array) -> pyarrow.Array:
        return array.is_null()

    def _within(self, found: ValueRange) -> frozenset[Truth]:
        return frozenset([True] * found.nulls + [False] * (found.values or found.nans))


class IsNan(_Predicate):
    """False for null, as Spark's isnan."""

    def _of(self, array: pyarrow.Array) -> pyarrow.Array:
        return compute.is_nan(array).fill_null(False)

    def _within(self, found: ValueRange) -> frozenset[Truth]:
        return frozenset([True] * found.nans + [False] * (found.nulls or found.values))


class _Comparison(_Predicate):
    """Null for null."""

    def _within(self, found: ValueRange) -> frozenset[Truth]:
        truths: set[Truth] = set()
        if found.nulls:
            truths.add(None)
        if found.nans:
            truths.add(self._of_nan())
        if found.values:
            truths.update(each for each, may in zip((True, False), self._of_values(found), strict=True) if may)
        return frozenset(truths)

    def _of_nan(self) -> bool:
        return False

    def _of_values(self, found: ValueRange) -> tuple[bool, bool]:
        """Return whether it may be true, and whether it may be false, for values that are neither null nor NaN."""
        raise NotImplementedError


class _Less(_Comparison):
    def __init__(self, column: FilteredColumn, value: Value, *, inclusive: bool) -> None:
        super().__init__(column)
        if isinstance(value, Fraction):
            # A fraction lies between two values of the column and equals none.
            inclusive = inclusive or value.denominator != 1
            value = Fraction(math.floor(value))
        self._value, self._inclusive = value, inclusive

    def _of(self, array: pyarrow.Array) -> pyarrow.Array:
        array, (scalar,) = _comparable(array, [self._value])
        if isinstance(scalar, bool):
            return _constant(array, scalar)
        if isinstance(self._value, float) and math.isnan(self._value):
            return _constant(array, True) if self._inclusive else compute.invert(compute.is_nan(array))
        return (compute.less_equal if self._inclusive else compute.less)(array, scalar)

    def _of_nan(self) -> bool:
        return self._inclusive and isinstance(self._value, float) and math.isnan(self._value)

    def _of_values(self, found: ValueRange) -> tuple[bool, bool]:
        if isinstance(self._value, float) and math.isnan(self._value):
            return True, False
        value = found.image(self._value) if found.ordered else None
        if value is None:
            return True, True
        # A transform's result may come from a smaller or larger value, unlike the value itself.
        below = self._inclusive or not found.exact
        above = not self._inclusive or not found.exact
        lower, upper = found.bounds(self._value)
        may = lower is None or lower < value or (below and lower == value)
        may_not = upper is None or upper > value or (above and upper == value)
        return may, may_not


class IsIn(_Comparison):
    """Whether a column equals one of several values."""

    def __init__(self, column: FilteredColumn, values: Iterable[Value]) -> None:
        super().__init__(column)
        kept = [each for each in values if not isinstance(each, Fraction) or each.denominator == 1]
        self._nan = any(isinstance(each, float) and math.isnan(each) for each in kept)
        # Adding zero turns -0.0 into 0.0.
        plain = {each + 0.0 if isinstance(each, float) else each for each in kept if each == each}
        self._groups: list[list[Any]] = [
            sorted(each for each in plain if isinstance(each, float)),
            sorted(each for each in plain if not isinstance(each, float)),
        ]

    def _of(self, array: pyarrow.Array) -> pyarrow.Array:
        found = _constant(array, False)
        for values in filter(None, self._groups):
            prepared, scalars = _comparable(array, values)
            scalars = [each for each in scalars if not isinstance(each, bool)]
            if not scalars:
                continue
            if pyarrow.types.is_floating(prepared.type):
                prepared = compute.add(prepared, pyarrow.scalar(0.0, prepared.type))
            if len(scalars) == 1:
                among = compute.equal(prepared, scalars[0])
            else:
                among = compute.is_in(prepared, value_set=pyarrow.array(scalars, prepared.type))
            found = compute.or_(found, among)
        if self._nan and pyarrow.types.is_floating(array.type):
            found = compute.or_(found, compute.is_nan(array))
        # Null where the column is null: is_in returns false there.
        return compute.if_else(array.is_valid(), found, pyarrow.scalar(None, pyarrow.bool_()))

    def _of_nan(self) -> bool:
        return self._nan

    def _of_values(self, found: ValueRange) -> tuple[bool, bool]:
        may, may_not = False, True
        for values in filter(None, self._groups):
            lower, upper = found.bounds(values[0])
            images = [found.image(each) for each in values]
            if None in images or lower is None or upper is None:
                may = may or any(
                    each is None or ((lower is None or lower <= each) and (upper is None or each <= upper))
                    for each in images
                )
                continue
            images.sort()
            position = bisect_left(images, lower)
            if position < len(images) and images[position] <= upper:
                may = True
                may_not = may_not and not (found.exact and lower == upper)
        return may, may_not


class StartsWith(_Comparison):
    """Whether a text starts with another."""

    def __init__(self, column: FilteredColumn, prefix: str) -> None:
        super().__init__(column)
        self._prefix = prefix

    def _of(self, array: pyarrow.Array) -> pyarrow.Array:
        return compute.starts_with(array, self._prefix)

    def _of_values(self, found: ValueRange) -> tuple[bool, bool]:
        prefix = found.image(self._prefix) if found.ordered else None
        if prefix is None:
            return True, True
        lower, upper = found.bounds(self._prefix)
        may = (upper is None or upper >= prefix) and (lower is None or lower <= prefix or lower.startswith(prefix))
        sure = lower is not None and upper is not None and lower.startswith(prefix) and upper.startswith(prefix)
        return may, not (sure and prefix == self._prefix)


class Like(StartsWith):
    """Whether a text has a pattern: texts, with one character (`single`) or any number of them between each two."""

    def __init__(self, column: FilteredColumn, texts: Sequence[str], single: Sequence[bool]) -> None:
        super().__init__(column, texts[0])
        # Any character is a code point, and may be the end of a line.
        gaps = ["." if each else ".*" for each in single]
        wanted = "".join(_as_it_is(text) + gap for text, gap in zip(texts, [*gaps, ""], strict=True))
        self._pattern = rf"(?s)\A(?:{wanted})\z"
        try:
            compute.match_substring_regex(pyarrow.array([""]), self._pattern)
        except pyarrow.ArrowInvalid:
            raise ValueError(f"the pattern of like for column {column.name} is too long") from None

    def _of(self, array: pyarrow.Array) -> pyarrow.Array:
        return compute.match_substring_regex(array, self._pattern)

    def _of_values(self, found: ValueRange) -> tuple[bool, bool]:
        return super()._of_values(found)[0], True


def _as_it_is(text: str) -> str:
    """Return a regular expression for this text alone."""
    return "".join(rf"\x{{{ord(each):x}}}" for each in text)


# -- arrays --------------------------------------------------------------------------------------------------------


def _constant(array: pyarrow.Array, value: bool) -> pyarrow.Array:
    """Return one value for all rows, but null where the array is null."""
    made = pyarrow.repeat(value, len(array))
    if not array.null_count:
        return made
    return compute.if_else(array.is_valid(), made, pyarrow.scalar(None, pyarrow.bool_()))


def _comparable(array: pyarrow.Array, values: list[Any]) -> tuple[pyarrow.Array, list[Any]]:
    """Return an array, and values as scalars of its type; for a value out of range, whether the array is less."""
    if isinstance(array.type, pyarrow.BaseExtensionType):
        array = array.storage
    kind = array.type
    first = values[0]
    if isinstance(first, float):
        array = array.cast(pyarrow.float64(), safe=False)
        return array, [pyarrow.scalar(each, pyarrow.float64()) for each in values]
    if isinstance(first, bytes):
        if pyarrow.types.is_fixed_size_binary(kind):
            array = array.cast(pyarrow.binary())
        return array, [pyarrow.scalar(each, array.type) for each in values]
    if isinstance(first, str):
        return array, [pyarrow.scalar(each, kind) for each in values]
    if pyarrow.types.is_boolean(kind):
        array = array.cast(pyarrow.int8())
        kind = array.type
    if pyarrow.types.is_decimal(kind):
        beyond = 10**kind.precision
        return array, [_decimal(int(each), kind) if -beyond < each < beyond else each > 0 for each in values]
    limit = 1 << (kind.bit_width - 1)
    return array, [pyarrow.scalar(int(each), kind) if -limit <= each < limit else each > 0 for each in values]


def _decimal(units: int, kind: pyarrow.DataType) -> pyarrow.Scalar:
    digits = tuple(map(int, str(abs(units))))
    return pyarrow.scalar(Decimal((int(units < 0), digits, -kind.scale)), kind)


# -- nodes for the column's type --------------------------------------------------------------------------------------


def less(column: FilteredColumn, value: Value, *, inclusive: bool) -> FilterNode:
    """Return whether a column is less than a value; with `inclusive`, or equal to it."""
    if isinstance(value, float) and isinstance(column.type, DecimalType):
        # Arrow's conversion to floats is not exact.
        value, inclusive = decimal_bound(value, column.type.scale, inclusive=inclusive)
    return _Less(column, value, inclusive=inclusive)


def among(column: FilteredColumn, values: list[Value]) -> FilterNode:
    """Return whether a column equals one of several values."""
    if not isinstance(column.type, DecimalType):
        return IsIn(column, values)
    made: FilterNode = IsIn(column, [each for each in values if not isinstance(each, float)])
    for each in values:
        if isinstance(each, float):
            up_to, below = (less(column, each, inclusive=inclusive) for inclusive in (True, False))
            made = Both(made, Both(up_to, Not(below), either=False), either=True)
    return made


def column_of(name: str, schema: Schema, case_sensitive: bool) -> FilteredColumn:
    """Return the column of a name; a ValueError if there is none, or it is not one value of each row."""
    found: NestedField = schema.find_field(name, case_sensitive=case_sensitive)
    path = path_to(schema.fields, found.field_id)
    if path is None:
        raise ValueError(f"column {name} is inside a list or a map: a filter is on one value of each row")
    return FilteredColumn(found.field_id, name, found.field_type, nested=len(path) > 1)
