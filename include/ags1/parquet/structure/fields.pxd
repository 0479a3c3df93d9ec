# Declarations of ags1.parquet.structure.fields for cimport: numbers of the fields that native code asks for, by the
# names there. A test compares them. Where two structs have a name, one has a prefix.
cdef enum:  # ColumnChunk
    FILE_PATH = 1
    FILE_OFFSET = 2
    META_DATA = 3
    CRYPTO_METADATA = 8
    ENCRYPTED_COLUMN_METADATA = 9

cdef enum:  # ColumnMetaData
    ENCODINGS = 2
    PATH_IN_SCHEMA = 3
    NUM_VALUES = 5
    TOTAL_UNCOMPRESSED_SIZE = 6
    TOTAL_COMPRESSED_SIZE = 7
    DATA_PAGE_OFFSET = 9
    INDEX_PAGE_OFFSET = 10
    DICTIONARY_PAGE_OFFSET = 11
    STATISTICS = 12
    ENCODING_STATS = 13
    BLOOM_FILTER_OFFSET = 14
    BLOOM_FILTER_LENGTH = 15

cdef enum:  # PageEncodingStats STATS_
    STATS_PAGE_TYPE = 1
    STATS_ENCODING = 2
    STATS_COUNT = 3

cdef enum:  # ColumnCryptoMetaData
    ENCRYPTION_WITH_FOOTER_KEY = 1
    ENCRYPTION_WITH_COLUMN_KEY = 2

cdef enum:  # EncryptionWithColumnKey
    KEY_METADATA = 2

cdef enum:  # RowGroup GROUP_
    GROUP_COLUMNS = 1
    GROUP_NUM_ROWS = 3
    GROUP_FILE_OFFSET = 5
    GROUP_ORDINAL = 7

cdef enum:  # OffsetIndex
    PAGE_LOCATIONS = 1

cdef enum:  # PageLocation LOCATION_
    LOCATION_OFFSET = 1
    LOCATION_COMPRESSED_PAGE_SIZE = 2
    LOCATION_FIRST_ROW_INDEX = 3
