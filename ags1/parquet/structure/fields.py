"""Numbers of the fields of the Thrift structs in Parquet files, by their names in parquet.thrift, in capitals.

Only those that Python code of this package uses. Source: parquet.thrift of parquet-format 2.12.
"""

from __future__ import annotations


def names_of(struct: type) -> dict[int, str]:
    """Names of the fields of a struct, or of the members of a union, by number."""
    return {number: name for name, number in vars(struct).items() if name.isupper()}


# -- footer ----------------------------------------------------------------------------------------------------


class FileMetaData:
    SCHEMA = 2
    NUM_ROWS = 3
    ROW_GROUPS = 4
    KEY_VALUE_METADATA = 5
    CREATED_BY = 6
    COLUMN_ORDERS = 7
    ENCRYPTION_ALGORITHM = 8
    FOOTER_SIGNING_KEY_METADATA = 9


class KeyValue:
    KEY = 1
    VALUE = 2


class RowGroup:
    COLUMNS = 1
    TOTAL_BYTE_SIZE = 2
    NUM_ROWS = 3
    SORTING_COLUMNS = 4
    FILE_OFFSET = 5
    TOTAL_COMPRESSED_SIZE = 6
    ORDINAL = 7


class SortingColumn:
    COLUMN_IDX = 1


class ColumnChunk:
    """A column chunk; all of its fields."""

    FILE_PATH = 1
    FILE_OFFSET = 2
    META_DATA = 3
    OFFSET_INDEX_OFFSET = 4
    OFFSET_INDEX_LENGTH = 5
    COLUMN_INDEX_OFFSET = 6
    COLUMN_INDEX_LENGTH = 7
    CRYPTO_METADATA = 8
    ENCRYPTED_COLUMN_METADATA = 9


class ColumnMetaData:
    TYPE = 1
    ENCODINGS = 2
    PATH_IN_SCHEMA = 3
    CODEC = 4
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


class PageEncodingStats:
    PAGE_TYPE = 1
    ENCODING = 2
    COUNT = 3


# -- schema ----------------------------------------------------------------------------------------------------


class SchemaElement:
    TYPE = 1
    TYPE_LENGTH = 2
    REPETITION_TYPE = 3
    NAME = 4
    NUM_CHILDREN = 5
    CONVERTED_TYPE = 6
    SCALE = 7
    PRECISION = 8
    FIELD_ID = 9
    LOGICAL_TYPE = 10


class LogicalType:
    """A union; all of its members."""

    STRING = 1
    MAP = 2
    LIST = 3
    ENUM = 4
    DECIMAL = 5
    DATE = 6
    TIME = 7
    TIMESTAMP = 8
    INTEGER = 10
    UNKNOWN = 11
    JSON = 12
    BSON = 13
    UUID = 14
    FLOAT16 = 15
    VARIANT = 16
    GEOMETRY = 17
    GEOGRAPHY = 18


class DecimalType:
    SCALE = 1
    PRECISION = 2


class TimeType:
    """LogicalType.TIME, and LogicalType.TIMESTAMP, which has the same fields."""

    IS_ADJUSTED_TO_UTC = 1
    UNIT = 2


class TimeUnit:
    """A union; all of its members."""

    MILLIS = 1
    MICROS = 2
    NANOS = 3


class IntType:
    BIT_WIDTH = 1
    IS_SIGNED = 2


# -- encryption ------------------------------------------------------------------------------------------------


class FileCryptoMetaData:
    ENCRYPTION_ALGORITHM = 1
    KEY_METADATA = 2


class EncryptionAlgorithm:
    """A union; all of its members."""

    AES_GCM_V1 = 1
    AES_GCM_CTR_V1 = 2


class AesGcmV1:
    """EncryptionAlgorithm.AES_GCM_V1, and AES_GCM_CTR_V1, which has the same fields."""

    AAD_PREFIX = 1
    AAD_FILE_UNIQUE = 2
    SUPPLY_AAD_PREFIX = 3


class ColumnCryptoMetaData:
    ENCRYPTION_WITH_FOOTER_KEY = 1
    ENCRYPTION_WITH_COLUMN_KEY = 2


class EncryptionWithColumnKey:
    PATH_IN_SCHEMA = 1
    KEY_METADATA = 2


# -- pages, indexes, Bloom filters -----------------------------------------------------------------------------


class PageHeader:
    TYPE = 1
    COMPRESSED_PAGE_SIZE = 3
    CRC = 4
    DATA_PAGE_HEADER = 5
    DICTIONARY_PAGE_HEADER = 7
    DATA_PAGE_HEADER_V2 = 8


class DataPageHeader:
    ENCODING = 2


class DictionaryPageHeader:
    NUM_VALUES = 1


class DataPageHeaderV2:
    ENCODING = 4
    DEFINITION_LEVELS_BYTE_LENGTH = 5
    REPETITION_LEVELS_BYTE_LENGTH = 6


class ColumnIndex:
    NULL_PAGES = 1
    MIN_VALUES = 2
    MAX_VALUES = 3
    NULL_COUNTS = 5


class OffsetIndex:
    PAGE_LOCATIONS = 1


class PageLocation:
    OFFSET = 1
    COMPRESSED_PAGE_SIZE = 2
    FIRST_ROW_INDEX = 3


class BloomFilterHeader:
    NUM_BYTES = 1
    ALGORITHM = 2
    HASH = 3
    COMPRESSION = 4
