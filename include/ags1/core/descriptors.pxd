# Declarations of ags1.core.descriptors for cimport: blocks between a descriptor and memory or another, without the GIL.
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t

from ags1.core.gcm_library cimport GcmContext
from ags1.core.workers cimport ags1_failure


cdef struct Secret:
    const uint8_t *octets
    size_t length
    const uint8_t *aad_prefix
    size_t aad_prefix_length


cdef struct Transfer:
    int source                 # -1: data
    int64_t source_offset
    const uint8_t *data
    int target                 # -1: out
    int64_t target_offset
    uint8_t *out
    int64_t length             # bytes of plaintext
    int64_t block_length
    int64_t count              # blocks
    int64_t first_block
    int64_t span               # blocks
    int64_t next_span
    int64_t done               # bytes of plaintext that were moved
    const uint8_t *nonces      # NULL when opening
    GcmContext *context        # for one thread; NULL: each has its own
    Secret key
    ags1_failure failure


# What a member of the crew does with the Transfer that it is given: spans, until none is left or something failed.
cdef void *transfer_work(void *transfer) noexcept nogil
# Blocks of a span: about a mebibyte.
cdef int64_t span_of(int64_t block_length) noexcept nogil
