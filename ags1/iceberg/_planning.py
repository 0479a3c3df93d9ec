"""Which files a scan reads, and which deletes apply to each: PyIceberg's planning, with equality deletes.

A position delete or a deletion vector applies to data files as old as itself or older, and PyIceberg finds them. An
equality delete applies to data files that are strictly older: those of its own partition, or all if its partition spec
has no partitions. Source: Iceberg table spec, "Scan Planning".

What PyIceberg would leave out is not left out here: it compares the row filter with the metrics of delete files too,
and an equality delete file may have further columns, whose metrics say nothing about the rows that it deletes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from pyiceberg.manifest import DataFileContent, FileFormat, read_manifest_list
from pyiceberg.table import FileScanTask, ManifestGroupPlanner
from pyiceberg.transforms import VoidTransform

from ags1.errors import Ags1Error, FormatError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["EqualityDeletes", "ScanTask", "plan_scan"]

_DATA_FORMATS = (FileFormat.PARQUET, FileFormat.AVRO, FileFormat.ORC)
_POSITION_FORMATS = (*_DATA_FORMATS, FileFormat.PUFFIN)
_EVERYWHERE: tuple[Any, ...] = ()
_NAN = float("nan")
_KNOWN_FORMATS = frozenset(each.value.lower() for each in FileFormat)


@dataclass(eq=False)
class EqualityDeletes:
    """Equality delete files that compare the same columns, of the same partition.

    Attributes
    ----------
    field_ids : tuple of int
        Of the columns.
    files : list of (DataFile, int)
        With their data sequence numbers.
    """

    field_ids: tuple[int, ...]
    files: list[tuple[Any, int]] = field(default_factory=list)


class ScanTask(FileScanTask):
    """A data file, and the deletes that apply to it.

    Attributes
    ----------
    file, delete_files, residual
        As PyIceberg has them; equality delete files are among `delete_files`.
    sequence_number : int
        The file's data sequence number. Of the files in `equality_deletes`, those with a higher one apply.
    equality_deletes : tuple of EqualityDeletes
    """

    def __init__(self, task: FileScanTask, sequence_number: int, equality_deletes: tuple[EqualityDeletes, ...]) -> None:
        newer = {file for group in equality_deletes for file, number in group.files if number > sequence_number}
        super().__init__(task.file, task.delete_files | newer, task.residual)
        self.sequence_number = sequence_number
        self.equality_deletes = equality_deletes


def plan_scan(plan: Any) -> list[ScanTask]:
    """The tasks of a scan.

    Parameters
    ----------
    plan : pyiceberg.table.DataScan
        Over an EncryptedFileIO.

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
        manifests = list(read_manifest_list(plan.io.new_input(snapshot.manifest_list)))
        return _Plan(plan).tasks(manifests)
    except (Ags1Error, OSError, MemoryError, ImportError):
        raise
    except Exception as error:
        # What PyIceberg's reader raises for manifests that are not what they should be has no common type.
        strange = plan.io.keys.first(lambda known: known.file_format not in _KNOWN_FORMATS)
        if strange is not None:
            raise FormatError(
                f"{strange.path}: {strange.kind} files of the format {strange.file_format!r} are not read"
            ) from error
        raise FormatError(
            f"snapshot {snapshot.snapshot_id} cannot be planned: {type(error).__name__}: {error} "
            f"(manifest list {snapshot.manifest_list})"
        ) from error


class _Planner(ManifestGroupPlanner):
    def _build_metrics_evaluator(self) -> Callable[[Any], bool]:
        data = super()._build_metrics_evaluator()
        return lambda file: file.content != DataFileContent.DATA or data(file)


class _Plan:
    """What is found while PyIceberg plans."""

    def __init__(self, plan: Any) -> None:
        self._io = plan.io
        self._specs = plan.table_metadata.specs()
        self._planner = _Planner(plan.table_metadata, plan.io, plan.row_filter, plan.case_sensitive, plan.options)
        # By identity, with the file so that it lives: PyIceberg's tasks have the same objects, but no numbers.
        self._numbers: dict[int, tuple[Any, int]] = {}
        self._groups: dict[tuple[Any, ...], dict[tuple[int, ...], EqualityDeletes]] = {}

    def tasks(self, manifests: Iterable[Any]) -> list[ScanTask]:
        return [self._task(each) for each in self._planner.plan_files(manifests, self._is_for_pyiceberg)]

    def _is_for_pyiceberg(self, entry: Any) -> bool:
        file, number = entry.data_file, entry.sequence_number
        self._refuse_unreadable(file)
        if number is None:
            raise FormatError(f"{file.file_path}: its manifest has no sequence number for it")
        for index, value in enumerate(file.partition):
            if value != value:
                # Deletes for a partition of NaN are found only if it is the same object.
                file.partition[index] = _NAN
        if file.content == DataFileContent.EQUALITY_DELETES:
            field_ids = tuple(sorted(set(file.equality_ids or ())))
            if not field_ids:
                raise FormatError(f"{file.file_path}: this equality delete file does not say which columns it compares")
            groups = self._groups.setdefault(self._place(file), {})
            groups.setdefault(field_ids, EqualityDeletes(field_ids)).files.append((file, number))
            return False
        if file.content == DataFileContent.DATA:
            self._numbers[id(file)] = (file, number)
        return True

    def _refuse_unreadable(self, file: Any) -> None:
        positions = file.content == DataFileContent.POSITION_DELETES
        if file.file_format not in (_POSITION_FORMATS if positions else _DATA_FORMATS):
            kind = file.content.name.lower().replace("_", " ")
            raise FormatError(
                f"{file.file_path}: {kind} files of the format {file.file_format.value.lower()!r} are not read"
            )
        known = self._io.keys.find(file.file_path)
        if known is not None:
            self._io.refuse_plaintext(known)

    def _place(self, file: Any) -> tuple[Any, ...]:
        """What a delete file and the data files that it may apply to have in common: nothing, if it is for all."""
        spec = self._specs[file.spec_id]
        if all(isinstance(each.transform, VoidTransform) for each in spec.fields):
            return _EVERYWHERE
        return (file.spec_id, *file.partition)

    def _task(self, task: FileScanTask) -> ScanTask:
        number = self._numbers[id(task.file)][1]
        applying = tuple(
            group
            for place in {_EVERYWHERE, self._place(task.file)}
            for group in self._groups.get(place, {}).values()
            if any(newer > number for _, newer in group.files)
        )
        return ScanTask(task, number, applying)
