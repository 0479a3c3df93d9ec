# crc32.h for Cython: extern declarations only.
from libc.stdint cimport int64_t, uint8_t, uint32_t

cdef extern from "ags1/core/crc32.h" nogil:
    int ags1_crc32_bits
    void ags1_crc32_prepare()
    uint32_t ags1_crc32_by(int bits, const uint8_t *data, int64_t length)
    uint32_t ags1_crc32(const uint8_t *data, int64_t length)
