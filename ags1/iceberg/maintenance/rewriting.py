"""Bins of data files written again, in this process or another: row groups moved, other rows read and written.

    data files --size, deletes--> chosen --partition and spec--> bins of about the target size --worth it?--> work

    Bin, and the keys of its files  --BinRewriter-->  Rewritten: entries of the new files

Another process makes a BinRewriter from a RewriteJob, which has no key. Bins, and what becomes of them, have keys: they
travel sealed. The limits are those of Spark's ``rewrite_data_files``. Source: Iceberg Java's
SizeBasedFileRewritePlanner and BinPackRewriteFilePlanner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow
import pyarrow.parquet
from pyiceberg.manifest import FileFormat
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.utils.bin_packing import ListPacker

from ags1.expected import Expected
from ags1.iceberg.files.file_io import KMS, naming
from ags1.iceberg.metadata.manifests import ManifestEntry
from ags1.iceberg.scan.planning import ScanTask
from ags1.iceberg.scan.projection import LAST_UPDATED, LINEAGE, ROW_ID
from ags1.iceberg.writing.commit import TableFiles
from ags1.iceberg.writing.data_files import DataFiles, TableLayout
from ags1.iceberg.writing.metadata import TableMetadata
from ags1.iceberg.writing.terms import as_order
from ags1.parquet.view.view import ParquetView

_SMALL, TOO_LARGE = 0.75, 1.8
# Share of rows that a vector deletes.
_MANY_DELETED = 0.3
_OPEN_BINS = 10


@dataclass
class Bin:
    """Data files of one partition that become about one file, in the order of their age.

    `moving` has the entries of those that may have row groups to move, by path. Both have the keys of the files.
    """

    tasks: list[ScanTask] = field(repr=False)
    moving: dict[str, ManifestEntry] = field(default_factory=dict, repr=False)

    @property
    def paths(self) -> set[str]:
        """Paths of the files."""
        return {each.file.file_path for each in self.tasks}

    @property
    def bytes(self) -> int:
        """Stored bytes of the files."""
        return sum(map(_size, self.tasks))


@dataclass(frozen=True)
class Selection:
    """What is worth the work.

    Attributes
    ----------
    target : int
        Bytes of a new file, about.
    spec_id : int
        The table's current partition spec. Files of all older ones are written again together.
    min_input_files : int
        So many small files are worth it, if they do not make a file of the target size.
    everything : bool
        Whether files of the right size without deletes are written again too.
    """

    target: int
    spec_id: int
    min_input_files: int
    everything: bool

    def bins(self, tasks: Iterable[ScanTask]) -> list[Bin]:
        """Return the work."""
        least, most = _SMALL * self.target, TOO_LARGE * self.target
        chosen = [each for each in tasks if self.everything or not least <= _size(each) <= most or _must(each)]
        chosen.sort(key=lambda each: (each.sequence_number, each.file.file_path))
        by_partition: dict[tuple[Any, ...], list[ScanTask]] = {}
        for each in chosen:
            by_partition.setdefault(self._partition(each), []).append(each)
        # A file goes into the first bin that has room, of the last few.
        packer = ListPacker[ScanTask](self.target, _OPEN_BINS, False)
        bins = (Bin(tasks) for found in by_partition.values() for tasks in packer.pack(found, _size))
        return [each for each in bins if self._is_worth_it(each)]

    def _partition(self, task: ScanTask) -> tuple[Any, ...]:
        file: Any = task.file
        if file.spec_id != self.spec_id:
            return ()
        # Zeros of both signs are equal, and two partitions; NaN is equal to nothing, and one.
        return tuple(map(repr, file.partition))

    def _is_worth_it(self, found: Bin) -> bool:
        if self.everything or any(map(_must, found.tasks)) or found.bytes > TOO_LARGE * self.target:
            return True
        count = len(found.tasks)
        return count > 1 and (count >= self.min_input_files or found.bytes >= _SMALL * self.target)


def _size(task: ScanTask) -> int:
    return task.file.file_size_in_bytes


def _must(task: ScanTask) -> bool:
    """Whether the deletes of a file are worth writing it again."""
    deletes = task.deletes
    if deletes.position_deletes or deletes.equality_deletes:
        return True
    return deletes.vector is not None and deletes.vector.cardinality >= _MANY_DELETED * task.file.record_count


def is_as_planned(planned: ScanTask, now: ScanTask | None, sequence_number: int, spec_id: int) -> bool:
    """Whether a file still has the rows that it had in the snapshot with this sequence number.

    Equality deletes that are newer than that snapshot apply to the file that replaces it too, if that is in the same
    partition of the same spec.
    """
    if now is None or now.sequence_number != planned.sequence_number:
        return False
    before, after = planned.deletes, now.deletes
    if before.vector != after.vector or _paths(before.position_deletes) != _paths(after.position_deletes):
        return False
    newest = sequence_number if planned.file.spec_id == spec_id else None
    return _equality_deletes(planned, None) == _equality_deletes(now, newest)


def _paths(files: Iterable[Any]) -> set[str]:
    return {each.file_path for each in files}


def _equality_deletes(task: ScanTask, newest: int | None) -> set[str]:
    return {
        file.file_path
        for group in task.deletes.equality_deletes
        for file, number in group.files
        if task.sequence_number < number and (newest is None or number <= newest)
    }


_KEPT = {name: each for name, each in LINEAGE.items() if each.field_id in (ROW_ID, LAST_UPDATED)}
# Stored bytes of a row group that is moved; smaller ones are merged.
_LEAST_MOVED = 32 << 20
# Bytes of the numbers of a row.
_NUMBERS = 16
# As Iceberg Java, half-way between the target and what is too large.
_SPARE = 1.4
# Bytes of rows that are read ahead.
_AHEAD = 16 << 20


@dataclass(frozen=True)
class RewriteJob:
    """What another process needs beside bins and keys. Credentials of the storage may be in it, and in no repr.

    Attributes
    ----------
    metadata_location, metadata : str
        The table's state that was planned with: where its metadata file is, and its text.
    properties : mapping
        Of the FileIO.
    expected : Expected
        Of the FileIO, with all directories that the table's files may be in.
    ref, target_bytes, sort_by
        Arguments of :class:`BinRewriter`.
    directory : str
        Name of the directory below that of the table's data files for the new ones.
    """

    metadata_location: str
    metadata: str = field(repr=False)
    properties: Mapping[str, str] = field(repr=False)
    expected: Expected
    ref: str
    target_bytes: int | None
    sort_by: Sequence[str] | None
    directory: str


@dataclass(frozen=True)
class Rewritten:
    """The entries of the files that a bin became, and the stored bytes of the row groups that were moved."""

    entries: list[ManifestEntry] = field(repr=False)
    moved_bytes: int


class BinRewriter:
    """Writes bins of a branch again, as its newest snapshot has them. Safe to share between threads.

    Parameters
    ----------
    table : EncryptedTable
        In the state that was planned with. Its FileIO must know the keys of the files.
    ref : str
        The branch.
    target_bytes : int, optional
        Of a new file; by default that of the table.
    sort_by : sequence of str, optional
        The order of the rows in each file.

    Attributes
    ----------
    layout : TableLayout
        Of the new files.
    snapshot : mapping or None
        The newest snapshot of the branch.
    sequence_number : int
        Of that snapshot, and of the new files.
    """

    def __init__(self, table: Any, ref: str, target_bytes: int | None, sort_by: Sequence[str] | None) -> None:
        self._table, self._ref = table, ref
        pyiceberg = table.table
        order = as_order(sort_by, table.schema)
        if order.fields and order.fields == pyiceberg.sort_order().fields:
            order = pyiceberg.sort_order()
        elif order.fields:
            # The number of an order that the table does not have would be another's.
            order = order.model_copy(update={"order_id": UNSORTED_SORT_ORDER.order_id})
        further = tuple(_KEPT.values())
        self.layout = TableLayout(table.schema, pyiceberg.spec(), order, pyiceberg.properties, further)
        if target_bytes is not None:
            self.layout.target_size = target_bytes
        self.snapshot = TableMetadata(table.document.fields).snapshot_of(ref)
        # A snapshot of format version 1 has none.
        self.sequence_number = 0 if self.snapshot is None else self.snapshot.get("sequence-number", 0)

    def job(self, directory: str, sort_by: Sequence[str] | None) -> RewriteJob:
        """Return what another process needs to make the same; `directory` is that of the new files."""
        table = self._table
        # The KMS is not asked there: keys of files come with the bins.
        properties = {name: text for name, text in table.io.properties.items() if name != KMS}
        expected = replace(table.io.expected, allowed_locations=table.io.locations.roots)
        location, text = table.metadata_location, table.document.text
        return RewriteJob(location, text, properties, expected, self._ref, self.layout.target_size, sort_by, directory)

    def may_move(self, task: ScanTask) -> bool:
        """Whether a file may have row groups to move."""
        file = task.file
        is_parquet = file.file_format == FileFormat.PARQUET and file.spec_id == self.layout.partitioning.spec_id
        is_large = is_parquet and file.file_size_in_bytes >= _LEAST_MOVED
        return is_large and not task.delete_files and not self.layout.is_sorted

    def rewritten(self, found: Bin, files: TableFiles, within: Callable[[int, int | None], None]) -> Rewritten:
        """Move the row groups of a bin that are large, and read and write the other rows.

        `within` is called with the stored bytes that are done, and their total.
        """
        layout = self.layout
        if found.bytes <= _SPARE * layout.target_size:
            # The numbers of rows take room too, and what is a little over the target is no file of its own.
            layout = copy(layout)
            layout.target_size = int(_SPARE * layout.target_size)
        out, read, parts = DataFiles(layout, files), list[ScanTask](), dict[str, list[int]]()
        done = moved = 0

        def advance(task: ScanTask) -> None:
            nonlocal done
            done += task.file.file_size_in_bytes
            within(done, found.bytes)

        for task in found.tasks:
            path = task.file.file_path
            entry = found.moving.get(path)
            small, size = (None, 0) if entry is None else self._moved(task, entry, out)
            moved += size
            if small == []:
                advance(task)
                continue
            read.append(task)
            if small is not None:
                parts[path] = small

        def batches() -> Iterator[pyarrow.RecordBatch]:
            columns = [*(each.name for each in layout.schema.fields), *_KEPT]
            scan = self._table.scan(columns=columns, ref=self._ref)
            for file in scan.by_file(read, _AHEAD, parts):
                yield from file.batches
                advance(file.task)

        entries = out.write_all(batches())
        for each in entries:
            each.sequence_number = self.sequence_number
        return Rewritten(entries, moved)

    def _moved(self, task: ScanTask, entry: ManifestEntry, out: DataFiles) -> tuple[list[int] | None, int]:
        """Move the large row groups of a file; return the others, or None if nothing was moved, and the moved bytes."""
        path = task.file.file_path
        with naming(path, "cannot be read"), self._table.io.new_input(path).open() as view:
            if not isinstance(view, ParquetView) or not self.layout.fits(view):
                return None, 0
            metadata = pyarrow.parquet.read_metadata(view)
            sizes = [_stored(metadata.row_group(index)) for index in range(metadata.num_row_groups)]
            # One that is too large for a file would be a file that is too large again.
            most = TOO_LARGE * self.layout.target_size
            # A footer can state any number of rows, which all get numbers.
            rows = self._table.io.row_group_limit // _NUMBERS
            large = [
                index
                for index, size in enumerate(sizes)
                if _LEAST_MOVED <= size <= most and metadata.row_group(index).num_rows <= rows
            ]
            if not large or metadata.num_rows != task.file.record_count:
                return None, 0
            out.move(view, entry.file, large, (self._numbers(task, index) for index in large))
        return [index for index in range(len(sizes)) if index not in large], sum(sizes[index] for index in large)

    def _numbers(self, task: ScanTask, row_group: int) -> pyarrow.Table:
        """The lineage columns of a row group, of which a file may have some, none or all values."""
        scan = self._table.scan(columns=list(_KEPT), ref=self._ref)
        schema = pyarrow.schema(list(self.layout.shape.arrow)[-len(_KEPT) :])
        with closing(scan.by_file([task], _AHEAD, {task.file.file_path: [row_group]})) as files:
            batches = [batch.cast(schema) for file in files for batch in file.batches]
        return pyarrow.Table.from_batches(batches, schema)


def _stored(group: Any) -> int:
    return sum(int(group.column(index).total_compressed_size) for index in range(group.num_columns))
