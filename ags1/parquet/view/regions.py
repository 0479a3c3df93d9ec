"""The parts of a plaintext view that differ from the encrypted file; they are decrypted when they are read.

MadeRegion    magic and footer, an index or a Bloom filter
Pages         a column chunk

Regions refer to the file and the cache, but not to the view, which must be freed with the last reference of a reader.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice

from ags1.core import blocks
from ags1.errors import Ags1Error, FormatError
from ags1.parquet.native import modules
from ags1.parquet.native.conversion import Conversion
from ags1.parquet.native.page_conversion import stretch
from ags1.parquet.native.pages import Chunk, PageList, PageSource
from ags1.parquet.structure.chunks import SourceChunk
from ags1.parquet.structure.fields import ColumnMetaData
from ags1.parquet.structure.source_file import SourceFile
from ags1.storage import MemorySource
from ags1.support.recently_used import RecentlyUsed
from ags1.support.typing import Buffer

# Cache for partly read pages, decrypted, and for partly read pieces of remote files.
_KEPT_BYTES = 64 << 20
_REMOTE_PART = 16 << 20
# Local column chunks up to this size that are read whole take one call, directly into the caller's memory.
_AT_ONCE = 16 << 20
_WHOLE_CHUNK = 1 << 62
_UNLIMITED_PAGES = 1 << 40


class PartCache:
    """Decrypted or fetched parts of one file; the first number of a part's name is the start of its region."""

    def __init__(self, file: SourceFile, threads: int | None) -> None:
        self.file = file
        self.parts = RecentlyUsed(_KEPT_BYTES, lambda part: memoryview(part).nbytes)
        self._threads = threads

    def conversion(self) -> Conversion:
        """A Conversion that decrypts pages, for one use."""
        return Conversion(self.file.footer.file_aad, threads=self._threads)


class Region:
    """A range of the view that differs from the file."""

    def renew(self) -> None:
        """Start again in a forked child: a thread of the parent may have held a lock."""

    start: int
    end: int

    def read_into(self, offset: int, out: memoryview) -> None:
        """Fill `out` from an offset of the view; all of it is in this region."""
        raise NotImplementedError


class MadeRegion(Region):
    """A small region, which is made when it is first read."""

    def __init__(self, start: int, length: int, make: Callable[[], bytes]) -> None:
        self.start, self.end = start, start + length
        self._make = make
        self._data: bytes | None = None

    def read_into(self, offset: int, out: memoryview) -> None:
        """Copy from the region, which is made first if necessary."""
        if self._data is None:
            self._data = self._make()
        out[:] = self._data[offset - self.start :][: len(out)]


class Pages(Region):
    """A column chunk: whole pages are decrypted into the caller's memory, partly read ones into the cache.

    In a remote file, pages are found part by part, and fetched bytes are kept until all of them are read.
    """

    def __init__(self, cache: PartCache, chunk: SourceChunk, start: int, length: int) -> None:
        self.start, self.end = start, start + length
        self._cache = cache
        self._file = cache.file
        self._chunk = chunk
        self._walk: Chunk | None = None
        # A list does not change after its pages are found, so threads may share it.
        self._parts: list[int] = []
        self._lists: list[PageList] = []
        self.renew()

    def renew(self) -> None:
        """Start again in a forked child."""
        self._lock = threading.Lock()

    def read_into(self, offset: int, out: memoryview) -> None:
        """Decrypt the pages of the range."""
        at, end = offset, offset + len(out)
        source = self._file.pages()
        while at < end:
            part, index = self._find(at, source)
            if index < 0:
                # Readers use nothing after the last page.
                out[at - offset :] = bytes(end - at)
                return
            pages = self._lists[part]
            start, length = pages.extent(index)
            if start == at and start + length <= end:
                last = pages.index_at(end)
                last = pages.count if last < 0 else last
                stop = sum(pages.extent(last - 1))
                self._decrypt(part, index, last, out[at - offset : stop - offset], source)
                if index == 0 and last == pages.count:
                    self._cache.parts.drop((self.start, part))
            else:
                data = self._cache.parts.get((self.start, part, index), partial(self._page, part, index, source))
                stop = min(start + length, end)
                out[at - offset : stop - offset] = memoryview(data)[at - start : stop - start]
            at = stop

    def add_to(self, pages: PageList, source: PageSource) -> bool:
        """Find all pages of the column chunk. Return whether they are all of its bytes."""
        found = pages.add(self._chunk.to_walk(), source, _WHOLE_CHUNK, _UNLIMITED_PAGES)
        return found and pages.count > 0 and sum(pages.extent(pages.count - 1)) == self.end

    def _find(self, offset: int, source: PageSource | None) -> tuple[int, int]:
        """Indexes of the part and the page at an offset, -1 after the last page; finds all pages up to there."""
        with self._lock:
            if self._walk is None:
                self._walk = self._chunk.to_walk()
            while not self._walk.done and self._walk.position <= offset:
                self._next_part(self._walk, source)
            part = bisect_right(self._parts, offset) - 1
            return part, -1 if part < 0 else self._lists[part].index_at(offset)

    def _next_part(self, walk: Chunk, source: PageSource | None) -> None:
        start, wanted = walk.position, _REMOTE_PART
        pages = PageList(self._file.footer.file_aad)
        try:
            while not pages.count and not walk.done:
                fetched = source
                if fetched is None:
                    data = self._file.read(start, min(wanted, self.end - start), self._chunk.name)
                    fetched = PageSource(data, base=start, name=self._file.name)
                pages.add(walk, fetched, _WHOLE_CHUNK, _UNLIMITED_PAGES)
                wanted *= 2
        except (Ags1Error, OSError):
            # The pages before a damaged header are valid. A read of later pages raises the error here again.
            if not pages.count:
                raise
        finally:
            # The walk does not read them again.
            if pages.count:
                self._parts.append(start)
                self._lists.append(pages)
        if source is None and pages.count:
            self._cache.parts.keep((self.start, len(self._parts) - 1), data)

    def _decrypt(self, part: int, first: int, last: int, out: memoryview, source: PageSource | None) -> None:
        pages = self._lists[part]
        start = pages.extent(first)[0]
        if source is None:
            data = self._cache.parts.get((self.start, part), partial(self._fetch, part))
            source = PageSource(data, base=self._parts[part], name=self._file.name)
        self._cache.conversion().view(pages, source, out, start, first, last)

    def _fetch(self, part: int) -> Buffer:
        pages, start = self._lists[part], self._parts[part]
        return self._file.read(start, sum(pages.extent(pages.count - 1)) - start, self._chunk.name)

    def _page(self, part: int, index: int, source: PageSource | None) -> bytes:
        out = blocks.fresh_bytes(self._lists[part].extent(index)[1])
        with blocks.writable_view(out) as view:
            self._decrypt(part, index, index + 1, view, source)
        return out


def whole_chunks(file: SourceFile, regions: Sequence[Region], index: int, end: int) -> list[Pages]:
    """The column chunks of a local file, from a region on, that are read whole and stand one behind the other."""
    found: list[Pages] = []
    is_local = file.source.is_file or isinstance(file.source, MemorySource)
    for region in islice(regions, index, None if is_local else index):
        start = found[0].start if found else region.start
        behind = not found or region.start == found[-1].end
        if not isinstance(region, Pages) or not behind or region.end > min(end, start + _AT_ONCE):
            break
        found.append(region)
    return found


def read_chunks(cache: PartCache, chunks: Sequence[Pages], out: memoryview) -> None:
    """Decrypt whole column chunks into `out`, which has just their bytes, by one call for all of them."""
    file, start = cache.file, chunks[0].start
    source = file.pages()
    assert source is not None
    if file.source.is_file:
        # One read for all pages; finding and reading each small page would take two reads.
        file.source.read_into(start, out)
        source = PageSource(out, base=start, name=file.name)
    pages = PageList(file.footer.file_aad)
    if all(each.add_to(pages, source) for each in chunks):
        cache.conversion().view(pages, source, out, start)
        return
    for each in chunks:
        each.read_into(each.start, out[each.start - start : each.end - start])


def chunk_regions(cache: PartCache, chunk: SourceChunk) -> list[Region]:
    """What an encrypted column chunk has in the view: its pages, its indexes, its Bloom filter."""
    start, length = chunk.extent()
    regions: list[Region] = []
    if length:
        regions.append(Pages(cache, chunk, start, length))
    for kind in (modules.COLUMN_INDEX, modules.OFFSET_INDEX):
        place = chunk.index_place(kind)
        if place is not None:
            regions.append(MadeRegion(*place, partial(_index, chunk, kind, place[1])))
    metadata = chunk.known_metadata()
    offset = metadata.integer(ColumnMetaData.BLOOM_FILTER_OFFSET)
    if offset is not None and offset > 0:
        stored = metadata.integer(ColumnMetaData.BLOOM_FILTER_LENGTH)
        if stored is None or stored <= 0:
            # A plaintext filter is refused when it is read, by its first bytes.
            plain = chunk.has_plaintext_filter(offset)
            stored = 4 if plain else _bloom_filter_length(cache.file, chunk, offset)
        regions.append(MadeRegion(offset, stored, partial(_bloom_filter, chunk, stored)))
    return regions


def _index(chunk: SourceChunk, kind: int, length: int) -> bytes:
    data = chunk.index(kind)
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
    if len(header) + len(bits) + modules.OVERHEAD > length:
        raise FormatError(f"{chunk.name}: its Bloom filter is longer than the metadata says")
    return stretch(header, length - len(bits)) + bits
