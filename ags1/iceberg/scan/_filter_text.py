"""Row filters as text: the conditions of Spark's WHERE, with Spark's meaning.

    text  --sqlglot-->  syntax tree  --bound to a table's columns-->  the nodes of ags1.iceberg.scan._filter_nodes

Spark converts the two sides of a comparison to one type, and so does this module where the result is certain. All else
is refused with a ValueError that says what to write instead: sqlglot accepts more than Spark does, so each form of the
tree that is not listed here is refused, also one that a later sqlglot adds.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any, NoReturn

from pyiceberg import types
from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions import Not as NotExpression
from pyiceberg.expressions import literals as written
from pyiceberg.schema import Schema
from pyiceberg.typedef import IcebergRootModel

from ags1.iceberg.scan import _filter_nodes as nodes
from ags1.iceberg.scan._filter_nodes import FilterNode
from ags1.iceberg.scan._filter_syntax import check_whole, refuse, shown_sql, syntax_tree
from ags1.iceberg.scan._literal_values import ZONED, Value, value_of
from ags1.iceberg.scan._value_range import FilteredColumn
from ags1.iceberg.scan._variant import is_variant

_NUMBER = re.compile(r"(?P<whole>\d+)|(?P<decimal>\d+\.\d*|\.\d+)|(?:\d+\.?\d*|\.\d+)[eE][+-]?\d+", re.ASCII)
_WRITTEN_FLOAT = re.compile(r"[+-]?(?:inf(?:inity)?|(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)|nan", re.ASCII | re.IGNORECASE)
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)
_FINER = re.compile(r"\.\d{6}\d*[1-9]", re.ASCII)
_ZONE = re.compile(r"[+-](\d\d):(\d\d)$", re.ASCII)
_WHOLE = (types.IntegerType, types.LongType)
_LOCAL = (types.TimestampType, types.TimestampNanoType)
# Spark's decimals have no more.
_MOST_DIGITS = 38
# The largest difference of a zone, in minutes.
_MOST_SHIFT = 18 * 60
_ADVICE: dict[type, str] = {
    types.BooleanType: "true or false",
    types.IntegerType: "a number, such as 5 or 2.5",
    types.LongType: "a number, such as 5 or 2.5",
    types.DecimalType: "a number, such as 5 or 2.5",
    types.FloatType: "a number, such as 5 or 2.5, or 'NaN'",
    types.DoubleType: "a number, such as 5 or 2.5, or 'NaN'",
    types.DateType: "a date, such as '2026-01-31'",
    types.TimeType: "a time, such as '23:59:59'",
    types.TimestampType: "a time without a zone, such as '2026-01-31 23:59:59.5'",
    types.TimestampNanoType: "a time without a zone, such as '2026-01-31 23:59:59.5'",
    types.TimestamptzType: "a time with a zone, such as '2026-01-31 23:59:59.5Z' or '2026-01-31 23:59:59+01:00'",
    types.TimestamptzNanoType: "a time with a zone, such as '2026-01-31 23:59:59.5Z' or '2026-01-31 23:59:59+01:00'",
    types.StringType: "a text in single quotes",
    types.BinaryType: "bytes, such as X'00ff'",
    types.FixedType: "bytes of its length, such as X'00ff'",
    types.UUIDType: "a UUID in lower case, such as '01234567-89ab-cdef-0123-456789abcdef'",
}


class _Nan:
    """NaN, which PyIceberg has no literal for."""

    value = math.nan


_FLOATS = (written.DoubleLiteral, _Nan)
_NUMBERS = (written.LongLiteral, written.DecimalLiteral, *_FLOATS)


class TextFilter(BooleanExpression, IcebergRootModel[str]):  # type: ignore[misc]
    """A filter as text, wherever PyIceberg's expressions may be; only ags1 can evaluate it."""

    root: str

    def __invert__(self) -> Any:
        return NotExpression(self)

    def __str__(self) -> str:
        return f"TextFilter({self.root!r})"

    __repr__ = __str__


def bound_text(text: str, schema: Schema, case_sensitive: bool) -> FilterNode:
    """Return a filter bound to a schema; a ValueError says what in it is not understood or does not fit."""
    try:
        tree, tokens = syntax_tree(text)
        made = _Binding(text, schema, case_sensitive).truth(tree)
        # Now, because the words of the others say more.
        check_whole(tree, tokens, text)
    except RecursionError:
        raise ValueError("the filter is nested too deeply: write it with fewer parentheses") from None
    return made


# -- conditions ------------------------------------------------------------------------------------------------------


class _Binding:
    """Makes the nodes of one filter for one schema."""

    def __init__(self, text: str, schema: Schema, case_sensitive: bool) -> None:
        self._text, self._schema, self._case_sensitive = text, schema, case_sensitive
        self._conditions: dict[str, Callable[[Any], FilterNode]] = {
            "Paren": lambda tree: self.truth(tree.this),
            "Boolean": lambda tree: nodes.Constant(bool(tree.this)),
            "Null": lambda tree: nodes.Constant(None),
            "Column": self._flag,
            "Dot": self._flag,
            "Not": lambda tree: nodes.Not(self.truth(tree.this)),
            "And": lambda tree: self._joined(tree, either=False),
            "Or": lambda tree: self._joined(tree, either=True),
            "Is": self._is,
            "In": self._in,
            "Between": self._between,
            "Like": self._like,
            "Escape": self._like,
            "IsNan": lambda tree: self._is_nan(tree.this),
            "Anonymous": self._function,
            "NullSafeEQ": self._null_safe,
            "NullSafeNEQ": lambda tree: nodes.Not(self._null_safe(tree)),
            **dict.fromkeys(_COMPARISONS, self._comparison),
        }

    def truth(self, tree: Any) -> FilterNode:
        """Return the node of a condition."""
        name = type(tree).__name__
        found = self._conditions.get(name)
        # What a form has besides what is read here would be lost.
        further = [key for key, value in tree.args.items() if value and key not in _ARGUMENTS.get(name, _SIDES)]
        if found is None or further:
            self._refuse(
                f"{shown_sql(tree)} is not supported. Compare a column with a value by =, <>, <, <=, >, >=, <=>, in, "
                "between or like, or write is null, is true or isnan(column), joined by and, or and not"
            )
        return found(tree)

    def _refuse(self, reason: str) -> NoReturn:
        refuse(self._text, reason)

    def _joined(self, tree: Any, *, either: bool) -> FilterNode:
        # Thousands of conditions in a row are one level, not thousands.
        made = [self.truth(each) for each in tree.flatten(unnest=False)]
        while len(made) > 1:
            pairs = [nodes.Both(*each, either=either) for each in zip(made[::2], made[1::2], strict=False)]
            made = [*pairs, *made[len(made) // 2 * 2 :]]
        return made[0]

    def _flag(self, tree: Any) -> FilterNode:
        """Return the node of a boolean column."""
        column = self._column(tree)
        if not isinstance(column.type, types.BooleanType):
            self._refuse(f"column {column.name} is {column.type} and no condition: compare it with a value")
        return nodes.IsIn(column, [Fraction(1)])

    def _is(self, tree: Any) -> FilterNode:
        kind = type(tree.expression).__name__
        if _is_column(tree.this) and kind == "Null":
            return nodes.IsNull(self._column(tree.this, any_type=True))
        if kind == "Column" and self._is_bare_nan(tree.expression):
            return self._is_nan(tree.this)
        if kind not in ("Null", "Boolean"):
            self._refuse(f"{shown_sql(tree)} is not supported: write is null, is true, is false or isnan(column)")
        return nodes.Is(self.truth(tree.this), None if kind == "Null" else bool(tree.expression.this))

    def _is_nan(self, tree: Any) -> FilterNode:
        column = self._column(tree)
        if not isinstance(column.type, (types.FloatType, types.DoubleType, types.DecimalType, *_WHOLE)):
            self._refuse(f"column {column.name} is {column.type} and no number: it cannot be NaN")
        return nodes.IsNan(column) if column.is_float else nodes.Constant(False)

    def _function(self, tree: Any) -> FilterNode:
        name = str(tree.this).lower()
        if name not in ("isnull", "isnotnull") or len(tree.expressions) != 1:
            self._refuse(f"the function {tree.this} is not supported: compare a column with a value")
        made = nodes.IsNull(self._column(tree.expressions[0], any_type=True))
        return made if name == "isnull" else nodes.Not(made)

    def _comparison(self, tree: Any) -> FilterNode:
        operator, (column, literal) = type(tree).__name__, self._sides(tree)
        if _is_column(_bare(tree.expression)) and not self._is_bare_nan(_bare(tree.expression)):
            operator = _MIRRORED.get(operator, operator)
        return self._compared(column, operator, literal)

    def _compared(self, column: FilteredColumn, operator: str, literal: Any) -> FilterNode:
        ordered = operator not in ("EQ", "NEQ")
        if literal is None:
            return nodes.Constant(None)
        (value,) = self._values(column, [literal], ordered=ordered)
        if not ordered:
            made = nodes.among(column, [value])
            return nodes.Not(made) if operator == "NEQ" else made
        # The order is total: "greater" is "neither less nor equal".
        made = nodes.less(column, value, inclusive=operator in ("LTE", "GT"))
        return nodes.Not(made) if operator in ("GT", "GTE") else made

    def _null_safe(self, tree: Any) -> FilterNode:
        column, literal = self._sides(tree)
        if literal is None:
            return nodes.IsNull(column)
        return nodes.Is(self._compared(column, "EQ", literal), True)

    def _in(self, tree: Any) -> FilterNode:
        column = self._column(tree.this)
        listed = [self._literal(each) for each in tree.expressions]
        if not listed:
            self._refuse(f"{shown_sql(tree)} has no values")
        given = [each for each in listed if each is not None]
        made = nodes.among(column, self._values(column, given)) if given else nodes.Constant(None)
        return made if len(given) == len(listed) else nodes.Both(made, nodes.Constant(None), either=True)

    def _between(self, tree: Any) -> FilterNode:
        column = self._column(tree.this)
        low, high = (self._literal(tree.args[each]) for each in ("low", "high"))
        return nodes.Both(self._compared(column, "GTE", low), self._compared(column, "LTE", high), either=False)

    def _like(self, tree: Any) -> FilterNode:
        escape = "\\"
        if type(tree).__name__ == "Escape":
            given = self._literal(tree.expression)
            tree = tree.this
            if type(tree).__name__ != "Like" or not isinstance(given, written.StringLiteral):
                self._refuse(f"{shown_sql(tree)} is not supported: write like 'pattern' escape 'character'")
            escape = given.value
            if len(escape) != 1 or escape > "\uffff":
                self._refuse(f"escape must be one character, not {escape!r}")
        column, pattern = self._column(tree.this), self._literal(tree.expression)
        if not isinstance(column.type, types.StringType):
            self._refuse(f"column {column.name} is {column.type} and no text: like is for text")
        if pattern is None:
            made: FilterNode = nodes.Constant(None)
        elif isinstance(pattern, written.StringLiteral):
            made = self._matching(column, pattern.value, escape)
        else:
            self._refuse(f"like takes a text in single quotes, not {shown_sql(tree.expression)}")
        return nodes.Not(made) if tree.args.get("negate") else made

    def _matching(self, column: FilteredColumn, pattern: str, escape: str) -> FilterNode:
        parts: list[str | None] = [""]
        rest = iter(pattern)
        for character in rest:
            if character == escape:
                escaped = next(rest, None)
                if escaped not in ("_", "%", escape):
                    self._refuse(
                        f"in the pattern {pattern!r}, {escape} must stand before _, % or {escape}. For the character "
                        rf"itself write {escape * 2!r} (in quotes, '\\\\' is two backslashes)"
                    )
                character = str(escaped)
            elif character in ("_", "%"):
                parts += [None if character == "_" else "%", ""]
                continue
            parts[-1] = f"{parts[-1]}{character}"
        if len(parts) == 1:
            return nodes.IsIn(column, [str(parts[0])])
        if parts[1:] == ["%", ""]:
            return nodes.StartsWith(column, str(parts[0]))
        texts, wild = parts[::2], parts[1::2]
        return nodes.Like(column, [str(each) for each in texts], [each is None for each in wild])

    # -- columns and literals ----------------------------------------------------------------------------------------

    def _sides(self, tree: Any) -> tuple[FilteredColumn, Any]:
        """Return the column and the literal of a comparison; None for null."""
        left, right = _bare(tree.this), _bare(tree.expression)
        if not _is_column(left) and not _is_column(right):
            # The one to name is the function or the calculation.
            self._column(right if type(left).__name__ == "Literal" else left)
        if not _is_column(left) or self._is_bare_nan(left):
            left, right = right, left
        if _is_column(right) and not self._is_bare_nan(right):
            self._refuse(f"{shown_sql(tree)} compares two columns: compare each with a value")
        return self._column(left), self._literal(right)

    def _is_bare_nan(self, tree: Any) -> bool:
        """Whether a name is no column, but stands for NaN."""
        if type(tree).__name__ != "Column" or tree.args.get("table") or tree.this.args.get("quoted"):
            return False
        if str(tree.this.this).lower() != "nan":
            return False
        return not any(each.name.lower() == "nan" for each in self._schema.fields)

    def _column(self, tree: Any, *, any_type: bool = False) -> FilteredColumn:
        tree = _bare(tree)
        if not _is_column(tree):
            self._refuse(f"{shown_sql(tree)} stands where a column must be: compare a column with a value")
        parts = [each.this for each in tree.parts]
        if not all(isinstance(each, str) for each in parts):
            self._refuse(f"{shown_sql(tree)} is no column")
        found = nodes.column_of(".".join(parts), self._schema, self._case_sensitive)
        if not any_type:
            if is_variant(found.field_id, found.type):
                self._refuse(f"column {found.name} is a variant or a part of one: write is null or is not null")
            if not found.type.is_primitive:
                self._refuse(f"column {found.name} is no single value: write is null or is not null")
        return found

    def _literal(self, tree: Any) -> Any:
        """Return PyIceberg's literal; None for null."""
        tree = _bare(tree)
        kind = type(tree).__name__
        if kind == "Null":
            return None
        if kind == "Boolean":
            return written.BooleanLiteral(bool(tree.this))
        if kind == "RawString":
            return written.StringLiteral(tree.this)
        if kind == "HexString" and len(tree.this) % 2 == 0:
            return written.BinaryLiteral(bytes.fromhex(tree.this))
        if kind == "HexString":
            self._refuse(f"X'{tree.this}' needs two digits for each byte")
        if kind == "Column" and self._is_bare_nan(tree):
            return _Nan()
        made = None
        if kind == "Literal":
            made = written.StringLiteral(tree.this) if tree.args["is_string"] else self._number(tree.this)
        elif kind == "Neg":
            made = _negative(self._literal(tree.this))
        elif kind in ("Cast", "TryCast") and type(tree.this).__name__ in ("Literal", "Neg"):
            made = _cast(self._literal(tree.this), tree)
        if made is None:
            self._refuse(
                f"{shown_sql(tree)} is not supported as a value: write the value itself, without a calculation"
            )
        return made

    def _number(self, text: str) -> Any:
        found = _NUMBER.fullmatch(text)
        if found is None:
            return None
        if found["whole"] is None and found["decimal"] is None:
            value = float(text)
            return written.DoubleLiteral(value) if math.isfinite(value) else None
        decimal = Decimal(text)
        if sum(_digits(decimal)) > _MOST_DIGITS:
            self._refuse(f"{text} has more than {_MOST_DIGITS} digits, which no number of Spark has")
        whole = found["whole"] is not None and decimal < 1 << 63
        return written.LongLiteral(int(text)) if whole else written.DecimalLiteral(decimal)

    def _values(self, column: FilteredColumn, listed: list[Any], *, ordered: bool = False) -> list[Value]:
        """Return literals as values for comparison with a column, all in the type that Spark compares them in."""
        kind = column.type
        if not all(_fits(each, kind) for each in listed):
            wrong = next(each for each in listed if not _fits(each, kind))
            self._refuse(
                f"column {column.name} is {kind}, and cannot be compared with {_shown(wrong)}: write "
                f"{_ADVICE.get(type(kind), 'is null')}"
            )
        if isinstance(kind, (*_WHOLE, types.DecimalType)):
            if any(isinstance(each, _FLOATS) for each in listed):
                listed = [_float(float(each.value)) for each in listed]
            else:
                self._check_digits(column, listed)
        for each in listed if ordered and isinstance(kind, _WHOLE) else ():
            if isinstance(each, written.DecimalLiteral) and not -(1 << 63) <= each.value < 1 << 63:
                # Spark has a constant for such a comparison, also where the column is null.
                self._refuse(f"{each.value} is beyond every value of column {column.name}: write is not null, or false")
        return [math.nan if isinstance(each, _Nan) else value_of(each, kind) for each in listed]

    def _check_digits(self, column: FilteredColumn, listed: list[Any]) -> None:
        """Refuse decimals that Spark would round to compare them."""
        if isinstance(column.type, types.DecimalType):
            found = [(column.type.precision - column.type.scale, column.type.scale)]
        else:
            found = [(20 if isinstance(column.type, types.LongType) else 10, 0)]
        found += [_digits(each.value) for each in listed if isinstance(each, written.DecimalLiteral)]
        if any(isinstance(each, written.LongLiteral) for each in listed):
            wide = any(abs(each.value) >> 31 for each in listed if isinstance(each, written.LongLiteral))
            found.append((20 if wide else 10, 0))
        whole, scale = (max(each) for each in zip(*found, strict=True))
        if len(found) > 1 and whole + scale > _MOST_DIGITS:
            self._refuse(
                f"column {column.name} is {column.type}, and Spark would round it or the number to compare them: write "
                "the number with fewer digits"
            )


_COMPARISONS = ("EQ", "NEQ", "LT", "LTE", "GT", "GTE")
_MIRRORED = {"LT": "GT", "LTE": "GTE", "GT": "LT", "GTE": "LTE"}
# What is read of each form of the syntax tree.
_SIDES = frozenset(("this", "expression"))
_ARGUMENTS: dict[str, frozenset[str]] = {
    "Column": frozenset(("this", "table", "db", "catalog")),
    "In": frozenset(("this", "expressions")),
    "Between": frozenset(("this", "low", "high")),
    "Like": frozenset(("this", "expression", "negate")),
    "Anonymous": frozenset(("this", "expressions")),
}


def _bare(tree: Any) -> Any:
    while type(tree).__name__ == "Paren":
        tree = tree.this
    return tree


def _is_column(tree: Any) -> bool:
    return type(tree).__name__ in ("Column", "Dot")


def _shown(literal: Any) -> str:
    if isinstance(literal, written.BinaryLiteral):
        return f"X'{literal.value.hex()}'"
    if isinstance(literal, written.BooleanLiteral):
        return str(literal.value).lower()
    return repr(literal.value) if isinstance(literal, written.StringLiteral) else f"{literal.value!s}"


def _digits(number: Decimal) -> tuple[int, int]:
    """Return the digits before and after the point that a decimal needs in Spark."""
    _, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    whole = max(0, len(digits) + exponent) if number else 0
    return whole, max(0, -exponent)


def _float(value: float) -> Any:
    return _Nan() if math.isnan(value) else written.DoubleLiteral(value)


def _negative(literal: Any) -> Any:
    if isinstance(literal, _Nan):
        return literal
    if isinstance(literal, written.LongLiteral):
        return written.LongLiteral(-literal.value)
    if isinstance(literal, written.DoubleLiteral):
        return written.DoubleLiteral(-literal.value)
    # Arithmetic would round to the digits of the decimal context.
    return written.DecimalLiteral(literal.value.copy_negate()) if isinstance(literal, written.DecimalLiteral) else None


def _cast(literal: Any, tree: Any) -> Any:
    """Return the literal of a cast that only says its type, such as 1L, date'2026-01-31' or cast('NaN' as double).

    None is returned for one that would change a value.
    """
    target = tree.args["to"]
    if [key for key, value in tree.args.items() if value and key not in ("this", "to")]:
        return None
    name = target.this.name
    number = isinstance(literal, _NUMBERS)
    if name in ("DOUBLE", "FLOAT"):
        if isinstance(literal, written.StringLiteral) and _WRITTEN_FLOAT.fullmatch(literal.value):
            exact: Any = literal.value
        elif number:
            exact = literal.value
        else:
            return None
        return _float(float(exact) if name == "DOUBLE" else _single(exact))
    if name == "BIGINT":
        return literal if isinstance(literal, written.LongLiteral) else None
    if name == "DECIMAL":
        return _decimal_cast(literal, [each.this for each in target.expressions])
    if isinstance(literal, written.StringLiteral) and name in _MOMENTS:
        return _Moment(literal.value, name)
    return None


def _single(number: Any) -> float:
    """Return the 32-bit float that is nearest to a number."""
    near = float(number)
    if not math.isfinite(near):
        return near
    exact = Fraction(str(number)) if isinstance(number, str) else Fraction(number)
    if Fraction(near) != exact and not struct.unpack("<q", struct.pack("<d", near))[0] & 1:
        # Rounded twice, it could end on the wrong side of the middle between two floats: an odd last bit decides.
        near = math.nextafter(near, math.inf if exact > Fraction(near) else -math.inf)
    try:
        found: float = struct.unpack("<f", struct.pack("<f", near))[0]
    except OverflowError:
        return math.copysign(math.inf, near)
    return found


def _decimal_cast(literal: Any, parameters: list[Any]) -> Any:
    if len(parameters) != 2 or not all(str(each.this).isdecimal() for each in parameters):
        return None
    precision, scale = (int(each.this) for each in parameters)
    if isinstance(literal, written.StringLiteral):
        if (found := _NUMBER.fullmatch(literal.value)) is None or not (found["whole"] or found["decimal"]):
            return None
        number = Decimal(literal.value)
    elif isinstance(literal, (written.LongLiteral, written.DecimalLiteral)):
        number = Decimal(literal.value)
    else:
        return None
    whole, fraction = _digits(number)
    if precision > _MOST_DIGITS or fraction > scale or whole > precision - scale:
        return None
    return written.DecimalLiteral(number)


_MOMENTS = ("DATE", "TIMESTAMPTZ", "TIMESTAMPLTZ", "TIMESTAMPNTZ")


class _Moment(written.StringLiteral):
    """A text that says that it is a date, or a time with or without a zone."""

    def __init__(self, value: str, name: str) -> None:
        super().__init__(value)
        self._name = name

    def fits(self, kind: Any) -> bool:
        if self._name == "DATE":
            return (
                isinstance(kind, (types.DateType, types.TimestampType, types.TimestampNanoType))
                and ":" not in self.value
            )
        if self._name == "TIMESTAMPNTZ":
            return isinstance(kind, (types.TimestampType, types.TimestampNanoType))
        return isinstance(kind, ZONED)


def _fits(literal: Any, kind: Any) -> bool:
    """Whether Spark compares a column of a type with a literal, in the way that is implemented."""
    if isinstance(literal, _Moment) and not literal.fits(kind):
        return False
    if isinstance(literal, _NUMBERS):
        return isinstance(kind, (*_WHOLE, types.DecimalType, types.FloatType, types.DoubleType))
    if isinstance(kind, (*_WHOLE, types.DecimalType)):
        return False
    if isinstance(literal, written.StringLiteral):
        text = literal.value
        if isinstance(kind, (types.FloatType, types.DoubleType)):
            return _WRITTEN_FLOAT.fullmatch(text) is not None
        if isinstance(kind, types.UUIDType):
            return _UUID.fullmatch(text) is not None
        if isinstance(kind, (types.TimestampType, types.TimestamptzType)) and _FINER.search(text):
            # Spark leaves out what is smaller than a microsecond.
            return False
        zone = _ZONE.search(text) if isinstance(kind, ZONED) else None
        if zone is not None and int(zone[1]) * 60 + int(zone[2]) > _MOST_SHIFT:
            return False
    try:
        value_of(literal, kind)
    except ValueError:
        return False
    return True
