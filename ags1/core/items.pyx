"""Many items (plaintexts, streams, keys, AAD prefixes) wherever they lie, found by native code without the GIL.

    list of buffers        [ obj ] [ obj ] [ obj ]          held one window at a time
    (data, offsets)        | 0 | 1    | 2 |                 offsets: integers, one more than items; ags1.core.offsets
    Arrow array            validity, offsets, data          Binary, String, their Large and View forms, FixedSizeBinary
    chunked Arrow array    one span a chunk
    array of two or more dimensions                         one item a row
    one buffer             the same for every index
    NumberedPrefixes       fixed part, then the index       made where it is needed

Arrow's data comes through the PyCapsule interface, so pyarrow, polars, pandas and others give it without a copy, and
none of them is imported. Native code asks :c:func:`locate` for one item; it checks the bounds each time, because the
memory is not ours.

Source: Arrow Columnar Format, "Physical Memory Layout"; The Arrow C data interface; The Arrow PyCapsule Interface.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_CheckBuffer, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.memoryview cimport PyMemoryView_GET_BUFFER
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from cpython.sequence cimport PySequence_Fast_ITEMS
from cpython.tuple cimport PyTuple_GET_SIZE
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from ags1.core.buffer cimport BufferView, holds_objects, overlap, readable
from ags1.core.gcm cimport Key
from ags1.core.offsets cimport is_pair, offsets_of, vouch
from ags1.core.arrow cimport ArrowArray, ArrowArrayStream, ArrowSchema

import operator

cdef int64_t MAX_COUNT = <int64_t>1 << 48
# Objects that are brought into the cache ahead: a million of them lie all over the memory.
cdef int64_t AHEAD = 16
# What may be looked at is not known of memory that Arrow's interface describes: no item lies beyond this.
cdef const uint8_t *NOTHING = b""


cdef class NumberedPrefixes:
    """NumberedPrefixes(fixed=b"", first=0)
--

    AAD prefixes that need no memory: a fixed part, then the position in the batch as a 64-bit little-endian number.

    Parameters
    ----------
    fixed : buffer
        What every prefix begins with, for example the name of a table and a column.
    first : int
        Number of the first item, for a batch that is a later part of something, or a slice of another.

    Raises
    ------
    TypeError
        `fixed` is no buffer, or `first` no integer.
    ValueError
        `first` is negative, or above 2^63 - 1.

    Notes
    -----
    Nulls count too: an item's number is its position. ``prefixes[i]`` is the prefix of item `i` as bytes, for
    :func:`ags1.decrypt` of a single stream. Immutable, so safe to share between threads.
    """

    cdef readonly bytes fixed
    cdef readonly int64_t first

    def __cinit__(self, fixed=b"", first=0):
        cdef BufferView view = readable(fixed, "fixed")
        number = operator.index(first)
        if not 0 <= number < 1 << 63:
            raise ValueError(f"first must be 0 to 2^63 - 1, got {number}")
        self.fixed = view.data[:view.nbytes]
        self.first = number

    def __getitem__(self, index):
        number = operator.index(index)
        if number < 0 or self.first + number >= 1 << 63:
            raise IndexError(f"item {number} has no number between 0 and 2^63 - 1")
        return self.fixed + (self.first + number).to_bytes(8, "little")

    def __repr__(self):
        return f"NumberedPrefixes({self.fixed!r}, first={self.first})"

    def __reduce__(self):
        return NumberedPrefixes, (self.fixed, self.first)


cdef class Memory:
    """Read-only memory that `owner` keeps alive, as a buffer."""

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        PyBuffer_FillInfo(buffer, self, <void *>self.start, self.nbytes, True, flags)


cdef class Hold:
    """Memory of Python objects, held from take() to let_go(); that of bytes, which cannot change, by their owner."""

    def __dealloc__(self):
        self.let_go()
        PyMem_Free(self.pointers)
        PyMem_Free(self.lengths)
        PyMem_Free(self.exports)

    cdef int reserve(self, int64_t capacity) except -1:
        """Make room for so many items; nothing may be held yet."""
        if self.capacity >= capacity:
            return 0
        self.capacity = 0
        PyMem_Free(self.pointers)
        PyMem_Free(self.lengths)
        PyMem_Free(self.exports)
        self.exports = NULL
        self.pointers = <const uint8_t **>PyMem_Malloc(capacity * sizeof(void *))
        self.lengths = <int64_t *>PyMem_Malloc(capacity * sizeof(int64_t))
        if self.pointers == NULL or self.lengths == NULL:
            raise MemoryError(f"no memory for {capacity} buffers")
        self.capacity = capacity
        return 0

    cdef int take(self, object item, int64_t index, str what) except -1:
        cdef Py_buffer *export
        if PyBytes_CheckExact(item):
            self.pointers[self.count] = <const uint8_t *>PyBytes_AS_STRING(item)
            self.lengths[self.count] = PyBytes_GET_SIZE(item)
            self.count += 1
            return 0
        if isinstance(item, Key):
            self.pointers[self.count] = (<Key>item).octets
            self.lengths[self.count] = (<Key>item).length
            self.count += 1
            return 0
        if self.exports == NULL:
            self.exports = <Py_buffer *>PyMem_Malloc(self.capacity * sizeof(Py_buffer))
            if self.exports == NULL:
                raise MemoryError(f"no memory for {self.capacity} buffers")
        export = &self.exports[self.held]
        try:
            PyObject_GetBuffer(item, export, PyBUF_SIMPLE)
        except (TypeError, ValueError, BufferError):
            # Again, for the message.
            readable(item, f"{what} {index}")
            raise
        self.held += 1
        if holds_objects(item):
            readable(item, f"{what} {index}")
        self.pointers[self.count] = <const uint8_t *>export.buf
        self.lengths[self.count] = export.len
        self.count += 1
        return 0

    cdef void let_go(self) noexcept:
        self.count = 0
        while self.held > 0:
            self.held -= 1
            PyBuffer_Release(&self.exports[self.held])


cdef class _Array:
    """An ArrowArray that is ours to release."""

    cdef ArrowArray array

    def __dealloc__(self):
        if self.array.release != NULL:
            self.array.release(&self.array)


cdef class _Schema:
    """An ArrowSchema that is ours to release."""

    cdef ArrowSchema schema

    def __dealloc__(self):
        if self.schema.release != NULL:
            self.schema.release(&self.schema)


cdef class Items:
    """A sequence of items. `count` is how many there are; `nullable`, whether some of them may be nulls."""

    def __dealloc__(self):
        cdef int64_t index
        for index in range(self.span_count):
            PyMem_Free(<void *>self.spans[index].buffer_nbytes)
        PyMem_Free(self.spans)
        if self.own != NULL:
            for index in range(self.count):
                __builtin_prefetch(self.own[min(index + AHEAD, self.count - 1)])
                Py_DECREF(<object>self.own[index])
            PyMem_Free(self.own)

    cdef Span *add(self) except NULL:
        """A new span behind the others, all zero but its first index."""
        cdef Span *grown
        cdef int64_t capacity
        if self.span_count == self.span_capacity:
            capacity = max(1, 2 * self.span_capacity)
            grown = <Span *>PyMem_Realloc(self.spans, capacity * sizeof(Span))
            if grown == NULL:
                raise MemoryError(f"no memory for {capacity} chunks")
            self.spans = grown
            self.span_capacity = capacity
        grown = &self.spans[self.span_count]
        memset(grown, 0, sizeof(Span))
        grown.first = self.count
        grown.data = NOTHING
        self.span_count += 1
        return grown

    cdef int64_t span_at(self, int64_t index, Span *span) noexcept:
        """Copy the span that has item `index`, and return where it ends."""
        cdef Span *found
        if self.last_span >= self.span_count or index < self.spans[self.last_span].first:
            self.last_span = 0
        while True:
            found = &self.spans[self.last_span]
            if self.endless or index < found.first + found.count or self.last_span + 1 == self.span_count:
                break
            self.last_span += 1
        span[0] = found[0]
        return MAX_COUNT if self.endless else found.first + found.count

    cdef int64_t window(self, int64_t first, int64_t limit, Hold hold, Span *span) except -1:
        """Describe items from `first` on, no more than up to `limit`; return the end of what is described."""
        cdef int64_t index
        if not self.held:
            return min(limit, self.span_at(first, span))
        memset(span, 0, sizeof(Span))
        hold.reserve(limit - first)
        for index in range(first, limit):
            hold.take(<object>self.objects[index], index, self.what)
        span.kind = ITEMS_POINTERS
        span.first = first
        span.count = limit - first
        span.places = <const uint8_t *>hold.pointers
        span.lengths = hold.lengths
        return limit

    cdef int refuse(self, int64_t index) except -1:
        """Raise why item `index` is outside of its memory."""
        cdef Span span
        cdef int64_t start, end, place
        self.span_at(index, &span)
        place = index - span.first
        if span.kind == ITEMS_OFFSETS_64:
            start, end = load_64(span.places + 8 * place), load_64(span.places + 8 * place + 8)
        elif span.kind == ITEMS_OFFSETS_32:
            start, end = load_32(span.places + 4 * place), load_32(span.places + 4 * place + 4)
        else:
            raise ValueError(f"{self.what} {index}: its view points outside of the array's memory")
        raise ValueError(
            f"{self.what} {index}: its offsets are {start} and {end}, but offsets must ascend from 0 at least to "
            f"{span.nbytes} at most, the length of the data"
        )

    cdef bint overlaps(self, const uint8_t *memory, int64_t nbytes) noexcept:
        """Whether spans, or what describes them, share a byte with this memory."""
        cdef Span *span
        cdef int64_t index, buffer, width
        for index in range(self.span_count):
            span = &self.spans[index]
            if span.kind == ITEMS_BYTES:
                continue
            if span.kind == ITEMS_STRIDED:
                if span.count > 0 and span.width > 0 and overlap(
                        span.data + min(0, (span.count - 1) * span.stride),
                        abs((span.count - 1) * span.stride) + span.width, memory, nbytes):
                    return True
                continue
            width = span.width if span.kind <= ITEMS_NUMBERED else span.nbytes
            if overlap(span.data, width, memory, nbytes):
                return True
            width = (16 if span.kind == ITEMS_VIEWS else 8 if span.kind == ITEMS_OFFSETS_64 else 4)
            if span.places != NULL and overlap(span.places, (span.count + 1) * width, memory, nbytes):
                return True
            if span.validity != NULL and overlap(
                    span.validity + (span.validity_start >> 3), (span.count >> 3) + 1, memory, nbytes):
                return True
            for buffer in range(span.buffer_count):
                if overlap(<const uint8_t *>span.buffers[buffer], span.buffer_nbytes[buffer], memory, nbytes):
                    return True
        return False


# -- what items come as ------------------------------------------------------------------------------------------


cdef int _take_objects(Items self, object source) except -1:
    """Refer to the objects of an iterable, as they are now."""
    cdef list entries
    cdef PyObject **items
    cdef Py_ssize_t index, count
    cdef bint plain = True
    cdef Span *span
    if type(source) is tuple:
        self.objects = PySequence_Fast_ITEMS(source)
        self.count = count = PyTuple_GET_SIZE(source)
    elif type(source) is list:
        # A list of millions is not copied to a tuple: that waits for each object's memory by itself.
        entries = <list>source
        self.count = 0
        count = PyList_GET_SIZE(entries)
        self.own = self.objects = <PyObject **>PyMem_Malloc((count + 1) * sizeof(void *))
        if self.own == NULL:
            raise MemoryError(f"no memory for {count} {self.what}s")
        items = PySequence_Fast_ITEMS(entries)
        for index in range(count):
            __builtin_prefetch(items[min(index + AHEAD, count - 1)])
            self.own[index] = items[index]
            Py_INCREF(<object>items[index])
        self.count = count
    else:
        entries = list(source)
        self.owners.append(entries)
        self.objects = PySequence_Fast_ITEMS(entries)
        self.count = count = PyList_GET_SIZE(entries)
    for index in range(count):
        __builtin_prefetch(self.objects[min(index + AHEAD, count - 1)])
        if not PyBytes_CheckExact(<object>self.objects[index]):
            plain = False
            break
    self.held = not plain
    if plain:
        count = self.count
        self.count = 0
        span = self.add()
        span.kind = ITEMS_BYTES
        span.count = self.count = count
        span.places = <const uint8_t *>self.objects
    return 0


cdef int _take_pair(Items self, object data, object offsets) except -1:
    cdef BufferView memory = readable(data, "data")
    cdef memoryview places = offsets_of(data, offsets)
    cdef Py_buffer *buffer = PyMemoryView_GET_BUFFER(places)
    cdef Span *span
    span = self.add()
    span.kind = ITEMS_OFFSETS_64 if buffer.itemsize == 8 else ITEMS_OFFSETS_32
    span.count = buffer.shape[0] - 1
    span.data = memory.data
    span.nbytes = memory.nbytes
    span.places = <const uint8_t *>buffer.buf
    self.owners += [memory, places]
    self.count += span.count
    return 0


cdef Items pair_of(object data, object offsets, str what):
    """The items between offsets into one piece of memory."""
    cdef Items self = Items.__new__(Items)
    self.what = what
    self.owners = []
    _take_pair(self, data, offsets)
    return self


cdef int _take_rows(Items self, memoryview view) except -1:
    cdef Py_buffer *buffer = PyMemoryView_GET_BUFFER(view)
    cdef int64_t width = buffer.itemsize
    cdef int dimension
    cdef Span *span
    for dimension in range(buffer.ndim - 1, 0, -1):
        if buffer.shape[dimension] > 1 and buffer.strides[dimension] != width or buffer.suboffsets != NULL:
            raise ValueError(
                f"the rows of this array of {self.what}s must be C-contiguous: pass numpy.ascontiguousarray(...)"
            )
        width *= buffer.shape[dimension]
    span = self.add()
    span.kind = ITEMS_STRIDED
    span.count = buffer.shape[0]
    span.data = <const uint8_t *>buffer.buf
    span.stride = buffer.strides[0]
    span.width = width
    self.owners.append(view)
    self.count += span.count
    return 0


cdef int _kind_of(const ArrowSchema *schema, str what) except -1:
    """How an Arrow array of this type is laid out."""
    cdef bytes layout = schema.format
    if schema.dictionary != NULL:
        raise TypeError(f"{what}s are a dictionary-encoded Arrow array: decode it first")
    if layout == b"n":
        return ITEMS_NULL
    if layout in (b"z", b"u"):
        return ITEMS_OFFSETS_32
    if layout in (b"Z", b"U"):
        return ITEMS_OFFSETS_64
    if layout in (b"vz", b"vu"):
        return ITEMS_VIEWS
    if layout[:2] == b"w:":
        return ITEMS_STRIDED
    if layout == b"+s":
        raise TypeError(f"{what}s are a table or record batch: pass one of its columns")
    raise TypeError(
        f"{what}s must be an Arrow array of binary, string or fixed_size_binary (or a large or view form of them), "
        f"not of Arrow's format {layout.decode('ascii', 'replace')!r}; ags1.arrow.encrypt_array takes other types too"
    )


cdef int _take_arrow(Items self, const ArrowSchema *schema, const ArrowArray *array) except -1:
    cdef int kind = _kind_of(schema, self.what)
    cdef Span *span = self.add()
    cdef const uint8_t *places
    cdef const uint8_t *sizes
    cdef int64_t index, *copied
    cdef int64_t least = 0 if kind == ITEMS_NULL else 2 if kind == ITEMS_STRIDED else 3
    if array.length < 0 or array.offset < 0 or array.length > MAX_COUNT - array.offset or array.n_buffers < least:
        raise ValueError(f"{self.what}s are an Arrow array of impossible shape")
    span.kind = kind
    span.count = array.length
    self.count += array.length
    if array.length == 0:
        return 0
    if kind == ITEMS_NULL:
        self.nullable = True
        return 0
    if array.buffers[0] != NULL and array.null_count != 0:
        span.validity = <const uint8_t *>array.buffers[0]
        span.validity_start = array.offset
        self.nullable = True
    places = <const uint8_t *>array.buffers[1]
    if kind == ITEMS_STRIDED:
        span.width = span.stride = int((<bytes>schema.format)[2:])
        if span.width > 0:
            span.data = places + array.offset * span.width
    elif kind == ITEMS_VIEWS:
        span.places = places + 16 * array.offset
        span.buffers = array.buffers + 2
        span.buffer_count = array.n_buffers - 3
        # A copy: the producer may have it in memory that is not aligned.
        sizes = <const uint8_t *>array.buffers[array.n_buffers - 1]
        copied = <int64_t *>PyMem_Malloc((span.buffer_count + 1) * sizeof(int64_t))
        if copied == NULL:
            raise MemoryError("no memory for the sizes of an Arrow array's buffers")
        for index in range(span.buffer_count):
            copied[index] = load_64(sizes + 8 * index)
        span.buffer_nbytes = copied
    else:
        if kind == ITEMS_OFFSETS_64:
            span.places = places + 8 * array.offset
            span.nbytes = load_64(span.places + 8 * array.length)
        else:
            span.places = places + 4 * array.offset
            span.nbytes = load_32(span.places + 4 * array.length)
        if array.buffers[2] != NULL:
            span.data = <const uint8_t *>array.buffers[2]
    return 0


cdef int _take_capsules(Items self, tuple capsules) except -1:
    cdef const ArrowSchema *schema = <const ArrowSchema *>PyCapsule_GetPointer(capsules[0], b"arrow_schema")
    cdef const ArrowArray *array = <const ArrowArray *>PyCapsule_GetPointer(capsules[1], b"arrow_array")
    # They release what they hold when they die.
    self.owners += capsules
    return _take_arrow(self, schema, array)


cdef int _take_stream(Items self, object capsule) except -1:
    cdef ArrowArrayStream *stream = <ArrowArrayStream *>PyCapsule_GetPointer(capsule, b"arrow_array_stream")
    cdef _Schema schema = _Schema()
    cdef _Array array
    _check_stream(stream, stream.get_schema(stream, &schema.schema))
    while True:
        array = _Array()
        _check_stream(stream, stream.get_next(stream, &array.array))
        if array.array.release == NULL:
            break
        self.owners.append(array)
        _take_arrow(self, &schema.schema, &array.array)
    # The type is checked of no chunks too.
    _kind_of(&schema.schema, self.what)
    return 0


cdef int _check_stream(ArrowArrayStream *stream, int status) except -1:
    cdef const char *text
    if status:
        text = stream.get_last_error(stream)
        raise ValueError(f"the Arrow stream failed: {text.decode('utf-8', 'replace') if text != NULL else status}")
    return 0


cdef Items items_of(object source, str what):
    """The items of a sequence, an array, or a pair of data and offsets; `what` names one of them in errors."""
    cdef Items self = Items.__new__(Items)
    self.what = what
    self.owners = [source]
    if is_pair(source):
        _take_pair(self, source[0], source[1])
    elif isinstance(source, (list, tuple)):
        _take_objects(self, source)
    elif hasattr(source, "__arrow_c_array__") or hasattr(source, "__arrow_c_stream__"):
        if str(getattr(source, "dtype", "")) == "Object":
            # polars hands out the addresses of such objects as if they were bytes.
            raise TypeError(f"{what}s are an array of Python objects: pass a list of bytes-like objects")
        vouch(source)
        if hasattr(source, "__arrow_c_array__"):
            _take_capsules(self, source.__arrow_c_array__())
        else:
            _take_stream(self, source.__arrow_c_stream__())
    elif isinstance(source, (str, dict, set, frozenset)):
        raise TypeError(f"{what}s must be a sequence of bytes-like objects or an array, not {type(source).__name__}")
    elif PyObject_CheckBuffer(source):
        view = memoryview(source)
        if view.ndim < 2 and view.format != "O":
            raise TypeError(
                f"{what}s must be a sequence of bytes-like objects, an Arrow array, (data, offsets), or an array of "
                f"two dimensions, not one {type(source).__name__}"
            )
        if view.format != "O":
            if holds_objects(source):
                raise TypeError(f"{what}s are an array of Python objects: pass a list of bytes-like objects")
            _take_rows(self, view)
        else:
            _take_objects(self, source)
    else:
        _take_objects(self, source)
    return self


cdef Items one_item(object source, str what):
    """The same item for every index: a buffer, a Key, or NumberedPrefixes."""
    cdef Items self = Items.__new__(Items)
    cdef Span *span = self.add()
    cdef BufferView view
    self.what = what
    self.endless = True
    self.count = 0
    if isinstance(source, NumberedPrefixes):
        span.kind = ITEMS_NUMBERED
        span.data = <const uint8_t *>PyBytes_AS_STRING((<NumberedPrefixes>source).fixed)
        span.width = PyBytes_GET_SIZE((<NumberedPrefixes>source).fixed)
        span.number = (<NumberedPrefixes>source).first
        self.owners = [source]
    elif isinstance(source, Key):
        span.data = (<Key>source).octets
        span.width = (<Key>source).length
        self.owners = [source]
    else:
        view = readable(source, what)
        span.data = view.data
        span.width = view.nbytes
        self.owners = [view]
    return self


# -- handing a batch to Arrow ------------------------------------------------------------------------------------

cdef void _release_schema(ArrowSchema *schema) noexcept:
    schema.release = NULL


cdef void _release_array(ArrowArray *array) noexcept with gil:
    Py_DECREF(<object>array.private_data)
    free(array.buffers)
    array.release = NULL


cdef void _destroy_schema(object capsule) noexcept:
    cdef ArrowSchema *schema = <ArrowSchema *>PyCapsule_GetPointer(capsule, b"arrow_schema")
    if schema.release != NULL:
        schema.release(schema)
    free(schema)


cdef void _destroy_array(object capsule) noexcept:
    cdef ArrowArray *array = <ArrowArray *>PyCapsule_GetPointer(capsule, b"arrow_array")
    if array.release != NULL:
        array.release(array)
    free(array)


cdef tuple export_binary(
        object owner, const uint8_t *validity, const int64_t *offsets, const uint8_t *data, int64_t offset,
        int64_t count, int64_t null_count):
    """Capsules of a LargeBinary array over memory that `owner` keeps alive."""
    cdef ArrowSchema *schema = <ArrowSchema *>malloc(sizeof(ArrowSchema))
    cdef ArrowArray *array
    if schema == NULL:
        raise MemoryError("no memory for a description of an Arrow array")
    memset(schema, 0, sizeof(ArrowSchema))
    schema.format = b"Z"
    schema.name = b""
    schema.flags = 2
    schema.release = _release_schema
    described = PyCapsule_New(schema, b"arrow_schema", _destroy_schema)
    array = <ArrowArray *>malloc(sizeof(ArrowArray))
    if array == NULL:
        raise MemoryError("no memory for a description of an Arrow array")
    memset(array, 0, sizeof(ArrowArray))
    content = PyCapsule_New(array, b"arrow_array", _destroy_array)
    array.buffers = <const void **>malloc(3 * sizeof(void *))
    if array.buffers == NULL:
        raise MemoryError("no memory for a description of an Arrow array")
    array.buffers[0] = validity
    array.buffers[1] = offsets
    array.buffers[2] = data
    array.n_buffers = 3
    array.length = count
    array.offset = offset
    array.null_count = null_count
    Py_INCREF(owner)
    array.private_data = <void *>owner
    array.release = _release_array
    return described, content
