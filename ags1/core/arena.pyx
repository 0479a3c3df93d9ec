"""The result of a batch: many streams or plaintexts in one piece of memory, and where each of them lies.

    data      | item 0 | item 1   | item 2 |        bytes, or anybody's memory
    offsets   0        o1         o2       o3       int64, as Arrow's LargeBinary has them
    validity  1        0          1                 bits, where some items are null

An item is made when it is asked for, as a memoryview; a slice is other offsets into the same memory.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromObject, PyMemoryView_GET_BUFFER
from cpython.number cimport PyNumber_Index
from cpython.ref cimport Py_REFCNT
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uintptr_t
from libc.string cimport memcpy

from ags1.core.blocks cimport new_bytes
from ags1.core.buffer cimport BufferView, readable
from ags1.core.items cimport (
    ITEM_HERE, ITEM_OUTSIDE, ITEMS_OFFSETS_32, ITEMS_OFFSETS_64, ITEMS_STRIDED, Items, Memory, Span, export_binary,
    items_of, load_32, load_64, locate, pair_of,
)

from collections.abc import Sequence


cdef class Room:
    """Memory for the results of many calls. Memory that only its own lists refer to is free."""

    def __cinit__(self, nbytes, count):
        self.arenas = [new_bytes(nbytes)]
        self.offsets = [new_bytes(8 * (count + 1))]

    cdef object take(self, list pieces, int64_t nbytes):
        """Memory of at least so many bytes that no result uses any more, or more of it."""
        cdef object piece
        cdef Py_ssize_t index = 0
        # Two: one is still used while the next result is made.
        while index < len(pieces):
            piece = pieces[index]
            # Known to the list and to this variable.
            if Py_REFCNT(piece) <= 2:
                if PyBytes_GET_SIZE(piece) >= nbytes:
                    return piece
                del pieces[index]
            else:
                index += 1
        piece = new_bytes(nbytes + nbytes // 8)
        if len(pieces) > 1:
            del pieces[0]
        pieces.append(piece)
        return piece


cdef class _Iterator:
    cdef Batch batch
    cdef int64_t index

    def __iter__(self):
        return self

    def __next__(self):
        if self.index >= self.batch.length:
            raise StopIteration
        self.index += 1
        return self.batch.item(self.index - 1)

    def __length_hint__(self):
        return self.batch.length - self.index


cdef class Batch:
    """Batch(data, offsets, validity=None)
--

    A sequence of streams or plaintexts that lie in one piece of memory, one behind the other.

    Items are read-only memoryviews, made when they are asked for; None for a null. Slices share the memory, and each
    item and slice keeps all of it alive: copy what you keep for long.

    Parameters
    ----------
    data : buffer
        The memory.
    offsets : array of integers
        Where each item starts, in bytes, and behind them where the last one ends: one more than there are items. In one
        dimension, of any integer type, also as an Arrow array. Those of int64 and int32 are not copied.
    validity : buffer, optional
        A bitmap, least significant bit first, in which a 0 makes an item null.

    Raises
    ------
    TypeError
        `data` is no buffer of single bytes, or `offsets` are no integers in one dimension.
    ValueError
        The offsets descend, or leave `data`; `validity` is too short.

    Notes
    -----
    Immutable, and safe to share between threads, as long as the memory that it was made of does not change.
    It has Arrow's PyCapsule interface: pyarrow (``pyarrow.array(batch)``) and others read it without a copy, as an
    array of type large_binary.
    """

    def __init__(self, data, offsets, validity=None):
        cdef Items items
        cdef BufferView bits
        items = pair_of(data, offsets, "item")
        if validity is not None:
            bits = readable(validity, "validity")
            if bits.nbytes < (items.count + 7) // 8:
                raise ValueError(f"validity has {bits.nbytes} bytes, which are too few for {items.count} items")
            items.owners.append(bits)
            items.spans[0].validity = bits.data
        _take_items(self, items)

    @staticmethod
    def reserve(nbytes=0, count=0):
        """Make memory for the results of many calls: pass what this returns as ``out=``.

        Parameters
        ----------
        nbytes : int
            Bytes of results to make room for at once; more is taken when a call needs it.
        count : int
            Items to make room for at once.

        Returns
        -------
        Batch
            An empty batch. A call with ``out=`` it returns a batch of its own in this memory. Memory that a result
            still uses is never written to: two results can be alive without fresh memory being taken.
        """
        nbytes, count = PyNumber_Index(nbytes), PyNumber_Index(count)
        if nbytes < 0 or count < 0:
            raise ValueError(f"nbytes and count must not be negative, got {nbytes} and {count}")
        cdef Batch self = Batch(b"", memoryview(bytes(8)).cast("q"))
        self.room = Room.__new__(Room, nbytes, count)
        return self

    @staticmethod
    def from_arrow(array):
        """Make a batch of an Arrow array of binary, string, fixed_size_binary, or a large or view form of them.

        Parameters
        ----------
        array : pyarrow.Array, pyarrow.ChunkedArray, polars.Series, or what else gives Arrow data
            Its data is shared, and its offsets are if they have 64 bits. Views and several chunks are copied together.

        Raises
        ------
        TypeError
            No Arrow array, or one of another type.
        ValueError
            The array is damaged.
        """
        cdef Items items
        if not hasattr(array, "__arrow_c_array__") and not hasattr(array, "__arrow_c_stream__"):
            raise TypeError(f"an Arrow array is needed, not {type(array).__name__}")
        items = items_of(array, "item")
        cdef Batch self = Batch.__new__(Batch)
        _take_items(self, items)
        return self

    def to_arrow(self):
        """The batch as a ``pyarrow.LargeBinaryArray`` in the same memory; needs the extra ``ags1[arrow]``."""
        try:
            import pyarrow
        except ImportError as error:
            raise ImportError("Batch.to_arrow needs pyarrow: pip install 'ags1[arrow]'") from error
        return pyarrow.array(self)

    def __arrow_c_array__(self, requested_schema=None):
        """Give the batch to a consumer of Arrow data, without a copy. `requested_schema` changes nothing."""
        cdef int64_t bit = self.bit if self.bits != NULL else 0
        return export_binary(
            self, self.bits, self.starts - bit, self.arena, bit, self.length, -1 if self.bits != NULL else 0)

    @property
    def data(self):
        """All of the memory, read-only, also that of items outside of a slice."""
        return self.view

    @property
    def offsets(self):
        """Where each item starts in :attr:`data`, and where the last one ends: a memoryview of int64."""
        cdef Memory memory = Memory.__new__(Memory)
        memory.start = <const uint8_t *>self.starts
        memory.nbytes = 8 * (self.length + 1)
        memory.owner = self.offsets_owner
        return memoryview(memory).cast("q")

    @property
    def validity(self):
        """A bitmap of this batch's items in which a 0 means null, or None if there are no nulls."""
        cdef Memory memory
        if self.bits == NULL:
            return None
        if self.bit & 7 == 0:
            memory = Memory.__new__(Memory)
            memory.start = self.bits + (self.bit >> 3)
            memory.nbytes = (self.length + 7) // 8
            memory.owner = self.validity_owner
            return memoryview(memory)
        return memoryview(_bits(self.bits, self.bit, self.length))

    @property
    def nbytes(self):
        """Bytes of all items together."""
        return self.starts[self.length] - self.starts[0]

    @property
    def null_count(self):
        """How many items are null."""
        return sum(self.is_null(index) for index in range(self.length)) if self.bits != NULL else 0

    @property
    def failed(self):
        """Positions of the items whose tags did not verify, in order: ``decrypt_many(..., on_error="null")``.

        They are null; any other null was one before.
        """
        return self.failures or ()

    cdef bint is_null(self, int64_t index) noexcept:
        cdef int64_t bit = self.bit + index
        return self.bits != NULL and not (self.bits[bit >> 3] >> (bit & 7)) & 1

    cdef object item(self, int64_t index):
        cdef int64_t start = self.starts[index], end = self.starts[index + 1]
        cdef Py_buffer *buffer
        cdef object one
        if self.is_null(index):
            return None
        if not 0 <= start <= end <= self.arena_nbytes:
            raise ValueError(f"item {index}: its offsets were changed to {start} and {end}, which are not in the data")
        # A memoryview of a memoryview has a description of its own, which may be narrowed: a third less work than
        # slicing with two Python integers.
        one = PyMemoryView_FromObject(self.view)
        buffer = PyMemoryView_GET_BUFFER(one)
        buffer.buf = <void *>(self.arena + start)
        buffer.len = end - start
        buffer.shape[0] = end - start
        return one

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        cdef Batch part
        cdef int64_t place
        if isinstance(index, slice):
            start, stop, step = index.indices(self.length)
            if step != 1:
                raise ValueError(f"a slice of a Batch has no step: list(batch)[::{step}] has")
            part = Batch.__new__(Batch)
            part.owner, part.offsets_owner, part.validity_owner = self.owner, self.offsets_owner, self.validity_owner
            part.arena, part.arena_nbytes, part.view = self.arena, self.arena_nbytes, self.view
            part.starts = self.starts + <int64_t>start
            part.bits = self.bits
            part.bit = self.bit + <int64_t>start
            part.length = max(0, stop - start)
            part.failures = tuple([place - start for place in self.failed if start <= place < stop])
            return part
        place = PyNumber_Index(index)
        if place < 0:
            place += self.length
        if not 0 <= place < self.length:
            raise IndexError(f"item {index} of a batch of {self.length}")
        return self.item(place)

    def __iter__(self):
        cdef _Iterator iterator = _Iterator.__new__(_Iterator)
        iterator.batch = self
        iterator.index = 0
        return iterator

    def __eq__(self, other):
        if not isinstance(other, (Batch, list, tuple)):
            return NotImplemented
        return len(self) == len(other) and all(mine == theirs for mine, theirs in zip(self, other))

    __hash__ = None

    def index(self, value, start=0, stop=None):
        """Position of the first item that equals `value`, a buffer or None; ValueError if there is none."""
        for index in range(*slice(start, stop).indices(self.length)):
            if self.item(index) == value:
                return index
        raise ValueError("no item of this batch equals the value")

    def count(self, value):
        """How many items equal `value`, a buffer or None."""
        return sum(item == value for item in self)

    def __repr__(self):
        return f"<ags1.Batch of {self.length} items, {self.nbytes} bytes>"

    def __reduce_ex__(self, protocol):
        cdef int64_t first = self.starts[0], index
        cdef object offsets = self.offsets, data = self.view[first : self.starts[self.length]]
        cdef int64_t *moved
        if first != 0:
            offsets = new_bytes(8 * (self.length + 1))
            moved = <int64_t *>PyBytes_AS_STRING(offsets)
            for index in range(self.length + 1):
                moved[index] = self.starts[index] - first
        parts = (data, offsets, self.validity)
        if protocol < 5:
            return _restore, (*[None if part is None else bytes(part) for part in parts], self.failures)
        from pickle import PickleBuffer

        return _restore, (*[None if part is None else PickleBuffer(part) for part in parts], self.failures)


def _restore(data, offsets, validity, failures):
    """A pickled batch."""
    cdef Batch self = Batch(data, memoryview(offsets).cast("B").cast("q"), validity)
    self.failures = failures
    return self


cdef object _bits(const uint8_t *bits, int64_t first, int64_t count):
    """A bitmap of its own of some bits of another."""
    cdef bytearray result = bytearray((count + 7) // 8)
    cdef uint8_t *out = <uint8_t *>PyByteArray_AS_STRING(result)
    cdef int64_t index
    for index in range(count):
        out[index >> 3] |= ((bits[(first + index) >> 3] >> ((first + index) & 7)) & 1) << (index & 7)
    return result


cdef int _take_items(Batch self, Items items) except -1:
    """Make `self` a batch of items that exist: in their memory if they lie in one piece, else in a copy."""
    cdef Span *span = items.spans
    cdef Span found
    cdef Memory memory = Memory.__new__(Memory)
    cdef const uint8_t *data = NULL
    cdef int64_t index = 0, nbytes = 0, total = 0, end
    cdef int64_t *starts
    cdef bint together = items.span_count == 1 and (
        span.kind in (ITEMS_OFFSETS_32, ITEMS_OFFSETS_64) or span.kind == ITEMS_STRIDED and span.stride == span.width)
    self.length = items.count
    if together:
        self.arena = span.data
        self.arena_nbytes = span.width * items.count if span.kind == ITEMS_STRIDED else span.nbytes
        memory.start, memory.nbytes, memory.owner = self.arena, self.arena_nbytes, items
        self.owner = memory
    if together and span.kind == ITEMS_OFFSETS_64 and items.count > 0 and <uintptr_t>span.places & 7 == 0:
        self.starts = <const int64_t *>span.places
        self.offsets_owner = self.validity_owner = items
        self.bits = span.validity
        self.bit = span.validity_start
    else:
        self.offsets_owner = new_bytes(8 * (items.count + 1))
        self.starts = starts = <int64_t *>PyBytes_AS_STRING(self.offsets_owner)
        if items.nullable:
            self.validity_owner = bytearray((items.count + 7) // 8)
            self.bits = <uint8_t *>PyByteArray_AS_STRING(self.validity_owner)
        starts[0] = _offset(span, 0) if together and items.count > 0 and span.kind != ITEMS_STRIDED else 0
        while index < items.count:
            end = min(items.count, items.span_at(index, &found))
            while index < end:
                nbytes = 0
                place = locate(&found, index, &data, &nbytes)
                if place == ITEM_OUTSIDE:
                    items.refuse(index)
                if place == ITEM_HERE and items.nullable:
                    (<uint8_t *>self.bits)[index >> 3] |= 1 << (index & 7)
                total += nbytes
                index += 1
                starts[index] = total
                # Data behind nulls stays where it is.
                if together and found.kind == ITEMS_STRIDED:
                    starts[index] = index * found.width
                elif together:
                    starts[index] = _offset(&found, index)
    for index in range(items.count):
        if together and not 0 <= self.starts[index] <= self.starts[index + 1] <= self.arena_nbytes:
            items.refuse(index)
    if not together:
        self.owner = _gathered(items, self.starts)
        self.arena = <const uint8_t *>PyBytes_AS_STRING(self.owner)
        self.arena_nbytes = total
    self.view = memoryview(self.owner)[: self.arena_nbytes].toreadonly()
    return 0


cdef int64_t _offset(const Span *span, int64_t index) noexcept:
    if span.kind == ITEMS_OFFSETS_32:
        return load_32(span.places + 4 * index)
    return load_64(span.places + 8 * index)


cdef object _gathered(Items items, const int64_t *starts):
    """The bytes of all items, one behind the other."""
    cdef Span span
    cdef const uint8_t *data = NULL
    cdef int64_t index = 0, nbytes = 0, end
    cdef object arena = new_bytes(starts[items.count])
    cdef uint8_t *out = <uint8_t *>PyBytes_AS_STRING(arena)
    while index < items.count:
        end = min(items.count, items.span_at(index, &span))
        while index < end:
            if locate(&span, index, &data, &nbytes) == ITEM_HERE and nbytes > 0:
                if nbytes != starts[index + 1] - starts[index]:
                    raise ValueError(f"item {index} changed its size while it was being copied")
                memcpy(out + starts[index], data, <size_t>nbytes)
            index += 1
    return arena


cdef Batch new_batch(
        object owner, const uint8_t *arena, int64_t nbytes, object offsets_owner, const int64_t *starts, int64_t length,
        bytearray validity, tuple failures):
    """A batch over an arena that was just filled. `validity` is None without nulls."""
    cdef Batch self = Batch.__new__(Batch)
    self.owner = owner
    self.offsets_owner = offsets_owner
    self.arena = arena
    self.arena_nbytes = nbytes
    self.starts = starts
    self.length = length
    self.failures = failures
    if validity is not None:
        self.validity_owner = validity
        self.bits = <const uint8_t *>PyByteArray_AS_STRING(validity)
    self.view = memoryview(owner)[:nbytes].toreadonly()
    return self


Sequence.register(Batch)
