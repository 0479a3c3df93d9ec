"""The snapshots whose appended rows an incremental scan reads.

    from (exclusive) <-- append <-- replace <-- append <-- to (inclusive)        by parents
                          read      skipped      read

Spark leaves out overwrites and deletes without a word, so its reader misses their rows; here they are refused. Sources:
Iceberg Java's BaseIncrementalAppendScan and SnapshotUtil; PyIceberg's IncrementalAppendScan.
"""

from __future__ import annotations

from typing import Any

from pyiceberg.table.snapshots import Operation

_SHOWN = 5


def appends_between(metadata: Any, start: int, end: int | None) -> list[Any]:
    """Return PyIceberg's snapshots of the appends after one snapshot, up to another or the current one; oldest first.

    `start` need not be there any more, if a later one still names it as its parent.

    Raises
    ------
    ValueError
        `end` does not exist; `start` is not among those that it was made from; a snapshot between them changed or
        deleted rows.
    """
    last = metadata.current_snapshot() if end is None else metadata.snapshot_by_id(end)
    if last is None:
        raise ValueError("the table has no snapshot yet" if end is None else f"the table has no snapshot {end}")
    found: list[Any] = []
    others: list[str] = []
    number: int | None = last.snapshot_id
    while number != start:
        each = None if number is None else metadata.snapshot_by_id(number)
        if each is None:
            missing = "" if number is None else f", whose history ends before {number}, which is expired"
            raise ValueError(
                f"snapshot {start} is not among those that {last.snapshot_id} was made from{missing}: read all rows "
                "again, or those with a higher _last_updated_sequence_number"
            )
        operation = None if each.summary is None else each.summary.operation
        if operation == Operation.APPEND:
            found.append(each)
        elif operation != Operation.REPLACE:
            others.append(f"{each.snapshot_id} ({'unknown' if operation is None else operation.value})")
        number = each.parent_snapshot_id
    if others:
        shown = ", ".join(reversed(others[-_SHOWN:])) + (", ..." if len(others) > _SHOWN else "")
        raise ValueError(
            f"between {start} and {last.snapshot_id}, rows were not only appended, but changed or deleted by {shown}: "
            "read the ranges between these, or find new and changed rows by their _last_updated_sequence_number; no "
            "scan returns rows that were deleted"
        )
    return found[::-1]
