# Class declarations of ags1.core.buffer, for cimport by other modules.
from cpython.buffer cimport Py_buffer
from libc.stdint cimport uint8_t

cdef class BufferView:
    # Owned by self: the export is held until release() or until self dies, so `data` stays valid without the GIL.
    cdef Py_buffer view
    cdef bint held
    cdef Py_ssize_t exports      # memoryviews of self in use
    cdef uint8_t *data
    cdef readonly Py_ssize_t nbytes
    cdef readonly bint readonly
    cdef void drop(self)

cdef BufferView readable(object source, str name)
cdef BufferView writable(object target, str name)
cdef bint holds_objects(object source) except -1
cdef bint overlap(
    const uint8_t *first, Py_ssize_t first_nbytes, const uint8_t *second, Py_ssize_t second_nbytes) noexcept nogil
