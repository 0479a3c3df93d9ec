"""Equality deletes, applied to the rows of a scan.

    delete files of a group  --one column after another-->  number of each deleted key  --->  its newest delete
    rows of a data file      --the same numbers----------->  number of each row's key   --->  older than that: deleted

A row is deleted if its key is among those of a delete file with a higher data sequence number. Null equals null, and
floats are compared as Java compares objects: NaN equals NaN, and the zeros of both signs are different. Columns are
found by their ids, in files of any schema the table had. Source: Iceberg table spec, "Equality Delete Files".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow
import pyarrow.compute as compute
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StructType

from ags1.errors import FormatError
from ags1.iceberg._planning import EqualityDeletes

__all__ = ["DeletedKeys", "KeyColumns"]


class KeyColumns:
    """The columns that equality deletes compare, as further columns of a scan.

    Each is at the end of the scan's schema, with the structs it is in, even if the scan has it already: so it does not
    matter what the scan asks for.

    Attributes
    ----------
    schema : pyiceberg.schema.Schema
        Of the scan, and then these.

    Raises
    ------
    FormatError
        The table never had such a column, or it is no single value of a row.
    """

    def __init__(self, schema: Schema, metadata: Any, field_ids: Iterable[int], *, required: bool = False) -> None:
        names = {each.name for each in schema.fields}
        fields = list(schema.fields)
        self.width = len(fields)
        self._columns: dict[int, tuple[int, int, NestedField]] = {}
        for field_id in field_ids:
            path = _path(schema, metadata, field_id)
            name = path[0].name
            while name in names:
                name += "'"
            names.add(name)
            self._columns[path[-1].field_id] = (len(fields), len(path) - 1, path[-1])
            fields.append(_only(path, name, required))
        self.schema = Schema(*fields)

    def values(self, table: pyarrow.Table, field_id: int) -> pyarrow.Array:
        """A column in a form in which equal values, and no others, are the same."""
        position, depth, field = self._columns[field_id]
        column = table.column(position)
        if depth:
            column = compute.struct_field(column, [0] * depth)
        try:
            return _comparable(column, field)
        except (pyarrow.ArrowNotImplementedError, pyarrow.ArrowInvalid, TypeError) as error:
            raise FormatError(f"column {field.name} cannot be compared for equality: {error}") from error


class DeletedKeys:
    """The rows that a group of delete files deletes.

    Parameters
    ----------
    group : EqualityDeletes
    tables : sequence of pyarrow.Table
        The rows of its delete files, as `columns` has them.
    columns : KeyColumns
        Of the delete files, with no others.
    """

    def __init__(self, group: EqualityDeletes, tables: Sequence[pyarrow.Table], columns: KeyColumns) -> None:
        self._field_ids = group.field_ids
        numbers = pyarrow.concat_arrays(
            [
                pyarrow.repeat(pyarrow.scalar(number, pyarrow.int64()), table.num_rows)
                for (_, number), table in zip(group.files, tables, strict=True)
            ]
        )
        # For each column: its different values, and the numbers of all pairs with those of the columns before it.
        self._steps: list[tuple[pyarrow.Array, pyarrow.Array]] = []
        found = None
        for field_id in self._field_ids:
            values = pyarrow.concat_arrays([columns.values(table, field_id) for table in tables])
            different = values.unique()
            pairs = _pairs(found, compute.index_in(values, different), len(different))
            known = pairs.unique()
            self._steps.append((different, known))
            found = compute.index_in(pairs, known)
        newest = pyarrow.table({"key": found, "number": numbers}).group_by("key").aggregate([("number", "max")])
        self._newest = newest.sort_by("key").column("number_max").combine_chunks()

    def left(self, table: pyarrow.Table, columns: KeyColumns, sequence_number: int) -> pyarrow.Table:
        """The rows of a data file that are not deleted."""
        found = None
        for field_id, (different, known) in zip(self._field_ids, self._steps, strict=True):
            values = compute.index_in(columns.values(table, field_id), different)
            found = compute.index_in(_pairs(found, values, len(different)), known, skip_nulls=True)
        deleted = compute.greater(compute.take(self._newest, found), sequence_number)
        return table.filter(compute.invert(deleted.fill_null(False)))


def _pairs(before: Any, values: Any, different: int) -> Any:
    """One number for two: null if one of them is. Neither is more than there are deletes, so it fits 64 bits."""
    values = values.cast(pyarrow.int64())
    if before is None:
        return values
    return compute.add(compute.multiply(before.cast(pyarrow.int64()), max(different, 1)), values)


def _path(schema: Schema, metadata: Any, field_id: int) -> list[NestedField]:
    """A field and the structs it is in, the outermost first: of the scan's schema, or else the newest that has it."""
    older = sorted(metadata.schemas, key=lambda each: each.schema_id, reverse=True)
    for each in (schema, metadata.schema(), *older):
        if field_id in each.field_ids:
            found = _descend(each.fields, field_id)
            if found is None or not found[-1].field_type.is_primitive:
                raise FormatError(
                    f"equality deletes compare the column {each.find_column_name(field_id)}, which is no single value"
                )
            return found
    raise FormatError(f"equality deletes compare a column with the id {field_id}, which the table never had")


def _descend(fields: Iterable[NestedField], field_id: int) -> list[NestedField] | None:
    for field in fields:
        if field.field_id == field_id:
            return [field]
        if isinstance(field.field_type, StructType):
            below = _descend(field.field_type.fields, field_id)
            if below is not None:
                return [field, *below]
    return None


def _only(path: list[NestedField], name: str, required: bool) -> NestedField:
    """A field with nothing in it but one path."""
    first, *rest = path
    return NestedField(
        field_id=first.field_id,
        name=name,
        field_type=StructType(_only(rest, rest[0].name, required)) if rest else first.field_type,
        required=required,
        # A file that must have the column is not helped by a default.
        initial_default=None if rest or required else first.initial_default,
    )


def _comparable(column: pyarrow.ChunkedArray, field: NestedField) -> pyarrow.Array:
    target = schema_to_pyarrow(field.field_type)
    if isinstance(target, pyarrow.BaseExtensionType):
        target = target.storage_type
    if isinstance(column.type, pyarrow.BaseExtensionType):
        column = pyarrow.chunked_array([chunk.storage for chunk in column.chunks], column.type.storage_type)
    # Before the chunks are one: text of more than 2 GiB needs the type with long offsets.
    array = column.cast(target).combine_chunks()
    if pyarrow.types.is_floating(target):
        nan = compute.is_nan(array)
        bits = pyarrow.int32() if target == pyarrow.float32() else pyarrow.int64()
        array = compute.if_else(nan, pyarrow.scalar(float("nan"), target), array).view(bits)
    return array
