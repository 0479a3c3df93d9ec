"""Parquet files by row groups, in batches of bounded size: a file of a few bytes may have terabytes of values.

    footer         --sizes that it states-->  refused above the limit
    column chunks  --fetched, compressed-->  sizes of pages, lengths in dictionaries  -->  refused above the limit
                   --so many rows that a batch is small-->  batches, counted: refused above the limit

Arrow's scanner decodes whole row groups, and several at once, whatever the size of its batches. Its reader of batches
has one page of each column in memory. What a batch needs is known from the page headers, which Arrow follows; where
values repeat those before them (DELTA_BYTE_ARRAY), it is only known how long one of them can be, so few are read.
"""

from __future__ import annotations

import io
import threading
from bisect import bisect_right
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from operator import attrgetter, itemgetter
from typing import Any

import pyarrow
import pyarrow.compute as compute
import pyarrow.parquet

from ags1.errors import FormatError, LimitError
from ags1.parquet.native.pages import PageList
from ags1.parquet.structure.page_sizes import PageSizes, longest_value, page_sizes
from ags1.support.grouping import grouped
from ags1.support.parallel import in_parallel, streams_in_parallel

_MOST_ROWS, _BATCH_BYTES = 1 << 20, 64 << 20
# Row groups with no more bytes are fetched and decoded together: a reader of Arrow costs as much as so many bytes.
_SMALL_GROUPS = 1 << 20
# A batch takes this part of the limit, if each of its values is the longest.
_WORST_PART = 4
# A file with no more bytes is read to where it would be in memory: Arrow then asks nothing of Python, which has a lock.
_IN_MEMORY, _TAIL = 4 << 20, 64 << 10
# Chunks with no more bytes between them are fetched together, as Arrow does.
_HOLE, _TOGETHER = 8 << 10, 32 << 20
_REQUESTS = 8
# Bytes of a value in Arrow: of texts and binaries, the offset.
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 8, "FLOAT": 4, "DOUBLE": 8, "BYTE_ARRAY": 4}
_DECIMAL, _LEVELS = 16, 4
# Bytes of a dictionary's entry in Arrow, without its value.
_ENTRY = 16
BYTES = attrgetter("nbytes")
"""The bytes of the rows of a batch in memory."""


class RowGroups:
    """The row groups of an open Parquet file.

    Parameters
    ----------
    file : file object
        The plaintext, with ``seek`` and ``read``; a remote one with ``pread`` too.
    limit : int
        Most bytes of a row group, decoded, of the columns that are read.
    is_remote : bool
        Whether the file is fetched by several requests at once.
    at_once : int
        Number of row groups that are decoded at once.
    use_threads : bool
        Whether columns of a row group are decoded at once.
    """

    def __init__(
        self, file: Any, limit: int, *, is_remote: bool = False, at_once: int = 1, use_threads: bool = True
    ) -> None:
        self._source = _Source(file, is_remote)
        self._limit = limit
        self._at_once, self._use_threads = at_once, use_threads
        self._memory = _Memory(self._source) if self._source.size <= _IN_MEMORY else None
        self._opened = opened = _open(file if self._memory is None else self._memory.file())
        self.metadata = opened.metadata
        self.schema: pyarrow.Schema = opened.schema_arrow
        paths = opened.reader.column_paths
        self._leaves = [_leaf(index, path, opened.schema.column(index)) for index, path in enumerate(paths)]

    def batches(
        self, names: Sequence[str], groups: Iterable[int] | None = None
    ) -> Generator[pyarrow.RecordBatch, None, None]:
        """Return rows with these columns, of some row groups or of all.

        Raises
        ------
        LimitError
            A row group is larger than the limit.
        FormatError, TruncatedError
            A page is not where it should be, or damaged.
        """
        leaves = [leaf for leaf in self._leaves if leaf.top in set(names)]
        chosen = list(range(self.metadata.num_row_groups) if groups is None else groups)
        sizes = []
        for index in chosen:
            group = self.metadata.row_group(index)
            columns = [(leaf, group.column(leaf.index)) for leaf in leaves]
            sizes.append(sum(max(each.total_uncompressed_size, each.num_values * leaf.width) for leaf, each in columns))
            self._check(index, sizes[-1])
        sized = zip(chosen, sizes, strict=True)
        runs = [[index for index, _ in run] for run in grouped(sized, itemgetter(1), _SMALL_GROUPS)]

        self._source.will_read(names, chosen)

        def read(run: list[int]) -> Generator[pyarrow.RecordBatch, None, None]:
            found = self._fetch(run, leaves)
            together = sum(each.size for each in found) <= self._limit
            for several in [found] if together else [[each] for each in found]:
                yield from self._decode(several, leaves)

        with ExitStack() as opened:
            streams: Iterable[Iterator[pyarrow.RecordBatch]] = map(read, runs)
            if self._at_once > 1 and len(runs) > 1:
                at_once = streams_in_parallel(read, runs, self._at_once, size=BYTES, most=_BATCH_BYTES)
                streams = opened.enter_context(closing(at_once))
            for stream in streams:
                for batch in stream:
                    yield batch.select(list(names))

    def _check(self, index: int, size: int) -> None:
        if size > self._limit:
            raise LimitError(
                f"row group {index} has {size:,} bytes or more once it is decoded, and at most {self._limit:,} are "
                "read: if it is meant to be so large, open the table with a higher property ags1.row-group-limit"
            )

    def _fetch(self, indexes: Sequence[int], leaves: Sequence[_Leaf]) -> list[_Group]:
        """Fetch the column chunks of row groups, and check what they become."""
        columns = [[self._place(index, leaf) for leaf in leaves] for index in indexes]
        ranges = _joined((start, length) for places in columns for _, start, length in places)
        held: _Held | _Memory
        if self._memory is None:
            held = _Held(self._source, [start for start, _ in ranges], self._source.parts(ranges))
        else:
            held = self._memory
            held.fetch(ranges)
        walked = PageList()
        found = []
        for index, places in zip(indexes, columns, strict=True):
            found.append(_Group(index, max(1, self.metadata.row_group(index).num_rows), held))
            for leaf, (column, start, length) in zip(leaves, places, strict=True):
                count = column.num_values
                pages = page_sizes(held.part(start, length), start, count, leaf.name, index, walked)
                each = _Column(leaf, column.compression, max(count, pages.count), pages, pages.dictionary)
                found[-1].columns.append(each)
            self._check_group(found[-1])
        return found

    def _place(self, index: int, leaf: _Leaf) -> tuple[Any, int, int]:
        """Return a column chunk, the offset of its pages, and their length."""
        column = self.metadata.row_group(index).column(leaf.index)
        start, length = column.data_page_offset, column.total_compressed_size
        if column.has_dictionary_page and 0 < (column.dictionary_page_offset or 0) < start:
            start = column.dictionary_page_offset
        if min(start, length, column.num_values) < 0 or start + length > self._source.size:
            raise FormatError(f"the pages of column {leaf.name} in row group {index} are not in the file")
        return column, start, length

    def _check_group(self, found: _Group) -> None:
        self._check(found.index, sum(each.least for each in found.columns))
        size, indexed = found.size, [each for each in found.columns if each.indexed]
        if indexed and (size > self._limit or found.rows_at_once(self._limit) < found.num_rows):
            for each in indexed:
                self._find_longest(found, each)
            size = found.size
        for each in sorted(indexed, key=attrgetter("indexed"), reverse=True):
            if size <= self._limit:
                break
            size -= each.size
            self._measure(found, each)
            size += each.size
        self._check(found.index, size)

    def _find_longest(self, group: _Group, column: _Column) -> None:
        """Set the length of the longest value in the dictionary."""
        pages = column.pages
        values = group.held.part(*pages.dictionary_place)
        column.longest = longest_value(values, column.codec, pages.dictionary)

    def _measure(self, group: _Group, column: _Column) -> None:
        """Set the sum of the lengths of the values, for which Arrow reads their places in the dictionary."""
        size = 0
        # Arrow has no dictionaries of decimals: only few are read at once, as they are longer in the file.
        dictionaries = () if column.leaf.is_decimal else self._dictionaries(group, column.leaf)
        for dictionary, indices in dictionaries:
            lengths = compute.binary_length(dictionary).cast(pyarrow.int64())
            size += compute.sum(lengths.take(indices)).as_py() or 0
        column.measured = size

    def _dictionaries(self, group: _Group, leaf: _Leaf) -> Iterator[tuple[pyarrow.Array, pyarrow.Array]]:
        reader = _open(group.held.file(), self.metadata, [leaf.name]).reader
        for batch in reader.iter_batches(_MOST_ROWS, [group.index], column_indices=[leaf.index], use_threads=False):
            array = batch.column(0)
            while not isinstance(array, pyarrow.DictionaryArray):
                if isinstance(array, pyarrow.ExtensionArray):
                    array = array.storage
                elif isinstance(array, pyarrow.StructArray):
                    (array,) = array.flatten()
                else:
                    array = array.flatten()
            yield array.dictionary, array.indices

    def _decode(self, groups: Sequence[_Group], leaves: Sequence[_Leaf]) -> Iterator[pyarrow.RecordBatch]:
        """Return the rows of row groups that were fetched together, in batches of about the same size."""
        rows = min(group.rows_at_once(self._limit) for group in groups)
        places, indices = [group.index for group in groups], [leaf.index for leaf in leaves]
        size = gathered_bytes = 0
        gathered: list[pyarrow.RecordBatch] = []
        shared = self._memory is not None and self._at_once == 1
        reader = (self._opened if shared else _open(groups[0].held.file(), self.metadata)).reader
        for batch in reader.iter_batches(rows, places, column_indices=indices, use_threads=self._use_threads):
            size += batch.nbytes
            self._check(places[-1], size)
            gathered.append(batch)
            gathered_bytes += batch.nbytes
            if gathered_bytes >= _BATCH_BYTES or rows * len(gathered) >= _MOST_ROWS:
                yield _one(gathered)
                gathered, gathered_bytes = [], 0
        if gathered:
            yield _one(gathered)


def _open(file: Any, metadata: Any = None, dictionaries: list[str] | None = None) -> Any:
    # With nanoseconds, INT96 ends in the year 2262.
    return pyarrow.parquet.ParquetFile(
        file, metadata=metadata, read_dictionary=dictionaries, pre_buffer=False, coerce_int96_timestamp_unit="us"
    )


# -- what is decoded -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Leaf:
    """A column of the file; `width` are the bytes of a value in Arrow, for texts and binaries without their own."""

    index: int
    path: list[str]
    width: int
    has_lengths: bool
    is_decimal: bool

    @property
    def top(self) -> str:
        return self.path[0]

    @property
    def name(self) -> str:
        return ".".join(self.path)


def _leaf(index: int, path: list[str], column: Any) -> _Leaf:
    has_lengths = column.physical_type == "BYTE_ARRAY"
    width = _WIDTHS.get(column.physical_type, column.length)
    is_decimal = column.logical_type.type == "DECIMAL"
    if is_decimal:
        width = max(width, _DECIMAL)
    return _Leaf(index, path, width + (_LEVELS if column.max_repetition_level else 0), has_lengths, is_decimal)


@dataclass
class _Column:
    """A column chunk with so many values, nulls included, and the length of the longest in the dictionary."""

    leaf: _Leaf
    codec: str
    count: int
    pages: PageSizes
    longest: int
    measured: int | None = None
    least: int = 0
    """Bytes that are there in any case: the pages, or values without their lengths, and an index of each entry."""

    def __post_init__(self) -> None:
        entries = self.pages.dictionary_values * max(_ENTRY, self.leaf.width)
        self.least = max(self.pages.total, self.pages.values, self.count * self.leaf.width) + entries

    @property
    def indexed(self) -> int:
        """Most bytes of the values in the dictionary that rows refer to."""
        return self.pages.indexed * self.longest if self.leaf.has_lengths else 0

    @property
    def size(self) -> int:
        """Most bytes, without what DELTA_BYTE_ARRAY repeats."""
        if not self.leaf.has_lengths:
            return self.least
        indexed = self.indexed if self.measured is None else self.measured
        return max(self.least, self.pages.values + self.count * self.leaf.width + indexed)

    @property
    def longest_read(self) -> int:
        """Most bytes of one value that Arrow decodes."""
        if not self.leaf.has_lengths:
            return 0
        return max(self.longest if self.pages.indexed else 0, self.pages.expanding)

    @property
    def likely(self) -> int:
        """Bytes, if each value of the dictionary is used as often as any other."""
        if not self.leaf.has_lengths:
            return self.count * self.leaf.width
        indexed = self.measured
        if indexed is None:
            indexed = self.pages.indexed * self.pages.dictionary // max(1, self.pages.dictionary_values)
        return self.pages.values + self.count * self.leaf.width + indexed


class _Group:
    """A row group, fetched."""

    def __init__(self, index: int, num_rows: int, held: _Held | _Memory) -> None:
        self.index, self.num_rows, self.held = index, num_rows, held
        self.columns: list[_Column] = []

    @property
    def size(self) -> int:
        return sum(each.size for each in self.columns)

    def rows_at_once(self, limit: int) -> int:
        likely = sum(each.likely for each in self.columns)
        longest = max(1, sum(each.longest_read for each in self.columns))
        rows = min(_BATCH_BYTES * self.num_rows // max(1, likely), limit // _WORST_PART // longest)
        return max(1, min(_MOST_ROWS, rows))


def _one(batches: list[pyarrow.RecordBatch]) -> pyarrow.RecordBatch:
    return batches[0] if len(batches) == 1 else pyarrow.concat_batches(batches)


# -- what is fetched -----------------------------------------------------------------------------------------------


class _Source:
    """Reads ranges of a file; of a remote one, several at once."""

    def __init__(self, file: Any, is_remote: bool) -> None:
        self._file = file
        self._is_remote = is_remote
        self._lock = threading.Lock()
        self.size: int = file.seek(0, io.SEEK_END)
        file.seek(0)

    def will_read(self, names: Sequence[str], groups: Sequence[int]) -> None:
        """Let a view of a remote file fetch what it will be asked for."""
        if self._is_remote and hasattr(self._file, "will_read"):
            self._file.will_read(set(names), groups)

    def parts(self, ranges: list[tuple[int, int]]) -> list[pyarrow.Buffer]:
        if self._is_remote and len(ranges) > 1:
            at = self._file.pread
            return list(in_parallel(lambda each: self._whole(at(*each), *each), ranges, _REQUESTS))
        return [self.part(start, length) for start, length in ranges]

    def part(self, start: int, length: int) -> pyarrow.Buffer:
        # Arrow's memory, which it uses again.
        read = getattr(self._file, "read_buffer", None) or self._file.read
        with self._lock:
            self._file.seek(start)
            data = read(length)
        return self._whole(data, start, length)

    @staticmethod
    def _whole(data: Any, start: int, length: int) -> pyarrow.Buffer:
        if len(data) != length:
            raise FormatError(f"the file ends inside of its pages, after {start + len(data)} bytes")
        return pyarrow.py_buffer(data)


class _Memory:
    """A small file of which some parts are in memory, each at its offset, first its end; the rest are zeros."""

    def __init__(self, source: _Source) -> None:
        self._source = source
        self._bytes = bytearray(source.size)
        self._buffer = pyarrow.py_buffer(self._bytes)
        tail = min(source.size, _TAIL)
        self.fetch([(source.size - tail, tail)])
        footer = int.from_bytes(self._bytes[-8:-4], "little") + 8
        if tail < footer <= source.size:
            self.fetch([(source.size - footer, footer - tail)])

    def fetch(self, ranges: list[tuple[int, int]]) -> None:
        with memoryview(self._bytes) as view:
            for (start, length), part in zip(ranges, self._source.parts(ranges), strict=True):
                view[start : start + length] = memoryview(part).cast("B")

    def part(self, start: int, length: int) -> pyarrow.Buffer:
        return self._buffer.slice(start, length)

    def file(self) -> Any:
        return pyarrow.BufferReader(self._buffer)


class _Held:
    """A file of which some parts are in memory, for Arrow."""

    closed = False

    def __init__(self, source: _Source, starts: list[int], parts: list[pyarrow.Buffer]) -> None:
        self._source, self._starts, self._parts = source, starts, parts
        self._position = 0

    def part(self, start: int, length: int) -> pyarrow.Buffer:
        place = bisect_right(self._starts, start) - 1
        if place >= 0:
            offset = start - self._starts[place]
            if offset + length <= self._parts[place].size:
                return self._parts[place].slice(offset, length)
        # Arrow reads a little more after the pages of some writers.
        return self._source.part(start, length)

    def file(self) -> Any:
        return pyarrow.PythonFile(self, mode="r")

    def read_buffer(self, size: int) -> pyarrow.Buffer:
        found = self.part(self._position, max(0, min(size, self._source.size - self._position)))
        self._position += found.size
        return found

    def read(self, size: int) -> bytes:
        return bytes(self.read_buffer(size))

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = offset + (self._source.size if whence == io.SEEK_END else 0)
        return self._position

    def tell(self) -> int:
        return self._position

    def close(self) -> None:
        """Nothing is open."""


def _joined(places: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return ranges as offset and length that have all these places, in their order in the file."""
    found: list[tuple[int, int]] = []
    for start, length in sorted(places):
        first, whole = found[-1] if found else (0, -1)
        end = first + whole
        if found and (start < end or (start <= end + _HOLE and start + length - first <= _TOGETHER)):
            found[-1] = (first, max(whole, start + length - first))
        else:
            found.append((start, length))
    return found
