"""Which data files a compaction writes again, and which of them become one file.

    data files --size, deletes--> chosen --partition and spec--> bins of about the target size --worth it?--> work

The limits are those of Spark's ``rewrite_data_files``. Source: Iceberg Java's SizeBasedFileRewritePlanner and
BinPackRewriteFilePlanner.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.utils.bin_packing import ListPacker

from ags1.iceberg.metadata.manifests import ManifestEntry
from ags1.iceberg.scan.planning import ScanTask

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
        chosen = [each for each in tasks if self.everything or self._is_odd(each) or _must(each)]
        chosen.sort(key=lambda each: (each.sequence_number, each.file.file_path))
        by_partition: dict[tuple[Any, ...], list[ScanTask]] = {}
        for each in chosen:
            by_partition.setdefault(self._partition(each), []).append(each)
        # A file goes into the first bin that has room, of the last few.
        packer = ListPacker[ScanTask](self.target, _OPEN_BINS, False)
        bins = (Bin(tasks) for found in by_partition.values() for tasks in packer.pack(found, _size))
        return [each for each in bins if self._is_worth_it(each)]

    def _is_odd(self, task: ScanTask) -> bool:
        return not _SMALL * self.target <= _size(task) <= TOO_LARGE * self.target

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
