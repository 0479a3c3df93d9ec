"""Many buffers, one native call: each becomes, or was, an AGS1 stream of its own; results share one arena.

    buffers   [ data 0 ]   [ data 1 ]        [ data 2 ]            anywhere in memory
    arena     | stream 0 | stream 1        | stream 2 |            one bytes object, sliced by memoryviews

Every result keeps the whole arena alive. Buffers are taken in chunks, so that the native bookkeeping of a million of
them stays in the cache. While crews work on the newest two chunks, this thread makes the memoryviews and prepares the
next chunk: making a million Python objects takes longer than encrypting a gigabyte::

    for each chunk of buffers:
        hold their memory, fill one run each, launch it
        make its views
        land the chunk two before it
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.memoryview cimport PyMemoryView_FromObject, PyMemoryView_GET_BUFFER
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uintptr_t
from libc.string cimport memset

from ags1._blocks cimport MAX_UNITS, Flight, Run, blocks_in, choose_threads, new_bytes, open_runs, seal_runs
from ags1._buffer cimport BufferView, holds_objects, readable
from ags1._gcm cimport Key, as_key, count_messages
from ags1.layout cimport (
    AGS1_HEADER_LENGTH,
    ags1_encrypted_length,
    ags1_plaintext_length,
    ags1_read_header,
)

import gc

from ags1 import _layout
from ags1.errors import FormatError, LimitError, TruncatedError

# Buffers whose memory is held and whose runs are kept at once.
cdef int64_t CHUNK = 16384
cdef int64_t MAX_ARENA = <int64_t>1 << 61


class _Names:
    """Names the buffers of a chunk in errors by their position in the batch."""

    def __init__(self, first):
        self.first = first

    def __getitem__(self, index):
        return f"buffer {self.first + index}"


cdef class _Chunk:
    # Consecutive buffers of a batch: their memory, one run each, and the crew that works on them.
    cdef int64_t first
    cdef int64_t count
    cdef int64_t units
    cdef int64_t held
    cdef Run *runs
    cdef Py_buffer *exports
    cdef Flight flight

    def __cinit__(self):
        self.held = 0
        self.flight = Flight.__new__(Flight)
        self.runs = <Run *>PyMem_Malloc(CHUNK * sizeof(Run))
        self.exports = <Py_buffer *>PyMem_Malloc(CHUNK * sizeof(Py_buffer))
        if self.runs == NULL or self.exports == NULL:
            raise MemoryError(f"no memory for {CHUNK} buffers")

    def __dealloc__(self):
        self.let_go()
        PyMem_Free(self.runs)
        PyMem_Free(self.exports)

    cdef int hold(self, object buffer, int64_t index, const uint8_t **data, int64_t *nbytes) except -1:
        """Memory of one buffer; held until let_go() unless it is bytes, which cannot change or move."""
        cdef BufferView view
        if PyBytes_CheckExact(buffer):
            data[0] = <const uint8_t *>PyBytes_AS_STRING(buffer)
            nbytes[0] = PyBytes_GET_SIZE(buffer)
            return 0
        try:
            PyObject_GetBuffer(buffer, &self.exports[self.held], PyBUF_SIMPLE)
        except (TypeError, ValueError, BufferError):
            # Again, for the message.
            view = readable(buffer, f"buffer {index}")
            raise
        self.held += 1
        if holds_objects(buffer):
            view = readable(buffer, f"buffer {index}")
        data[0] = <const uint8_t *>self.exports[self.held - 1].buf
        nbytes[0] = self.exports[self.held - 1].len
        return 0

    cdef int launch(self, int threads, bint encrypt) except -1:
        if self.units <= MAX_UNITS:
            return self.flight.launch(self.runs, self.count, threads, encrypt)
        # One buffer of very many blocks: its nonces come in windows, while this thread waits.
        if encrypt:
            return seal_runs(self.runs, self.count, threads, None)
        return open_runs(self.runs, self.count, threads, _Names(self.first))

    cdef int land(self) except -1:
        if self.flight.flying:
            self.flight.land(_Names(self.first))
        self.let_go()
        return 0

    cdef void let_go(self) noexcept:
        # None if there was no memory for it.
        if self.flight is not None:
            self.flight.wait()
        while self.held > 0:
            self.held -= 1
            PyBuffer_Release(&self.exports[self.held])


cdef class _Batch:
    # The arguments of a batch, and where each result lies in the arena.
    cdef tuple buffers
    cdef tuple keys            # one, or one a buffer
    cdef tuple aad_prefixes    # none, or one a buffer
    cdef tuple lengths         # decrypting: trusted lengths, none or one a buffer
    cdef bint encrypt
    cdef int64_t block_length  # encrypting
    cdef int64_t count
    cdef int64_t *starts       # offset in the arena of each result
    cdef int64_t *sizes        # bytes of each result
    cdef int64_t plaintext_length
    cdef object arena
    cdef uint8_t *base

    def __cinit__(self, buffers, key, aad_prefixes, lengths, bint encrypt, int64_t block_length):
        self.buffers = tuple(buffers)
        self.count = len(self.buffers)
        self.encrypt = encrypt
        self.block_length = block_length
        if isinstance(key, (list, tuple)):
            self.keys = tuple([_as_key(each, index) for index, each in enumerate(key)])
            if len(self.keys) != self.count:
                raise ValueError(f"{len(self.keys)} keys for {self.count} buffers: give one for all, or one each")
        else:
            self.keys = (as_key(key),)
        self.aad_prefixes = ()
        if isinstance(aad_prefixes, (bytes, bytearray, memoryview, str)):
            raise TypeError("aad_prefixes must be a sequence with one prefix for each buffer, or None")
        if aad_prefixes is not None:
            self.aad_prefixes = tuple([_as_bytes(each, index) for index, each in enumerate(aad_prefixes)])
            if len(self.aad_prefixes) != self.count:
                raise ValueError(f"{len(self.aad_prefixes)} aad_prefixes for {self.count} buffers: give one each")
        self.lengths = () if lengths is None else tuple(lengths)
        if lengths is not None and len(self.lengths) != self.count:
            raise ValueError(f"{len(self.lengths)} lengths for {self.count} buffers: give one each")
        self.starts = <int64_t *>PyMem_Malloc((self.count + 1) * sizeof(int64_t))
        self.sizes = <int64_t *>PyMem_Malloc((self.count + 1) * sizeof(int64_t))
        if self.starts == NULL or self.sizes == NULL:
            raise MemoryError(f"no memory for a batch of {self.count} buffers")

    def __dealloc__(self):
        PyMem_Free(self.starts)
        PyMem_Free(self.sizes)

    cdef int64_t measure(self, int64_t index, const uint8_t *data, int64_t nbytes, int64_t *block_length) except -1:
        """Bytes of one result; checks a stream's header and length."""
        cdef int64_t length = 0
        if self.encrypt:
            block_length[0] = self.block_length
            if ags1_encrypted_length(nbytes, self.block_length, &length):
                _layout.encrypted_length(nbytes, self.block_length)
            return length
        return _plaintext_length(index, data, nbytes, self.lengths[index] if self.lengths else None, block_length)

    cdef int lay_out(self, int64_t alignment) except -1:
        """Measure every buffer and make the arena; each result starts at a multiple of `alignment`."""
        cdef _Chunk chunk = _Chunk.__new__(_Chunk)
        cdef const uint8_t *data = NULL
        cdef int64_t index, nbytes = 0, block_length = 0, total = 0, shift, gap
        self.plaintext_length = 0
        for index in range(self.count):
            chunk.hold(self.buffers[index], index, &data, &nbytes)
            self.starts[index] = total
            self.sizes[index] = self.measure(index, data, nbytes, &block_length)
            chunk.let_go()
            # One buffer may come many times, so the sum may be more than 64 bits hold.
            if max(nbytes, self.sizes[index]) > MAX_ARENA - total:
                raise MemoryError("the results of this batch are larger than any memory: make several batches")
            self.plaintext_length += nbytes
            total += (self.sizes[index] + alignment - 1) & ~(alignment - 1)
        self.arena = new_bytes(total + alignment - 1)
        self.base = <uint8_t *>PyBytes_AS_STRING(self.arena)
        if alignment == 1:
            return 0
        # The gaps before, between and behind the results show nothing that was in this memory before.
        shift = -<int64_t><uintptr_t>self.base & (alignment - 1)
        memset(self.base, 0, <size_t>shift)
        memset(self.base + total + shift, 0, <size_t>(alignment - 1 - shift))
        for index in range(self.count):
            self.starts[index] += shift
            gap = -self.sizes[index] & (alignment - 1)
            memset(self.base + self.starts[index] + self.sizes[index], 0, <size_t>gap)
        return 0

    cdef int fill(self, _Chunk chunk, int64_t first) except -1:
        """Hold as many buffers from `first` on as make a chunk, and describe the work on each."""
        cdef const uint8_t *data = NULL
        cdef int64_t index = first, nbytes = 0, size, blocks
        cdef Run *run
        cdef Key key
        cdef bytes prefix
        chunk.first = first
        chunk.count = 0
        chunk.units = 0
        while index < self.count and chunk.count < CHUNK:
            run = &chunk.runs[chunk.count]
            chunk.hold(self.buffers[index], index, &data, &nbytes)
            size = self.measure(index, data, nbytes, &run.block_length)
            if size != self.sizes[index]:
                raise ValueError(f"buffer {index} changed its size while it was being worked on")
            run.header = self.encrypt
            run.first_block = 0
            run.data = data
            run.out = self.base + self.starts[index]
            run.length = size
            if self.encrypt:
                run.out += AGS1_HEADER_LENGTH
                run.length = nbytes
            else:
                run.data += AGS1_HEADER_LENGTH
            key = <Key>self.keys[index if len(self.keys) > 1 else 0]
            run.key = key.octets
            run.key_length = key.length
            run.aad_prefix = <const uint8_t *>b""
            run.aad_prefix_length = 0
            if len(self.aad_prefixes) > 0:
                prefix = <bytes>self.aad_prefixes[index]
                run.aad_prefix = <const uint8_t *>PyBytes_AS_STRING(prefix)
                run.aad_prefix_length = PyBytes_GET_SIZE(prefix)
            blocks = blocks_in(run)
            if chunk.count and chunk.units + blocks > MAX_UNITS:
                # It opens the next chunk; what is held of it here is let go with this one.
                break
            if self.encrypt:
                count_messages(key, blocks)
            chunk.units += blocks
            chunk.count += 1
            index += 1
        return 0

    cdef list run(self, object threads):
        """Do all of it, and answer a memoryview of each result."""
        cdef int crew = choose_threads(threads, self.plaintext_length)
        cdef _Chunk newest = None, older = None, spare = None, chunk
        cdef list result = [None] * self.count
        cdef object view = memoryview(self.arena)
        cdef int64_t first = 0
        # The collector would look at every view again and again.
        cdef bint collecting = gc.isenabled()
        if collecting:
            gc.disable()
        try:
            while first < self.count:
                chunk = spare if spare is not None else _Chunk.__new__(_Chunk)
                spare = None
                self.fill(chunk, first)
                chunk.launch(crew, self.encrypt)
                first += chunk.count
                # Nobody sees a view before every chunk has landed.
                self.add_views(result, view, chunk.first, chunk.count)
                if older is not None:
                    older.land()
                    spare = older
                older, newest = newest, chunk
            if older is not None:
                older.land()
            if newest is not None:
                newest.land()
        finally:
            if collecting:
                gc.enable()
        return result

    cdef int add_views(self, list result, object view, int64_t first, int64_t count) except -1:
        cdef int64_t index
        cdef object one
        cdef Py_buffer *buffer
        for index in range(first, first + count):
            # A memoryview of a memoryview has a description of its own, which may be narrowed: a third less work than
            # slicing with two Python integers.
            one = PyMemoryView_FromObject(view)
            buffer = PyMemoryView_GET_BUFFER(one)
            buffer.buf = self.base + self.starts[index]
            buffer.len = self.sizes[index]
            buffer.shape[0] = self.sizes[index]
            result[index] = one
        return 0


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


cdef int64_t _plaintext_length(
        int64_t index, const uint8_t *data, int64_t nbytes, object trusted, int64_t *block_length) except -1:
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


def encrypt_batch(buffers, key, aad_prefixes, block_length, threads):
    """Encrypt each buffer into a stream of its own. See :func:`ags1.encrypt_many`."""
    _layout.encrypted_length(0, block_length)
    cdef _Batch batch = _Batch(buffers, key, aad_prefixes, None, True, block_length)
    batch.lay_out(1)
    return batch.run(threads)


def decrypt_batch(buffers, key, aad_prefixes, lengths, threads, int64_t alignment=1):
    """Decrypt each buffer, a stream of its own. See :func:`ags1.decrypt_many`.

    Every result starts at an address that is a multiple of `alignment`, a power of two: Arrow wants 64.
    """
    cdef _Batch batch = _Batch(buffers, key, aad_prefixes, lengths, False, 0)
    batch.lay_out(alignment)
    return batch.run(threads)
