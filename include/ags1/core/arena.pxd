# Declarations of ags1.core.arena for cimport: the result of a batch.
from libc.stdint cimport int64_t, uint8_t

cdef class Room:
    cdef list arenas
    cdef list offsets
    cdef object take(self, list pieces, int64_t nbytes)

cdef class Batch:
    cdef object owner
    cdef object offsets_owner
    cdef object validity_owner
    cdef const uint8_t *arena
    cdef int64_t arena_nbytes
    cdef const int64_t *starts
    cdef const uint8_t *bits
    # Bit of the first item. Where there are bits, as many offsets lie in front of `starts`.
    cdef int64_t bit
    cdef int64_t length
    cdef object view
    cdef Room room           # of a reserved batch
    cdef tuple failures      # positions, or None
    cdef bint is_null(self, int64_t index) noexcept
    cdef object item(self, int64_t index)

cdef Batch new_batch(
    object owner, const uint8_t *arena, int64_t nbytes, object offsets_owner, const int64_t *starts, int64_t length,
    bytearray validity, tuple failures)
