"""PyIceberg's projection of a file onto a scan, for a file that PyIceberg has not opened.

What is taken from PyIceberg without its promise to keep it is here and in :mod:`ags1.iceberg._scan`, nowhere else.
"""

from __future__ import annotations

from typing import Any

import pyarrow
from pyiceberg.expressions import AlwaysFalse, AlwaysTrue
from pyiceberg.expressions.visitors import bind, translate_column_names
from pyiceberg.io.pyarrow import (
    ArrowAccessor,
    ArrowProjectionVisitor,
    _combine_positional_deletes,
    _get_column_projection_values,
    expression_to_pyarrow,
)
from pyiceberg.schema import Schema, prune_columns, visit_with_partner

__all__ = ["Projection", "expected_type", "name_mapping"]


def expected_type(scan: Any, field_id: int) -> Any:
    """The type that a field has in the scan or else in the table; None for one that has been dropped."""
    for schema in (scan._projected_schema, scan._table_metadata.schema()):
        try:
            return schema.find_type(field_id)
        except ValueError:
            continue
    return None


def name_mapping(scan: Any) -> Any:
    """The table's mapping from names to field ids, or None."""
    return scan._table_metadata.name_mapping()


class Projection:
    """How the rows of a file become rows of a scan.

    Attributes
    ----------
    file_schema : pyiceberg.schema.Schema
        What has to be read: the fields of the file that the scan or its filter wants.
    is_empty : bool
        Whether no row of the file can pass the filter.
    limit : int or None
        No more rows are wanted.
    filter : pyarrow.compute.Expression or None
        The row filter, for the columns as the file has them.
    """

    def __init__(self, scan: Any, task: Any, file_schema: Schema) -> None:
        metadata, file = scan._table_metadata, task.file
        self._requested = scan._projected_schema
        self.limit: int | None = scan._limit
        self.file_schema = prune_columns(file_schema, scan._projected_field_ids, select_full_types=False)
        # Of the whole table too: the filter may be on a partition that the scan does not ask for.
        self._constants: dict[int, Any] = {}
        for schema in (metadata.schema(), self._requested):
            spec = metadata.specs().get(file.spec_id)
            self._constants |= _get_column_projection_values(
                file, schema, metadata.schema(), spec, file_schema.field_ids
            )
        downcast = scan._downcast_ns_timestamp_to_us
        self._downcast = metadata.format_version <= 2 if downcast is None else downcast
        translated = translate_column_names(scan._bound_row_filter, file_schema, scan._case_sensitive, self._constants)
        bound = bind(file_schema, translated, case_sensitive=scan._case_sensitive)
        self.is_empty = bound == AlwaysFalse()
        self.filter = None if bound in (AlwaysTrue(), AlwaysFalse()) else expression_to_pyarrow(bound, file_schema)

    def select(self, batch: Any, start: int, deleted: list[Any] | None) -> Any:
        """The rows that were not deleted and pass the filter; `start` is the position of the first in the file."""
        if deleted:
            left = _combine_positional_deletes(deleted, start, start + batch.num_rows)
            # There is nothing to take from without columns, and it does not matter which rows are left.
            batch = batch.take(left) if batch.num_columns else batch.slice(0, len(left))
        if self.filter is None or batch.num_rows == 0:
            return batch
        table = pyarrow.Table.from_batches([batch]).filter(self.filter)
        return table.combine_chunks().to_batches()[0] if table.num_rows else batch.slice(0, 0)

    def project(self, batch: Any) -> Any:
        """The rows as the scan wants them.

        Raises
        ------
        ResolveError, ValueError, AttributeError, pyarrow.ArrowException
            The file's schema does not fit the table's.
        """
        visitor = _Visitor(
            self.file_schema,
            self._downcast,
            projected_missing_fields=self._constants,
            allow_timestamp_tz_mismatch=True,
        )
        made = visit_with_partner(self._requested, batch, visitor, ArrowAccessor(self.file_schema))
        return pyarrow.RecordBatch.from_struct_array(made)


class _Visitor(ArrowProjectionVisitor):
    """PyIceberg's own turns lists and maps of structs that are null into empty ones."""

    def list(self, list_type: Any, list_array: Any, value_array: Any) -> Any:
        made = super().list(list_type, list_array, value_array)
        if made is None or made.null_count == list_array.null_count:
            return made
        return type(made).from_arrays(made.offsets, made.values, type=made.type, mask=list_array.is_null())

    def map(self, map_type: Any, map_array: Any, key_result: Any, value_result: Any) -> Any:
        made = super().map(map_type, map_array, key_result, value_result)
        if made is None or made.null_count == map_array.null_count:
            return made
        return pyarrow.MapArray.from_arrays(
            made.offsets, made.keys, made.items, type=made.type, mask=map_array.is_null()
        )
