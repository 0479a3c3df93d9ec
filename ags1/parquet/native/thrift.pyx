"""Any Thrift compact structure as an ordered tree, parsed on access, and written back unchanged except for edits.

    15 02  19 1c  15 0a 00  00         bytes: kind and id of a field, its value, ... 00 at the end
    |      |      |
    1: i32 2: list [struct]            Struct.parse records where the fields are, and no more
      = 1          |
                   1: i32 = 5          made when it is asked for, and kept: the same object comes back

    after  .list(2)[0].set(1, I32, 6)
    15 02  19 1c  15 0c 00  00         what changed, and what is around it, is rewritten;
    ^^^^^                              everything else is copied byte for byte

To change a few fields of a structure to which later writers may have added others::

    footer = Struct.parse(data, what="footer of lake.parquet")
    for group in footer.list(4).structs():
        for chunk in group.list(1).structs():
            metadata = chunk.struct(3)
            metadata.set(9, I64, metadata.integer(9) + moved)
    changed = footer.encode()

Unknown parts are kept: fields, union arms, overlong varints, other encodings of a bool. In a rewritten struct only the
headers of its fields may differ. The implementation is in nodes. Source: Thrift compact protocol encoding
specification; ids and names of Parquet's fields are in parquet.thrift.
"""

cimport cython
from libc.stdint cimport INT16_MAX, INT16_MIN, int16_t, int64_t, uint8_t

from ags1.core.buffer cimport BufferView, readable
from ags1.core.compact cimport (
    AGS1_COMPACT_BINARY, AGS1_COMPACT_DOUBLE, AGS1_COMPACT_FALSE, AGS1_COMPACT_I8, AGS1_COMPACT_I16, AGS1_COMPACT_I32,
    AGS1_COMPACT_I64, AGS1_COMPACT_LIST, AGS1_COMPACT_MAP, AGS1_COMPACT_SET, AGS1_COMPACT_STRUCT, AGS1_COMPACT_TRUE,
    AGS1_COMPACT_UUID,
)
from ags1.core.compact_items cimport AGS1_ITEM_OBJECT, ags1_is_integer, ags1_item
from ags1.parquet.native.nodes cimport (
    Node, child_of, copied, encoded, held, insert, item_from, kind_name, measure, number_of, octets_of,
    open_node, opened, remove as remove_at, replace, set_types, truth_of, unopened, value_of,
)

from ags1.errors import FormatError

BOOL = AGS1_COMPACT_TRUE
I8 = AGS1_COMPACT_I8
I16 = AGS1_COMPACT_I16
I32 = AGS1_COMPACT_I32
I64 = AGS1_COMPACT_I64
DOUBLE = AGS1_COMPACT_DOUBLE
BINARY = AGS1_COMPACT_BINARY
LIST = AGS1_COMPACT_LIST
SET = AGS1_COMPACT_SET
MAP = AGS1_COMPACT_MAP
STRUCT = AGS1_COMPACT_STRUCT
UUID = AGS1_COMPACT_UUID


cdef inline int plain_kind(int kind) noexcept:
    """The public kind: both bool kinds are one."""
    return AGS1_COMPACT_TRUE if kind == AGS1_COMPACT_FALSE else kind


cdef bint agrees(int kind, int wanted) noexcept:
    """Whether a value of one kind is accepted for another: integers of any width, lists for sets and the reverse."""
    return (
        plain_kind(kind) == wanted
        or (ags1_is_integer(kind) and ags1_is_integer(wanted))
        or (kind in (AGS1_COMPACT_LIST, AGS1_COMPACT_SET) and wanted in (AGS1_COMPACT_LIST, AGS1_COMPACT_SET))
    )


cdef ags1_item *find(Struct self, int field_id) except? NULL:
    """The field, or NULL."""
    cdef int64_t index
    opened(self)
    for index in range(self.count):
        if self.items[index].id == field_id:
            return &self.items[index]
    return NULL


cdef int64_t position_of(Struct self, int field_id) noexcept:
    """Index of the field, or of the first one of a higher id."""
    cdef int64_t index
    for index in range(self.count):
        if self.items[index].id == field_id:
            return index
    for index in range(self.count):
        if self.items[index].id > field_id:
            return index
    return self.count


cdef ags1_item *find_kind(Struct self, int field_id, int wanted) except? NULL:
    """The field, which must be of an accepted kind, or NULL."""
    cdef ags1_item *item = find(self, field_id)
    if item != NULL and not agrees(item.kind, wanted):
        raise FormatError(f"{self.what}: field {field_id} is of kind {kind_name(item.kind)}, not {kind_name(wanted)}")
    return item


cdef int checked_kind(int kind) except -1:
    if not AGS1_COMPACT_TRUE <= kind <= AGS1_COMPACT_UUID:
        raise ValueError(f"kind must be one of the constants of this module, got {kind}")
    return kind


cdef int64_t place_in(Node self, object index, int64_t count) except -1:
    """A caller's index, counted from 0."""
    cdef int64_t wanted = index
    if wanted < 0:
        wanted += count
    if not 0 <= wanted < count:
        raise IndexError(f"index {index} is outside a {type(self).__name__} of {count}")
    return wanted


cdef Struct parsed(data, object what, Py_ssize_t offset=0, bint trailing=True):
    """See Struct.parse."""
    cdef BufferView source = readable(data, "data")
    cdef Node root
    if not 0 <= offset <= source.nbytes:
        raise ValueError(f"offset must be 0 to {source.nbytes}, the length of data, got {offset}")
    root = unopened(source, what, AGS1_COMPACT_STRUCT, 1, offset, source.nbytes - offset)
    open_node(root)
    if not trailing and offset + root.length != source.nbytes:
        more = source.nbytes - offset - root.length
        raise FormatError(f"{what}: it ends at byte {offset + root.length}, but {more} more bytes follow")
    return <Struct>root


@cython.final
@cython.no_gc
cdef class Struct(Node):
    def __cinit__(self):
        self.shape = AGS1_COMPACT_STRUCT

    @staticmethod
    def parse(data, Py_ssize_t offset=0, *, object what="Thrift structure", bint trailing=True):
        return parsed(data, what, offset, trailing)

    @property
    def nbytes(self):
        if self.source is None:
            measure(self)
            return self.size
        opened(self)
        return self.length

    @property
    def changed(self):
        return measure(self)

    def ids(self):
        cdef list found = []
        cdef int64_t index = 0
        opened(self)
        while index < self.count:
            found.append(self.items[index].id)
            index += 1
        return found

    def kind(self, int field_id):
        cdef ags1_item *item = find(self, field_id)
        return None if item == NULL else plain_kind(item.kind)

    def __contains__(self, int field_id):
        return find(self, field_id) != NULL

    def get(self, int field_id, default=None):
        cdef ags1_item *item = find(self, field_id)
        return default if item == NULL else value_of(self, item)

    cpdef object integer(self, int field_id, default=None):
        cdef ags1_item *item = find_kind(self, field_id, AGS1_COMPACT_I64)
        return default if item == NULL else number_of(self, item)

    cpdef object boolean(self, int field_id, default=None):
        cdef ags1_item *item = find_kind(self, field_id, AGS1_COMPACT_TRUE)
        return default if item == NULL else truth_of(self, item)

    cpdef object binary(self, int field_id, default=None):
        cdef ags1_item *item = find_kind(self, field_id, AGS1_COMPACT_BINARY)
        return default if item == NULL else octets_of(self, item)

    cpdef object struct(self, int field_id, default=None):
        cdef ags1_item *item = find_kind(self, field_id, AGS1_COMPACT_STRUCT)
        return default if item == NULL else child_of(self, item)

    cpdef object list(self, int field_id, default=None):
        cdef ags1_item *item = find_kind(self, field_id, AGS1_COMPACT_LIST)
        return default if item == NULL else child_of(self, item)

    cpdef object set(self, int field_id, int kind, value):
        cdef ags1_item *old = find(self, field_id)
        cdef ags1_item item
        cdef int64_t index
        if not INT16_MIN <= field_id <= INT16_MAX:
            raise ValueError(f"field_id must fit 16 bits, got {field_id}")
        before = held(old) if old != NULL and old.form == AGS1_ITEM_OBJECT else None
        # It may run code that changes this struct, so find the place afterwards.
        item = item_from(checked_kind(kind), value, self, before)
        item.id = <int16_t>field_id
        index = position_of(self, field_id)
        if index < self.count and self.items[index].id == field_id:
            replace(self, index, item)
        else:
            insert(self, index, item)

    cpdef object remove(self, int field_id):
        cdef ags1_item *item = find(self, field_id)
        if item != NULL:
            remove_at(self, item - self.items)

    cpdef object copy(self):
        opened(self)
        measure(self)
        return copied(self, 1)

    cpdef object encode(self):
        return encoded(self)

    def __repr__(self):
        try:
            ids = self.ids()
        except FormatError:
            return "<Struct that cannot be read>"
        shown = ", ".join([str(each) for each in ids[:20]]) + (", ..." if len(ids) > 20 else "")
        return f"<Struct fields {shown}>" if ids else "<Struct without fields>"


cdef list items_of(Node node):
    cdef int64_t index
    opened(node)
    return [value_of(node, &node.items[index]) for index in range(node.count)]


cdef list items_of_kind(List self, int kind):
    """The items, which must be of an accepted kind. An empty list may be of any kind."""
    opened(self)
    if self.count and not agrees(self.first, kind):
        raise FormatError(f"{self.what}: a list has items of kind {kind_name(self.first)}, not {kind_name(kind)}")
    return items_of(self)


@cython.final
@cython.no_gc
cdef class List(Node):
    def __cinit__(self, *arguments, **named):
        self.shape = AGS1_COMPACT_LIST

    def __init__(self, int kind, values=()):
        if self.source is not None or self.count:
            raise TypeError("a List cannot be initialised again")
        self.first = <uint8_t>checked_kind(kind)
        for value in values:
            self.append(value)

    @property
    def kind(self):
        opened(self)
        return plain_kind(self.first)

    def __len__(self):
        opened(self)
        return self.count

    def __getitem__(self, index):
        opened(self)
        return value_of(self, &self.items[place_in(self, index, self.count)])

    def __iter__(self):
        return iter(items_of(self))

    def append(self, value):
        cdef ags1_item item
        opened(self)
        item = item_from(checked_kind(self.first), value, self, None)
        insert(self, self.count, item)

    cpdef object integers(self):
        return items_of_kind(self, AGS1_COMPACT_I64)

    def structs(self):
        return iter(items_of_kind(self, AGS1_COMPACT_STRUCT))

    def __repr__(self):
        return f"<List of {len(self)} {kind_name(self.first)}>"


set_types(Struct, List)
