/* Where the values of one struct or list are, after one walk over its bytes.
 *
 *     source    15 02 19 1c ...        offsets count from `base`
 *               |     |
 *     items    [1: I32 at 1, 1 byte] [2: LIST at 3, 20 bytes] ...      16 bytes each
 *
 * An item begins as a span of the source. A change of the value makes it inline (a number) or an object (a reference
 * that the item's owner counts)::
 *
 *     ags1_items items = {.base = data, .cursor = {data + start, data + start + length, 0}};
 *     ags1_items_walk(&items, AGS1_COMPACT_STRUCT, 1);
 *     if (items.cursor.error) ...                      items.items is allocated all the same
 *     free(items.items);
 *
 * What a span says was walked to its end, so that later looks at it need no more than its bytes. An item takes at least
 * one byte of the source, and is recorded after that byte was seen. Source: see compact.h.
 */
#ifndef AGS1_COMPACT_ITEMS_H
#define AGS1_COMPACT_ITEMS_H

#include <stdlib.h>

#include "ags1/core/compact.h"

/* Beside the errors of compact.h. */
enum {
    AGS1_ITEMS_NO_MEMORY = 64,
    AGS1_ITEMS_DUPLICATE, /* a field id twice in one struct */
    AGS1_ITEMS_TOO_LONG   /* a value of 4 GiB or more */
};

enum {
    AGS1_ITEM_SPAN = 0,   /* data: offset of the value; length: its bytes */
    AGS1_ITEM_INLINE = 1, /* data: the number, the bits of a double, 0 or 1 for a bool in a list */
    AGS1_ITEM_OBJECT = 2  /* data: a pointer */
};

#define AGS1_ITEMS_MAX_FIELDS 65536

typedef struct {
    int64_t data;
    uint32_t length;
    int16_t id;   /* of a field */
    uint8_t kind; /* as on the wire: both kinds of bool */
    uint8_t form;
} ags1_item;

typedef struct {
    ags1_compact cursor;
    const uint8_t *base;
    ags1_item *items;
    int64_t count;
    int64_t capacity;
    int duplicate; /* the field id that came twice */
    int first;     /* kind of a list's items, as on the wire */
} ags1_items;

static inline int ags1_is_container(int kind)
{
    return kind >= AGS1_COMPACT_LIST && kind <= AGS1_COMPACT_STRUCT;
}

static inline int ags1_is_integer(int kind)
{
    return kind >= AGS1_COMPACT_I8 && kind <= AGS1_COMPACT_I64;
}

/* Whether an integer kind has room for the number. */
static inline int ags1_integer_fits(int kind, int64_t number)
{
    switch (kind) {
    case AGS1_COMPACT_I8:
        return number >= INT8_MIN && number <= INT8_MAX;
    case AGS1_COMPACT_I16:
        return number >= INT16_MIN && number <= INT16_MAX;
    case AGS1_COMPACT_I32:
        return number >= INT32_MIN && number <= INT32_MAX;
    default:
        return 1;
    }
}

/* Room for `needed` items; 0 if there is no memory. */
static int ags1_items_reserve(ags1_item **items, int64_t *capacity, int64_t needed)
{
    int64_t larger = *capacity + *capacity / 2;
    ags1_item *moved;
    if (needed <= *capacity)
        return 1;
    if (larger < needed)
        larger = needed;
    if (larger < 4)
        larger = 4;
    moved = (ags1_item *)realloc(*items, (size_t)larger * sizeof(ags1_item));
    if (!moved)
        return 0;
    *items = moved;
    *capacity = larger;
    return 1;
}

/* Go past a value and record it; 0 after an error. */
static inline int ags1_items_record(ags1_items *items, int kind, int item, int field_id, int depth)
{
    const uint8_t *start = items->cursor.at;
    ags1_item *recorded;
    if (items->cursor.error)
        return 0;
    ags1_compact_skip(&items->cursor, kind, item, depth);
    if (items->cursor.error)
        return 0;
    if ((uint64_t)(items->cursor.at - start) > UINT32_MAX) {
        ags1_compact_fail(&items->cursor, AGS1_ITEMS_TOO_LONG);
        return 0;
    }
    if (items->count == items->capacity && !ags1_items_reserve(&items->items, &items->capacity, items->count + 1)) {
        ags1_compact_fail(&items->cursor, AGS1_ITEMS_NO_MEMORY);
        return 0;
    }
    recorded = &items->items[items->count++];
    recorded->data = start - items->base;
    recorded->length = (uint32_t)(items->cursor.at - start);
    recorded->id = (int16_t)field_id;
    recorded->kind = (uint8_t)kind;
    recorded->form = AGS1_ITEM_SPAN;
    return 1;
}

static void ags1_items_look_for_duplicate(ags1_items *items)
{
    uint8_t seen[AGS1_ITEMS_MAX_FIELDS / 8] = {0};
    int64_t index;
    for (index = 0; index < items->count; index++) {
        int place = items->items[index].id - INT16_MIN;
        if (seen[place >> 3] >> (place & 7) & 1) {
            items->duplicate = items->items[index].id;
            ags1_compact_fail(&items->cursor, AGS1_ITEMS_DUPLICATE);
            return;
        }
        seen[place >> 3] |= (uint8_t)(1 << (place & 7));
    }
}

static void ags1_items_walk_struct(ags1_items *items, int depth)
{
    int kind, field_id = 0, before = INT16_MIN - 1, ascending = 1;
    while ((kind = ags1_compact_field(&items->cursor, &field_id)) != AGS1_COMPACT_STOP) {
        if (field_id <= before)
            ascending = 0;
        before = field_id;
        if (items->count == AGS1_ITEMS_MAX_FIELDS) {
            /* More fields than ids: this one, or one before it, comes twice. It bounds the memory, too. */
            items->duplicate = field_id;
            ags1_compact_fail(&items->cursor, AGS1_ITEMS_DUPLICATE);
        }
        if (!ags1_items_record(items, kind, 0, field_id, depth))
            return;
    }
    if (!ascending && !items->cursor.error)
        ags1_items_look_for_duplicate(items);
}

/* Record all values of the struct or list (or set) at the cursor. `depth`: containers around its items. */
static void ags1_items_walk(ags1_items *items, int shape, int depth)
{
    int64_t size;
    if (depth > AGS1_COMPACT_MAX_DEPTH) {
        ags1_compact_fail(&items->cursor, AGS1_COMPACT_DEPTH);
    } else if (shape == AGS1_COMPACT_STRUCT) {
        ags1_items_walk_struct(items, depth);
    } else {
        size = ags1_compact_list(&items->cursor, &items->first);
        while (size-- > 0 && ags1_items_record(items, items->first, 1, 0, depth)) {
        }
    }
}

/* Bytes of an inline value, and writing it; `field`: it is in a struct, where a bool has none. */
static inline int64_t ags1_item_inline_size(const ags1_item *item, int field)
{
    uint8_t scratch[10];
    if (item->kind == AGS1_COMPACT_DOUBLE)
        return 8;
    if (item->kind == AGS1_COMPACT_I8)
        return 1;
    if (item->kind <= AGS1_COMPACT_FALSE)
        return !field;
    return ags1_compact_put_zigzag(scratch, item->data);
}

static inline uint8_t *ags1_item_put_inline(uint8_t *out, const ags1_item *item, int field)
{
    int index;
    if (item->kind == AGS1_COMPACT_DOUBLE) {
        for (index = 0; index < 8; index++)
            *out++ = (uint8_t)((uint64_t)item->data >> (8 * index));
    } else if (item->kind == AGS1_COMPACT_I8) {
        *out++ = (uint8_t)item->data;
    } else if (item->kind <= AGS1_COMPACT_FALSE) {
        /* Not 0: older readers know only these two. */
        if (!field)
            *out++ = item->data ? AGS1_COMPACT_TRUE : AGS1_COMPACT_FALSE;
    } else {
        out += ags1_compact_put_zigzag(out, item->data);
    }
    return out;
}

/* Header of a field after the one called `before` (0 at first): at most 4 bytes. */
static inline uint8_t *ags1_item_put_header(uint8_t *out, const ags1_item *item, int before)
{
    int delta = item->id - before;
    if (delta >= 1 && delta <= 15) {
        *out++ = (uint8_t)(delta << 4 | item->kind);
    } else {
        *out++ = item->kind;
        out += ags1_compact_put_zigzag(out, item->id);
    }
    return out;
}

/* Header of a list: at most 11 bytes. */
static inline uint8_t *ags1_items_put_list(uint8_t *out, int kind, int64_t count)
{
    if (count < 15) {
        *out++ = (uint8_t)(count << 4 | kind);
    } else {
        *out++ = (uint8_t)(0xf0 | kind);
        out += ags1_compact_put_varint(out, (uint64_t)count);
    }
    return out;
}

#endif
