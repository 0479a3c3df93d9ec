"""Authenticates every module of a Parquet file without decoding a value, and reports those that fail.

    footer, or its signature
    each column chunk     column metadata  -->  pages, found by one thread and checked by many, 32 MiB at once
                          column index, offset index, Bloom filter
                          and whether sizes, offsets, ordinals and counts agree with each other

After a failed module, verification continues except for parts that cannot be found without it: the pages after a page
whose header fails, the pages of a column whose metadata fails, all of a file whose footer fails.
"""

from __future__ import annotations

from ags1.errors import AuthenticationError, FormatError, KeyAccessError, LimitError
from ags1.kms import ServiceRefusal
from ags1.parquet.keys.columns import ColumnNames, MissingColumnsError, names_in_list
from ags1.parquet.native import modules as native_modules
from ags1.parquet.native.conversion import Conversion
from ags1.parquet.native.pages import AES_CTR, AES_GCM, Chunk, PageList
from ags1.parquet.native.thrift import Struct
from ags1.parquet.structure.chunks import DICTIONARY_PAGE_TYPE, INDEX_OFFSETS, SourceChunk
from ags1.parquet.structure.consistency import (
    FoundPages,
    column_index_disagreements,
    offset_index_disagreements,
    page_disagreements,
    row_group_disagreements,
    visible_disagreements,
)
from ags1.parquet.structure.copying import seekable
from ags1.parquet.structure.fields import (
    BloomFilterHeader,
    ColumnChunk,
    ColumnCryptoMetaData,
    ColumnMetaData,
    EncryptionWithColumnKey,
    FileMetaData,
    PageHeader,
    RowGroup,
)
from ags1.parquet.structure.footer import ENCRYPTED_MAGIC, LONGEST_FOOTER, MAGIC
from ags1.parquet.structure.source_file import PageWindows, SourceFile, SourceRowGroup
from ags1.parquet.verify.report import SIGNATURE, FileTally
from ags1.storage import Source, located
from ags1.support.arguments import one_of, spelled
from ags1.support.recently_used import RecentlyUsed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from ags1.parquet.keys.columns import ColumnName
    from ags1.parquet.keys.properties import DecryptionConfig
    from ags1.parquet.structure.schema import Element
    from ags1.streams.files import Progress
    from ags1.support.reports import VerifyReport
    from ags1.support.typing import Buffer

# Errors about the data, which belong in the report.
_FAULTS = (AuthenticationError, FormatError, LimitError)
_BATCH_BYTES = 32 << 20
_BATCH_PAGES = 16384
# Bytes of a file in a store: of pages that are found at once, and of small neighbouring modules.
_WINDOW = 8 << 20
_BLOCK = 1 << 20
_BLOCKS = 8
# Ten times the length that any known writer uses for a header of 20 bytes.
_LONGEST_BLOOM_HEADER = 1 << 16
_LENGTH_WORD = 4
_CHUNK = "column chunk"
_ROW_GROUP = "row group"
_KEY = "column key"


def verify_file(
    source: Any,
    decryption: DecryptionConfig | None = None,
    *,
    missing_keys: str = "error",
    require_encrypted: Iterable[ColumnName] = (),
    allow_unauthenticated_pages: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> VerifyReport:
    """Authenticate every module of a Parquet file, without decoding it and in little memory.

    Plaintext is written to a reused buffer and is not returned. Columns that are not encrypted cannot be authenticated:
    their structure is checked, and the CRCs of their pages if there are any. The same applies to the pages of
    AES_GCM_CTR_V1 files; the report has their number. A file is "authentic" only if all parts that must be protected
    were authenticated. Damage has precedence, then missing keys; where these are allowed, the outcome is that of what
    could be checked.

    Parameters
    ----------
    source : path, URL, seekable file object or buffer
        The file.
    decryption : DecryptionConfig, optional
        Keys of the footer and of all encrypted columns. With ``allow_plaintext=True`` a file that is not encrypted,
        or whose footer is not authenticated, is ``ok``, although it is not protected.
    missing_keys : {"error", "drop"}
        Whether a column whose key is missing makes the report not ``ok``, or is left out of the outcome. The report
        names such columns in both cases.
    require_encrypted : iterable of names
        Columns that must be encrypted; names are as in :class:`EncryptionConfig`. Columns with a key
        in ``column_keys`` of `decryption` must be encrypted with it, unless it has ``allow_plaintext=True``.
    allow_unauthenticated_pages : bool
        Whether a file is ``ok`` if its pages, or their levels, have no tag: pages of AES_GCM_CTR_V1, and levels of
        parquet-java's version 2 pages.
    threads, progress, storage_options
        As :func:`encrypt_file`; `progress` counts all bytes of the file.

    Returns
    -------
    VerifyReport
        Unlike reading, verification continues after a failure. A wrong key has the same effect as a changed module.
        `checked` has "modules", those that were authenticated, and "bytes", those that were checked.

        `facts` has "size", bytes; "footer", which is "encrypted", "signed" or "plaintext"; "algorithm" or None;
        "signature_verified", None without a signature; "row_groups"; "modules", a number for each kind; "columns",
        names with dots and their protection: "plaintext", "footer key", "column key", or "mixed" if row groups differ;
        "unchecked_bytes" of pages, as far as the number is known; "checksums", pages without a tag whose CRC was
        checked; "aad_prefix", with which a footer was authenticated.

        The codes of errors: "damaged", a module that failed, with the `details` "module" (its kind), "error" (name of
        an exception), "row_group", "page", "offset", "unchecked" (bytes of pages behind it) as far as they apply;
        "key-missing". Of violations, notes if the caller allows them: "footer-not-authenticated",
        "pages-without-tags" (of AES_GCM_CTR_V1), "levels-without-tags" (of parquet-java's version 2 pages);
        "column-unprotected" is never allowed. Of warnings: "contradiction", parts that are authentic, or need not be,
        and disagree: readers that rely on them may fail. Of notes: "plaintext-columns", "prefix-not-compared" and
        "no-prefix", which let another file under the same keys pass for this one.

    Raises
    ------
    FormatError, TruncatedError
        Not a Parquet file, or its end is missing.
    KeyAccessError
        The file is encrypted, and a key is missing without which nothing can be checked.
    OSError
        Reading failed.
    ValueError
        A wrong argument, such as a column that the file does not have; or the file needs an AAD prefix that
        `decryption` does not have.
    """
    one_of(missing_keys, ("error", "drop"), "missing_keys")
    if isinstance(require_encrypted, (str, bytes)):
        raise TypeError("require_encrypted must be an iterable of column names, not one name")
    required = list(require_encrypted)
    names = ColumnNames(names_in_list(required, "require_encrypted"), lambda *_: True) if required else None
    tally = FileTally(
        drops_missing=missing_keys == "drop",
        allows_plaintext=decryption is not None and decryption.allow_plaintext,
        allows_untagged=allow_unauthenticated_pages,
        prefix=None if decryption is None else decryption.aad_prefix,
    )
    file = _open(located(source, storage_options), decryption, tally)
    if file is not None:
        with file:
            file.will_read([(0, file.footer.start)])
            _ModuleWalk(file, decryption, tally, names, threads, progress).run()
    return tally.finish()


# -- the footer ------------------------------------------------------------------------------------------------


def _open(source: Any, decryption: DecryptionConfig | None, tally: FileTally) -> SourceFile | None:
    """Open the file. If its footer fails, take that in and return None."""
    try:
        return SourceFile(source, decryption, optional=True, tolerant=True, any_protection=True)
    except _FAULTS as error:
        ending = _ending(source)
        if ending is None:
            raise
        failure = error
    name, size, magic, offset, data = ending
    tally.name(name, size)
    tally.facts["footer"] = "encrypted" if magic == ENCRYPTED_MAGIC else "plaintext"
    unchecked = max(0, offset - 4)
    try:
        structure = Struct.parse(data)
        offset += structure.nbytes
        if magic == MAGIC and FileMetaData.ENCRYPTION_ALGORITHM in structure:
            tally.facts["footer"] = "signed"
    except FormatError:
        pass
    tally.fail("footer", failure, offset=offset, unchecked=unchecked)
    return None


def _ending(source: Any) -> tuple[str | None, int, bytes, int, bytes] | None:
    """Name, size, magic, offset of the footer and its bytes; None if it does not end as a Parquet file does."""
    with seekable(source) as opened:
        if opened is None or opened.size < 12:
            return None
        end = bytes(memoryview(opened.read(opened.size - 8, 8)))
        start = opened.size - 8 - int.from_bytes(end[:4], "little")
        if end[4:] not in (MAGIC, ENCRYPTED_MAGIC) or start < 4:
            return None
        tail = bytes(memoryview(opened.read(start, min(opened.size - 8 - start, LONGEST_FOOTER))))
        return opened.name, opened.size, end[4:], start, tail


# -- everything else -------------------------------------------------------------------------------------------


class _ChunkState:
    """A column chunk between the walk over its pages and its last check."""

    __slots__ = ("broken", "chunk", "found", "place", "walk")

    def __init__(self, chunk: SourceChunk, walk: Chunk) -> None:
        self.chunk = chunk
        self.walk = walk
        self.found = FoundPages()
        # Whether some pages could not be found.
        self.broken = False
        self.place: dict[str, Any] = {"row_group": chunk.row_group, "path": chunk.leaf.path}


class _ModuleWalk:
    def __init__(
        self,
        file: SourceFile,
        decryption: DecryptionConfig | None,
        tally: FileTally,
        required: ColumnNames | None,
        threads: int | None,
        progress: Progress | None,
    ) -> None:
        footer = file.footer
        if footer.algorithm is None:
            pass
        elif decryption is None:
            raise KeyAccessError(f"{file.where}the file is encrypted: give its keys with {spelled('decryption')}")
        elif footer.metadata is None:
            # The key is missing; this error has the reason.
            file.footer_key()
        self._file = file
        self._required: list[bool] = [False] * len(file.leaves)
        if required is not None:
            try:
                found = required.resolve([leaf.path for leaf in file.leaves])
            except MissingColumnsError as error:
                hint = "where not all files have a column, `ags1 audit --json` lists the plaintext columns of each file"
                raise MissingColumnsError(f"{error}; {hint}", error.names, error.alike) from None
            self._required = [each is not None for each in found]
        self._tally = tally
        self._progress = progress
        self._done = 0
        self._pages = PageList(footer.file_aad)
        self._conversion = Conversion(footer.file_aad, threads=threads)
        self._windows = PageWindows(file, _WINDOW)
        if file.source.is_remote:
            cached: Any = _CachedSource(file.source)
            file.source = cached
        # States of the chunks whose pages are in the list, with the span of each; also of finished chunks.
        self._spans: list[tuple[_ChunkState, int, int]] = []
        self._finished: list[_ChunkState] = []
        self._unusable: set[tuple[tuple[str, ...] | None, bytes | None]] = set()

    def run(self) -> None:
        tally, file = self._tally, self._file
        footer = file.footer
        tally.name(file.name, footer.size)
        tally.where = file.where
        tally.facts["algorithm"] = footer.algorithm
        kind = "encrypted" if footer.encrypted else "plaintext" if footer.algorithm is None else "signed"
        tally.facts["footer"] = kind
        tally.columns.update((leaf.name, "") for leaf in file.leaves)
        tally.count_bytes(4 + footer.size - footer.start)
        self._check_footer(kind)
        self._advance(0)
        try:
            structures = file.row_group_structures()
        except FormatError as error:
            tally.fail("footer", error, offset=footer.start)
            structures = []
        rows = 0
        for index, structure in enumerate(structures):
            tally.facts["row_groups"] += 1
            try:
                rows += structure.integer(RowGroup.NUM_ROWS, 0)
                self._check_row_group(SourceRowGroup(file, index, structure))
            except _FAULTS as error:
                tally.fail(_ROW_GROUP, error, row_group=index)
        self._flush()
        self._check_rows(rows)
        if self._progress is not None:
            self._progress(footer.size, footer.size)

    def _check_footer(self, kind: str) -> None:
        tally, footer = self._tally, self._file.footer
        if kind == "encrypted":
            tally.count("footer")
        elif kind == "signed":
            tally.facts["signature_verified"] = footer.signature_verified
            if footer.signature_verified:
                tally.count(SIGNATURE)
            elif footer.key is None:
                tally.is_footer_key_missing = True
            elif footer.signature_error is not None:
                assert footer.metadata is not None
                tally.fail(SIGNATURE, footer.signature_error, offset=footer.start + footer.metadata.nbytes)
            else:
                tally.is_signature_skipped = True
        contradiction = footer.contradicts(bytes(memoryview(self._file.source.read(0, 4))))
        if contradiction is not None:
            tally.fail("magic", FormatError(f"the file {contradiction}"), offset=0)
        tally.facts["aad_prefix"] = footer.authenticated_prefix

    def _check_rows(self, rows: int) -> None:
        metadata = self._file.footer.metadata
        stated = None if metadata is None else _integer(metadata, FileMetaData.NUM_ROWS)
        if stated != rows:
            self._tally.contradict("footer", f"num_rows is {stated}, but its row groups have {rows}")

    # -- row groups and column chunks --------------------------------------------------------------------------

    def _check_row_group(self, group: SourceRowGroup) -> None:
        file = self._file
        structure = group.structure
        found = structure.list(RowGroup.COLUMNS)
        count = 0 if found is None else len(found)
        if count != len(file.leaves):
            raise FormatError(
                f"row group {group.index} has {count} column chunks, the schema {len(file.leaves)} columns"
            )
        structures = [] if found is None else list(found)
        chunks: list[SourceChunk | None] = []
        for column, (leaf, each) in enumerate(zip(file.leaves, structures, strict=True)):
            chunk = self._resolve(group, leaf, column, each)
            if chunk is not None and not self._walk(chunk):
                chunk = None
            chunks.append(chunk)
        encrypted = file.footer.algorithm is not None
        for problem in row_group_disagreements(group, chunks, encrypted=encrypted):
            self._tally.contradict(*problem, row_group=group.index)

    def _resolve(self, group: SourceRowGroup, leaf: Element, column: int, structure: object) -> SourceChunk | None:
        """The chunk with its key and metadata; None if it cannot be checked."""
        tally = self._tally
        place: dict[str, Any] = {"row_group": group.ordinal, "path": leaf.path}
        try:
            if not isinstance(structure, Struct):
                raise FormatError(f"column {leaf.name!r} in row group {group.index} is not a structure")
            known = self._has_key(group, leaf, structure)
            if self._required[column] and tally.columns[leaf.name] in ("plaintext", "mixed"):
                tally.unprotected_columns.setdefault(leaf.name, "is not encrypted")
            if not known:
                visible = structure.struct(ColumnChunk.META_DATA)
                if visible is not None:
                    tally.facts["unchecked_bytes"] += max(0, visible.integer(ColumnMetaData.TOTAL_COMPRESSED_SIZE, 0))
                return None
        except FormatError as error:
            tally.fail(_CHUNK, error, **place)
            return None
        kind = native_modules.NAMES[native_modules.COLUMN_METADATA]
        try:
            chunk = SourceChunk(self._file, leaf, group.ordinal, column, structure)
        except _FAULTS as error:
            tally.fail(kind if ColumnChunk.ENCRYPTED_COLUMN_METADATA in structure else _CHUNK, error, **place)
            return self._with_visible_metadata(group, leaf, column, structure)
        other = chunk.other_protection()
        if other is not None:
            tally.unprotected_columns.setdefault(
                leaf.name, (f"{other}, although {spelled('column_keys')} has a key for it")
            )
        if chunk.encrypted and structure.binary(ColumnChunk.ENCRYPTED_COLUMN_METADATA) is not None:
            tally.count(kind)
            try:
                for problem in visible_disagreements(chunk):
                    tally.contradict(*problem, **place)
            except FormatError as error:
                tally.fail(kind, error, **place)
        return chunk

    def _has_key(self, group: SourceRowGroup, leaf: Element, structure: Struct) -> bool:
        """Whether the column is plaintext or its key is known; if not, it is added to the report."""
        crypto = structure.struct(ColumnChunk.CRYPTO_METADATA)
        own = None if crypto is None else crypto.struct(ColumnCryptoMetaData.ENCRYPTION_WITH_COLUMN_KEY)
        protection = "plaintext" if crypto is None else "footer key" if own is None else "column key"
        columns = self._tally.columns
        columns[leaf.name] = protection if columns[leaf.name] in ("", protection) else "mixed"
        if crypto is None or self._file.footer.algorithm is None:
            return True
        marker = (None, None) if own is None else (leaf.path, own.binary(EncryptionWithColumnKey.KEY_METADATA))
        if marker not in self._unusable:
            try:
                self._file.footer_key() if own is None else self._file.key_of(leaf.path, marker[1])
                return True
            except ServiceRefusal:
                raise
            except KeyAccessError as error:
                self._unusable.add(marker)
                if own is not None:
                    self._tally.missing_keys[leaf.name] = str(error).removeprefix(self._file.where)
            except _FAULTS as error:
                self._unusable.add(marker)
                self._tally.fail(_KEY, error, row_group=group.ordinal, path=leaf.path)
        if own is None:
            self._tally.missing_keys.setdefault(leaf.name, "it uses the footer key, which was not given")
        return False

    def _with_visible_metadata(
        self, group: SourceRowGroup, leaf: Element, column: int, structure: Struct
    ) -> SourceChunk | None:
        """The chunk with the copy of its metadata from a plaintext footer, if the encrypted metadata is damaged."""
        if ColumnChunk.ENCRYPTED_COLUMN_METADATA not in structure or ColumnChunk.META_DATA not in structure:
            return None
        visible = structure.copy()
        visible.remove(ColumnChunk.ENCRYPTED_COLUMN_METADATA)
        try:
            return SourceChunk(self._file, leaf, group.ordinal, column, visible)
        except _FAULTS:
            return None

    # -- pages -------------------------------------------------------------------------------------------------

    def _walk(self, chunk: SourceChunk) -> bool:
        """Find the pages of a chunk, and check them when there are enough; False if their position is unknown."""
        try:
            self._file.claim(chunk.extent()[1], chunk.name)
            state = _ChunkState(chunk, chunk.to_walk())
        except _FAULTS as error:
            self._tally.fail(_CHUNK, error, row_group=chunk.row_group, path=chunk.leaf.path)
            return False
        walk = state.walk
        while not walk.done and not state.broken:
            if not self._windows.has(walk.position):
                self._flush()
                self._windows.move_to(walk.position)
            before = self._pages.count
            complete = True
            try:
                complete = self._pages.add(walk, self._windows.source, _BATCH_BYTES, _BATCH_PAGES)
            except _FAULTS as error:
                self._stop_walk(state, error)
            if self._pages.count > before:
                self._spans.append((state, before, self._pages.count))
            if not complete or self._pages.stored >= _BATCH_BYTES or self._pages.count >= _BATCH_PAGES:
                self._flush()
            if not complete:
                self._windows.move_to(walk.position)
        self._finished.append(state)
        if not self._spans:
            self._flush()
        return True

    def _stop_walk(self, state: _ChunkState, error: Exception) -> None:
        """Record a page header that fails, or values that are missing at the end."""
        state.broken = True
        walk = state.walk
        if walk.done:
            self._tally.fail(_CHUNK, error, **state.place)
            return
        dictionary = walk.position == walk.start and state.chunk.has_dictionary()
        kind = native_modules.DICTIONARY_PAGE_HEADER if dictionary else native_modules.DATA_PAGE_HEADER
        self._tally.fail(
            native_modules.NAMES[kind],
            error,
            **state.place,
            page=None if dictionary else walk.data_pages,
            offset=walk.position,
            unchecked=walk.end - walk.position,
        )

    def _flush(self) -> None:
        """Check the pages found, then the other modules of chunks without more pages."""
        if self._pages.count:
            failed = self._conversion.verify(self._pages, self._windows.source)
            by_walk: dict[Chunk, dict[int | None, Exception]] = {}
            for walk, ordinal, error in failed:
                by_walk.setdefault(walk, {})[ordinal] = error
            details = self._pages.details()
            for state, begin, end in self._spans:
                self._take_pages(state, details[begin:end], by_walk.get(state.walk, {}))
            stored = self._pages.stored
            self._pages.clear()
            self._spans.clear()
            self._tally.count_bytes(stored)
            self._advance(stored)
        for state in self._finished:
            self._finish(state)
        self._finished.clear()

    def _take_pages(self, state: _ChunkState, pages: list[dict[str, Any]], failed: dict[int | None, Exception]) -> None:
        tally, found = self._tally, state.found
        encrypted, protection = state.chunk.encrypted, state.chunk.protection
        for page in pages:
            offset, header, ordinal = page["offset"], page["header_length"], page["ordinal"]
            size = header + page["body_length"]
            dictionary = page["type"] == DICTIONARY_PAGE_TYPE
            kind = native_modules.NAMES[native_modules.DICTIONARY_PAGE if dictionary else native_modules.DATA_PAGE]
            found.stored += size
            found.uncompressed += header + page["uncompressed_length"]
            if dictionary:
                found.dictionary_offset = offset
            elif ordinal is not None:
                found.data_pages.append((offset, size))
            if encrypted:
                tally.count(f"{kind} header")
                tally.plaintext_levels += page["levels_length"] > 0 and self._shows_levels(page)
            else:
                tally.plaintext_pages += 1
            error = failed.get(ordinal)
            if error is not None:
                tally.fail(kind, error, **state.place, page=ordinal, offset=offset + header)
            elif protection == AES_GCM:
                tally.count(kind)
            else:
                if protection == AES_CTR:
                    tally.untagged[kind] = tally.untagged.get(kind, 0) + 1
                tally.facts["checksums"] += PageHeader.CRC in Struct.parse(page["header"])

    def _shows_levels(self, page: dict[str, Any]) -> bool:
        """Whether the levels of a V2 page are before its module, which the length word after them shows."""
        levels = page["levels_length"]
        rest: int = page["body_length"] - levels
        if rest < _LENGTH_WORD:
            return False
        word = self._windows.read(page["offset"] + page["header_length"] + levels, _LENGTH_WORD)
        return int.from_bytes(word, "little") == rest - _LENGTH_WORD

    # -- what lies outside of the pages ------------------------------------------------------------------------

    def _finish(self, state: _ChunkState) -> None:
        chunk, tally = state.chunk, self._tally
        if not state.broken:
            state.found.values = state.walk.values
            try:
                self._problems(state, page_disagreements(chunk, state.found))
            except FormatError as error:
                tally.fail(native_modules.NAMES[native_modules.COLUMN_METADATA], error, **state.place)
        for kind, disagreements in (
            (native_modules.COLUMN_INDEX, column_index_disagreements),
            (native_modules.OFFSET_INDEX, offset_index_disagreements),
        ):
            name, field = native_modules.NAMES[kind], INDEX_OFFSETS[kind]
            try:
                data = chunk.index(kind)
                if data is None:
                    continue
                self._file.claim(len(data), chunk.name)
                if chunk.encrypted:
                    tally.count(name)
                tally.count_bytes(chunk.structure.integer(field + 1, 0))
                if not state.broken:
                    index = Struct.parse(data, what=f"{name} of {chunk.name}")
                    self._problems(state, disagreements(chunk, state.found, index))
            except _FAULTS as error:
                tally.fail(name, error, **state.place, offset=_integer(chunk.structure, field))
        self._check_bloom_filter(state)

    def _check_bloom_filter(self, state: _ChunkState) -> None:
        chunk, metadata = state.chunk, state.chunk.known_metadata()
        start = _integer(metadata, ColumnMetaData.BLOOM_FILTER_OFFSET)
        if start is None or start <= 0:
            return
        header, bitset = native_modules.BLOOM_FILTER_HEADER, native_modules.BLOOM_FILTER_BITSET
        kind, offset = header, start
        try:
            if chunk.encrypted:
                chunk.refuse_plaintext_filter(start)
                length, plain = chunk.open_sealed(header, start, _LONGEST_BLOOM_HEADER)
                found = Struct.parse(plain, what=f"Bloom filter header of {chunk.name}")
                size = found.integer(BloomFilterHeader.NUM_BYTES, -1)
                self._tally.count(native_modules.NAMES[header])
                kind, offset = bitset, start + length
                stored, bits = chunk.open_sealed(bitset, offset, max(0, size) + native_modules.OVERHEAD)
                self._tally.count(native_modules.NAMES[bitset])
                length += stored
                if len(bits) != size:
                    text = f"{chunk.name}: its Bloom filter has {len(bits)} bytes, but by its header {size}"
                    self._tally.contradict(native_modules.NAMES[bitset], text, **state.place)
            else:
                length = sum(len(each) for each in chunk.bloom_filter() or ())
            self._file.claim(length, chunk.name)
            self._tally.count_bytes(length)
            stated = metadata.integer(ColumnMetaData.BLOOM_FILTER_LENGTH, length)
            if stated != length:
                text = f"{chunk.name}: bloom_filter_length is {stated}, but by the filter it is {length}"
                self._tally.contradict(native_modules.NAMES[header], text, **state.place)
        except _FAULTS as error:
            self._tally.fail(native_modules.NAMES[kind], error, **state.place, offset=offset)

    # -- the report --------------------------------------------------------------------------------------------

    def _problems(self, state: _ChunkState, problems: Iterable[tuple[str, str]]) -> None:
        for problem in problems:
            self._tally.contradict(*problem, **state.place)

    def _advance(self, count: int) -> None:
        self._done += count
        if self._progress is not None:
            size = self._file.footer.size
            self._progress(min(self._done, size), size)


def _integer(structure: Struct, field: int) -> int | None:
    """An integer field that was not checked before; None if it is missing or not an integer."""
    try:
        return structure.integer(field)
    except FormatError:
        return None


class _CachedSource(Source):
    """A source for small neighbouring ranges, which reads them with few requests."""

    is_remote = True

    def __init__(self, source: Source) -> None:
        self._source = source
        self.name = source.name
        self.size = source.size
        self._blocks = RecentlyUsed(_BLOCKS)

    def read(self, offset: int, size: int) -> Buffer:
        if size > _BLOCK or offset + size > self.size or not size:
            return self._source.read(offset, size)
        first, last = offset // _BLOCK, (offset + size - 1) // _BLOCK
        data = b"".join(self._block(each) for each in range(first, last + 1))
        return data[offset - first * _BLOCK :][:size]

    def read_into(self, offset: int, out: memoryview) -> None:
        """Fill `out` with pages, which nothing else reads."""
        self._source.read_into(offset, out)

    def _block(self, number: int) -> bytes:
        start = number * _BLOCK
        found: bytes = self._blocks.get(
            number, lambda: bytes(memoryview(self._source.read(start, min(_BLOCK, self.size - start))))
        )
        return found

    def close(self) -> None:
        self._source.close()
