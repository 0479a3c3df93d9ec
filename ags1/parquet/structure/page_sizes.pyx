"""What the pages of a column chunk become once decoded, from their headers, which every reader follows.

    page headers                 DATA_PAGE        [5: [1: num_values] [2: encoding] ...]
                                 DICTIONARY_PAGE  [7: [1: num_values] ...]
                                 DATA_PAGE_V2     [8: [1: num_values] ... [4: encoding] ...]
    a dictionary of BYTE_ARRAY   [length][value] [length][value] ...      length: 4 bytes, little endian

The footer has sums of these sizes. Nothing depends on the sums, so those of a hostile file may be anything.

Source: parquet.thrift, PageHeader; Parquet encodings, PLAIN.
"""

from libc.stdint cimport int64_t

from ags1.core.buffer cimport BufferView, readable
from ags1.core.compact cimport (
    AGS1_COMPACT_I32, AGS1_COMPACT_STOP, AGS1_COMPACT_STRUCT, ags1_compact, ags1_compact_field, ags1_compact_skip,
    ags1_compact_zigzag,
)
from ags1.core.layout cimport ags1_load_le32
from ags1.parquet.native.page_header cimport DATA_PAGE_V1, DATA_PAGE_V2, DICTIONARY, Page
from ags1.parquet.native.pages cimport Chunk, PageList, PageSource

cdef int64_t DELTA_BYTE_ARRAY = 7
cdef int64_t PLAIN_DICTIONARY = 2
cdef int64_t RLE_DICTIONARY = 8
# A hostile chunk may have millions of pages.
cdef int64_t ALL = 1 << 62
cdef int64_t WALKED = 4096
# Most writers end a dictionary at a mebibyte.
cdef int64_t LOOKED_AT = 64 << 20


cdef class PageSizes:
    """Sizes of a column chunk, in bytes without compression.

    Attributes
    ----------
    total : int
        Of all pages.
    count : int
        Number of values, nulls included.
    values : int
        Of data pages that have their values themselves.
    indexed : int
        Number of values that refer to the dictionary.
    dictionary : int
        Of the dictionary page; 0 if there is none.
    dictionary_values : int
        Number of values in it.
    dictionary_place : (int, int)
        Offset in the file, and stored bytes, of its values.
    expanding : int
        Of the largest page in DELTA_BYTE_ARRAY, where each value may repeat the page up to it.
    """

    cdef readonly int64_t total
    cdef readonly int64_t count
    cdef readonly int64_t values
    cdef readonly int64_t indexed
    cdef readonly int64_t dictionary
    cdef readonly int64_t dictionary_values
    cdef readonly tuple dictionary_place
    cdef readonly int64_t expanding

    def __cinit__(self):
        self.dictionary_place = (0, 0)

    cdef int add(self, PageList pages) except -1:
        """Add the pages of a list."""
        cdef Page *page
        cdef int64_t index, encoding
        for index in range(pages.count):
            page = &pages.pages[index]
            if page.page_type not in (DATA_PAGE_V1, DICTIONARY, DATA_PAGE_V2):
                continue
            self.total += page.uncompressed
            if page.page_type == DICTIONARY:
                self.dictionary = page.uncompressed
                self.dictionary_values = header_number(pages, page, 7, 1)
                self.dictionary_place = (page.offset + page.header_stored, page.body_stored)
                continue
            if page.page_type == DATA_PAGE_V1:
                encoding = header_number(pages, page, 5, 2)
            else:
                encoding = header_number(pages, page, 8, 4)
            self.count += page.values
            if encoding == PLAIN_DICTIONARY or encoding == RLE_DICTIONARY:
                self.indexed += page.values
            else:
                self.values += page.uncompressed
            if encoding == DELTA_BYTE_ARRAY:
                self.expanding = max(self.expanding, page.uncompressed)
        return 0


def page_sizes(
        data not None, int64_t start, int64_t num_values, str label not None, int row_group, PageList pages=None):
    """Return the sizes of a plaintext column chunk.

    Parameters
    ----------
    data : buffer
        The chunk's bytes.
    start : int
        Its offset in the file.
    num_values : int
        Of the chunk, as the footer says: readers read no page after the one with the last of them.
    label, row_group : str, int
        Names of the column and of its row group, for messages.
    pages : PageList, optional
        An empty list, which is empty again afterwards: making one costs more than a few pages.

    Returns
    -------
    PageSizes

    Raises
    ------
    FormatError, TruncatedError
        There are other pages than a reader expects.
    """
    cdef PageSource source = PageSource(data, base=start)
    cdef Chunk chunk = Chunk(
        start, source.size - start, num_values, label, source_ordinals=(row_group, 0), ends_with_values=True
    )
    cdef PageSizes found = PageSizes()
    if pages is None:
        pages = PageList()
    while chunk.position < chunk.end and chunk.values < num_values:
        pages.add(chunk, source, ALL, WALKED)
        found.add(pages)
        pages.clear()
    return found


cdef int64_t header_number(PageList pages, const Page *page, int structure, int field) noexcept:
    """A number in a structure of a page header; 0 if it is not there. Of several, readers take the last one."""
    cdef ags1_compact cursor
    cdef int field_id = 0, inner_id, kind
    cdef int64_t found = 0
    cursor.at = pages.arena + page.header_at
    cursor.end = cursor.at + page.header_length
    cursor.error = 0
    while True:
        kind = ags1_compact_field(&cursor, &field_id)
        if kind == AGS1_COMPACT_STOP:
            return found
        if field_id != structure or kind != AGS1_COMPACT_STRUCT:
            ags1_compact_skip(&cursor, kind, False, 1)
            continue
        inner_id = 0
        while True:
            kind = ags1_compact_field(&cursor, &inner_id)
            if kind == AGS1_COMPACT_STOP:
                break
            if inner_id == field and kind == AGS1_COMPACT_I32:
                found = ags1_compact_zigzag(&cursor)
            else:
                ags1_compact_skip(&cursor, kind, False, 2)


def longest_value(values not None, str codec not None, int64_t size):
    """Return the length of the longest value of a dictionary of texts or binaries; `size` if that is not known.

    Parameters
    ----------
    values : buffer
        The dictionary page without its header.
    codec : str
        Of the column, as PyArrow names it.
    size : int
        Bytes without compression.
    """
    import pyarrow

    cdef BufferView plain
    cdef int64_t place = 0, longest = 0, length
    if size > LOOKED_AT:
        return size
    try:
        if codec != "UNCOMPRESSED":
            values = pyarrow.decompress(values, size, "lz4_raw" if codec == "LZ4" else codec.lower())
    except (pyarrow.ArrowException, ValueError, OSError):
        # The page is damaged, or old LZ4, which has a form of its own.
        return size
    plain = readable(values, "values")
    with nogil:
        while place + 4 <= plain.nbytes:
            length = ags1_load_le32(plain.data + place)
            longest = max(longest, length)
            place += 4 + length
    return min(longest, size)
