"""PageHeader and OffsetIndex, read and changed in their bytes, without a tree.

    PageHeader     ... compressed_page_size ... crc ...                   scan_page_header finds the spans of both
    OffsetIndex    [offset compressed_page_size first_row_index] ...      move_offset_index rewrites the first two

Unknown fields, and the order of fields, do not matter. A page walk calls it so::

    cursor.at, cursor.end, cursor.error = data, data + length, 0
    status = scan_page_header(&cursor, &page)        page: type, sizes, spans; cursor.at: behind the structure

Source: parquet.thrift; Thrift compact protocol encoding specification.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from ags1.core.gcm cimport GCM_OK
from ags1.core.compact cimport (
    AGS1_COMPACT_END, AGS1_COMPACT_I32, AGS1_COMPACT_I64, AGS1_COMPACT_LIST, AGS1_COMPACT_STOP, AGS1_COMPACT_STRUCT,
    ags1_compact, ags1_compact_field, ags1_compact_list, ags1_compact_put_zigzag, ags1_compact_skip,
    ags1_compact_zigzag,
)

cdef int64_t MAX_PAGE = 0x7fffffff


cdef int _counts(ags1_compact *cursor, Page *page, bint version_2) noexcept nogil:
    """The fields of a DataPageHeader, DictionaryPageHeader or DataPageHeaderV2 that matter here."""
    cdef int field_id = 0, kind
    cdef int64_t value, levels = 0
    cdef bint found = False
    while True:
        kind = ags1_compact_field(cursor, &field_id)
        if kind == AGS1_COMPACT_STOP:
            break
        if kind == AGS1_COMPACT_I32 and (field_id == 1 or (version_2 and (field_id == 5 or field_id == 6))):
            value = ags1_compact_zigzag(cursor)
            if value < 0 or value > MAX_PAGE:
                return PAGE_BAD_HEADER
            if field_id == 1:
                page.values = <int32_t>value
                found = True
            else:
                levels += value
        else:
            ags1_compact_skip(cursor, kind, False, 2)
    if cursor.error or not found or levels > MAX_PAGE:
        return PAGE_BAD_HEADER
    page.levels = <int32_t>levels
    return GCM_OK


cdef int scan_page_header(ags1_compact *cursor, Page *page) noexcept nogil:
    """Find the sizes, the CRC and their spans in a PageHeader; the cursor ends after the structure."""
    cdef const uint8_t *start = cursor.at
    cdef int field_id = 0, before, kind, status, seen = 0, counted = -1
    cdef int64_t value, at, field
    page.crc_start = page.crc_end = 0
    page.levels = 0
    while True:
        before, field = field_id, cursor.at - start
        kind = ags1_compact_field(cursor, &field_id)
        if kind == AGS1_COMPACT_STOP:
            break
        at = cursor.at - start
        if kind == AGS1_COMPACT_I32 and 1 <= field_id <= 4:
            if seen & (1 << field_id):
                return PAGE_BAD_HEADER
            seen |= 1 << field_id
            value = ags1_compact_zigzag(cursor)
            if field_id == 4:
                page.crc = <uint32_t>value
                page.crc_start = <int32_t>at
                page.crc_end = <int32_t>(cursor.at - start)
                page.crc_field = <int32_t>field
                page.before_crc = before
                continue
            if value < 0 or value > MAX_PAGE:
                return AGS1_COMPACT_END if cursor.error == AGS1_COMPACT_END else PAGE_BAD_HEADER
            if field_id == 1:
                page.page_type = <int32_t>value
            elif field_id == 2:
                page.uncompressed = <int32_t>value
            else:
                page.body_stored = <int32_t>value
                page.size_start = <int32_t>at
                page.size_end = <int32_t>(cursor.at - start)
        elif kind == AGS1_COMPACT_STRUCT and (field_id == 5 or field_id == 7 or field_id == 8):
            if counted >= 0:
                return PAGE_BAD_HEADER
            status = _counts(cursor, page, field_id == 8)
            if status != GCM_OK:
                return AGS1_COMPACT_END if cursor.error == AGS1_COMPACT_END else status
            counted = DATA_PAGE_V1 if field_id == 5 else DICTIONARY if field_id == 7 else DATA_PAGE_V2
        else:
            ags1_compact_skip(cursor, kind, False, 1)
    if cursor.error == AGS1_COMPACT_END:
        return AGS1_COMPACT_END
    if cursor.error or seen & 0b1110 != 0b1110:
        return PAGE_BAD_HEADER
    if page.page_type in (DATA_PAGE_V1, DICTIONARY, DATA_PAGE_V2):
        if counted != page.page_type:
            return PAGE_BAD_HEADER
        if page.page_type == DICTIONARY:
            page.values = 0
    return GCM_OK


cdef int64_t move_offset_index(
        const uint8_t *data, int64_t length, const int64_t *locations, int64_t count, uint8_t *out) noexcept nogil:
    """Copy an OffsetIndex with other offsets and sizes; return its length, or -1 if this fast path is not enough."""
    cdef ags1_compact cursor
    cdef const uint8_t *copied = data     # behind what is in `out`
    cdef const uint8_t *value_at
    cdef uint8_t *end = out
    cdef int field_id = 0, inner_id, kind, item_kind = 0, seen
    cdef int64_t items, _item, page = 0, value
    cdef bint found = False
    cursor.at, cursor.end, cursor.error = data, data + length, 0
    while True:
        kind = ags1_compact_field(&cursor, &field_id)
        if kind == AGS1_COMPACT_STOP:
            break
        if field_id != 1:
            ags1_compact_skip(&cursor, kind, False, 1)
            continue
        if found or kind != AGS1_COMPACT_LIST:
            return -1
        found = True
        items = ags1_compact_list(&cursor, &item_kind)
        # `out` has room for two longer numbers in each of `count` entries.
        if cursor.error or items > count or (items and item_kind != AGS1_COMPACT_STRUCT):
            return -1
        for _item in range(items):
            inner_id = seen = 0
            while True:
                kind = ags1_compact_field(&cursor, &inner_id)
                if kind == AGS1_COMPACT_STOP:
                    break
                value_at = cursor.at
                if inner_id == 1 and kind == AGS1_COMPACT_I64 and seen == 0:
                    value = ags1_compact_zigzag(&cursor)
                    # Entries are in the order of the pages.
                    while page < count and locations[3 * page] < value:
                        page += 1
                    if page == count or locations[3 * page] != value:
                        return -1
                    value = locations[3 * page + 1]
                elif inner_id == 2 and kind == AGS1_COMPACT_I32 and seen == 1:
                    ags1_compact_zigzag(&cursor)
                    value = locations[3 * page + 2]
                elif inner_id > 2:
                    ags1_compact_skip(&cursor, kind, False, 3)
                    continue
                else:
                    return -1
                if cursor.error:
                    return -1
                seen += 1
                memcpy(end, copied, value_at - copied)
                end += value_at - copied
                end += ags1_compact_put_zigzag(end, value)
                copied = cursor.at
            if cursor.error or seen != 2:
                return -1
    if cursor.error or not found or cursor.at != data + length:
        return -1
    memcpy(end, copied, cursor.at - copied)
    return end + (cursor.at - copied) - out
