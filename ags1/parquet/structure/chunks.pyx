"""Column chunks of a Parquet file: where each is, what protects it, its metadata if its key is known.

    plaintext          ColumnChunk [3: meta_data]
    footer key         ColumnChunk [3: meta_data             8: {1: with footer key}]
    column key         ColumnChunk [3: a copy, or missing    8: {2: path, key metadata}    9: module(meta_data)]

A small file has more column chunks than anything else, so what is asked of each is native: a field of its metadata is
one walk over a few items, without a call of Python. What a chunk reads goes through the file, see source_file.
"""

cimport cython
from libc.stdint cimport int64_t

from ags1.parquet.native.modules cimport MODULE_COLUMN_METADATA, ModuleOpener
from ags1.parquet.native.pages cimport Chunk
from ags1.parquet.native.thrift cimport List, Struct, parsed
from ags1.parquet.structure.fields cimport (
    BLOOM_FILTER_LENGTH, BLOOM_FILTER_OFFSET, CRYPTO_METADATA, DATA_PAGE_OFFSET, DICTIONARY_PAGE_OFFSET,
    ENCODING_STATS, ENCODINGS, ENCRYPTED_COLUMN_METADATA, ENCRYPTION_WITH_COLUMN_KEY, ENCRYPTION_WITH_FOOTER_KEY,
    FILE_PATH, GROUP_COLUMNS, KEY_METADATA, META_DATA, NUM_VALUES, PATH_IN_SCHEMA, STATS_COUNT, STATS_ENCODING,
    STATS_PAGE_TYPE, TOTAL_COMPRESSED_SIZE,
)

from ags1.errors import AuthenticationError, FormatError, KeyAccessError
from ags1.kms import ServiceRefusal
from ags1.parquet.native import modules as native_modules
from ags1.parquet.native.pages import AES_CTR, AES_GCM, PLAINTEXT
from ags1.parquet.native.thrift import BINARY
from ags1.parquet.structure.fields import BloomFilterHeader, ColumnChunk
from ags1.support.arguments import spelled

# The header of a Bloom filter is smaller; parquet-java pads it to a hundred bytes.
_BLOOM_HEADER = 1024
DICTIONARY_ENCODINGS = (2, 8)
DICTIONARY_PAGE_TYPE = 2
# The field with the length of an index follows the field with its offset.
INDEX_OFFSETS = {
    native_modules.COLUMN_INDEX: ColumnChunk.COLUMN_INDEX_OFFSET,
    native_modules.OFFSET_INDEX: ColumnChunk.OFFSET_INDEX_OFFSET,
}


@cython.final
cdef class ModuleName:
    """The name of a module of a column chunk, made when a message needs it."""

    def __str__(self):
        return self.where + native_modules.module_name(self.module_type, self.row_group, self.leaf.shown)


@cython.final
cdef class SourceChunk:
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

    def __init__(self, file, leaf, int row_group, int column, Struct structure not None):
        self.file = file
        self.leaf = leaf
        self.row_group = row_group
        self.column = column
        self.structure = structure
        self.metadata = structure.struct(META_DATA)
        self._resolve()

    cdef int _resolve(self) except -1:
        cdef Struct crypto, own
        if self.structure.binary(FILE_PATH):
            raise FormatError(f"{self.name}: its data is in another file, which no writer uses any more")
        crypto = self.structure.struct(CRYPTO_METADATA)
        footer = self.file.footer
        if crypto is None:
            if self.metadata is None:
                raise FormatError(f"{self.name}: has no metadata")
            return self._refuse_other_protection()
        if footer.algorithm is None:
            raise FormatError(f"{self.name}: is encrypted, but the file is not")
        self.encrypted = True
        own = crypto.struct(ENCRYPTION_WITH_COLUMN_KEY)
        self.own_key = own is not None
        if own is not None:
            self.key_metadata = own.binary(KEY_METADATA)
        elif crypto.struct(ENCRYPTION_WITH_FOOTER_KEY) is None:
            raise FormatError(f"{self.name}: is encrypted in a way that this version does not support")
        decryption = self.file.decryption
        if decryption is None:
            return 0
        try:
            if not self.own_key:
                self.key = self.file.footer_key()
            else:
                self.key = self.file.found_keys.get((self.leaf.path, self.key_metadata))
                if self.key is None:
                    self.key = self.file.key_of(self.leaf.path, self.key_metadata)
        except ServiceRefusal:
            # Column keys are not available without a decryption configuration.
            raise
        except KeyAccessError as error:
            self.missing = error
            return 0
        self._refuse_other_protection()
        sealed = self.structure.binary(ENCRYPTED_COLUMN_METADATA)
        if sealed is not None:
            name = self._module_name(MODULE_COLUMN_METADATA)
            self.metadata = parsed(self._open(MODULE_COLUMN_METADATA, sealed), name)
        elif self.metadata is None:
            raise FormatError(f"{self.name}: has no metadata")
        return 0

    cpdef object other_protection(self):
        """How the column is protected, if not with the key that was given for it by name; else None."""
        decryption = self.file.decryption
        if decryption is None or decryption.allow_plaintext or self.own_key:
            return None
        given = decryption.given_key(self.leaf.path)
        if given is None or (self.encrypted and given == self.key):
            return None
        return "is encrypted with the footer key" if self.encrypted else "is not encrypted"

    cdef int _refuse_other_protection(self) except -1:
        found = None if self.file.any_protection else self.other_protection()
        if found is not None:
            raise AuthenticationError(
                f"{self.name} {found}, although {spelled('column_keys')} has a key for it: it was exchanged, or it is "
                f"another file ({spelled('allow_plaintext', True)} accepts it)"
            )
        return 0

    @property
    def name(self):
        """The name in messages."""
        return f"{self.file.where}column {self.leaf.shown!r} in row group {self.row_group}"

    cdef ModuleName _module_name(self, int module_type):
        # It does not know the file, whose chunks have structures that have this name.
        cdef ModuleName name = ModuleName.__new__(ModuleName)
        name.leaf, name.where = self.leaf, self.file.where
        name.module_type, name.row_group = module_type, self.row_group
        return name

    @property
    def readable(self):
        """Whether its pages can be read: it is plaintext, or its key is known."""
        return not self.encrypted or self.key is not None

    @property
    def protection(self):
        """How its page bodies are protected: a constant of native.pages."""
        if not self.encrypted:
            return PLAINTEXT
        return AES_GCM if self.file.footer.algorithm == "AES_GCM_V1" else AES_CTR

    cpdef Struct known_metadata(self):
        """ColumnMetaData; raises the error of a missing key."""
        if self.missing is not None:
            raise self.missing
        if self.metadata is None:
            raise KeyAccessError(f"{self.name} is encrypted, and no key for it was given")
        return self.metadata

    cpdef tuple extent(self):
        """Offset and bytes of its pages; FormatError if they are not inside the file, or not known."""
        if self._extent is not None:
            return self._extent
        cdef Struct metadata = self.known_metadata()
        data = metadata.integer(DATA_PAGE_OFFSET)
        length = metadata.integer(TOTAL_COMPRESSED_SIZE)
        dictionary = metadata.integer(DICTIONARY_PAGE_OFFSET)
        if data is None or length is None or metadata.integer(NUM_VALUES) is None:
            raise FormatError(f"{self.name}: its metadata lacks the offset or size of its pages")
        # Some writers store 0 for none: for the dictionary page, or for the data pages of a chunk without values.
        start = max(0, data)
        if dictionary is not None and dictionary > 0 and (dictionary < start or not start):
            start = dictionary
        if length < 0 or (start < 4 and length) or start + length > self.file.footer.start:
            raise FormatError(f"{self.name}: its pages, {length} bytes at offset {start}, are not inside the file")
        self._extent = start, length
        return self._extent

    cpdef tuple longest_extent(self):
        """Offset and bytes in which its pages are: `extent`, and room for the header that an old writer forgot.

        A chunk without values has no such header, and none has a byte of the next chunk.
        """
        start, length = self.extent()
        if self.file.forgets_dictionary_headers and self.known_metadata().integer(NUM_VALUES):
            length = self.file.longest(start, length)
        return start, length

    cpdef object other_column(self):
        """The column that its metadata names, if it is another column of the file."""
        cdef List path = self.known_metadata().list(PATH_IN_SCHEMA)
        if path is None or path.kind != BINARY or list(path) == self.leaf.octets:
            return None
        named = tuple([part.decode("utf-8", "surrogateescape") for part in path])
        return ".".join(named) if named != self.leaf.path and named in self.file.paths else None

    cpdef bint has_dictionary(self) except -1:
        """Whether its metadata announces a dictionary page, by the rules of any reader."""
        cdef Struct metadata = self.known_metadata()
        cdef List stats
        if metadata.integer(DICTIONARY_PAGE_OFFSET, 0):
            return True
        stats = metadata.list(ENCODING_STATS)
        if stats is None:
            return _names_dictionary(metadata.list(ENCODINGS))
        for each in stats:
            if isinstance(each, Struct) and (<Struct>each).integer(STATS_PAGE_TYPE) == DICTIONARY_PAGE_TYPE:
                return True
        return False

    def to_walk(self, **target):
        """The chunk for a page walk; `target` has the arguments for the converted pages."""
        start, length = self.longest_extent()
        return Chunk(
            start, length, self.known_metadata().integer(NUM_VALUES, 0), self.leaf.shown,
            source_protection=self.protection, source_key=self.key, source_ordinals=(self.row_group, self.column),
            dictionary_expected=self.has_dictionary(), ends_with_values=self.file.forgets_dictionary_headers, **target)

    cpdef tuple index_place(self, int module_type):
        """Offset and stored bytes of the column index or the offset index, if there is one."""
        cdef int field = INDEX_OFFSETS[module_type]
        offset, length = self.structure.integer(field), self.structure.integer(field + 1)
        return None if offset is None or length is None or length <= 0 else (offset, length)

    def index(self, int module_type):
        """The ColumnIndex or OffsetIndex structure, decrypted, if there is one."""
        structure = self.index_structure(module_type)
        return None if structure is None else structure.encode()

    cpdef Struct index_structure(self, int module_type):
        """The same, as a structure."""
        place = self.index_place(module_type)
        if place is None:
            return None
        name = self._module_name(module_type)
        return parsed(self._open(module_type, self._stored(place[0], place[1], name)), name)

    cdef object _stored(self, int64_t offset, int64_t length, name):
        """Bytes of the file: from its ending, without a call of Python, if they are there."""
        footer = self.file.footer
        cdef int64_t start = footer.ending_start
        if offset >= start and 0 <= length <= <int64_t>footer.start - offset:
            return footer.ending[offset - start : offset - start + length]
        return self.file.read(offset, length, name)

    cpdef int claim(self, length) except -1:
        """Count bytes that only one column chunk can have. FormatError: their sum is larger than the file.

        Otherwise a small file, in which many columns claim the same bytes, could cause any amount of work.
        """
        self.file.claimed += length
        if self.file.claimed > self.file.footer.start:
            raise FormatError(f"{self.name}: columns share pages, indexes or Bloom filters, which is not valid")
        return 0

    cdef bytes _open(self, int module_type, data, page=None):
        cdef ModuleOpener opener
        cdef bytes plain
        if not self.encrypted:
            return bytes(data)
        if self.key is None:
            self.known_metadata()
        opener = self.file.opener
        plain = opener.open(data, self.key, module_type, self.row_group, self.column, -1 if page is None else page)
        if plain is not None:
            return plain
        aad = native_modules.module_aad(self.file.footer.file_aad, module_type, self.row_group, self.column, page)
        return native_modules.open_module(data, self.key, aad, False, str(self._module_name(module_type)))

    def open_sealed(self, int module_type, offset, longest=1 << 32, page=None):
        """Stored length and plaintext of a module whose length only its own length word has."""
        name = self._module_name(module_type)
        length = 4 + int.from_bytes(bytes(self.file.read(offset, 4, name)), "little")
        if length > longest:
            raise FormatError(f"{name}: its length word says {length - 4} bytes, which is too many")
        return length, self._open(module_type, self.file.read(offset, length, name), page)

    def bloom_filter(self):
        """Header and bitset of the Bloom filter, decrypted, if there is one."""
        metadata = self.known_metadata()
        offset = metadata.integer(BLOOM_FILTER_OFFSET)
        if offset is None or offset <= 0:
            return None
        name = self._module_name(native_modules.BLOOM_FILTER_HEADER)
        if self.encrypted:
            self.refuse_plaintext_filter(offset)
            stored, plain = self.open_sealed(native_modules.BLOOM_FILTER_HEADER, offset)
            _, bits = self.open_sealed(native_modules.BLOOM_FILTER_BITSET, offset + stored)
            return plain[: Struct.parse(plain, what=name).nbytes], bits
        stated = metadata.integer(BLOOM_FILTER_LENGTH)
        length = stated if stated is not None and stated > 0 else _BLOOM_HEADER
        data = self.file.read(offset, min(length, self.file.footer.start - offset), name)
        structure = Struct.parse(data, what=name)
        header = bytes(memoryview(data)[: structure.nbytes])
        size = structure.integer(BloomFilterHeader.NUM_BYTES)
        if size is None or size < 0:
            raise FormatError(f"{name}: has no size of the filter")
        return header, bytes(self.file.read(offset + len(header), size, name))

    def has_plaintext_filter(self, offset):
        """Whether a Bloom filter is stored in plaintext, as arrow-rs does even in encrypted columns."""
        name = self._module_name(native_modules.BLOOM_FILTER_HEADER)
        data = self.file.read(offset, max(0, min(64, self.file.footer.start - offset)), name)
        try:
            header = Struct.parse(data)
            unions = (BloomFilterHeader.ALGORITHM, BloomFilterHeader.HASH, BloomFilterHeader.COMPRESSION)
            has_all = None not in [header.struct(each) for each in unions]
            return has_all and header.integer(BloomFilterHeader.NUM_BYTES, 0) > 0
        except FormatError:
            return False

    def refuse_plaintext_filter(self, offset):
        """Refuse a plaintext filter of an encrypted column.

        Without a key, anyone can test values of the column with it, and can change which rows readers find.
        """
        if self.has_plaintext_filter(offset):
            raise FormatError(
                f"{self.name}: its Bloom filter is not encrypted, although the column is; rewrite the file with "
                f"{spelled('drop_bloom_filters', True)}, which leaves the filters out"
            )


def chunks_of(group):
    """The column chunks of a row group, in order."""
    cdef List structures = (<Struct>group.structure).list(GROUP_COLUMNS)
    cdef list leaves = group.file.leaves, found = []
    cdef int column
    if structures is None or len(structures) != len(leaves):
        count = 0 if structures is None else len(structures)
        raise FormatError(
            f"{group.file.where}row group {group.index} has {count} column chunks, but the schema {len(leaves)} columns"
        )
    for column, structure in enumerate(structures):
        if not isinstance(structure, Struct):
            raise FormatError(f"{group.file.where}row group {group.index} has an invalid column chunk")
        found.append(SourceChunk(group.file, leaves[column], group.ordinal, column, structure))
    return found


cdef bint _names_dictionary(List encodings) except -1:
    """Whether a list of encodings, or None, has one that needs a dictionary."""
    if encodings is not None:
        for code in encodings.integers():
            if code in DICTIONARY_ENCODINGS:
                return True
    return False


cpdef bint foretells_dictionary(Struct metadata) except -1:
    """Whether parquet-java assumes, before it decrypts the first page, that it is a dictionary page.

    It uses the encoding statistics: there is a dictionary page, and a data page uses it. Without statistics, the
    encodings.
    """
    cdef List stats = metadata.list(ENCODING_STATS)
    cdef Struct each
    cdef bint present = False, used = False
    if stats is None:
        return _names_dictionary(metadata.list(ENCODINGS))
    for each in stats.structs():
        if each.integer(STATS_COUNT, 0) > 0:
            if each.integer(STATS_PAGE_TYPE) == DICTIONARY_PAGE_TYPE:
                present = True
            elif each.integer(STATS_ENCODING) in DICTIONARY_ENCODINGS:
                used = True
    return present and used
