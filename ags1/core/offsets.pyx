"""Offsets of ``(data, offsets)``: integers of every type, as int64 or int32.

    int64 or int32 of this machine, contiguous      used where they lie
    other integers, big-endian ones, Arrow arrays   copied to int64
    anything else                                   refused, and the error says what it is

What is between two offsets is checked when it is used (ags1.core.items): they may change at any time.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Resize
from cpython.bytes cimport PyBytes_CheckExact
from cpython.memoryview cimport PyMemoryView_GET_BUFFER
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport int64_t, uint8_t, uint64_t

from ags1.core.buffer cimport BufferView, readable
from ags1.core.arrow cimport ArrowArray, ArrowArrayStream, ArrowSchema

import sys

# Letters of a buffer's format, and of Arrow's. Lower case is signed in the one, and in the other too.
cdef str INTEGERS = "bhilqnBHILQN"
cdef dict ARROW_INTEGERS = {b"c": 1, b"C": 1, b"s": 2, b"S": 2, b"i": 4, b"I": 4, b"l": 8, b"L": 8}
cdef bint BIG = sys.byteorder == "big"


cdef bint _is_arrow(object value) except -1:
    return hasattr(value, "__arrow_c_array__") or hasattr(value, "__arrow_c_stream__")


cdef int vouch(object source) except -1:
    """Let pyarrow check an array of its own: it may come from a file, and only pyarrow knows how large buffers are."""
    if type(source).__module__.partition(".")[0] == "pyarrow" and hasattr(source, "validate"):
        source.validate()
    return 0


cdef bint is_pair(object source) except -1:
    """Whether a source is ``(data, offsets)``: a tuple whose second entry is an array of numbers.

    Bytes without a type (bytes, bytearray, mmap, a memoryview of single bytes) are items, so a tuple of two is two.
    """
    if type(source) is not tuple or len(source) != 2 or PyBytes_CheckExact(source[1]):
        return False
    offsets = source[1]
    try:
        view = memoryview(offsets)
    except (TypeError, ValueError, BufferError):
        return _is_arrow(offsets)
    if view.itemsize == 1 and type(offsets).__module__.partition(".")[0] == "pyarrow":
        raise TypeError(
            "a tuple of two Arrow buffers is ambiguous, as a Buffer has no type: pass two buffers as a list, and "
            "offsets with their type, as numpy.frombuffer(buffer, numpy.int64) or an Arrow array"
        )
    return _is_typed(offsets, view)


cdef bint _is_typed(object source, memoryview view) except -1:
    return view.itemsize != 1 or view.ndim != 1 or hasattr(source, "dtype") or hasattr(source, "typecode")


cdef int _refuse(str what) except -1:
    raise TypeError(
        f"offsets must be integers in one dimension, not {what}; a tuple of two is (data, offsets): pass two buffers "
        "as a list"
    )


cdef memoryview offsets_of(object data, object offsets):
    """The offsets into `data` as a contiguous memoryview of int64 or int32; the owner's memory if it is like that."""
    cdef BufferView held
    cdef memoryview view
    cdef object wide
    cdef str order, letter
    if memoryview(data).itemsize != 1:
        raise TypeError(
            "data of (data, offsets) must be single bytes: pass memoryview(data).cast('B'), or two buffers as a list")
    if _is_arrow(offsets):
        wide = _of_arrow(offsets)
        if len(wide) < 8:
            raise ValueError("offsets must have one entry more than there are items, so one at least")
        return memoryview(wide).cast("q")
    held = readable(offsets, "offsets")
    view = memoryview(offsets)
    letter = view.format.lstrip("@=<>!")
    order = view.format[: len(view.format) - len(letter)]
    if view.ndim != 1:
        _refuse(f"{view.ndim} dimensions")
    if len(letter) != 1 or letter not in INTEGERS or not _is_typed(offsets, view):
        _refuse(f"{type(offsets).__name__} of the format {view.format!r}")
    if PyMemoryView_GET_BUFFER(view).shape[0] < 1:
        raise ValueError("offsets must have one entry more than there are items, so one at least")
    swapped = order in (">", "!") if not BIG else order == "<"
    if letter.islower() and view.itemsize in (4, 8) and not swapped:
        return view
    wide = bytearray(8 * (held.nbytes // view.itemsize))
    _widen(<uint8_t *>held.data, held.nbytes // view.itemsize, view.itemsize, letter.islower(), swapped != BIG, wide, 0)
    return memoryview(wide).cast("q")


cdef int _widen(
        const uint8_t *place, int64_t count, int width, bint signed, bint big, bytearray wide, int64_t first) except -1:
    """Copy integers to int64."""
    cdef int64_t *values = <int64_t *>PyByteArray_AS_STRING(wide)
    cdef int64_t index
    cdef uint64_t value
    cdef int octet
    for index in range(count):
        value = 0
        for octet in range(width):
            value = value << 8 | place[octet if big else width - 1 - octet]
        if signed and width < 8 and value >> (8 * width - 1):
            value |= ~<uint64_t>0 << (8 * width)
        elif not signed and value >> 63:
            raise ValueError(f"offset {first + index} is {value}, beyond any memory")
        values[first + index] = <int64_t>value
        place += width
    return 0


cdef bytearray _of_arrow(object offsets):
    """The values of an Arrow array, in one piece or in chunks, as int64."""
    cdef ArrowArrayStream *stream
    cdef ArrowSchema schema
    cdef ArrowArray array
    cdef bytearray wide = bytearray()
    vouch(offsets)
    if hasattr(offsets, "__arrow_c_array__"):
        capsules = offsets.__arrow_c_array__()
        _append(
            <const ArrowSchema *>PyCapsule_GetPointer(capsules[0], b"arrow_schema"),
            <const ArrowArray *>PyCapsule_GetPointer(capsules[1], b"arrow_array"), wide)
        return wide
    capsule = offsets.__arrow_c_stream__()
    stream = <ArrowArrayStream *>PyCapsule_GetPointer(capsule, b"arrow_array_stream")
    if stream.get_schema(stream, &schema):
        raise ValueError("the Arrow stream of the offsets failed")
    try:
        while True:
            if stream.get_next(stream, &array):
                raise ValueError("the Arrow stream of the offsets failed")
            if array.release == NULL:
                return wide
            try:
                _append(&schema, &array, wide)
            finally:
                array.release(&array)
    finally:
        schema.release(&schema)


cdef int _append(const ArrowSchema *schema, const ArrowArray *array, bytearray wide) except -1:
    cdef bytes layout = schema.format
    cdef const uint8_t *validity
    cdef int width = ARROW_INTEGERS.get(layout, 0)
    cdef int64_t first = len(wide) // 8, index
    if width == 0 or schema.dictionary != NULL:
        _refuse(f"an Arrow array of the format {layout.decode('ascii', 'replace')!r}")
    if array.length < 0 or array.offset < 0 or array.n_buffers < 2:
        raise ValueError("offsets are an Arrow array of impossible shape")
    validity = <const uint8_t *>array.buffers[0]
    if validity != NULL and array.null_count != 0:
        for index in range(array.offset, array.offset + array.length):
            if not (validity[index >> 3] >> (index & 7)) & 1:
                raise ValueError(f"offset {first + index - array.offset} is null")
    PyByteArray_Resize(wide, 8 * (first + array.length))
    if array.length > 0:
        _widen(
            <const uint8_t *>array.buffers[1] + array.offset * width, array.length, width, layout.islower(), BIG, wide,
            first)
    return 0
