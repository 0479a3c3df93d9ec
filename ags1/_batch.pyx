"""Many buffers, one native call: each becomes, or was, an AGS1 stream of its own; results share one arena.

    buffers   [ data 0 ]   [ data 1 ]        [ data 2 ]            anywhere in memory
    arena     | stream 0 | stream 1        | stream 2 |            one bytes object, sliced by memoryviews

Every result keeps the whole arena alive. Buffers are taken in chunks, so that the native bookkeeping of a million of
them stays in the cache::

    for each chunk of 4096 buffers:
        hold their memory; fill one run each; seal_runs(...) without the GIL; let go
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.object cimport PyObject_GetItem
from libc.stdint cimport int64_t, uint8_t, uintptr_t

from ags1._blocks cimport Run, choose_threads, new_bytes, open_runs, seal_runs
from ags1._buffer cimport BufferView, holds_objects, readable
from ags1._gcm cimport Key, as_key
from ags1.layout cimport (
    AGS1_HEADER_LENGTH,
    ags1_encrypted_length,
    ags1_plaintext_length,
    ags1_read_header,
    ags1_write_header,
)

import gc

from ags1 import _layout
from ags1.errors import FormatError, LimitError, TruncatedError

cdef int64_t CHUNK = 4096


class _Names:
    """Names the buffers of a chunk in errors by their position in the batch."""

    def __init__(self, first):
        self.first = first

    def __getitem__(self, index):
        return f"buffer {self.first + index}"


cdef class _Batch:
    # One prepared batch: the arguments, and a chunk's worth of runs and exports.
    cdef tuple buffers
    cdef tuple keys            # one, or one a buffer
    cdef tuple aad_prefixes    # none, or one a buffer
    cdef int64_t count
    cdef int64_t *starts       # offset in the arena of each result
    cdef int64_t *sizes        # bytes of each result
    cdef Run *runs
    cdef Py_buffer *exports
    cdef int64_t held
    cdef int64_t total

    def __cinit__(self, buffers, key, aad_prefixes):
        self.buffers = tuple(buffers)
        self.count = len(self.buffers)
        self.held = 0
        self.total = 0
        if isinstance(key, (list, tuple)):
            self.keys = tuple([_as_key(each, index) for index, each in enumerate(key)])
            if len(self.keys) != self.count:
                raise ValueError(f"{len(self.keys)} keys for {self.count} buffers: give one for all, or one each")
        else:
            self.keys = (as_key(key),)
        if aad_prefixes is None:
            self.aad_prefixes = ()
        elif isinstance(aad_prefixes, (bytes, bytearray, memoryview, str)):
            raise TypeError("aad_prefixes must be a sequence with one prefix for each buffer, or None")
        else:
            self.aad_prefixes = tuple([_as_bytes(each, index) for index, each in enumerate(aad_prefixes)])
            if len(self.aad_prefixes) != self.count:
                raise ValueError(f"{len(self.aad_prefixes)} aad_prefixes for {self.count} buffers: give one each")
        self.starts = <int64_t *>PyMem_Malloc((self.count + 1) * sizeof(int64_t))
        self.sizes = <int64_t *>PyMem_Malloc((self.count + 1) * sizeof(int64_t))
        self.runs = <Run *>PyMem_Malloc(CHUNK * sizeof(Run))
        self.exports = <Py_buffer *>PyMem_Malloc(CHUNK * sizeof(Py_buffer))
        if self.starts == NULL or self.sizes == NULL or self.runs == NULL or self.exports == NULL:
            raise MemoryError(f"no memory for a batch of {self.count} buffers")

    def __dealloc__(self):
        self.let_go()
        PyMem_Free(self.starts)
        PyMem_Free(self.sizes)
        PyMem_Free(self.runs)
        PyMem_Free(self.exports)

    cdef int hold(self, int64_t index, const uint8_t **data, int64_t *nbytes) except -1:
        """Memory of one buffer; held until let_go() unless it is bytes, which cannot change or move."""
        cdef object buffer = self.buffers[index]
        cdef BufferView view
        if PyBytes_CheckExact(buffer):
            data[0] = <const uint8_t *>PyBytes_AS_STRING(buffer)
            nbytes[0] = PyBytes_GET_SIZE(buffer)
            return 0
        try:
            PyObject_GetBuffer(buffer, &self.exports[self.held], PyBUF_SIMPLE)
        except (TypeError, ValueError, BufferError):
            view = readable(buffer, f"buffer {index}")
            raise
        if holds_objects(buffer):
            PyBuffer_Release(&self.exports[self.held])
            view = readable(buffer, f"buffer {index}")
        data[0] = <const uint8_t *>self.exports[self.held].buf
        nbytes[0] = self.exports[self.held].len
        self.held += 1
        return 0

    cdef void let_go(self):
        while self.held > 0:
            self.held -= 1
            PyBuffer_Release(&self.exports[self.held])

    cdef int set_run(self, int64_t index, Run *run) except -1:
        cdef Key key = <Key>(self.keys[index] if len(self.keys) != 1 else self.keys[0])
        cdef bytes prefix
        run.key = key.octets
        run.key_length = key.length
        run.aad_prefix = <const uint8_t *>b""
        run.aad_prefix_length = 0
        if self.aad_prefixes:
            prefix = <bytes>self.aad_prefixes[index]
            run.aad_prefix = <const uint8_t *>PyBytes_AS_STRING(prefix)
            run.aad_prefix_length = PyBytes_GET_SIZE(prefix)
        run.first_block = 0
        return 0

    cdef list slices(self, object arena):
        """A memoryview of each result. The collector rests meanwhile: it would look at every view again and again."""
        cdef list result = [None] * self.count
        cdef object view = memoryview(arena)
        cdef int64_t index, start
        cdef bint was_enabled = gc.isenabled()
        if was_enabled:
            gc.disable()
        try:
            for index in range(self.count):
                start = self.starts[index]
                result[index] = PyObject_GetItem(view, slice(start, start + self.sizes[index], None))
        finally:
            if was_enabled:
                gc.enable()
        return result


cdef Key _as_key(object value, int64_t index):
    try:
        return as_key(value)
    except (TypeError, ValueError) as error:
        raise type(error)(f"buffer {index}: {error}") from None


cdef bytes _as_bytes(object value, int64_t index):
    cdef BufferView view
    if PyBytes_CheckExact(value):
        return <bytes>value
    view = readable(value, f"aad_prefix of buffer {index}")
    return view.data[:view.nbytes]


def encrypt_batch(buffers, key, aad_prefixes, block_length, threads):
    """Encrypt each buffer into a stream of its own. See :func:`ags1.encrypt_many`."""
    cdef _Batch batch = _Batch(buffers, key, aad_prefixes)
    cdef int64_t index, first, last, nbytes = 0, length = 0, total = 0
    cdef const uint8_t *data = NULL
    cdef uint8_t *start
    cdef Run *run
    _layout.encrypted_length(0, block_length)
    cdef int64_t block = block_length
    for index in range(batch.count):
        batch.hold(index, &data, &nbytes)
        batch.let_go()
        if ags1_encrypted_length(nbytes, block, &length):
            _layout.encrypted_length(nbytes, block)
        batch.starts[index] = total
        batch.sizes[index] = length
        batch.total += nbytes
        total += length
    arena = new_bytes(total)
    start = <uint8_t *>PyBytes_AS_STRING(arena)
    cdef int crew = choose_threads(threads, batch.total)
    first = 0
    while first < batch.count:
        last = min(first + CHUNK, batch.count)
        try:
            for index in range(first, last):
                run = &batch.runs[index - first]
                batch.hold(index, &data, &nbytes)
                ags1_encrypted_length(nbytes, block, &length)
                if length != batch.sizes[index]:
                    raise ValueError(f"buffer {index} changed its size while it was being encrypted")
                batch.set_run(index, run)
                ags1_write_header(start + batch.starts[index], block)
                run.data = data
                run.out = start + batch.starts[index] + AGS1_HEADER_LENGTH
                run.length = nbytes
                run.block_length = block
            seal_runs(batch.runs, last - first, crew, None)
        finally:
            batch.let_go()
        first = last
    return batch.slices(arena)


cdef int64_t _measure(int64_t index, const uint8_t *data, int64_t nbytes, object trusted, int64_t *block_length) except -1:
    cdef int64_t length = 0
    if nbytes < AGS1_HEADER_LENGTH or ags1_read_header(data, block_length):
        _layout.read_header(data[:min(nbytes, 16)], f"buffer {index}")
    if trusted is not None and (isinstance(trusted, bool) or not isinstance(trusted, int)):
        raise TypeError(f"buffer {index}: length must be an integer or None, not {type(trusted).__name__}")
    if trusted is not None and trusted < 0:
        raise ValueError(f"buffer {index}: length must not be negative, got {trusted}")
    if trusted is not None and nbytes != trusted:
        kind = TruncatedError if nbytes < trusted else FormatError
        raise kind(f"buffer {index}: has {nbytes} bytes, but its trusted length is {trusted}")
    if ags1_plaintext_length(nbytes, block_length[0], &length):
        try:
            _layout.plaintext_length(nbytes, block_length[0])
        except (FormatError, LimitError) as error:
            raise type(error)(f"buffer {index}: {error}") from None
    return length


def decrypt_batch(buffers, key, aad_prefixes, lengths, threads, int64_t alignment=1):
    """Decrypt each buffer, a stream of its own. See :func:`ags1.decrypt_many`.

    Every result starts at an address that is a multiple of `alignment`, a power of two: Arrow wants 64.
    """
    cdef _Batch batch = _Batch(buffers, key, aad_prefixes)
    cdef int64_t index, first, last, nbytes = 0, total = 0, block = 0, size, shift
    cdef const uint8_t *data = NULL
    cdef uint8_t *start
    cdef Run *run
    trusted = (None,) * batch.count if lengths is None else tuple(lengths)
    if len(trusted) != batch.count:
        raise ValueError(f"{len(trusted)} lengths for {batch.count} buffers: give one each")
    for index in range(batch.count):
        batch.hold(index, &data, &nbytes)
        try:
            size = _measure(index, data, nbytes, trusted[index], &block)
        finally:
            batch.let_go()
        batch.starts[index] = total
        batch.sizes[index] = size
        total += (size + alignment - 1) & ~(alignment - 1)
    arena = new_bytes(total + alignment - 1)
    start = <uint8_t *>PyBytes_AS_STRING(arena)
    if alignment > 1:
        shift = -<int64_t><uintptr_t>start & (alignment - 1)
        for index in range(batch.count):
            batch.starts[index] += shift
    cdef int crew = choose_threads(threads, total)
    first = 0
    while first < batch.count:
        last = min(first + CHUNK, batch.count)
        try:
            for index in range(first, last):
                run = &batch.runs[index - first]
                batch.hold(index, &data, &nbytes)
                size = _measure(index, data, nbytes, trusted[index], &block)
                if size != batch.sizes[index]:
                    raise ValueError(f"buffer {index} changed its size while it was being decrypted")
                batch.set_run(index, run)
                run.data = data + AGS1_HEADER_LENGTH
                run.out = start + batch.starts[index]
                run.length = size
                run.block_length = block
            open_runs(batch.runs, last - first, crew, _Names(first))
        finally:
            batch.let_go()
        first = last
    return batch.slices(arena)
