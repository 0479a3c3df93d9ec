"""A column chunk that is copied to another file: how its metadata changes with its place and its protection.

    ColumnChunk    file_offset   meta_data: all offsets and sizes       crypto_metadata   encrypted_column_metadata
    copied            moved      moved; sizes by what tags add or       of the new key    sealed at the end, with those
                                 take away                                                of all chunks, in one call

Fields that nobody named stay as they are, byte for byte. Source: parquet.thrift; Parquet encryption specification, 5.2.
"""

cimport cython

from ags1.core.compact cimport AGS1_COMPACT_I32, AGS1_COMPACT_I64, AGS1_COMPACT_STRUCT
from ags1.parquet.native.pages cimport Chunk
from ags1.parquet.native.thrift cimport List, Struct
from ags1.parquet.structure.fields cimport (
    BLOOM_FILTER_LENGTH, BLOOM_FILTER_OFFSET, CRYPTO_METADATA, DATA_PAGE_OFFSET, DICTIONARY_PAGE_OFFSET,
    ENCRYPTED_COLUMN_METADATA, FILE_OFFSET, INDEX_PAGE_OFFSET, META_DATA, TOTAL_COMPRESSED_SIZE,
    TOTAL_UNCOMPRESSED_SIZE,
)

from ags1.errors import FormatError
from ags1.parquet.native.modules import check_ordinal
from ags1.parquet.native.thrift import BINARY, I32, LIST, STRUCT
from ags1.parquet.structure.chunks import DICTIONARY_ENCODINGS, foretells_dictionary
from ags1.parquet.structure.fields import ColumnChunk, ColumnMetaData, OffsetIndex, PageLocation, names_of

# Fields of ColumnMetaData that a plaintext footer shows for an encrypted column: the structure of the file, nothing
# about values.
_VISIBLE_FIELDS = frozenset({
    ColumnMetaData.TYPE, ColumnMetaData.ENCODINGS, ColumnMetaData.PATH_IN_SCHEMA, ColumnMetaData.CODEC,
    ColumnMetaData.NUM_VALUES, ColumnMetaData.TOTAL_UNCOMPRESSED_SIZE, ColumnMetaData.TOTAL_COMPRESSED_SIZE,
    ColumnMetaData.DATA_PAGE_OFFSET, ColumnMetaData.INDEX_PAGE_OFFSET, ColumnMetaData.DICTIONARY_PAGE_OFFSET,
})
# The same for ColumnChunk: all known fields. Unknown fields cannot be stored in any other place.
_VISIBLE_CHUNK_FIELDS = frozenset(names_of(ColumnChunk))


@cython.final
cdef class TargetChunk:
    """One column chunk of a target. Its pages are converted, as `chunk`, before the first method is called.

    `protection` is that of its page bodies, and `encrypts` says whether the target has encrypted parts at all.
    """

    cdef readonly object source
    cdef readonly object row_group
    cdef readonly object column
    cdef readonly object key
    cdef readonly bint unchanged
    cdef readonly Chunk chunk
    cdef readonly Struct metadata
    cdef Struct structure

    def __init__(
            self, source, row_group, column, key, Struct structure not None, *, int protection, bint encrypts,
            bint unchanged):
        cdef Struct metadata = source.known_metadata()
        self.source = source
        self.row_group = row_group
        self.column = column
        self.key = key
        self.structure = structure
        if encrypts:
            check_ordinal(row_group, "row group", source.file.name)
            check_ordinal(column, "column", source.file.name)
            other = source.other_column()
            if other is not None:
                # parquet-java would treat these pages as that column, which may have no key.
                raise FormatError(f"{source.name}: its metadata says that it is column {other!r}")
        self.metadata = metadata.copy()
        self.unchanged = unchanged
        target = {"raw": True} if unchanged else {
            "target_protection": protection, "target_key": None if key is None else key.key,
            "target_ordinals": (row_group, column),
        }
        self.chunk = source.to_walk(**target)

    @property
    def name(self):
        return self.source.name

    def settle_pages(self):
        """Set offsets and sizes of the pages, after they are written."""
        cdef Struct metadata = self.metadata
        cdef Chunk chunk = self.chunk
        cdef int field
        first = max(chunk.first_offset, 4)
        if self.unchanged:
            shift = first - chunk.start
            for field in (DATA_PAGE_OFFSET, INDEX_PAGE_OFFSET, DICTIONARY_PAGE_OFFSET):
                offset = metadata.integer(field)
                if offset is not None and offset > 0:
                    metadata.set(field, AGS1_COMPACT_I64, fitting(offset + shift, self.name))
            return
        metadata.set(TOTAL_UNCOMPRESSED_SIZE, AGS1_COMPACT_I64, chunk.total_uncompressed)
        metadata.set(TOTAL_COMPRESSED_SIZE, AGS1_COMPACT_I64, chunk.total_compressed)
        data_page = chunk.data_page_offset if chunk.data_page_offset >= 0 else first
        metadata.set(DATA_PAGE_OFFSET, AGS1_COMPACT_I64, data_page)
        metadata.remove(INDEX_PAGE_OFFSET)
        if chunk.dictionary_page_offset >= 0:
            metadata.set(DICTIONARY_PAGE_OFFSET, AGS1_COMPACT_I64, chunk.dictionary_page_offset)
        else:
            metadata.remove(DICTIONARY_PAGE_OFFSET)
        # No reader uses the first page of a chunk without values.
        if self.key is not None and chunk.values > 0:
            _agree_on_dictionary(metadata, chunk.dictionary_page_offset >= 0)

    def place_bloom_filter(self, offset, length):
        """Set the place of its Bloom filter; None for none."""
        _place(self.metadata, BLOOM_FILTER_OFFSET, BLOOM_FILTER_LENGTH, offset, length)

    def place_index(self, int field, offset, length):
        """Set the place of an index, whose offset is in this field; None for none."""
        _place(self.structure, field, field + 1, offset, length)

    def module(self, int module_type, data):
        """The arguments of :func:`seal_modules` for a module of the chunk."""
        return data, None if self.key is None else self.key.key, module_type, self.row_group, self.column

    def moved(self, bytes offset_index not None):
        """An offset index with the new offsets and sizes of its pages."""
        cdef Chunk chunk = self.chunk
        cdef Struct structure, entry
        cdef List entries
        if not self.unchanged:
            moved = chunk.moved_offset_index(offset_index)
            if moved is not None:
                return moved
        name = f"{self.name}: its offset index"
        structure = Struct.parse(offset_index, what=name)
        entries = structure.list(OffsetIndex.PAGE_LOCATIONS)
        if entries is None or (len(entries) and entries.kind != STRUCT):
            raise FormatError(f"{name} has no page locations")
        shift = max(chunk.first_offset, 4) - chunk.start
        places = {before: (after, size) for before, after, size in chunk.page_locations()}
        for index, entry in enumerate(entries):
            if self.unchanged:
                moved = fitting(entry.integer(PageLocation.OFFSET, 0) + shift, name)
                entry.set(PageLocation.OFFSET, AGS1_COMPACT_I64, moved)
                continue
            place = places.get(entry.integer(PageLocation.OFFSET, -1))
            if place is None:
                raise FormatError(f"{name} has no data page at the offset that entry {index} names")
            entry.set(PageLocation.OFFSET, AGS1_COMPACT_I64, place[0])
            entry.set(PageLocation.COMPRESSED_PAGE_SIZE, AGS1_COMPACT_I32, place[1])
        return structure.encode()

    def store_metadata(self, Struct crypto, bytes sealed, *, bint shown):
        """Store ColumnMetaData in the form that footer mode and column key require.

        `crypto` is ColumnCryptoMetaData, None for plaintext; `sealed` the metadata as a module of its own, if it is
        one, and `shown` whether the footer then also has what of it is about no value.
        """
        cdef Struct structure = self.structure, metadata = self.metadata
        structure.set(FILE_OFFSET, AGS1_COMPACT_I64, 0)
        structure.remove(ENCRYPTED_COLUMN_METADATA)
        if crypto is None:
            structure.remove(CRYPTO_METADATA)
        else:
            structure.set(CRYPTO_METADATA, AGS1_COMPACT_STRUCT, crypto)
        if sealed is not None:
            structure.set(ENCRYPTED_COLUMN_METADATA, BINARY, sealed)
            if not shown:
                structure.remove(META_DATA)
                return
            for field in set(metadata.ids()) - _VISIBLE_FIELDS:
                metadata.remove(field)
            for field in set(structure.ids()) - _VISIBLE_CHUNK_FIELDS:
                structure.remove(field)
        structure.set(META_DATA, AGS1_COMPACT_STRUCT, metadata)


cdef int _place(Struct structure, int offset_field, int length_field, offset, length) except -1:
    if offset is None:
        structure.remove(offset_field)
        structure.remove(length_field)
    else:
        structure.set(offset_field, AGS1_COMPACT_I64, offset)
        structure.set(length_field, AGS1_COMPACT_I32, length)
    return 0


def fitting(number, str name):
    """Check a sum or an offset that depends on values in the file."""
    if not -(1 << 63) <= number < 1 << 63:
        raise FormatError(f"{name}: its metadata has sizes or offsets that are out of range")
    return number


cdef int _agree_on_dictionary(Struct metadata, bint has_dictionary) except -1:
    """Make the metadata consistent, so that all readers agree on whether the first page is a dictionary page.

    Arrow and arrow-rs use dictionary_page_offset; for parquet-java see :func:`foretells_dictionary`.
    """
    cdef List encodings
    if foretells_dictionary(metadata) == has_dictionary:
        return 0
    metadata.remove(ColumnMetaData.ENCODING_STATS)
    if foretells_dictionary(metadata) == has_dictionary:
        return 0
    encodings = metadata.list(ColumnMetaData.ENCODINGS)
    kept = [] if encodings is None else [code for code in encodings.integers() if code not in DICTIONARY_ENCODINGS]
    metadata.set(ColumnMetaData.ENCODINGS, LIST, List(I32, [*kept, 8] if has_dictionary else kept))
    return 0
