"""Scans of a table: rows and columns to read, and the files of the plan read into Arrow, with deletes of every kind.

    file  --rows by position-->  not deleted  --projected-->  the scan's columns  --filter, equality deletes-->  rows

PyIceberg submits all files of a scan at once and keeps the rows of each until its turn. Here a window of files is read
ahead, of each no more than a few batches, so a scan of any size needs the memory of these and of its deletes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from copy import copy
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from typing import Any

import pyarrow
import pyarrow.compute as compute
import pyarrow.dataset as dataset
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import pyarrow_to_schema, schema_to_pyarrow
from pyiceberg.manifest import FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask

from ags1.core.blocks import usable_cpus
from ags1.iceberg.deletes import DeletionVector, EqualityDeletes
from ags1.iceberg.files.ahead import FilesAhead
from ags1.iceberg.files.file_io import naming
from ags1.iceberg.scan._equality_deletes import DeletedKeys
from ags1.iceberg.scan.deletion_vectors import deleted_positions, read_position_deletes
from ags1.iceberg.scan.planning import ScanTask, plan_scan
from ags1.iceberg.scan.projection import (
    LINEAGE,
    POSITION,
    ROW_ID,
    FileColumns,
    FurtherColumns,
    Projection,
    remaining,
    with_field_ids,
)
from ags1.iceberg.scan.row_filter import FilteredColumn, RowFilter, ValueRange, of_row_group
from ags1.iceberg.scan.row_groups import BYTES, RowGroups
from ags1.storage import are_small_objects, files_at_once
from ags1.support.grouping import grouped
from ags1.support.parallel import in_parallel, streams_in_parallel

_PROBLEM = "cannot be read"
# Bytes of rows that wait until those before them are taken; and of those that equality deletes are applied to at once,
# because each time a table of the deleted keys is made.
WAITING, _COMPARED = 1 << 30, 64 << 20
# Row groups that are decoded at once.
_GROUPS = 8


@dataclass(frozen=True)
class FileRows:
    """The part of one file that a scan reads.

    `deleted` has the positions of deleted rows: one pyroaring.BitMap64 of a deletion vector, or columns of position
    deletes. `batches` has the remaining rows that pass the filter, once, until the next file is requested.
    """

    task: ScanTask
    deleted: list[Any]
    batches: Iterator[pyarrow.RecordBatch]


class EncryptedArrowScan:
    """Reads the tasks of a scan into Arrow: Parquet, Avro and ORC files, deletes, a row filter, in bounded memory."""

    def __init__(
        self, metadata: Any, file_io: Any, schema: Schema, row_filter: RowFilter | None = None, limit: int | None = None
    ) -> None:
        self.metadata, self.io, self.schema = metadata, file_io, schema
        self._filter, self._limit = row_filter, limit
        self._groups_at_once, self._use_threads = 1, True
        # Of a remote file, the next row group while one is decoded.
        self.fetches_ahead = True
        self._row_groups: Mapping[str, Sequence[int]] = {}
        self.ahead = FilesAhead(file_io)
        # Files of a table have few schemas, one after the other.
        self._known: tuple[pyarrow.Schema, Schema, FileColumns] | None = None
        self._whole: dict[tuple[int, ...], tuple[FurtherColumns, EncryptedArrowScan]] = {}

    def of(self, schema: Schema, row_filter: RowFilter | None = None) -> EncryptedArrowScan:
        """The same scan of other columns, without a limit."""
        made = copy(self)
        made.schema, made._filter, made._limit = schema, row_filter, None
        made._known, made._whole = None, {}
        made.__dict__.pop("_arrow_schema", None)
        return made

    def _whole_of(self, field_ids: Iterable[int]) -> tuple[FurtherColumns, EncryptedArrowScan]:
        """The same scan with further columns, and without a limit: rows are removed after reading."""
        wanted = tuple(field_ids)
        found = self._whole.get(wanted)
        if found is None:
            columns = FurtherColumns(self.schema, self.metadata, wanted)
            found = self._whole[wanted] = columns, self.of(columns.schema, self._filter)
        return found

    @cached_property
    def _arrow_schema(self) -> pyarrow.Schema:
        return schema_to_pyarrow(self.schema, include_field_ids=False)

    def to_record_batches(self, tasks: Iterable[Any]) -> Iterator[pyarrow.RecordBatch]:
        """Return batches of all tasks, in their order, with one schema.

        A FormatError names a damaged file. A TypeError refuses tasks that plan_files() did not make: PyIceberg's own
        tasks do not state which deletes apply.
        """
        return self._batches_of(tasks, WAITING)

    def to_table(self, tasks: Iterable[Any]) -> pyarrow.Table:
        """Return the rows of all tasks; raises as :meth:`to_record_batches`."""
        return pyarrow.Table.from_batches(self._batches_of(tasks, None), self._arrow_schema)

    def _batches_of(self, tasks: Iterable[Any], waiting: int | None) -> Iterator[pyarrow.RecordBatch]:
        left = self._limit
        with closing(self.by_file(tasks, waiting)) as files:
            for file in files:
                for batch in file.batches:
                    if left is not None:
                        batch = batch.slice(0, left)
                        left -= batch.num_rows
                    yield batch
                    if left is not None and left <= 0:
                        return

    def by_file(
        self, tasks: Iterable[Any], waiting: int | None = WAITING, row_groups: Mapping[str, Sequence[int]] | None = None
    ) -> Generator[FileRows, None, None]:
        """Return the rows of each task, in their order, without a limit; raises as :meth:`to_record_batches`.

        Of all files, about so many bytes of rows wait to be taken; with None, of a window of files all. Of the Parquet
        files in `row_groups`, by path, only those row groups are read; a filter does not choose among them.
        """
        tasks = list(tasks)
        self._row_groups = row_groups or {}
        if not all(isinstance(task, ScanTask) for task in tasks):
            raise TypeError("tasks must be those of EncryptedTableScan.plan_files()")
        sizes = [task.file.file_size_in_bytes for task in tasks]
        # Of a copied table, where the copy is.
        place = self.io.unchecked_place(tasks[0].file.file_path if tasks else ".")
        at_once = files_at_once(place, sizes, usable_cpus())
        # Threads within a file cost more than threads for files; they are for what waits, or has no others beside it.
        self._groups_at_once = max(1, min(at_once, _GROUPS) // max(1, len(tasks)))
        self._use_threads = waiting is not None or len(tasks) < at_once
        coming, threads = iter(tasks), at_once
        if are_small_objects(place, sizes):
            coming, threads = self.ahead.requested(tasks, self._known_file), usable_cpus()
        each_waiting = None if waiting is None else waiting // (2 * threads)
        deleted_of = self._deleted_positions(tasks, at_once)
        keys = self._deleted_keys(tasks, at_once)

        def read(task: ScanTask) -> Generator[pyarrow.RecordBatch, None, None]:
            try:
                yield from self._rows(task, deleted_of(task), keys)
            finally:
                self.ahead.forget(task.file.file_path)

        streams = streams_in_parallel(read, coming, threads, size=BYTES, most=each_waiting)
        with closing(self.ahead), closing(streams):
            for task, batches in zip(tasks, streams, strict=True):
                yield FileRows(task, deleted_of(task), batches)

    def _known_file(self, task: ScanTask) -> tuple[str, Any]:
        path = task.file.file_path
        return path, self.io.keys.find(path)

    def _rows(
        self, task: Any, positions: list[Any], keys: dict[EqualityDeletes, DeletedKeys]
    ) -> Generator[pyarrow.RecordBatch, None, None]:
        """Return rows of a data file with one schema: text in files may have short or long offsets."""
        schema = self._arrow_schema
        with naming(task.file.file_path, _PROBLEM), closing(self._left(task, positions, keys)) as left:
            for batch in left:
                yield batch if batch.schema.equals(schema) else batch.cast(schema)

    def _left(
        self, task: Any, positions: list[Any], keys: dict[EqualityDeletes, DeletedKeys]
    ) -> Generator[pyarrow.RecordBatch, None, None]:
        """Return the rows of a data file that pass the filter and are not deleted."""
        groups = task.deletes.equality_deletes if isinstance(task, ScanTask) else ()
        field_ids = dict.fromkeys(() if self._filter is None else self._filter.field_ids)
        field_ids |= dict.fromkeys(field_id for group in groups for field_id in group.field_ids)
        columns, whole = (None, self) if self._filter is None and not groups else self._whole_of(field_ids)
        own = range(len(self.schema.fields))
        most = self._limit
        with closing(whole.batches(task, positions)) as batches:
            # What only the filter needs is not copied.
            needed = range(len(whole.schema.fields)) if groups else own
            left = (self._passing(batch.select(needed), batch, start, positions, columns) for start, batch in batches)
            passing = (rows for rows in left if rows.num_rows)
            for batch in _without_keys(passing, groups, keys, columns, task) if groups else passing:
                yield batch.select(own)
                if most is not None:
                    most -= batch.num_rows
                    if most <= 0:
                        return

    def _passing(
        self,
        rows: pyarrow.RecordBatch,
        batch: pyarrow.RecordBatch,
        start: int,
        deleted: list[Any],
        columns: Any,
    ) -> pyarrow.RecordBatch:
        """Return those `rows` of a batch that pass the filter and are not deleted. They are copied once."""
        if self._filter is None:
            return _taken(rows, remaining(deleted, start, batch.num_rows)) if deleted else rows
        mask = self._filter.passing(partial(columns.column, batch), batch.num_rows)
        if deleted:
            return _taken(rows, remaining(deleted, start, batch.num_rows, compute.indices_nonzero(mask)))
        passing = mask.true_count
        if passing == batch.num_rows:
            return rows
        return rows.filter(mask) if passing and rows.num_columns else rows.slice(0, passing)

    def _deleted_positions(self, tasks: list[ScanTask], at_once: int) -> Callable[[ScanTask], list[Any]]:
        """Read the position deletes and deletion vectors of all tasks; return a function for those of one task."""
        files = {each.file_path: each for task in tasks for each in task.deletes.position_deletes}
        vectors: dict[str, list[DeletionVector]] = {}
        for vector in dict.fromkeys(task.deletes.vector for task in tasks):
            if vector is not None:
                vectors.setdefault(vector.path, []).append(vector)
        by_file = dict(zip(files, in_parallel(self._read_positions, files.values(), at_once), strict=True))
        reading = in_parallel(self._read_vectors, vectors.values(), at_once)
        by_vector = {vector: found for each in reading for vector, found in each.items()}

        def of(task: ScanTask) -> list[Any]:
            if task.deletes.vector is not None:
                return [by_vector[task.deletes.vector]]
            found = (by_file[each.file_path].get(task.file.file_path) for each in task.deletes.position_deletes)
            return [each for each in found if each is not None]

        return of

    def _read_vectors(self, vectors: list[DeletionVector]) -> dict[DeletionVector, Any]:
        path = vectors[0].path
        with naming(path, _PROBLEM), self.io.new_input(path).open() as file:
            return deleted_positions(file, vectors)

    def _read_positions(self, file: Any) -> dict[str, pyarrow.ChunkedArray]:
        path = file.file_path
        with naming(path, _PROBLEM), self.io.new_input(path).open() as opened:
            return read_position_deletes(opened, file.file_format.value.lower())

    def _deleted_keys(self, tasks: list[Any], at_once: int) -> dict[EqualityDeletes, DeletedKeys]:
        columns = {}
        for group in dict.fromkeys(group for task in tasks for group in task.deletes.equality_deletes):
            with naming(group.files[0][0].file_path, _PROBLEM):
                columns[group] = FurtherColumns(Schema(), self.metadata, group.field_ids, required=True)
        files = [(file, columns[group]) for group in columns for file, _ in group.files]
        tables = in_parallel(lambda each: self._read_keys(*each), files, at_once)
        made = {}
        for group in columns:
            of_group = list(islice(tables, len(group.files)))
            with naming(group.files[0][0].file_path, _PROBLEM):
                made[group] = DeletedKeys(group, of_group, columns[group])
        return made

    def _read_keys(self, file: Any, columns: FurtherColumns) -> pyarrow.Table:
        with naming(file.file_path, _PROBLEM):
            batches = [batch for _, batch in self.of(columns.schema).batches(FileScanTask(file), None)]
            if batches:
                return pyarrow.Table.from_batches(batches)
            return schema_to_pyarrow(columns.schema, include_field_ids=False).empty_table()

    def batches(self, task: Any, positions: list[Any] | None) -> Generator[tuple[int, pyarrow.RecordBatch], None, None]:
        """Return rows of a data file as the scan's columns, each batch with the position of its first row.

        The file has deletes at `positions`, which the caller leaves out.
        """
        if task.file.file_format == FileFormat.AVRO:
            from ags1.iceberg.scan.avro_files import read_task

            found = read_task(self, task)
        else:
            found = self._parquet_batches(task, positions)
        for start, batch in found:
            if batch.num_rows:
                yield start, batch

    def _parquet_batches(self, task: Any, positions: list[Any] | None) -> Iterator[tuple[int, pyarrow.RecordBatch]]:
        """Read as PyIceberg does, but with a projection that keeps null lists, and in bounded batches."""
        path = task.file.file_path
        with self.ahead.input_of(path).open() as file:
            source: Any
            if task.file.file_format == FileFormat.PARQUET:
                limit, remote = self.io.row_group_limit, file.is_remote
                at_once = max(self._groups_at_once, 2 if remote and self.fetches_ahead else 1)
                source = RowGroups(file, limit, is_remote=remote, at_once=at_once, use_threads=self._use_threads)
            else:
                source = _OrcFile(file)
            file_schema, columns = self._columns_of(source.schema, is_parquet=isinstance(source, RowGroups))
            projection = Projection(self, task, columns)
            # Positions and row ids count all rows.
            counted = bool(positions) or not {ROW_ID, POSITION}.isdisjoint(self.schema.field_ids)
            groups = None
            if self._filter is not None and not counted and isinstance(source, RowGroups):
                groups = _hopeful_groups(source, file_schema, self._filter)
            names = [column.name for column in columns.schema.columns]
            for start, chosen in _runs(source, self._row_groups.get(path), groups):
                with closing(source.batches(names, chosen)) as batches:
                    for batch in batches:
                        yield start, projection.rows(batch, start)
                        start += batch.num_rows

    def _columns_of(self, physical: pyarrow.Schema, *, is_parquet: bool) -> tuple[Schema, FileColumns]:
        """Return the schema of a Parquet or ORC file, and what is read of it; UnsupportedError: a shredded variant."""
        # What writers say about a file beside its fields.
        physical = physical.remove_metadata()
        known = self._known
        if known is None or not known[0].equals(physical, check_metadata=True):
            # What only version 3 has may be in files of any version.
            known_ids = with_field_ids(physical, self, is_parquet=is_parquet)
            file_schema = pyarrow_to_schema(known_ids, format_version=3)
            columns = FileColumns(self, file_schema)
            known = self._known = physical, file_schema, columns
        return known[1:]


def _runs(source: Any, chosen: Sequence[int] | None, hopeful: Any) -> Iterator[tuple[int, Any]]:
    """Return row groups to read, and the position of the first row of the first one; None for all that may pass."""
    if chosen is None:
        yield 0, hopeful
        return
    rows = [source.metadata.row_group(index).num_rows for index in range(source.metadata.num_row_groups)]
    for index in chosen:
        yield sum(rows[:index]), [index]


def _taken(rows: pyarrow.RecordBatch, places: pyarrow.Array) -> pyarrow.RecordBatch:
    if len(places) == rows.num_rows:
        return rows
    # Without columns only the number of rows matters.
    return rows.take(places) if rows.num_columns else rows.slice(0, len(places))


class _OrcFile:
    """An ORC file, with the interface of RowGroups."""

    def __init__(self, file: Any) -> None:
        self._fragment = dataset.OrcFileFormat().make_fragment(file)
        self.schema: pyarrow.Schema = self._fragment.physical_schema

    def batches(self, names: list[str], groups: None) -> Generator[pyarrow.RecordBatch, None, None]:
        yield from dataset.Scanner.from_fragment(self._fragment, schema=self.schema, columns=names).to_batches()


def _without_keys(
    batches: Iterable[pyarrow.RecordBatch],
    groups: Iterable[EqualityDeletes],
    keys: dict[EqualityDeletes, DeletedKeys],
    columns: Any,
    task: Any,
) -> Iterator[pyarrow.RecordBatch]:
    """Return the rows that equality deletes leave."""
    for several in grouped(batches, lambda each: each.nbytes, _COMPARED):
        table = pyarrow.Table.from_batches(several)
        for group in groups:
            table = keys[group].left(table, columns, task.sequence_number)
        yield from (batch for batch in table.to_batches() if batch.num_rows)


def _hopeful_groups(source: RowGroups, file_schema: Schema, row_filter: RowFilter) -> list[int]:
    """Return the row groups in which rows may pass a filter."""
    metadata, physical = source.metadata, source.schema
    columns = [metadata.schema.column(index) for index in range(metadata.num_columns)]
    # Only fields outside structs: a name may contain dots.
    leaves = {column.name: index for index, column in enumerate(columns) if column.name == column.path}
    top = {field.field_id: field.name for field in file_schema.fields}

    def may_pass(group: Any) -> bool:
        def ranges(column: FilteredColumn) -> list[ValueRange]:
            name = top.get(column.field_id)
            if name not in leaves or column.nested or column.is_lineage:
                return []
            found = of_row_group(column, group.column(leaves[name]).statistics, physical.field(name).type)
            return [] if found is None else [found]

        return True in row_filter.possible(ranges)

    return [index for index in range(metadata.num_row_groups) if may_pass(metadata.row_group(index))]


TYPE_CHECKING = False
if TYPE_CHECKING:
    import pandas


class EncryptedTableScan:
    """Rows and columns to read, made by :meth:`EncryptedTable.scan`. Nothing is read before rows are requested.

    Attributes
    ----------
    plan : pyiceberg.table.DataScan or IncrementalAppendScan
        PyIceberg's scan, for methods that are missing here.
    schema : pyiceberg.schema.Schema
        Schema of the rows.
    """

    def __init__(
        self,
        plan: Any,
        row_filter: RowFilter | None,
        columns: Sequence[str] | None = None,
        lineage: Collection[str] = (),
        appends: Sequence[Any] | None = None,
    ) -> None:
        self.plan = plan
        self._filter, self._appends = row_filter, appends
        self.schema = _in_order(plan, columns, lineage)

    def plan_files(self) -> list[ScanTask]:
        """Return the data files to read, with the deletes that apply to them.

        A plan takes about 2 KiB of memory for each of these files, for any number of columns, and none for skipped
        files.

        Raises
        ------
        FormatError, AuthenticationError
            A manifest is damaged, or one of the files cannot be read. The message names it; no file is left out.
        KeyAccessError
            A key is not available, or a file is plaintext although it must be encrypted.
        """
        return plan_scan(self.plan, self._filter, self._appends)

    def _arrow_scan(self, *, narrow: bool = False) -> EncryptedArrowScan:
        plan = self.plan
        schema = self.schema
        if narrow:
            # Counting needs one column.
            simple = next((each.name for each in schema.fields if each.field_type.is_primitive), None)
            schema = schema if simple is None else schema.select(simple)
        return EncryptedArrowScan(plan.table_metadata, plan.io, schema, self._filter, plan.limit)

    def with_reserved(self, *field_ids: int, alone: bool = False) -> EncryptedTableScan:
        """Return the scan with reserved columns behind its own or alone, under names that no other column has."""
        made = copy(self)
        if alone:
            made.schema = Schema()
        for field in LINEAGE.values():
            if field.field_id not in field_ids:
                continue
            name = field.name
            while name in made.schema.column_names:
                name += "'"
            made.schema = Schema(*made.schema.fields, field.model_copy(update={"name": name}))
        return made

    def by_file(
        self, tasks: list[ScanTask], waiting: int = WAITING, row_groups: Mapping[str, Sequence[int]] | None = None
    ) -> Generator[FileRows, None, None]:
        """Return the rows of each task, in their order; `limit` is not applied.

        About `waiting` bytes of rows are read ahead. Of the Parquet files in `row_groups`, by path, only those row
        groups are read.
        """
        return self._arrow_scan().by_file(tasks, waiting, row_groups)

    def to_arrow(self) -> pyarrow.Table:
        """Return all rows."""
        return self._arrow_scan().to_table(self.plan_files())

    def to_record_batches(self) -> pyarrow.RecordBatchReader:
        """Return the rows batch by batch, in bounded memory: a few files are read at a time, in order."""
        schema = schema_to_pyarrow(self.schema, include_field_ids=False)
        batches: Iterator[Any] = self._arrow_scan().to_record_batches(self.plan_files())
        return pyarrow.RecordBatchReader.from_batches(schema, batches)

    def to_pandas(self, **options: Any) -> pandas.DataFrame:
        """Return all rows as a pandas DataFrame; `options` are those of ``pyarrow.Table.to_pandas``."""
        return self.to_arrow().to_pandas(**options)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Return the rows batch by batch, for any engine that reads Arrow's streams; each call scans again."""
        return self.to_record_batches().__arrow_c_stream__(requested_schema)

    def count(self) -> int:
        """Return the number of rows; from metadata alone, where that is exact."""
        total: int = 0
        to_read = []
        for task in self.plan_files():
            if task.residual == AlwaysTrue() and not task.delete_files:
                total += task.file.record_count
            else:
                to_read.append(task)
        total += sum(batch.num_rows for batch in self._arrow_scan(narrow=True).to_record_batches(to_read))
        return total if self.plan.limit is None else min(total, self.plan.limit)


def _in_order(plan: Any, columns: Sequence[str] | None, lineage: Collection[str]) -> Any:
    """Return the schema of a scan with its columns in the requested order, lineage columns too."""
    projected = plan.projection()
    if columns is None:
        return projected
    fields = [*projected.fields, *(LINEAGE[name] for name in dict.fromkeys(columns) if name in lineage)]
    if "*" in columns:
        return Schema(*fields, schema_id=projected.schema_id)
    # A column stands where it, or a part of it, is first named.
    places: dict[int, int] = {}
    for place, name in enumerate(columns):
        named = LINEAGE[name] if name in lineage else projected.find_field(name, plan.case_sensitive)
        wanted = named.field_id
        for field in fields:
            if wanted in Schema(field).field_ids:
                places.setdefault(field.field_id, place)
    return Schema(*sorted(fields, key=lambda field: places[field.field_id]), schema_id=projected.schema_id)
