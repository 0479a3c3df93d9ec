# positioned.h for Cython: extern declarations only.
from libc.stdint cimport int64_t, uint8_t

cdef extern from "ags1/core/positioned.h" nogil:
    enum:
        AGS1_IO_OK
        AGS1_IO_READ
        AGS1_IO_WRITE
        AGS1_IO_END

    int ags1_read_at(int descriptor, uint8_t *memory, int64_t length, int64_t offset)
    int ags1_write_at(int descriptor, const uint8_t *memory, int64_t length, int64_t offset)
