"""Rows added to a table."""

from __future__ import annotations

from typing import Any

from ags1.iceberg.manifests import Entry
from ags1.iceberg.writing.arrow_rows import batches_of
from ags1.iceberg.writing.change import Change, ChangeReport, WriteTarget, check_still_fits
from ags1.iceberg.writing.data_files import DataFiles
from ags1.iceberg.writing.table_files import TableFiles

__all__ = ["append", "write_rows"]


def append(target: WriteTarget, data: Any) -> ChangeReport:
    """Add rows. Whatever others commit meanwhile, they are added to it."""
    layout = target.layout()
    entries, files = write_rows(target, layout, data)

    def plan(table: Any, _: TableFiles) -> Change:
        check_still_fits(table, layout)
        return Change(layout.partitioning, entries)

    return target.commit(plan, "append", files)


def write_rows(target: WriteTarget, layout: Any, data: Any) -> tuple[list[Entry], TableFiles]:
    """Write rows to data files that no snapshot has yet; return their entries, and what removes them again."""
    schema, batches = batches_of(data)
    layout.shape.check(schema)
    files = target.data_files()
    try:
        return DataFiles(layout, files).write_all(batches), files
    except BaseException:
        files.discard()
        raise
