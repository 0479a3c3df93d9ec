"""Finds the pages of a column chunk without decoding them.

    chunk, plaintext    header  body   header  body  ...        header: a PageHeader; body: compressed_page_size bytes
    chunk, encrypted    [module body]  [module body] ...        header: a GCM module; body: compressed_page_size bytes,
                                                                its own length word, nonce and tag included

Each header says where the next one is, so one thread walks them. It keeps the headers (decrypted) in an arena, with the
spans of the two fields that a new position or size changes, and collects pages in lists for the code that moves them::

    pages = PageList(source_aad)
    while not chunk.done:
        pages.add(chunk, source, max_stored, max_pages)
        ... convert pages, then pages.clear()

Source: parquet.thrift, PageHeader; Parquet encryption specification, "Encrypted pages"; data pages count from 0 in each
chunk, the dictionary page has no ordinal.
"""

cimport cython
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_RawFree, PyMem_RawRealloc, PyMem_Realloc
from libc.errno cimport errno
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy, memset

from ags1.core.buffer cimport BufferView, readable
from ags1.core.gcm cimport GCM_BAD_TAG, GCM_NO_MEMORY, GCM_OK, as_key, gcm_last_error, raise_status
from ags1.core.compact cimport AGS1_COMPACT_END, AGS1_COMPACT_SIZE, ags1_compact
from ags1.core.layout cimport ags1_load_le32
from ags1.parquet.native.modules cimport (
    GCM_OVERHEAD, LENGTH_WORD, MAX_ORDINAL, MODULE_BAD_LENGTH, MODULE_DATA_PAGE_HEADER, MODULE_DICTIONARY_PAGE_HEADER,
    module_open, modules_free, modules_init,
)
from ags1.parquet.native.page_conversion cimport Ends
from ags1.parquet.native.page_header cimport (
    CTR, DATA_PAGE_V1, DATA_PAGE_V2, DICTIONARY, GCM, PAGE_BAD_CRC, PAGE_BAD_HEADER, PAGE_BAD_LEVELS, PAGE_DOWNGRADED,
    PAGE_LATE_DICTIONARY, PAGE_MISSING_VALUES, PAGE_NEED_MORE, PAGE_PAST_CHUNK, PAGE_TOO_LARGE, PAGE_TOO_MANY,
    PAGE_UNKNOWN_TYPE, PAGE_WRONG_TYPE, PLAIN, RAW_BYTES, Page, move_offset_index, scan_page_header,
)
from ags1.core.positioned cimport AGS1_IO_END, AGS1_IO_READ, AGS1_IO_WRITE, ags1_read_at

import os

from ags1.errors import AuthenticationError, FormatError, LimitError, TruncatedError
from ags1.parquet.native.modules import check_ordinal

# No writer makes larger page headers, because they truncate min and max values.
cdef int64_t MAX_HEADER = 16 << 20
# Bytes to read for a page header, and for a walk: few if headers are far apart, so that the walk does not read the
# whole file, and more if pages are so small that the next header is included.
cdef int64_t FIRST_WINDOW = 256
cdef int64_t LEAST_AHEAD = 512
cdef int64_t MOST_AHEAD = 64 << 10
cdef int64_t MAX_PAGE = 0x7fffffff
# In a chunk of fewer bytes in memory, headers are found sooner than the GIL could go to another thread and come back.
cdef int64_t SHORT_WALK = 64 << 10
cdef enum:
    MAX_VARINT = 10


# Threads may still read objects that a conversion refers to, so the garbage collector must not clear them.
@cython.no_gc_clear
cdef class PageSource:
    """The bytes of a Parquet file: a descriptor, which the caller closes, or memory from offset `base` of the file."""

    def __cinit__(self, file, *, int64_t base=0, name=None):
        self.name = name
        self.base = base
        self.descriptor = -1
        self.window = NULL
        self.window_length = self.window_capacity = self.window_offset = 0
        self.ahead = LEAST_AHEAD
        if isinstance(file, int):
            self.descriptor = file
            self.size = os.fstat(file).st_size
        else:
            self.view = readable(file, "file")
            self.size = base + self.view.nbytes

    def __dealloc__(self):
        PyMem_RawFree(self.window)

    cdef int peek(self, int64_t offset, int64_t length, const uint8_t **data) noexcept nogil:
        """The bytes of a range, valid until the next peek."""
        cdef uint8_t *grown
        cdef int64_t wanted
        cdef int status
        cdef bint near
        if offset + length > self.size or offset < self.base:
            return AGS1_IO_END if self.descriptor >= 0 else PAGE_NEED_MORE
        if self.descriptor < 0:
            data[0] = self.view.data + (offset - self.base)
            return GCM_OK
        if offset < self.window_offset or offset + length > self.window_offset + self.window_length:
            near = 0 <= offset - self.window_offset < 2 * self.ahead
            self.ahead = min(2 * self.ahead, MOST_AHEAD) if near else LEAST_AHEAD
            wanted = min(max(length, self.ahead), self.size - offset)
            if wanted > self.window_capacity:
                grown = <uint8_t *>PyMem_RawRealloc(self.window, wanted)
                if grown == NULL:
                    return GCM_NO_MEMORY
                self.window = grown
                self.window_capacity = wanted
            self.window_length = 0
            status = ags1_read_at(self.descriptor, self.window, wanted, offset)
            if status != GCM_OK:
                return status
            self.window_offset = offset
            self.window_length = wanted
        data[0] = self.window + (offset - self.window_offset)
        return GCM_OK


cdef class Chunk:
    """A column chunk for a page walk, and the results of the walk.

    Parameters
    ----------
    start, length : int
        Offset and bytes in the source: from the first page, ``total_compressed_size``.
    label : str
        The column, for messages.
    source_protection, target_protection : int
        PLAINTEXT, AES_GCM or AES_CTR (page bodies only; headers are GCM then).
    source_ordinals, target_ordinals : (int, int)
        Row group and column, as the AADs have them.
    dictionary_expected : bool
        Whether the metadata promises a dictionary page. If it lies, the other is tried.
    ends_with_values : bool
        Whether the chunk ends with the page of its last value, wherever `length` says that it does.
    raw : bool
        Take the bytes as they are, without looking for pages.

    Attributes
    ----------
    total_compressed, total_uncompressed, data_page_offset, dictionary_page_offset, first_offset : int
        Of the converted pages so far, as ColumnMetaData counts them; -1 for an offset that there is none of.
    checksums : int
        Pages found so far that have a CRC.
    """

    def __cinit__(
            self, int64_t start, int64_t length, int64_t num_values, str label, *, int source_protection=PLAIN,
            source_key=None, source_ordinals=(0, 0), int target_protection=PLAIN, target_key=None,
            target_ordinals=(0, 0), bint dictionary_expected=False, bint ends_with_values=False, bint raw=False):
        if start < 0 or length < 0 or length > (<int64_t>1 << 62) - start:
            raise ValueError(f"a column chunk cannot have {length} bytes at offset {start}")
        for protection, ordinals in ((source_protection, source_ordinals), (target_protection, target_ordinals)):
            if protection != PLAIN:
                check_ordinal(ordinals[0], "row group")
                check_ordinal(ordinals[1], "column")
        self.start = self.position = start
        self.end = start + length
        self.num_values = num_values
        self.label = label
        self.ends.source_mode = source_protection
        self.ends.target_mode = target_protection
        self.ends.source_row_group, self.ends.source_column = source_ordinals
        self.ends.target_row_group, self.ends.target_column = target_ordinals
        if source_protection != PLAIN:
            self.source_key = as_key(source_key)
            self.ends.source_key = self.source_key.octets
            self.ends.source_key_length = self.source_key.length
        if target_protection != PLAIN:
            self.target_key = as_key(target_key)
            self.ends.target_key = self.target_key.octets
            self.ends.target_key_length = self.target_key.length
        self.dictionary_expected = dictionary_expected
        self.ends_with_values = ends_with_values
        self.raw = raw
        self.first = True
        self.values = self.checksums = 0
        self.next_ordinal = 0
        self.total_compressed = self.total_uncompressed = 0
        self.data_page_offset = self.dictionary_page_offset = self.first_offset = -1
        self.locations = NULL
        self.location_count = self.location_capacity = 0

    def __dealloc__(self):
        PyMem_Free(self.locations)

    @property
    def done(self):
        """Whether all pages were found."""
        return self.position >= self.end

    @property
    def data_pages(self):
        """Data pages found so far."""
        return self.next_ordinal

    def page_locations(self):
        """Data pages as converted: a list of (source offset, new offset, new size with header)."""
        cdef int64_t index
        return [
            (self.locations[3 * index], self.locations[3 * index + 1], self.locations[3 * index + 2])
            for index in range(self.location_count)
        ]

    def moved_offset_index(self, index not None):
        """An OffsetIndex with the new offsets and sizes of the pages; the rest is unchanged.

        None if it is not as writers make it, or does not fit the pages: the caller then says what is wrong.
        """
        cdef BufferView data = readable(index, "index")
        cdef int64_t room = data.nbytes + self.location_count * 2 * MAX_VARINT
        cdef int64_t length
        cdef uint8_t *out = <uint8_t *>PyMem_Malloc(max(1, room))
        if out == NULL:
            raise MemoryError(f"no memory for the offset index of {self.label}")
        try:
            length = move_offset_index(data.data, data.nbytes, self.locations, self.location_count, out)
            return out[:length] if length >= 0 else None
        finally:
            PyMem_Free(out)

    cdef int locate(self, const Page *page) except -1:
        """Add a converted page to the sums."""
        cdef int64_t *grown
        cdef int64_t capacity, size = <int64_t>page.new_header + page.new_body
        if self.first_offset < 0:
            self.first_offset = page.new_offset
        self.total_compressed += size
        if page.page_type == RAW_BYTES:
            return 0
        self.total_uncompressed += <int64_t>page.new_header + page.uncompressed
        if page.page_type == DICTIONARY:
            self.dictionary_page_offset = page.new_offset
            return 0
        if page.page_type != DATA_PAGE_V1 and page.page_type != DATA_PAGE_V2:
            return 0
        if self.data_page_offset < 0:
            self.data_page_offset = page.new_offset
        if self.location_count == self.location_capacity:
            capacity = max(4, 2 * self.location_capacity)
            grown = <int64_t *>PyMem_Realloc(self.locations, capacity * 3 * sizeof(int64_t))
            if grown == NULL:
                raise MemoryError(f"no memory for the page locations of {self.label}")
            self.locations = grown
            self.location_capacity = capacity
        self.locations[3 * self.location_count] = page.offset
        self.locations[3 * self.location_count + 1] = page.new_offset
        self.locations[3 * self.location_count + 2] = size
        self.location_count += 1
        return 0


@cython.no_gc_clear
cdef class PageList:
    """Pages of chunks of a file with this AAD, in the order of the walk. For one thread at a time."""

    def __cinit__(self, source_aad=b""):
        cdef BufferView aad = readable(source_aad, "source_aad")
        self.pages = NULL
        self.arena = NULL
        self.count = self.capacity = self.arena_length = self.arena_capacity = self.stored = 0
        self.chunks = []
        cdef int status = modules_init(&self.opener, aad.data, aad.nbytes, False)
        self.opener_made = True
        if status != GCM_OK:
            raise_status(status, gcm_last_error(status), "reading page headers")

    def __dealloc__(self):
        PyMem_RawFree(self.pages)
        PyMem_RawFree(self.arena)
        if self.opener_made:
            modules_free(&self.opener)

    def clear(self):
        """Remove the pages, keep the memory."""
        if self.users:
            raise RuntimeError("the pages of this list are being converted or looked for")
        # The keys may be freed with their chunks, and other keys may get their addresses.
        self.opener.gcm_key = NULL
        self.count = self.arena_length = self.stored = 0
        self.chunks = []

    cdef int64_t reserve(self, int64_t length) noexcept nogil:
        """Reserve `length` more bytes in the arena; -1 if there is no memory."""
        cdef uint8_t *grown
        cdef int64_t capacity
        if self.arena_length + length > self.arena_capacity:
            capacity = max(2 * self.arena_capacity, self.arena_length + length, 65536)
            grown = <uint8_t *>PyMem_RawRealloc(self.arena, capacity)
            if grown == NULL:
                return -1
            self.arena = grown
            self.arena_capacity = capacity
        return self.arena_length

    cdef int add_page(self, const Page *page) noexcept nogil:
        cdef Page *grown
        cdef int64_t capacity
        if self.count == self.capacity:
            capacity = max(256, 2 * self.capacity)
            grown = <Page *>PyMem_RawRealloc(self.pages, capacity * sizeof(Page))
            if grown == NULL:
                return GCM_NO_MEMORY
            self.pages = grown
            self.capacity = capacity
        self.pages[self.count] = page[0]
        self.count += 1
        self.stored += <int64_t>page.header_stored + page.body_stored
        return GCM_OK

    cdef int _read_header(self, Chunk chunk, PageSource source, int64_t remaining, Page *page) noexcept nogil:
        """Read the header of the page at the chunk's position; copy its plaintext to the arena."""
        cdef const Ends *ends = &chunk.ends
        cdef const uint8_t *data = NULL
        cdef ags1_compact cursor
        cdef int64_t window, at, length
        cdef int status, module_type
        cdef bint dictionary
        if ends.source_mode == PLAIN:
            window = min(FIRST_WINDOW, remaining)
            if source.descriptor < 0:
                # All of the memory: a shorter range would save nothing.
                window = min(remaining, MAX_HEADER, max(1, source.size - page.offset))
            while True:
                status = source.peek(page.offset, window, &data)
                if status != GCM_OK:
                    return status
                cursor.at, cursor.end, cursor.error = data, data + window, 0
                status = scan_page_header(&cursor, page)
                # A statistic that the window cuts off shows as a size above the remaining bytes.
                if status != AGS1_COMPACT_END and cursor.error != AGS1_COMPACT_SIZE:
                    break
                if window == remaining or window >= MAX_HEADER:
                    return PAGE_BAD_HEADER
                if source.descriptor < 0:
                    return PAGE_NEED_MORE
                window = min(remaining, 8 * window, MAX_HEADER)
            if status != GCM_OK:
                return status
            length = cursor.at - data
            at = self.reserve(length)
            if at < 0:
                return GCM_NO_MEMORY
            memcpy(self.arena + at, data, length)
            page.header_stored = <int32_t>length
        else:
            if remaining < GCM_OVERHEAD:
                return PAGE_PAST_CHUNK
            status = source.peek(page.offset, LENGTH_WORD, &data)
            if status != GCM_OK:
                return status
            length = <int64_t>ags1_load_le32(data) + LENGTH_WORD
            if length > remaining:
                return PAGE_PAST_CHUNK
            if length < GCM_OVERHEAD or length > MAX_HEADER:
                return MODULE_BAD_LENGTH
            status = source.peek(page.offset, length, &data)
            if status != GCM_OK:
                return status
            at = self.reserve(length)
            if at < 0:
                return GCM_NO_MEMORY
            dictionary = chunk.first and chunk.dictionary_expected
            while True:
                module_type = MODULE_DICTIONARY_PAGE_HEADER if dictionary else MODULE_DATA_PAGE_HEADER
                status = module_open(
                    &self.opener, ends.source_key, ends.source_key_length, False, module_type,
                    ends.source_row_group, ends.source_column, <int>chunk.next_ordinal, data, length, self.arena + at)
                if status != GCM_BAD_TAG or not chunk.first or dictionary != chunk.dictionary_expected:
                    break
                # The metadata may be wrong about the first page.
                dictionary = not dictionary
            if status != GCM_OK:
                return status
            page.header_stored = <int32_t>length
            cursor.at = self.arena + at
            cursor.end = cursor.at + length - GCM_OVERHEAD
            cursor.error = 0
            status = scan_page_header(&cursor, page)
            if status != GCM_OK:
                return PAGE_BAD_HEADER
            if dictionary != (page.page_type == DICTIONARY):
                return PAGE_WRONG_TYPE
            # Without the zeros that parquet-java writes after the structure.
            length = cursor.at - (self.arena + at)
        page.header_at = at
        page.header_length = <int32_t>length
        return GCM_OK

    cdef int walk(
            self, Chunk chunk, int index, PageSource source, int64_t max_stored, int64_t max_pages) noexcept nogil:
        cdef const Ends *ends = &chunk.ends
        cdef Page page
        cdef int status
        cdef int64_t remaining
        memset(&page, 0, sizeof(Page))
        page.chunk = index
        while chunk.position < chunk.end and self.stored < max_stored and self.count < max_pages:
            remaining = chunk.end - chunk.position
            page.offset = chunk.position
            page.ordinal = <int32_t>chunk.next_ordinal
            page.status = 0
            if chunk.raw:
                page.page_type = RAW_BYTES
                page.header_stored = 0
                page.body_stored = <int32_t>min(remaining, 1 << 20)
                if source.descriptor < 0:
                    page.body_stored = <int32_t>min(page.body_stored, source.size - page.offset)
                    if page.body_stored <= 0:
                        return PAGE_NEED_MORE
            else:
                page.page_type = DATA_PAGE_V1
                if chunk.next_ordinal > MAX_ORDINAL and (ends.target_mode != PLAIN or ends.source_mode != PLAIN):
                    self.failed_ordinal = chunk.next_ordinal
                    self.failed_type = DATA_PAGE_V1
                    return PAGE_TOO_MANY
                status = self._read_header(chunk, source, remaining, &page)
                if status == GCM_OK and page.header_stored + <int64_t>page.body_stored > remaining:
                    status = PAGE_PAST_CHUNK
                if status == GCM_OK and source.descriptor < 0 \
                        and page.offset + page.header_stored + <int64_t>page.body_stored > source.size:
                    status = PAGE_NEED_MORE
                if status == GCM_OK and page.page_type not in (DATA_PAGE_V1, DICTIONARY, DATA_PAGE_V2) \
                        and (ends.source_mode != PLAIN or ends.target_mode != PLAIN):
                    status = PAGE_UNKNOWN_TYPE
                if status == GCM_OK and page.page_type == DICTIONARY and not chunk.first:
                    status = PAGE_LATE_DICTIONARY
                if status == GCM_OK and page.levels > page.body_stored:
                    status = PAGE_BAD_LEVELS
                if status == PAGE_BAD_HEADER and ends.source_mode == PLAIN and 0 < chunk.num_values <= chunk.values:
                    # All values were found: the rest is padding after the last page, which no reader uses.
                    chunk.position = chunk.end
                    break
                if status != GCM_OK:
                    self.failed_ordinal = -1 if chunk.first and chunk.dictionary_expected else chunk.next_ordinal
                    self.failed_type = page.page_type
                    return status
                self.arena_length += page.header_length
            status = self.add_page(&page)
            if status != GCM_OK:
                return status
            chunk.first = False
            chunk.position += <int64_t>page.header_stored + page.body_stored
            chunk.checksums += page.crc_end != 0
            if page.page_type == DATA_PAGE_V1 or page.page_type == DATA_PAGE_V2:
                chunk.next_ordinal += 1
                chunk.values += page.values
                if chunk.ends_with_values and chunk.values >= chunk.num_values:
                    chunk.position = chunk.end
        if chunk.position >= chunk.end and chunk.values < chunk.num_values and not chunk.raw:
            self.failed_ordinal = chunk.next_ordinal
            self.failed_type = DATA_PAGE_V1
            return PAGE_MISSING_VALUES
        return GCM_OK

    def add(self, Chunk chunk not None, PageSource source not None, int64_t max_stored, int64_t max_pages=16384):
        """Find the next pages of a chunk, until the list has `max_stored` stored bytes or `max_pages` pages.

        Return False if the source is memory that ends inside the page at ``chunk.position``. Errors name column, row
        group and page.
        """
        cdef int index = <int>len(self.chunks)
        cdef int status
        if self.users or source.walking:
            raise RuntimeError("the pages of this list are being converted or looked for")
        if index and self.chunks[index - 1] is chunk:
            index -= 1
        else:
            self.chunks.append(chunk)
        self.users = -1
        source.walking = True
        if source.descriptor < 0 and chunk.end - chunk.position <= SHORT_WALK:
            status = self.walk(chunk, index, source, max_stored, max_pages)
        else:
            with nogil:
                status = self.walk(chunk, index, source, max_stored, max_pages)
        source.walking = False
        self.users = 0
        if status == GCM_OK:
            return True
        if status == PAGE_NEED_MORE and source.size < chunk.end:
            return False
        raise_page(
            status, errno, gcm_last_error(status), chunk, DICTIONARY if self.failed_ordinal < 0 else self.failed_type,
            self.failed_ordinal, True, source.name, None)

    def index_at(self, int64_t offset):
        """Index of the page with a byte of the source, for pages of one chunk; -1 if none has it."""
        cdef int64_t low = 0, high = self.count, middle
        cdef Page *page
        while low < high:
            middle = (low + high) // 2
            if self.pages[middle].offset <= offset:
                low = middle + 1
            else:
                high = middle
        if low == 0:
            return -1
        page = &self.pages[low - 1]
        return low - 1 if offset < page.offset + page.header_stored + <int64_t>page.body_stored else -1

    def extent(self, int64_t index):
        """Offset and bytes in the source of a page."""
        if not 0 <= index < self.count:
            raise IndexError(index)
        return self.pages[index].offset, self.pages[index].header_stored + <int64_t>self.pages[index].body_stored

    def details(self):
        """The pages as a list of dicts, for inspection and tests."""
        cdef Page *page
        cdef int64_t index
        found = []
        for index in range(self.count):
            page = &self.pages[index]
            found.append({
                "offset": page.offset,
                "type": page.page_type,
                "ordinal": page.ordinal if page.page_type in (DATA_PAGE_V1, DATA_PAGE_V2) else None,
                "header_length": page.header_stored,
                "body_length": page.body_stored,
                "uncompressed_length": page.uncompressed,
                "values": page.values,
                "levels_length": page.levels,
                "header": (<uint8_t *>(self.arena + page.header_at))[: page.header_length]
                if page.page_type != RAW_BYTES else b"",
            })
        return found


cdef int raise_page(
        int status, int system_error, unsigned long backend_error, Chunk chunk, int page_type, int64_t ordinal,
        bint header, object source_name, object target_name) except -1:
    """Raise the exception of a status for a page."""
    where = f"{source_name}: " if source_name else ""
    page = "dictionary page" if page_type == DICTIONARY else "data page"
    part = f"header of {page}" if header else page
    if page_type != DICTIONARY:
        part = f"{part} {ordinal}"
    what = f"{where}{part} of column {chunk.label!r} in row group {chunk.ends.source_row_group}"
    if status == GCM_BAD_TAG:
        raise AuthenticationError(f"{what}: wrong key, wrong AAD prefix, or damaged data")
    if status == AGS1_IO_READ:
        raise OSError(system_error, os.strerror(system_error), source_name)
    if status == AGS1_IO_WRITE:
        raise OSError(system_error, os.strerror(system_error), target_name)
    if status == AGS1_IO_END or status == PAGE_NEED_MORE:
        raise TruncatedError(f"{what}: the file ends inside it")
    if status == PAGE_TOO_MANY:
        raise LimitError(
            f"{what}: encrypted Parquet files can have no more than {MAX_ORDINAL + 1} pages in a column chunk: write "
            "smaller row groups or larger pages"
        )
    if status == PAGE_TOO_LARGE:
        raise LimitError(f"{what}: with encryption its size is above 2^31 - 1 bytes")
    if status == PAGE_MISSING_VALUES:
        raise FormatError(
            f"{where}column {chunk.label!r} in row group {chunk.ends.source_row_group} has {chunk.values} values in "
            f"its pages, but its metadata says {chunk.num_values}"
        )
    if status == PAGE_DOWNGRADED:
        raise AuthenticationError(
            f"{what}: was encrypted with AES_GCM_V1, but the file says AES_GCM_CTR_V1, whose pages have no tag: "
            "the name was changed"
        )
    fault = {
        MODULE_BAD_LENGTH: "the length word of its module contradicts its size: damaged data, or not encrypted",
        PAGE_BAD_HEADER: "is not a valid PageHeader",
        PAGE_PAST_CHUNK: f"reaches past the end of its column chunk at {chunk.end}",
        PAGE_UNKNOWN_TYPE: f"has page type {page_type}, for which Parquet Modular Encryption has no module",
        PAGE_LATE_DICTIONARY: "follows data pages; a dictionary page comes first or not at all",
        PAGE_WRONG_TYPE: "was encrypted as another type of page than it is",
        PAGE_BAD_CRC: "its CRC does not match its bytes: damaged data",
        PAGE_BAD_LEVELS: "its levels are longer than the page",
    }.get(status)
    if fault is not None:
        raise FormatError(f"{what}: {fault}")
    raise_status(status, backend_error, "converting pages")
    return 0


PLAINTEXT = PLAIN
AES_GCM = GCM
AES_CTR = CTR
