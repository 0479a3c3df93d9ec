# compact_items.h for Cython: extern declarations only. See there for the picture and what each returns.
from libc.stdint cimport int16_t, int64_t, uint8_t, uint32_t

from ags1.core.compact cimport ags1_compact

cdef extern from "ags1/core/compact_items.h" nogil:
    enum:
        AGS1_ITEMS_NO_MEMORY
        AGS1_ITEMS_DUPLICATE
        AGS1_ITEMS_TOO_LONG

        AGS1_ITEM_SPAN
        AGS1_ITEM_INLINE
        AGS1_ITEM_OBJECT

    ctypedef struct ags1_item:
        int64_t data
        uint32_t length
        int16_t id
        uint8_t kind
        uint8_t form

    ctypedef struct ags1_items:
        ags1_compact cursor
        const uint8_t *base
        ags1_item *items
        int64_t count
        int64_t capacity
        int duplicate
        int first

    bint ags1_is_container(int kind)
    bint ags1_is_integer(int kind)
    bint ags1_integer_fits(int kind, int64_t number)
    bint ags1_items_reserve(ags1_item **items, int64_t *capacity, int64_t needed)
    void ags1_items_walk(ags1_items *items, int shape, int depth)
    int64_t ags1_item_inline_size(const ags1_item *item, bint field)
    uint8_t *ags1_item_put_inline(uint8_t *out, const ags1_item *item, bint field)
    uint8_t *ags1_item_put_header(uint8_t *out, const ags1_item *item, int before)
    uint8_t *ags1_items_put_list(uint8_t *out, int kind, int64_t count)
