"""The parts of a plaintext view that are not what the encrypted file has there, decrypted when they are read.

FixedRegion   magic, footer
MadeRegion    an index or a Bloom filter
LocalPages    a column chunk of a file or of memory
RemotePages   a column chunk that comes in requests

Regions know the file and the cache, but not the view, which must go when the last reader lets go of it.
"""

from __future__ import annotations

import functools
import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable

from ags1 import _blocks
from ags1.errors import Ags1Error, FormatError
from ags1.parquet import _module
from ags1.parquet._conversion import Conversion
from ags1.parquet._fields import ColumnChunk, ColumnMetaData
from ags1.parquet._page_conversion import stretch
from ags1.parquet._pages import PageList, PageSource
from ags1.parquet._source_file import SourceChunk, SourceFile

__all__ = ["FixedRegion", "PartCache", "Region", "chunk_regions"]

# Decrypted pages that were read in part, and parts of remote files, are kept for the next read.
_KEPT_BYTES = 64 << 20
_REMOTE_PART = 16 << 20
_WHOLE_CHUNK = 1 << 62
_UNLIMITED_PAGES = 1 << 40


class PartCache:
    """Decrypted parts of one file, the latest used kept; safe to share between threads.

    Parameters
    ----------
    file : SourceFile
        What is decrypted.
    threads : int or None
        Threads to decrypt with; None for every usable CPU.
    """

    def __init__(self, file: SourceFile, threads: int | None) -> None:
        self.file = file
        self._threads = threads
        self.renew()

    def renew(self) -> None:
        """Begin anew in a forked child: a thread of the parent may have been about to keep a part."""
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[int, int], bytes] = OrderedDict()
        self._kept_bytes = 0

    def conversion(self) -> Conversion:
        """What decrypts pages, for one use."""
        return Conversion(self.file.footer.file_aad, threads=self._threads)

    def part(self, region: int, part: int, make: Callable[[], bytes]) -> bytes:
        """A part of the region that starts at offset `region`: kept, or made now."""
        name = (region, part)
        with self._lock:
            found = self._kept.get(name)
            if found is not None:
                self._kept.move_to_end(name)
                return found
        # Two threads may both make it, rather than wait for each other.
        made = make()
        with self._lock:
            if name not in self._kept:
                self._kept[name] = made
                self._kept_bytes += len(made)
            while self._kept_bytes > _KEPT_BYTES and len(self._kept) > 1:
                _, dropped = self._kept.popitem(last=False)
                self._kept_bytes -= len(dropped)
        return made

    def forget(self) -> None:
        """Let go of what was decrypted."""
        with self._lock:
            self._kept.clear()
            self._kept_bytes = 0


class Region:
    """A range of the view that is not what the file has there."""

    def renew(self) -> None:
        """Begin anew in a forked child: a thread of the parent may have held a lock."""

    def __init__(self, start: int, length: int) -> None:
        self.start = start
        self.end = start + length

    def read_into(self, offset: int, out: memoryview) -> None:
        """Fill `out` from an offset of the view; all of it is in this region."""
        raise NotImplementedError


class FixedRegion(Region):
    """Bytes that are known."""

    def __init__(self, start: int, data: bytes) -> None:
        super().__init__(start, len(data))
        self._data = data

    def read_into(self, offset: int, out: memoryview) -> None:
        """Copy."""
        out[:] = self._data[offset - self.start :][: len(out)]


class MadeRegion(Region):
    """An index or a Bloom filter, decrypted when it is first read."""

    def __init__(self, start: int, length: int, make: Callable[[], bytes]) -> None:
        super().__init__(start, length)
        self._make = make
        self._data: bytes | None = None

    def read_into(self, offset: int, out: memoryview) -> None:
        """Copy, after decrypting it if that was not done yet."""
        if self._data is None:
            self._data = self._make()
        out[:] = self._data[offset - self.start :][: len(out)]


class LocalPages(Region):
    """A column chunk in a file or in memory: whole pages go straight into the caller's memory."""

    def __init__(self, cache: PartCache, chunk: SourceChunk, start: int, length: int, source: PageSource) -> None:
        super().__init__(start, length)
        self._cache = cache
        self._chunk = chunk
        self._source = source
        self._pages: PageList | None = None
        self._complete = False
        self.renew()

    def renew(self) -> None:
        """Begin anew in a forked child."""
        self._lock = threading.Lock()

    def _find(self, offset: int) -> tuple[PageList, int]:
        """The pages of the chunk, and the index of the one with an offset; -1 if there is none behind the last.

        A list does not change once it is made, so that threads may share it. One that a damaged header has cut short
        serves the pages before that; who wants more has the pages looked for again, and gets the error.
        """
        with self._lock:
            pages = self._pages
            index = -1 if pages is None else pages.index_at(offset)
            if pages is None or (index < 0 and not self._complete):
                pages = PageList(self._cache.file.footer.file_aad)
                walk = self._chunk.to_walk()
                try:
                    while not walk.done:
                        pages.add(walk, self._source, _WHOLE_CHUNK, _UNLIMITED_PAGES)
                    self._complete = True
                except (Ags1Error, OSError):
                    if pages.index_at(offset) < 0:
                        raise
                self._pages = pages
                index = pages.index_at(offset)
            return pages, index

    def read_into(self, offset: int, out: memoryview) -> None:
        """Decrypt whole pages in place; those that are wanted in part, into the cache."""
        done = 0
        while done < len(out):
            pages, index = self._find(offset + done)
            if index < 0:
                # Behind the last page there is nothing that a reader looks at.
                out[done:] = bytes(len(out) - done)
                return
            start, length = pages.extent(index)
            end = offset + len(out)
            if start == offset + done and start + length <= end:
                last = pages.index_at(end)
                last = pages.count if last < 0 else last
                finish = sum(pages.extent(last - 1))
                part = out[done : finish - offset]
                self._cache.conversion().view(pages, self._source, part, start, index, last)
                done = finish - offset
            else:
                data = self._cache.part(self.start, index, functools.partial(self._page, pages, index))
                skip = offset + done - start
                count = min(length - skip, len(out) - done)
                out[done : done + count] = data[skip : skip + count]
                done += count

    def _page(self, pages: PageList, index: int) -> bytes:
        start, length = pages.extent(index)
        out = _blocks.fresh_bytes(length)
        with _blocks.writable_view(out) as view:
            self._cache.conversion().view(pages, self._source, view, start, index, index + 1)
        return out


class RemotePages(Region):
    """A column chunk that comes in requests: parts of whole pages, fetched and decrypted at once, and kept."""

    def __init__(self, cache: PartCache, chunk: SourceChunk, start: int, length: int) -> None:
        super().__init__(start, length)
        self._cache = cache
        self._file = cache.file
        self._walk = chunk.to_walk()
        self._name = chunk.name
        self._parts: list[int] = []
        self._lists: list[PageList] = []
        self.renew()

    def renew(self) -> None:
        """Begin anew in a forked child."""
        self._lock = threading.Lock()

    def read_into(self, offset: int, out: memoryview) -> None:
        """Copy from the parts, after fetching those that are not kept."""
        done = 0
        while done < len(out):
            index = self._part_with(offset + done)
            if index is None:
                # Behind the last page there is nothing that a reader looks at.
                out[done:] = bytes(len(out) - done)
                return
            data = self._cache.part(self.start, index, functools.partial(self._decrypt, index, None))
            skip = offset + done - self._parts[index]
            count = min(len(data) - skip, len(out) - done)
            out[done : done + count] = data[skip : skip + count]
            done += count

    def _part_with(self, offset: int) -> int | None:
        """Index of the part with an offset; parts up to there are found first, one request each."""
        with self._lock:
            while not self._walk.done and self._walk.position <= offset:
                self._next_part(offset)
            if offset >= self._walk.position or not self._parts:
                return None
            index = bisect_right(self._parts, offset) - 1
            return index if offset < self._parts[index] + _length(self._lists[index]) else None

    def _next_part(self, offset: int) -> None:
        start = self._walk.position
        wanted = _REMOTE_PART
        while True:
            data = self._file.read(start, min(wanted, self.end - start), self._name)
            pages = PageList(self._file.footer.file_aad)
            source = PageSource(data, base=start, name=self._file.name)
            try:
                pages.add(self._walk, source, _WHOLE_CHUNK, _UNLIMITED_PAGES)
            except Ags1Error:
                # The pages before the damaged header are good; who wants the others comes back here.
                if not pages.count:
                    raise
            finally:
                # The walk does not come back to them.
                if pages.count:
                    self._parts.append(start)
                    self._lists.append(pages)
            if pages.count or self._walk.done:
                break
            wanted *= 2
        if pages.count and offset < self._walk.position:
            index = len(self._parts) - 1
            self._cache.part(self.start, index, functools.partial(self._decrypt, index, source))

    def _decrypt(self, index: int, source: PageSource | None) -> bytes:
        pages = self._lists[index]
        start = self._parts[index]
        length = _length(pages)
        if source is None:
            source = PageSource(self._file.read(start, length, self._name), base=start, name=self._file.name)
        out = _blocks.fresh_bytes(length)
        with _blocks.writable_view(out) as view:
            self._cache.conversion().view(pages, source, view, start)
        return out


def _length(pages: PageList) -> int:
    """Bytes from the first page of a list to the end of its last."""
    return sum(pages.extent(pages.count - 1)) - pages.extent(0)[0]


def chunk_regions(cache: PartCache, chunk: SourceChunk) -> list[Region]:
    """What an encrypted column chunk has in the view: its pages, its indexes, its Bloom filter."""
    start, length = chunk.extent()
    regions: list[Region] = []
    native = cache.file.pages()
    if length and native is not None:
        regions.append(LocalPages(cache, chunk, start, length, native))
    elif length:
        regions.append(RemotePages(cache, chunk, start, length))
    for offset_field, length_field, read in (
        (ColumnChunk.COLUMN_INDEX_OFFSET, ColumnChunk.COLUMN_INDEX_LENGTH, chunk.column_index),
        (ColumnChunk.OFFSET_INDEX_OFFSET, ColumnChunk.OFFSET_INDEX_LENGTH, chunk.offset_index),
    ):
        offset, stored = chunk.structure.integer(offset_field), chunk.structure.integer(length_field)
        if offset is not None and stored is not None and stored > 0:
            regions.append(MadeRegion(offset, stored, functools.partial(_index, read, stored)))
    metadata = chunk.known_metadata()
    offset = metadata.integer(ColumnMetaData.BLOOM_FILTER_OFFSET)
    if offset is not None and offset > 0:
        stored = metadata.integer(ColumnMetaData.BLOOM_FILTER_LENGTH)
        if stored is None or stored <= 0:
            # One that is not encrypted is refused when it is read, by its first bytes.
            plain = chunk.has_plaintext_filter(offset)
            stored = 4 if plain else _bloom_filter_length(cache.file, chunk, offset)
        regions.append(MadeRegion(offset, stored, functools.partial(_bloom_filter, chunk, stored)))
    return regions


def _index(read: Callable[[], bytes | None], length: int) -> bytes:
    data = read()
    assert data is not None
    return stretch(data, length)


def _bloom_filter_length(file: SourceFile, chunk: SourceChunk, offset: int) -> int:
    length = 0
    for _ in ("header", "bitset"):
        word = bytes(file.read(offset + length, 4, f"{chunk.name}: Bloom filter"))
        length += 4 + int.from_bytes(word, "little")
    return length


def _bloom_filter(chunk: SourceChunk, length: int) -> bytes:
    found = chunk.bloom_filter()
    assert found is not None
    header, bits = found
    if len(header) + len(bits) + _module.OVERHEAD > length:
        raise FormatError(f"{chunk.name}: its Bloom filter is longer than the metadata says")
    return stretch(header, length - len(bits)) + bits
