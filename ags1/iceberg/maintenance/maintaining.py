"""All maintenance of a table, in the right order; each step is committed on its own, so a killed run is just run again.

compaction --> manifests --> expiry, with files and keys of old snapshots --> orphans
makes old      names what       removes what the steps before                 what killed runs
snapshots      is left          no longer need                                have left
"""

from __future__ import annotations

import contextlib
import datetime
from dataclasses import dataclass, field, replace
from typing import Any

from ags1.errors import ConflictError
from ags1.iceberg.conversion.expiry import KEEP, check_age, clean, expire_snapshots, journals_of
from ags1.iceberg.conversion.journal import announce_maintenance, is_maintenance, remove_run
from ags1.iceberg.maintenance.compaction import CompactionOptions, compact
from ags1.iceberg.maintenance.manifests import rewrite_manifests
from ags1.iceberg.maintenance.reports import MaintenanceReport
from ags1.iceberg.writing.change import WriteTarget
from ags1.kms.asking import reported
from ags1.streams.files import Progress
from ags1.work.records import found_runs


@dataclass(frozen=True)
class MaintenancePolicy:
    """What :meth:`EncryptedTable.maintain` does.

    Attributes
    ----------
    branches : tuple of str
        Branches that are compacted, and whose manifests are written again.
    compaction : CompactionOptions or None
        None leaves data files as they are.
    manifests : bool
        Write manifests again, without delete files that delete nothing any more.
    expire_older_than : timedelta or None
        Remove snapshots that no branch or tag has and that are older, with their files and keys; None keeps all.
    statistics : {"keep", "drop"}
        As for :func:`ags1.iceberg.expire_snapshots`.
    clean_older_than : timedelta or None
        Remove files that nothing names and that are older; None keeps them. It must be longer than the longest commit.
    """

    branches: tuple[str, ...] = ("main",)
    compaction: CompactionOptions | None = field(default_factory=CompactionOptions)
    manifests: bool = True
    expire_older_than: datetime.timedelta | None = datetime.timedelta(days=5)
    statistics: str = KEEP
    clean_older_than: datetime.timedelta | None = datetime.timedelta(days=3)


def maintain(
    table: Any, policy: MaintenancePolicy, *, dry_run: bool = False, progress: Progress | None = None
) -> MaintenanceReport:
    """Do what a policy says; errors are those of :meth:`EncryptedTable.maintain`."""
    for age in (policy.expire_older_than, policy.clean_older_than):
        if age is not None:
            check_age(age)
    for name in policy.branches:
        # Refuses what cannot be maintained, before anything is done.
        WriteTarget(table, name)
    if dry_run:
        return _steps(table, policy, dry_run, progress)
    _refuse_conversion(table)
    state = table.catalog_table.load()
    run = announce_maintenance(journals_of(table.catalog_table, state), str(state.document.fields.get("table-uuid")))
    try:
        return _steps(table, policy, dry_run, progress)
    finally:
        # What stays of a killed run tells others of it until it is cleaned, and prevents nothing.
        with contextlib.suppress(OSError):
            remove_run(run)


def _steps(table: Any, policy: MaintenancePolicy, dry_run: bool, progress: Progress | None) -> MaintenanceReport:
    report = reported(MaintenanceReport(table.catalog_table.name, dry_run), table.io.kms)
    for name in policy.branches:
        if policy.compaction is not None:
            _refuse_conversion(table)
            options = replace(policy.compaction, dry_run=True) if dry_run else policy.compaction
            report.compactions.append(compact(WriteTarget(table, name), options, progress))
        if policy.manifests:
            _refuse_conversion(table)
            report.manifests.append(rewrite_manifests(WriteTarget(table, name), dry_run=dry_run))
    if policy.expire_older_than is not None:
        _refuse_conversion(table)
        report.expired = expire_snapshots(
            table, statistics=policy.statistics, older_than=policy.expire_older_than, dry_run=dry_run
        )
    if policy.clean_older_than is not None:
        _refuse_conversion(table)
        report.cleaned = clean(table, older_than=policy.clean_older_than, dry_run=dry_run)
    table.refresh()
    return report


def _refuse_conversion(table: Any) -> None:
    """Refuse to work beside a conversion: each would make the files of the other useless."""
    journals = journals_of(table.catalog_table, table.catalog_table.load())
    runs = [each for each in found_runs(journals) if not is_maintenance(each)]
    if runs:
        raise ConflictError(
            f"{table.catalog_table.name}: a conversion is under way, or was killed ({runs[0].directory}): run it again "
            "to its end, or give it up with `ags1 iceberg clean` once it is old enough, and then maintain the table"
        )
