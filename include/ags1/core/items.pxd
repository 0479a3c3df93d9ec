# Declarations of ags1.core.items for cimport: where the bytes of many items lie, found without the GIL.
from cpython.buffer cimport Py_buffer
from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

cdef enum:
    ITEMS_ONE = 0            # the same bytes for every index
    ITEMS_NUMBERED = 1       # likewise, followed by the index as a 64-bit little-endian number
    ITEMS_STRIDED = 2
    ITEMS_OFFSETS_32 = 3
    ITEMS_OFFSETS_64 = 4
    ITEMS_VIEWS = 5          # Arrow's BinaryView
    ITEMS_POINTERS = 6
    ITEMS_NULL = 7           # nothing but nulls
    ITEMS_BYTES = 8          # bytes objects, which can neither change nor move: read without the GIL too

cdef enum:
    ITEM_HERE = 0
    ITEM_NULL = 1
    ITEM_OUTSIDE = 2         # its place is not within the memory that the owner vouched for

cdef extern from *:
    """
    static inline const unsigned char *ags1_bytes_at(const unsigned char *places, long long index, long long *nbytes)
    {
        PyBytesObject *object = ((PyBytesObject **)places)[index];
        *nbytes = Py_SIZE(object);
        return (const unsigned char *)object->ob_sval;
    }
    """
    const uint8_t *ags1_bytes_at(const uint8_t *places, long long index, long long *nbytes) nogil
    void __builtin_prefetch(const void *) nogil

# Consecutive items that are laid out alike. All memory belongs to others, who may change it while it is read: so a
# place is compared with its bounds each time that it is used.
cdef struct Span:
    int kind
    int64_t first            # index of the first item
    int64_t count
    const uint8_t *data
    int64_t nbytes           # at data
    int64_t stride
    int64_t width            # bytes of each item: STRIDED, ONE, and the fixed part of NUMBERED
    int64_t number           # NUMBERED: of index 0
    const uint8_t *places    # offsets, views, pointers or objects
    const int64_t *lengths   # POINTERS
    const uint8_t *validity  # a bitmap, or NULL
    int64_t validity_start   # bit of the first item
    const void **buffers     # VIEWS: what the views point into, and how large each is
    const int64_t *buffer_nbytes
    int64_t buffer_count


cdef inline int64_t load_64(const uint8_t *place) noexcept nogil:
    cdef int64_t value
    memcpy(&value, place, 8)
    return value


cdef inline int32_t load_32(const uint8_t *place) noexcept nogil:
    cdef int32_t value
    memcpy(&value, place, 4)
    return value


cdef inline int locate(const Span *span, int64_t index, const uint8_t **data, int64_t *nbytes) noexcept nogil:
    """Where item `index` lies: ITEM_HERE, or why there is none. NUMBERED: its fixed part."""
    cdef int64_t start, end, bit, buffer
    cdef const uint8_t *view
    if span.kind <= ITEMS_NUMBERED:
        data[0] = span.data
        nbytes[0] = span.width
        return ITEM_HERE
    index -= span.first
    if span.validity != NULL:
        bit = span.validity_start + index
        if not (span.validity[bit >> 3] >> (bit & 7)) & 1:
            return ITEM_NULL
    if span.kind == ITEMS_OFFSETS_64:
        start = load_64(span.places + 8 * index)
        end = load_64(span.places + 8 * index + 8)
    elif span.kind == ITEMS_OFFSETS_32:
        start = load_32(span.places + 4 * index)
        end = load_32(span.places + 4 * index + 4)
    elif span.kind == ITEMS_POINTERS:
        data[0] = (<const uint8_t **>span.places)[index]
        nbytes[0] = span.lengths[index]
        return ITEM_HERE
    elif span.kind == ITEMS_BYTES:
        data[0] = ags1_bytes_at(span.places, index, <long long *>nbytes)
        return ITEM_HERE
    elif span.kind == ITEMS_STRIDED:
        data[0] = span.data + index * span.stride
        nbytes[0] = span.width
        return ITEM_HERE
    elif span.kind == ITEMS_VIEWS:
        view = span.places + 16 * index
        end = load_32(view)
        if 0 <= end <= 12:
            data[0] = view + 4
            nbytes[0] = end
            return ITEM_HERE
        buffer = load_32(view + 8)
        start = load_32(view + 12)
        if end < 0 or start < 0 or not 0 <= buffer < span.buffer_count or end > span.buffer_nbytes[buffer] - start:
            return ITEM_OUTSIDE
        data[0] = <const uint8_t *>span.buffers[buffer] + start
        nbytes[0] = end
        return ITEM_HERE
    else:
        return ITEM_NULL
    if not 0 <= start <= end <= span.nbytes:
        return ITEM_OUTSIDE
    data[0] = span.data + start
    nbytes[0] = end - start
    return ITEM_HERE


cdef inline void expect(const Span *span, int64_t index) noexcept nogil:
    """Bring what :c:func:`locate` is going to read of an item into the cache: objects lie anywhere."""
    if span.kind == ITEMS_BYTES and index - span.first < span.count:
        __builtin_prefetch((<const void **>span.places)[index - span.first])


# The memory of Python objects, held while native code works on it.
cdef class Hold:
    cdef int64_t capacity
    cdef int64_t count
    cdef int64_t held
    cdef const uint8_t **pointers
    cdef int64_t *lengths
    cdef Py_buffer *exports
    cdef int reserve(self, int64_t capacity) except -1
    cdef int take(self, object item, int64_t index, str what) except -1
    cdef void let_go(self) noexcept

# A sequence of items, in spans that native code finds, or of Python objects.
cdef class Items:
    cdef str what            # what one item is called in errors
    cdef int64_t count
    cdef bint nullable
    cdef bint endless        # any count of items: ONE and NUMBERED
    cdef bint held           # objects that are no bytes, so that a Hold has to hold them, window by window
    cdef PyObject **objects  # in `owners`, or referred to by `own`
    cdef PyObject **own
    cdef Span *spans
    cdef int64_t span_count
    cdef int64_t span_capacity
    cdef int64_t last_span   # where the last look-up ended
    cdef list owners
    cdef Span *add(self) except NULL
    cdef int64_t span_at(self, int64_t index, Span *span) noexcept
    cdef int64_t window(self, int64_t first, int64_t limit, Hold hold, Span *span) except -1
    cdef int refuse(self, int64_t index) except -1
    cdef bint overlaps(self, const uint8_t *memory, int64_t nbytes) noexcept

cdef Items items_of(object source, str what)
cdef Items pair_of(object data, object offsets, str what)
cdef Items one_item(object source, str what)

# Memory of `owner`, as a read-only buffer.
cdef class Memory:
    cdef const uint8_t *start
    cdef Py_ssize_t nbytes
    cdef object owner

cdef tuple export_binary(
    object owner, const uint8_t *validity, const int64_t *offsets, const uint8_t *data, int64_t offset, int64_t count,
    int64_t null_count)
