"""Which rows of a table pass a filter: whole files, or positions in them.

They are found by the scan itself, so that a change of them is about exactly the rows that a scan shows.
"""

from __future__ import annotations

from array import array
from typing import Any

import pyarrow
from pyiceberg.expressions import AlwaysTrue

from ags1.iceberg._row_lineage import LINEAGE, POSITION
from ags1.iceberg.writing.change import Change

__all__ = ["POSITION_NAME", "all_positions", "take_away"]

POSITION_NAME = next(name for name, each in LINEAGE.items() if each.field_id == POSITION)


def take_away(change: Change, table: Any, ref: str, row_filter: Any = None) -> None:
    """Put into a change that the rows of a branch which pass a filter go; without one, all rows."""
    scan = table.scan(columns=[POSITION_NAME], row_filter=row_filter, ref=ref if ref in table.refs else None)
    partly = []
    for task in scan.plan_files():
        others = [*task.deletes.position_deletes, *task.deletes.equality_deletes]
        if others or task.residual != AlwaysTrue():
            partly.append(task)
            continue
        vector = task.deletes.vector
        change.removed.add(task.file.file_path)
        change.deleted_rows += task.file.record_count - (0 if vector is None else vector.cardinality)
    for file in scan.by_file(partly):
        found = sum(batch.num_rows for batch in file.batches)
        if not found:
            continue
        path = file.task.file.file_path
        change.deleted_rows += found
        positions = all_positions(file.deleted, [batch.column(0) for batch in file.batches])
        if len(positions) == file.task.file.record_count:
            change.removed.add(path)
        else:
            change.deleted[path] = positions


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
            numbers = array("Q", chunk.cast(pyarrow.uint64()).to_numpy().tobytes())
            positions |= BitMap64(numbers)
    return positions
