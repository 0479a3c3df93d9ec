"""Checks the modules of one open file, and reports those that fail to a tally. The module verification says which.

    for each row group, for each column chunk
        [module ColumnMetaData]                        opened, and compared with the visible copy
        [header][body]  [header][body] ...             found by parquet.native.pages; many chunks are one batch, which
                                                       threads authenticate; a failing page is named, the others go on
        [BloomFilter header][bitset]                   opened
        [ColumnIndex]  [OffsetIndex]                   opened, and compared with the pages that were found

A page that cannot be found ends its chunk; a chunk that cannot be opened ends alone. Source: Parquet encryption
specification, 4.4 and 5.
"""

cimport cython
from libc.stdint cimport int64_t

from ags1.core.layout cimport ags1_load_le32
from ags1.parquet.native.modules cimport (
    GCM_OVERHEAD, LENGTH_WORD, MODULE_BLOOM_FILTER_BITSET, MODULE_BLOOM_FILTER_HEADER, MODULE_COLUMN_INDEX,
    MODULE_COLUMN_METADATA, MODULE_DATA_PAGE, MODULE_DATA_PAGE_HEADER, MODULE_DICTIONARY_PAGE,
    MODULE_DICTIONARY_PAGE_HEADER, MODULE_OFFSET_INDEX,
)
from ags1.parquet.native.page_header cimport CTR, DATA_PAGE_V1, DATA_PAGE_V2, DICTIONARY, GCM, Page
from ags1.parquet.native.pages cimport Chunk, PageList
from ags1.parquet.native.thrift cimport List, Struct
from ags1.parquet.structure.chunks cimport SourceChunk
from ags1.parquet.structure.consistency cimport (
    FoundPages, column_index_disagreements, offset_index_disagreements, page_disagreements, row_group_disagreements,
    visible_disagreements,
)
from ags1.parquet.structure.fields cimport (
    BLOOM_FILTER_LENGTH, BLOOM_FILTER_OFFSET, CRYPTO_METADATA, ENCRYPTED_COLUMN_METADATA, ENCRYPTION_WITH_COLUMN_KEY,
    GROUP_COLUMNS, GROUP_NUM_ROWS, KEY_METADATA, META_DATA, TOTAL_COMPRESSED_SIZE,
)

from ags1.errors import AuthenticationError, FormatError, KeyAccessError, LimitError
from ags1.kms import ServiceRefusal
from ags1.parquet.native.conversion import Conversion
from ags1.parquet.native import modules as native_modules
from ags1.parquet.structure.chunks import INDEX_OFFSETS
from ags1.parquet.structure.fields import BloomFilterHeader, FileMetaData
from ags1.parquet.structure.source_file import PageWindows, SourceRowGroup
from ags1.support.arguments import spelled

# Errors about the data, which belong in the report.
cdef tuple FAULTS = (AuthenticationError, FormatError, LimitError)
_BATCH_BYTES = 32 << 20
_BATCH_PAGES = 16384
# Bytes of a file in a store: of pages that are found at once.
_WINDOW = 8 << 20
# Ten times the length that any known writer uses for a header of 20 bytes.
_LONGEST_BLOOM_HEADER = 1 << 16

cdef tuple NAMES = native_modules.NAMES
cdef str CHUNK = "column chunk"
cdef str ROW_GROUP = "row group"
cdef str KEY = "column key"

cdef enum:
    KINDS = 10


@cython.final
cdef class _ChunkState:
    """A column chunk between the walk over its pages and its last check."""

    cdef SourceChunk chunk
    cdef Chunk walk
    cdef FoundPages found
    cdef bint broken             # some pages could not be found
    cdef int64_t begin           # of its pages in the list
    cdef int64_t end

    cdef dict place(self):
        return {"row_group": self.chunk.row_group, "path": self.chunk.leaf.path}


@cython.final
cdef class _ModuleWalk:
    cdef object file
    cdef object tally
    cdef object progress
    cdef object conversion
    cdef object windows
    cdef bint is_whole           # the windows are the whole file
    cdef list required           # whether each column must be encrypted
    cdef list names              # of the columns, with dots
    cdef PageList pages
    cdef list spans              # states of the chunks whose pages are in the list
    cdef list finished           # states of the chunks without more pages
    cdef set unusable            # keys that are missing
    cdef int64_t done
    cdef int64_t checked         # bytes
    cdef int64_t plaintext_levels
    cdef int64_t plaintext_pages
    cdef int64_t checksums
    cdef int64_t[KINDS] counts   # modules of each kind that were authenticated
    cdef int64_t[KINDS] untagged

    def __init__(self, file, tally, list required, threads, progress):
        self.file = file
        self.tally = tally
        self.progress = progress
        self.required = required
        self.names = [leaf.name for leaf in file.leaves]
        self.pages = PageList(file.footer.file_aad)
        self.conversion = Conversion(file.footer.file_aad, threads=threads)
        self.windows = PageWindows(file, _WINDOW)
        self.is_whole = self.windows.is_whole
        self.spans = []
        self.finished = []
        self.unusable = set()

    cdef int run(self) except -1:
        tally, footer = self.tally, self.file.footer
        rows = 0
        tally.columns.update((name, "") for name in self.names)
        self._advance(0)
        try:
            structures = self.file.row_group_structures()
        except FormatError as error:
            tally.fail("footer", error, offset=footer.start)
            structures = []
        for index, structure in enumerate(structures):
            tally.facts["row_groups"] += 1
            try:
                rows += (<Struct?>structure).integer(GROUP_NUM_ROWS, 0)
                self._check_row_group(SourceRowGroup(self.file, index, structure))
            except FAULTS as error:
                tally.fail(ROW_GROUP, error, row_group=index)
        self._flush()
        stated = None if footer.metadata is None else _integer(footer.metadata, FileMetaData.NUM_ROWS)
        if stated != rows:
            tally.contradict("footer", f"num_rows is {stated}, but its row groups have {rows}")
        self._tell_counts()
        return 0

    cdef int _tell_counts(self) except -1:
        cdef int kind
        tally = self.tally
        for kind in range(KINDS):
            if self.counts[kind]:
                tally.count(NAMES[kind], self.counts[kind])
            if self.untagged[kind]:
                tally.untagged[NAMES[kind]] = self.untagged[kind]
        tally.count_bytes(self.checked)
        tally.plaintext_levels = self.plaintext_levels
        tally.plaintext_pages = self.plaintext_pages
        tally.facts["checksums"] = self.checksums
        return 0

    # -- row groups and column chunks --------------------------------------------------------------------------

    cdef int _check_row_group(self, group) except -1:
        cdef List found = (<Struct>group.structure).list(GROUP_COLUMNS)
        cdef list leaves = self.file.leaves, chunks = [], problems = []
        cdef SourceChunk chunk
        cdef int column
        count = 0 if found is None else len(found)
        if count != len(leaves):
            raise FormatError(f"row group {group.index} has {count} column chunks, the schema {len(leaves)} columns")
        for column, structure in enumerate([] if found is None else list(found)):
            chunk = self._resolve(group, leaves[column], column, structure)
            if chunk is not None and not self._walk(chunk):
                chunk = None
            chunks.append(chunk)
        try:
            row_group_disagreements(group, chunks, self.file.footer.algorithm is not None, problems)
        finally:
            for problem in problems:
                self.tally.contradict(*problem, row_group=group.index)
        return 0

    cdef SourceChunk _resolve(self, group, leaf, int column, node):
        """The chunk with its key and metadata; None if it cannot be checked."""
        cdef SourceChunk chunk
        cdef Struct structure, visible
        cdef list problems
        cdef str name = self.names[column]
        tally = self.tally
        place = {"row_group": group.ordinal, "path": leaf.path}
        try:
            if not isinstance(node, Struct):
                raise FormatError(f"column {name!r} in row group {group.index} is not a structure")
            structure = node
            known = self._has_key(group, leaf, name, structure)
            if self.required[column] and tally.columns[name] in ("plaintext", "mixed"):
                tally.unprotected_columns.setdefault(name, "is not encrypted")
            if not known:
                visible = structure.struct(META_DATA)
                if visible is not None:
                    size = visible.integer(TOTAL_COMPRESSED_SIZE, 0)
                    tally.facts["unchecked_bytes"] += max(0, size)
                return None
        except FormatError as error:
            tally.fail(CHUNK, error, **place)
            return None
        kind = NAMES[MODULE_COLUMN_METADATA]
        try:
            chunk = SourceChunk(self.file, leaf, group.ordinal, column, structure)
        except FAULTS as error:
            tally.fail(kind if ENCRYPTED_COLUMN_METADATA in structure else CHUNK, error, **place)
            return self._with_visible_metadata(group, leaf, column, structure)
        other = chunk.other_protection()
        if other is not None:
            text = f"{other}, although {spelled('column_keys')} has a key for it"
            tally.unprotected_columns.setdefault(name, text)
        if chunk.encrypted and structure.binary(ENCRYPTED_COLUMN_METADATA) is not None:
            self._count(MODULE_COLUMN_METADATA)
            problems = []
            try:
                visible_disagreements(chunk, problems)
            except FormatError as error:
                tally.fail(kind, error, **place)
            self._contradict(problems, place)
        return chunk

    cdef bint _has_key(self, group, leaf, str name, Struct structure) except -1:
        """Whether the column is plaintext or its key is known; if not, it is added to the report."""
        cdef Struct crypto = structure.struct(CRYPTO_METADATA)
        cdef Struct own = None if crypto is None else crypto.struct(ENCRYPTION_WITH_COLUMN_KEY)
        cdef dict columns = self.tally.columns
        protection = "plaintext" if crypto is None else "footer key" if own is None else "column key"
        columns[name] = protection if columns[name] in ("", protection) else "mixed"
        if crypto is None or self.file.footer.algorithm is None:
            return True
        marker = (None, None) if own is None else (leaf.path, own.binary(KEY_METADATA))
        if marker not in self.unusable:
            try:
                if own is None:
                    self.file.footer_key()
                elif marker not in self.file.found_keys:
                    self.file.key_of(leaf.path, marker[1])
                return True
            except ServiceRefusal:
                raise
            except KeyAccessError as error:
                self.unusable.add(marker)
                if own is not None:
                    self.tally.missing_keys[name] = str(error).removeprefix(self.file.where)
            except FAULTS as error:
                self.unusable.add(marker)
                self.tally.fail(KEY, error, row_group=group.ordinal, path=leaf.path)
        if own is None:
            self.tally.missing_keys.setdefault(name, "it uses the footer key, which was not given")
        return False

    cdef SourceChunk _with_visible_metadata(self, group, leaf, int column, Struct structure):
        """The chunk with the copy of its metadata from a plaintext footer, if the encrypted metadata is damaged."""
        cdef Struct visible
        if ENCRYPTED_COLUMN_METADATA not in structure or META_DATA not in structure:
            return None
        visible = structure.copy()
        visible.remove(ENCRYPTED_COLUMN_METADATA)
        try:
            return SourceChunk(self.file, leaf, group.ordinal, column, visible)
        except FAULTS:
            return None

    # -- pages -------------------------------------------------------------------------------------------------

    cdef bint _walk(self, SourceChunk chunk) except -1:
        """Find the pages of a chunk, and check them when there are enough; False if their position is unknown."""
        cdef _ChunkState state = _ChunkState.__new__(_ChunkState)
        cdef Chunk walk
        cdef int64_t before
        cdef bint complete
        state.chunk, state.found = chunk, FoundPages()
        try:
            chunk.claim(chunk.extent()[1])
            state.walk = walk = chunk.to_walk()
        except FAULTS as error:
            self.tally.fail(CHUNK, error, row_group=chunk.row_group, path=chunk.leaf.path)
            return False
        while walk.position < walk.end and not state.broken:
            if not self.is_whole and not self.windows.has(walk.position):
                self._flush()
                self.windows.move_to(walk.position)
            before = self.pages.count
            complete = True
            try:
                complete = self.pages.add(walk, self.windows.source, _BATCH_BYTES, _BATCH_PAGES)
            except FAULTS as error:
                self._stop_walk(state, error)
            if self.pages.count > before:
                state.begin, state.end = before, self.pages.count
                self.spans.append(state)
            if not complete or self.pages.stored >= _BATCH_BYTES or self.pages.count >= _BATCH_PAGES:
                self._flush()
            if not complete:
                self.windows.move_to(walk.position)
        self.finished.append(state)
        if not self.spans:
            self._flush()
        return True

    cdef int _stop_walk(self, _ChunkState state, error) except -1:
        """Record a page header that fails, or values that are missing at the end."""
        cdef Chunk walk = state.walk
        cdef bint dictionary
        state.broken = True
        if walk.position >= walk.end:
            self.tally.fail(CHUNK, error, **state.place())
            return 0
        dictionary = walk.position == walk.start and state.chunk.has_dictionary()
        self.tally.fail(
            NAMES[MODULE_DICTIONARY_PAGE_HEADER if dictionary else MODULE_DATA_PAGE_HEADER], error, **state.place(),
            page=None if dictionary else walk.next_ordinal, offset=walk.position, unchecked=walk.end - walk.position)
        return 0

    cdef int _flush(self) except -1:
        """Check the pages found, then the other modules of chunks without more pages."""
        cdef _ChunkState state
        cdef int64_t stored = self.pages.stored
        if self.pages.count:
            failed = {
                (walk, ordinal): error
                for walk, ordinal, error in self.conversion.verify(self.pages, self.windows.source)
            }
            for state in self.spans:
                self._take_pages(state, failed)
            self.pages.clear()
            self.spans.clear()
            self.checked += stored
            self._advance(stored)
        for state in self.finished:
            self._finish(state)
        self.finished.clear()
        return 0

    cdef int _take_pages(self, _ChunkState state, dict failed) except -1:
        cdef FoundPages found = state.found
        cdef bint encrypted = state.chunk.encrypted, dictionary
        cdef int protection = state.walk.ends.source_mode, kind
        cdef int64_t index
        cdef Page *page
        for index in range(state.begin, state.end):
            page = &self.pages.pages[index]
            dictionary = page.page_type == DICTIONARY
            kind = MODULE_DICTIONARY_PAGE if dictionary else MODULE_DATA_PAGE
            found.stored += page.header_stored + <int64_t>page.body_stored
            found.uncompressed += page.header_stored + <int64_t>page.uncompressed
            ordinal = None
            if dictionary:
                found.dictionary_offset = page.offset
            elif page.page_type == DATA_PAGE_V1 or page.page_type == DATA_PAGE_V2:
                ordinal = page.ordinal
                found.data_pages.append((page.offset, page.header_stored + <int64_t>page.body_stored))
            if encrypted:
                self._count(MODULE_DICTIONARY_PAGE_HEADER if dictionary else MODULE_DATA_PAGE_HEADER)
                self.plaintext_levels += page.levels > 0 and self._shows_levels(page)
            else:
                self.plaintext_pages += 1
            error = failed.get((state.walk, ordinal)) if failed else None
            if error is not None:
                offset = page.offset + page.header_stored
                self.tally.fail(NAMES[kind], error, **state.place(), page=ordinal, offset=offset)
            elif protection == GCM:
                self.counts[kind] += 1
            else:
                self.untagged[kind] += protection == CTR
                self.checksums += page.crc_end != 0
        return 0

    cdef bint _shows_levels(self, const Page *page) except -1:
        """Whether the levels of a V2 page are before its module, which the length word after them shows."""
        cdef int64_t rest = <int64_t>page.body_stored - page.levels
        cdef bytes word
        if rest < LENGTH_WORD:
            return False
        word = self.windows.read(page.offset + page.header_stored + page.levels, LENGTH_WORD)
        return ags1_load_le32(<const unsigned char *>word) == rest - LENGTH_WORD

    # -- what lies outside of the pages ------------------------------------------------------------------------

    cdef int _finish(self, _ChunkState state) except -1:
        cdef list problems = []
        if not state.broken:
            state.found.values = state.walk.values
            try:
                page_disagreements(state.chunk, state.found, problems)
            except FormatError as error:
                self.tally.fail(NAMES[MODULE_COLUMN_METADATA], error, **state.place())
            self._contradict(problems, state.place())
        self._check_index(state, MODULE_COLUMN_INDEX)
        self._check_index(state, MODULE_OFFSET_INDEX)
        self._check_bloom_filter(state)
        return 0

    cdef int _check_index(self, _ChunkState state, int kind) except -1:
        cdef SourceChunk chunk = state.chunk
        cdef int field = INDEX_OFFSETS[kind]
        cdef list problems = []
        cdef Struct index
        try:
            index = chunk.index_structure(kind)
            if index is None:
                return 0
            chunk.claim(index.nbytes)
            self.counts[kind] += chunk.encrypted
            self.checked += chunk.structure.integer(field + 1, 0)
            if state.broken:
                return 0
            if kind == MODULE_COLUMN_INDEX:
                column_index_disagreements(chunk, state.found, index, problems)
            else:
                offset_index_disagreements(chunk, state.found, index, problems)
        except FAULTS as error:
            self.tally.fail(NAMES[kind], error, **state.place(), offset=_integer(chunk.structure, field))
        self._contradict(problems, state.place())
        return 0

    cdef int _check_bloom_filter(self, _ChunkState state) except -1:
        cdef SourceChunk chunk = state.chunk
        cdef Struct metadata = chunk.known_metadata()
        cdef int kind = MODULE_BLOOM_FILTER_HEADER
        start = _integer(metadata, BLOOM_FILTER_OFFSET)
        if start is None or start <= 0:
            return 0
        offset = start
        try:
            if chunk.encrypted:
                chunk.refuse_plaintext_filter(start)
                length, plain = chunk.open_sealed(kind, start, _LONGEST_BLOOM_HEADER)
                found = Struct.parse(plain, what=f"Bloom filter header of {chunk.name}")
                size = found.integer(BloomFilterHeader.NUM_BYTES, -1)
                self._count(MODULE_BLOOM_FILTER_HEADER)
                kind, offset = MODULE_BLOOM_FILTER_BITSET, start + length
                stored, bits = chunk.open_sealed(kind, offset, max(0, size) + GCM_OVERHEAD)
                self._count(MODULE_BLOOM_FILTER_BITSET)
                length += stored
                if len(bits) != size:
                    text = f"{chunk.name}: its Bloom filter has {len(bits)} bytes, but by its header {size}"
                    self._contradict([(NAMES[kind], text)], state.place())
            else:
                length = sum([len(each) for each in chunk.bloom_filter() or ()])
            chunk.claim(length)
            self.checked += length
            stated = metadata.integer(BLOOM_FILTER_LENGTH, length)
            if stated != length:
                text = f"{chunk.name}: bloom_filter_length is {stated}, but by the filter it is {length}"
                self._contradict([(NAMES[MODULE_BLOOM_FILTER_HEADER], text)], state.place())
        except FAULTS as error:
            self.tally.fail(NAMES[kind], error, **state.place(), offset=offset)
        return 0

    # -- the report --------------------------------------------------------------------------------------------

    cdef int _contradict(self, list problems, dict place) except -1:
        for problem in problems:
            self.tally.contradict(*problem, **place)
        return 0

    cdef void _count(self, int kind) noexcept:
        self.counts[kind] += 1

    cdef int _advance(self, int64_t count) except -1:
        self.done += count
        if self.progress is not None:
            size = self.file.footer.size
            self.progress(min(self.done, size), size)
        return 0


cdef object _integer(Struct structure, int field):
    """An integer field that was not checked before; None if it is missing or not an integer."""
    try:
        return structure.integer(field)
    except FormatError:
        return None


def check_modules(file, tally, list required not None, *, threads=None, progress=None):
    """Check all modules of a file but the footer, which is authenticated; `required` columns must be encrypted."""
    cdef _ModuleWalk walk = _ModuleWalk(file, tally, required, threads, progress)
    walk.run()
