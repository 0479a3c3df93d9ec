# Declarations of ags1.parquet.structure.chunks for cimport: the column chunks of a file, and what is known of each.
cimport cython
from libc.stdint cimport int64_t

from ags1.core.gcm cimport Key
from ags1.parquet.native.pages cimport Chunk
from ags1.parquet.native.thrift cimport Struct


# A str when a message needs it.
@cython.final
cdef class ModuleName:
    cdef object leaf
    cdef str where
    cdef int module_type
    cdef int row_group


@cython.final
cdef class SourceChunk:
    cdef readonly object file
    cdef readonly object leaf
    cdef readonly int row_group
    cdef readonly int column
    cdef readonly Struct structure
    cdef readonly bint encrypted
    cdef readonly bint own_key
    cdef readonly bytes key_metadata
    cdef readonly Key key
    cdef readonly object missing
    cdef readonly Struct metadata
    cdef tuple _extent
    cdef int _resolve(self) except -1
    cdef int _refuse_other_protection(self) except -1
    cdef ModuleName _module_name(self, int module_type)
    cdef bytes _open(self, int module_type, data, page=*)
    cpdef object other_protection(self)
    cpdef Struct known_metadata(self)
    cpdef tuple extent(self)
    cpdef tuple longest_extent(self)
    cpdef object other_column(self)
    cpdef bint has_dictionary(self) except -1
    cdef object _stored(self, int64_t offset, int64_t length, name)
    cpdef int claim(self, length) except -1
    cpdef tuple index_place(self, int module_type)
    cpdef Struct index_structure(self, int module_type)


cpdef bint foretells_dictionary(Struct metadata) except -1
