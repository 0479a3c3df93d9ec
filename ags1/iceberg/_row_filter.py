"""Row filters: PyIceberg's expressions, evaluated as Spark evaluates them.

    expression  --bound to the table's columns-->  tree  --over projected rows-->     true, false or null for each row
                                                         --over ranges of values-->  which of the three are possible

Rows are filtered after projection: with the scan's types, names and defaults, whatever the file has. The same tree over
a file's ranges decides whether a row can pass; only if none can is the file skipped.

Logic has three values, as in SQL: a comparison with null is null, and rows that are null do not pass. Floats have
Spark's order: NaN equals NaN and is greater than any other number, and the zeros of both signs are equal. Every
predicate is built from "less", "in" and four others, with `not` around them.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from fractions import Fraction
from itertools import product
from typing import Any, Protocol

import pyarrow
import pyarrow.compute as compute
from pyiceberg import expressions as written
from pyiceberg.expressions.parser import parse
from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, NestedField
from pyparsing import ParseBaseException

from ags1.iceberg._literal_values import Value, decimal_bound, value_of
from ags1.iceberg._projection import path_to
from ags1.iceberg._value_range import FilteredColumn, ValueRange
from ags1.iceberg._variant import is_variant

__all__ = ["RowFilter", "parse_filter"]

_Truth = bool | None
_Ranges = Callable[[FilteredColumn], Iterable[ValueRange]]
_Arrays = Callable[[int], pyarrow.Array]
_ALL: frozenset[_Truth] = frozenset((True, False, None))
# A text in single quotes, which stays as it is, or a name in double quotes.
_QUOTED = re.compile(r"""'(?:[^']|'')*'|"((?:[^"\\]|\\.)+)\"""", re.DOTALL)


class RowFilter:
    """A filter that is bound to the schema of the table or of its snapshot.

    `field_ids` are the columns that it needs. A ValueError reports a column that does not exist, or a type that cannot
    be compared with a literal.
    """

    def __init__(self, expression: Any, schema: Schema, case_sensitive: bool = True) -> None:
        self.expression = expression
        self._root = _bound(expression, schema, case_sensitive)
        self.field_ids = tuple(dict.fromkeys(each.field_id for each in self._root.columns()))

    def passing(self, columns: _Arrays, count: int) -> pyarrow.Array:
        """Return which of `count` rows pass, as booleans without nulls; `columns` returns the array of a field id."""
        found = self._root.evaluate(columns, count)
        return found.fill_null(False) if found.null_count else found

    def possible(self, ranges: _Ranges) -> frozenset[_Truth]:
        """Return the values that the filter may have for any of the rows; never too few.

        `ranges` returns the known ranges of a column in these rows; all of them hold.
        """
        return self._root.possible(ranges)


class _Node(Protocol):
    def columns(self) -> Iterator[FilteredColumn]: ...

    def evaluate(self, columns: _Arrays, count: int) -> pyarrow.Array: ...

    def possible(self, ranges: _Ranges) -> frozenset[_Truth]: ...


# -- logic ---------------------------------------------------------------------------------------------------------


class _Constant:
    def __init__(self, value: bool) -> None:
        self._value = value

    def columns(self) -> Iterator[FilteredColumn]:
        return iter(())

    def evaluate(self, columns: _Arrays, count: int) -> pyarrow.Array:
        return pyarrow.repeat(self._value, count)

    def possible(self, ranges: _Ranges) -> frozenset[_Truth]:
        return frozenset((self._value,))


class _Not:
    def __init__(self, child: _Node) -> None:
        self._child = child

    def columns(self) -> Iterator[FilteredColumn]:
        return self._child.columns()

    def evaluate(self, columns: _Arrays, count: int) -> pyarrow.Array:
        return compute.invert(self._child.evaluate(columns, count))

    def possible(self, ranges: _Ranges) -> frozenset[_Truth]:
        return frozenset(None if each is None else not each for each in self._child.possible(ranges))


class _Both:
    """And; with `either`, or."""

    def __init__(self, left: _Node, right: _Node, *, either: bool) -> None:
        self._left, self._right, self._either = left, right, either

    def columns(self) -> Iterator[FilteredColumn]:
        yield from self._left.columns()
        yield from self._right.columns()

    def evaluate(self, columns: _Arrays, count: int) -> pyarrow.Array:
        combine = compute.or_kleene if self._either else compute.and_kleene
        return combine(self._left.evaluate(columns, count), self._right.evaluate(columns, count))

    def possible(self, ranges: _Ranges) -> frozenset[_Truth]:
        pairs = product(self._left.possible(ranges), self._right.possible(ranges))
        return frozenset(self._combined(pair) for pair in pairs)

    def _combined(self, pair: tuple[_Truth, _Truth]) -> _Truth:
        if self._either in pair:
            return self._either
        return None if None in pair else not self._either


# -- predicates ----------------------------------------------------------------------------------------------------


class _Predicate:
    """A predicate on one column."""

    def __init__(self, column: FilteredColumn) -> None:
        self._column = column

    def columns(self) -> Iterator[FilteredColumn]:
        yield self._column

    def evaluate(self, columns: _Arrays, count: int) -> pyarrow.Array:
        return self._of(columns(self._column.field_id))

    def possible(self, ranges: _Ranges) -> frozenset[_Truth]:
        found = _ALL
        for each in ranges(self._column):
            found &= self._within(each)
        return found

    def _of(self, array: pyarrow.Array) -> pyarrow.Array:
        raise NotImplementedError

    def _within(self, found: ValueRange) -> frozenset[_Truth]:
        raise NotImplementedError


class _IsNull(_Predicate):
    def _of(self, array: pyarrow.Array) -> pyarrow.Array:
        return array.is_null()

    def _within(self, found: ValueRange) -> frozenset[_Truth]:
        return frozenset([True] * found.nulls + [False] * (found.values or found.nans))


class _IsNan(_Predicate):
    """False for null, as Spark's isnan."""

    def _of(self, array: pyarrow.Array) -> pyarrow.Array:
        return compute.is_nan(array).fill_null(False)

    def _within(self, found: ValueRange) -> frozenset[_Truth]:
        return frozenset([True] * found.nans + [False] * (found.nulls or found.values))


class _Comparison(_Predicate):
    """Null for null."""

    def _within(self, found: ValueRange) -> frozenset[_Truth]:
        truths: set[_Truth] = set()
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


class _IsIn(_Comparison):
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


class _StartsWith(_Comparison):
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


# -- binding -------------------------------------------------------------------------------------------------------


def _bound(expression: Any, schema: Schema, case_sensitive: bool) -> _Node:
    if isinstance(expression, (written.AlwaysTrue, written.AlwaysFalse)):
        return _Constant(isinstance(expression, written.AlwaysTrue))
    if isinstance(expression, written.Not):
        return _Not(_bound(expression.child, schema, case_sensitive))
    if isinstance(expression, (written.And, written.Or)):
        left, right = (_bound(each, schema, case_sensitive) for each in (expression.left, expression.right))
        return _Both(left, right, either=isinstance(expression, written.Or))
    if not isinstance(expression, (written.UnaryPredicate, written.SetPredicate, written.LiteralPredicate)):
        raise ValueError(f"row_filter must be an unbound expression, not {type(expression).__name__}")
    column = _column(expression.term, schema, case_sensitive)
    if isinstance(expression, (written.IsNull, written.NotNull)):
        return _perhaps_not(_IsNull(column), isinstance(expression, written.NotNull))
    if is_variant(column.field_id, column.type):
        raise ValueError(f"column {column.name} is a variant or a part of one: it can be compared with null alone")
    if isinstance(expression, (written.IsNaN, written.NotNaN)):
        made: _Node = _IsNan(column) if column.is_float else _Constant(False)
        return _perhaps_not(made, isinstance(expression, written.NotNaN))
    if not column.type.is_primitive:
        raise ValueError(f"column {column.name} is no single value: it can be compared with null alone")
    if isinstance(expression, written.SetPredicate):
        values = [value_of(each, column.type) for each in expression.literals]
        return _perhaps_not(_among(column, values), isinstance(expression, written.NotIn))
    assert isinstance(expression, written.LiteralPredicate)
    value = value_of(expression.literal, column.type)
    if isinstance(expression, (written.StartsWith, written.NotStartsWith)):
        if not isinstance(value, str):
            raise ValueError(f"column {column.name} is no text: it cannot start with {value!r}")
        return _perhaps_not(_StartsWith(column, value), isinstance(expression, written.NotStartsWith))
    if isinstance(expression, (written.EqualTo, written.NotEqualTo)):
        return _perhaps_not(_among(column, [value]), isinstance(expression, written.NotEqualTo))
    # The order is total: "greater" is "neither less nor equal".
    more = isinstance(expression, (written.GreaterThan, written.GreaterThanOrEqual))
    inclusive = isinstance(expression, (written.LessThanOrEqual, written.GreaterThan))
    return _perhaps_not(_less(column, value, inclusive=inclusive), more)


def _less(column: FilteredColumn, value: Value, *, inclusive: bool) -> _Node:
    if isinstance(value, float) and isinstance(column.type, DecimalType):
        # Arrow's conversion to floats is not exact.
        value, inclusive = decimal_bound(value, column.type.scale, inclusive=inclusive)
    return _Less(column, value, inclusive=inclusive)


def _among(column: FilteredColumn, values: list[Value]) -> _Node:
    if not isinstance(column.type, DecimalType):
        return _IsIn(column, values)
    made: _Node = _IsIn(column, [each for each in values if not isinstance(each, float)])
    for each in values:
        if isinstance(each, float):
            up_to, below = (_less(column, each, inclusive=inclusive) for inclusive in (True, False))
            made = _Both(made, _Both(up_to, _Not(below), either=False), either=True)
    return made


def _perhaps_not(node: _Node, negated: bool) -> _Node:
    return _Not(node) if negated else node


def _column(term: Any, schema: Schema, case_sensitive: bool) -> FilteredColumn:
    found: NestedField = schema.find_field(term.name, case_sensitive=case_sensitive)
    path = path_to(schema.fields, found.field_id)
    if path is None:
        raise ValueError(f"column {term.name} is inside a list or a map: a filter is on one value of each row")
    return FilteredColumn(found.field_id, term.name, found.field_type, nested=len(path) > 1)


# -- filters as text ---------------------------------------------------------------------------------------------------


def parse_filter(text: str) -> Any:
    """PyIceberg's expression for a row filter such as ``amount > 10 and "unit price" is not null``; or a ValueError."""
    prefix = "_q"
    while prefix in text:
        prefix += "q"
    names: dict[str, str] = {}

    def hidden(found: re.Match[str]) -> str:
        if found[1] is None:
            return found[0]
        mark = f"{prefix}{len(names)}"
        names[mark] = re.sub(r"\\(.)", r"\1", found[1])
        return mark.ljust(len(found[0]))

    # PyIceberg refuses quoted names with dots.
    plain = _QUOTED.sub(hidden, text)
    try:
        made = parse(plain)
    except ParseBaseException as error:
        quotes = "; put a text in single quotes, a name in double quotes" if '"' in text else ""
        # Its own message lists the whole grammar.
        raise ValueError(
            f"the filter {text!r} cannot be understood, from character {error.column} on: write amount > 10 and "
            f"country = 'CH', with and, or, not, in, is null, is nan, like and between{quotes}"
        ) from None
    return _named(made, names) if names else made


def _named(expression: Any, names: dict[str, str]) -> Any:
    """Return the expression with its marks replaced by the names that they stand for."""
    if isinstance(expression, written.Not):
        return written.Not(_named(expression.child, names))
    if isinstance(expression, (written.And, written.Or)):
        return type(expression)(_named(expression.left, names), _named(expression.right, names))
    if isinstance(expression, written.UnboundPredicate):
        column: Any = expression.term
        parts = column.name.split(".")
        term = written.Reference(".".join(names.get(each, each) for each in parts))
        if isinstance(expression, written.SetPredicate):
            return type(expression)(term, expression.literals)
        if isinstance(expression, written.LiteralPredicate):
            return type(expression)(term, expression.literal)
        return type(expression)(term)
    return expression
