"""An encrypted Parquet file as the plaintext file that any Parquet reader reads, decrypted where it is looked at.

    file    PARE  [module][module] [module][module] ...  [Bloom filter] [indexes]  [footer]
    view    PAR1  header~   body   header~   body   ...   Bloom filter   indexes    footer

Every page, filter and index has the same offset and size in the view as in the file: what a module takes more than its
plaintext is an unknown field in the header (~) that every reader of Thrift skips. So the footer is all that must be
known when the view is opened, and a read of some pages touches nothing but those pages.
"""

from __future__ import annotations

import io
import os
import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Sequence

from ags1 import _blocks
from ags1._sources import DescriptorSource
from ags1.errors import FormatError, KeyAccessError, TruncatedError
from ags1.parquet import _module
from ags1.parquet._columns import ColumnNames, names_in_list
from ags1.parquet._conversion import Conversion, stretch
from ags1.parquet._pages import PageList, PageSource
from ags1.parquet._source_file import SourceChunk, SourceFile
from ags1.parquet._view_footer import encode_view_footer, kept_leaves
from ags1.parquet.footer import MAGIC

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ags1.parquet.properties import DecryptionConfig

__all__ = ["ParquetView", "open"]

# Decrypted pages that were read in part, and parts of remote files, are kept for the next read.
_KEPT_BYTES = 64 << 20
_REMOTE_PART = 16 << 20
_WHOLE_CHUNK = 1 << 62
_UNLIMITED_PAGES = 1 << 40


def open(
    source: Any,
    decryption: DecryptionConfig | None,
    *,
    columns: Sequence[Any] | None = None,
    missing_keys: str = "error",
    threads: int | None = None,
) -> ParquetView:
    """Open an encrypted Parquet file as a plaintext one, for any reader of Parquet.

    Parameters
    ----------
    source : path, URL, seekable binary file object or buffer
        The encrypted file. File objects are borrowed.
    decryption : DecryptionConfig or None
        Keys. None for a file that is not encrypted.
    columns : sequence of names, optional
        Show only these columns; keys of others are not needed. A name is the path of a leaf or of a group.
    missing_keys : {"error", "drop"}
        What to do with a column whose key is not there: refuse to open the file, or leave the column out.
    threads : int, optional
        Threads to decrypt with; by default every usable CPU.

    Returns
    -------
    ParquetView
        A seekable binary file.

    Raises
    ------
    KeyAccessError
        A key is missing.
    AuthenticationError, FormatError, TruncatedError
        A wrong key, or a damaged file; when the damage is in pages, from the read that meets it.
    ValueError
        A column that the file does not have, or another wrong argument.

    Examples
    --------
    >>> with parquet.open("out.parquet", decryption) as view:
    ...     table = pyarrow.parquet.read_table(view, columns=["ssn"])
    """
    return ParquetView(source, decryption, columns=columns, missing_keys=missing_keys, threads=threads)


class ParquetView(io.RawIOBase):
    """What :func:`open` answers: a read-only, seekable binary file with the bytes of a plaintext Parquet file.

    Attributes
    ----------
    size : int
        Bytes of the view, known without decrypting a page.
    dropped : list of str
        Columns that the view leaves out because their keys are missing.

    Notes
    -----
    :meth:`pread` is safe to call from several threads at once; the other methods share a position, and a lock. The
    bytes are a valid file, but not those of the file before it was encrypted: headers have fillers, and the order and
    gaps are those of the encrypted file. Every page that is read is authenticated first, except the contents of pages
    in AES_GCM_CTR_V1 files, which have no tag.
    """

    def __init__(
        self,
        source: Any,
        decryption: DecryptionConfig | None,
        *,
        columns: Sequence[Any] | None = None,
        missing_keys: str = "error",
        threads: int | None = None,
    ) -> None:
        super().__init__()
        if missing_keys not in ("error", "drop"):
            raise ValueError(f"missing_keys must be 'error' or 'drop', got {missing_keys!r}")
        self._position = 0
        self._lock = threading.Lock()
        self._threads = threads
        self._kept: OrderedDict[tuple[int, int], bytes] = OrderedDict()
        self._kept_bytes = 0
        self._file = SourceFile(source, decryption)
        try:
            self._build(columns, missing_keys)
        except BaseException:
            self._file.close()
            raise
        self.name = self._file.name or "<encrypted Parquet file>"

    def _build(self, columns: Sequence[Any] | None, missing_keys: str) -> None:
        file = self._file
        groups = [list(group.chunks()) for group in file.row_groups()]
        wanted = _wanted(file, columns)
        missing: dict[int, KeyAccessError] = {}
        for chunks in groups:
            for column, chunk in enumerate(chunks):
                if wanted[column] and not chunk.readable and column not in missing:
                    missing[column] = chunk.missing or KeyAccessError(f"{chunk.name}: its key is missing")
        if missing and missing_keys == "error":
            raise next(iter(missing.values()))
        kept = wanted
        if missing:
            kept = kept_leaves(file, [keep and column not in missing for column, keep in enumerate(wanted)])
        self.dropped = [
            leaf.name for leaf, want, keep in zip(file.leaves, wanted, kept, strict=True) if want and not keep
        ]
        footer = encode_view_footer(file, groups, kept)
        self.size = file.footer.start + len(footer)
        regions: list[_Region] = [_Fixed(0, MAGIC), _Fixed(file.footer.start, footer)]
        for chunks in groups:
            for chunk, keep in zip(chunks, kept, strict=True):
                if keep and chunk.encrypted:
                    regions += self._regions(chunk)
        self._regions_by_offset = sorted(regions, key=lambda region: region.start)
        self._starts = [region.start for region in self._regions_by_offset]
        end = 0
        for region in self._regions_by_offset:
            if region.start < end:
                raise FormatError(f"{file.where}two parts of the file overlap at offset {region.start}")
            end = region.end

    def _regions(self, chunk: SourceChunk) -> list[_Region]:
        start, length = chunk.extent()
        regions: list[_Region] = []
        native = self._file.pages()
        if length and native is not None:
            regions.append(_LocalPages(self, chunk, start, length, native))
        elif length:
            regions.append(_RemotePages(self, chunk, start, length))
        for offset_field, length_field, read in (
            (6, 7, chunk.column_index),
            (4, 5, chunk.offset_index),
        ):
            offset, stored = chunk.structure.integer(offset_field), chunk.structure.integer(length_field)
            if offset is not None and stored is not None and stored > 0:
                regions.append(_Made(offset, stored, _index_maker(read, stored)))
        metadata = chunk.known_metadata()
        offset = metadata.integer(14)
        if offset is not None and offset > 0:
            stored = metadata.integer(15)
            if stored is None or stored <= 0:
                stored = self._bloom_filter_length(chunk, offset)
            regions.append(_Made(offset, stored, _bloom_filter_maker(chunk, stored)))
        return regions

    def _bloom_filter_length(self, chunk: SourceChunk, offset: int) -> int:
        length = 0
        for _ in ("header", "bitset"):
            word = bytes(self._file.read(offset + length, 4, f"{chunk.name}: Bloom filter"))
            length += 4 + int.from_bytes(word, "little")
        return length

    def pread(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes at an offset; safe to call from several threads at once.

        Raises
        ------
        AuthenticationError, FormatError, TruncatedError, OSError
            Names the page or other module.
        """
        self._check_open()
        if offset < 0:
            raise ValueError(f"negative offset {offset}")
        count = max(0, min(size, self.size - offset))
        out = _blocks.fresh_bytes(count)
        with _blocks.writable_view(out) as view:
            self._fill(offset, view)
        return out

    def _fill(self, offset: int, out: memoryview) -> None:
        end = offset + len(out)
        index = bisect_right(self._starts, offset) - 1
        at = offset
        while at < end:
            region = self._regions_by_offset[index] if index >= 0 else None
            if region is not None and region.start <= at < region.end:
                stop = min(end, region.end)
                region.read_into(at, out[at - offset : stop - offset])
                at = stop
            following = index + 1
            stop = min(end, self._starts[following]) if following < len(self._starts) else end
            if at < stop:
                self._copy(at, out[at - offset : stop - offset])
                at = stop
            index = following

    def _copy(self, offset: int, out: memoryview) -> None:
        """Bytes that the file has in plaintext."""
        source = self._file.source
        if not isinstance(source, DescriptorSource):
            out[:] = memoryview(source.read(offset, len(out)))
            return
        done = 0
        while done < len(out):
            count = os.preadv(source._descriptor, [out[done:]], offset + done)
            if count == 0:
                raise TruncatedError(f"{self._file.where}became shorter while it was being read")
            done += count

    def _kept_part(self, start: int, part: int, make: Callable[[], bytes]) -> bytes:
        """A decrypted part of a region, from the cache if it is there."""
        name = (start, part)
        with self._lock:
            found = self._kept.get(name)
            if found is not None:
                self._kept.move_to_end(name)
                return found
        made = make()
        with self._lock:
            if name not in self._kept:
                self._kept[name] = made
                self._kept_bytes += len(made)
            while self._kept_bytes > _KEPT_BYTES and len(self._kept) > 1:
                _, dropped = self._kept.popitem(last=False)
                self._kept_bytes -= len(dropped)
        return made

    def _conversion(self) -> Conversion:
        return Conversion(self._file.footer.file_aad, threads=self._threads)

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def read(self, size: int | None = -1) -> bytes:
        """Read up to `size` bytes, or all that are left."""
        self._check_open()
        position = self._position
        wanted = self.size - position if size is None or size < 0 else size
        data = self.pread(position, wanted)
        self._position = position + len(data)
        return data

    def readall(self) -> bytes:
        """All that is left."""
        return self.read(-1)

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer as far as there are bytes."""
        self._check_open()
        with memoryview(buffer).cast("B") as view:
            count = max(0, min(len(view), self.size - self._position))
            self._fill(self._position, view[:count])
        self._position += count
        return count

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move the position."""
        self._check_open()
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self.size}.get(whence)
        if base is None:
            raise ValueError(f"whence must be 0, 1 or 2, got {whence}")
        if base + offset < 0:
            raise ValueError(f"negative seek position {base + offset}")
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        """The position."""
        self._check_open()
        return self._position

    def close(self) -> None:
        """Give back the source, if it was opened here, and forget what was decrypted."""
        if not self.closed:
            super().close()
            self._file.close()
            self._kept.clear()

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file.")


class _Region:
    """A range of the view that is not what the file has there."""

    def __init__(self, start: int, length: int) -> None:
        self.start = start
        self.end = start + length

    def read_into(self, offset: int, out: memoryview) -> None:
        """Fill `out` from an offset of the view; all of it is in this region."""
        raise NotImplementedError


class _Fixed(_Region):
    """Bytes that are known."""

    def __init__(self, start: int, data: bytes) -> None:
        super().__init__(start, len(data))
        self._data = data

    def read_into(self, offset: int, out: memoryview) -> None:
        out[:] = self._data[offset - self.start :][: len(out)]


class _Made(_Region):
    """An index or a Bloom filter, decrypted when it is first read."""

    def __init__(self, start: int, length: int, make: Callable[[], bytes]) -> None:
        super().__init__(start, length)
        self._make = make
        self._data: bytes | None = None

    def read_into(self, offset: int, out: memoryview) -> None:
        if self._data is None:
            self._data = self._make()
        out[:] = self._data[offset - self.start :][: len(out)]


class _LocalPages(_Region):
    """A column chunk in a file or in memory: whole pages go straight into the caller's memory."""

    def __init__(self, view: ParquetView, chunk: SourceChunk, start: int, length: int, source: PageSource) -> None:
        super().__init__(start, length)
        self._view = view
        self._chunk = chunk
        self._source = source
        self._pages: PageList | None = None
        self._lock = threading.Lock()

    def _found(self) -> PageList:
        """All pages of the chunk: the list does not change once it is made, so that threads may share it."""
        with self._lock:
            if self._pages is None:
                pages = PageList(self._view._file.footer.file_aad)
                walk = self._chunk.to_walk()
                while not walk.done:
                    pages.add(walk, self._source, _WHOLE_CHUNK, _UNLIMITED_PAGES)
                self._pages = pages
            return self._pages

    def read_into(self, offset: int, out: memoryview) -> None:
        pages = self._found()
        done = 0
        while done < len(out):
            index = pages.index_at(offset + done)
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
                self._view._conversion().view(pages, self._source, part, start, index, last)
                done = finish - offset
            else:
                data = self._view._kept_part(self.start, index, lambda index=index: self._page(index))  # type: ignore[misc]
                skip = offset + done - start
                count = min(length - skip, len(out) - done)
                out[done : done + count] = data[skip : skip + count]
                done += count

    def _page(self, index: int) -> bytes:
        pages = self._found()
        start, length = pages.extent(index)
        out = _blocks.fresh_bytes(length)
        with _blocks.writable_view(out) as view:
            self._view._conversion().view(pages, self._source, view, start, index, index + 1)
        return out


class _RemotePages(_Region):
    """A column chunk that comes in requests: parts of whole pages, fetched and decrypted at once, and kept."""

    def __init__(self, view: ParquetView, chunk: SourceChunk, start: int, length: int) -> None:
        super().__init__(start, length)
        self._view = view
        self._walk = chunk.to_walk()
        self._name = chunk.name
        self._parts: list[int] = []
        self._lists: list[PageList] = []
        self._lock = threading.Lock()

    def read_into(self, offset: int, out: memoryview) -> None:
        done = 0
        while done < len(out):
            index = self._part_of(offset + done)
            if index is None:
                out[done:] = bytes(len(out) - done)
                return
            data = self._view._kept_part(self.start, index, lambda index=index: self._decrypt(index, None))  # type: ignore[misc]
            skip = offset + done - self._parts[index]
            count = min(len(data) - skip, len(out) - done)
            if count <= 0:
                out[done:] = bytes(len(out) - done)
                return
            out[done : done + count] = data[skip : skip + count]
            done += count

    def _part_of(self, offset: int) -> int | None:
        """Index of the part with an offset; parts up to there are found first, one request each."""
        with self._lock:
            while not self._walk.done and self._walk.position <= offset:
                self._next_part()
        index = bisect_right(self._parts, offset) - 1
        return index if index >= 0 else None

    def _next_part(self) -> None:
        start = self._walk.position
        wanted = _REMOTE_PART
        while True:
            data = self._view._file.read(start, min(wanted, self.end - start), self._name)
            pages = PageList(self._view._file.footer.file_aad)
            source = PageSource(data, base=start, name=self._view._file.name)
            pages.add(self._walk, source, _WHOLE_CHUNK, _UNLIMITED_PAGES)
            if pages.count or self._walk.done:
                break
            wanted *= 2
        if pages.count:
            index = len(self._parts)
            self._parts.append(start)
            self._lists.append(pages)
            self._view._kept_part(self.start, index, lambda: self._decrypt(index, source))

    def _decrypt(self, index: int, source: PageSource | None) -> bytes:
        pages = self._lists[index]
        start = self._parts[index]
        length = sum(pages.extent(pages.count - 1)) - start
        if source is None:
            source = PageSource(
                self._view._file.read(start, length, self._name), base=start, name=self._view._file.name
            )
        out = _blocks.fresh_bytes(length)
        with _blocks.writable_view(out) as view:
            self._view._conversion().view(pages, source, view, start)
        return out


def _wanted(file: SourceFile, columns: Sequence[Any] | None) -> list[bool]:
    if columns is None:
        return [True] * len(file.leaves)
    if isinstance(columns, str):
        raise TypeError("columns must be a sequence of names, not one text")
    names = names_in_list(list(columns), "columns") if columns else []
    found = ColumnNames(names, lambda one, other: True).resolve([leaf.path for leaf in file.leaves])
    return kept_leaves_of(file, [index is not None for index in found])


def kept_leaves_of(file: SourceFile, wanted: list[bool]) -> list[bool]:
    """The leaves that are wanted; those of lists and maps all, if any is."""
    whole = kept_leaves(file, [not want for want in wanted])
    return [not hidden for hidden in whole] if any(wanted) else wanted


def _index_maker(read: Callable[[], bytes | None], length: int) -> Callable[[], bytes]:
    def make() -> bytes:
        data = read()
        assert data is not None
        return stretch(data, length)

    return make


def _bloom_filter_maker(chunk: SourceChunk, length: int) -> Callable[[], bytes]:
    def make() -> bytes:
        found = chunk.bloom_filter()
        assert found is not None
        header, bits = found
        if len(header) + len(bits) + _module.OVERHEAD > length:
            raise FormatError(f"{chunk.name}: its Bloom filter is longer than the metadata says")
        return stretch(header, length - len(bits)) + bits

    return make
