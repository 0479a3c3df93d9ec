"""Which files a scan reads, and which deletes apply to each.

    manifest list --> manifests that may have such rows --> data files that may have such rows --+--> with their deletes
                  --> manifests of delete files         --> delete files that may apply to these --+

Manifests are read side by side, entry by entry, and nothing is kept of files that are left out.
:mod:`ags1.iceberg.scan.row_filter` decides what the row filter excludes.

    appends:  from (exclusive) <-- append <-- replace <-- append <-- to (inclusive)        by parents
                                   read      skipped      read

Spark leaves out overwrites and deletes without a word, so its reader misses their rows; here they are refused. Sources:
Iceberg Java's BaseIncrementalAppendScan and SnapshotUtil; PyIceberg's IncrementalAppendScan.

Metrics of delete files are not compared: an equality delete file may have further columns, whose metrics do not
describe the rows that it deletes.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from itertools import chain
from typing import Any, NamedTuple

from pyiceberg import manifest
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.table import FileScanTask
from pyiceberg.table.snapshots import Operation
from pyiceberg.transforms import VoidTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DecimalType, UUIDType
from pyiceberg.utils.decimal import bytes_to_decimal

from ags1.errors import FormatError, UnsupportedError
from ags1.iceberg.deletes import NO_DELETES, DeleteIndex, Deletes, FileScope
from ags1.iceberg.files.file_io import SnapshotFiles, known_file, naming
from ags1.iceberg.metadata.manifests import ADDED, DATA, METRICS, POSITION_DELETES, ManifestEntry, kind_of
from ags1.iceberg.scan.row_filter import (
    FilteredColumn,
    RowFilter,
    ValueRange,
    of_file,
    of_lineage,
    of_partition,
    of_summaries,
)
from ags1.storage import SMALL_FILES_AT_ONCE
from ags1.support.parallel import in_parallel

_DATA_FORMATS = ("parquet", "avro", "orc")
_NAN = float("nan")
_FIELDS = [each.name for each in manifest.DATA_FILE_TYPE[3].fields]


class DataFile(manifest.DataFile):
    """A data or delete file as in its manifest, without the metrics of its columns."""

    __slots__ = ("_spec_id", "first_row_id")

    first_row_id: int | None
    """Row id of its first row, possibly inherited; None if its rows have none."""

    def __init__(self, file: Mapping[str, Any], spec_id: int, partition: list[Any]) -> None:
        super().__init__(*(None if name in METRICS else file.get(name) for name in _FIELDS))
        self._data[0] = DataFileContent(file["content"])
        self._data[2] = FileFormat(file["file_format"].upper())
        self._data[3] = Record(*partition)
        self.spec_id, self.first_row_id = spec_id, file.get("first_row_id")


class ScanTask(FileScanTask):
    """A data file, and the deletes that apply to it.

    Attributes
    ----------
    file : DataFile
        As PyIceberg has it, without the metrics of its columns.
    delete_files : set of DataFile
        Delete files of every kind.
    residual : pyiceberg.expressions.BooleanExpression
        The scan's filter; AlwaysTrue if the metadata proves that every row of the file passes.
    sequence_number : int
        The file's data sequence number. Files in `deletes.equality_deletes` with a higher number apply.
    deletes : Deletes
        The same delete files by kind.
    """

    def __init__(self, found: _Found, deletes: Deletes) -> None:
        super().__init__(found.file, set(deletes.files), found.residual)
        self.sequence_number = found.number
        self.deletes = deletes


def plan_scan(plan: Any, row_filter: RowFilter | None, appends: Sequence[Any] | None = None) -> list[ScanTask]:
    """Return the tasks of PyIceberg's scan over an EncryptedFileIO, with this filter instead of the scan's own.

    `appends` are snapshots: the files that they added are read, as they were then, instead of the scan's snapshot. A
    FormatError or KeyAccessError names a file that cannot be read; it is never left out.
    """
    snapshots = [each for each in (plan.snapshot(),) if each is not None] if appends is None else appends
    if not snapshots:
        return []
    for snapshot in snapshots:
        if not snapshot.manifest_list:
            raise FormatError(
                f"snapshot {snapshot.snapshot_id} has no manifest list: tables that name manifests in the metadata "
                "itself, as version 1 once did, are not read"
            )
    added_by = None if appends is None else frozenset(each.snapshot_id for each in appends)
    # PyIceberg's cache of manifests is not used: another table could have put one there under the same path.
    lists = [{"manifest-list": each.manifest_list} for each in snapshots]
    files = SnapshotFiles(plan.io)
    with closing(in_parallel(files.manifests, lists, SMALL_FILES_AT_ONCE)) as read:
        listed = list(chain.from_iterable(read))
    if added_by is not None:
        # A manifest is in the lists of all later snapshots too.
        wanted = (each for each in listed if each["content"] == DATA and each["added_snapshot_id"] in added_by)
        listed = list({each["manifest_path"]: each for each in wanted}.values())
    with naming(snapshots[-1].manifest_list):
        planner = _Planner(plan, row_filter, files, listed, added_by)
    with closing(in_parallel(planner.data_files, planner.data, SMALL_FILES_AT_ONCE)) as manifests:
        found = list(chain.from_iterable(manifests))
    if not found or not planner.deletes:
        return [ScanTask(each, NO_DELETES) for each in found]
    deletes = DeleteIndex(each.scope for each in found)
    with closing(
        in_parallel(lambda each: planner.delete_files(each, deletes), planner.deletes, SMALL_FILES_AT_ONCE)
    ) as manifests:
        for each in chain.from_iterable(manifests):
            deletes.add(each.scope, each.file)
    return [ScanTask(each, deletes.of(each.scope)) for each in found]


class _Found(NamedTuple):
    """A file of a manifest, and the filter that remains for its rows."""

    file: DataFile
    residual: Any
    number: int
    # None in a snapshot without deletes.
    scope: Any


class _Spec:
    """A partition spec, and the types that its values have now."""

    def __init__(self, spec: Any, schema: Any) -> None:
        self.spec_id = spec.spec_id
        self.fields = spec.fields
        self.kinds = [each.field_type for each in spec.partition_type(schema).fields]
        self.is_partitioned = not all(isinstance(each.transform, VoidTransform) for each in spec.fields)

    def values(self, partition: Mapping[int, Any]) -> list[Any]:
        """Return a partition as PyIceberg's object."""
        return [_value(partition[field.field_id], kind) for field, kind in zip(self.fields, self.kinds, strict=True)]


class _Planner:
    """Finds the files that may have matching rows. Safe to share between threads.

    `deletes` and `data` are the manifests to read.
    """

    def __init__(
        self,
        plan: Any,
        row_filter: RowFilter | None,
        files: SnapshotFiles,
        listed: list[dict[str, Any]],
        added_by: frozenset[int] | None,
    ) -> None:
        self._io, self._files, self._filter, self._added_by = plan.io, files, row_filter, added_by
        metadata = plan.table_metadata
        self._specs = {number: _Spec(spec, metadata.schema()) for number, spec in metadata.specs().items()}
        self.data = [each for each in listed if each["content"] == DATA and self._may_pass(each)]
        # Java too applies what names a data file to it, whatever partition it is in.
        self.deletes = [each for each in listed if each["content"] != DATA]

    def _may_pass(self, listed: Mapping[str, Any]) -> bool:
        if self._filter is None:
            return True
        summaries, spec = listed.get("partitions"), self._specs[listed["partition_spec_id"]]

        def ranges(column: FilteredColumn) -> list[ValueRange]:
            if column.is_lineage:
                return of_lineage(column, listed["sequence_number"])
            return of_summaries(column, spec.fields, summaries, spec.kinds) if summaries else []

        return True in self._filter.possible(ranges)

    def data_files(self, listed: Mapping[str, Any]) -> list[_Found]:
        """Return the files of a manifest that may have matching rows."""
        row_filter, spec = self._filter, self._specs[listed["partition_spec_id"]]

        def residual(entry: ManifestEntry, _scope: FileScope | None) -> Any:
            possible = {True} if row_filter is None else self._possible(row_filter, entry, spec)
            if row_filter is None or possible == {True}:
                return AlwaysTrue()
            return row_filter.expression if True in possible else None

        return self._chosen(listed, residual, metrics=row_filter is not None and bool(row_filter.field_ids))

    def delete_files(self, listed: Mapping[str, Any], deletes: DeleteIndex) -> list[_Found]:
        """Return the delete files of a manifest that may apply to the data files."""
        return self._chosen(listed, lambda _, scope: AlwaysTrue() if deletes.wants(scope) else None, metrics=True)

    def _chosen(
        self, listed: Mapping[str, Any], residual_of: Callable[[ManifestEntry, Any], Any], *, metrics: bool
    ) -> list[_Found]:
        """Return the files of a manifest that have a residual, if they are allowed, and register their keys."""
        path, spec, added_by = listed["manifest_path"], self._specs[listed["partition_spec_id"]], self._added_by
        found, known = [], []
        with naming(path):
            for entry in self._files.entries(listed, metrics=metrics):
                is_added = entry.status == ADDED and added_by is not None and entry.snapshot_id in added_by
                if not (entry.is_live if added_by is None else is_added):
                    continue
                if (entry.file["content"] == DATA) != (listed["content"] == DATA):
                    raise FormatError(f"{path}: has {entry.path} as {kind_of(entry.file)}, and is not for these")
                if entry.sequence_number is None:
                    raise FormatError(f"{entry.path}: its manifest has no sequence number for it")
                scope = FileScope.of(entry, spec.spec_id, spec.is_partitioned) if self.deletes else None
                residual = residual_of(entry, scope)
                if residual is not None:
                    known.append(known_file(entry.file))
                    found.append(_Found(_data_file(entry, spec), residual, entry.sequence_number, scope))
        for each in known:
            self._io.refuse_plaintext(each)
        self._io.keys.learn(known)
        return found

    def _possible(self, row_filter: RowFilter, entry: ManifestEntry, spec: _Spec) -> frozenset[bool | None]:
        """Return the possible results of the filter for the rows of a file."""

        def ranges(column: FilteredColumn) -> list[ValueRange]:
            if column.is_lineage:
                return of_lineage(column, entry.sequence_number)
            return [*of_partition(column, spec.fields, entry.file["partition"]), of_file(column, entry.file)]

        return row_filter.possible(ranges)


def _data_file(entry: ManifestEntry, spec: _Spec) -> DataFile:
    """Return PyIceberg's object for a file of a format that is read."""
    file = entry.file
    form, content = file["file_format"].lower(), file["content"]
    if form not in _DATA_FORMATS and not (content == POSITION_DELETES and form == "puffin"):
        kind = DataFileContent(content).name.lower().replace("_", " ")
        raise UnsupportedError(f"{entry.path}: {kind} files of the format {form!r} are not read")
    return DataFile(file, spec.spec_id, spec.values(file["partition"]))


def _value(raw: Any, kind: Any) -> Any:
    """Return a partition value as PyIceberg's object."""
    if raw is None:
        return None
    if isinstance(kind, DecimalType):
        return bytes_to_decimal(raw, kind.scale)
    if isinstance(kind, UUIDType):
        return uuid.UUID(bytes=raw)
    # Deletes for a partition of NaN are found only if it is the same object.
    return raw if raw == raw else _NAN


_SHOWN = 5


def appends_between(metadata: Any, start: int, end: int | None) -> list[Any]:
    """Return PyIceberg's snapshots of the appends after one snapshot, up to another or the current one; oldest first.

    `start` need not be there any more, if a later one still names it as its parent.

    Raises
    ------
    ValueError
        `end` does not exist; `start` is not among those that it was made from; a snapshot between them changed or
        deleted rows.
    """
    last = metadata.current_snapshot() if end is None else metadata.snapshot_by_id(end)
    if last is None:
        raise ValueError("the table has no snapshot yet" if end is None else f"the table has no snapshot {end}")
    found: list[Any] = []
    others: list[str] = []
    number: int | None = last.snapshot_id
    while number != start:
        each = None if number is None else metadata.snapshot_by_id(number)
        if each is None:
            missing = "" if number is None else f", whose history ends before {number}, which is expired"
            raise ValueError(
                f"snapshot {start} is not among those that {last.snapshot_id} was made from{missing}: read all rows "
                "again, or those with a higher _last_updated_sequence_number"
            )
        operation = None if each.summary is None else each.summary.operation
        if operation == Operation.APPEND:
            found.append(each)
        elif operation != Operation.REPLACE:
            others.append(f"{each.snapshot_id} ({'unknown' if operation is None else operation.value})")
        number = each.parent_snapshot_id
    if others:
        shown = ", ".join(reversed(others[-_SHOWN:])) + (", ..." if len(others) > _SHOWN else "")
        raise ValueError(
            f"between {start} and {last.snapshot_id}, rows were not only appended, but changed or deleted by {shown}: "
            "read the ranges between these, or find new and changed rows by their _last_updated_sequence_number; no "
            "scan returns rows that were deleted"
        )
    return found[::-1]
