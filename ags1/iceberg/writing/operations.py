"""Operations on the rows of a table: append, delete, overwrite, upsert.

    upsert:  source keys --range--> files of the table --join by key--> replaced: vector, a new row with its _row_id
                                                                        not there: a new row

Source: Spark's MERGE INTO; Iceberg table spec, "Row Lineage" for rows that are moved.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow
import pyarrow.compute as compute
from pyiceberg import expressions
from pyiceberg import types as iceberg
from pyiceberg.expressions import AlwaysTrue

from ags1.iceberg.files.file_io import SnapshotFiles
from ags1.iceberg.metadata.manifests import DATA
from ags1.iceberg.scan.planning import ScanTask
from ags1.iceberg.scan.projection import LINEAGE, POSITION, ROW_ID
from ags1.iceberg.writing.arrow_rows import batches_of
from ags1.iceberg.writing.change import ChangeReport, RowChange, WriteTarget, check_still_fits
from ags1.iceberg.writing.commit import TableFiles
from ags1.iceberg.writing.data_files import DataFiles
from ags1.iceberg.writing.metadata import TableMetadata
from ags1.iceberg.writing.partitioning import Partitioning


def append(target: WriteTarget, data: Any) -> ChangeReport:
    """Add rows, also after commits that others made meanwhile."""
    return _added(target, data, "append", lambda change, table: None)


def delete(target: WriteTarget, row_filter: Any) -> ChangeReport:
    """Delete the rows that pass a filter: whole files where metadata says so, and deletion vectors for the rest."""

    def plan(table: Any, _: TableFiles) -> RowChange:
        change = RowChange(Partitioning(table.table.spec(), table.schema))
        take_away(change, table, target.ref, row_filter)
        return change

    return target.commit(plan, "delete")


def overwrite(target: WriteTarget, data: Any, row_filter: Any = None) -> ChangeReport:
    """Delete the rows that pass a filter, or all, and add others."""
    # A filter that does not fit is refused before the new rows are written.
    _passing(target.table, target.ref, row_filter)
    return _added(target, data, "overwrite", lambda change, table: take_away(change, table, target.ref, row_filter))


def overwrite_partitions(target: WriteTarget, data: Any) -> ChangeReport:
    """Remove the files of all partitions that new rows are in, and add those rows."""

    def take(change: RowChange, table: Any) -> None:
        snapshot = TableMetadata(table.document.fields).snapshot_of(target.ref)
        if snapshot is None:
            return
        partitions = {_key(each.file["partition"]) for each in change.added}
        source = SnapshotFiles(table.io)
        for listed in source.manifests(snapshot):
            if listed["content"] != DATA or listed["partition_spec_id"] != change.partitioning.spec_id:
                continue
            for each in source.entries(listed, metrics=False):
                if each.is_live and _key(each.file["partition"]) in partitions:
                    change.removed.add(each.path)
        change.deleted_rows = _visible_rows(table, target.ref, change.removed)

    return _added(target, data, "overwrite", take)


def _added(target: WriteTarget, data: Any, operation: str, take: Callable[[RowChange, Any], None]) -> ChangeReport:
    """Write rows to new files, and commit them together with the removals of `take`."""
    layout = target.layout()
    schema, batches = batches_of(data)
    layout.shape.check(schema)
    files = target.data_files()
    try:
        entries = DataFiles(layout, files).write_all(batches)
    except BaseException:
        files.discard()
        raise

    def plan(table: Any, _: TableFiles) -> RowChange:
        check_still_fits(table, layout)
        change = RowChange(layout.partitioning, entries)
        take(change, table)
        return change

    return target.commit(plan, operation, files)


def _key(partition: dict[int, Any]) -> tuple[Any, ...]:
    # A NaN is not equal to itself.
    return tuple((number, "NaN" if value != value else repr(value)) for number, value in sorted(partition.items()))


def _visible_rows(table: Any, ref: str, paths: set[str]) -> int:
    scan = table.scan(ref=ref).with_reserved(POSITION, alone=True)
    rows = [(each, _rows_left(each)) for each in scan.plan_files() if each.file.file_path in paths]
    partly = scan.by_file([task for task, left in rows if left is None])
    read: int = sum(batch.num_rows for file in partly for batch in file.batches)
    return read + sum(left or 0 for _, left in rows)


def _rows_left(task: ScanTask) -> int | None:
    """Return how many rows of a file are not deleted; None if only reading tells."""
    if task.deletes.position_deletes or task.deletes.equality_deletes:
        return None
    vector = task.deletes.vector
    return task.file.record_count - (0 if vector is None else vector.cardinality)


def _passing(table: Any, ref: str, row_filter: Any) -> Any:
    """Return the scan of a branch's rows that pass a filter, which is checked."""
    scan = table.scan(row_filter=row_filter, ref=ref if ref in table.refs else None)
    return scan.with_reserved(POSITION, alone=True)


def take_away(change: RowChange, table: Any, ref: str, row_filter: Any = None) -> None:
    """Add to a change the removal of a branch's rows that pass a filter; without one, all rows.

    The scan itself finds them, so a change affects exactly the rows that a scan returns.
    """
    scan = _passing(table, ref, row_filter)
    partly = []
    for task in scan.plan_files():
        left = _rows_left(task)
        if left is None or task.residual != AlwaysTrue():
            partly.append(task)
            continue
        change.removed.add(task.file.file_path)
        change.deleted_rows += left
    for file in scan.by_file(partly):
        found = [batch.column(0) for batch in file.batches]
        if not found:
            continue
        change.deleted_rows += sum(map(len, found))
        change.delete(file.task.file, all_positions(file.deleted, found))


def all_positions(before: list[Any], now: list[Any]) -> Any:
    """Positions that were deleted before, and those that are deleted now, as a pyroaring.BitMap64."""
    from pyroaring import BitMap64

    positions = BitMap64()
    for each in (*before, *now):
        if isinstance(each, BitMap64):
            positions |= each
            continue
        chunks = each.chunks if isinstance(each, pyarrow.ChunkedArray) else [each]
        for chunk in chunks:
            numbers = chunk.cast(pyarrow.uint64())
            # The values as they lie there: Arrow's own way asks for NumPy, which no extra brings.
            plain = memoryview(numbers.buffers()[1]).cast("Q")[numbers.offset : numbers.offset + len(numbers)]
            positions |= BitMap64(array("Q", plain))
    return positions


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
