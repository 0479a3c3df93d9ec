"""Metrics of a data file: sizes, counts and bounds of its columns, from what PyArrow says of each row group.

Table properties, which PyIceberg reads, choose the columns. The bounds are computed here:
PyIceberg 0.12 takes a row group without bounds for one without values, and its files have no counts of NaN. Source:
Iceberg table spec, "Manifests", and "Column Bounds" in "Appendix D".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow
import pyarrow.compute as compute
from pyiceberg import types as iceberg
from pyiceberg.io.pyarrow import MetricModeTypes, compute_statistics_plan, parquet_path_to_id_mapping
from pyiceberg.schema import Schema
from pyiceberg.utils.truncate import truncate_upper_bound_binary_string, truncate_upper_bound_text_string

from ags1.iceberg.metadata.manifests import METRICS
from ags1.iceberg.writing.partitioning import bound_of


class MetricsPlan:
    """Which metrics the files of a table with this schema and these properties have.

    `further` columns of the files are not the table's, and are not moved with a row group.
    """

    def __init__(
        self, table: Schema, properties: Mapping[str, str], further: Sequence[iceberg.NestedField] = ()
    ) -> None:
        schema = Schema(*table.fields, *further)
        self.further = frozenset(each.field_id for each in further)
        self.modes = compute_statistics_plan(schema, dict(properties))
        self.paths = parquet_path_to_id_mapping(schema)
        # Those that are in no struct, list or map.
        self.floats = [
            (place, field.field_id)
            for place, field in enumerate(schema.fields)
            if isinstance(field.field_type, (iceberg.FloatType, iceberg.DoubleType))
            and self.modes[field.field_id].mode.type != MetricModeTypes.NONE
        ]


class FileMetrics:
    """Collects the metrics of one file."""

    def __init__(self, plan: MetricsPlan) -> None:
        self._plan = plan
        self._nans: dict[int, int] = {field_id: 0 for _, field_id in plan.floats}
        self._moved: list[Any] = []

    def add(self, rows: pyarrow.Table) -> None:
        """Take in rows that are written."""
        for place, field_id in self._plan.floats:
            if field_id not in self._nans:
                continue
            self._nans[field_id] += compute.sum(compute.is_nan(rows.column(place))).as_py() or 0

    def move(self, metadata: Any, groups: Sequence[int], file: Mapping[str, Any]) -> None:
        """Take in row groups of another file: PyArrow's metadata of it, and what a manifest has of it."""
        self._moved += map(metadata.row_group, groups)
        nans = {each["key"]: each["value"] for each in file.get("nan_value_counts") or ()}
        whole = len(groups) == metadata.num_row_groups
        for field_id in list(self._nans):
            count = nans.get(field_id)
            if count is None or (count and not whole):
                del self._nans[field_id]
            else:
                self._nans[field_id] += count

    def fields(self, groups: Sequence[Any]) -> dict[str, Any]:
        """The fields of ``data_file``, as an entry of a manifest has them, by Parquet's metadata of the row groups."""
        columns: dict[int, _Column] = {}
        for metadata in groups:
            for group in (metadata.row_group(index) for index in range(metadata.num_row_groups)):
                for field_id, column in self._columns(group):
                    columns.setdefault(field_id, _Column()).add(column)
        for group in self._moved:
            for field_id, column in self._columns(group):
                if field_id not in self._plan.further:
                    columns.setdefault(field_id, _Column()).add(column)
        found: dict[str, dict[int, Any]] = {name: {} for name in METRICS}
        for field_id, column in columns.items():
            how = self._plan.modes[field_id]
            found["column_sizes"][field_id] = column.size
            if how.mode.type == MetricModeTypes.NONE:
                continue
            found["value_counts"][field_id] = column.values
            if column.nulls is not None:
                found["null_value_counts"][field_id] = column.nulls
            if how.mode.type == MetricModeTypes.COUNTS or isinstance(how.iceberg_type, iceberg.UUIDType):
                continue
            lower, upper = column.bounds(how.iceberg_type, how.mode.length)
            if lower is not None:
                found["lower_bounds"][field_id] = lower
            if upper is not None:
                found["upper_bounds"][field_id] = upper
        found["nan_value_counts"] = self._nans
        return {
            name: [{"key": field_id, "value": value} for field_id, value in sorted(values.items())]
            for name, values in found.items()
        }

    def _columns(self, group: Any) -> Iterator[tuple[int, Any]]:
        for column in (group.column(index) for index in range(group.num_columns)):
            field_id = self._plan.paths.get(column.path_in_schema)
            if field_id is not None:
                yield field_id, column


class _Column:
    """A column of a file, over its row groups."""

    def __init__(self) -> None:
        self.size = self.values = 0
        self.nulls: int | None = 0
        self._bounded = True
        self._least: list[Any] = []
        self._greatest: list[Any] = []

    def add(self, column: Any) -> None:
        """Take in a column chunk."""
        self.size += column.total_compressed_size
        self.values += column.num_values
        statistics = column.statistics if column.is_stats_set else None
        nulls = statistics.null_count if statistics is not None and statistics.has_null_count else None
        self.nulls = None if nulls is None or self.nulls is None else self.nulls + nulls
        if statistics is not None and statistics.has_min_max:
            self._least.append(statistics.min_raw)
            self._greatest.append(statistics.max_raw)
        elif nulls is None or nulls < column.num_values:
            # There are values of which nothing is known: long ones, or NaN.
            self._bounded = False

    def bounds(self, kind: Any, length: int | None) -> tuple[bytes | None, bytes | None]:
        """The bounds, shortened where the table says so."""
        if not self._bounded or not self._least:
            return None, None
        least, greatest = self._least, self._greatest
        if isinstance(kind, iceberg.DecimalType):
            least, greatest = ([_number(each) for each in side] for side in (least, greatest))
        lower, upper = bound_of(min(least), kind), bound_of(max(greatest), kind)
        if length is None or lower is None or upper is None:
            return lower, upper
        if isinstance(kind, iceberg.StringType):
            text = truncate_upper_bound_text_string(upper.decode(), length)
            return lower.decode()[:length].encode(), _encoded(text)
        return lower[:length], truncate_upper_bound_binary_string(upper, length)


def _number(value: Any) -> int:
    return int.from_bytes(value, "big", signed=True) if isinstance(value, bytes) else int(value)


def _encoded(text: str | None) -> bytes | None:
    try:
        return None if text is None else text.encode()
    except UnicodeEncodeError:
        # PyIceberg counts on to half a character.
        return None
