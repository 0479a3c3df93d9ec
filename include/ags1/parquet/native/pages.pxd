# Declarations of ags1.parquet.native.pages for cimport: where the pages of column chunks lie.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from ags1.core.buffer cimport BufferView
from ags1.core.gcm cimport Key
from ags1.parquet.native.modules cimport Modules
from ags1.parquet.native.page_conversion cimport Ends
from ags1.parquet.native.page_header cimport Page

cdef class PageSource:
    cdef readonly object name
    cdef readonly int64_t size   # offset behind the last byte that there is
    cdef int descriptor          # -1: memory
    cdef BufferView view
    cdef int64_t base            # offset of the memory's first byte
    cdef uint8_t *window         # walking a file: what was read last
    cdef int64_t window_offset
    cdef int64_t window_length
    cdef int64_t window_capacity
    cdef int64_t ahead           # how much is read at once
    cdef bint walking            # a walk is under way, in some thread
    cdef int peek(self, int64_t offset, int64_t length, const uint8_t **data) noexcept nogil

cdef class Chunk:
    # What is known of a column chunk, and how far its pages have been found.
    cdef Ends ends
    cdef Key source_key
    cdef Key target_key
    cdef bint dictionary_expected
    cdef bint raw
    cdef bint ends_with_values
    cdef readonly int64_t start
    cdef readonly int64_t end
    cdef readonly int64_t num_values
    cdef readonly object label
    cdef readonly int64_t position   # of the next page
    cdef readonly int64_t values
    cdef readonly int64_t checksums
    cdef int64_t next_ordinal
    cdef bint first
    # In the target, once converted.
    cdef readonly int64_t total_compressed
    cdef readonly int64_t total_uncompressed
    cdef readonly int64_t data_page_offset
    cdef readonly int64_t dictionary_page_offset
    cdef readonly int64_t first_offset
    cdef int64_t *locations          # source offset, new offset, new size of each data page
    cdef int64_t location_count
    cdef int64_t location_capacity
    cdef int locate(self, const Page *page) except -1

cdef class PageList:
    cdef Page *pages
    cdef readonly int64_t count
    cdef int64_t capacity
    cdef uint8_t *arena
    cdef int64_t arena_length
    cdef int64_t arena_capacity
    cdef list chunks
    cdef readonly int64_t stored     # bytes in the source
    cdef Modules opener
    cdef bint opener_made
    cdef int users               # conversions that use its memory; -1 during a walk
    cdef int64_t failed_ordinal
    cdef int failed_type
    cdef int add_page(self, const Page *page) noexcept nogil
    cdef int64_t reserve(self, int64_t length) noexcept nogil
    cdef int _read_header(self, Chunk chunk, PageSource source, int64_t remaining, Page *page) noexcept nogil
    cdef int walk(self, Chunk chunk, int index, PageSource source, int64_t max_stored, int64_t max_pages) noexcept nogil

cdef int raise_page(
    int status, int system_error, unsigned long backend_error, Chunk chunk, int page_type, int64_t ordinal,
    bint header, object source_name, object target_name) except -1
