# Declarations of ags1.parquet.native.page_conversion for cimport: a page under another protection, no GIL.
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t

from ags1.parquet.native.modules cimport Modules
from ags1.parquet.native.page_header cimport Page

cdef enum:
    HEADER_SLACK = 12            # by how much a new header may be longer than the old one

# What a worker needs of a chunk.
cdef struct Ends:
    int source_mode
    int target_mode
    const uint8_t *source_key
    size_t source_key_length
    const uint8_t *target_key
    size_t target_key_length
    int source_row_group
    int source_column
    int target_row_group
    int target_column

# What a worker has of its own. All zero at first; worker_free gives the memory back.
cdef struct Worker:
    Modules opener
    Modules sealer
    bint levels_inside           # V2 pages are sealed with their levels
    uint8_t *stored              # a segment as it was read
    int64_t stored_capacity
    uint8_t *plain               # a body between two protections
    int64_t plain_capacity
    uint8_t *header              # header' before it is sealed
    int64_t header_capacity
    uint8_t *converted           # a segment as it will be written
    int64_t converted_capacity

cdef int worker_init(
    Worker *worker, const uint8_t *source_aad, size_t source_aad_length, const uint8_t *target_aad,
    size_t target_aad_length, bint levels_inside) noexcept nogil
cdef void worker_free(Worker *worker) noexcept nogil
# Room for `needed` bytes, whose content is undefined; False if there is no memory.
cdef bint grow(uint8_t **memory, int64_t *capacity, int64_t needed) noexcept nogil

# Each answers a status of GcmStatus, _module or _page_header. `header` is the plaintext of the page's header, `stored`
# the page as it is in the source.
# `nonces` are two, for the body and the header; `out` has room for the stored size, HEADER_SLACK and two GCM_OVERHEAD.
cdef int convert_page(
    Worker *worker, const Ends *ends, Page *page, const uint8_t *header, const uint8_t *nonces, const uint8_t *stored,
    uint8_t *out, int64_t *length) noexcept nogil
# Plaintext of a page in the place and size that its modules have; `stored` is `out` or apart from it.
cdef int view_page(
    Worker *worker, const Ends *ends, const Page *page, const uint8_t *header, const uint8_t *stored,
    uint8_t *out) noexcept nogil
cdef int verify_page(Worker *worker, const Ends *ends, const Page *page, const uint8_t *stored) noexcept nogil
