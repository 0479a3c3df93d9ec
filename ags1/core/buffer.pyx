"""Owned views over other people's memory: pointer, byte length, read-only or not.

    exporter (bytes, bytearray, mmap, array, numpy, pyarrow.Buffer, ...)
        |  Py_buffer, held while the view lives: the exporter may neither move nor free the memory
        v
    BufferView  .data -> first byte   .nbytes   .readonly

One view per argument, taken on entry and dropped when the object dies, whatever path the function leaves by::

    cdef BufferView source = readable(data, "data")
    cdef BufferView target = writable(out, "out")
    with nogil:
        work(source.data, source.nbytes, target.data)

Lengths are bytes (``nbytes``), never ``len()``: a memoryview of three 32-bit integers has 12. Nothing stops another
thread from changing the memory while it is read; ags1 then encrypts or refuses some mixture, but stays inside it.
"""

from cpython.buffer cimport (
    PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_CheckBuffer, PyObject_GetBuffer,
)
from libc.stdint cimport uint8_t, uintptr_t


cdef class BufferView:
    """A held export of contiguous memory.

    Parameters
    ----------
    source : buffer
        Any C-contiguous object with the buffer protocol.
    writable : bool
        Whether the memory must be writable.

    Raises
    ------
    TypeError
        Not a buffer, or read-only where writable memory is needed.
    ValueError
        Memory that is not C-contiguous.

    Notes
    -----
    The view keeps the exporter alive and locked against resizing until :meth:`release`. It is not safe to release a
    view in one thread while another uses it.
    """

    def __cinit__(self, source, writable=False):
        self.held = False
        self.exports = 0
        _acquire(self, source, bool(writable), "source")

    cdef void drop(self):
        if self.held:
            self.held = False
            self.data = NULL
            PyBuffer_Release(&self.view)

    def release(self):
        """Give the export back. Releasing twice does nothing.

        Raises
        ------
        BufferError
            A memoryview of this view is still in use.
        """
        if self.exports:
            raise BufferError(f"{self.exports} memoryviews of this BufferView are still in use")
        self.drop()

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        # memoryview(BufferView(x)) is x as bytes, whatever its items are; memoryview.cast knows only some formats.
        if not self.held:
            raise BufferError("this BufferView was released")
        PyBuffer_FillInfo(buffer, self, self.data, self.nbytes, self.readonly, flags)
        self.exports += 1

    def __releasebuffer__(self, Py_buffer *buffer):
        self.exports -= 1

    def overlaps(self, BufferView other):
        """Whether the two views share a byte."""
        return overlap(self.data, self.nbytes, other.data, other.nbytes)

    def __dealloc__(self):
        self.drop()


cdef int _acquire(BufferView self, object source, bint needs_writable, str name) except -1:
    if not PyObject_CheckBuffer(source):
        hint = ""
        if isinstance(source, str):
            # The bytes of a path could pass for a key.
            hint = "; Key.load(PATH) reads one from a file"
            if name != "key":
                hint = "; encode it first, e.g. data.encode()"
        raise TypeError(
            f"{name} must be a bytes-like object (bytes, bytearray, memoryview, mmap, array, numpy array, "
            f"pyarrow.Buffer), not {type(source).__name__}{hint}"
        )
    try:
        PyObject_GetBuffer(source, &self.view, PyBUF_WRITABLE if needs_writable else PyBUF_SIMPLE)
    except (BufferError, ValueError, TypeError) as error:
        raise _refusal(source, needs_writable, name, error) from error
    self.held = True
    if holds_objects(source):
        self.drop()
        raise TypeError(
            f"{name} is an array of Python objects (dtype object): its memory holds pointers, not data; "
            "convert it to a dtype of fixed size first, or serialise it"
        )
    self.data = <uint8_t *>self.view.buf
    self.nbytes = self.view.len
    self.readonly = self.view.readonly
    return 0


cdef bint holds_objects(object source) except -1:
    """Whether the bytes of a buffer are pointers to Python objects, which mean nothing once they are stored."""
    if isinstance(source, (bytes, bytearray)):
        return False
    if isinstance(source, memoryview):
        source = source.obj
    return getattr(getattr(source, "dtype", None), "hasobject", False) is True


cdef object _refusal(object source, bint needs_writable, str name, Exception error):
    try:
        view = memoryview(source)
    except Exception:
        return ValueError(f"{name} gives no access to its memory: {error}")
    if not view.c_contiguous:
        return ValueError(
            f"{name} must be C-contiguous: pass a contiguous copy, e.g. numpy.ascontiguousarray(...) or bytes(...)"
        )
    if needs_writable and view.readonly:
        return TypeError(f"{name} must be writable, but this {type(source).__name__} is read-only")
    return ValueError(f"{name} gives no access to its memory: {error}")


cdef BufferView _view(object source, bint needs_writable, str name):
    cdef BufferView self = BufferView.__new__(BufferView, b"")
    self.drop()
    _acquire(self, source, needs_writable, name)
    return self


cdef BufferView readable(object source, str name):
    """A view for reading; `name` is the argument's name, for the error."""
    return _view(source, False, name)


cdef BufferView writable(object target, str name):
    """A view for writing; `name` is the argument's name, for the error."""
    return _view(target, True, name)


cdef bint overlap(
        const uint8_t *first, Py_ssize_t first_nbytes, const uint8_t *second, Py_ssize_t second_nbytes) noexcept nogil:
    cdef uintptr_t a = <uintptr_t>first
    cdef uintptr_t b = <uintptr_t>second
    if first_nbytes <= 0 or second_nbytes <= 0:
        return False
    return a < b + <uintptr_t>second_nbytes and b < a + <uintptr_t>first_nbytes
