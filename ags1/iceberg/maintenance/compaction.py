"""Compaction: small files and files with deletes become files of the target size, with the same rows.

    plan --bins--> new files, with each row's number --> commit: still as planned? --> one `replace` snapshot
                                                             | no: these files stay as they are

Large row groups of files without deletes are moved: their pages are encrypted again and not decoded. All other rows are
read and written again, so that no file has many tiny row groups.

A row keeps ``_row_id`` and ``_last_updated_sequence_number``: both are columns of the new files. These have the data
sequence number of the snapshot that was read, so that equality deletes that others commit meanwhile apply to them. What
others append meanwhile is not touched; a file from which they delete rows, or which they remove, is left to them, and
what was made of it is removed. Source: Iceberg table spec, "Row Lineage" and "Sequence Numbers"; Iceberg Java's
RewriteDataFilesCommitManager and MergingSnapshotProducer.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Protocol

from ags1.core.blocks import usable_cpus
from ags1.errors import ConflictError
from ags1.iceberg.files.file_io import KnownFile, SnapshotFiles
from ags1.iceberg.maintenance.reports import CompactionReport
from ags1.iceberg.maintenance.rewriting import Bin, BinRewriter, RewriteJob, Rewritten, Selection, is_as_planned
from ags1.iceberg.metadata.manifests import DATA, ManifestEntry
from ags1.iceberg.scan.planning import ScanTask
from ags1.iceberg.writing.change import RowChange, WriteTarget, check_still_fits
from ags1.iceberg.writing.commit import TableFiles
from ags1.kms.asking import reported
from ags1.streams.files import Progress
from ags1.support.arguments import at_least_one
from ags1.support.grouping import grouped
from ags1.work.units import Advance, OneByOne, SharedProgress, Threads, run_on_threads

# Bins of fewer stored bytes are written side by side.
_SMALL_BIN = 16 << 20
# After so many stored bytes, what is done is committed: a killed run loses no more.
_COMMITTED = 16 << 30


@dataclass(frozen=True)
class CompactionOptions:
    """How to compact: the arguments of :meth:`EncryptedTable.compact` of the same names."""

    target_bytes: int | None = None
    where: Any = None
    sort_by: Sequence[str] | None = None
    min_input_files: int = 5
    rewrite_all: bool = False
    dry_run: bool = False


class Perform(Protocol):
    """Writes bins again in other processes, into the directory of the job."""

    at_once: int
    """Bins that are written side by side."""

    def __call__(self, job: RewriteJob, bins: list[tuple[Bin, list[KnownFile]]]) -> Iterable[Rewritten]:
        """Return what the bins became, in their order. Both have keys, so they must travel sealed."""


def compact(
    target: WriteTarget,
    options: CompactionOptions = CompactionOptions(),
    progress: Progress | None = None,
    perform: Perform | None = None,
) -> CompactionReport:
    """Compact the files of a branch; arguments and errors are those of :meth:`EncryptedTable.compact`.

    With `perform`, the bins are written in other processes, and `progress` is not called. What attempts that do not
    count have written is removed. A process that still writes afterwards leaves it to :func:`ags1.iceberg.clean`.
    """
    snapshot_id = target.table.refs.get(target.ref)
    try:
        return _Compaction(target, options, perform).run(progress)
    except FileNotFoundError as error:
        if target.has_snapshot(snapshot_id):
            raise
        raise ConflictError(
            f"{target.table.catalog_table.name}: others have changed these files, and expired the snapshot that was "
            f"read ({error}). What was committed before stays: compact the table again"
        ) from error


class _Compaction:
    """A compaction of one branch, planned."""

    def __init__(self, target: WriteTarget, options: CompactionOptions, perform: Perform | None) -> None:
        at_least_one(options.target_bytes, "target_bytes")
        at_least_one(options.min_input_files, "min_input_files")
        self._target, self._options, self._perform = target, options, perform
        # As it is now: the target's has the state of the newest commit.
        self._table = copy(target.table)
        self._rewriter = BinRewriter(self._table, target.ref, options.target_bytes, options.sort_by)
        self._snapshot, self._layout = self._rewriter.snapshot, self._rewriter.layout
        spec_id = self._layout.partitioning.spec_id
        selection = Selection(self._layout.target_size, spec_id, options.min_input_files, options.rewrite_all)
        tasks = [] if self._snapshot is None else _tasks(self._table, target.ref, options.where)
        self._bins = selection.bins(tasks)
        self.report = CompactionReport(self._table.catalog_table.name, target.ref, options.dry_run)
        reported(self.report, self._table.io.kms)
        count = sum(len(each.tasks) for each in self._bins)
        self.report.unchanged = len(tasks) - count
        if options.dry_run:
            self.report.files, self.report.bytes = count, sum(each.bytes for each in self._bins)

    def run(self, progress: Progress | None) -> CompactionReport:
        """Do it."""
        if self._options.dry_run:
            return self.report
        advance = SharedProgress(progress, sum(each.bytes for each in self._bins))
        at_once = 1 if self._perform is None else self._perform.at_once
        for bins in grouped(self._bins, lambda each: each.bytes, at_once * _COMMITTED):
            self._rewrite(bins, advance)
        return self.report

    def _rewrite(self, bins: list[Bin], advance: SharedProgress) -> None:
        """Write some files again, and commit them."""
        self._find_entries(bins)
        directory = "" if self._perform is None else str(uuid.uuid4())
        files = self._target.data_files(directory)
        try:
            made = list(self._elsewhere(bins, directory) if directory else self._made(bins, files, advance))
            files.find()
        except BaseException:
            with contextlib.suppress(OSError):
                files.find()
            files.discard()
            raise
        self.report.moved_bytes += sum(each.moved_bytes for each in made)
        self._commit(bins, [each.entries for each in made], files)

    def _made(self, bins: list[Bin], files: TableFiles, advance: SharedProgress) -> Iterable[Rewritten]:
        def rewrite(each: Bin, threads: int | None, within: Advance) -> Rewritten:
            return self._rewriter.rewritten(each, files, within)

        work = OneByOne(rewrite, lambda each: each.bytes)
        made = run_on_threads(work, bins, Threads(usable_cpus(), alone=_SMALL_BIN), advance)
        return (each.result for each in made)

    def _elsewhere(self, bins: list[Bin], directory: str) -> Iterable[Rewritten]:
        assert self._perform is not None
        find = self._table.io.keys.find
        keys = [
            [
                known
                for path in sorted(each.paths.union(file.file_path for of in each.tasks for file in of.delete_files))
                if (known := find(path)) is not None
            ]
            for each in bins
        ]
        return self._perform(self._rewriter.job(directory, self._options.sort_by), list(zip(bins, keys, strict=True)))

    def _find_entries(self, bins: list[Bin]) -> None:
        """Give the bins what the manifests have of the files that may have row groups to move."""
        owners = {task.file.file_path: each for each in bins for task in each.tasks if self._rewriter.may_move(task)}
        if not owners or self._snapshot is None:
            return
        source = SnapshotFiles(self._table.io)
        for listed in source.manifests(self._snapshot):
            if listed["content"] == DATA and listed["partition_spec_id"] == self._layout.partitioning.spec_id:
                for entry in source.entries(listed):
                    if entry.is_live and entry.path in owners:
                        owners[entry.path].moving[entry.path] = entry

    def _commit(self, bins: list[Bin], made: list[list[ManifestEntry]], files: TableFiles) -> None:
        left: list[str] = []
        kept: list[tuple[Bin, list[ManifestEntry]]] = []

        def plan(table: Any, _: TableFiles) -> RowChange:
            check_still_fits(table, self._layout)
            as_planned = self._still_there(table)
            kept[:] = [
                (each, entries) for each, entries in zip(bins, made, strict=True) if all(map(as_planned, each.tasks))
            ]
            left[:] = sorted({path for each in bins for path in each.paths}.difference(*(e.paths for e, _ in kept)))
            change = RowChange(self._layout.partitioning, replaces=True)
            change.added = [entry for _, entries in kept for entry in entries]
            change.removed = {path for each, _ in kept for path in each.paths}
            return change

        done = self._target.commit(plan, "replace", files)
        report = self.report
        report.left += left
        if done.snapshot_id is None:
            return
        report.snapshots.append(done.snapshot_id)
        report.files += done.removed_files
        report.bytes += sum(each.bytes for each, _ in kept)
        report.added_files += done.added_files
        report.added_bytes += done.added_bytes
        report.deleted_rows += sum(task.file.record_count for each, _ in kept for task in each.tasks) - done.added_rows
        # What was made of files that others have changed.
        named = {entry.path for _, entries in kept for entry in entries}
        files.written[:] = [path for path in files.written if path not in named]
        files.discard()

    def _still_there(self, table: Any) -> Callable[[ScanTask], bool]:
        """Return whether a file has the rows that it had when it was read."""
        if self._snapshot is not None and table.refs.get(self._target.ref) == self._snapshot["snapshot-id"]:
            return lambda _: True
        now = {each.file.file_path: each for each in _tasks(table, self._target.ref)}
        number, spec_id = self._rewriter.sequence_number, self._layout.partitioning.spec_id
        return lambda task: is_as_planned(task, now.get(task.file.file_path), number, spec_id)


def _tasks(table: Any, ref: str, where: Any = None) -> list[ScanTask]:
    """Return the data files of a branch; with a filter, those that may have such rows, with all their deletes."""
    if ref not in table.refs:
        return []
    found: list[ScanTask] = table.scan(ref=ref).plan_files()
    if where is None:
        return found
    paths = {each.file.file_path for each in table.scan(row_filter=where, ref=ref).plan_files()}
    return [each for each in found if each.file.file_path in paths]
