# Declarations of ags1.parquet.native.nodes for cimport: nodes of a tree of Thrift compact values.
cimport cython
from libc.stdint cimport int64_t, uint8_t

from ags1.core.buffer cimport BufferView
from ags1.core.compact_items cimport ags1_item


# Said here too, or the classes below it would be tracked.
@cython.no_gc
cdef class Node:
    cdef BufferView source       # None: not parsed, and so altered
    cdef object what             # how messages call the structure: a str, or what makes one when a message needs it
    cdef ags1_item *items        # owned, with the references in them
    cdef int64_t count
    cdef int64_t capacity
    cdef int64_t start           # in the source
    cdef int64_t length          # in the source; of a root an upper bound until it is opened
    cdef int64_t size            # bytes when written, as `measure` found
    cdef uint8_t shape           # AGS1_COMPACT_STRUCT or _LIST (a set too)
    cdef uint8_t first           # kind of a list's items, as on the wire
    cdef uint8_t depth           # containers around its items: 1 for a root
    cdef bint opened             # the items are known
    cdef bint altered            # they are not those of the source
    cdef bint rewritten          # they, or some below them, as `measure` found


# The classes that nodes are made of.
cdef void set_types(object struct_type, object list_type) noexcept
cdef str kind_name(int kind)

# A node for a span of the source. Opening finds its items, and its length.
cdef Node unopened(BufferView source, object what, int shape, int depth, int64_t start, int64_t length)
cdef int open_node(Node self) except -1

cdef inline int opened(Node self) except -1:
    return 0 if self.opened else open_node(self)

# What an item of the node is; a Node is the same each time. `held` is for items of the form object.
cdef object value_of(Node self, ags1_item *item)
cdef object held(const ags1_item *item)
cdef int64_t number_of(Node self, const ags1_item *item) except? -1
cdef bint truth_of(Node self, const ags1_item *item) except -1
cdef bytes octets_of(Node self, const ags1_item *item)
cdef Node child_of(Node self, ags1_item *item)

# An item for a caller's value below `parent`: it may run any code. The reference in it goes over to `insert` or
# `replace`, or is dropped.
cdef ags1_item item_from(int kind, object value, Node parent, object before)
cdef void drop(ags1_item *item) noexcept
cdef int insert(Node self, int64_t index, ags1_item item) except -1
cdef void replace(Node self, int64_t index, ags1_item item) noexcept
cdef void remove(Node self, int64_t index) noexcept

# `copied` and the size and flag in a node are true after `measure`, until something changes.
cdef bint measure(Node self) noexcept
cdef Node copied(Node self, int depth)
cdef bytes encoded(Node self)
