"""Writes a Parquet file from the column chunks of other files, without decoding them.

    PAR1 or PARE   pages ...   Bloom filters   column indexes   offset indexes   footer

A chunk whose key, AAD and position stay the same, or that is plaintext before and after, is copied unchanged. The pages
of all other chunks are converted. Offsets and sizes are rewritten; all other fields are kept, whether this version
knows them or not. Source: parquet.thrift; Parquet encryption specification.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

from ags1.errors import FormatError
from ags1.parquet.native import modules
from ags1.parquet.native.conversion import Conversion
from ags1.parquet.native.pages import AES_CTR, AES_GCM, PLAINTEXT, Chunk, PageList
from ags1.parquet.native.thrift import BINARY, I16, I64, LIST, STRUCT, List, Struct
from ags1.parquet.rewrite._target_chunk import TargetChunk, fitting
from ags1.parquet.rewrite.page_copy import move_chunks
from ags1.parquet.structure.chunks import INDEX_OFFSETS, SourceChunk
from ags1.parquet.structure.fields import (
    ColumnCryptoMetaData,
    ColumnMetaData,
    EncryptionWithColumnKey,
    FileMetaData,
    RowGroup,
)
from ags1.parquet.structure.footer import ENCRYPTED_MAGIC, MAGIC, encode_footer
from ags1.parquet.structure.schema import read_schema
from ags1.parquet.structure.source_file import SourceFile, SourceRowGroup
from ags1.storage import Output

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ags1.core.gcm import Key
    from ags1.parquet.keys.properties import ColumnKey, FileEncryption

# Bytes of pages.
_OPENED_AT_ONCE = 32 << 20
_V2_PAGE_TYPE = 3


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
        # With their indexes, in plaintext, by module type.
        self._finished: list[tuple[TargetChunk, dict[int, bytes]]] = []
        # ColumnCryptoMetaData of each column.
        self._crypto: list[Struct | None] = []
        self._protection = PLAINTEXT
        if encryption is not None:
            self._protection = AES_GCM if encryption.algorithm == "AES_GCM_V1" else AES_CTR
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
        pending: list[list[TargetChunk]] = []

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
        found: list[TargetChunk] = []
        for source, chunks in ((group.file, group.chunks()[:width]), (further, behind.chunks())):
            targets = self._targets(chunks, keys[len(found) :][: len(chunks)], structure, index, len(found))
            self._move(source, (each.chunk for each in targets), None)
            found += targets
        self._settle([found])

    def _keys(self, paths: Sequence[tuple[str, ...]]) -> Sequence[ColumnKey | None]:
        keys = [None] * len(paths) if self._encryption is None else self._encryption.columns(paths)
        self._crypto = self._crypto or [_crypto_metadata(*each) for each in zip(paths, keys, strict=True)]
        return keys

    def _targets(
        self,
        chunks: Iterable[SourceChunk],
        keys: Sequence[ColumnKey | None],
        structure: Struct,
        row_group: int,
        first: int = 0,
        *,
        unchanged_aad: bool = False,
    ) -> list[TargetChunk]:
        """Column chunks as they will be in a row group of this file, from column `first` on."""
        nodes = structure.list(RowGroup.COLUMNS)
        assert nodes is not None
        return [
            TargetChunk(
                chunk,
                row_group,
                column,
                key,
                nodes[column],
                protection=PLAINTEXT if key is None else self._protection,
                encrypts=self._encryption is not None,
                unchanged=self._is_unchanged(chunk, row_group, key, unchanged_aad),
            )
            for column, (chunk, key) in enumerate(zip(chunks, keys, strict=True), first)
        ]

    def _move(self, source: SourceFile, chunks: Iterable[Chunk], advance: Callable[[int], None] | None) -> None:
        encryption = self._encryption
        conversion = Conversion(
            source.footer.file_aad,
            b"" if encryption is None else encryption.file_aad,
            levels_inside=encryption is not None and encryption.data_page_v2 == "arrow",
            threads=self._threads,
        )
        move_chunks(source, chunks, self._output, conversion, advance or (lambda count: None))

    def _settle(self, pending: list[list[TargetChunk]]) -> None:
        """Set what depends on where the pages are, after they are written."""
        self._row_groups += len(pending)
        targets = list(chain.from_iterable(pending))
        for target in targets:
            target.settle_pages()
        self._write_bloom_filters(targets)
        self._finished += [(target, self._indexes(target)) for target in targets]
        for found in pending:
            self._settle_row_group(found)

    def _is_unchanged(self, source: SourceChunk, row_group: int, key: ColumnKey | None, unchanged_aad: bool) -> bool:
        if key is None or not source.encrypted:
            if key is not None or source.encrypted or source.file.forgets_dictionary_headers:
                return False
            return _pages_of(source, self._threads) is not None
        if not unchanged_aad or source.row_group != row_group or source.key != key.key:
            return False
        found = _pages_of(source, self._threads)
        return found is not None and not found

    def _write_bloom_filters(self, targets: list[TargetChunk]) -> None:
        for target in targets:
            found = None if self._drop_bloom_filters else target.source.bloom_filter()
            if found is None:
                target.place_bloom_filter(None, None)
                continue
            target.source.claim(sum(map(len, found)))
            parts = zip((modules.BLOOM_FILTER_HEADER, modules.BLOOM_FILTER_BITSET), found, strict=True)
            stored = b"".join(self._protect([target.module(kind, data) for kind, data in parts]))
            target.place_bloom_filter(self._output.position, len(stored))
            self._output.write(stored)

    def _protect(self, parts: list[tuple[bytes, Key | None, int, int, int]]) -> list[bytes]:
        return modules.seal_modules(b"" if self._encryption is None else self._encryption.file_aad, parts)

    def _indexes(self, target: TargetChunk) -> dict[int, bytes]:
        """The indexes of a chunk, which are written after all row groups."""
        found: dict[int, bytes] = {}
        for kind, field in INDEX_OFFSETS.items():
            data = target.source.index(kind)
            if data is None:
                target.place_index(field, None, None)
            else:
                found[kind] = target.moved(data) if kind == modules.OFFSET_INDEX else data
                target.source.claim(len(data))
        return found

    def _settle_row_group(self, targets: list[TargetChunk]) -> None:
        groups = self._metadata.list(FileMetaData.ROW_GROUPS) if self._metadata is not None else None
        if groups is None or not targets:
            return
        structure = groups[targets[0].row_group]
        assert isinstance(structure, Struct)
        name = targets[0].name
        uncompressed = sum(each.metadata.integer(ColumnMetaData.TOTAL_UNCOMPRESSED_SIZE, 0) for each in targets)
        structure.set(RowGroup.TOTAL_BYTE_SIZE, I64, fitting(uncompressed, name))
        start = max(4, targets[0].chunk.first_offset)
        self.row_group_offsets.append(start)
        structure.set(RowGroup.FILE_OFFSET, I64, start)
        compressed = sum(each.metadata.integer(ColumnMetaData.TOTAL_COMPRESSED_SIZE, 0) for each in targets)
        structure.set(RowGroup.TOTAL_COMPRESSED_SIZE, I64, fitting(compressed, name))
        if self._encryption is not None or structure.kind(RowGroup.ORDINAL) is not None:
            structure.set(RowGroup.ORDINAL, I16, targets[0].row_group)

    def finish(self) -> None:
        """Write the indexes and the footer. The caller commits the output."""
        assert self._metadata is not None
        for kind, field in INDEX_OFFSETS.items():
            there = [(target, indexes[kind]) for target, indexes in self._finished if kind in indexes]
            stored = self._protect([target.module(kind, data) for target, data in there])
            offset = self._output.position
            for (target, _), data in zip(there, stored, strict=True):
                target.place_index(field, offset, len(data))
                offset += len(data)
            self._output.write(b"".join(stored))
        self._store_metadata([target for target, _ in self._finished])
        self._metadata.set(FileMetaData.NUM_ROWS, I64, fitting(self._rows, "the file"))
        self._output.write(encode_footer(self._metadata, self._encryption))

    def _store_metadata(self, targets: list[TargetChunk]) -> None:
        """Store ColumnMetaData in the place and form that footer mode and column key require."""
        shown = self._encryption is not None and self._encryption.plaintext_footer
        own = [each for each in targets if each.key is not None and (shown or not each.key.with_footer_key)]
        sealed = self._protect([each.module(modules.COLUMN_METADATA, each.metadata.encode()) for each in own])
        apart = dict(zip(own, sealed, strict=True))
        for target in targets:
            target.store_metadata(self._crypto[target.column], apart.get(target), shown=shown)


def _crypto_metadata(path: tuple[str, ...], key: ColumnKey | None) -> Struct | None:
    if key is None:
        return None
    union = Struct()
    if key.with_footer_key:
        union.set(ColumnCryptoMetaData.ENCRYPTION_WITH_FOOTER_KEY, STRUCT, Struct())
        return union
    own = Struct()
    octets = [part.encode("utf-8", "surrogateescape") for part in path]
    own.set(EncryptionWithColumnKey.PATH_IN_SCHEMA, LIST, List(BINARY, octets))
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
