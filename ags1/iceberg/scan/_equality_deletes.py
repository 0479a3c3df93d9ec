"""Equality deletes, applied to the rows of a scan.

    delete files of a group  --one column after another-->  number of each deleted key  --->  its newest delete
    rows of a data file      --the same numbers----------->  number of each row's key   --->  older than that: deleted

A row is deleted if its key is among those of a delete file with a higher data sequence number. Null equals null, and
floats are compared as Java compares objects: NaN equals NaN, and the zeros of both signs are different. Columns are
found by their ids, in files of any schema that the table had. Source: Iceberg table spec, "Equality Delete Files".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow
import pyarrow.compute as compute
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.types import NestedField

from ags1.errors import FormatError
from ags1.iceberg.deletes import EqualityDeletes
from ags1.iceberg.scan.projection import FurtherColumns


class DeletedKeys:
    """The rows that a group of delete files deletes; `tables` has the rows of these files with these `columns`."""

    def __init__(self, group: EqualityDeletes, tables: Sequence[pyarrow.Table], columns: FurtherColumns) -> None:
        self._field_ids = group.field_ids
        numbers = pyarrow.concat_arrays(
            [
                pyarrow.repeat(pyarrow.scalar(number, pyarrow.int64()), table.num_rows)
                for (_, number), table in zip(group.files, tables, strict=True)
            ]
        )
        # For each column: its distinct values, and the numbers of all pairs with the columns before it.
        self._steps: list[tuple[pyarrow.Array, pyarrow.Array]] = []
        found = None
        for field_id in self._field_ids:
            values = pyarrow.concat_arrays([_values(table, columns, field_id) for table in tables])
            different = values.unique()
            pairs = _pairs(found, compute.index_in(values, different), len(different))
            known = pairs.unique()
            self._steps.append((different, known))
            found = compute.index_in(pairs, known)
        newest = pyarrow.table({"key": found, "number": numbers}).group_by("key").aggregate([("number", "max")])
        self._newest = newest.sort_by("key").column("number_max").combine_chunks()

    def left(self, table: pyarrow.Table, columns: FurtherColumns, sequence_number: int) -> pyarrow.Table:
        found = None
        for field_id, (different, known) in zip(self._field_ids, self._steps, strict=True):
            values = compute.index_in(_values(table, columns, field_id), different)
            found = compute.index_in(_pairs(found, values, len(different)), known, skip_nulls=True)
        deleted = compute.greater(compute.take(self._newest, found), sequence_number)
        return table.filter(compute.invert(deleted.fill_null(False)))


def _pairs(before: Any, values: Any, different: int) -> Any:
    """Combine two numbers into one; null if either is null. Both are at most the number of deletes: 64 bits suffice."""
    values = values.cast(pyarrow.int64())
    if before is None:
        return values
    return compute.add(compute.multiply(before.cast(pyarrow.int64()), max(different, 1)), values)


def _values(table: pyarrow.Table, columns: FurtherColumns, field_id: int) -> pyarrow.Array:
    """Return a column in a form in which only equal values are identical."""
    field = columns.field(field_id)
    if not field.field_type.is_primitive:
        raise FormatError(f"equality deletes compare the column {field.name}, which is no single value")
    try:
        return _comparable(columns.column(table, field_id), field)
    except (pyarrow.ArrowNotImplementedError, pyarrow.ArrowInvalid, TypeError) as error:
        raise FormatError(f"column {field.name} cannot be compared for equality: {error}") from error


def _comparable(column: pyarrow.ChunkedArray, field: NestedField) -> pyarrow.Array:
    target = schema_to_pyarrow(field.field_type)
    if isinstance(target, pyarrow.BaseExtensionType):
        target = target.storage_type
    if isinstance(column.type, pyarrow.BaseExtensionType):
        column = pyarrow.chunked_array([chunk.storage for chunk in column.chunks], column.type.storage_type)
    # Cast before the chunks are combined: text of more than 2 GiB needs long offsets.
    array = column.cast(target).combine_chunks()
    if pyarrow.types.is_floating(target):
        nan = compute.is_nan(array)
        bits = pyarrow.int32() if target == pyarrow.float32() else pyarrow.int64()
        array = compute.if_else(nan, pyarrow.scalar(float("nan"), target), array).view(bits)
    return array
