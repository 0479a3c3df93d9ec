"""Which files a scan reads, and which deletes apply to each: PyIceberg plans, and the deletes are found here.

What the row filter excludes is found by :mod:`ags1.iceberg._row_filter`: PyIceberg compares partitions and metrics in
its own way, which is not Spark's for null, NaN, defaults and literals between two values.

Metrics of delete files are not compared: an equality delete file may have further columns, whose metrics say nothing
about the rows that it deletes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pyiceberg.expressions import AlwaysTrue
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.table import FileScanTask, ManifestGroupPlanner

from ags1.errors import Ags1Error, FormatError, UnsupportedError
from ags1.iceberg._delete_index import DeleteIndex, Deletes
from ags1.iceberg._manifests import read_manifest_list
from ags1.iceberg._row_filter import RowFilter
from ags1.iceberg._value_range import of_file, of_partition, of_summaries

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["ScanTask", "plan_scan"]

_DATA_FORMATS = (FileFormat.PARQUET, FileFormat.AVRO, FileFormat.ORC)
_POSITION_FORMATS = (*_DATA_FORMATS, FileFormat.PUFFIN)
_NAN = float("nan")
_KNOWN_FORMATS = frozenset(each.value.lower() for each in FileFormat)


class ScanTask(FileScanTask):
    """A data file, and the deletes that apply to it.

    Attributes
    ----------
    file, delete_files, residual
        As PyIceberg has them; delete files of every kind are among `delete_files`.
    sequence_number : int
        The file's data sequence number. Of the files in `deletes.equality_deletes`, those with a higher one apply.
    file_sequence_number : int or None
        That of the snapshot that added the file.
    deletes : Deletes
        The same delete files by kind.
    """

    def __init__(self, task: FileScanTask, entry: Any, deletes: Deletes) -> None:
        super().__init__(task.file, set(deletes.files), task.residual)
        self.sequence_number: int = entry.sequence_number
        self.file_sequence_number: int | None = entry.file_sequence_number
        self.deletes = deletes


def plan_scan(plan: Any, row_filter: RowFilter) -> list[ScanTask]:
    """The tasks of a scan.

    Parameters
    ----------
    plan : pyiceberg.table.DataScan
        Over an EncryptedFileIO.
    row_filter : RowFilter
        Taken instead of the plan's own.

    Raises
    ------
    FormatError
        A manifest is damaged, or names a file that cannot be read: named, instead of left out.
    KeyAccessError
        A key cannot be had, or a file is plaintext and must not be.
    """
    snapshot = plan.snapshot()
    if snapshot is None:
        return []
    if not snapshot.manifest_list:
        raise FormatError(
            f"snapshot {snapshot.snapshot_id} has no manifest list: tables that name manifests in the metadata itself, "
            "as version 1 once did, are not read"
        )
    try:
        # Not through PyIceberg's cache of manifests, where another table could have put one under the same path.
        manifests = read_manifest_list(plan.io.new_input(snapshot.manifest_list))
        return _Plan(plan, row_filter).tasks(manifests)
    except (Ags1Error, OSError, MemoryError, ImportError):
        raise
    except Exception as error:
        # What PyIceberg's reader raises for manifests that are not what they should be has no common type.
        strange = plan.io.keys.first(lambda known: known.file_format not in _KNOWN_FORMATS)
        if strange is not None:
            raise UnsupportedError(
                f"{strange.path}: {strange.kind} files of the format {strange.file_format!r} are not read"
            ) from error
        raise FormatError(
            f"snapshot {snapshot.snapshot_id} cannot be planned: {type(error).__name__}: {error} "
            f"(manifest list {snapshot.manifest_list})"
        ) from error


class _Planner(ManifestGroupPlanner):
    """PyIceberg's, which asks our filter what may be left out."""

    def __init__(self, metadata: Any, file_io: Any, row_filter: RowFilter) -> None:
        super().__init__(metadata, file_io)
        self._filter, self._specs = row_filter, metadata.specs()

    def _build_manifest_evaluator(self, spec_id: int) -> Callable[[Any], bool]:
        spec = self._specs[spec_id]
        kinds = [each.field_type for each in spec.partition_type(self.table_metadata.schema()).fields]

        def may_pass(manifest: Any) -> bool:
            summaries = manifest.partitions
            if not summaries:
                return True
            return True in self._filter.possible(lambda column: of_summaries(column, spec.fields, summaries, kinds))

        return may_pass

    def _build_partition_evaluator(self, spec_id: int) -> Callable[[Any], bool]:
        fields = self._specs[spec_id].fields
        return lambda file: True in self._filter.possible(lambda column: of_partition(column, fields, file.partition))

    def _build_metrics_evaluator(self) -> Callable[[Any], bool]:
        return lambda file: (
            file.content != DataFileContent.DATA
            or True in self._filter.possible(lambda column: [of_file(column, file)])
        )

    def _build_residual_evaluator(self, spec_id: int) -> Callable[[Any], Any]:
        fields = self._specs[spec_id].fields
        return lambda file: _Residual(self._filter, fields)


class _Residual:
    """What is left to be filtered by: nothing, if the partition alone says that every row passes."""

    def __init__(self, row_filter: RowFilter, fields: Any) -> None:
        self._filter, self._fields = row_filter, fields

    def residual_for(self, partition: Any) -> Any:
        possible = self._filter.possible(lambda column: of_partition(column, self._fields, partition))
        return AlwaysTrue() if possible == {True} else self._filter.expression


class _Plan:
    """What is found while PyIceberg plans."""

    def __init__(self, plan: Any, row_filter: RowFilter) -> None:
        self._io = plan.io
        self._planner = _Planner(plan.table_metadata, plan.io, row_filter)
        self._deletes = DeleteIndex(plan.table_metadata.specs())
        # By identity of the file: PyIceberg's tasks have the same objects, but no numbers. An entry keeps its file.
        self._entries: dict[int, Any] = {}

    def tasks(self, manifests: Iterable[Any]) -> list[ScanTask]:
        return [self._task(each) for each in self._planner.plan_files(manifests, self._is_data)]

    def _is_data(self, entry: Any) -> bool:
        """Take in an entry, and leave only data files to PyIceberg."""
        file, number = entry.data_file, entry.sequence_number
        self._refuse_unreadable(file)
        if number is None:
            raise FormatError(f"{file.file_path}: its manifest has no sequence number for it")
        for index, value in enumerate(file.partition):
            if value != value:
                # Deletes for a partition of NaN are found only if it is the same object.
                file.partition[index] = _NAN
        if file.content != DataFileContent.DATA:
            self._deletes.add(file, number)
            return False
        self._entries[id(file)] = entry
        return True

    def _refuse_unreadable(self, file: Any) -> None:
        positions = file.content == DataFileContent.POSITION_DELETES
        if file.file_format not in (_POSITION_FORMATS if positions else _DATA_FORMATS):
            kind = file.content.name.lower().replace("_", " ")
            raise UnsupportedError(
                f"{file.file_path}: {kind} files of the format {file.file_format.value.lower()!r} are not read"
            )
        known = self._io.keys.find(file.file_path)
        if known is not None:
            self._io.refuse_plaintext(known)

    def _task(self, task: FileScanTask) -> ScanTask:
        entry = self._entries[id(task.file)]
        return ScanTask(task, entry, self._deletes.of(task.file, entry.sequence_number))
