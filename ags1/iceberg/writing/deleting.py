"""Rows deleted from a table: whole files where metadata says so, and deletion vectors for the rest."""

from __future__ import annotations

from typing import Any

from ags1.iceberg.writing.change import Change, ChangeReport, WriteTarget
from ags1.iceberg.writing.matching import take_away
from ags1.iceberg.writing.partitioning import Partitioning
from ags1.iceberg.writing.table_files import TableFiles

__all__ = ["delete"]


def delete(target: WriteTarget, row_filter: Any) -> ChangeReport:
    """Delete the rows that pass a filter."""

    def plan(table: Any, _: TableFiles) -> Change:
        change = Change(Partitioning(table.table.spec(), table.schema))
        take_away(change, table, target.ref, row_filter)
        return change

    return target.commit(plan, "delete")
