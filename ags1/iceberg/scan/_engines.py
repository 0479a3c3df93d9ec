"""Scans for engines that choose columns, filters and a number of rows when they run: polars and DuckDB.

    polars  register_io_source(columns, predicate, n_rows)  ---+
    DuckDB  Dataset.scanner(columns, filter)                ---+--> a narrower scan --> batches --> the filter again

The parts of a filter that the scan's language can express are passed to the scan, which skips files, row groups and
rows. The engine then applies its own filter to the remaining rows, so the translation affects only speed. A part that
might exclude too much, such as a comparison of 32-bit floats, is not translated.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow
import pyarrow.dataset
from pyiceberg import expressions
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.types import BooleanType, DateType, DoubleType, IntegerType, LongType, StringType

TYPE_CHECKING = False
if TYPE_CHECKING:
    import polars

# Their annotations are those of bound predicates.
_written: Any = expressions
_COMPARISONS = {
    "Gt": (_written.GreaterThan, "Lt"),
    "GtEq": (_written.GreaterThanOrEqual, "LtEq"),
    "Lt": (_written.LessThan, "Gt"),
    "LtEq": (_written.LessThanOrEqual, "GtEq"),
    "Eq": (_written.EqualTo, "Eq"),
    "NotEq": (_written.NotEqualTo, "NotEq"),
}
_WHOLE = (IntegerType, LongType)
# Whole numbers of polars that it compares with others as whole numbers: of a larger type it makes floats.
_EXACT = ("Int", "Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32")
_EPOCH = datetime.date(1970, 1, 1)


# -- polars ----------------------------------------------------------------------------------------------------------


def polars_frame(scan: Any) -> polars.LazyFrame:
    try:
        import polars
        from polars.io.plugins import register_io_source
    except ImportError:
        raise ImportError("to_polars() needs polars: pip install polars") from None
    empty: Any = polars.from_arrow(_arrow_schema(scan).empty_table())

    def rows(
        with_columns: list[str] | None, predicate: Any, n_rows: int | None, batch_size: int | None
    ) -> Iterator[Any]:
        # The rows of a scan with a limit are not known before it is read.
        where = None if predicate is None or scan.plan.limit is not None else _from_polars(predicate, scan.schema)
        part = scan.narrowed(with_columns or None, where, n_rows if predicate is None else None)
        left = n_rows
        for batch in part.to_record_batches():
            frame: Any = polars.from_arrow(pyarrow.Table.from_batches([batch]))
            if predicate is not None:
                frame = frame.filter(predicate)
            if left is not None:
                frame = frame.head(left)
                left -= frame.height
            yield frame
            if left == 0:
                return

    return register_io_source(rows, schema=empty.schema, is_pure=True, explain_name="ENCRYPTED ICEBERG")


def _from_polars(predicate: Any, schema: Any) -> Any:
    """Return a filter that every row passes that passes polars' predicate; None if no such filter is known."""
    try:
        tree = json.loads(predicate.meta.serialize(format="json"))
        return _from_tree(tree, {each.name: each.field_type for each in schema.fields})
    except Exception:
        # Predicates with Python functions cannot be serialized, and the form of the others is polars' own: what it adds
        # is left to it.
        return None


def _from_tree(tree: Any, types: dict[str, Any]) -> Any:
    if not isinstance(tree, dict) or len(tree) != 1:
        return None
    ((kind, body),) = tree.items()
    if kind == "Function" and isinstance(body, dict):
        function = body.get("function")
        for name, test in (("IsNull", _written.IsNull), ("IsNotNull", _written.NotNull)):
            if function == {"Boolean": name} and (column := _column(body.get("input"), types)) is not None:
                return test(column)
        return None
    if kind != "BinaryExpr" or not isinstance(body, dict):
        return None
    operator, left, right = body.get("op"), body.get("left"), body.get("right")
    if operator in ("And", "Or"):
        sides = [_from_tree(left, types), _from_tree(right, types)]
        known = [each for each in sides if each is not None]
        if operator == "Or":
            return _written.Or(*sides) if len(known) == len(sides) else None
        return _written.And(*sides) if len(known) == len(sides) else next(iter(known), None)
    if operator not in _COMPARISONS or not isinstance(left, dict) or not isinstance(right, dict):
        return None
    if "Literal" in left:
        operator, left, right = _COMPARISONS[operator][1], right, left
    name = str(left.get("Column"))
    value = _literal(right.get("Literal"), types.get(name))
    return None if value is None else _COMPARISONS[operator][0](name, value)


def _column(inputs: Any, types: dict[str, Any]) -> str | None:
    """Return the column that is the only input of a function."""
    found = [name for name in types if inputs == [{"Column": name}]]
    return found[0] if found else None


def _literal(tree: Any, kind: Any) -> Any:
    """Return the value of a literal if it means the same to polars and here, compared with a column of this type."""
    if not isinstance(tree, dict):
        return None
    ((_, body),) = tree.items()
    if not isinstance(body, dict) or len(body) != 1:
        return None
    ((form, value),) = body.items()
    if isinstance(value, bool) or isinstance(kind, BooleanType):
        return value if isinstance(kind, BooleanType) and isinstance(value, bool) else None
    if form == "Date":
        made = _EPOCH + datetime.timedelta(days=value) if isinstance(kind, DateType) else None
        return None if made is None else made.isoformat()
    if form in _EXACT and isinstance(value, int):
        return value if isinstance(kind, _WHOLE) and -(1 << 63) <= value < 1 << 63 else None
    if form in ("Float", "Float64") and isinstance(value, float):
        # Polars compares a column of 32 bits in 32 bits; here it is compared in 64.
        return value if isinstance(kind, DoubleType) and value == value else None
    return value if form == "String" and isinstance(kind, StringType) else None


# -- DuckDB ----------------------------------------------------------------------------------------------------------

_PLAIN = re.compile(r"(?!and$)\w+")
_PART = re.compile(r"\((\w+) (>=|<=|==|>|<) (-?\d+)\)|is_valid\(\w+\)|\band\b|[()\s]")
_OPERATORS = {">=": "GtEq", "<=": "LtEq", "==": "Eq", ">": "Gt", "<": "Lt"}


class ScanDataset(pyarrow.dataset.Dataset):  # type: ignore[misc]
    """A scan with the part of the Arrow dataset interface that DuckDB uses; each query scans what it needs.

    Parameters
    ----------
    scan : EncryptedTableScan
    """

    def __init__(self, scan: Any) -> None:
        # The constructor of the base class is not called: it needs a C++ dataset.
        self._scan = scan
        self._arrow = _arrow_schema(scan)

    @property
    def schema(self) -> pyarrow.Schema:
        return self._arrow

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: Any = None,  # noqa: A002
        **options: Any,
    ) -> pyarrow.dataset.Scanner:
        needed = self._scan.schema.column_names if columns is None else list(columns)
        if filter is not None:
            # Arrow has no function for the columns of a filter; its text has them.
            shown = str(filter)
            further = [each for each in self._arrow.names if not each.isidentifier() or each in shown]
            needed = list(dict.fromkeys([*needed, *further]))
        where = None if filter is None or self._scan.plan.limit is not None else self._where(str(filter))
        part = self._scan.narrowed(needed or None, where)
        return pyarrow.dataset.Scanner.from_batches(
            part.to_record_batches(), columns=None if columns is None else list(columns), filter=filter
        )

    def _where(self, shown: str) -> Any:
        """Return a filter's comparisons with whole numbers, if it has only these and null checks."""
        types = {each.name: each.field_type for each in self._scan.schema.fields}
        made: Any = None
        # Any other name might look like a part of a filter.
        if _PART.sub("", shown) or not all(_PLAIN.fullmatch(name) for name in types):
            return None
        for found in _PART.finditer(shown):
            if found[1] is not None and isinstance(types.get(found[1]), _WHOLE):
                test = _COMPARISONS[_OPERATORS[found[2]]][0](found[1], int(found[3]))
                made = test if made is None else _written.And(made, test)
        return made


def _arrow_schema(scan: Any) -> pyarrow.Schema:
    return schema_to_pyarrow(scan.schema, include_field_ids=False)
