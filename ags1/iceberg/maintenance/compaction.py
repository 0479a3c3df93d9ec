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

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import pyarrow
import pyarrow.parquet
from pyiceberg.manifest import FileFormat
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

from ags1.core.blocks import usable_cpus
from ags1.iceberg.files.file_io import SnapshotFiles, row_group_limit
from ags1.iceberg.maintenance.reports import CompactionReport
from ags1.iceberg.maintenance.selection import TOO_LARGE, Bin, Selection, is_as_planned
from ags1.iceberg.metadata._naming import naming
from ags1.iceberg.metadata.manifests import DATA, ManifestEntry
from ags1.iceberg.scan._planning import ScanTask
from ags1.iceberg.scan._projection import LAST_UPDATED, LINEAGE, ROW_ID
from ags1.iceberg.writing.change import RowChange, WriteTarget, check_still_fits
from ags1.iceberg.writing.data_files import DataFiles
from ags1.iceberg.writing.metadata import TableMetadata
from ags1.iceberg.writing.table_files import TableFiles
from ags1.iceberg.writing.terms import as_order
from ags1.parquet.view.view import ParquetView
from ags1.streams.files import Progress
from ags1.support.parallel import SharedProgress, in_parallel

__all__ = ["CompactionOptions", "compact"]

_KEPT = {name: each for name, each in LINEAGE.items() if each.field_id in (ROW_ID, LAST_UPDATED)}
# Stored bytes of a row group that is moved; smaller ones are merged.
_LEAST_MOVED = 32 << 20
# Bytes of the numbers of a row.
_NUMBERS = 16
# As Iceberg Java, half-way between the target and what is too large.
_SPARE = 1.4
# Bytes of rows that are read ahead.
_AHEAD = 32 << 20
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

    def planned(self) -> CompactionOptions:
        """Return the same as a dry run."""
        return replace(self, dry_run=True)


def compact(
    target: WriteTarget, options: CompactionOptions = CompactionOptions(), progress: Progress | None = None
) -> CompactionReport:
    """Compact the files of a branch; arguments and errors are those of :meth:`EncryptedTable.compact`."""
    return _Compaction(target, options).run(progress)


class _Compaction:
    """A compaction of one branch, planned."""

    def __init__(self, target: WriteTarget, options: CompactionOptions) -> None:
        for name, number in (("target_bytes", options.target_bytes), ("min_input_files", options.min_input_files)):
            if number is not None and number < 1:
                raise ValueError(f"{name} must be at least 1, got {number}")
        self._target = target
        # As it is now: the target's has the state of the newest commit.
        self._table = table = copy(target.table)
        self._dry_run = options.dry_run
        order = as_order(options.sort_by, table.schema)
        if order.fields and order.fields == table.table.sort_order().fields:
            order = table.table.sort_order()
        elif order.fields:
            # The number of an order that the table does not have would be another's.
            order = order.model_copy(update={"order_id": UNSORTED_SORT_ORDER.order_id})
        self._layout = target.layout(tuple(_KEPT.values()), order)
        if options.target_bytes is not None:
            self._layout.target_size = options.target_bytes
        snapshot = TableMetadata(table.document.fields).snapshot_of(target.ref)
        self._snapshot = snapshot
        # A snapshot of format version 1 has none.
        self._number = 0 if snapshot is None else snapshot.get("sequence-number", 0)
        spec_id = self._layout.partitioning.spec_id
        selection = Selection(self._layout.target_size, spec_id, options.min_input_files, options.rewrite_all)
        tasks = [] if snapshot is None else _tasks(table, target.ref, options.where)
        self._bins = selection.bins(tasks)
        self.report = CompactionReport(table.catalog_table.name, target.ref, options.dry_run)
        count = sum(len(each.tasks) for each in self._bins)
        self.report.unchanged = len(tasks) - count
        if options.dry_run:
            self.report.files, self.report.bytes = count, sum(each.bytes for each in self._bins)

    def run(self, progress: Progress | None) -> CompactionReport:
        """Do it."""
        if self._dry_run:
            return self.report
        advance = SharedProgress(progress, sum(each.bytes for each in self._bins))
        with advance.errors():
            for bins in _batches(self._bins):
                self._rewrite(bins, advance)
        return self.report

    def _rewrite(self, bins: list[Bin], advance: SharedProgress) -> None:
        """Write some files again, and commit them."""
        files = self._target.data_files()

        moving = self._entries(bins)

        def work(each: Bin) -> list[ManifestEntry]:
            with advance.part(each.bytes) as within:
                return self._written(each, moving, files, within)

        try:
            made = list(
                in_parallel(work, bins, usable_cpus(), alone=lambda each: each.bytes > _SMALL_BIN, stop=advance.stop)
            )
        except BaseException:
            files.discard()
            raise
        self._commit(bins, made, files)

    def _entries(self, bins: list[Bin]) -> dict[str, ManifestEntry]:
        """What the manifests have of the files that may have row groups to move, by path."""
        if self._layout.is_sorted:
            return {}
        wanted = {task.file.file_path for each in bins for task in each.tasks if self._may_move(task)}
        if not wanted or self._snapshot is None:
            return {}
        source = SnapshotFiles(self._table.io)
        return {
            entry.path: entry
            for listed in source.manifests(self._snapshot)
            if listed["content"] == DATA and listed["partition_spec_id"] == self._layout.partitioning.spec_id
            for entry in source.entries(listed)
            if entry.is_live and entry.path in wanted
        }

    def _may_move(self, task: ScanTask) -> bool:
        file = task.file
        is_parquet = file.file_format == FileFormat.PARQUET and file.spec_id == self._layout.partitioning.spec_id
        return is_parquet and not task.delete_files and file.file_size_in_bytes >= _LEAST_MOVED

    def _written(
        self,
        found: Bin,
        moving: Mapping[str, ManifestEntry],
        files: TableFiles,
        within: Callable[[int, int | None], None],
    ) -> list[ManifestEntry]:
        """Move the row groups of a bin that are large, and read and write the other rows; return the new files."""
        layout = self._layout
        if found.bytes <= _SPARE * layout.target_size:
            # The numbers of rows take room too, and what is a little over the target is no file of its own.
            layout = copy(layout)
            layout.target_size = int(_SPARE * layout.target_size)
        out, done, read, parts = DataFiles(layout, files), 0, list[ScanTask](), dict[str, list[int]]()

        def advance(task: ScanTask) -> None:
            nonlocal done
            done += task.file.file_size_in_bytes
            within(done, found.bytes)

        for task in found.tasks:
            path = task.file.file_path
            small = self._moved(task, moving[path], out) if path in moving else None
            if small == []:
                advance(task)
                continue
            read.append(task)
            if small is not None:
                parts[path] = small

        def batches() -> Iterator[pyarrow.RecordBatch]:
            columns = [*(each.name for each in self._layout.schema.fields), *_KEPT]
            scan = self._table.scan(columns=columns, ref=self._target.ref)
            for file in scan.by_file(read, _AHEAD, parts):
                yield from file.batches
                advance(file.task)

        entries = out.write_all(batches())
        for each in entries:
            each.sequence_number = self._number
        return entries

    def _moved(self, task: ScanTask, entry: ManifestEntry, out: DataFiles) -> list[int] | None:
        """Move the large row groups of a file; return the others, or None if nothing can be moved."""
        path = task.file.file_path
        with naming(path, "cannot be read"), self._table.io.new_input(path).open() as view:
            if not isinstance(view, ParquetView) or not self._layout.fits(view):
                return None
            metadata = pyarrow.parquet.read_metadata(view)
            sizes = [_stored(metadata.row_group(index)) for index in range(metadata.num_row_groups)]
            # One that is too large for a file would be a file that is too large again.
            most = TOO_LARGE * self._layout.target_size
            # A footer can state any number of rows, which all get numbers.
            rows = row_group_limit(self._table.io.properties) // _NUMBERS
            large = [
                index
                for index, size in enumerate(sizes)
                if _LEAST_MOVED <= size <= most and metadata.row_group(index).num_rows <= rows
            ]
            if not large or metadata.num_rows != task.file.record_count:
                return None
            out.move(view, entry.file, large, (self._numbers(task, index) for index in large))
            self.report.moved_bytes += sum(sizes[index] for index in large)
        return [index for index in range(len(sizes)) if index not in large]

    def _numbers(self, task: ScanTask, row_group: int) -> pyarrow.Table:
        """The lineage columns of a row group, of which a file may have some, none or all values."""
        scan = self._table.scan(columns=list(_KEPT), ref=self._target.ref)
        schema = pyarrow.schema(list(self._layout.shape.arrow)[-len(_KEPT) :])
        with closing(scan.by_file([task], _AHEAD, {task.file.file_path: [row_group]})) as files:
            batches = [batch.cast(schema) for file in files for batch in file.batches]
        return pyarrow.Table.from_batches(batches, schema)

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
        spec_id = self._layout.partitioning.spec_id
        return lambda task: is_as_planned(task, now.get(task.file.file_path), self._number, spec_id)


def _stored(group: Any) -> int:
    return sum(int(group.column(index).total_compressed_size) for index in range(group.num_columns))


def _tasks(table: Any, ref: str, where: Any = None) -> list[ScanTask]:
    """Return the data files of a branch; with a filter, those that may have such rows, with all their deletes."""
    if ref not in table.refs:
        return []
    found: list[ScanTask] = table.scan(ref=ref).plan_files()
    if where is None:
        return found
    paths = {each.file.file_path for each in table.scan(row_filter=where, ref=ref).plan_files()}
    return [each for each in found if each.file.file_path in paths]


def _batches(bins: Iterable[Bin]) -> Iterator[list[Bin]]:
    waiting: list[Bin] = []
    for each in bins:
        waiting.append(each)
        if sum(one.bytes for one in waiting) >= _COMMITTED:
            yield waiting
            waiting = []
    if waiting:
        yield waiting
