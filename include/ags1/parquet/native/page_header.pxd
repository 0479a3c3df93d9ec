# Declarations of ags1.parquet.native.page_header for cimport: a page header, and its bytes, no GIL.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from ags1.core.compact cimport ags1_compact

cdef enum Protection:
    PLAIN = 0
    GCM = 1
    CTR = 2

cdef enum PageType:
    RAW_BYTES = -1               # not a page: bytes that are copied as they are
    DATA_PAGE_V1 = 0
    DICTIONARY = 2
    DATA_PAGE_V2 = 3

# Beside GcmStatus, the statuses of positioned.h and MODULE_BAD_LENGTH.
cdef enum PageStatus:
    PAGE_NEED_MORE = 40          # the memory ends inside the page, the chunk does not
    PAGE_BAD_HEADER = 41
    PAGE_PAST_CHUNK = 42
    PAGE_UNKNOWN_TYPE = 43
    PAGE_LATE_DICTIONARY = 44
    PAGE_WRONG_TYPE = 45         # sealed as a dictionary page, but is a data page, or the other way round
    PAGE_TOO_MANY = 46
    PAGE_MISSING_VALUES = 47
    PAGE_BAD_CRC = 48
    PAGE_BAD_LEVELS = 49
    PAGE_TOO_LARGE = 50
    PAGE_DOWNGRADED = 51         # a GCM module in a file that says that its pages are CTR modules

cdef struct Page:
    int64_t offset               # in the source, of its header
    int64_t header_at            # in the arena: its header's structure, as plaintext
    int32_t header_length        # of that
    int32_t header_stored        # bytes in the source, as a module or as they are
    int32_t body_stored          # bytes in the source: compressed_page_size
    int32_t uncompressed
    int32_t levels               # V2: bytes of repetition and definition levels
    int32_t values
    int32_t size_start           # span in the header of compressed_page_size's value
    int32_t size_end
    int32_t crc_start            # of crc's value; both 0 if there is none
    int32_t crc_end
    int32_t crc_field            # where the field of crc begins, with its kind and id
    int32_t before_crc           # id of the field before it
    uint32_t crc
    int32_t page_type
    int32_t ordinal              # of a data page
    int32_t chunk                # index in the batch
    int32_t status               # after verification
    int32_t new_header           # bytes in the target
    int32_t new_body
    int64_t new_offset

# Finds the sizes, the CRC and their spans in a PageHeader; the cursor ends behind the structure. GCM_OK,
# PAGE_BAD_HEADER, or AGS1_COMPACT_END where more bytes may help.
cdef int scan_page_header(ags1_compact *cursor, Page *page) noexcept nogil
# Copies an OffsetIndex with other offsets and sizes: `locations` are a chunk's. Returns its length, or -1 if that takes
# a closer look. `out` has room for two varints more in each of `count` entries.
cdef int64_t move_offset_index(
    const uint8_t *data, int64_t length, const int64_t *locations, int64_t count, uint8_t *out) noexcept nogil
