# layout.h for Cython: extern declarations only. See layout.h for the picture and the meaning of each answer.
from libc.stdint cimport int64_t, uint8_t, uint32_t

cdef extern from "ags1/core/layout.h" nogil:
    enum:
        AGS1_HEADER_LENGTH
        AGS1_NONCE_LENGTH
        AGS1_TAG_LENGTH
        AGS1_BLOCK_OVERHEAD
        AGS1_MIN_ENCRYPTED_LENGTH
        AGS1_DEFAULT_BLOCK_LENGTH
        AGS1_MAX_BLOCK_LENGTH
        AGS1_MAX_BLOCKS

        AGS1_LAYOUT_OK
        AGS1_LAYOUT_BAD_BLOCK_LENGTH
        AGS1_LAYOUT_NEGATIVE
        AGS1_LAYOUT_TOO_MANY_BLOCKS
        AGS1_LAYOUT_TOO_SHORT
        AGS1_LAYOUT_PARTIAL_BLOCK
        AGS1_LAYOUT_TRAILING_BLOCK
        AGS1_LAYOUT_NOT_AGS1
        AGS1_LAYOUT_IN_HEADER

    int ags1_check_block_length(int64_t block_length)
    int ags1_block_count(int64_t plaintext_length, int64_t block_length, int64_t *out)
    int ags1_encrypted_length(int64_t plaintext_length, int64_t block_length, int64_t *out)
    int ags1_plaintext_length(int64_t encrypted_length, int64_t block_length, int64_t *out)
    int64_t ags1_block_offset(int64_t block_index, int64_t block_length)
    void ags1_store_le32(uint8_t *out, uint32_t value)
    uint32_t ags1_load_le32(const uint8_t *data)
    void ags1_write_header(uint8_t *out, int64_t block_length)
    int ags1_read_header(const uint8_t *data, int64_t *block_length)
