"""Reading the tasks of a scan into Arrow: Parquet and Avro files, with deletes of every kind.

PyIceberg submits all files of a scan at once and keeps what each gives until its turn. Here a window of files is read
ahead, so that a scan of any size takes the memory of a few of them, and of its deletes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pyarrow
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, _get_file_format, _read_deletes, pyarrow_to_schema, schema_to_pyarrow
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask

from ags1._blocks import usable_cpus
from ags1.errors import Ags1Error, FormatError
from ags1.iceberg._equality_deletes import DeletedKeys, KeyColumns
from ags1.iceberg._planning import EqualityDeletes, ScanTask
from ags1.iceberg._projection import Projection, name_mapping

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["EncryptedArrowScan"]

_BUFFER = 8 << 20


class EncryptedArrowScan(ArrowScan):
    """PyIceberg's scan, with Avro files, equality deletes and bounded memory."""

    def to_record_batches(self, tasks: Iterable[Any]) -> Iterator[pyarrow.RecordBatch]:
        """Batches of all tasks, in their order, and of one schema.

        Raises
        ------
        FormatError
            A file is damaged, or a delete cannot be applied; names the file.
        """
        tasks = list(tasks)
        with ThreadPoolExecutor(max_workers=usable_cpus(), thread_name_prefix="ags1-scan") as executor:
            positions = self._deleted_positions(tasks, executor)
            keys = self._deleted_keys(tasks, executor)
            left = self._limit
            for batches in _ahead(executor, tasks, lambda task: self._rows(task, positions, keys)):
                for batch in batches:
                    if left is not None:
                        batch = batch.slice(0, left)
                        left -= batch.num_rows
                    yield batch
                    if left is not None and left <= 0:
                        return

    def _rows(
        self, task: Any, positions: dict[str, list[Any]], keys: dict[EqualityDeletes, DeletedKeys]
    ) -> list[pyarrow.RecordBatch]:
        """Rows of a data file, all of one schema: files have text with short or with long offsets."""
        schema = schema_to_pyarrow(self._projected_schema, include_field_ids=False)
        with _naming(task.file):
            return [batch.cast(schema) for batch in self._left(task, positions, keys)]

    def _left(
        self, task: Any, positions: dict[str, list[Any]], keys: dict[EqualityDeletes, DeletedKeys]
    ) -> list[pyarrow.RecordBatch]:
        """Rows of a data file that are left of it."""
        deleted = positions.get(task.file.file_path)
        groups = task.equality_deletes if isinstance(task, ScanTask) else ()
        if not groups:
            return self._batches(task, deleted)
        field_ids = dict.fromkeys(field_id for group in groups for field_id in group.field_ids)
        columns = KeyColumns(self._projected_schema, self._table_metadata, field_ids)
        batches = self._with_schema(columns.schema, self._bound_row_filter)._batches(task, deleted)
        if not batches:
            return []
        table = pyarrow.Table.from_batches(batches)
        for group in groups:
            table = keys[group].left(table, columns, task.sequence_number)
        return [batch for batch in table.select(range(columns.width)).to_batches() if batch.num_rows]

    def _with_schema(self, schema: Schema, row_filter: Any) -> EncryptedArrowScan:
        """The same scan for other columns, and without a limit: rows are deleted from what it reads."""
        scan = EncryptedArrowScan(self._table_metadata, self._io, schema, AlwaysTrue(), self._case_sensitive)
        scan._bound_row_filter = row_filter
        return scan

    def _deleted_positions(self, tasks: list[Any], executor: ThreadPoolExecutor) -> dict[str, list[Any]]:
        """Deleted positions by data file."""
        files = {}
        for task in tasks:
            for file in task.delete_files:
                if file.content != DataFileContent.EQUALITY_DELETES:
                    files[file.file_path] = file
                elif not isinstance(task, ScanTask):
                    raise FormatError(f"{file.file_path}: equality deletes are applied only to tasks of plan_files()")
        found: dict[str, list[Any]] = {}
        for positions in executor.map(self._read_positions, files.values()):
            for path, array in positions.items():
                found.setdefault(path, []).append(array)
        return found

    def _read_positions(self, file: Any) -> dict[str, Any]:
        if file.file_format == FileFormat.AVRO:
            from ags1.iceberg._avro_files import read_position_deletes

            return read_position_deletes(self._io, file)
        with _naming(file):
            positions: dict[str, Any] = _read_deletes(self._io, file)
            return positions

    def _deleted_keys(self, tasks: list[Any], executor: ThreadPoolExecutor) -> dict[EqualityDeletes, DeletedKeys]:
        """Deleted rows by group."""
        groups = dict.fromkeys(group for task in tasks if isinstance(task, ScanTask) for group in task.equality_deletes)
        pending = []
        for group in groups:
            with _naming(group.files[0][0]):
                columns = KeyColumns(Schema(), self._table_metadata, group.field_ids, required=True)
            reading = [executor.submit(self._read_keys, file, columns) for file, _ in group.files]
            pending.append((group, reading, columns))
        made = {}
        for group, reading, columns in pending:
            tables = [each.result() for each in reading]
            with _naming(group.files[0][0]):
                made[group] = DeletedKeys(group, tables, columns)
        return made

    def _read_keys(self, file: Any, columns: KeyColumns) -> pyarrow.Table:
        with _naming(file):
            batches = self._with_schema(columns.schema, AlwaysTrue())._batches(FileScanTask(file), None)
            if batches:
                return pyarrow.Table.from_batches(batches)
            return schema_to_pyarrow(columns.schema, include_field_ids=False).empty_table()

    def _batches(self, task: Any, positions: list[Any] | None) -> list[pyarrow.RecordBatch]:
        if task.file.file_format == FileFormat.AVRO:
            from ags1.iceberg._avro_files import read_task

            return read_task(self, task, positions)
        with _naming(task.file):
            return self._parquet_batches(task, positions)

    def _parquet_batches(self, task: Any, positions: list[Any] | None) -> list[pyarrow.RecordBatch]:
        """As PyIceberg reads it, but with a projection that keeps lists that are null."""
        import pyarrow.dataset as dataset

        made: list[pyarrow.RecordBatch] = []
        downcast = self._downcast_ns_timestamp_to_us
        version = self._table_metadata.format_version
        arrow_format = _get_file_format(task.file.file_format, pre_buffer=True, buffer_size=_BUFFER)
        with self._io.new_input(task.file.file_path).open() as file:
            fragment = arrow_format.make_fragment(file)
            physical = fragment.physical_schema
            file_schema = pyarrow_to_schema(
                physical,
                name_mapping(self),
                downcast_ns_timestamp_to_us=version <= 2 if downcast is None else downcast,
                format_version=version,
            )
            projection = Projection(self, task, file_schema)
            if projection.is_empty:
                return made
            scanner = dataset.Scanner.from_fragment(
                fragment,
                schema=physical,
                columns=[column.name for column in projection.file_schema.columns],
                # Positions count all rows.
                filter=None if positions else projection.filter,
            )
            start, left = 0, projection.limit
            for batch in scanner.to_batches():
                selected = projection.select(batch, start, positions) if positions else batch
                start += batch.num_rows
                if selected.num_rows == 0:
                    continue
                made.append(projection.project(selected))
                if left is not None:
                    left -= selected.num_rows
                    if left <= 0:
                        break
        return made


class _naming:
    """Gives errors that the bytes of a file can cause the file's name."""

    def __init__(self, file: Any) -> None:
        self._path = file.file_path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is None or not isinstance(error, Exception) or isinstance(error, (MemoryError, ImportError)):
            return
        if isinstance(error, Ags1Error):
            # Messages about local files have the path without its scheme.
            if self._path.rpartition("/")[2] not in str(error):
                error.args = (f"{self._path}: {error}",)
            return
        if isinstance(error, OSError) and error.errno is not None:
            return
        # Arrow and PyIceberg raise whatever the wrong bytes lead them to; Arrow's own errors for them are OSError.
        raise FormatError(f"{self._path}: cannot be read: {type(error).__name__}: {error}") from error


def _ahead(executor: ThreadPoolExecutor, tasks: list[Any], read: Callable[[Any], Any]) -> Iterator[Any]:
    """Results in order, with no more than a window of them under way or waiting."""
    window = 2 * usable_cpus()
    waiting: deque[Future[Any]] = deque()
    try:
        for task in tasks:
            waiting.append(executor.submit(read, task))
            if len(waiting) >= window:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()
