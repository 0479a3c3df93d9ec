"""An encrypted Parquet file as a plaintext file for any Parquet reader; ranges are decrypted when they are read.

    file    PARE  [module][module] [module][module] ...  [Bloom filter] [indexes]  [footer]
    view    PAR1  header~   body   header~   body   ...   Bloom filter   indexes    gap   footer

Every page, filter and index has the same offset and size in the view as in the file: the bytes that a module has in
addition to its plaintext become an unknown field in the header (~), which every Thrift reader skips. So opening the
view needs only the footer, and reading pages touches no other pages. The gap is for readers that read the end of a file
before they know the length of its footer: it saves them the decryption of the last column.
"""

from __future__ import annotations

import errno
import io
import os
import threading
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import attrgetter

from ags1.core import blocks
from ags1.errors import FormatError, KeyAccessError
from ags1.parquet.keys.columns import ColumnNames, names_in_list
from ags1.parquet.structure.footer import MAGIC
from ags1.parquet.structure.source_file import SourceFile
from ags1.parquet.view._footer import encode_view_footer, kept_leaves
from ags1.parquet.view.regions import MadeRegion, PartCache, Region, chunk_regions, read_chunks, whole_chunks
from ags1.storage import located
from ags1.support.arguments import one_of, spelled
from ags1.support.arrow_threads import lend
from ags1.support.forks import renew_in_children

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeAlias

    from ags1.parquet.keys.properties import DecryptionConfig
    from ags1.storage import Source

    Columns: TypeAlias = Sequence[Any] | Callable[[tuple[str, ...]], bool]

MISSING_KEYS = ("error", "drop")
# Arrow reads this many bytes at once for the footer; other readers read less.
_TAIL = 64 << 10


def names_of(path: tuple[str, ...]) -> set[str]:
    """The names, with dots, that mean a leaf: its own and those of its groups."""
    return {".".join(path[:length]) for length in range(1, len(path) + 1)}


class ParquetView(io.RawIOBase):
    """An encrypted Parquet file as a seekable plaintext binary file, for any Parquet reader.

    Parameters
    ----------
    source : path, URL, seekable binary file object or buffer
        The encrypted file. File objects are borrowed.
    decryption : DecryptionConfig or None
        Keys. None for a file that is not encrypted.
    columns : sequence of names, or callable, optional
        Show only these columns; keys of others are not needed. A name is the path of a leaf or of a group, with dots or
        as a tuple. A callable takes the path of a leaf, a tuple of str, and returns whether to show it.
    missing_keys : {"error", "drop"}
        If the key of a column is missing: refuse to open the file, or leave the column out.
    threads : int, optional
        Threads to decrypt with; by default every usable CPU.
    storage_options : mapping, optional
        Endpoint, credentials and similar options for a URL, as :func:`ags1.open`; key material beside a file is reached
        with the settings of the environment.

    Attributes
    ----------
    size : int
        Bytes of the view, known without decrypting a page.
    stored_size : int
        Bytes of the encrypted file.
    is_remote : bool
        Whether each read is a request.
    dropped : list of str
        Columns that the view leaves out because keys are missing. If the key of one leaf of a list or a map is missing,
        all its leaves are left out: without one leaf it would have another type.
    name : str
        Name of the file, if it has one.
    aad_prefix : bytes or None
        The AAD prefix that the footer was authenticated with, if there is one.

    Notes
    -----
    Thread-safe. Several threads can run :meth:`pread` at once; the other methods share a position and wait for each
    other. A forked child can continue to read, from local files. A view without references closes itself.

    Every page, index and Bloom filter is authenticated when it is read. Data without a tag is not authenticated:
    plaintext columns, and the contents of pages in AES_GCM_CTR_V1 files (their headers have a tag).

    Limits of a view:

    - It is not byte for byte the file that was encrypted. It has the same pages, indexes, filters and metadata, but
      headers have fillers, which are included in sizes in the metadata, and up to 64 KiB of zeros are before the
      footer. Decrypted pages have no CRC, because their tags were verified.
    - It does not hide columns from someone who gets a copy of it. Columns that are left out are not in the footer, but
      their bytes are in the view as they are in the file: encrypted, or plaintext. The Arrow schema in the footer is
      adapted if PyArrow is installed, and otherwise left out, which loses types that only Arrow has.
    - It detects damage only when it is read. A read that includes a damaged page fails as a whole, and readers may read
      more than requested: PyArrow joins ranges with small gaps, unless ``pre_buffer=False`` is set. After a damaged
      page header, the rest of its column chunk cannot be found.
    - To find a page, it needs the pages before it in the column chunk: their headers in a local file; whole parts of
      the chunk, one request each, from an object store. Other column chunks are not read.
    - Some readers read all of a file object, for example polars (also scan_parquet) and DuckDB. Give `columns` here, or
      give these readers an ``ags1.parquet.dataset``.
    - Threads share one position. A reader that seeks and reads in several threads, as DuckDB does with files of a
      registered file system, needs :meth:`pread`.
    - It cannot replace a path. It has no file descriptor, and cannot be memory-mapped, pickled, or sent to another
      process.

    Raises
    ------
    KeyAccessError
        A key is missing.
    AuthenticationError, FormatError, TruncatedError
        A wrong key, or a damaged file; damage in pages is raised by the read that includes it.
    ValueError
        A column that the file does not have, or another wrong argument.

    Examples
    --------
    >>> with parquet.open("out.parquet", decryption) as view:
    ...     table = pyarrow.parquet.read_table(view, columns=["ssn"])
    """

    _file: SourceFile | None = None
    # Offsets of the regions, and the regions; None once it is closed.
    _layout: tuple[list[int], list[Region]] | None = None

    def __init__(
        self,
        source: Any,
        decryption: DecryptionConfig | None,
        *,
        columns: Columns | None = None,
        missing_keys: str = "error",
        threads: int | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        one_of(missing_keys, MISSING_KEYS, "missing_keys")
        self._position = 0
        self._lock = threading.Lock()
        file = SourceFile(located(source, storage_options), decryption)
        try:
            self._cache = PartCache(file, threads)
            self._build(file, columns, missing_keys)
        except BaseException:
            file.close()
            raise
        self._file = file
        self.name = file.name or "<encrypted Parquet file>"
        lend(self)
        renew_in_children(self)

    def renew(self) -> None:
        """Start again in a forked child, where a thread of the parent that does not exist here may hold a lock."""
        self._lock = threading.Lock()
        for region in self._layout[1] if self._layout is not None else ():
            region.renew()

    def _build(self, file: SourceFile, columns: Columns | None, missing_keys: str) -> None:
        # Not those that the file keeps: the view would close with the garbage collector only.
        groups = [group.chunks() for group in file.row_groups()]
        wanted = _wanted(file, columns)
        missing: dict[int, KeyAccessError] = {}
        for chunks in groups:
            for column, chunk in enumerate(chunks):
                if wanted[column] and not chunk.readable and column not in missing:
                    missing[column] = chunk.missing or KeyAccessError(f"{chunk.name}: its key is missing")
        if missing and missing_keys == "error":
            raise or_dropped(next(iter(missing.values())))
        kept = wanted
        if missing:
            kept = kept_leaves(file, [keep and column not in missing for column, keep in enumerate(wanted)])
        self.dropped: list[str] = []
        # The errors of dropped leaves, by path. A leaf may be dropped because of another one; then it has that one's
        # error.
        self._missing: dict[tuple[str, ...], KeyAccessError] = {}
        self._paths = [leaf.path for leaf in file.leaves]
        lacking = sorted(missing)
        for column, (leaf, want, keep) in enumerate(zip(file.leaves, wanted, kept, strict=True)):
            if want and not keep:
                self.dropped.append(leaf.name)
                cause = column if column in missing else _of_collection(file, column, lacking)
                self._missing[leaf.path] = missing[cause]
        footer = encode_view_footer(file, groups, kept)
        if file.footer.algorithm is not None:
            footer = bytes(max(0, _TAIL - len(footer))) + footer
        self.size = file.footer.start + len(footer)
        self.stored_size = file.footer.size
        self.is_remote = file.source.is_remote
        self.aad_prefix = file.footer.authenticated_prefix
        regions: list[Region] = [MadeRegion(0, len(MAGIC), lambda: MAGIC)]
        regions.append(MadeRegion(file.footer.start, len(footer), lambda: footer))
        for chunks in groups:
            for chunk, keep in zip(chunks, kept, strict=True):
                if keep and chunk.encrypted:
                    regions += chunk_regions(self._cache, chunk)
        regions.sort(key=attrgetter("start"))
        end = 0
        for region in regions:
            if region.start < end:
                raise FormatError(f"{file.where}two parts of the file overlap at offset {region.start}")
            end = region.end
        self._layout = [region.start for region in regions], regions
        self._extents = [[chunk.extent() for chunk in chunks] for chunks in groups] if file.source.is_remote else []

    @property
    def source_file(self) -> SourceFile:
        """The file below the view, as it is stored."""
        if self._file is None:
            raise ValueError("I/O operation on closed file.")
        return self._file

    def will_read(self, columns: Collection[str] | None = None, row_groups: Iterable[int] | None = None) -> None:
        """Begin to fetch columns of a remote file, with several requests at once.

        Parameters
        ----------
        columns : collection of str, optional
            Paths of leaves or of groups, with dots; by default all. Other columns can still be read.
        row_groups : iterable of int, optional
            In the order in which they will be read; by default all.
        """
        file = self.source_file
        wanted = [columns is None or not names_of(path).isdisjoint(columns) for path in self._paths]
        if not self._extents:
            return
        chosen = self._extents if row_groups is None else [self._extents[index] for index in row_groups]
        file.will_read(
            (start, start + length)
            for extents in chosen
            for (start, length), want in zip(extents, wanted, strict=True)
            if want
        )

    def pread(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes at an offset; safe to call from several threads at once.

        Raises
        ------
        AuthenticationError, FormatError, TruncatedError, OSError
            The message names the page or other module.
        """
        if offset < 0:
            raise ValueError(f"negative offset {offset}")
        out = blocks.fresh_bytes(self._available(offset, max(0, size)))
        with blocks.writable_view(out) as view:
            self._read_into(offset, view)
        return out

    def _available(self, offset: int, size: int | None) -> int:
        self._check_open()
        left = max(0, self.size - offset)
        return left if size is None or size < 0 else min(size, left)

    def _read_into(self, offset: int, out: memoryview) -> None:
        file, layout = self._file, self._layout
        if self.closed or file is None or layout is None:
            raise ValueError("I/O operation on closed file.")
        source = file.source
        # A close in another thread must wait: the number of the descriptor could soon belong to another file.
        with source.descriptor():
            self._fill(source, *layout, offset, out)

    def _fill(self, source: Source, starts: list[int], regions: list[Region], offset: int, out: memoryview) -> None:
        end = offset + len(out)
        index = bisect_right(starts, offset) - 1
        at = offset
        while at < end:
            region = regions[index] if index >= 0 else None
            if region is not None and region.start <= at < region.end:
                whole = [] if at > region.start else whole_chunks(self._cache.file, regions, index, end)
                stop = whole[-1].end if whole else min(end, region.end)
                if whole:
                    read_chunks(self._cache, whole, out[at - offset : stop - offset])
                    index += len(whole) - 1
                else:
                    region.read_into(at, out[at - offset : stop - offset])
                at = stop
            following = index + 1
            stop = min(end, starts[following]) if following < len(starts) else end
            if at < stop:
                source.read_into(at, out[at - offset : stop - offset])
                at = stop
            index = following

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def read(self, size: int | None = -1) -> bytes:
        """Read up to `size` bytes, or all that are left."""
        with self._lock:
            data = self.pread(self._position, self._available(self._position, size))
            self._position += len(data)
            return data

    def read_buffer(self, size: int | None = -1) -> Any:
        """As :meth:`read`, into reused memory from PyArrow's pool; PyArrow's readers call this.

        Returns
        -------
        pyarrow.Buffer
        """
        from pyarrow import allocate_buffer

        with self._lock:
            data = allocate_buffer(self._available(self._position, size))
            with memoryview(data) as given, given.cast("B") as out:
                self._read_into(self._position, out)
            self._position += data.size
            return data

    def readall(self) -> bytes:
        """Read all remaining bytes."""
        return self.read(-1)

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer as far as there are bytes."""
        with self._lock, memoryview(buffer) as given, given.cast("B") as view:
            count = self._available(self._position, len(view))
            with view[:count] as out:
                self._read_into(self._position, out)
            self._position += count
            return count

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move the position."""
        with self._lock:
            self._check_open()
            base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self.size}.get(whence)
            if base is None:
                raise ValueError(f"whence must be 0, 1 or 2, not {whence}")
            if base + offset < 0:
                raise OSError(errno.EINVAL, f"negative seek position {base + offset}")
            self._position = base + offset
            return self._position

    def tell(self) -> int:
        """The position."""
        self._check_open()
        return self._position

    def close(self) -> None:
        """Close the source, if it was opened here, and drop decrypted data; safe to call again."""
        if not self.closed:
            super().close()
            if self._file is not None:
                # It refers to memory that the source must release.
                self._layout = None
                self._file.close()
                self._cache.parts.clear()

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file.")

    def __repr__(self) -> str:
        state = ", closed" if self.closed else ""
        return f"<ags1.parquet.ParquetView of {getattr(self, 'name', 'a file')}{state}>"


open = ParquetView


def _wanted(file: SourceFile, columns: Columns | None) -> list[bool]:
    if columns is None:
        return [True] * len(file.leaves)
    paths = [leaf.path for leaf in file.leaves]
    if callable(columns):
        asked = [bool(columns(path)) for path in paths]
    else:
        found = column_names(columns, "columns").resolve(paths)
        asked = [index is not None for index in found]
    # A list or a map is shown whole if any leaf of it is requested.
    return [not hidden for hidden in kept_leaves(file, [not ask for ask in asked])]


def column_names(columns: Sequence[Any], argument: str) -> ColumnNames:
    """The names in an argument that lists columns."""
    if isinstance(columns, str) or not isinstance(columns, Sequence):
        raise TypeError(f"{argument} must be a list of column names, not {type(columns).__name__}")
    return ColumnNames(names_in_list(list(columns), argument) if columns else [], lambda one, other: True)


def or_dropped(error: KeyAccessError) -> KeyAccessError:
    """The error of a missing key, with what reads the rest of the file. A refused service refuses that too."""
    if type(error) is not KeyAccessError:
        return error
    said = KeyAccessError(f"{error}; {spelled('missing_keys', 'drop')} leaves out the columns whose keys are missing")
    said.__cause__ = error.__cause__
    return said


def _of_collection(file: SourceFile, column: int, missing: list[int]) -> int:
    """For a leaf with a key: the leaf of the same list or map whose key is missing. `missing` is in order."""
    path = file.leaves[column].path
    # Leaves of one group are neighbours.
    place = bisect_right(missing, column)

    def in_common(other: int) -> int:
        pairs = zip(path, file.leaves[other].path, strict=False)
        return next((index for index, (one, two) in enumerate(pairs) if one != two), len(path))

    return max(missing[max(0, place - 1) : place + 1], key=in_common)
