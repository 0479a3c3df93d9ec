"""Converts one page from one protection to another, without the GIL and without decoding a value.

    encrypt   header body            -->  [module: header']  [module: body]
    decrypt   [module] [module]      -->  header' body
    re-key    [module] [module]      -->  [module'] [module']
    view      [module] [module]      -->  header'+filler body       the same size and place as in the file
    verify    [module] [module]      -->  nothing

header' is the header with another compressed_page_size and CRC; all its other bytes, known fields or not, stay as they
are. A V2 page has its levels before its module (as parquet-java writes it) or inside (as Arrow does). A worker has its
contexts and its memory for as many pages as there are::

    status = worker_init(&worker, source_aad, source_aad_length, target_aad, target_aad_length, levels_inside)
    for each page:
        status = convert_page(&worker, &ends, &page, header, nonces, stored, out, &length)
    worker_free(&worker)

In the view, a header has no CRC and is stretched to the size that it has in the file by an unknown field full of zeros,
which every reader of Thrift skips: so all offsets and sizes of the file's metadata hold in the view.
Source: Parquet encryption specification, "Encrypted pages"; parquet.thrift on the CRC: over the bytes as stored.
"""

from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memmove, memset

from ags1.core.buffer cimport BufferView, readable
from ags1.core.gcm cimport GCM_NO_MEMORY, GCM_OK
from ags1.core.compact cimport ags1_compact_put_zigzag
from ags1.core.crc32 cimport ags1_crc32, ags1_crc32_bits, ags1_crc32_by, ags1_crc32_prepare
from ags1.core.layout cimport ags1_load_le32
from ags1.parquet.native.modules cimport (
    CTR_OVERHEAD, GCM_OVERHEAD, LENGTH_WORD, MODULE_BAD_LENGTH, MODULE_DATA_PAGE, MODULE_DATA_PAGE_HEADER,
    MODULE_DICTIONARY_PAGE, MODULE_DICTIONARY_PAGE_HEADER, module_open, module_seal, modules_free, modules_init,
)
from ags1.parquet.native.page_header cimport (
    CTR, DATA_PAGE_V2, DICTIONARY, GCM, PAGE_BAD_CRC, PAGE_BAD_LEVELS, PAGE_DOWNGRADED, PAGE_TOO_LARGE, PLAIN,
    RAW_BYTES, Page,
)

cdef int64_t MAX_BODY = 0x7fffffff
cdef enum:
    NONCE = 12
    CRC_VARINT = 5               # the longest zigzag varint of an int32
    CRC_FIELD = 4
    FILLER_FIELD = 0xf8          # kind and id of the view's filler: binary, 15 after the last field


cdef int worker_init(
        Worker *worker, const uint8_t *source_aad, size_t source_aad_length, const uint8_t *target_aad,
        size_t target_aad_length, bint levels_inside) noexcept nogil:
    cdef int opened, status
    memset(worker, 0, sizeof(Worker))
    worker.levels_inside = levels_inside
    opened = modules_init(&worker.opener, source_aad, source_aad_length, False)
    status = modules_init(&worker.sealer, target_aad, target_aad_length, True)
    if opened != GCM_OK:
        return opened
    if status == GCM_OK and not grow(&worker.header, &worker.header_capacity, 1024):
        return GCM_NO_MEMORY
    return status


cdef void worker_free(Worker *worker) noexcept nogil:
    modules_free(&worker.opener)
    modules_free(&worker.sealer)
    free(worker.stored)
    free(worker.plain)
    free(worker.header)
    free(worker.converted)
    memset(worker, 0, sizeof(Worker))


cdef bint grow(uint8_t **memory, int64_t *capacity, int64_t needed) noexcept nogil:
    if needed <= capacity[0]:
        return True
    free(memory[0])
    capacity[0] = 0
    memory[0] = <uint8_t *>malloc(<size_t>needed)
    if memory[0] == NULL:
        return False
    capacity[0] = needed
    return True


cdef inline int64_t _overhead(int mode) noexcept nogil:
    if mode == PLAIN:
        return 0
    return CTR_OVERHEAD if mode == CTR else GCM_OVERHEAD


cdef int64_t _new_header(
        const Page *page, const uint8_t *header, int64_t body, const uint32_t *crc, uint8_t *out) noexcept nogil:
    """Write the header with another size, and with another CRC or none; return its length."""
    cdef uint8_t *end = out
    cdef int64_t at = 0
    cdef bint size_first = page.crc_end == 0 or page.size_start < page.crc_start
    cdef int turn
    for turn in range(2):
        if (turn == 0) == size_first:
            memcpy(end, header + at, page.size_start - at)
            end += page.size_start - at
            end += ags1_compact_put_zigzag(end, body)
            at = page.size_end
        elif page.crc_end and crc != NULL:
            memcpy(end, header + at, page.crc_start - at)
            end += page.crc_start - at
            end += ags1_compact_put_zigzag(end, <int64_t><int32_t>crc[0])
            at = page.crc_end
        elif page.crc_end:
            memcpy(end, header + at, page.crc_field - at)
            end += page.crc_field - at
            at = page.crc_end
            end += _put_follower(page, header, &at, end)
    memcpy(end, header + at, page.header_length - at)
    return end + (page.header_length - at) - out


cdef int64_t _put_follower(const Page *page, const uint8_t *header, int64_t *at, uint8_t *out) noexcept nogil:
    """Write kind and id of the field after the CRC, which is left out; return their length."""
    cdef uint8_t first = header[at[0]]
    cdef int field_id
    if first < 16:
        # The end of the structure, or an id that is not encoded as a difference.
        return 0
    at[0] += 1
    field_id = CRC_FIELD + (first >> 4)
    if 0 < field_id - page.before_crc < 16:
        out[0] = <uint8_t>((field_id - page.before_crc) << 4 | (first & 15))
        return 1
    out[0] = first & 15
    return 1 + ags1_compact_put_zigzag(out + 1, field_id)


cdef bint _stretch(uint8_t *header, int64_t length, int64_t wanted) noexcept nogil:
    """Lengthen a header in place by an unknown binary field before its end; False if there is too little room."""
    cdef int64_t extra = wanted - length, zeros, at
    cdef int width = 0
    if extra == 0:
        return True
    # Kind and id of the field take 1 byte, its size at least 1. The id is the last one plus 15, above all ids of the
    # format. The long form could have any id, but fastparquet does not support it.
    if extra < 2:
        return False
    at = length - 1
    header[at] = FILLER_FIELD
    at += 1
    zeros = extra - 2
    # The varint of the size replaces some zeros. If its shortest form is one byte too short, a longer form is used.
    width = 1
    while zeros - (width - 1) >= <int64_t>1 << (7 * width):
        width += 1
    zeros -= width - 1
    while width > 1:
        header[at] = <uint8_t>(zeros & 0x7f) | 0x80
        zeros >>= 7
        at += 1
        width -= 1
    header[at] = <uint8_t>zeros
    at += 1
    memset(header + at, 0, <size_t>(wanted - at))
    return True


cdef int _open_modules(
        Worker *worker, const Ends *ends, const Page *page, const uint8_t *body, uint8_t *out) noexcept nogil:
    """Plaintext of a page's body; `out` has room for it."""
    cdef bint ctr = ends.source_mode == CTR
    cdef int module_type = MODULE_DICTIONARY_PAGE if page.page_type == DICTIONARY else MODULE_DATA_PAGE
    cdef int64_t length = page.body_stored, levels = page.levels
    cdef bint inside
    if ends.source_mode == PLAIN:
        memcpy(out, body, length)
        return GCM_OK
    if page.page_type != DATA_PAGE_V2 or levels == 0:
        levels = 0
    else:
        # Both forms have the same size; the length word shows which one it is.
        inside = length >= LENGTH_WORD and ags1_load_le32(body) == <uint32_t>(length - LENGTH_WORD)
        if inside and levels + _overhead(ends.source_mode) <= length \
                and ags1_load_le32(body + levels) == <uint32_t>(length - levels - LENGTH_WORD):
            # Levels or ciphertext may look like a length word by chance: the tag decides.
            if not ctr and module_open(
                    &worker.opener, ends.source_key, ends.source_key_length, ctr, module_type, ends.source_row_group,
                    ends.source_column, page.ordinal, body, length, out) == GCM_OK:
                return GCM_OK
            inside = ctr
        if inside:
            levels = 0
        elif levels > length:
            return PAGE_BAD_LEVELS
    if ctr and (page.page_type == DICTIONARY or page.ordinal == 0):
        # The algorithm of an encrypted footer is not authenticated. One page of a chunk shows whether only the
        # algorithm was changed; an attacker who changes the pages too is not detected.
        if module_open(
                &worker.opener, ends.source_key, ends.source_key_length, False, module_type, ends.source_row_group,
                ends.source_column, page.ordinal, body + levels, length - levels, out) == GCM_OK:
            memset(out, 0, <size_t>(length - levels - GCM_OVERHEAD))
            return PAGE_DOWNGRADED
    if levels:
        memcpy(out, body, levels)
    return module_open(
        &worker.opener, ends.source_key, ends.source_key_length, ctr, module_type, ends.source_row_group,
        ends.source_column, page.ordinal, body + levels, length - levels, out + levels)


cdef inline bint _crc_is_wrong(const Page *page, const uint8_t *body) noexcept nogil:
    return page.crc_end != 0 and ags1_crc32(body, page.body_stored) != page.crc


cdef int _open_body(
        Worker *worker, const Ends *ends, const Page *page, const uint8_t *body, uint8_t *out) noexcept nogil:
    """Plaintext of a page's body, its CRC checked; `out` has room for it."""
    cdef int status
    # The tag is checked first, so that tampering is reported as such. The CRC still covers levels before the module.
    if ends.source_mode != GCM and _crc_is_wrong(page, body):
        return PAGE_BAD_CRC
    status = _open_modules(worker, ends, page, body, out)
    if status == GCM_OK and ends.source_mode == GCM and _crc_is_wrong(page, body):
        return PAGE_BAD_CRC
    return status


cdef int convert_page(
        Worker *worker, const Ends *ends, Page *page, const uint8_t *header, const uint8_t *nonces,
        const uint8_t *stored, uint8_t *out, int64_t *length) noexcept nogil:
    cdef const uint8_t *body = stored + page.header_stored
    cdef const uint8_t *values
    cdef int64_t plain_length, levels, new_body, header_room, header_length
    cdef int64_t header_overhead = GCM_OVERHEAD if ends.target_mode != PLAIN else 0
    cdef bint has_crc = page.crc_end != 0
    cdef bint dictionary = page.page_type == DICTIONARY
    cdef uint8_t *place
    cdef uint8_t *plain
    cdef uint32_t crc = 0
    cdef int status

    if page.page_type == RAW_BYTES:
        memcpy(out, stored, page.body_stored)
        page.new_header = 0
        page.new_body = page.body_stored
        length[0] = page.body_stored
        return GCM_OK
    plain_length = page.body_stored - _overhead(ends.source_mode)
    if plain_length < 0:
        return MODULE_BAD_LENGTH
    levels = page.levels if page.page_type == DATA_PAGE_V2 and not worker.levels_inside else 0
    if levels > plain_length:
        return PAGE_BAD_LEVELS
    new_body = plain_length + _overhead(ends.target_mode)
    if new_body > MAX_BODY:
        return PAGE_TOO_LARGE

    # 1. The body, at its place for the longest varint of the CRC.
    header_room = page.header_length - (page.crc_end - page.crc_start) - (page.size_end - page.size_start)
    header_room += ags1_compact_put_zigzag(worker.header, new_body) + (CRC_VARINT if has_crc else 0)
    place = out + header_room + header_overhead
    if ends.target_mode == PLAIN:
        status = _open_body(worker, ends, page, body, place)
        if status != GCM_OK:
            return status
    else:
        plain = <uint8_t *>body
        if ends.source_mode == PLAIN:
            if _crc_is_wrong(page, body):
                return PAGE_BAD_CRC
        else:
            if not grow(&worker.plain, &worker.plain_capacity, plain_length):
                return GCM_NO_MEMORY
            plain = worker.plain
            status = _open_body(worker, ends, page, body, plain)
            if status != GCM_OK:
                return status
        values = plain + levels
        if levels:
            memcpy(place, plain, levels)
        status = module_seal(
            &worker.sealer, ends.target_key, ends.target_key_length, ends.target_mode == CTR,
            MODULE_DICTIONARY_PAGE if dictionary else MODULE_DATA_PAGE, ends.target_row_group, ends.target_column,
            page.ordinal, nonces, values, plain_length - levels, place + levels)
        if status != GCM_OK:
            return status

    # 2. The header, after the CRC is known; the body moves up if the varint is shorter.
    if has_crc:
        crc = ags1_crc32(place, new_body)
    if not grow(&worker.header, &worker.header_capacity, page.header_length + HEADER_SLACK):
        return GCM_NO_MEMORY
    header_length = _new_header(page, header, new_body, &crc, worker.header)
    if header_length != header_room:
        memmove(out + header_length + header_overhead, place, new_body)
    if ends.target_mode == PLAIN:
        memcpy(out, worker.header, header_length)
    else:
        status = module_seal(
            &worker.sealer, ends.target_key, ends.target_key_length, False,
            MODULE_DICTIONARY_PAGE_HEADER if dictionary else MODULE_DATA_PAGE_HEADER, ends.target_row_group,
            ends.target_column, page.ordinal, nonces + NONCE, worker.header, header_length, out)
        if status != GCM_OK:
            return status
    page.new_header = <int32_t>(header_length + header_overhead)
    page.new_body = <int32_t>new_body
    length[0] = header_length + header_overhead + new_body
    return GCM_OK


cdef int view_page(
        Worker *worker, const Ends *ends, const Page *page, const uint8_t *header, const uint8_t *stored,
        uint8_t *out) noexcept nogil:
    cdef const uint8_t *body = stored + page.header_stored
    cdef int64_t total = <int64_t>page.header_stored + page.body_stored
    cdef int64_t plain_length = page.body_stored - _overhead(ends.source_mode)
    cdef int64_t header_length
    cdef uint8_t *plain = out + total - plain_length
    cdef int status
    if plain_length < 0:
        return MODULE_BAD_LENGTH
    if stored == out:
        # The ciphertext begins before the place of the plaintext, and no cipher works on memory that partly overlaps.
        if not grow(&worker.plain, &worker.plain_capacity, plain_length):
            return GCM_NO_MEMORY
        plain = worker.plain
    # The tag makes the CRC unnecessary, except for levels before the module, which only the CRC covers.
    if ends.source_mode == GCM and page.levels == 0:
        status = _open_modules(worker, ends, page, body, plain)
    else:
        status = _open_body(worker, ends, page, body, plain)
    if status != GCM_OK:
        return status
    if stored == out and plain_length > 0:
        memcpy(out + total - plain_length, plain, plain_length)
    if not grow(&worker.header, &worker.header_capacity, page.header_length + HEADER_SLACK):
        return GCM_NO_MEMORY
    # Without the CRC, which was of the ciphertext. Readers do not need one of the plaintext.
    header_length = _new_header(page, header, plain_length, NULL, worker.header)
    # The overhead of two modules is always enough for the filler.
    if header_length > total - plain_length:
        return PAGE_TOO_LARGE
    memcpy(out, worker.header, header_length)
    if not _stretch(out, header_length, total - plain_length):
        return PAGE_TOO_LARGE
    return GCM_OK


cdef int verify_page(
        Worker *worker, const Ends *ends, const Page *page, const uint8_t *stored) noexcept nogil:
    cdef const uint8_t *body = stored + page.header_stored
    cdef int64_t plain_length = page.body_stored - _overhead(ends.source_mode)
    if page.page_type == RAW_BYTES:
        return GCM_OK
    if plain_length < 0:
        return MODULE_BAD_LENGTH
    if ends.source_mode == PLAIN:
        if _crc_is_wrong(page, body):
            return PAGE_BAD_CRC
        return GCM_OK
    if not grow(&worker.plain, &worker.plain_capacity, plain_length):
        return GCM_NO_MEMORY
    return _open_body(worker, ends, page, body, worker.plain)


def crc32(data, int bits=512):
    """CRC-32 of a buffer, as pages have it, by registers of so many bits at most."""
    cdef BufferView source = readable(data, "data")
    cdef uint32_t crc
    with nogil:
        crc = ags1_crc32_by(min(bits, ags1_crc32_bits), source.data, source.nbytes)
    return crc


def stretch(structure, int64_t length):
    """Lengthen an encoded Thrift struct, by none or at least 2 bytes, with an unknown field that readers skip."""
    cdef BufferView source = readable(structure, "structure")
    cdef bytearray out
    cdef uint8_t *target
    if source.nbytes == 0 or length < source.nbytes:
        raise ValueError(f"{source.nbytes} bytes cannot become {length}")
    out = bytearray(length)
    target = out
    memcpy(target, source.data, source.nbytes)
    if not _stretch(target, source.nbytes, length):
        raise ValueError(f"{source.nbytes} bytes cannot become {length}: the filler takes at least 2")
    return bytes(out)


ags1_crc32_prepare()
