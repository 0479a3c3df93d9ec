"""Upsert: replace rows with the same key, and add new ones, in one snapshot.

    source keys --range--> files of the table --join by key--> replaced: deletion vector, and a new row with its _row_id
                                                               not there: a new row

Source: Spark's MERGE INTO; Iceberg table spec, "Row Lineage" for rows that are moved.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow
import pyarrow.compute as compute
from pyiceberg import expressions
from pyiceberg import types as iceberg

from ags1.iceberg.scan.projection import LINEAGE, POSITION, ROW_ID
from ags1.iceberg.writing.arrow_rows import batches_of
from ags1.iceberg.writing.change import ChangeReport, RowChange, WriteTarget, check_still_fits
from ags1.iceberg.writing.data_files import DataFiles
from ags1.iceberg.writing.operations import all_positions
from ags1.iceberg.writing.table_files import TableFiles

_ROW_ID_FIELD = next(each for each in LINEAGE.values() if each.field_id == ROW_ID)
_PLACE = "source"
# Their annotations are those of bound predicates.
written: Any = expressions
# Above this number of values a range is as selective.
_LISTED = 200
_COMPARED = (iceberg.IntegerType, iceberg.LongType, iceberg.StringType)


def upsert(target: WriteTarget, data: Any, on: Sequence[str]) -> ChangeReport:
    """Replace rows with the keys of `data`, and add the others of it."""
    layout = target.layout((_ROW_ID_FIELD,))
    schema, batches = batches_of(data)
    # Without the column of row ids, which is not the caller's.
    plain = target.layout().shape
    plain.check(schema)
    _check_key(layout.schema, on)
    source = pyarrow.Table.from_batches([plain.shaped(each) for each in batches], plain.arrow).combine_chunks()
    keys = _keys(source, on)
    index = keys.append_column(_PLACE, pyarrow.array(range(source.num_rows), pyarrow.int64()))
    for name in keys.column_names:
        # A null is equal to nothing.
        index = index.filter(compute.is_valid(index.column(name)))
    counts = index.group_by(keys.column_names).aggregate([(_PLACE, "count")])
    if counts.num_rows < index.num_rows:
        raise ValueError(
            f"the rows to upsert have {index.num_rows - counts.num_rows} more rows than keys of {', '.join(on)}: each "
            "key must be there once"
        )

    def plan(table: Any, files: TableFiles) -> RowChange:
        check_still_fits(table, layout)
        change = RowChange(layout.partitioning)
        replaced = _replaced(change, table, target.ref, on, index, source)
        taken = source.take(replaced.column(_PLACE)).append_column(_ROW_ID_FIELD.name, replaced.column("row_id"))
        is_new = compute.invert(
            compute.is_in(pyarrow.array(range(source.num_rows), pyarrow.int64()), replaced.column(_PLACE))
        )
        new = source.filter(is_new)
        new = new.append_column(_ROW_ID_FIELD.name, pyarrow.nulls(new.num_rows, pyarrow.int64()))
        change.added = DataFiles(layout, files).write_all(pyarrow.concat_tables([taken, new]).to_batches())
        return change

    return target.commit(plan, "overwrite")


def _replaced(
    change: RowChange, table: Any, ref: str, on: Sequence[str], index: pyarrow.Table, source: pyarrow.Table
) -> pyarrow.Table:
    """The rows of the table that have a key of the source, with their places in it; they are deleted in the change."""
    names = index.column_names[: len(on)]
    scan = table.scan(
        columns=on, row_filter=_range(table.schema, source, on), ref=ref if ref in table.refs else None
    ).with_reserved(ROW_ID, POSITION)
    empty = pyarrow.schema([(_PLACE, pyarrow.int64()), ("row_id", pyarrow.int64())]).empty_table()
    found = [empty]
    if not index.num_rows:
        return empty
    for file in scan.by_file(scan.plan_files()):
        batches = list(file.batches)
        if not batches:
            continue
        rows = pyarrow.Table.from_batches(batches)
        keyed = _keys(rows, on).append_column("row_id", rows.column(-2)).append_column("position", rows.column(-1))
        matched = keyed.join(index, names, join_type="inner", use_threads=False)
        if not matched.num_rows:
            continue
        change.delete(file.task.file, all_positions(file.deleted, [matched.column("position")]))
        change.deleted_rows += matched.num_rows
        found.append(matched.select([_PLACE, "row_id"]).cast(empty.schema))
    return pyarrow.concat_tables(found).combine_chunks()


def _check_key(schema: Any, on: Sequence[str]) -> None:
    if isinstance(on, str) or not on or len(set(on)) < len(on):
        raise ValueError("on must be a list of columns, each once")
    fields = {each.name: each for each in schema.fields}
    for name in on:
        if name not in fields:
            raise ValueError(f"the table has no column {name}; it has {', '.join(fields)}")
        if not fields[name].field_type.is_primitive:
            raise ValueError(f"column {name} is no single value, and cannot be a key")


def _keys(rows: pyarrow.Table, on: Sequence[str]) -> pyarrow.Table:
    """The key columns, in a form in which equal keys have equal bytes."""
    return pyarrow.table(
        [_comparable(rows.column(name)) for name in on], names=[f"k{place}" for place in range(len(on))]
    )


def _comparable(column: pyarrow.ChunkedArray) -> pyarrow.ChunkedArray:
    kind = column.type
    if isinstance(kind, pyarrow.BaseExtensionType):
        column = pyarrow.chunked_array([each.storage for each in column.chunks], kind.storage_type)
    if not pyarrow.types.is_floating(kind):
        return column
    # One zero of the two, and one NaN of all.
    number = compute.add(column, pyarrow.scalar(0.0, kind))
    number = compute.if_else(compute.is_nan(number), pyarrow.scalar(float("nan"), kind), number)
    whole = pyarrow.int32() if kind.bit_width == 32 else pyarrow.int64()
    return pyarrow.chunked_array([each.view(whole) for each in number.chunks], whole)


def _range(schema: Any, source: pyarrow.Table, on: Sequence[str]) -> Any:
    """A filter that the rows with these keys pass, for files to be left out by."""
    found: Any = written.AlwaysTrue()
    for name in on:
        if not isinstance(schema.find_field(name).field_type, _COMPARED):
            continue
        values = compute.unique(source.column(name)).drop_null()
        if not len(values):
            continue
        if len(values) <= _LISTED:
            test: Any = written.In(name, values.to_pylist())
        else:
            ends = compute.min_max(values).as_py()
            test = written.And(
                written.GreaterThanOrEqual(name, ends["min"]), written.LessThanOrEqual(name, ends["max"])
            )
        found = written.And(found, test)
    return found
