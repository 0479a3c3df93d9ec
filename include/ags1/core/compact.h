/* Thrift's compact protocol, read from memory that was not checked.
 *
 *     struct   field field ... 00
 *     field    delta(4 bits) kind(4 bits)  value          delta 1..15 from the id of the field before
 *              0000 kind(4 bits)  zigzag id  value        any id
 *     list     size(4 bits) kind(4 bits)  items           size 0..14
 *              1111 kind(4 bits)  varint size  items
 *     map      varint size, then, unless it is 0: kinds(4 + 4 bits)  key value key value ...
 *     binary   varint size  bytes                          integers are zigzag varints, a double is 8 bytes LE
 *     bool     a field's value is its kind; in a list one byte: 1, or 2 or 0 for false
 *
 * A cursor remembers its first error, with the place, and returns zeros from then on, so that callers may look once
 * after several reads. No size is believed: an item takes at least one byte of what is left. Nothing is allocated.
 * Source: Thrift compact protocol encoding specification.
 */
#ifndef AGS1_COMPACT_H
#define AGS1_COMPACT_H

#include <stdint.h>
#include <string.h>

enum {
    AGS1_COMPACT_STOP = 0,
    AGS1_COMPACT_TRUE = 1,
    AGS1_COMPACT_FALSE = 2,
    AGS1_COMPACT_I8 = 3,
    AGS1_COMPACT_I16 = 4,
    AGS1_COMPACT_I32 = 5,
    AGS1_COMPACT_I64 = 6,
    AGS1_COMPACT_DOUBLE = 7,
    AGS1_COMPACT_BINARY = 8,
    AGS1_COMPACT_LIST = 9,
    AGS1_COMPACT_SET = 10,
    AGS1_COMPACT_MAP = 11,
    AGS1_COMPACT_STRUCT = 12,
    AGS1_COMPACT_UUID = 13
};

enum {
    AGS1_COMPACT_OK = 0,
    AGS1_COMPACT_END,      /* the bytes end inside a value */
    AGS1_COMPACT_VARINT,   /* a varint of more than 10 bytes, or of more than 64 bits */
    AGS1_COMPACT_KIND,     /* a kind that does not exist */
    AGS1_COMPACT_SIZE,     /* a size above what is left */
    AGS1_COMPACT_DEPTH,    /* nested deeper than AGS1_COMPACT_MAX_DEPTH */
    AGS1_COMPACT_FIELD_ID  /* a field id outside int16 */
};

#define AGS1_COMPACT_MAX_DEPTH 64

typedef struct {
    const uint8_t *at;
    const uint8_t *end;
    int error;
} ags1_compact;

static inline void ags1_compact_fail(ags1_compact *cursor, int error)
{
    if (!cursor->error)
        cursor->error = error;
}

static inline uint8_t ags1_compact_byte(ags1_compact *cursor)
{
    if (cursor->error)
        return 0;
    if (cursor->at >= cursor->end) {
        ags1_compact_fail(cursor, AGS1_COMPACT_END);
        return 0;
    }
    return *cursor->at++;
}

static inline uint64_t ags1_compact_varint(ags1_compact *cursor)
{
    uint64_t value = 0;
    int shift;
    for (shift = 0; shift < 70; shift += 7) {
        uint8_t byte = ags1_compact_byte(cursor);
        if (cursor->error)
            return 0;
        if (shift == 63 && byte > 1)
            break;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return value;
    }
    ags1_compact_fail(cursor, AGS1_COMPACT_VARINT);
    return 0;
}

static inline int64_t ags1_compact_zigzag(ags1_compact *cursor)
{
    uint64_t value = ags1_compact_varint(cursor);
    return (int64_t)((value >> 1) ^ (0 - (value & 1)));
}

/* Header of the next field: its kind, and its id in place of the id before; AGS1_COMPACT_STOP at the end or after an
 * error. Start with *field_id = 0. */
static inline int ags1_compact_field(ags1_compact *cursor, int *field_id)
{
    uint8_t head = ags1_compact_byte(cursor);
    int64_t id;
    if (cursor->error || head == AGS1_COMPACT_STOP)
        return AGS1_COMPACT_STOP;
    if ((head & 0x0f) == 0 || (head & 0x0f) > AGS1_COMPACT_UUID) {
        ags1_compact_fail(cursor, AGS1_COMPACT_KIND);
        return AGS1_COMPACT_STOP;
    }
    id = head >> 4 ? *field_id + (head >> 4) : ags1_compact_zigzag(cursor);
    if (id < INT16_MIN || id > INT16_MAX)
        ags1_compact_fail(cursor, AGS1_COMPACT_FIELD_ID);
    if (cursor->error)
        return AGS1_COMPACT_STOP;
    *field_id = (int)id;
    return head & 0x0f;
}

/* Size and kind of a list or set whose header comes next. */
static inline int64_t ags1_compact_list(ags1_compact *cursor, int *kind)
{
    uint8_t head = ags1_compact_byte(cursor);
    uint64_t size = head >> 4;
    if (size == 15)
        size = ags1_compact_varint(cursor);
    *kind = head & 0x0f;
    if (cursor->error)
        return 0;
    if (*kind > AGS1_COMPACT_UUID || (*kind == 0 && size > 0))
        ags1_compact_fail(cursor, AGS1_COMPACT_KIND);
    else if (size > (uint64_t)(cursor->end - cursor->at))
        ags1_compact_fail(cursor, AGS1_COMPACT_SIZE);
    return cursor->error ? 0 : (int64_t)size;
}

/* Size and kinds of a map whose header comes next. Both kinds are 0 if it is empty. */
static inline int64_t ags1_compact_map(ags1_compact *cursor, int *key_kind, int *value_kind)
{
    uint64_t size = ags1_compact_varint(cursor);
    uint8_t kinds;
    *key_kind = *value_kind = 0;
    if (cursor->error || size == 0)
        return 0;
    kinds = ags1_compact_byte(cursor);
    *key_kind = kinds >> 4;
    *value_kind = kinds & 0x0f;
    if (cursor->error)
        return 0;
    if (!*key_kind || *key_kind > AGS1_COMPACT_UUID || !*value_kind || *value_kind > AGS1_COMPACT_UUID)
        ags1_compact_fail(cursor, AGS1_COMPACT_KIND);
    else if (size > (uint64_t)(cursor->end - cursor->at) / 2)
        ags1_compact_fail(cursor, AGS1_COMPACT_SIZE);
    return cursor->error ? 0 : (int64_t)size;
}

/* Size of a binary; its bytes come next and are all there. */
static inline int64_t ags1_compact_binary(ags1_compact *cursor)
{
    uint64_t size = ags1_compact_varint(cursor);
    if (!cursor->error && size > (uint64_t)(cursor->end - cursor->at))
        ags1_compact_fail(cursor, AGS1_COMPACT_SIZE);
    return cursor->error ? 0 : (int64_t)size;
}

static inline void ags1_compact_forward(ags1_compact *cursor, int64_t bytes)
{
    if (cursor->error)
        return;
    if (bytes > cursor->end - cursor->at)
        ags1_compact_fail(cursor, AGS1_COMPACT_END);
    else
        cursor->at += bytes;
}

/* Go past a varint; what ags1_compact_varint refuses is refused. */
static inline void ags1_compact_skip_varint(ags1_compact *cursor)
{
    /* Nearly all are short, and the end is far: then one look a byte is enough. */
    const uint8_t *at = cursor->at;
    const uint8_t *last = cursor->end - at > 9 ? at + 9 : cursor->end;
    if (cursor->error)
        return;
    while (at < last && *at >= 0x80)
        at++;
    if (at < last)
        cursor->at = at + 1;
    else
        ags1_compact_varint(cursor);
}

/* Bytes of a value of this kind in a list, if all have as many; else 0. */
static inline int ags1_compact_width(int kind)
{
    switch (kind) {
    case AGS1_COMPACT_TRUE:
    case AGS1_COMPACT_FALSE:
    case AGS1_COMPACT_I8:
        return 1;
    case AGS1_COMPACT_DOUBLE:
        return 8;
    case AGS1_COMPACT_UUID:
        return 16;
    default:
        return 0;
    }
}

/* Go past a value. `item`: it is in a list, set or map, where a bool has a byte of its own. `depth`: structs and
 * collections around it; it may be one itself if they are fewer than AGS1_COMPACT_MAX_DEPTH. */
static void ags1_compact_skip(ags1_compact *cursor, int kind, int item, int depth)
{
    int64_t size;
    int inner, second, id = 0;
    if (depth >= AGS1_COMPACT_MAX_DEPTH && kind >= AGS1_COMPACT_LIST && kind <= AGS1_COMPACT_STRUCT) {
        ags1_compact_fail(cursor, AGS1_COMPACT_DEPTH);
        return;
    }
    switch (kind) {
    case AGS1_COMPACT_TRUE:
    case AGS1_COMPACT_FALSE:
        if (item)
            ags1_compact_byte(cursor);
        break;
    case AGS1_COMPACT_I8:
    case AGS1_COMPACT_DOUBLE:
    case AGS1_COMPACT_UUID:
        ags1_compact_forward(cursor, ags1_compact_width(kind));
        break;
    case AGS1_COMPACT_I16:
    case AGS1_COMPACT_I32:
    case AGS1_COMPACT_I64:
        ags1_compact_skip_varint(cursor);
        break;
    case AGS1_COMPACT_BINARY:
        size = ags1_compact_binary(cursor);
        ags1_compact_forward(cursor, size);
        break;
    case AGS1_COMPACT_LIST:
    case AGS1_COMPACT_SET:
        size = ags1_compact_list(cursor, &inner);
        if (ags1_compact_width(inner))
            /* No overflow: the size is at most the bytes that are left. */
            ags1_compact_forward(cursor, size * ags1_compact_width(inner));
        else
            while (size-- > 0 && !cursor->error)
                ags1_compact_skip(cursor, inner, 1, depth + 1);
        break;
    case AGS1_COMPACT_MAP:
        size = ags1_compact_map(cursor, &inner, &second);
        while (size-- > 0 && !cursor->error) {
            ags1_compact_skip(cursor, inner, 1, depth + 1);
            ags1_compact_skip(cursor, second, 1, depth + 1);
        }
        break;
    case AGS1_COMPACT_STRUCT:
        while ((kind = ags1_compact_field(cursor, &id)) != AGS1_COMPACT_STOP)
            ags1_compact_skip(cursor, kind, 0, depth + 1);
        break;
    default:
        ags1_compact_fail(cursor, AGS1_COMPACT_KIND);
    }
}

/* Writers return how many bytes they wrote: a varint takes at most 10. */
static inline int ags1_compact_put_varint(uint8_t *out, uint64_t value)
{
    int length = 0;
    while (value >= 0x80) {
        out[length++] = (uint8_t)value | 0x80;
        value >>= 7;
    }
    out[length++] = (uint8_t)value;
    return length;
}

static inline int ags1_compact_put_zigzag(uint8_t *out, int64_t value)
{
    return ags1_compact_put_varint(out, ((uint64_t)value << 1) ^ (uint64_t)(value >> 63));
}

#endif
