"""Reading the tasks of a scan into Arrow: PyIceberg's reader for Parquet, ours for Avro, deletes of every format.

PyIceberg submits all files of a scan at once and keeps what each gives until its turn. Here a window of files is read
ahead, so that a scan of any size takes the memory of a few of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from pyiceberg.io.pyarrow import ArrowScan, _read_deletes
from pyiceberg.manifest import FileFormat

from ags1._blocks import usable_cpus
from ags1.errors import FormatError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    import pyarrow

__all__ = ["EncryptedArrowScan", "refuse_unreadable"]

_READABLE = (FileFormat.PARQUET, FileFormat.AVRO, FileFormat.ORC)


class EncryptedArrowScan(ArrowScan):  # type: ignore[misc]
    """PyIceberg's scan, with Avro files and bounded memory."""

    def to_record_batches(self, tasks: Iterable[Any]) -> Iterator[pyarrow.RecordBatch]:
        """Batches of all tasks, in their order."""
        tasks = list(tasks)
        with ThreadPoolExecutor(max_workers=usable_cpus(), thread_name_prefix="ags1-scan") as executor:
            deletes = self._deletes(tasks, executor)
            left = self._limit
            for batches in _ahead(executor, tasks, lambda task: self._batches(task, deletes)):
                for batch in batches:
                    if left is None:
                        yield batch
                        continue
                    if left <= 0:
                        return
                    yield batch.slice(0, left)
                    left -= min(left, batch.num_rows)
                if left is not None and left <= 0:
                    return

    def _deletes(self, tasks: list[Any], executor: ThreadPoolExecutor) -> dict[str, list[Any]]:
        """Deleted positions by data file."""
        files = list({file.file_path: file for task in tasks for file in task.delete_files}.values())
        found: dict[str, list[Any]] = {}
        for positions in executor.map(self._read_delete_file, files):
            for path, array in positions.items():
                found.setdefault(path, []).append(array)
        return found

    def _read_delete_file(self, file: Any) -> dict[str, Any]:
        if file.file_format == FileFormat.AVRO:
            from ags1.iceberg._avro_files import read_position_deletes

            return read_position_deletes(self._io, file)
        positions: dict[str, Any] = _read_deletes(self._io, file)
        return positions

    def _batches(self, task: Any, deletes: dict[str, list[Any]]) -> list[pyarrow.RecordBatch]:
        if task.file.file_format == FileFormat.AVRO:
            from ags1.iceberg._avro_files import read_task

            return read_task(self, task, deletes.get(task.file.file_path))
        return list(self._record_batches_from_scan_tasks_and_deletes([task], deletes))


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


def refuse_unreadable(plan: Callable[[], Iterable[Any]]) -> list[Any]:
    """The tasks of a plan, or an error that names what in it cannot be read."""
    try:
        tasks = list(plan())
    except (ValueError, NotImplementedError) as error:
        if "equality delete" in str(error).lower():
            raise FormatError(
                "the table has equality deletes, which PyIceberg cannot apply, so its rows cannot be told: compact the "
                f"table, or read it with an engine that can ({error})"
            ) from error
        raise
    for task in tasks:
        if task.file.file_format not in _READABLE:
            raise FormatError(f"{task.file.file_path}: data files of the format {task.file.file_format} are not read")
    return tasks
