"""Row filters: text and PyIceberg's expressions, evaluated as Spark evaluates them.

    text or expression  --bound to the table's columns-->  tree  --over projected rows-->  true, false or null for each
                                                                 --over value ranges-->    which of the three can be

Rows are filtered after projection: with the scan's types, names and defaults, whatever the file has. The same tree over
a file's ranges decides whether a row can pass; only if none can is the file skipped.
"""

from __future__ import annotations

from typing import Any

import pyarrow
from pyiceberg import expressions as written
from pyiceberg.schema import Schema

from ags1.iceberg.scan._filter_nodes import (
    Arrays,
    Both,
    Constant,
    FilterNode,
    IsNan,
    IsNull,
    Not,
    Ranges,
    StartsWith,
    Truth,
    among,
    column_of,
    less,
)
from ags1.iceberg.scan._filter_text import TextFilter, bound_text
from ags1.iceberg.scan._literal_values import value_of
from ags1.iceberg.scan._projection import LINEAGE
from ags1.iceberg.scan._variant import is_variant


class RowFilter:
    """A filter that is bound to the schema of the table or of its snapshot, and to the columns of row lineage.

    `field_ids` are the columns that it needs. A ValueError reports a column that does not exist, or a type that cannot
    be compared with a literal.
    """

    def __init__(self, expression: Any, schema: Schema, case_sensitive: bool = True) -> None:
        self.expression = expression
        self._root = _bound(expression, _with_lineage(schema), case_sensitive)
        self.field_ids = tuple(dict.fromkeys(each.field_id for each in self._root.columns()))

    def passing(self, columns: Arrays, count: int) -> pyarrow.Array:
        """Return which of `count` rows pass, as booleans without nulls; `columns` returns the array of a field id."""
        found = self._root.evaluate(columns, count)
        return found.fill_null(False) if found.null_count else found

    def possible(self, ranges: Ranges) -> frozenset[Truth]:
        """Return the values that the filter may have for any of the rows; never too few.

        `ranges` returns the known ranges of a column in these rows; all of them hold.
        """
        return self._root.possible(ranges)


# -- binding -------------------------------------------------------------------------------------------------------


def _with_lineage(schema: Schema) -> Schema:
    """Return a schema with the lineage columns, but for those whose name the table has for another column."""
    names = {each.lower() for each in schema.column_names}
    further = [field for name, field in LINEAGE.items() if name not in names]
    return Schema(*schema.fields, *further, schema_id=schema.schema_id)


def _bound(expression: Any, schema: Schema, case_sensitive: bool) -> FilterNode:
    if isinstance(expression, TextFilter):
        return bound_text(expression.root, schema, case_sensitive)
    if isinstance(expression, (written.AlwaysTrue, written.AlwaysFalse)):
        return Constant(isinstance(expression, written.AlwaysTrue))
    if isinstance(expression, written.Not):
        return Not(_bound(expression.child, schema, case_sensitive))
    if isinstance(expression, (written.And, written.Or)):
        left, right = (_bound(each, schema, case_sensitive) for each in (expression.left, expression.right))
        return Both(left, right, either=isinstance(expression, written.Or))
    if not isinstance(expression, (written.UnaryPredicate, written.SetPredicate, written.LiteralPredicate)):
        raise ValueError(f"row_filter must be an unbound expression, not {type(expression).__name__}")
    term: Any = expression.term
    column = column_of(term.name, schema, case_sensitive)
    if isinstance(expression, (written.IsNull, written.NotNull)):
        return _perhaps_not(IsNull(column), isinstance(expression, written.NotNull))
    if is_variant(column.field_id, column.type):
        raise ValueError(f"column {column.name} is a variant or a part of one: it can be compared with null alone")
    if isinstance(expression, (written.IsNaN, written.NotNaN)):
        made: FilterNode = IsNan(column) if column.is_float else Constant(False)
        return _perhaps_not(made, isinstance(expression, written.NotNaN))
    if not column.type.is_primitive:
        raise ValueError(f"column {column.name} is no single value: it can be compared with null alone")
    if isinstance(expression, written.SetPredicate):
        values = [value_of(each, column.type) for each in expression.literals]
        return _perhaps_not(among(column, values), isinstance(expression, written.NotIn))
    assert isinstance(expression, written.LiteralPredicate)
    value = value_of(expression.literal, column.type)
    if isinstance(expression, (written.StartsWith, written.NotStartsWith)):
        if not isinstance(value, str):
            raise ValueError(f"column {column.name} is no text: it cannot start with {value!r}")
        return _perhaps_not(StartsWith(column, value), isinstance(expression, written.NotStartsWith))
    if isinstance(expression, (written.EqualTo, written.NotEqualTo)):
        return _perhaps_not(among(column, [value]), isinstance(expression, written.NotEqualTo))
    # The order is total: "greater" is "neither less nor equal".
    more = isinstance(expression, (written.GreaterThan, written.GreaterThanOrEqual))
    inclusive = isinstance(expression, (written.LessThanOrEqual, written.GreaterThan))
    return _perhaps_not(less(column, value, inclusive=inclusive), more)


def _perhaps_not(node: FilterNode, negated: bool) -> FilterNode:
    return Not(node) if negated else node
