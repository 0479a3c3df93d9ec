# Declarations of ags1.parquet.structure.consistency for cimport: whether the parts of a Parquet file agree.
cimport cython
from libc.stdint cimport int64_t

from ags1.parquet.native.thrift cimport Struct
from ags1.parquet.structure.chunks cimport SourceChunk


# What a walk over the pages of a column chunk found, in the units of ColumnMetaData.
@cython.final
cdef class FoundPages:
    cdef list data_pages         # offset and stored size, header included, of each
    cdef object dictionary_offset
    cdef int64_t stored
    cdef int64_t uncompressed
    cdef int64_t values


# They add contradictions to `problems`, (kind of module, text) each.
cdef int page_disagreements(SourceChunk chunk, FoundPages found, list problems) except -1
cdef int column_index_disagreements(SourceChunk chunk, FoundPages found, Struct index, list problems) except -1
cdef int offset_index_disagreements(SourceChunk chunk, FoundPages found, Struct index, list problems) except -1
cdef int visible_disagreements(SourceChunk chunk, list problems) except -1
cdef int row_group_disagreements(object group, list chunks, bint encrypted, list problems) except -1
