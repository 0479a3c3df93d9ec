# Declarations of ags1.parquet.native.thrift for cimport: a Struct's fields without the way through Python's calls.
cimport cython

from ags1.parquet.native.nodes cimport Node


@cython.final
@cython.no_gc
cdef class Struct(Node):
    cpdef object integer(self, int field_id, default=*)
    cpdef object boolean(self, int field_id, default=*)
    cpdef object binary(self, int field_id, default=*)
    cpdef object struct(self, int field_id, default=*)
    cpdef object list(self, int field_id, default=*)
    cpdef object set(self, int field_id, int kind, value)
    cpdef object remove(self, int field_id)
    cpdef object copy(self)
    cpdef object encode(self)


@cython.final
@cython.no_gc
cdef class List(Node):
    cpdef object integers(self)


# Struct.parse.
cdef Struct parsed(data, object what, Py_ssize_t offset=*, bint trailing=*)
