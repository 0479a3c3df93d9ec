"""``ags1 iceberg compact`` and ``maintain``: plan, question, work."""

from __future__ import annotations

import argparse
import datetime
from collections.abc import Callable

from ags1.cli.iceberg.convert import planned_and_done
from ags1.cli.iceberg.opening import Opened
from ags1.cli.iceberg.scan import naming
from ags1.iceberg import CompactionOptions, EncryptedTable, MaintenancePolicy
from ags1.support.typing import Any


def compact(options: argparse.Namespace) -> int:
    arguments: dict[str, Any] = {
        "target_bytes": options.target_size,
        "where": options.filter,
        "sort_by": options.sort_by,
        "rewrite_all": options.rewrite_all,
        "ref": options.ref or "main",
    }

    return _planned(
        options, ("compacting", "compacted"), lambda table, **further: table.compact(**arguments, **further)
    )


def maintain(options: argparse.Namespace) -> int:
    return _planned(
        options, ("maintaining", "maintained"), lambda table, **further: table.maintain(_policy(options), **further)
    )


def _policy(options: argparse.Namespace) -> MaintenancePolicy:
    return MaintenancePolicy(
        branches=(options.ref or "main",),
        compaction=CompactionOptions(target_bytes=options.target_size, sort_by=options.sort_by),
        expire_older_than=datetime.timedelta(seconds=options.older_than),
        clean_older_than=datetime.timedelta(seconds=options.orphans_older_than),
    )


def _planned(options: argparse.Namespace, words: tuple[str, str], do: Callable[..., Any]) -> int:

    def work(opened: Opened, **further: Any) -> Any:
        table = EncryptedTable(opened.location, opened.io, opened.target)
        with naming(table.metadata_location, table):
            return do(table, **further)

    return planned_and_done(
        options,
        words,
        lambda opened: work(opened, dry_run=True),
        lambda opened, progress: work(opened, progress=progress),
    )
