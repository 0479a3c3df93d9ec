# compact.h for Cython: extern declarations only. See compact.h for the picture and what each returns.
from libc.stdint cimport int64_t, uint8_t, uint64_t

cdef extern from "ags1/core/compact.h" nogil:
    enum:
        AGS1_COMPACT_STOP
        AGS1_COMPACT_TRUE
        AGS1_COMPACT_FALSE
        AGS1_COMPACT_I8
        AGS1_COMPACT_I16
        AGS1_COMPACT_I32
        AGS1_COMPACT_I64
        AGS1_COMPACT_DOUBLE
        AGS1_COMPACT_BINARY
        AGS1_COMPACT_LIST
        AGS1_COMPACT_SET
        AGS1_COMPACT_MAP
        AGS1_COMPACT_STRUCT
        AGS1_COMPACT_UUID

        AGS1_COMPACT_OK
        AGS1_COMPACT_END
        AGS1_COMPACT_VARINT
        AGS1_COMPACT_KIND
        AGS1_COMPACT_SIZE
        AGS1_COMPACT_DEPTH
        AGS1_COMPACT_FIELD_ID
        AGS1_COMPACT_MAX_DEPTH

    ctypedef struct ags1_compact:
        const uint8_t *at
        const uint8_t *end
        int error

    void ags1_compact_fail(ags1_compact *cursor, int error)
    uint8_t ags1_compact_byte(ags1_compact *cursor)
    uint64_t ags1_compact_varint(ags1_compact *cursor)
    int64_t ags1_compact_zigzag(ags1_compact *cursor)
    int ags1_compact_field(ags1_compact *cursor, int *field_id)
    int64_t ags1_compact_list(ags1_compact *cursor, int *kind)
    int64_t ags1_compact_map(ags1_compact *cursor, int *key_kind, int *value_kind)
    int64_t ags1_compact_binary(ags1_compact *cursor)
    void ags1_compact_forward(ags1_compact *cursor, int64_t bytes)
    void ags1_compact_skip(ags1_compact *cursor, int kind, bint item, int depth)
    int ags1_compact_put_varint(uint8_t *out, uint64_t value)
    int ags1_compact_put_zigzag(uint8_t *out, int64_t value)
