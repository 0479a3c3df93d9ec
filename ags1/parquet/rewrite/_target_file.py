"""Writes a Parquet file from the column chunks of other files, without decoding them.

    PAR1 or PARE   pages ...   Bloom filters   column indexes   offset indexes   footer

A chunk whose key, AAD and position stay the same, or that is plaintext before and after, is copied unchanged. The pages
of all other chunks are converted. Offsets and sizes are rewritten; all other fields are kept, whether this version
knows them or not. Source: parquet.thrift; Parquet encryption specification.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence

from ags1.errors import FormatError
from ags1.parquet.native import modules
from ags1.parquet.native.conversion import Conversion
from ags1.parquet.native.pages import AES_CTR, AES_GCM, PLAINTEXT, Chunk, PageList
from ags1.parquet.native.thrift import BINARY, I16, I32, I64, LIST, STRUCT, List, Struct
from ags1.parquet.rewrite._page_copy import move_chunks
from ags1.parquet.structure.fields import (
    ColumnChunk,
    ColumnCryptoMetaData,
    ColumnMetaData,
    EncryptionWithColumnKey,
    FileMetaData,
    OffsetIndex,
    PageLocation,
    RowGroup,
    names_of,
)
from ags1.parquet.structure.footer import ENCRYPTED_MAGIC, MAGIC, encode_footer
from ags1.parquet.structure.schema import read_schema
from ags1.parquet.structure.source_file import (
    DICTIONARY_ENCODINGS,
    INDEX_OFFSETS,
    SourceChunk,
    SourceFile,
    SourceRowGroup,
    foretells_dictionary,
)
from ags1.storage import Output
from ags1.support.typing import Buffer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ags1.parquet.keys.properties import ColumnKey, FileEncryption

# Fields of ColumnMetaData that a plaintext footer shows for an encrypted column: the structure of the file, nothing
# about values.
_VISIBLE_FIELDS = frozenset(
    {
        ColumnMetaData.TYPE,
        ColumnMetaData.ENCODINGS,
        ColumnMetaData.PATH_IN_SCHEMA,
        ColumnMetaData.CODEC,
        ColumnMetaData.NUM_VALUES,
        ColumnMetaData.TOTAL_UNCOMPRESSED_SIZE,
        ColumnMetaData.TOTAL_COMPRESSED_SIZE,
        ColumnMetaData.DATA_PAGE_OFFSET,
        ColumnMetaData.INDEX_PAGE_OFFSET,
        ColumnMetaData.DICTIONARY_PAGE_OFFSET,
    }
)
# The same for ColumnChunk: all known fields. Unknown fields cannot be stored in any other place.
_VISIBLE_CHUNK_FIELDS = frozenset(names_of(ColumnChunk))
# Bytes of pages.
_OPENED_AT_ONCE = 32 << 20
_V2_PAGE_TYPE = 3


@dataclasses.dataclass(slots=True)
class _TargetChunk:
    """A column chunk that is copied from one file to another."""

    source: SourceChunk
    row_group: int
    column: int
    column_key: ColumnKey | None
    structure: Struct
    metadata: Struct
    unchanged: bool = False
    chunk: Chunk = dataclasses.field(init=False)

    @property
    def name(self) -> str:
        return self.source.name


class TargetFile:
    """Writes a Parquet file to an output, which the caller commits. For one thread at a time.

    :meth:`append` may be called for several files of one schema. Their row groups are written one after another;
    `row_group_offsets` has their offsets.
    """

    def __init__(
        self,
        output: Output,
        encryption: FileEncryption | None,
        *,
        drop_bloom_filters: bool = False,
        threads: int | None = None,
    ) -> None:
        self._output = output
        self._drop_bloom_filters = drop_bloom_filters
        self._encryption = encryption
        self._threads = threads
        self._metadata: Struct | None = None
        self._row_groups = 0
        self._rows = 0
        self.row_group_offsets: list[int] = []
        self._finished: list[tuple[_TargetChunk, bytes | None, bytes | None]] = []
        output.write(MAGIC if encryption is None or encryption.plaintext_footer else ENCRYPTED_MAGIC)

    @property
    def is_empty(self) -> bool:
        """Whether it has no schema yet."""
        return self._metadata is None

    def append(
        self, source: SourceFile, *, unchanged_aad: bool = False, advance: Callable[[int], None] | None = None
    ) -> None:
        """Add all row groups of a file, which may be closed afterwards.

        With `unchanged_aad`, this file has the file AAD and the algorithm of the source, so chunks whose key stays the
        same may be copied unchanged. `advance` is called with the number of bytes of pages processed since its last
        call.
        """
        source_metadata = source.footer.metadata
        assert source_metadata is not None
        keys = self._keys([leaf.path for leaf in source.leaves])
        structures = source.row_group_structures()
        is_first = self._metadata is None
        if self._metadata is None:
            self._metadata = source_metadata.copy()
        groups = self._metadata.list(FileMetaData.ROW_GROUPS)
        assert groups is not None
        if not is_first:
            for structure in structures:
                groups.append(structure)
        self._rows += source_metadata.integer(FileMetaData.NUM_ROWS, 0)
        first = self._row_groups
        pending: list[list[_TargetChunk]] = []

        def chunks() -> Iterator[Chunk]:
            for group in source.row_groups():
                index = first + group.index
                structure = groups[index]
                assert isinstance(structure, Struct)
                chunks = source.kept_chunks[group.index]
                found = self._targets(chunks, keys, structure, index, unchanged_aad=unchanged_aad)
                pending.append(found)
                for target in found:
                    yield target.chunk

        self._move(source, chunks(), advance)
        self._settle(pending)

    def append_row_group(self, group: SourceRowGroup, further: SourceFile) -> None:
        """Add a row group whose last columns are those of another, plaintext file of one row group.

        The file has its schema already. What the row group has more columns than that leaves for it is left out.
        """
        assert self._metadata is not None
        groups = self._metadata.list(FileMetaData.ROW_GROUPS)
        assert groups is not None
        (behind,) = further.row_groups()
        _, leaves = read_schema(self._metadata)
        width, index = len(leaves) - len(further.leaves), self._row_groups
        keys = self._keys([leaf.path for leaf in leaves])
        structure = group.structure.copy()
        own, others = (each.list(RowGroup.COLUMNS) for each in (structure, behind.structure))
        assert own is not None
        assert others is not None
        structure.set(RowGroup.COLUMNS, LIST, List(STRUCT, [*list(own)[:width], *others]))
        rows = group.structure.integer(RowGroup.NUM_ROWS)
        if rows is None or rows != behind.structure.integer(RowGroup.NUM_ROWS):
            raise FormatError(f"row group {group.index} says that it has {rows} rows, and the further columns have not")
        groups.append(structure)
        structure = groups[index]
        assert isinstance(structure, Struct)
        self._rows += rows
        found: list[_TargetChunk] = []
        for source, chunks in ((group.file, list(group.chunks())[:width]), (further, list(behind.chunks()))):
            targets = self._targets(chunks, keys[len(found) :][: len(chunks)], structure, index, len(found))
            self._move(source, (each.chunk for each in targets), None)
            found += targets
        self._settle([found])

    def _keys(self, paths: Sequence[tuple[str, ...]]) -> Sequence[ColumnKey | None]:
        return [None] * len(paths) if self._encryption is None else self._encryption.columns(paths)

    def _targets(
        self,
        chunks: Iterable[SourceChunk],
        keys: Sequence[ColumnKey | None],
        structure: Struct,
        row_group: int,
        first: int = 0,
        *,
        unchanged_aad: bool = False,
    ) -> list[_TargetChunk]:
        """Column chunks as they will be in a row group of this file, from column `first` on."""
        nodes = structure.list(RowGroup.COLUMNS)
        assert nodes is not None
        found = []
        for column, (chunk, key) in enumerate(zip(chunks, keys, strict=True), first):
            other = None
            if self._encryption is not None:
                modules.check_ordinal(row_group, "row group", chunk.file.name)
                modules.check_ordinal(column, "column", chunk.file.name)
                other = chunk.other_column()
            if other is not None:
                # parquet-java would treat these pages as that column, which may have no key.
                raise FormatError(f"{chunk.name}: its metadata says that it is column {other!r}")
            node = nodes[column]
            assert isinstance(node, Struct)
            target = _TargetChunk(chunk, row_group, column, key, node, chunk.known_metadata().copy())
            target.unchanged = self._is_unchanged(target, unchanged_aad)
            target.chunk = self._to_walk(target)
            found.append(target)
        return found

    def _move(self, source: SourceFile, chunks: Iterable[Chunk], advance: Callable[[int], None] | None) -> None:
        encryption = self._encryption
        conversion = Conversion(
            source.footer.file_aad,
            b"" if encryption is None else encryption.file_aad,
            levels_inside=encryption is not None and encryption.data_page_v2 == "arrow",
            threads=self._threads,
        )
        move_chunks(source, chunks, self._output, conversion, advance or (lambda count: None))

    def _settle(self, pending: list[list[_TargetChunk]]) -> None:
        """Set what depends on where the pages are, after they are written."""
        self._row_groups += len(pending)
        for settle in (self._settle_pages, self._write_bloom_filter, self._keep_indexes):
            for found in pending:
                for target in found:
                    settle(target)
        for found in pending:
            self._settle_row_group(found)

    def _is_unchanged(self, target: _TargetChunk, unchanged_aad: bool) -> bool:
        source, key = target.source, target.column_key
        if key is None or not source.encrypted:
            if key is not None or source.encrypted or source.file.forgets_dictionary_headers:
                return False
            return _pages_of(source, self._threads) is not None
        if not unchanged_aad or source.row_group != target.row_group or source.key != key.key:
            return False
        found = _pages_of(source, self._threads)
        return found is not None and not found

    def _to_walk(self, target: _TargetChunk) -> Chunk:
        key = target.column_key
        if target.unchanged:
            return target.source.to_walk(raw=True)
        protection = PLAINTEXT
        if key is not None:
            assert self._encryption is not None
            protection = AES_GCM if self._encryption.algorithm == "AES_GCM_V1" else AES_CTR
        return target.source.to_walk(
            target_protection=protection,
            target_key=key.key if key is not None else None,
            target_ordinals=(target.row_group, target.column),
        )

    def _settle_pages(self, target: _TargetChunk) -> None:
        """Set offsets and sizes of the pages, after they are written."""
        metadata, chunk = target.metadata, target.chunk
        if target.unchanged:
            shift = max(chunk.first_offset, 4) - chunk.start
            for field in (
                ColumnMetaData.DATA_PAGE_OFFSET,
                ColumnMetaData.INDEX_PAGE_OFFSET,
                ColumnMetaData.DICTIONARY_PAGE_OFFSET,
            ):
                offset = metadata.integer(field)
                if offset is not None and offset > 0:
                    metadata.set(field, I64, _fitting(offset + shift, target.name))
            return
        metadata.set(ColumnMetaData.TOTAL_UNCOMPRESSED_SIZE, I64, chunk.total_uncompressed)
        metadata.set(ColumnMetaData.TOTAL_COMPRESSED_SIZE, I64, chunk.total_compressed)
        first = max(chunk.first_offset, 4)
        offset = chunk.data_page_offset if chunk.data_page_offset >= 0 else first
        metadata.set(ColumnMetaData.DATA_PAGE_OFFSET, I64, offset)
        metadata.remove(ColumnMetaData.INDEX_PAGE_OFFSET)
        if chunk.dictionary_page_offset >= 0:
            metadata.set(ColumnMetaData.DICTIONARY_PAGE_OFFSET, I64, chunk.dictionary_page_offset)
        else:
            metadata.remove(ColumnMetaData.DICTIONARY_PAGE_OFFSET)
        # No reader uses the first page of a chunk without values.
        if target.column_key is not None and chunk.values > 0:
            _agree_on_dictionary(metadata, chunk.dictionary_page_offset >= 0)

    def _write_bloom_filter(self, target: _TargetChunk) -> None:
        metadata = target.metadata
        found = None if self._drop_bloom_filters else target.source.bloom_filter()
        if found is None:
            metadata.remove(ColumnMetaData.BLOOM_FILTER_OFFSET)
            metadata.remove(ColumnMetaData.BLOOM_FILTER_LENGTH)
            return
        header, bits = found
        target.source.file.claim(len(header) + len(bits), target.name)
        offset = self._output.position
        self._output.write(self._protect(target, modules.BLOOM_FILTER_HEADER, header))
        self._output.write(self._protect(target, modules.BLOOM_FILTER_BITSET, bits))
        metadata.set(ColumnMetaData.BLOOM_FILTER_OFFSET, I64, offset)
        metadata.set(ColumnMetaData.BLOOM_FILTER_LENGTH, I32, self._output.position - offset)

    def _protect(self, target: _TargetChunk, module_type: int, data: bytes) -> Buffer:
        key = target.column_key
        if key is None:
            return data
        assert self._encryption is not None
        aad = modules.module_aad(self._encryption.file_aad, module_type, target.row_group, target.column)
        return bytes(modules.seal_module(data, key.key, aad))

    def _keep_indexes(self, target: _TargetChunk) -> None:
        """Keep the indexes, which are written after all row groups."""
        column_index, offset_index = map(target.source.index, INDEX_OFFSETS)
        if column_index is not None or offset_index is not None:
            target.source.file.claim(len(column_index or b"") + len(offset_index or b""), target.name)
        if offset_index is not None:
            offset_index = _moved(offset_index, target)
        self._finished.append((target, column_index, offset_index))

    def _settle_row_group(self, targets: list[_TargetChunk]) -> None:
        groups = self._metadata.list(FileMetaData.ROW_GROUPS) if self._metadata is not None else None
        if groups is None or not targets:
            return
        structure = groups[targets[0].row_group]
        assert isinstance(structure, Struct)
        name = targets[0].name
        uncompressed = sum(each.metadata.integer(ColumnMetaData.TOTAL_UNCOMPRESSED_SIZE, 0) for each in targets)
        structure.set(RowGroup.TOTAL_BYTE_SIZE, I64, _fitting(uncompressed, name))
        start = max(4, targets[0].chunk.first_offset)
        self.row_group_offsets.append(start)
        structure.set(RowGroup.FILE_OFFSET, I64, start)
        compressed = sum(each.metadata.integer(ColumnMetaData.TOTAL_COMPRESSED_SIZE, 0) for each in targets)
        structure.set(RowGroup.TOTAL_COMPRESSED_SIZE, I64, _fitting(compressed, name))
        if self._encryption is not None or structure.kind(RowGroup.ORDINAL) is not None:
            structure.set(RowGroup.ORDINAL, I16, targets[0].row_group)

    def finish(self) -> None:
        """Write the indexes and the footer. The caller commits the output."""
        assert self._metadata is not None
        for number, (module_type, field) in enumerate(INDEX_OFFSETS.items()):
            for target, *indexes in self._finished:
                structure, data = target.structure, indexes[number]
                if data is None:
                    structure.remove(field)
                    structure.remove(field + 1)
                    continue
                offset = self._output.position
                self._output.write(self._protect(target, module_type, data))
                structure.set(field, I64, offset)
                structure.set(field + 1, I32, self._output.position - offset)
        for target, _, _ in self._finished:
            self._write_metadata(target)
        self._metadata.set(FileMetaData.NUM_ROWS, I64, _fitting(self._rows, "the file"))
        self._output.write(encode_footer(self._metadata, self._encryption))

    def _write_metadata(self, target: _TargetChunk) -> None:
        """Store ColumnMetaData in the place and form that footer mode and column key require."""
        structure, metadata, key = target.structure, target.metadata, target.column_key
        encryption = self._encryption
        structure.set(ColumnChunk.FILE_OFFSET, I64, 0)
        structure.remove(ColumnChunk.CRYPTO_METADATA)
        structure.remove(ColumnChunk.ENCRYPTED_COLUMN_METADATA)
        if key is None or encryption is None:
            structure.set(ColumnChunk.META_DATA, STRUCT, metadata)
            return
        structure.set(ColumnChunk.CRYPTO_METADATA, STRUCT, _crypto_metadata(target, key))
        if key.with_footer_key and not encryption.plaintext_footer:
            structure.set(ColumnChunk.META_DATA, STRUCT, metadata)
            return
        aad = modules.module_aad(encryption.file_aad, modules.COLUMN_METADATA, target.row_group, target.column)
        sealed = modules.seal_module(metadata.encode(), key.key, aad)
        structure.set(ColumnChunk.ENCRYPTED_COLUMN_METADATA, BINARY, sealed)
        if encryption.plaintext_footer:
            for field in set(metadata.ids()) - _VISIBLE_FIELDS:
                metadata.remove(field)
            structure.set(ColumnChunk.META_DATA, STRUCT, metadata)
            for field in set(structure.ids()) - _VISIBLE_CHUNK_FIELDS:
                structure.remove(field)
        else:
            structure.remove(ColumnChunk.META_DATA)


def _fitting(number: int, name: str) -> int:
    """Check a sum or an offset that depends on values in the file."""
    if not -(1 << 63) <= number < 1 << 63:
        raise FormatError(f"{name}: its metadata has sizes or offsets that are out of range")
    return number


def _crypto_metadata(target: _TargetChunk, key: ColumnKey) -> Struct:
    union = Struct()
    if key.with_footer_key:
        union.set(ColumnCryptoMetaData.ENCRYPTION_WITH_FOOTER_KEY, STRUCT, Struct())
        return union
    own = Struct()
    path = [part.encode("utf-8", "surrogateescape") for part in target.source.leaf.path]
    own.set(EncryptionWithColumnKey.PATH_IN_SCHEMA, LIST, List(BINARY, path))
    if key.key_metadata is not None:
        own.set(EncryptionWithColumnKey.KEY_METADATA, BINARY, key.key_metadata)
    union.set(ColumnCryptoMetaData.ENCRYPTION_WITH_COLUMN_KEY, STRUCT, own)
    return union


def _pages_of(source: SourceChunk, threads: int | None) -> bool | None:
    """Check tags and CRCs of the pages of a chunk before it is copied unchanged, so that damage is not copied.

    Return whether it has V2 pages with levels, which have two forms in encrypted files. (The encoding statistics do not
    show it: Arrow C++ and parquet-java's rewriter count V2 pages as V1 pages.) Return None if only Python code can read
    the pages: searching them would then cost more than converting them one by one.
    """
    conversion = Conversion(source.file.footer.file_aad, threads=threads)
    pages = source.file.pages()
    if pages is None:
        return None
    walked, chunk = PageList(source.file.footer.file_aad), source.to_walk()
    two_forms = False
    while not chunk.done:
        walked.clear()
        walked.add(chunk, pages, _OPENED_AT_ONCE)
        if source.encrypted or chunk.checksums:
            for _, _, error in conversion.verify(walked, pages):
                raise error
        two_forms = two_forms or any(
            page["type"] == _V2_PAGE_TYPE and page["levels_length"] for page in walked.details()
        )
    return two_forms


def _agree_on_dictionary(metadata: Struct, has_dictionary: bool) -> None:
    """Make the metadata consistent, so that all readers agree on whether the first page is a dictionary page.

    Arrow and arrow-rs use dictionary_page_offset; for parquet-java see :func:`foretells_dictionary`.
    """
    if foretells_dictionary(metadata) == has_dictionary:
        return
    metadata.remove(ColumnMetaData.ENCODING_STATS)
    if foretells_dictionary(metadata) == has_dictionary:
        return
    encodings = metadata.list(ColumnMetaData.ENCODINGS)
    codes = encodings.integers() if encodings is not None else []
    kept: list[Any] = [code for code in codes if code not in DICTIONARY_ENCODINGS]
    metadata.set(ColumnMetaData.ENCODINGS, LIST, List(I32, [*kept, 8] if has_dictionary else kept))


def _moved(offset_index: bytes, target: _TargetChunk) -> bytes:
    """An offset index with the new offsets and sizes of its pages."""
    if not target.unchanged:
        moved = target.chunk.moved_offset_index(offset_index)
        if moved is not None:
            return moved
    name = f"{target.name}: its offset index"
    structure = Struct.parse(offset_index, what=name)
    entries = structure.list(OffsetIndex.PAGE_LOCATIONS)
    if entries is None or not all(isinstance(each, Struct) for each in entries):
        raise FormatError(f"{name} has no page locations")
    chunk = target.chunk
    if target.unchanged:
        shift = max(chunk.first_offset, 4) - chunk.start
        for entry in entries:
            assert isinstance(entry, Struct)
            entry.set(PageLocation.OFFSET, I64, _fitting(entry.integer(PageLocation.OFFSET, 0) + shift, name))
        return structure.encode()
    places = {before: (after, size) for before, after, size in chunk.page_locations()}
    for index, entry in enumerate(entries):
        assert isinstance(entry, Struct)
        place = places.get(entry.integer(PageLocation.OFFSET, -1))
        if place is None:
            raise FormatError(f"{name} has no data page at the offset that entry {index} names")
        entry.set(PageLocation.OFFSET, I64, place[0])
        entry.set(PageLocation.COMPRESSED_PAGE_SIZE, I32, place[1])
    return structure.encode()
