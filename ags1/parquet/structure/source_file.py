"""Reads a Parquet file without decoding it: its footer, its column chunks and their keys, its other modules.

SourceFile   footer, leaves, row groups
SourceChunk  one column chunk: where it is, what protects it, its metadata if its key is known
"""

from __future__ import annotations

import bisect
import re
import weakref
from collections.abc import Iterable, Iterator
from functools import cached_property

from ags1.core.gcm import Key
from ags1.errors import AuthenticationError, FormatError, KeyAccessError, TruncatedError
from ags1.kms import ServiceRefusal
from ags1.parquet.native import modules as native_modules
from ags1.parquet.native.pages import AES_CTR, AES_GCM, PLAINTEXT, Chunk, PageSource
from ags1.parquet.native.thrift import BINARY, Struct
from ags1.parquet.structure.fields import (
    BloomFilterHeader,
    ColumnChunk,
    ColumnCryptoMetaData,
    ColumnMetaData,
    EncryptionWithColumnKey,
    FileMetaData,
    PageEncodingStats,
    RowGroup,
)
from ags1.parquet.structure.footer import Footer, read_footer
from ags1.parquet.structure.schema import Element, read_schema
from ags1.storage import DescriptorSource, MemorySource, PipeSource, PlannedSource, open_source
from ags1.support.arguments import spelled
from ags1.support.closing import Closing
from ags1.support.typing import Buffer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ags1.parquet.keys.properties import DecryptionConfig, FileDecryption
    from ags1.storage import Source

_ENDING = 64 << 10

# The header of a Bloom filter is smaller; parquet-java pads it to a hundred bytes.
_BLOOM_HEADER = 1024
DICTIONARY_ENCODINGS = (2, 8)
DICTIONARY_PAGE_TYPE = 2
# The field with the length of an index follows the field with its offset.
INDEX_OFFSETS = {
    native_modules.COLUMN_INDEX: ColumnChunk.COLUMN_INDEX_OFFSET,
    native_modules.OFFSET_INDEX: ColumnChunk.OFFSET_INDEX_OFFSET,
}
# Bytes of a row group and of a column chunk in the footer, with the fields that each must have.
_LEAST_GROUP, _LEAST_CHUNK = 7, 16
# The header of a dictionary page is not longer; Arrow assumes the same.
_FORGOTTEN = 100
_VERSION = re.compile(r"(?:([0-9]{1,9})(?=\.|$)(?:\.(?:([0-9]{1,9})(?=\.|$)(?:\.([0-9]{1,9}))?)?)?)?")


class SourceChunk:
    """One column chunk.

    Attributes
    ----------
    row_group, column : int
        Ordinals, as AADs have them.
    own_key : bool
        Whether it is encrypted with a key of its own, not with the footer key.
    key : Key or None
        None if it is not encrypted, or the key is not known; `missing` says why.
    metadata : Struct or None
        ColumnMetaData: complete if the key is known, otherwise what the footer shows.
    """

    __slots__ = (
        "_extent", "column", "encrypted", "file", "key", "key_metadata", "leaf", "metadata", "missing", "own_key",
        "row_group", "structure",
    )  # fmt: skip

    def __init__(self, file: SourceFile, leaf: Element, row_group: int, column: int, structure: Struct) -> None:
        self.file = file
        self.leaf = leaf
        self.row_group = row_group
        self.column = column
        self.structure = structure
        self.encrypted = False
        self.own_key = False
        self.key_metadata: bytes | None = None
        self.key: Key | None = None
        self.missing: KeyAccessError | None = None
        self.metadata = structure.struct(ColumnChunk.META_DATA)
        self._extent: tuple[int, int] | None = None
        self._resolve()

    def _resolve(self) -> None:
        if self.structure.binary(ColumnChunk.FILE_PATH):
            raise FormatError(f"{self.name}: its data is in another file, which no writer uses any more")
        crypto = self.structure.struct(ColumnChunk.CRYPTO_METADATA)
        footer = self.file.footer
        if crypto is None:
            if self.metadata is None:
                raise FormatError(f"{self.name}: has no metadata")
            self._refuse_other_protection()
            return
        if footer.algorithm is None:
            raise FormatError(f"{self.name}: is encrypted, but the file is not")
        self.encrypted = True
        own = crypto.struct(ColumnCryptoMetaData.ENCRYPTION_WITH_COLUMN_KEY)
        self.own_key = own is not None
        if own is not None:
            self.key_metadata = own.binary(EncryptionWithColumnKey.KEY_METADATA)
        elif crypto.struct(ColumnCryptoMetaData.ENCRYPTION_WITH_FOOTER_KEY) is None:
            raise FormatError(f"{self.name}: is encrypted in a way that this version does not support")
        decryption = self.file.decryption
        if decryption is None:
            return
        try:
            self.key = self.file.key_of(self.leaf.path, self.key_metadata) if self.own_key else self.file.footer_key()
        except ServiceRefusal:
            # Column keys are not available without a decryption configuration.
            raise
        except KeyAccessError as error:
            self.missing = error
            return
        self._refuse_other_protection()
        sealed = self.structure.binary(ColumnChunk.ENCRYPTED_COLUMN_METADATA)
        if sealed is not None:
            name = self._module_name(native_modules.COLUMN_METADATA)
            aad = native_modules.module_aad(
                footer.file_aad, native_modules.COLUMN_METADATA, self.row_group, self.column
            )
            self.metadata = Struct.parse(native_modules.open_module(sealed, self.key, aad, False, name), what=name)
        elif self.metadata is None:
            raise FormatError(f"{self.name}: has no metadata")

    def other_protection(self) -> str | None:
        """How the column is protected, if not with the key that was given for it by name; else None."""
        decryption = self.file.decryption
        if decryption is None or decryption.allow_plaintext or self.own_key:
            return None
        given = decryption.given_key(self.leaf.path)
        if given is None or (self.encrypted and given == self.key):
            return None
        return "is encrypted with the footer key" if self.encrypted else "is not encrypted"

    def _refuse_other_protection(self) -> None:
        found = None if self.file.any_protection else self.other_protection()
        if found is not None:
            raise AuthenticationError(
                f"{self.name} {found}, although {spelled('column_keys')} has a key for it: it was exchanged, or it is "
                "another "
                f"file ({spelled('allow_plaintext', True)} accepts it)"
            )

    @property
    def name(self) -> str:
        """The name in messages."""
        return f"{self.file.where}column {self.leaf.shown!r} in row group {self.row_group}"

    def _module_name(self, module_type: int) -> str:
        return self.file.where + str(native_modules.module_name(module_type, self.row_group, self.leaf.shown))

    @property
    def readable(self) -> bool:
        """Whether its pages can be read: it is plaintext, or its key is known."""
        return not self.encrypted or self.key is not None

    @property
    def protection(self) -> int:
        """How its page bodies are protected: a constant of native.pages."""
        if not self.encrypted:
            return PLAINTEXT
        return AES_GCM if self.file.footer.algorithm == "AES_GCM_V1" else AES_CTR

    def known_metadata(self) -> Struct:
        """ColumnMetaData; raises the error of a missing key."""
        if self.missing is not None:
            raise self.missing
        if self.metadata is None:
            raise KeyAccessError(f"{self.name} is encrypted, and no key for it was given")
        return self.metadata

    def extent(self) -> tuple[int, int]:
        """Offset and bytes of its pages; FormatError if they are not inside the file, or not known."""
        if self._extent is not None:
            return self._extent
        metadata = self.known_metadata()
        data = metadata.integer(ColumnMetaData.DATA_PAGE_OFFSET)
        length = metadata.integer(ColumnMetaData.TOTAL_COMPRESSED_SIZE)
        dictionary = metadata.integer(ColumnMetaData.DICTIONARY_PAGE_OFFSET)
        if data is None or length is None or metadata.integer(ColumnMetaData.NUM_VALUES) is None:
            raise FormatError(f"{self.name}: its metadata lacks the offset or size of its pages")
        # Some writers store 0 for none: for the dictionary page, or for the data pages of a chunk without values.
        start = max(0, data)
        if dictionary is not None and dictionary > 0 and (dictionary < start or not start):
            start = dictionary
        if length < 0 or (start < 4 and length) or start + length > self.file.footer.start:
            raise FormatError(f"{self.name}: its pages, {length} bytes at offset {start}, are not inside the file")
        self._extent = start, length
        return self._extent

    def longest_extent(self) -> tuple[int, int]:
        """Offset and bytes in which its pages are: `extent`, and room for the header that an old writer forgot.

        A chunk without values has no such header, and none has a byte of the next chunk.
        """
        start, length = self.extent()
        if self.file.forgets_dictionary_headers and self.known_metadata().integer(ColumnMetaData.NUM_VALUES):
            length = self.file.longest(start, length)
        return start, length

    def other_column(self) -> str | None:
        """The column that its metadata names, if it is another column of the file."""
        path = self.known_metadata().list(ColumnMetaData.PATH_IN_SCHEMA)
        if path is None or path.kind != BINARY or list(path) == self.leaf.octets:
            return None
        named = tuple(part.decode("utf-8", "surrogateescape") for part in path)
        return ".".join(named) if named != self.leaf.path and named in self.file.paths else None

    def has_dictionary(self) -> bool:
        """Whether its metadata announces a dictionary page, by the rules of any reader."""
        metadata = self.known_metadata()
        if metadata.integer(ColumnMetaData.DICTIONARY_PAGE_OFFSET, 0):
            return True
        stats = metadata.list(ColumnMetaData.ENCODING_STATS)
        if stats is not None:
            return any(
                isinstance(each, Struct) and each.integer(PageEncodingStats.PAGE_TYPE) == DICTIONARY_PAGE_TYPE
                for each in stats
            )
        encodings = metadata.list(ColumnMetaData.ENCODINGS)
        return encodings is not None and any(each in DICTIONARY_ENCODINGS for each in encodings.integers())

    def to_walk(self, **target: Any) -> Chunk:
        """The chunk for a page walk; `target` has the arguments for the converted pages."""
        start, length = self.longest_extent()
        return Chunk(
            start,
            length,
            self.known_metadata().integer(ColumnMetaData.NUM_VALUES, 0),
            self.leaf.shown,
            source_protection=self.protection,
            source_key=self.key,
            source_ordinals=(self.row_group, self.column),
            dictionary_expected=self.has_dictionary(),
            ends_with_values=self.file.forgets_dictionary_headers,
            **target,
        )

    def index_place(self, module_type: int) -> tuple[int, int] | None:
        """Offset and stored bytes of the column index or the offset index, if there is one."""
        field = INDEX_OFFSETS[module_type]
        offset, length = self.structure.integer(field), self.structure.integer(field + 1)
        return None if offset is None or length is None or length <= 0 else (offset, length)

    def index(self, module_type: int) -> bytes | None:
        """The ColumnIndex or OffsetIndex structure, decrypted, if there is one."""
        place = self.index_place(module_type)
        if place is None:
            return None
        name = self._module_name(module_type)
        plain = self._open(module_type, self.file.read(*place, name))
        return plain[: Struct.parse(plain, what=name).nbytes]

    def _open(self, module_type: int, data: Buffer, page: int | None = None) -> bytes:
        if not self.encrypted:
            return bytes(data)
        self.known_metadata()
        assert self.key is not None
        aad = native_modules.module_aad(self.file.footer.file_aad, module_type, self.row_group, self.column, page)
        return bytes(native_modules.open_module(data, self.key, aad, False, self._module_name(module_type)))

    def open_sealed(
        self, module_type: int, offset: int, longest: int = 1 << 32, page: int | None = None
    ) -> tuple[int, bytes]:
        """Stored length and plaintext of a module whose length only its own length word has."""
        name = self._module_name(module_type)
        length = 4 + int.from_bytes(bytes(self.file.read(offset, 4, name)), "little")
        if length > longest:
            raise FormatError(f"{name}: its length word says {length - 4} bytes, which is too many")
        return length, self._open(module_type, self.file.read(offset, length, name), page)

    def bloom_filter(self) -> tuple[bytes, bytes] | None:
        """Header and bitset of the Bloom filter, decrypted, if there is one."""
        metadata = self.known_metadata()
        offset = metadata.integer(ColumnMetaData.BLOOM_FILTER_OFFSET)
        if offset is None or offset <= 0:
            return None
        name = self._module_name(native_modules.BLOOM_FILTER_HEADER)
        if self.encrypted:
            self.refuse_plaintext_filter(offset)
            stored, plain = self.open_sealed(native_modules.BLOOM_FILTER_HEADER, offset)
            _, bits = self.open_sealed(native_modules.BLOOM_FILTER_BITSET, offset + stored)
            return plain[: Struct.parse(plain, what=name).nbytes], bits
        stated = metadata.integer(ColumnMetaData.BLOOM_FILTER_LENGTH)
        length = stated if stated is not None and stated > 0 else _BLOOM_HEADER
        data = self.file.read(offset, min(length, self.file.footer.start - offset), name)
        structure = Struct.parse(data, what=name)
        header = bytes(memoryview(data)[: structure.nbytes])
        size = structure.integer(BloomFilterHeader.NUM_BYTES)
        if size is None or size < 0:
            raise FormatError(f"{name}: has no size of the filter")
        return header, bytes(self.file.read(offset + len(header), size, name))

    def has_plaintext_filter(self, offset: int) -> bool:
        """Whether a Bloom filter is stored in plaintext, as arrow-rs does even in encrypted columns."""
        name = self._module_name(native_modules.BLOOM_FILTER_HEADER)
        data = self.file.read(offset, max(0, min(64, self.file.footer.start - offset)), name)
        try:
            header = Struct.parse(data)
            unions = (BloomFilterHeader.ALGORITHM, BloomFilterHeader.HASH, BloomFilterHeader.COMPRESSION)
            return header.integer(BloomFilterHeader.NUM_BYTES, 0) > 0 and all(
                header.struct(each) is not None for each in unions
            )
        except FormatError:
            return False

    def refuse_plaintext_filter(self, offset: int) -> None:
        """Refuse a plaintext filter of an encrypted column.

        Without a key, anyone can test values of the column with it, and can change which rows readers find.
        """
        if self.has_plaintext_filter(offset):
            raise FormatError(
                f"{self.name}: its Bloom filter is not encrypted, although the column is; rewrite the file with "
                f"{spelled('drop_bloom_filters', True)}, which leaves the filters out"
            )


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

    def chunks(self) -> Iterator[SourceChunk]:
        """All column chunks, in order."""
        chunks = self.structure.list(RowGroup.COLUMNS)
        leaves = self.file.leaves
        if chunks is None or len(chunks) != len(leaves):
            count = 0 if chunks is None else len(chunks)
            raise FormatError(
                f"{self.file.where}row group {self.index} has {count} column chunks, but the schema {len(leaves)} "
                "columns"
            )
        for column, (leaf, structure) in enumerate(zip(leaves, chunks, strict=True)):
            if not isinstance(structure, Struct):
                raise FormatError(f"{self.file.where}row group {self.index} has an invalid column chunk")
            yield SourceChunk(self.file, leaf, self.ordinal, column, structure)


class SourceFile(Closing):
    """An open Parquet file.

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
        source = open_source(file)
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
            self._claimed = 0
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
        return [list(group.chunks()) for group in self.row_groups()]

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

    def key_of(self, path: tuple[str, ...], key_metadata: bytes | None) -> Key:
        """Key of a column with its own."""
        assert self.decryption is not None
        return self.decryption.column_key(path, key_metadata)

    def footer_key(self) -> Key:
        """The footer key, for columns that use it."""
        if self.footer.key is None:
            assert self.decryption is not None
            self.footer.key = self.decryption.footer_key(self.footer.key_metadata)
        return self.footer.key

    def read(self, offset: int, length: int, name: str) -> Buffer:
        """Read bytes before the footer."""
        self._check_inside(offset, length, name)
        try:
            return self.source.read(offset, length)
        except TruncatedError as error:
            raise TruncatedError(f"{name}: {error}") from None

    def read_into(self, offset: int, out: memoryview, name: str) -> None:
        """Fill `out` with bytes before the footer."""
        self._check_inside(offset, len(out), name)
        try:
            self.source.read_into(offset, out)
        except TruncatedError as error:
            raise TruncatedError(f"{name}: {error}") from None

    def _check_inside(self, offset: int, length: int, name: str) -> None:
        if offset < 0 or length < 0 or offset + length > self.footer.start:
            raise FormatError(f"{name}: {length} bytes at offset {offset} are not inside the file")

    def claim(self, length: int, name: str) -> None:
        """Count bytes that only one column chunk can have. FormatError: their sum is larger than the file.

        Otherwise a small file, in which many columns claim the same bytes, could cause any amount of work.
        """
        self._claimed += length
        if self._claimed > self.footer.start:
            raise FormatError(f"{name}: columns share pages, indexes or Bloom filters, which is not valid")

    def will_read(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Begin to fetch ranges, (begin, end) each, if the file is remote."""
        if isinstance(self.source, PlannedSource):
            self.source.will_read(ranges)

    def pages(self) -> PageSource | None:
        """The file for native code; None if only Python code can read it."""
        if isinstance(self.source, DescriptorSource):
            return PageSource(self.source.fileno(), name=self.name)
        if isinstance(self.source, MemorySource):
            return PageSource(self.source.view, name=self.name)
        return None

    def close(self) -> None:
        """Close what was opened for it; safe to call again."""
        self._close()


def foretells_dictionary(metadata: Struct) -> bool:
    """Whether parquet-java assumes, before it decrypts the first page, that it is a dictionary page.

    It uses the encoding statistics: there is a dictionary page, and a data page uses it. Without statistics, the
    encodings.
    """
    stats, encodings = metadata.list(ColumnMetaData.ENCODING_STATS), metadata.list(ColumnMetaData.ENCODINGS)
    if stats is None:
        codes = encodings.integers() if encodings is not None else []
        return any(code in DICTIONARY_ENCODINGS for code in codes)
    entries = [
        (each.integer(PageEncodingStats.PAGE_TYPE), each.integer(PageEncodingStats.ENCODING))
        for each in stats.structs()
        if each.integer(PageEncodingStats.COUNT, 0) > 0
    ]
    return any(kind == DICTIONARY_PAGE_TYPE for kind, _ in entries) and any(
        kind != DICTIONARY_PAGE_TYPE and encoding in DICTIONARY_ENCODINGS for kind, encoding in entries
    )


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
        self._is_whole = whole is not None
        self.source: PageSource = whole if whole is not None else PageSource(b"")

    def has(self, position: int) -> bool:
        """Whether the byte at this position is available without another request."""
        return self._is_whole or self._begin <= position < self._end

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
        if self._is_whole:
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
