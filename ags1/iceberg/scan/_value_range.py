"""Known ranges of a column's values, without reading them: in a manifest, a file, a partition, a Parquet row group.

Everything unknown is possible. Nothing here may exclude a value that is present.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow
from pyiceberg import transforms, types
from pyiceberg.conversions import from_bytes
from pyiceberg.utils.decimal import unscaled_to_decimal

from ags1.iceberg.scan.projection import LAST_UPDATED, LINEAGE_IDS

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
