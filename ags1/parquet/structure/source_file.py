"""Reads a Parquet file without decoding it: its footer, its column chunks and their keys, its other modules."""

from __future__ import annotations

import bisect
import re
import weakref
from collections.abc import Iterable, Iterator
from functools import cached_property

from ags1.core.gcm import Key
from ags1.errors import FormatError, KeyAccessError, TruncatedError
from ags1.parquet.native import modules as native_modules
from ags1.parquet.native.pages import PageSource
from ags1.parquet.native.thrift import Struct
from ags1.parquet.structure.chunks import SourceChunk, chunks_of
from ags1.parquet.structure.fields import FileMetaData, RowGroup
from ags1.parquet.structure.footer import Footer, read_footer
from ags1.parquet.structure.schema import Element, read_schema
from ags1.storage import DescriptorSource, Entry, MemorySource, PipeSource, PlannedSource, open_source
from ags1.support.arguments import spelled
from ags1.support.closing import Closing
from ags1.support.typing import Buffer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ags1.parquet.keys.properties import DecryptionConfig, FileDecryption
    from ags1.storage import Source

_ENDING = 64 << 10
# Bytes of a row group and of a column chunk in the footer, with the fields that each must have.
_LEAST_GROUP, _LEAST_CHUNK = 7, 16
# The header of a dictionary page is not longer; Arrow assumes the same.
_FORGOTTEN = 100
_VERSION = re.compile(r"(?:([0-9]{1,9})(?=\.|$)(?:\.(?:([0-9]{1,9})(?=\.|$)(?:\.([0-9]{1,9}))?)?)?)?")


class SourceRowGroup:
    """One row group: its structure, its position, and its column chunks, which are made on demand."""

    __slots__ = ("file", "index", "ordinal", "structure")

    def __init__(self, file: SourceFile, index: int, structure: Struct) -> None:
        self.file = file
        self.index = index
        self.structure = structure
        # The position: all writers count row groups from 0, so it is equal to the ordinal.
        self.ordinal: int = index
        if file.footer.algorithm is not None:
            self.ordinal = native_modules.check_ordinal(
                structure.integer(RowGroup.ORDINAL, index), "row group", file.name
            )

    def chunks(self) -> list[SourceChunk]:
        """All column chunks, in order."""
        return chunks_of(self)


class SourceFile(Closing):
    """An open Parquet file. One of a listing, an Entry, has its length, so that a small object takes one request.

    With `optional`, a missing key is an error only when it is needed; `tolerant` is as for :func:`read_footer`. With
    `any_protection`, columns are accepted that do not have the key that was given for them; the caller checks this.
    """

    def __init__(
        self,
        file: Any,
        decryption: DecryptionConfig | None = None,
        *,
        optional: bool = False,
        tolerant: bool = False,
        any_protection: bool = False,
    ) -> None:
        self.any_protection = any_protection
        expected = None
        if isinstance(file, Entry):
            file, expected = file.location, file.size
        source = open_source(file, expected=expected)
        if isinstance(source, PipeSource):
            source.close()
            raise ValueError(
                f"{source.name or 'the source'} is not seekable, which Parquet needs: copy it to a file first"
            )
        self.source: Source = PlannedSource(source) if source.is_remote else source
        self._close = weakref.finalize(self, _close, self.source)
        # One request for the footer, unless it is large.
        self.will_read([(max(0, source.size - _ENDING), source.size)])
        try:
            self.decryption: FileDecryption | None = None
            if decryption is not None:
                # bytes are memory here, never a path.
                self.decryption = decryption.for_file(None if type(source) is MemorySource else file)
            self.name = source.name
            self.where = f"{source.name}: " if source.name else ""
            self.footer: Footer = read_footer(self.source, self.decryption, optional=optional, tolerant=tolerant)
            self.schema: Element | None = None
            self.leaves: list[Element] = []
            self.forgets_dictionary_headers = False
            # Bytes that column chunks have claimed, and the keys that they have found.
            self.claimed = 0
            self.found_keys: dict[tuple[tuple[str, ...], bytes | None], Key] = {}
            if self.footer.metadata is not None:
                self.schema, self.leaves = read_schema(self.footer.metadata, self.where)
                # Encrypted files are from newer writers, whichever writer made the first version.
                if self.footer.algorithm is None:
                    self.forgets_dictionary_headers = _forgets_dictionary_headers(self.footer.metadata)
            elif not optional:
                raise KeyAccessError(f"{self.where}the footer is encrypted: give its key with {spelled('decryption')}")
            if self.footer.algorithm is not None and decryption is None and not optional:
                raise KeyAccessError(f"{self.where}the file is encrypted: give its keys with {spelled('decryption')}")
        except BaseException:
            self._close()
            raise

    def row_group_structures(self) -> list[Struct]:
        """The row groups as the footer has them; none if the footer is not decrypted."""
        if self.footer.metadata is None:
            return []
        groups = self.footer.metadata.list(FileMetaData.ROW_GROUPS)
        if groups is None:
            raise FormatError(f"{self.where}the footer has no list of row groups")
        # A byte of the footer can be a row group without anything in it, which costs a hundred bytes of memory.
        if len(groups) * (_LEAST_GROUP + _LEAST_CHUNK * len(self.leaves)) > self.footer.metadata.nbytes:
            raise FormatError(f"{self.where}the footer is too short for the {len(groups)} row groups that it has")
        return list(groups.structs())

    def row_groups(self) -> Iterator[SourceRowGroup]:
        """All row groups, in order."""
        for index, structure in enumerate(self.row_group_structures()):
            yield SourceRowGroup(self, index, structure)

    @cached_property
    def kept_chunks(self) -> list[list[SourceChunk]]:
        """The column chunks of all row groups, for who needs all of them at once."""
        return [group.chunks() for group in self.row_groups()]

    @cached_property
    def _extents(self) -> list[tuple[int, int]]:
        found = sorted(chunk.extent() for chunks in self.kept_chunks for chunk in chunks)
        return [(start, length) for start, length in found if length]

    @cached_property
    def pages_size(self) -> int:
        """Bytes of all pages. FormatError: two column chunks overlap.

        A shared byte would be written several times, so that a small file could fill a disk; and once in plaintext,
        where one of the two columns has a key.
        """
        end = 0
        for start, length in self._extents:
            if start < end:
                raise FormatError(f"{self.where}two column chunks overlap at offset {start}")
            end = start + length
        return sum(self.longest(*each) if self.forgets_dictionary_headers else each[1] for each in self._extents)

    def longest(self, start: int, length: int) -> int:
        """Bytes that the pages of a column chunk may have, whose metadata says `length`, of an old writer."""
        behind = bisect.bisect_right(self._extents, (start, self.footer.start))
        room = (self._extents[behind][0] if behind < len(self._extents) else self.footer.start) - start
        return max(length, min(length + _FORGOTTEN, room))

    @cached_property
    def paths(self) -> frozenset[tuple[str, ...]]:
        """Paths of all leaves."""
        return frozenset(leaf.path for leaf in self.leaves)

    @cached_property
    def opener(self) -> native_modules.ModuleOpener:
        """What opens the small modules of column chunks."""
        return native_modules.ModuleOpener(self.footer.file_aad)

    def key_of(self, path: tuple[str, ...], key_metadata: bytes | None) -> Key:
        """Key of a column with its own."""
        assert self.decryption is not None
        key = self.found_keys[path, key_metadata] = self.decryption.column_key(path, key_metadata)
        return key

    def footer_key(self) -> Key:
        """The footer key, for columns that use it."""
        if self.footer.key is None:
            assert self.decryption is not None
            self.footer.key = self.decryption.footer_key(self.footer.key_metadata)
        return self.footer.key

    def read(self, offset: int, length: int, name: str) -> Buffer:
        """Read bytes before the footer."""
        self._check_inside(offset, length, name)
        at = offset - self.footer.ending_start
        if at >= 0:
            return self.footer.ending[at : at + length]
        try:
            return self.source.read(offset, length)
        except TruncatedError as error:
            raise TruncatedError(f"{name}: {error}") from None

    def read_into(self, offset: int, out: memoryview, name: str) -> None:
        """Fill `out` with bytes before the footer."""
        self._check_inside(offset, len(out), name)
        at = offset - self.footer.ending_start
        before = max(0, min(len(out), -at))
        out[before:] = self.footer.ending[at + before :][: len(out) - before]
        if not before:
            return
        try:
            self.source.read_into(offset, out[:before])
        except TruncatedError as error:
            raise TruncatedError(f"{name}: {error}") from None

    def _check_inside(self, offset: int, length: int, name: str) -> None:
        if offset < 0 or length < 0 or offset + length > self.footer.start:
            raise FormatError(f"{name}: {length} bytes at offset {offset} are not inside the file")

    def will_read(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Begin to fetch ranges, (begin, end) each, if the file is remote."""
        if isinstance(self.source, PlannedSource):
            self.source.will_read(ranges)

    def pages(self) -> PageSource | None:
        """The file for native code; None if only Python code can read it."""
        if not self.footer.ending_start:
            return PageSource(self.footer.ending, name=self.name)
        if isinstance(self.source, DescriptorSource):
            return PageSource(self.source.fileno(), name=self.name)
        return None

    def close(self) -> None:
        """Close what was opened for it; safe to call again."""
        self._close()


class PageWindows:
    """The range in which pages are searched: all of a local file, or a window of a remote one, which moves on.

    A window may end inside a page. The next one then begins with that page, whose bytes are not requested again, and is
    longer if the last one began with it. All have the same memory.
    """

    def __init__(self, file: SourceFile, length: int) -> None:
        self._file = file
        self._length = length
        self._begin = self._end = -1
        self._data = bytearray()
        whole = file.pages()
        self.is_whole = whole is not None
        self.source: PageSource = whole if whole is not None else PageSource(b"")

    def has(self, position: int) -> bool:
        """Whether the byte at this position is available without another request."""
        return self.is_whole or self._begin <= position < self._end

    def move_to(self, position: int) -> None:
        """Begin the window here. Pages found in the last window must not be used any more."""
        file, wanted = self._file, self._length
        if position == self._begin:
            wanted = max(wanted, 2 * (self._end - position))
        length = max(0, min(wanted, file.footer.start - position))
        # Before anything is moved: after an error there is no window.
        begin, self._begin = self._begin, -1
        end, self._end = self._end, -1
        data = self._data if len(self._data) == length else bytearray(length)
        kept = min(end - position, length) if begin <= position < end else 0
        with memoryview(data) as view:
            view[:kept] = memoryview(self._data)[position - begin :][:kept]
            with view[kept:] as rest:
                file.read_into(position + kept, rest, f"{file.where}a page")
        self._data = data
        self.source = PageSource(data, base=position, name=file.name)
        self._begin, self._end = position, position + length

    def read(self, offset: int, length: int) -> bytes:
        """Bytes of a page that was found."""
        if self.is_whole:
            return bytes(memoryview(self._file.source.read(offset, length)))
        return bytes(memoryview(self._data)[offset - self._begin :][:length])


def _close(source: Source) -> None:
    try:
        source.close()
    except BufferError:
        # The traceback of an error still holds a view of the memory; it is released with the traceback.
        pass


def _forgets_dictionary_headers(metadata: Struct) -> bool:
    """Whether the writer left the headers of dictionary pages out of ``total_compressed_size`` (PARQUET-816).

    parquet-mr did before 1.2.9. As in Arrow, a missing or invalid version counts as old.
    """
    created_by = metadata.binary(FileMetaData.CREATED_BY, b"").decode("utf-8", "replace").strip()
    application, _, version = created_by.partition(" version ")
    if application != "parquet-mr":
        return False
    match = _VERSION.match(version.partition(" (")[0].strip())
    assert match is not None
    numbers = [int(each or 0) for each in match.groups()]
    return numbers < [1, 2, 9]
