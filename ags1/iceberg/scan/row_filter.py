"""Row filters: expressions of PyIceberg, or text that PyIceberg's parser reads, over rows and over ranges of values.

    text  --PyIceberg's parser-->  expression  --bound to columns-->  over projected rows: which of them pass
                                                                      over value ranges: whether rows can pass

Rows are filtered by PyIceberg's own ``expression_to_pyarrow``, but after projection: with the scan's types, names and
defaults, whatever the file has. PyIceberg's evaluators of metrics and partitions are not used, because they lose rows:
they take missing bounds for nulls only, fail on bounds from before a promotion, and never look for the nulls of a
required field in an optional struct.

Ranges are what is known of values that were not read: in a manifest, a file, a partition, a Parquet row group.
Everything unknown is possible. Nothing here may exclude a value that is present.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple, NoReturn

import pyarrow
import pyarrow.acero as acero
import pyarrow.compute as compute
from pyiceberg import expressions, transforms, types
from pyiceberg.conversions import from_bytes
from pyiceberg.expressions import literals, visitors
from pyiceberg.io.pyarrow import expression_to_pyarrow, schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import FixedType, FloatType, NestedField, UUIDType
from pyiceberg.utils.decimal import decimal_to_unscaled, unscaled_to_decimal

from ags1.iceberg.metadata.pyiceberg_view import is_variant
from ags1.iceberg.scan.projection import LAST_UPDATED, LINEAGE, LINEAGE_IDS, path_to

_TIMES = (transforms.YearTransform, transforms.MonthTransform, transforms.DayTransform, transforms.HourTransform)


@dataclass(frozen=True)
class FilteredColumn:
    """A column of a row filter; `nested` if it is in a struct."""

    field_id: int
    name: str
    type: Any
    nested: bool

    @property
    def is_lineage(self) -> bool:
        """Whether it is no column of the table: a null in a file stands for a number that its manifest has."""
        return self.field_id in LINEAGE_IDS

    @property
    def is_float(self) -> bool:
        """Whether it may have NaN."""
        return isinstance(self.type, (types.FloatType, types.DoubleType))


@dataclass(frozen=True)
class ValueRange:
    """What a column may contain: nulls, values, NaN, and the bounds of the values.

    The bounds exclude null and NaN, and have the units of PyIceberg's literals (of decimals, the unscaled number); None
    if not known. With a `transform`, they are bounds of its results; it returns None if the result is not known;
    `ordered` says whether it keeps the order of values.
    """

    lower: Any = None
    upper: Any = None
    nulls: bool = True
    values: bool = True
    nans: bool = True
    transform: Callable[[Any], Any] | None = None
    ordered: bool = True

    @property
    def exact(self) -> bool:
        """Whether the range describes the values themselves."""
        return self.transform is None

    def image(self, value: Any) -> Any:
        """Return a value as it is compared with the bounds; None if that is not known."""
        return value if self.transform is None else self.transform(value)


# -- sources -------------------------------------------------------------------------------------------------------


def of_file(column: FilteredColumn, file: Mapping[str, Any]) -> ValueRange:
    """Return the range from the metrics in a data file's manifest entry."""
    total, nulls, nans = (
        _metric(file, name, column) for name in ("value_counts", "null_value_counts", "nan_value_counts")
    )
    if not column.is_float:
        nans = 0
    rows = file["record_count"]
    lower, upper = _ends(_metric(file, "lower_bounds", column), _metric(file, "upper_bounds", column), column.type)
    if total not in (None, rows) or (nulls or 0) + (nans or 0) > rows:
        # Writers differ in whether nulls count among the values, and null structs around a field; some count wrongly.
        nulls = nans = None
    return ValueRange(
        lower,
        upper,
        nulls=column.nested or nulls != 0,
        values=None in (total, nulls, nans) or rows > nulls + nans or (lower, upper) != (None, None),
        nans=column.is_float and nans != 0,
    )


def of_lineage(column: FilteredColumn, sequence_number: int | None) -> list[ValueRange]:
    """Return the range of a lineage column in files up to this data sequence number: no row was updated after it."""
    return [ValueRange(upper=sequence_number, nans=False)] if column.field_id == LAST_UPDATED else []


def of_partition(column: FilteredColumn, fields: Any, partition: Mapping[int, Any]) -> list[ValueRange]:
    """Return ranges from the partition of a data file: Avro values by field id; `fields` are the spec's."""
    made = []
    for field in fields:
        if field.source_id != column.field_id or field.field_id not in partition:
            continue
        if (image := _image(field.transform, column.type)) is None:
            continue
        value = partition[field.field_id]
        if value is None:
            # The field itself may be null, or the struct around it.
            made.append(ValueRange(values=False, nans=False))
            continue
        if value != value:
            made.append(ValueRange(nulls=False, values=False))
            continue
        known = None if isinstance(column.type, types.UUIDType) else value
        if isinstance(column.type, types.DecimalType) and isinstance(value, bytes):
            known = int.from_bytes(value, "big", signed=True)
        made.append(_transformed(field.transform, image, known, known, nulls=False, nans=False))
    return made


def of_summaries(column: FilteredColumn, fields: Any, summaries: Any, kinds: Any) -> list[ValueRange]:
    """Return ranges from a manifest list's partition summaries: one summary for each field of the spec."""
    made = []
    for field, summary, kind in zip(fields, summaries, kinds, strict=True):
        if field.source_id != column.field_id or (image := _image(field.transform, column.type)) is None:
            continue
        lower, upper = _ends(summary.get("lower_bound"), summary.get("upper_bound"), kind)
        nans = column.is_float and summary.get("contains_nan") is not False
        nulls = summary.get("contains_null") is not False
        made.append(_transformed(field.transform, image, lower, upper, nulls=nulls, nans=nans))
    return made


def _metric(file: Mapping[str, Any], name: str, column: FilteredColumn) -> Any:
    """Return a column's value in a map of metrics; None if it is not known."""
    return next((each["value"] for each in file.get(name) or () if each["key"] == column.field_id), None)


def _ends(lower: bytes | None, upper: bytes | None, kind: Any) -> tuple[Any, Any]:
    """Return bounds in the units of literals; None for both if one is NaN, or the lower one is the higher."""
    return _consistent(_decoded(lower, kind), _decoded(upper, kind))


def _consistent(lower: Any, upper: Any) -> tuple[Any, Any]:
    is_wrong = lower != lower or upper != upper or (None not in (lower, upper) and lower > upper)
    return (None, None) if is_wrong else (lower, upper)


def of_row_group(column: FilteredColumn, statistics: Any, kind: pyarrow.DataType) -> ValueRange | None:
    """Return the range from a column's statistics in a Parquet file; None if they are missing or of another type."""
    if statistics is None:
        return None
    lower = upper = None
    if statistics.has_min_max:
        if kind in _RAW.get(type(column.type), ()):
            lower, upper = statistics.min_raw, statistics.max_raw
        elif isinstance(column.type, types.StringType) and kind in (pyarrow.string(), pyarrow.large_string()):
            lower, upper = _text(statistics.min_raw), _text(statistics.max_raw)
    nulls = not statistics.has_null_count or statistics.null_count != 0
    # The statistics do not count NaN.
    return ValueRange(*_consistent(lower, upper), nulls=nulls, nans=column.is_float)


# Bounds of int, from before promotion to long, and of long.
_LARGEST = ((1 << 31) - 1, (1 << 63) - 1)
_MICROSECONDS = (pyarrow.timestamp("us"), pyarrow.timestamp("us", "UTC"))
_RAW: dict[type, tuple[pyarrow.DataType, ...]] = {
    types.IntegerType: (pyarrow.int32(),),
    types.LongType: (pyarrow.int32(), pyarrow.int64()),
    types.DateType: (pyarrow.date32(),),
    types.TimestampType: _MICROSECONDS,
    types.TimestamptzType: _MICROSECONDS,
}


def _transformed(
    transform: Any, image: Callable[[Any], Any], lower: Any, upper: Any, *, nulls: bool, nans: bool
) -> ValueRange:
    if isinstance(transform, transforms.IdentityTransform):
        return ValueRange(lower, upper, nulls=nulls, nans=nans)
    if isinstance(transform, _TIMES) and lower is not None and lower <= 0:
        # Old writers stored values before 1970 one too high.
        lower -= 1
    if (
        isinstance(transform, transforms.TruncateTransform)
        and isinstance(lower, int)
        and isinstance(upper, int)
        and any(lower <= largest < upper + transform.width for largest in _LARGEST)
    ):
        # The smallest numbers have no multiple of the width below them: in Java the result wraps around to the largest
        # ones.
        lower = None
    return ValueRange(lower, upper, nulls, True, nans, image, not isinstance(transform, transforms.BucketTransform))


def _decoded(data: bytes | None, kind: Any) -> Any:
    """Return a bound in the units of literals; None if it is missing, of another type, or of a type without order."""
    # Java compared UUIDs as signed numbers in the past.
    if data is None or isinstance(kind, (types.UUIDType, types.GeometryType, types.GeographyType)):
        return None
    if isinstance(kind, types.DecimalType):
        return int.from_bytes(data, "big", signed=True)
    try:
        return from_bytes(kind, data)
    except (struct.error, TypeError, UnicodeDecodeError):
        return None


def _text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _image(transform: Any, kind: Any) -> Callable[[Any], Any] | None:
    """Return a transform's result for a literal's value; None for an unknown transform."""
    if isinstance(transform, transforms.IdentityTransform):
        return lambda value: value
    if isinstance(transform, transforms.TruncateTransform):
        width = transform.width
        return lambda value: value[:width] if isinstance(value, (str, bytes)) else value - value % width
    is_hashed = isinstance(transform, transforms.BucketTransform) and isinstance(kind, _HASHED)
    if not is_hashed and not (isinstance(transform, _TIMES) and transform.can_transform(kind)):
        return None
    function = transform.transform(kind)

    def image(value: Any) -> Any:
        try:
            return function(unscaled_to_decimal(value, kind.scale) if isinstance(kind, types.DecimalType) else value)
        except (OverflowError, ValueError):
            # Of a year that Python has not.
            return None

    return image


_HASHED = (
    types.IntegerType,
    types.LongType,
    types.DateType,
    types.TimestampType,
    types.TimestamptzType,
    types.DecimalType,
    types.StringType,
)


Arrays = Callable[[int], pyarrow.Array]
Ranges = Callable[[FilteredColumn], Iterable[ValueRange]]
Outcomes = frozenset[bool | None]
_NONE, _NULL, _NEVER, _ALWAYS = Outcomes(), Outcomes((None,)), Outcomes((False,)), Outcomes((True,))
_BOTH = _ALWAYS | _NEVER
_ANY = _BOTH | _NULL
_DAY = 86_400_000_000


def parsed(text: str) -> Any:
    """Return PyIceberg's expression of a filter as text; a ValueError refuses what its parser would change."""
    from pyiceberg.expressions.parser import parse

    for quoted in re.findall(r"'[^']*'|\"[^\"]*\"", text):
        # The parser expands tabs, ends at line ends, and takes \' for a quote but keeps its backslash.
        if re.search(r"[\t\r\n]|\\(?!%)", quoted):
            _refuse(
                text,
                f"PyIceberg's parser does not take a tab, a line end or a backslash in {quoted!r} as it is. Give an "
                "expression object instead, such as pyiceberg.expressions.EqualTo(column, value)",
            )
    try:
        return parse(text)
    except Exception as error:
        place = getattr(error, "loc", None)
        where = f": {str(error).splitlines()[0]}" if place is None else f" from {text[place : place + 20]!r} on"
        _refuse(
            text,
            f"PyIceberg's parser does not understand it{where}. Write, for example, amount > 10 and country = 'CH', "
            "and a name with other characters than letters, digits and _ in double quotes",
        )


def _refuse(text: str, reason: str) -> NoReturn:
    shown = text if len(text) <= 300 else f"{text[:300]}..."
    raise ValueError(f"the filter {shown!r} is refused: {reason}") from None


class RowFilter:
    """A filter that is bound to the schema of the table or of its snapshot, and to the columns of row lineage.

    `field_ids` are the columns that it needs. A ValueError reports a column that does not exist, or a value that does
    not fit its column.
    """

    def __init__(self, expression: Any, schema: Schema, case_sensitive: bool = True) -> None:
        if not isinstance(expression, expressions.BooleanExpression):
            raise ValueError(f"row_filter must be text or an expression of PyIceberg, not {type(expression).__name__}")
        self.expression = expression
        binding = _Binding(_with_lineage(schema), case_sensitive)
        try:
            self._bound = visitors.visit(expression, binding)
        except RecursionError:
            raise ValueError("the filter is nested too deeply: write it with fewer parentheses") from None
        self.field_ids = tuple(binding.columns)
        kinds = {each.field_id: _kind(each) for each in binding.columns.values()}
        try:
            # Arrow refuses now what it cannot compare.
            self.passing(lambda field_id: pyarrow.array([], schema_to_pyarrow(kinds[field_id])), 0)
        except pyarrow.ArrowException as error:
            raise ValueError(f"the filter {expression} does not fit its columns: {error}") from None

    def passing(self, columns: Arrays, count: int) -> pyarrow.Array:
        """Return which of `count` rows pass, as booleans without nulls; `columns` returns the array of a field id."""
        if not self.field_ids:
            return pyarrow.repeat(True in self._bound.possible(lambda column: ()), count)
        return _evaluated(self._bound.rows, {each: columns(each) for each in self.field_ids})

    def possible(self, ranges: Ranges) -> Outcomes:
        """Return the results that the filter may have for any of the rows; never too few.

        `ranges` returns the known ranges of a column in these rows; all of them hold.
        """
        return self._bound.possible(ranges)


def _evaluated(expression: Any, columns: dict[int, pyarrow.Array]) -> pyarrow.Array:
    made = []
    for array in columns.values():
        if isinstance(array.type, pyarrow.BaseExtensionType):
            array = array.storage
        if pyarrow.types.is_floating(array.type):
            # -0.0 becomes 0.0: Arrow's is_in has two zeros.
            array = compute.add(array, pyarrow.scalar(0.0, array.type))
        made.append(array)
    table = pyarrow.Table.from_arrays(made, [str(each) for each in columns])
    steps = [("table_source", acero.TableSourceNodeOptions(table)), ("project", acero.ProjectNodeOptions([expression]))]
    found = acero.Declaration.from_sequence([acero.Declaration(*each) for each in steps]).to_table(use_threads=False)
    return found.column(0).combine_chunks().fill_null(False)


# -- binding -------------------------------------------------------------------------------------------------------


class _Bound(NamedTuple):
    """A filter, or a part of one: for Arrow, with field ids as names, and over ranges."""

    rows: Any
    possible: Callable[[Ranges], Outcomes]


class _Binding(visitors.BooleanExpressionVisitor[_Bound]):
    """Binds a filter. PyIceberg's rows have the logic of SQL: `not` of null is null, and `not (x > 1)` passes NaN."""

    def __init__(self, schema: Schema, case_sensitive: bool) -> None:
        self._schema, self._case_sensitive = schema, case_sensitive
        self.columns: dict[int, FilteredColumn] = {}

    def visit_true(self) -> _Bound:
        return _Bound(compute.scalar(True), lambda ranges: _ALWAYS)

    def visit_false(self) -> _Bound:
        return _Bound(compute.scalar(False), lambda ranges: _NEVER)

    def visit_not(self, child_result: _Bound) -> _Bound:
        child = child_result.possible
        return _Bound(~child_result.rows, lambda ranges: _opposite(child(ranges)))

    def visit_and(self, left_result: _Bound, right_result: _Bound) -> _Bound:
        left, right = left_result.possible, right_result.possible
        return _Bound(left_result.rows & right_result.rows, lambda ranges: _joined(left(ranges), right(ranges), False))

    def visit_or(self, left_result: _Bound, right_result: _Bound) -> _Bound:
        left, right = left_result.possible, right_result.possible
        return _Bound(left_result.rows | right_result.rows, lambda ranges: _joined(left(ranges), right(ranges), True))

    def visit_bound_predicate(self, predicate: Any) -> NoReturn:
        raise ValueError(f"row_filter must be an unbound expression, not {type(predicate).__name__}")

    def visit_unbound_predicate(self, predicate: Any) -> _Bound:
        column = self._column(predicate.term.name)
        is_single = column.type.is_primitive and not is_variant(column.field_id, column.type)
        if not is_single and not isinstance(predicate, (expressions.IsNull, expressions.NotNull)):
            raise ValueError(
                f"column {column.name} is no single value, or a variant's: it can only be null or not null"
            )
        # PyIceberg's terms have the names of one level, and no null for a required field in a null struct.
        kind = _kind(column)
        field = NestedField(column.field_id, str(column.field_id), kind, required=False)
        values: list[Any] = []
        if isinstance(predicate, expressions.SetPredicate):
            values.append({_converted(each, column, kind) for each in predicate.literals})
        elif isinstance(predicate, expressions.LiteralPredicate):
            values.append(_converted(predicate.literal, column, kind))
        bound = type(predicate)(expressions.Reference(field.name), *values).bind(Schema(field))
        if isinstance(bound, (expressions.AlwaysTrue, expressions.AlwaysFalse)):
            return visitors.visit(bound, self)
        try:
            rows = expression_to_pyarrow(bound)
        except (ArithmeticError, TypeError, pyarrow.ArrowException, UnicodeError) as error:
            raise ValueError(
                f"column {column.name} is {column.type}, and {predicate} does not fit it: {error}"
            ) from None
        self.columns[column.field_id] = column
        return _Bound(rows, _possible(column, bound))

    def _column(self, name: str) -> FilteredColumn:
        found: NestedField = self._schema.find_field(name, case_sensitive=self._case_sensitive)
        path = path_to(self._schema.fields, found.field_id)
        if path is None:
            raise ValueError(f"column {name} is inside a list or a map: a filter is on one value of each row")
        return FilteredColumn(found.field_id, name, found.field_type, nested=len(path) > 1)


def _with_lineage(schema: Schema) -> Schema:
    """Return a schema with the lineage columns, but for those whose name the table has for another column."""
    names = {each.lower() for each in schema.column_names}
    further = [field for name, field in LINEAGE.items() if name not in names]
    return Schema(*schema.fields, *further, schema_id=schema.schema_id)


def _kind(column: FilteredColumn) -> Any:
    """Return the type that values are compared in: Arrow does not compare UUIDs."""
    return FixedType(16) if isinstance(column.type, UUIDType) else column.type


def _converted(given: Any, column: FilteredColumn, kind: Any) -> Any:
    """Return a literal as PyIceberg converts it for a column; a ValueError if that changes its value."""
    try:
        made = given.to(column.type)
        if not _is_same(given, made):
            raise ValueError("PyIceberg would change the value to fit the column")
    except (ArithmeticError, TypeError, ValueError) as error:
        raise ValueError(
            f"column {column.name} is {column.type}, and cannot be compared with {given.value!r}: {error}"
        ) from None
    if isinstance(made.value, float):
        # -0.0 becomes 0.0.
        return type(made)(made.value + 0.0)
    return made.to(kind)


def _is_same(given: Any, made: Any) -> bool:
    """Whether a conversion kept a value, which may be rounded to a float: 2.5 is no 2, and noon is no date."""
    value = given.value
    if isinstance(made, (literals.AboveMax, literals.BelowMin)):
        return False
    if isinstance(made, literals.LongLiteral):
        return bool(Decimal(value) == made.value)
    if isinstance(made, literals.DateLiteral) and isinstance(given, literals.TimestampLiteral):
        return bool(value == made.value * _DAY)
    if isinstance(made, literals.DecimalLiteral) and isinstance(value, float):
        return float(made.value) == value
    return True


# -- ranges --------------------------------------------------------------------------------------------------------

_OfValues = Callable[[ValueRange], Outcomes]


def _opposite(outcomes: Outcomes) -> Outcomes:
    return Outcomes(None if each is None else not each for each in outcomes)


def _joined(left: Outcomes, right: Outcomes, decisive: bool) -> Outcomes:
    """Return the outcomes of `or`, for which true is decisive, or of `and`, for which false is."""
    pairs = [(one, two) for one in left for two in right]
    return Outcomes(decisive if decisive in each else None if None in each else not decisive for each in pairs)


# Results for null, for NaN and for all other values.
_UNARY = {
    expressions.BoundIsNull: (_ALWAYS, _NEVER, _NEVER),
    expressions.BoundNotNull: (_NEVER, _ALWAYS, _ALWAYS),
    expressions.BoundIsNaN: (_NULL, _ALWAYS, _NEVER),
    expressions.BoundNotNaN: (_NULL, _NEVER, _ALWAYS),
}
# The opposites, for values that are neither null nor NaN, of "less", "in" and "starts with".
_OPPOSITES = (
    expressions.BoundGreaterThan,
    expressions.BoundGreaterThanOrEqual,
    expressions.BoundNotEqualTo,
    expressions.BoundNotIn,
    expressions.BoundNotStartsWith,
)


def _possible(column: FilteredColumn, bound: Any) -> Callable[[Ranges], Outcomes]:
    """Return a function of ranges for the possible results of a bound predicate."""
    kind = type(bound)
    if kind in _UNARY:
        null, nan, value = _UNARY[kind]
    else:
        # A null is not "in", as Arrow has it, and a NaN differs from every value.
        null = {expressions.BoundIn: _NEVER, expressions.BoundNotIn: _ALWAYS}.get(kind, _NULL)
        nan = _ALWAYS if kind in (expressions.BoundNotIn, expressions.BoundNotEqualTo) else _NEVER
        compared, opposite = _compared(column, bound, kind), kind in _OPPOSITES

    def within(found: ValueRange) -> Outcomes:
        results = _NONE
        if found.nulls:
            results |= null
        if found.nans:
            results |= nan
        if found.values and kind in _UNARY:
            results |= value
        elif found.values:
            results |= _opposite(compared(found)) if opposite else compared(found)
        return results

    def possible(ranges: Ranges) -> Outcomes:
        results = _ANY
        for each in ranges(column):
            results &= within(each)
        return results

    return possible


def _compared(column: FilteredColumn, bound: Any, kind: Any) -> _OfValues:
    if isinstance(bound, expressions.BoundSetPredicate):
        return _among([_units(each, column) for each in bound.value_set])
    value = _units(bound.literal.value, column)
    if kind in (expressions.BoundEqualTo, expressions.BoundNotEqualTo):
        return _among([value])
    if kind in (expressions.BoundStartsWith, expressions.BoundNotStartsWith):
        return _starting_with(value)
    return _less(value, inclusive=kind in (expressions.BoundLessThanOrEqual, expressions.BoundGreaterThan))


def _units(value: Any, column: FilteredColumn) -> Any:
    """Return the value of a literal in the units of ranges."""
    if isinstance(value, Decimal):
        return decimal_to_unscaled(value)
    return pyarrow.scalar(value, pyarrow.float32()).as_py() if isinstance(column.type, FloatType) else value


def _less(value: Any, *, inclusive: bool) -> _OfValues:
    def of_values(found: ValueRange) -> Outcomes:
        image, lower, upper = found.image(value) if found.ordered else None, found.lower, found.upper
        if image is None:
            return _BOTH
        # A transform's result may come from a smaller or larger value, unlike the value itself.
        below, above = inclusive or not found.exact, not inclusive or not found.exact
        may = lower is None or lower < image or (below and lower == image)
        may_not = upper is None or upper > image or (above and upper == image)
        return (_ALWAYS if may else _NONE) | (_NEVER if may_not else _NONE)

    return of_values


def _among(values: list[Any]) -> _OfValues:
    def of_values(found: ValueRange) -> Outcomes:
        lower, upper = found.lower, found.upper
        for value in values:
            image = found.image(value)
            if image is None or ((lower is None or lower <= image) and (upper is None or image <= upper)):
                return _ALWAYS if found.exact and lower is not None and lower == upper else _BOTH
        return _NEVER

    return of_values


def _starting_with(prefix: str) -> _OfValues:
    def of_values(found: ValueRange) -> Outcomes:
        image, lower, upper = found.image(prefix) if found.ordered else None, found.lower, found.upper
        if image is None:
            return _BOTH
        may = (upper is None or upper >= image) and (lower is None or lower <= image or lower.startswith(image))
        if not may:
            return _NEVER
        sure = lower is not None and upper is not None and lower.startswith(image) and upper.startswith(image)
        return _ALWAYS if sure and image == prefix else _BOTH

    return of_values
