"""Rows into a table's data files: Parquet, encrypted on the way out, each file under a key of its own.

    batches --partitions--> buffers --sorted--> row groups --ParquetWriter--> files of the target size
                                                              footer, pages, key metadata --> entries of a manifest

Memory holds the rows of a few row groups for each core, however many partitions there are. File names reveal nothing
about their rows: Iceberg's usual names contain partition values, which an encrypted table hides.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import pyarrow
import pyarrow.compute as compute
import pyarrow.parquet
from pyiceberg import types as iceberg
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortOrder

from ags1.core.blocks import usable_cpus
from ags1.errors import UnsupportedError
from ags1.iceberg.metadata.manifests import ADDED, DATA, ManifestEntry
from ags1.iceberg.metadata.metadata_document import number_property
from ags1.iceberg.writing.arrow_rows import RowShape
from ags1.iceberg.writing.commit import TableFiles
from ags1.iceberg.writing.metrics import FileMetrics, MetricsPlan
from ags1.iceberg.writing.partitioning import Partitioning, check_transform, column_of, path_of, transformed
from ags1.parquet import EncryptionConfig, ParquetWriter
from ags1.parquet.rewrite.writer import has_columns
from ags1.parquet.view.view import ParquetView

_PREFIX = "write.parquet."
_NUMBERS = {
    # Property: PyArrow's option, and Iceberg's default.
    "page-size-bytes": ("data_page_size", 1 << 20),
    "dict-size-bytes": ("dictionary_pagesize_limit", 2 << 20),
    "page-row-limit": ("write_batch_size", 20_000),
}
_TARGET_SIZE, _USUAL_TARGET_SIZE = "write.target-file-size-bytes", 512 << 20
_FORMAT = "write.format.default"
# Those that PyArrow writes.
_CODECS = ("zstd", "snappy", "gzip", "lz4", "brotli", "uncompressed")
_ROW_GROUP_BYTES, _ROW_GROUP_ROWS = 128 << 20, 1 << 20
# Arrow's bytes of rows that wait for their row group, over all partitions.
_BUFFERED = 256 << 20
_OPEN_FILES = 64
# A column without repeated values among these rows is written without a dictionary: one of 2 MiB would be filled.
_SAMPLES, _SAMPLE_ROWS, _UNIQUE = 16, 1024, 0.97
# A smaller rest does not justify another row group to reach the target size.
_SMALL_GROUP = 8 << 20


class TableLayout:
    """How the rows of a table are laid out in files.

    `further` columns of the files are not the table's, such as the number that a row keeps. What cannot be written
    here, a type, a transform or a file format, is an UnsupportedError; a property that is none is a ValueError.
    """

    def __init__(
        self,
        schema: Schema,
        spec: PartitionSpec,
        order: SortOrder,
        properties: Mapping[str, str],
        further: tuple[iceberg.NestedField, ...] = (),
    ) -> None:
        if (form := properties.get(_FORMAT, "parquet").lower()) != "parquet":
            raise UnsupportedError(
                f"the table's property {_FORMAT} is {form!r}, and Parquet alone is written here: change the property, "
                "or write the table with Spark"
            )
        self.schema, self.further = schema, len(further)
        self.shape = RowShape(schema, further)
        self.partitioning = Partitioning(spec, schema)
        self.partitioning.check()
        self.metrics = MetricsPlan(schema, properties, further)
        self.target_size = number_property(properties, _TARGET_SIZE, _USUAL_TARGET_SIZE)
        self.row_group_bytes = number_property(properties, f"{_PREFIX}row-group-size-bytes", _ROW_GROUP_BYTES)
        self.row_group_rows = number_property(properties, f"{_PREFIX}row-group-limit", _ROW_GROUP_ROWS)
        self.options = _parquet_options(schema, properties)
        # Columns that are no structs, lists or maps.
        self._plain = [
            each.name
            for each in self.shape.arrow
            if not pyarrow.types.is_nested(each.type) and not isinstance(each.type, pyarrow.BaseExtensionType)
        ]
        self.sort_order_id, self.is_sorted = order.order_id, bool(order.fields)
        self._keys = [
            (path_of(schema, each.source_id), schema.find_type(each.source_id), each) for each in order.fields
        ]
        for _, kind, each in self._keys:
            check_transform(each.transform, kind, str(each))

    def fits(self, source: ParquetView) -> bool:
        """Whether an open data file has the table's columns, so that its row groups can be moved."""
        return has_columns(source, self.shape.arrow, self.further, **self.options)

    def repeating(self, rows: pyarrow.Table) -> list[str]:
        """The columns, by their paths in Parquet, that gain from a dictionary, as far as a sample of the rows tells.

        PyArrow begins one for every column, and gives it up only when it has become too large.
        """
        step = max(_SAMPLE_ROWS, rows.num_rows // _SAMPLES)
        parts = [rows.slice(start, _SAMPLE_ROWS) for start in range(0, rows.num_rows, step)]
        sample = pyarrow.concat_tables(parts) if parts else rows
        unique = {name for name in self._plain if _is_unique(sample.column(name))}
        return [path for path in self.metrics.paths if path not in unique]

    def sorted(self, rows: pyarrow.Table) -> pyarrow.Table:
        """The rows in the table's order. NaN is more than any other number."""
        if not self._keys:
            return rows
        rows = rows.combine_chunks()
        columns: list[pyarrow.Array] = []
        keys = []
        for path, kind, field in self._keys:
            # One batch, because there is one chunk.
            (batch,) = rows.to_batches() or [pyarrow.RecordBatch.from_pylist([], schema=rows.schema)]
            column = transformed(field.transform, kind, column_of(batch, path))
            ascending = field.direction == SortDirection.ASC
            direction = "ascending" if ascending else "descending"
            nulls_first = field.null_order == NullOrder.NULLS_FIRST
            keys.append((str(len(columns)), "descending" if nulls_first else "ascending"))
            columns.append(column.is_null())
            if pyarrow.types.is_floating(column.type):
                keys.append((str(len(columns)), direction))
                columns.append(compute.is_nan(column))
            keys.append((str(len(columns)), direction))
            columns.append(column)
        table = pyarrow.table(columns, names=[str(place) for place in range(len(columns))])
        return rows.take(compute.sort_indices(table, sort_keys=keys))


class DataFiles:
    """Writes the rows of one change, for one thread at a time. `files` removes the files of a change that failed."""

    def __init__(self, layout: TableLayout, files: TableFiles) -> None:
        self._layout, self._files = layout, files
        self._open: dict[tuple[Any, ...], _DataFile] = {}
        # Those of which something is written, and Arrow's bytes that wait for all.
        self._begun: dict[tuple[Any, ...], _DataFile] = {}
        self._waiting = 0
        self._done: list[ManifestEntry] = []

    def write_all(self, batches: Iterable[pyarrow.RecordBatch]) -> list[ManifestEntry]:
        """Write all rows, which are shaped here; return an entry for each file. No unfinished file is left."""
        try:
            for batch in batches:
                for values, rows in self._layout.partitioning.divided(self._layout.shape.shaped(batch)):
                    self._add(values, rows)
            for file in list(self._open.values()):
                self._finish(file)
        except BaseException:
            self.abort()
            raise
        return self._done

    def move(
        self, source: ParquetView, file: Mapping[str, Any], groups: Sequence[int], further: Iterable[pyarrow.Table]
    ) -> None:
        """Add row groups of an open data file of the same partition spec, without decoding them.

        `file` is what a manifest has of the file, and `further` the further columns of each row group. The file must be
        one that :meth:`TableLayout.fits`.
        """
        try:
            waiting, columns = deque(groups), iter(further)
            while waiting:
                target = self._file(self._layout.partitioning.values(file["partition"]))
                with self._counted(target):
                    target.move(source, file, waiting, columns)
                if target.is_full:
                    self._finish(target)
        except BaseException:
            self.abort()
            raise

    def abort(self) -> None:
        """Leave no unfinished file."""
        for file in self._open.values():
            file.abort()

    def _file(self, values: tuple[Any, ...]) -> _DataFile:
        # NaN cannot be a key: it does not equal itself.
        key = tuple("NaN" if each != each else (type(each), repr(each)) for each in values)
        file = self._open.get(key)
        if file is None:
            file = self._open[key] = _DataFile(self._layout, self._files, key, values)
        return file

    def _add(self, values: tuple[Any, ...], rows: pyarrow.RecordBatch) -> None:
        if not rows.num_rows:
            return
        file = self._file(values)
        with self._counted(file):
            file.add(rows)
        if file.is_full:
            self._finish(file)
        elif self._waiting > _BUFFERED:
            largest = max(self._open.values(), key=lambda each: each.waiting)
            if self._layout.is_sorted:
                self._finish(largest)
            else:
                with self._counted(largest):
                    largest.flush()
        if len(self._begun) > _OPEN_FILES:
            self._finish(max(self._begun.values(), key=lambda each: each.stored))

    @contextmanager
    def _counted(self, file: _DataFile) -> Iterator[None]:
        self._waiting -= file.waiting
        yield
        self._waiting += file.waiting
        if file.stored:
            self._begun[file.key] = file

    def _finish(self, file: _DataFile) -> None:
        self._waiting -= file.waiting
        self._begun.pop(file.key, None)
        self._done.append(file.finish())
        del self._open[file.key]


class _DataFile:
    """A file that is being written: of one partition."""

    def __init__(self, layout: TableLayout, files: TableFiles, key: tuple[Any, ...], values: tuple[Any, ...]) -> None:
        self.key, self._layout, self._files, self._values = key, layout, files, values
        self._metrics = FileMetrics(layout.metrics)
        # The writer makes as many row groups at once.
        self._most_rows = usable_cpus() * layout.row_group_rows
        self._most_bytes = max(layout.row_group_bytes, min(usable_cpus() * layout.row_group_bytes, _BUFFERED))
        self._rows = self._written = self._moved = self.waiting = self._waiting_rows = 0
        self._batches: list[pyarrow.RecordBatch] = []
        self._dictionaries: list[str] | bool = True

    @cached_property
    def _writer(self) -> ParquetWriter:
        """Opened when there is something to write: rows of many partitions may wait side by side."""
        self._path, location, metadata = self._files.new_data_file()
        assert metadata is not None
        self._metadata = metadata
        layout = self._layout
        encryption, options = EncryptionConfig.for_iceberg(metadata), layout.options
        return ParquetWriter(
            location, layout.shape.arrow, encryption, durable=True, use_dictionary=self._dictionaries, **options
        )

    @property
    def stored(self) -> int:
        """Bytes that are written; 0 if the file was not begun."""
        return self._writer.tell() if "_writer" in self.__dict__ else 0

    @property
    def is_full(self) -> bool:
        """Whether it has the target size. A sorted one is sorted as a whole, so what it will have is guessed."""
        if self._layout.is_sorted:
            return self.waiting >= min(self._layout.target_size, _BUFFERED)
        return self.stored >= self._layout.target_size

    def add(self, rows: pyarrow.RecordBatch) -> None:
        """Take in rows; write them once there are enough for a row group on each core."""
        layout = self._layout
        while rows.num_rows:
            part = rows.slice(0, self._most_rows - self._waiting_rows) if not layout.is_sorted else rows
            rows = rows.slice(part.num_rows)
            self._batches.append(part)
            self.waiting += part.nbytes
            self._waiting_rows += part.num_rows
            if not layout.is_sorted and (
                self._waiting_rows >= self._most_rows or self.waiting >= self._most_bytes or self._would_be_full()
            ):
                self.flush()

    def _would_be_full(self) -> bool:
        """Whether the rows that wait are worth a row group, and fill the file, as far as can be told."""
        if self.waiting < min(_SMALL_GROUP, self._layout.row_group_bytes):
            return False
        written = self.stored
        expected = self.waiting * (written - self._moved) // self._written if self._written else self.waiting // 4
        return written + expected >= self._layout.target_size

    def move(
        self, source: ParquetView, file: Mapping[str, Any], groups: deque[int], further: Iterator[pyarrow.Table]
    ) -> None:
        """Take at least one row group from the beginning, until there are no more or the file is full."""
        self.flush()
        before, moved = self.stored, list[int]()
        while groups and not (moved and self.is_full):
            columns = next(further)
            moved.append(groups.popleft())
            self._writer.move_row_group(source, moved[-1], columns)
            self._rows += columns.num_rows
        self._moved += self.stored - before
        self._metrics.move(pyarrow.parquet.read_metadata(source), moved, file)

    def flush(self) -> None:
        if not self._batches:
            return
        layout = self._layout
        rows = layout.sorted(pyarrow.Table.from_batches(self._batches))
        groups = max(-(-rows.num_rows // layout.row_group_rows), -(-self.waiting // layout.row_group_bytes))
        if not self.stored:
            self._dictionaries = layout.repeating(rows)
        self._writer.write_table(rows, -(-rows.num_rows // groups))
        self._metrics.add(rows)
        self._rows += rows.num_rows
        self._written += self.waiting
        self._batches, self.waiting, self._waiting_rows = [], 0, 0

    def finish(self) -> ManifestEntry:
        """Publish the file; return its entry."""
        self.flush()
        self._writer.close()
        length = self._writer.tell()
        file: dict[str, Any] = {
            "content": DATA,
            "file_path": self._path,
            "file_format": "PARQUET",
            "partition": self._layout.partitioning.record(self._values),
            "record_count": self._rows,
            "file_size_in_bytes": length,
            **self._metrics.fields(self._writer.statistics),
            "key_metadata": self._metadata.with_length(length).encode(),
            "split_offsets": list(self._writer.row_group_offsets),
            "sort_order_id": self._layout.sort_order_id,
        }
        return ManifestEntry(ADDED, 0, None, None, file)

    def abort(self) -> None:
        if "_writer" in self.__dict__:
            self._writer.abort()


def _is_unique(column: pyarrow.ChunkedArray) -> bool:
    values = len(column) - column.null_count
    return bool(values and len(column.unique()) >= _UNIQUE * values)


def _parquet_options(schema: Schema, properties: Mapping[str, str]) -> dict[str, Any]:
    codec = properties.get(f"{_PREFIX}compression-codec", "zstd").lower()
    if codec not in _CODECS:
        raise UnsupportedError(
            f"the table's property {_PREFIX}compression-codec is {codec!r}, and {', '.join(_CODECS)} alone are written "
            "here: change the property"
        )
    options: dict[str, Any] = {
        "compression": "none" if codec == "uncompressed" else codec,
        "store_decimal_as_integer": True,
        **{option: number_property(properties, _PREFIX + name, usual) for name, (option, usual) in _NUMBERS.items()},
    }
    level = properties.get(f"{_PREFIX}compression-level")
    if level not in (None, "null"):
        options["compression_level"] = int(level)
    prefix = f"{_PREFIX}bloom-filter-enabled.column."
    names = [
        name.removeprefix(prefix) for name, text in properties.items() if name.startswith(prefix) and text == "true"
    ]
    if names:
        options["bloom_filter_options"] = {name: True for name in names if name in schema.column_names}
    return options
