# Declarations of ags1.core.offsets for cimport: the offsets of (data, offsets), whatever integers they are.
cdef bint is_pair(object source) except -1
cdef memoryview offsets_of(object data, object offsets)
cdef int vouch(object source) except -1
