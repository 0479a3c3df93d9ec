"""Rows replaced by others: those that pass a filter, or those of the partitions that the new rows are in."""

from __future__ import annotations

from typing import Any

from ags1.iceberg.manifests import DATA
from ags1.iceberg.snapshot_files import SnapshotFiles
from ags1.iceberg.writing.appending import write_rows
from ags1.iceberg.writing.change import Change, ChangeReport, WriteTarget, check_still_fits
from ags1.iceberg.writing.matching import POSITION_NAME, take_away
from ags1.iceberg.writing.metadata import TableMetadata
from ags1.iceberg.writing.table_files import TableFiles

__all__ = ["overwrite", "overwrite_partitions"]


def overwrite(target: WriteTarget, data: Any, row_filter: Any = None) -> ChangeReport:
    """Delete the rows that pass a filter, or all, and add others."""
    layout = target.layout()
    entries, files = write_rows(target, layout, data)

    def plan(table: Any, _: TableFiles) -> Change:
        check_still_fits(table, layout)
        change = Change(layout.partitioning, entries)
        take_away(change, table, target.ref, row_filter)
        return change

    return target.commit(plan, "overwrite", files)


def overwrite_partitions(target: WriteTarget, data: Any) -> ChangeReport:
    """Remove the files of all partitions that new rows are in, and add those rows."""
    layout = target.layout()
    entries, files = write_rows(target, layout, data)
    partitions = {_key(each.file["partition"]) for each in entries}

    def plan(table: Any, _: TableFiles) -> Change:
        check_still_fits(table, layout)
        change = Change(layout.partitioning, entries)
        snapshot = TableMetadata(table.document.fields).snapshot_of(target.ref)
        if snapshot is None:
            return change
        source = SnapshotFiles(table.io)
        for listed in source.manifests(snapshot):
            if listed["content"] != DATA or listed["partition_spec_id"] != layout.partitioning.spec_id:
                continue
            for each in source.entries(listed, metrics=False):
                if each.is_live and _key(each.file["partition"]) in partitions:
                    change.removed.add(each.path)
        change.deleted_rows = _visible_rows(table, target.ref, change.removed)
        return change

    return target.commit(plan, "overwrite", files)


def _key(partition: dict[int, Any]) -> tuple[Any, ...]:
    # A NaN is not equal to itself.
    return tuple((number, "NaN" if value != value else repr(value)) for number, value in sorted(partition.items()))


def _visible_rows(table: Any, ref: str, paths: set[str]) -> int:
    """Rows of data files that are not deleted."""
    scan = table.scan(columns=[POSITION_NAME], ref=ref)
    found: int = 0
    partly = []
    for task in scan.plan_files():
        if task.file.file_path not in paths:
            continue
        if task.deletes.position_deletes or task.deletes.equality_deletes:
            partly.append(task)
            continue
        found += task.file.record_count - (0 if task.deletes.vector is None else task.deletes.vector.cardinality)
    found += sum(batch.num_rows for file in scan.by_file(partly) for batch in file.batches)
    return found
