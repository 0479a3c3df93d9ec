"""Nodes of a tree of Thrift compact values: spans of a source that are parsed on access, and written back.

    source     ... 19 1c 15 02 16 80 02 00 ...        bytes of a footer, held by a BufferView
                   |     |
    Node          [span] [1: span] [2: inline 7] [3: object -> Node] ...       ags1_item, 16 bytes each
                   |
                 not opened yet: no items

A node is opened by one walk over its bytes (compact_items.h). When it is written, `measure` first finds out which nodes
must be rewritten, and how long everything becomes; then the bytes are made in one piece::

    item = &node.items[index]
    value = value_of(node, item)              # a number, bytes, or a Node that then stays in the item
    replace(node, index, item_from(...))
    encoded(node)

The classes that callers see, Struct and List, are in thrift. A map, which Parquet has none of, is bytes that are kept.
Source: see compact.h.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.number cimport PyIndex_Check, PyNumber_Index
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport UINT32_MAX, int64_t, uint8_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memmove, memset

from ags1.core.buffer cimport BufferView, readable
from ags1.core.compact cimport (
    AGS1_COMPACT_BINARY, AGS1_COMPACT_DEPTH, AGS1_COMPACT_DOUBLE, AGS1_COMPACT_END, AGS1_COMPACT_FALSE,
    AGS1_COMPACT_FIELD_ID, AGS1_COMPACT_I8, AGS1_COMPACT_KIND, AGS1_COMPACT_LIST, AGS1_COMPACT_MAP,
    AGS1_COMPACT_MAX_DEPTH, AGS1_COMPACT_SET, AGS1_COMPACT_SIZE, AGS1_COMPACT_STOP, AGS1_COMPACT_STRUCT,
    AGS1_COMPACT_TRUE, AGS1_COMPACT_UUID, AGS1_COMPACT_VARINT, ags1_compact, ags1_compact_binary, ags1_compact_byte,
    ags1_compact_put_varint, ags1_compact_skip, ags1_compact_zigzag,
)
from ags1.core.compact_items cimport (
    AGS1_ITEM_INLINE, AGS1_ITEM_OBJECT, AGS1_ITEM_SPAN, AGS1_ITEMS_DUPLICATE, AGS1_ITEMS_NO_MEMORY, ags1_integer_fits,
    ags1_is_container, ags1_is_integer, ags1_item, ags1_item_inline_size, ags1_item_put_header, ags1_item_put_inline,
    ags1_items, ags1_items_put_list, ags1_items_reserve, ags1_items_walk,
)

from ags1.errors import FormatError, TruncatedError

cdef extern from *:
    """
    /* type.__new__(type), without looking it up each time. */
    static PyObject *ags1_new(PyObject *type, PyObject *nothing)
    {
        return ((PyTypeObject *)type)->tp_new((PyTypeObject *)type, nothing, NULL);
    }
    """
    object ags1_new(object type, tuple nothing)

# A walk of more bytes than this releases the GIL.
cdef int64_t LONG_WALK = 1 << 20

cdef tuple KIND_NAMES = (
    "nothing", "bool", "bool", "i8", "i16", "i32", "i64", "double", "binary", "list", "set", "map", "struct", "uuid",
)

cdef object STRUCT_TYPE = None
cdef object LIST_TYPE = None


cdef void set_types(object struct_type, object list_type) noexcept:
    global STRUCT_TYPE, LIST_TYPE
    STRUCT_TYPE = struct_type
    LIST_TYPE = list_type


cdef str kind_name(int kind):
    return KIND_NAMES[kind]


@cython.no_gc
cdef class Node:
    """The base of Struct and List; callers do not make it.

    References go from a node to its children only, and a child never was anybody else's: callers' values are copied.
    So there are no cycles for the garbage collector to find, every node has one depth, and no recursion over nodes is
    deeper than AGS1_COMPACT_MAX_DEPTH.
    """

    __hash__ = None

    def __cinit__(self):
        self.what = "Thrift structure"
        self.depth = 1
        self.opened = True
        self.altered = True

    def __dealloc__(self):
        cdef int64_t index
        for index in range(self.count):
            drop(&self.items[index])
        free(self.items)

    def __eq__(self, other):
        if type(other) is not type(self):
            return NotImplemented
        return self is other or encoded(self) == encoded(<Node>other)

    def __reduce__(self):
        raise TypeError(f"a {type(self).__name__} cannot be pickled: send the bytes of encode() instead")


cdef void drop(ags1_item *item) noexcept:
    if item.form == AGS1_ITEM_OBJECT:
        Py_DECREF(<object><PyObject *><uintptr_t>item.data)


cdef object held(const ags1_item *item):
    return <object><PyObject *><uintptr_t>item.data


cdef void hold(ags1_item *item, object value) noexcept:
    """Make the item, which is empty, own the value."""
    Py_INCREF(value)
    item.data = <int64_t><uintptr_t><PyObject *>value
    item.form = AGS1_ITEM_OBJECT


cdef Node made(int shape):
    return <Node>ags1_new(STRUCT_TYPE if shape == AGS1_COMPACT_STRUCT else LIST_TYPE, ())


# -- opening ---------------------------------------------------------------------------------------------------


cdef Node unopened(BufferView source, object what, int shape, int depth, int64_t start, int64_t length):
    cdef Node node = made(shape)
    node.source = source
    node.what = what
    node.start = start
    node.length = length
    node.depth = <uint8_t>depth
    node.opened = False
    node.altered = False
    return node


cdef int open_node(Node self) except -1:
    cdef ags1_items found
    cdef ags1_item *items
    memset(&found, 0, sizeof(found))
    found.base = self.source.data
    found.cursor.at = found.base + self.start
    found.cursor.end = found.cursor.at + self.length
    if self.length > LONG_WALK:
        with nogil:
            ags1_items_walk(&found, self.shape, self.depth)
    else:
        ags1_items_walk(&found, self.shape, self.depth)
    if found.cursor.error:
        free(found.items)
        raise failure(self.what, &found.cursor, found.base, found.duplicate)
    if self.opened:
        # Another thread has opened it.
        free(found.items)
        return 0
    if found.count and found.capacity > found.count:
        items = <ags1_item *>realloc(found.items, <size_t>found.count * sizeof(ags1_item))
        if items != NULL:
            found.items = items
            found.capacity = found.count
    self.items = found.items
    self.count = found.count
    self.capacity = found.capacity
    self.first = <uint8_t>found.first
    self.length = found.cursor.at - (found.base + self.start)
    self.opened = True
    return 0


cdef object failure(object what, const ags1_compact *cursor, const uint8_t *base, int duplicate):
    """The exception for a cursor's error."""
    cdef int64_t position = cursor.at - base
    cdef int error = cursor.error
    if error == AGS1_ITEMS_NO_MEMORY:
        return MemoryError()
    if error == AGS1_COMPACT_END:
        return TruncatedError(f"{what}: the bytes end inside a value, at byte {position}")
    if error == AGS1_COMPACT_SIZE:
        return TruncatedError(f"{what}: byte {position}: the size before it is larger than all that is left")
    if error == AGS1_COMPACT_VARINT:
        reason = "a varint of more than 64 bits ends here"
    elif error == AGS1_COMPACT_KIND:
        reason = "the byte before it names a kind of value that does not exist"
    elif error == AGS1_COMPACT_DEPTH:
        reason = f"values are nested deeper than {AGS1_COMPACT_MAX_DEPTH}"
    elif error == AGS1_COMPACT_FIELD_ID:
        reason = "a field id does not fit 16 bits"
    elif error == AGS1_ITEMS_DUPLICATE:
        reason = f"the struct here has field {duplicate} twice"
    else:
        reason = "a value of 4 GiB or more ends here"
    return FormatError(f"{what}: byte {position}: {reason}")


# -- what an item is -------------------------------------------------------------------------------------------


cdef inline ags1_compact cursor_at(Node self, const ags1_item *item) noexcept:
    cdef ags1_compact cursor
    cursor.at = self.source.data + item.data
    cursor.end = cursor.at + item.length
    cursor.error = 0
    return cursor


cdef object place(Node self, const ags1_item *item):
    """The name of an item in messages."""
    return f"field {item.id}" if self.shape == AGS1_COMPACT_STRUCT else f"an item ({KIND_NAMES[item.kind]})"


cdef int64_t number_of(Node self, const ags1_item *item) except? -1:
    """The integer value of an item."""
    cdef ags1_compact cursor
    cdef int64_t number
    cdef int64_t position
    if item.form == AGS1_ITEM_INLINE:
        return item.data
    cursor = cursor_at(self, item)
    if item.kind == AGS1_COMPACT_I8:
        number = <signed char>ags1_compact_byte(&cursor)
    else:
        number = ags1_compact_zigzag(&cursor)
    position = cursor.at - self.source.data
    if cursor.error:
        raise failure(self.what, &cursor, self.source.data, 0)
    if not ags1_integer_fits(item.kind, number):
        raise FormatError(
            f"{self.what}: byte {position}: {place(self, item)} is {number}, too large for {KIND_NAMES[item.kind]}"
        )
    return number


cdef bint truth_of(Node self, const ags1_item *item) except -1:
    """The bool value of an item."""
    cdef ags1_compact cursor
    cdef int octet
    if self.shape == AGS1_COMPACT_STRUCT:
        return item.kind == AGS1_COMPACT_TRUE
    if item.form == AGS1_ITEM_INLINE:
        return item.data
    cursor = cursor_at(self, item)
    octet = ags1_compact_byte(&cursor)
    if octet > 2:
        raise FormatError(
            f"{self.what}: byte {item.data}: a bool in a list is {octet}, neither true (1) nor false (0 or 2)"
        )
    return octet == 1


cdef double double_of(Node self, const ags1_item *item) noexcept:
    cdef uint64_t bits = <uint64_t>item.data
    cdef const uint8_t *octets
    cdef double value
    cdef int index
    if item.form == AGS1_ITEM_SPAN:
        octets = self.source.data + item.data
        bits = 0
        for index in range(8):
            bits |= <uint64_t>octets[index] << (8 * index)
    memcpy(&value, &bits, 8)
    return value


cdef bytes octets_of(Node self, const ags1_item *item):
    """The bytes of a binary or UUID."""
    cdef ags1_compact cursor
    cdef int64_t size = 16
    if item.form == AGS1_ITEM_OBJECT:
        return <bytes>held(item)
    cursor = cursor_at(self, item)
    if item.kind == AGS1_COMPACT_BINARY:
        size = ags1_compact_binary(&cursor)
        if cursor.error:
            raise failure(self.what, &cursor, self.source.data, 0)
    return PyBytes_FromStringAndSize(<const char *>cursor.at, size)


cdef Node child_of(Node self, ags1_item *item):
    """The node of an item, the same object each time."""
    cdef Node child
    cdef int shape
    if item.form == AGS1_ITEM_OBJECT:
        return <Node>held(item)
    shape = AGS1_COMPACT_LIST if item.kind == AGS1_COMPACT_SET else item.kind
    # No other code runs between here and `hold`: a Node is not tracked by the garbage collector.
    child = unopened(self.source, self.what, shape, self.depth + 1, item.data, item.length)
    hold(item, child)
    return child


cdef object value_of(Node self, ags1_item *item):
    cdef int kind = item.kind
    if ags1_is_integer(kind):
        return number_of(self, item)
    if kind <= AGS1_COMPACT_FALSE:
        return truth_of(self, item)
    if kind == AGS1_COMPACT_DOUBLE:
        return double_of(self, item)
    if kind == AGS1_COMPACT_MAP:
        return PyBytes_FromStringAndSize(<const char *>self.source.data + item.data, item.length)
    if ags1_is_container(kind):
        return child_of(self, item)
    return octets_of(self, item)


# -- values from callers ---------------------------------------------------------------------------------------


cdef ags1_item item_from(int kind, object value, Node parent, object before):
    """An item for a caller's value. `before` is the old item: setting a child to its own place keeps it."""
    cdef ags1_item item
    cdef Node node
    cdef double real
    cdef BufferView view
    memset(&item, 0, sizeof(item))
    item.form = AGS1_ITEM_INLINE
    item.kind = <uint8_t>kind
    if ags1_is_integer(kind):
        item.data = integer_from(kind, value)
    elif kind == AGS1_COMPACT_TRUE or kind == AGS1_COMPACT_FALSE:
        if value is not True and value is not False:
            raise TypeError(f"a bool must be True or False, not {type(value).__name__}")
        if parent.shape == AGS1_COMPACT_STRUCT:
            item.kind = AGS1_COMPACT_TRUE if value is True else AGS1_COMPACT_FALSE
        else:
            item.data = value is True
    elif kind == AGS1_COMPACT_DOUBLE:
        try:
            real = value
        except OverflowError:
            raise ValueError("a double cannot be so large") from None
        memcpy(&item.data, &real, 8)
    elif kind == AGS1_COMPACT_BINARY or kind == AGS1_COMPACT_UUID:
        if type(value) is not bytes:
            view = readable(value, "value")
            value = PyBytes_FromStringAndSize(<const char *>view.data, view.nbytes)
        if kind == AGS1_COMPACT_UUID and PyBytes_GET_SIZE(value) != 16:
            raise ValueError(f"a UUID must be 16 bytes, got {PyBytes_GET_SIZE(value)}")
        hold(&item, value)
    elif kind == AGS1_COMPACT_MAP:
        raise ValueError("a map is kept as it is, and cannot be set")
    else:
        wanted = STRUCT_TYPE if kind == AGS1_COMPACT_STRUCT else LIST_TYPE
        if not isinstance(value, wanted):
            raise TypeError(f"a {KIND_NAMES[kind]} must be a {wanted.__name__}, not {type(value).__name__}")
        node = <Node>value
        if value is not before:
            measure(node)
            node = copied(node, parent.depth + 1)
        hold(&item, node)
    return item


cdef int64_t integer_from(int kind, object value) except? -1:
    cdef int64_t number
    if isinstance(value, bool):
        raise TypeError(f"an {KIND_NAMES[kind]} must be an integer, not bool")
    if not PyIndex_Check(value):
        raise TypeError(f"an {KIND_NAMES[kind]} must be an integer, not {type(value).__name__}")
    value = PyNumber_Index(value)
    try:
        number = value
    except OverflowError:
        raise ValueError(f"an {KIND_NAMES[kind]} cannot be {value}") from None
    if not ags1_integer_fits(kind, number):
        raise ValueError(f"an {KIND_NAMES[kind]} cannot be {number}")
    return number


cdef int insert(Node self, int64_t index, ags1_item item) except -1:
    if not ags1_items_reserve(&self.items, &self.capacity, self.count + 1):
        drop(&item)
        raise MemoryError()
    memmove(&self.items[index + 1], &self.items[index], <size_t>(self.count - index) * sizeof(ags1_item))
    self.items[index] = item
    self.count += 1
    self.altered = True
    return 0


cdef void replace(Node self, int64_t index, ags1_item item) noexcept:
    cdef ags1_item before = self.items[index]
    self.items[index] = item
    self.altered = True
    # Last, because releasing a source may run code of the object that exports its memory.
    drop(&before)


cdef void remove(Node self, int64_t index) noexcept:
    cdef ags1_item before = self.items[index]
    self.count -= 1
    memmove(&self.items[index], &self.items[index + 1], <size_t>(self.count - index) * sizeof(ags1_item))
    self.altered = True
    drop(&before)


# -- copying ---------------------------------------------------------------------------------------------------


cdef Node copied(Node self, int depth):
    """A copy for another depth, after `measure`. Parts that are not rewritten share the bytes of the source."""
    cdef Node copy
    cdef Node child
    cdef int64_t index
    cdef ags1_item *item
    cdef ags1_item *target
    if depth > AGS1_COMPACT_MAX_DEPTH:
        raise ValueError(f"values may be nested {AGS1_COMPACT_MAX_DEPTH} deep at most")
    if not self.rewritten:
        check_depth(self, self.shape, self.start, self.length, depth - 1, self.depth - 1)
        return unopened(self.source, self.what, self.shape, depth, self.start, self.length)
    copy = made(self.shape)
    copy.source = self.source
    copy.what = self.what
    copy.start = self.start
    copy.length = self.length
    copy.first = self.first
    copy.depth = <uint8_t>depth
    copy.altered = self.altered
    if not ags1_items_reserve(&copy.items, &copy.capacity, self.count):
        raise MemoryError()
    for index in range(self.count):
        item = &self.items[index]
        target = &copy.items[index]
        target[0] = item[0]
        if item.form == AGS1_ITEM_SPAN and ags1_is_container(item.kind):
            check_depth(self, item.kind, item.data, item.length, depth, self.depth)
        elif item.form == AGS1_ITEM_OBJECT:
            value = held(item)
            if ags1_is_container(item.kind):
                child = <Node>value
                if not child.rewritten and child.source is self.source and child.length <= UINT32_MAX:
                    check_depth(child, child.shape, child.start, child.length, depth, self.depth)
                    target.form = AGS1_ITEM_SPAN
                    target.data = child.start
                    target.length = <uint32_t>child.length
                    copy.count = index + 1
                    continue
                value = copied(child, depth + 1)
            hold(target, value)
        copy.count = index + 1
    return copy


cdef int check_depth(Node self, int kind, int64_t start, int64_t length, int depth, int before) except -1:
    """Refuse a value of the source that is too deep under `depth` containers; under `before` it was not."""
    cdef ags1_compact cursor
    if depth <= before or self.source is None:
        return 0
    cursor.at = self.source.data + start
    cursor.end = cursor.at + length
    cursor.error = 0
    ags1_compact_skip(&cursor, kind, True, depth)
    if cursor.error == AGS1_COMPACT_DEPTH:
        raise ValueError(f"values may be nested {AGS1_COMPACT_MAX_DEPTH} deep at most")
    return 0


# -- writing ---------------------------------------------------------------------------------------------------


cdef bint measure(Node self) noexcept:
    """Compute for the node and all nodes below it whether it is rewritten, and its new length."""
    cdef bint rewritten = self.altered
    cdef bint field = self.shape == AGS1_COMPACT_STRUCT
    cdef uint8_t scratch[16]
    cdef int64_t size = 1 if field else head_end(self, scratch) - scratch
    cdef int64_t index, length
    cdef int before = 0
    cdef ags1_item *item
    cdef Node child
    for index in range(self.count):
        item = &self.items[index]
        if field:
            size += ags1_item_put_header(scratch, item, before) - scratch
            before = item.id
        if item.form == AGS1_ITEM_SPAN:
            size += item.length
        elif item.form == AGS1_ITEM_INLINE:
            size += ags1_item_inline_size(item, field)
        elif ags1_is_container(item.kind):
            child = <Node>held(item)
            if measure(child):
                rewritten = True
            size += child.size
        else:
            length = PyBytes_GET_SIZE(held(item))
            size += length
            if item.kind == AGS1_COMPACT_BINARY:
                size += ags1_compact_put_varint(scratch, <uint64_t>length)
    self.rewritten = rewritten
    self.size = size if rewritten else self.length
    return rewritten


cdef uint8_t *head_end(Node self, uint8_t *out) noexcept:
    """Write the bytes before the items."""
    if self.shape == AGS1_COMPACT_LIST:
        return ags1_items_put_list(out, self.first, self.count)
    return out


cdef uint8_t *put_node(uint8_t *out, Node self) noexcept:
    """Write a node to the space that `measure` computed."""
    cdef bint field = self.shape == AGS1_COMPACT_STRUCT
    cdef int64_t index
    cdef int before = 0
    cdef ags1_item *item
    if not self.rewritten:
        memcpy(out, self.source.data + self.start, <size_t>self.length)
        return out + self.length
    out = head_end(self, out)
    for index in range(self.count):
        item = &self.items[index]
        if field:
            out = ags1_item_put_header(out, item, before)
            before = item.id
        if item.form == AGS1_ITEM_SPAN:
            memcpy(out, self.source.data + item.data, item.length)
            out += item.length
        elif item.form == AGS1_ITEM_INLINE:
            out = ags1_item_put_inline(out, item, field)
        elif ags1_is_container(item.kind):
            out = put_node(out, <Node>held(item))
        else:
            out = put_octets(out, held(item), item.kind == AGS1_COMPACT_BINARY)
    if field:
        out[0] = AGS1_COMPACT_STOP
        out += 1
    return out


cdef uint8_t *put_octets(uint8_t *out, bytes octets, bint sized) noexcept:
    cdef int64_t length = PyBytes_GET_SIZE(octets)
    if sized:
        out += ags1_compact_put_varint(out, <uint64_t>length)
    memcpy(out, PyBytes_AS_STRING(octets), <size_t>length)
    return out + length


cdef bytes encoded(Node self):
    cdef bytes made_bytes
    opened(self)
    measure(self)
    # No other code runs from here to the end, so the measured lengths stay valid.
    made_bytes = PyBytes_FromStringAndSize(NULL, self.size)
    put_node(<uint8_t *>PyBytes_AS_STRING(made_bytes), self)
    return made_bytes
