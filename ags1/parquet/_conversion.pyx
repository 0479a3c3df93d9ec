"""Pages from one protection to another, over a crew of threads, without the GIL and without decoding a value.

    encrypt   header body            -->  [module: header']  [module: body]
    decrypt   [module] [module]      -->  header' body
    re-key    [module] [module]      -->  [module'] [module']
    view      [module] [module]      -->  header'+filler body       the same size and place as in the file
    verify    [module] [module]      -->  nothing

header' is the header with another compressed_page_size and CRC; all its other bytes, known fields or not, stay as they
are. A V2 page has its levels before its module (as parquet-java writes it) or inside (as Arrow does).

A worker takes a segment (neighbouring pages, about a mebibyte), reads it in one call, converts its pages, and waits for
its turn to take its place in the target, because the length of a varint may depend on a CRC that nobody knew before::

    conversion.launch(pages, source, target, offset)      threads start
    ... walk the next pages ...
    offset = conversion.land()

In the view, a header is stretched to the size that it has in the file by an unknown field full of zeros, which every
reader of Thrift skips: so all offsets and sizes of the file's metadata hold in the view.
Source: Parquet encryption specification, "Encrypted pages"; parquet.thrift on the CRC: over the bytes as stored.
"""

cimport cython
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.errno cimport errno
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memmove, memset

from ags1._blocks cimport choose_threads
from ags1._buffer cimport BufferView, readable, writable
from ags1._gcm cimport GCM_BACKEND, GCM_NO_MEMORY, GCM_OK, gcm_last_error, gcm_random, raise_status
from ags1.compact cimport ags1_compact_put_zigzag
from ags1.crc32 cimport ags1_crc32, ags1_crc32_prepare
from ags1.layout cimport ags1_load_le32
from ags1.ordered cimport ags1_line, ags1_line_break, ags1_line_destroy, ags1_line_enter, ags1_line_init
from ags1.parquet._module cimport (
    CTR_OVERHEAD,
    GCM_OVERHEAD,
    LENGTH_WORD,
    MODULE_BAD_LENGTH,
    MODULE_DATA_PAGE,
    MODULE_DATA_PAGE_HEADER,
    MODULE_DICTIONARY_PAGE,
    MODULE_DICTIONARY_PAGE_HEADER,
    Modules,
    count_modules,
    module_open,
    module_seal,
    modules_free,
    modules_init,
)
from ags1.parquet._pages cimport (
    CTR,
    DATA_PAGE_V2,
    DICTIONARY,
    GCM,
    PAGE_BAD_CRC,
    PAGE_BAD_LEVELS,
    PAGE_DOWNGRADED,
    PAGE_TOO_LARGE,
    PLAIN,
    RAW_BYTES,
    Chunk,
    Page,
    PageList,
    PageSource,
    raise_page,
)
from ags1.positioned cimport ags1_read_at, ags1_write_at
from ags1.workers cimport (
    ags1_crew,
    ags1_fail,
    ags1_failure,
    ags1_failure_init,
    ags1_has_failed,
    ags1_join_crew,
    ags1_run_crew,
    ags1_start_crew,
    ags1_take,
)

import os

# How many forks lie between this process and the one that loaded the module: threads do not survive one.
cdef int64_t forks = 0

# What a worker reads and writes at once, unless one page is larger.
cdef int64_t SEGMENT_BYTES = 1 << 20
cdef int64_t MAX_BODY = 0x7fffffff
cdef enum:
    NONCE = 12
    CRC_VARINT = 5               # the longest zigzag varint of an int32
    HEADER_SLACK = 12            # by how much header' may be longer than header
    FILLER_FIELD = 32767         # the id of the view's filler

cdef enum Task:
    CONVERT = 0
    VIEW = 1
    VERIFY = 2


cdef struct Ends:
    # What a worker needs of a chunk.
    int source_mode
    int target_mode
    const uint8_t *source_key
    size_t source_key_length
    const uint8_t *target_key
    size_t target_key_length
    int source_row_group
    int source_column
    int target_row_group
    int target_column


cdef struct Job:
    int task
    bint levels_inside
    Page *pages
    int64_t count
    const uint8_t *arena
    Ends *ends
    int64_t *segments            # index of the first page of each; one more at the end
    int64_t segment_count
    int64_t next_segment
    int source                   # descriptor, or -1
    const uint8_t *memory        # of the source
    int64_t memory_base
    int target                   # descriptor, or -1
    uint8_t *out                 # when there is no descriptor
    int64_t out_base             # offset in the target of out's first byte
    int64_t out_capacity
    const uint8_t *nonces        # two a page, if any page is sealed
    const uint8_t *source_aad
    size_t source_aad_length
    const uint8_t *target_aad
    size_t target_aad_length
    ags1_line line
    ags1_failure failure


cdef struct Worker:
    Modules opener
    Modules sealer
    uint8_t *stored              # a segment as it was read
    int64_t stored_capacity
    uint8_t *plain               # a body between two protections
    int64_t plain_capacity
    uint8_t *header              # header' before it is sealed
    int64_t header_capacity
    uint8_t *converted           # a segment as it will be written
    int64_t converted_capacity


cdef inline bint _grow(uint8_t **memory, int64_t *capacity, int64_t needed) noexcept nogil:
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
        const Page *page, const uint8_t *header, int64_t body, uint32_t crc, uint8_t *out) noexcept nogil:
    """Write the header with another size and CRC; answer its length."""
    cdef int64_t first_start, first_end, second_start, second_end
    cdef bint size_first = page.crc_end == 0 or page.size_start < page.crc_start
    cdef uint8_t *end = out
    first_start = page.size_start if size_first else page.crc_start
    first_end = page.size_end if size_first else page.crc_end
    memcpy(end, header, first_start)
    end += first_start
    end += ags1_compact_put_zigzag(end, body if size_first else <int64_t><int32_t>crc)
    if page.crc_end == 0:
        memcpy(end, header + first_end, page.header_length - first_end)
        return end + (page.header_length - first_end) - out
    second_start = page.crc_start if size_first else page.size_start
    second_end = page.crc_end if size_first else page.size_end
    memcpy(end, header + first_end, second_start - first_end)
    end += second_start - first_end
    end += ags1_compact_put_zigzag(end, <int64_t><int32_t>crc if size_first else body)
    memcpy(end, header + second_end, page.header_length - second_end)
    return end + (page.header_length - second_end) - out


cdef bint _stretch(uint8_t *header, int64_t length, int64_t wanted) noexcept nogil:
    """Lengthen a header in place by an unknown binary field before its end; False if there is too little room."""
    cdef int64_t extra = wanted - length, zeros, at
    cdef int width = 0
    if extra == 0:
        return True
    # Kind and id of the field in the long form take 4 bytes, its size at least 1.
    if extra < 5:
        return False
    at = length - 1
    header[at] = 0x08
    at += 1
    at += ags1_compact_put_zigzag(header + at, FILLER_FIELD)
    zeros = extra - 5
    # The size's varint takes from the zeros; where its shortest form would be a byte off, a longer one is as good.
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
        # Both arrangements have the same size; the length word says which it is.
        inside = length >= LENGTH_WORD and ags1_load_le32(body) == <uint32_t>(length - LENGTH_WORD)
        if inside and levels + _overhead(ends.source_mode) <= length \
                and ags1_load_le32(body + levels) == <uint32_t>(length - levels - LENGTH_WORD):
            # Levels that happen to look like a length word, or ciphertext that does: the tag decides.
            if not ctr and module_open(
                    &worker.opener, ends.source_key, ends.source_key_length, ctr, module_type, ends.source_row_group,
                    ends.source_column, page.ordinal, body, length, out) == GCM_OK:
                return GCM_OK
            gcm_last_error()
            inside = ctr
        if inside:
            levels = 0
        elif levels > length:
            return PAGE_BAD_LEVELS
    if ctr and (page.page_type == DICTIONARY or page.ordinal == 0):
        # Nothing authenticates the algorithm that an encrypted footer is read by. One page of a chunk tells whether it
        # was changed alone; whoever changes the pages too, is not found out.
        if module_open(
                &worker.opener, ends.source_key, ends.source_key_length, False, module_type, ends.source_row_group,
                ends.source_column, page.ordinal, body + levels, length - levels, out) == GCM_OK:
            memset(out, 0, <size_t>(length - levels - GCM_OVERHEAD))
            return PAGE_DOWNGRADED
        gcm_last_error()
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
    # A tag says more than a CRC, so that tampering is called that. The CRC still covers levels before the module.
    if ends.source_mode != GCM and _crc_is_wrong(page, body):
        return PAGE_BAD_CRC
    status = _open_modules(worker, ends, page, body, out)
    if status == GCM_OK and ends.source_mode == GCM and _crc_is_wrong(page, body):
        return PAGE_BAD_CRC
    return status


cdef int _convert(
        Job *job, Worker *worker, int64_t index, const uint8_t *stored, uint8_t *out, int64_t *length) noexcept nogil:
    """Convert one page; `out` has room for its stored size and HEADER_SLACK + 2 * GCM_OVERHEAD more."""
    cdef Page *page = &job.pages[index]
    cdef const Ends *ends = &job.ends[page.chunk]
    cdef const uint8_t *body = stored + page.header_stored
    cdef const uint8_t *header = job.arena + page.header_at
    cdef const uint8_t *nonces = job.nonces + 2 * NONCE * index
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
    levels = page.levels if page.page_type == DATA_PAGE_V2 and not job.levels_inside else 0
    if levels > plain_length:
        return PAGE_BAD_LEVELS
    new_body = plain_length + _overhead(ends.target_mode)
    if new_body > MAX_BODY:
        return PAGE_TOO_LARGE

    # 1. The body, where it will be if the CRC's varint is as long as it can be.
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
            if not _grow(&worker.plain, &worker.plain_capacity, plain_length):
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

    # 2. The header, now that the CRC is known; the body moves up if the varint turned out shorter.
    if has_crc:
        crc = ags1_crc32(place, new_body)
    if not _grow(&worker.header, &worker.header_capacity, page.header_length + HEADER_SLACK):
        return GCM_NO_MEMORY
    header_length = _new_header(page, header, new_body, crc, worker.header)
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


cdef int _view(Job *job, Worker *worker, const Page *page, const uint8_t *stored, uint8_t *out) noexcept nogil:
    """Plaintext of a page in the place and size that its modules have."""
    cdef const Ends *ends = &job.ends[page.chunk]
    cdef const uint8_t *body = stored + page.header_stored
    cdef int64_t total = <int64_t>page.header_stored + page.body_stored
    cdef int64_t plain_length = page.body_stored - _overhead(ends.source_mode)
    cdef int64_t header_length
    cdef uint32_t crc = 0
    cdef int status
    if plain_length < 0:
        return MODULE_BAD_LENGTH
    status = _open_body(worker, ends, page, body, out + total - plain_length)
    if status != GCM_OK:
        return status
    if page.crc_end != 0:
        crc = ags1_crc32(out + total - plain_length, plain_length)
    if not _grow(&worker.header, &worker.header_capacity, page.header_length + HEADER_SLACK):
        return GCM_NO_MEMORY
    header_length = _new_header(page, job.arena + page.header_at, plain_length, crc, worker.header)
    # Two modules' overhead is always enough for the filler.
    if header_length > total - plain_length:
        return PAGE_TOO_LARGE
    memcpy(out, worker.header, header_length)
    if not _stretch(out, header_length, total - plain_length):
        return PAGE_TOO_LARGE
    return GCM_OK


cdef int _verify(Worker *worker, const Ends *ends, const Page *page, const uint8_t *stored) noexcept nogil:
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
    if not _grow(&worker.plain, &worker.plain_capacity, plain_length):
        return GCM_NO_MEMORY
    return _open_body(worker, ends, page, body, worker.plain)


cdef int _segment(Job *job, Worker *worker, int64_t ticket, int64_t *failed) noexcept nogil:
    """Convert one segment; on a failure say which page it was."""
    cdef int64_t first = job.segments[ticket], last = job.segments[ticket + 1], index
    cdef int64_t start = job.pages[first].offset
    cdef int64_t length, done = 0, at
    cdef const uint8_t *stored
    cdef Page *page = &job.pages[last - 1]
    cdef int status
    failed[0] = first
    length = page.offset + page.header_stored + <int64_t>page.body_stored - start
    if job.source >= 0:
        if not _grow(&worker.stored, &worker.stored_capacity, length):
            return GCM_NO_MEMORY
        status = ags1_read_at(job.source, worker.stored, length, start)
        if status != GCM_OK:
            return status
        stored = worker.stored
    else:
        stored = job.memory + (start - job.memory_base)

    if job.task == VERIFY:
        for index in range(first, last):
            page = &job.pages[index]
            page.status = _verify(worker, &job.ends[page.chunk], page, stored + (page.offset - start))
            if page.status == GCM_BACKEND or page.status == GCM_NO_MEMORY:
                failed[0] = index
                return page.status
            if page.status != GCM_OK:
                gcm_last_error()
        return GCM_OK
    if job.task == VIEW:
        for index in range(first, last):
            page = &job.pages[index]
            failed[0] = index
            status = _view(job, worker, page, stored + (page.offset - start), job.out + (page.offset - job.out_base))
            if status != GCM_OK:
                return status
        return GCM_OK

    at = length + (last - first) * (HEADER_SLACK + 2 * GCM_OVERHEAD)
    if not _grow(&worker.converted, &worker.converted_capacity, at):
        return GCM_NO_MEMORY
    for index in range(first, last):
        page = &job.pages[index]
        failed[0] = index
        page.new_offset = done
        status = _convert(job, worker, index, stored + (page.offset - start), worker.converted + done, &length)
        if status != GCM_OK:
            return status
        done += length
    failed[0] = first
    at = ags1_line_enter(&job.line, ticket, done)
    if at < 0:
        # Somebody before this one has failed, and reports it.
        return GCM_OK
    for index in range(first, last):
        job.pages[index].new_offset += at
    if job.target >= 0:
        return ags1_write_at(job.target, worker.converted, done, at)
    memcpy(job.out + (at - job.out_base), worker.converted, done)
    return GCM_OK


cdef void *_work(void *argument) noexcept nogil:
    cdef Job *job = <Job *>argument
    cdef Worker worker
    cdef int64_t ticket, failed = 0
    cdef int status, opened
    memset(&worker, 0, sizeof(Worker))
    opened = modules_init(&worker.opener, job.source_aad, job.source_aad_length, False)
    status = modules_init(&worker.sealer, job.target_aad, job.target_aad_length, True)
    if opened != GCM_OK:
        status = opened
    if status == GCM_OK and not _grow(&worker.header, &worker.header_capacity, 1024):
        status = GCM_NO_MEMORY
    while not ags1_has_failed(&job.failure):
        ticket = ags1_take(&job.next_segment)
        if ticket >= job.segment_count:
            break
        if status == GCM_OK:
            status = _segment(job, &worker, ticket, &failed)
        else:
            failed = job.segments[ticket]
        if status != GCM_OK:
            ags1_fail(&job.failure, status, failed, 0, errno, gcm_last_error())
            ags1_line_break(&job.line)
            break
    modules_free(&worker.opener)
    modules_free(&worker.sealer)
    free(worker.stored)
    free(worker.plain)
    free(worker.header)
    free(worker.converted)
    return NULL


# Its threads use what it holds until they are joined, so nothing of that may go before.
@cython.no_gc_clear
cdef class Conversion:
    """Moves lists of pages of one file. For one thread at a time; its memory must stay as it is until :meth:`land`.

    Parameters
    ----------
    source_aad, target_aad : bytes
        AAD prefix and file unique of either file; empty for one that is not encrypted.
    levels_inside : bool
        Seal V2 pages with their levels inside the module, as Arrow does, instead of before it, as parquet-java does.
    threads : int, optional
        By default every usable CPU, fewer for little work.
    """

    cdef Job job
    cdef ags1_crew crew
    cdef bint flying
    cdef bint busy               # from _prepare to _release
    cdef bint landing            # somebody waits for the threads
    cdef bint lined
    cdef int64_t born            # `forks` at the launch
    cdef tuple keys              # that the job points to
    cdef object threads
    cdef BufferView source_aad
    cdef BufferView target_aad
    cdef PageList pages
    cdef PageSource source
    cdef BufferView out
    cdef object target_name
    cdef uint8_t *nonces
    cdef int64_t first           # index in `pages` of the job's first page

    def __cinit__(self, source_aad=b"", target_aad=b"", *, bint levels_inside=False, threads=None):
        memset(&self.job, 0, sizeof(Job))
        self.flying = self.busy = self.landing = self.lined = False
        self.nonces = NULL
        self.crew.count = 0
        self.source_aad = readable(source_aad, "source_aad")
        self.target_aad = readable(target_aad, "target_aad")
        self.job.levels_inside = levels_inside
        self.threads = threads

    def __dealloc__(self):
        self._stop()

    cdef void _stop(self) noexcept:
        if self.flying and self.born != forks:
            # The threads are the parent's. Here there is nobody to wait for, and nobody gives the locks back.
            self.crew.count = 0
            self.lined = False
        elif self.flying:
            ags1_fail(&self.job.failure, GCM_NO_MEMORY, 0, 0, 0, 0)
            ags1_line_break(&self.job.line)
            with nogil:
                ags1_join_crew(&self.crew)
        self._release()

    cdef void _release(self) noexcept:
        self.flying = False
        if self.busy:
            self.busy = False
            self.pages.users -= 1
        if self.lined:
            ags1_line_destroy(&self.job.line)
            self.lined = False
        PyMem_Free(self.job.ends)
        PyMem_Free(self.job.segments)
        PyMem_Free(self.nonces)
        self.job.ends = NULL
        self.job.segments = NULL
        self.nonces = NULL
        self.pages = None
        self.source = None
        self.out = None
        self.keys = None

    def stop(self):
        """Let the threads finish the page that they are at, and forget the rest."""
        if self.landing or (self.busy and not self.flying):
            raise RuntimeError("another thread waits for this conversion")
        self._stop()

    cdef int _prepare(self, PageList pages, PageSource source, int task, int64_t first, int64_t last) except -1:
        """Fill in the job; answer how many threads it is worth."""
        cdef Chunk chunk
        cdef Page *page
        cdef int64_t index
        cdef list keys = []
        if self.busy or pages.users < 0:
            raise RuntimeError("this conversion, or the list of pages, is in use")
        for index in range(first, last):
            page = &pages.pages[index]
            if source.descriptor < 0 and (
                    page.offset < source.base
                    or page.offset + page.header_stored + <int64_t>page.body_stored > source.size):
                raise ValueError("the source does not have all of the pages")
        for chunk in pages.chunks:
            keys.append(chunk.source_key)
            keys.append(chunk.target_key)
        self._release()
        self.pages = pages
        self.source = source
        # Unlike a list, the garbage collector empties no tuple.
        self.keys = tuple(keys)
        self.busy = True
        pages.users += 1
        try:
            return self._fill(pages, source, task, first, last)
        except BaseException:
            self._release()
            raise

    cdef int _fill(self, PageList pages, PageSource source, int task, int64_t first, int64_t last) except -1:
        cdef Chunk chunk
        cdef int64_t index, weight = 0, size, sealed = 0, share, stored = 0
        cdef Page *page
        cdef int status, crew
        cdef Job *job = &self.job
        self.first = first
        job.task = task
        job.pages = pages.pages + first
        job.count = last - first
        job.arena = pages.arena
        job.source = source.descriptor
        job.memory = source.view.data if source.descriptor < 0 else NULL
        job.memory_base = source.base
        job.source_aad = self.source_aad.data
        job.source_aad_length = self.source_aad.nbytes
        job.target_aad = self.target_aad.data
        job.target_aad_length = self.target_aad.nbytes
        job.next_segment = 0
        job.target = -1
        job.out = NULL
        ags1_failure_init(&job.failure)
        job.ends = <Ends *>PyMem_Malloc(max(1, len(pages.chunks)) * sizeof(Ends))
        job.segments = <int64_t *>PyMem_Malloc((job.count + 1) * sizeof(int64_t))
        if job.ends == NULL or job.segments == NULL:
            raise MemoryError(f"no memory to convert {job.count} pages")
        for index in range(job.count):
            stored += job.pages[index].header_stored + <int64_t>job.pages[index].body_stored
        for index in range(len(pages.chunks)):
            chunk = pages.chunks[index]
            memset(&job.ends[index], 0, sizeof(Ends))
            job.ends[index].source_mode = chunk.source_mode
            job.ends[index].target_mode = chunk.target_mode if task == CONVERT else PLAIN
            if chunk.source_mode != PLAIN:
                job.ends[index].source_key = chunk.source_key.octets
                job.ends[index].source_key_length = chunk.source_key.length
            if chunk.target_mode != PLAIN:
                job.ends[index].target_key = chunk.target_key.octets
                job.ends[index].target_key_length = chunk.target_key.length
            job.ends[index].source_row_group = chunk.source_row_group
            job.ends[index].source_column = chunk.source_column
            job.ends[index].target_row_group = chunk.target_row_group
            job.ends[index].target_column = chunk.target_column
        crew = choose_threads(self.threads, stored)
        share = SEGMENT_BYTES if crew == 1 else max(1, min(SEGMENT_BYTES, stored // (2 * crew)))
        job.segment_count = 0
        for index in range(job.count):
            page = &job.pages[index]
            size = <int64_t>page.header_stored + page.body_stored
            if index == 0 or weight + size > share \
                    or page.offset != job.pages[index - 1].offset + job.pages[index - 1].header_stored \
                    + <int64_t>job.pages[index - 1].body_stored:
                job.segments[job.segment_count] = index
                job.segment_count += 1
                weight = 0
            weight += size
            if task == CONVERT and job.ends[page.chunk].target_mode != PLAIN and page.page_type != RAW_BYTES:
                sealed += 1
                chunk = pages.chunks[page.chunk]
                count_modules(chunk.target_key, 2)
        job.segments[job.segment_count] = job.count
        if sealed:
            self.nonces = <uint8_t *>PyMem_Malloc(job.count * 2 * NONCE)
            if self.nonces == NULL:
                raise MemoryError(f"no memory for the nonces of {job.count} pages")
            status = gcm_random(self.nonces, job.count * 2 * NONCE)
            if status != GCM_OK:
                raise_status(status, gcm_last_error(), "drawing nonces")
        job.nonces = self.nonces
        return <int>min(crew, max(1, job.segment_count))

    def launch(
            self, PageList pages not None, PageSource source not None, int target, int64_t offset, *, target_name=None):
        """Start to convert pages and write them, one behind the other, to a file.

        Parameters
        ----------
        target : int
            Descriptor of a regular file.
        offset : int
            Where the first page goes.
        """
        cdef int crew
        if target < 0:
            raise ValueError(f"target must be a descriptor, got {target}")
        crew = self._prepare(pages, source, CONVERT, 0, pages.count)
        self.target_name = target_name
        self.job.target = target
        ags1_line_init(&self.job.line, offset)
        self.lined = True
        self.flying = True
        self.born = forks
        ags1_start_crew(&self.crew, _work, &self.job, crew)
        if self.crew.count == 0:
            self.landing = True
            with nogil:
                _work(&self.job)
            self.landing = False

    def land(self):
        """Wait for the pages; their chunks know their new places and sizes then.

        Returns
        -------
        int
            Offset behind the last page.

        Raises
        ------
        AuthenticationError, FormatError, TruncatedError, LimitError, OSError
            Names the first page that failed.
        """
        if not self.flying or self.landing:
            raise RuntimeError("nothing was launched, or another thread waits for it")
        if self.born != forks:
            self._stop()
            raise RuntimeError("the threads of this conversion are those of the parent process")
        self.landing = True
        with nogil:
            ags1_join_crew(&self.crew)
        self.landing = self.flying = False
        return self._finish()

    cdef int64_t _finish(self) except -1:
        cdef int64_t index, end
        cdef Chunk chunk
        cdef PageList pages = self.pages
        try:
            if self.job.failure.failed:
                self._raise()
            for index in range(pages.count):
                chunk = pages.chunks[pages.pages[index].chunk]
                chunk.locate(&pages.pages[index])
            end = self.job.line.end
        finally:
            self._release()
        return end

    cdef int _raise(self) except -1:
        cdef Page *page = &self.pages.pages[self.first + self.job.failure.run]
        cdef Chunk chunk = self.pages.chunks[page.chunk]
        raise_page(
            self.job.failure.status, self.job.failure.system_error, self.job.failure.backend_error, chunk,
            page.page_type, page.ordinal, False, self.source.name, self.target_name)

    def convert(self, PageList pages not None, PageSource source not None, int64_t offset):
        """Convert pages into fresh memory; see :meth:`launch`.

        Returns
        -------
        bytearray
            The converted pages, one behind the other, for offset `offset` of the target.
        """
        cdef int64_t end
        cdef bytearray memory = bytearray(pages.stored + pages.count * (HEADER_SLACK + 2 * GCM_OVERHEAD))
        cdef BufferView room = writable(memory, "out")
        cdef int crew = self._prepare(pages, source, CONVERT, 0, pages.count)
        self.out = room
        room = None
        self.job.out = self.out.data
        self.job.out_base = offset
        ags1_line_init(&self.job.line, offset)
        self.lined = True
        with nogil:
            ags1_run_crew(_work, &self.job, crew)
        end = self._finish()
        del memory[end - offset :]
        return memory

    def view(self, PageList pages not None, PageSource source not None, out, int64_t base, int64_t first=0, last=None):
        """Decrypt pages to where they lie in the file.

        Parameters
        ----------
        out : writable buffer
            For the bytes from offset `base` of the file on; it must hold all of the pages.
        first, last : int, optional
            Only these pages, without `last`.
        """
        cdef int64_t end = pages.count if last is None else last
        cdef int crew
        cdef int64_t index
        cdef Page *page
        cdef BufferView room = writable(out, "out")
        if not 0 <= first <= end <= pages.count:
            raise ValueError(f"pages {first} to {end} of {pages.count}")
        for index in range(first, end):
            page = &pages.pages[index]
            if page.offset < base \
                    or page.offset - base + page.header_stored + <int64_t>page.body_stored > room.nbytes:
                raise ValueError("the pages do not fit into the memory for them")
        crew = self._prepare(pages, source, VIEW, first, end)
        self.out = room
        self.job.out = self.out.data
        self.job.out_base = base
        ags1_line_init(&self.job.line, 0)
        self.lined = True
        with nogil:
            ags1_run_crew(_work, &self.job, crew)
        try:
            if self.job.failure.failed:
                memset(self.out.data, 0, self.out.nbytes)
                self._raise()
        finally:
            self._release()

    def verify(self, PageList pages not None, PageSource source not None):
        """Check every tag and CRC of pages.

        Returns
        -------
        list of (Chunk, dict)
            What failed: the page as :meth:`PageList.details` has it, and the error.
        """
        cdef int crew = self._prepare(pages, source, VERIFY, 0, pages.count)
        cdef Page *page
        cdef int64_t index
        cdef Chunk chunk
        ags1_line_init(&self.job.line, 0)
        self.lined = True
        failures = []
        try:
            with nogil:
                ags1_run_crew(_work, &self.job, crew)
            if self.job.failure.failed:
                self._raise()
            for index in range(pages.count):
                page = &pages.pages[index]
                if page.status != GCM_OK:
                    chunk = pages.chunks[page.chunk]
                    try:
                        raise_page(
                            page.status, 0, 0, chunk, page.page_type, page.ordinal, False, source.name, None)
                    except Exception as error:
                        ordinal = None if page.page_type == DICTIONARY else page.ordinal
                        failures.append((chunk, ordinal, error))
        finally:
            self._release()
        return failures


def crc32(data):
    """CRC-32 of a buffer, as pages have it."""
    cdef BufferView source = readable(data, "data")
    cdef uint32_t crc
    with nogil:
        crc = ags1_crc32(source.data, source.nbytes)
    return crc


def _forked():
    global forks
    forks += 1


def stretch(structure, int64_t length):
    """Lengthen an encoded Thrift struct by an unknown field that readers skip.

    Parameters
    ----------
    structure : bytes-like
        Ends with the struct's end.
    length : int
        Bytes wanted: as many as there are, or at least 5 more.
    """
    cdef BufferView source = readable(structure, "structure")
    cdef bytearray out
    cdef uint8_t *target
    if source.nbytes == 0 or length < source.nbytes:
        raise ValueError(f"{source.nbytes} bytes cannot become {length}")
    out = bytearray(length)
    target = out
    memcpy(target, source.data, source.nbytes)
    if not _stretch(target, source.nbytes, length):
        raise ValueError(f"{source.nbytes} bytes cannot become {length}: the filler takes at least 5")
    return bytes(out)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
ags1_crc32_prepare()
