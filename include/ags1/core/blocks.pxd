# Declarations of ags1.core.blocks for cimport: AGS1 blocks in memory, over a crew of threads, without the GIL.
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t

from libc.string cimport memcpy

from ags1.core.gcm cimport Key, gcm_open, gcm_seal
from ags1.core.gcm_library cimport GcmContext
from ags1.core.layout cimport AGS1_NONCE_LENGTH, ags1_store_le32


# One block: | nonce (12) | `length` bytes | tag (16) |. `aad` has the prefix, and room for the index behind it. `data`
# may be where the ciphertext goes, or apart. Loops over blocks differ by where the bytes come from and go to: memory
# (blocks), memory and descriptors (descriptors), a Writer's own memory (gathered). Items (window) may have no index.
cdef inline int seal_block(
        GcmContext *context, uint8_t *aad, size_t prefix_length, int64_t index, const uint8_t *nonce,
        const uint8_t *data, int64_t length, uint8_t *block) noexcept nogil:
    ags1_store_le32(aad + prefix_length, <unsigned int>index)
    memcpy(block, nonce, AGS1_NONCE_LENGTH)
    return gcm_seal(
        context, block, aad, prefix_length + 4, data, length, block + AGS1_NONCE_LENGTH,
        block + AGS1_NONCE_LENGTH + length)


cdef inline int open_block(
        GcmContext *context, uint8_t *aad, size_t prefix_length, int64_t index, const uint8_t *block,
        int64_t length, uint8_t *out) noexcept nogil:
    ags1_store_le32(aad + prefix_length, <unsigned int>index)
    return gcm_open(
        context, block, aad, prefix_length + 4, block + AGS1_NONCE_LENGTH, length, block + AGS1_NONCE_LENGTH + length,
        out)


# Consecutive blocks of one stream, in memory on both sides. Plaintext lies tightly packed, blocks likewise.
cdef struct Run:
    const uint8_t *data
    uint8_t *out
    int64_t length               # bytes of plaintext
    int64_t block_length         # bytes of plaintext in each block but the last
    int64_t first_block          # index in its stream of the first block here
    const uint8_t *key
    size_t key_length
    const uint8_t *aad_prefix
    size_t aad_prefix_length
    bint header                  # sealing: who seals the first block writes the stream's header in front of `out`
    int64_t first_unit           # filled by seal_runs and open_runs
    int64_t first_weight

# Seal or open every block of every run; raise what the earliest failure means. All memory must stay valid and
# unresized; with the GIL held on entry, released while working. threads >= 1. names[i] calls run i by its name in an
# error; None has no names.
cdef int seal_runs(Run *runs, int64_t count, int threads, object names) except -1
cdef int open_runs(Run *runs, int64_t count, int threads, object names) except -1

cdef enum:
    MAX_UNITS = 131072           # blocks whose nonces are drawn at once

cdef int64_t blocks_in(const Run *run) noexcept nogil
cdef int choose_threads(object threads, int64_t nbytes) except -1
cdef object new_bytes(int64_t length)
