"""Operations on the rows of a table: append, delete, overwrite."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

import pyarrow
from pyiceberg.expressions import AlwaysTrue

from ags1.iceberg.files.file_io import SnapshotFiles
from ags1.iceberg.metadata.manifests import DATA
from ags1.iceberg.scan.planning import ScanTask
from ags1.iceberg.scan.projection import POSITION
from ags1.iceberg.writing.arrow_rows import batches_of
from ags1.iceberg.writing.change import ChangeReport, RowChange, WriteTarget, check_still_fits
from ags1.iceberg.writing.data_files import DataFiles
from ags1.iceberg.writing.metadata import TableMetadata
from ags1.iceberg.writing.partitioning import Partitioning
from ags1.iceberg.writing.table_files import TableFiles


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
