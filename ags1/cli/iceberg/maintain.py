"""``ags1 iceberg compact`` and ``maintain``: plan, question, work."""

from __future__ import annotations

import argparse
import contextlib
import datetime
from collections.abc import Iterator

from ags1.cli.iceberg.convert import planned_and_done
from ags1.cli.iceberg.opening import Opened
from ags1.cli.iceberg.scan import naming
from ags1.iceberg import EncryptedTable, MaintenancePolicy
from ags1.support.typing import Any


def compact(options: argparse.Namespace) -> int:
    arguments: dict[str, Any] = {
        "target_bytes": options.target_size,
        "where": options.filter,
        "sort_by": options.sort_by,
        "rewrite_all": options.rewrite_all,
        "ref": options.ref or "main",
    }

    def work(opened: Opened, **further: Any) -> Any:
        with _table(opened) as table:
            return table.compact(**arguments, **further)

    return planned_and_done(
        options,
        ("compacting", "compacted"),
        lambda opened: work(opened, dry_run=True),
        lambda opened, progress: work(opened, progress=progress),
    )


def maintain(options: argparse.Namespace) -> int:
    def work(opened: Opened, **further: Any) -> Any:
        with _table(opened) as table:
            return table.maintain(_policy(options), **further)

    return planned_and_done(
        options,
        ("maintaining", "maintained"),
        lambda opened: work(opened, dry_run=True),
        lambda opened, progress: work(opened, progress=progress),
    )


def _policy(options: argparse.Namespace) -> MaintenancePolicy:
    from ags1.iceberg import CompactionOptions, MaintenancePolicy

    return MaintenancePolicy(
        branches=(options.ref or "main",),
        compaction=CompactionOptions(target_bytes=options.target_size, sort_by=options.sort_by),
        expire_older_than=datetime.timedelta(seconds=options.older_than),
        clean_older_than=datetime.timedelta(seconds=options.orphans_older_than),
    )


@contextlib.contextmanager
def _table(opened: Opened) -> Iterator[EncryptedTable]:
    from ags1.iceberg import EncryptedTable

    table = EncryptedTable(opened.location, opened.io, opened.target)
    with naming(table.metadata_location, table):
        yield table
