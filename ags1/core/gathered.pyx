"""Plaintext that a Writer has taken, and the thread that seals and writes it behind the Writer's back.

    memory   | ... | nonce | plaintext | tag | nonce | plaintext | tag | nonce | plaintext
                   ^ FIRST_CELL                                          filled so far ----^

    gathered.take(data)                         copied to where it will be sealed
    gathered.start(descriptor, ..., helper)     sealed in place and written in one piece, by the helper's thread
    gathered.wait()

Sealed not as it is taken, but all at once: a block that is half sealed must not wait for the rest of its plaintext,
since a machine that is cloned meanwhile would go on with one nonce twice.

Source: AES GCM Stream specification, "Cipher Block structure" and "Additional Authenticated Data".
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Resize
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.errno cimport errno
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy

from ags1.core.blocks cimport seal_block
from ags1.core.buffer cimport BufferView, readable
from ags1.core.forks cimport ags1_count_forks, ags1_process
from ags1.core.gcm cimport (
    GCM_BACKEND, GCM_OK, Key, as_key, count_messages, draw_nonces, gcm_context_free, gcm_context_new, gcm_last_error,
    raise_status,
)
from ags1.core.gcm_library cimport GcmContext
from ags1.core.layout cimport AGS1_BLOCK_OVERHEAD, AGS1_MAX_BLOCKS, AGS1_NONCE_LENGTH, ags1_block_count
from ags1.core.positioned cimport AGS1_IO_WRITE, ags1_write_at
from ags1.core.workers cimport (
    ags1_await, ags1_dismiss, ags1_fail, ags1_failure, ags1_failure_init, ags1_give, ags1_helper, ags1_helper_init,
    ags1_is_late, ags1_task,
)

cimport cython

import os

from ags1.errors import LimitError

if ags1_count_forks():
    raise MemoryError("no memory to be told of forks")

cdef extern from "Python.h":
    enum:
        PyBUF_READ

# Large memory of malloc's begins 16 bytes into a page. Processors of AMD copy with `rep movsb`, as memcpy does, at a
# fifth of their speed when the destination lies 1 to 31 bytes further into its page than the source: the first
# plaintext is kept away from callers' memory, which begins at most 48 bytes into one.
cdef int64_t FIRST_CELL = 112


cdef struct Cells:
    uint8_t *cells
    int64_t length             # bytes of plaintext
    int64_t block_length
    int64_t count              # blocks
    int64_t first_block
    int target                 # -1: nothing is written
    int64_t target_offset
    uint8_t *nonces
    GcmContext *context
    uint8_t *aad               # the prefix, and four bytes for the index of a block
    size_t aad_length
    ags1_failure failure
    bint is_sealed


cdef void _seal(Cells *job) noexcept nogil:
    """Seal all cells where they lie."""
    cdef int64_t stride = job.block_length + AGS1_BLOCK_OVERHEAD
    cdef int64_t block = 0, length
    cdef uint8_t *cell
    cdef int status = GCM_OK
    while status == GCM_OK and block < job.count:
        length = min(job.block_length, job.length - block * job.block_length)
        cell = job.cells + block * stride
        status = seal_block(
            job.context, job.aad, job.aad_length - 4, job.first_block + block, job.nonces + block * AGS1_NONCE_LENGTH,
            cell + AGS1_NONCE_LENGTH, length, cell)
        block += 1
    if status != GCM_OK:
        ags1_fail(&job.failure, status, 0, job.first_block + block, 0, gcm_last_error(status))
    job.is_sealed = True


cdef void *_work(void *argument) noexcept nogil:
    """Seal all cells, unless that is done, then write them."""
    cdef Cells *job = <Cells *>argument
    cdef int status
    if not job.is_sealed:
        _seal(job)
    if job.target >= 0 and not job.failure.failed:
        status = ags1_write_at(
            job.target, job.cells, job.length + job.count * AGS1_BLOCK_OVERHEAD, job.target_offset)
        if status != GCM_OK:
            ags1_fail(&job.failure, status, 0, job.first_block, errno, 0)
    return NULL


cdef void *_resized(void *memory, size_t length) except NULL:
    cdef void *resized = PyMem_Realloc(memory, length)
    if resized == NULL:
        raise MemoryError(f"no memory for {length} bytes")
    return resized


cdef class Helper:
    """The thread behind a Writer, which seals and writes one Gathered after the other.

    It is none of Python's: that would wait for the GIL before it begins, as long as the owner does not let go of it. It
    exists while there is something to do, and ends with the Helper at the latest.
    """

    cdef ags1_helper helper
    cdef int64_t process

    def __cinit__(self):
        ags1_helper_init(&self.helper)
        self.process = ags1_process()

    def __dealloc__(self):
        if self.process == ags1_process():
            with nogil:
                ags1_dismiss(&self.helper)


# The garbage collector must not take the helper from one that waits for it when it is deallocated.
@cython.no_gc_clear
cdef class Gathered:
    """Plaintext that waits to be sealed, laid out as the blocks that it becomes.

    The memory is used again: fresh memory costs more than the cipher.

    Parameters
    ----------
    block_length : int
        Bytes of plaintext in a block.
    blocks : int
        Blocks that it takes at most. The memory grows up to that, so that a short stream needs little.

    Attributes
    ----------
    capacity : int
        Bytes of plaintext that it takes at most.
    filled : int
        Bytes of plaintext that wait.

    Notes
    -----
    For one thread at a time. A forked child must not go on with what its parent has started.
    """

    cdef readonly int64_t capacity
    cdef readonly int64_t filled
    cdef int64_t block_length
    cdef object memory
    cdef Cells job
    cdef ags1_task task
    cdef Helper helper
    cdef bint under_way
    cdef bint is_waited_for
    cdef int64_t process
    cdef object name
    cdef Key key

    def __init__(self, int64_t block_length, int64_t blocks):
        self.block_length = block_length
        self.capacity = block_length * blocks
        self.memory = bytearray()

    def __dealloc__(self):
        if self.under_way and self.process == ags1_process() and self.helper is not None:
            with nogil:
                ags1_await(&self.helper.helper, &self.task)
        gcm_context_free(self.job.context)
        PyMem_Free(self.job.aad)
        PyMem_Free(self.job.nonces)

    def take(self, data):
        """Copy as much of `data` as there is room for; return how many bytes that is.

        Raises
        ------
        ValueError
            What was gathered before is being sealed.
        """
        cdef BufferView source = readable(data, "data")
        cdef int64_t count = min(<int64_t>source.nbytes, self.capacity - self.filled)
        self._copy(source.data, count)
        return count

    def take_whole(self, data):
        """Copy all of `data` and return its length in bytes; take nothing and return -1, if that would fill the room.

        Raises
        ------
        ValueError
            What was gathered before is being sealed.
        """
        cdef BufferView source = readable(data, "data")
        if <int64_t>source.nbytes >= self.capacity - self.filled:
            return -1
        self._copy(source.data, source.nbytes)
        return source.nbytes

    cdef int _copy(self, const uint8_t *data, int64_t count) except -1:
        cdef int64_t done = 0, block, within, step
        cdef uint8_t *cells
        if self.under_way:
            raise ValueError("this memory is being sealed")
        cells = self._cells(self.filled + count)
        while done < count:
            block = self.filled // self.block_length
            within = self.filled % self.block_length
            step = min(count - done, self.block_length - within)
            memcpy(
                cells + block * (self.block_length + AGS1_BLOCK_OVERHEAD) + AGS1_NONCE_LENGTH + within,
                data + done, <size_t>step)
            self.filled += step
            done += step
        return 0

    def take_rest(self, Gathered other):
        """Take the bytes behind the last whole block of `other`."""
        cdef int64_t rest = other.filled % other.block_length
        cdef uint8_t *cells = other._cells(other.filled)
        other.filled -= rest
        cells += other.filled // other.block_length * (other.block_length + AGS1_BLOCK_OVERHEAD) + AGS1_NONCE_LENGTH
        self.take(PyMemoryView_FromMemory(<char *>cells, rest, PyBUF_READ))

    def start(self, int target, int64_t target_offset, key, aad_prefix, int64_t first_block, Helper helper, name=None):
        """Begin to seal what was gathered, and to write it at `target_offset` of the descriptor `target`.

        :meth:`wait` must follow.

        Parameters
        ----------
        target : int
            A descriptor that stays open until :meth:`wait` has returned; -1 if nothing is to be written.
        helper : Helper or None
            Whose thread does it. Without one, or if no thread can be had, it is done before this returns; and it is
            sealed before this returns if the helper has not begun what it was given before.
        """
        cdef Cells *job = &self.job
        cdef BufferView prefix = readable(aad_prefix, "aad_prefix")
        if self.under_way:
            raise ValueError("this memory is being sealed")
        if helper is not None and helper.process != ags1_process():
            raise OSError("this helper belongs to the process that this one was forked from")
        self._use(as_key(key), prefix)
        self.name = name
        self.process = ags1_process()
        job.cells = self._cells(self.filled)
        job.length = self.filled
        job.block_length = self.block_length
        job.first_block = first_block
        job.target = target
        job.target_offset = target_offset
        ags1_failure_init(&job.failure)
        if first_block < 0 or ags1_block_count(job.length, job.block_length, &job.count):
            raise ValueError(f"{job.length} bytes at block {first_block} in blocks of {job.block_length}")
        if first_block > AGS1_MAX_BLOCKS - job.count:
            raise LimitError(f"block {first_block + job.count} is above the {AGS1_MAX_BLOCKS} blocks of a stream")
        count_messages(self.key, job.count)
        job.nonces = <uint8_t *>_resized(job.nonces, job.count * AGS1_NONCE_LENGTH)
        draw_nonces(job.nonces, job.count * AGS1_NONCE_LENGTH)
        job.is_sealed = False
        self.task.work, self.task.job = _work, job
        self.helper = helper
        self.under_way = self.is_waited_for = True
        with nogil:
            if helper is None:
                _work(job)
            else:
                # One core would write all the time, and seal besides, while the other waits for it.
                if ags1_is_late(&helper.helper):
                    _seal(job)
                if not ags1_give(&helper.helper, &self.task):
                    _work(job)
        self.is_waited_for = False

    def wait(self):
        """Return when what was started is done: False if nothing was.

        Raises
        ------
        OSError
            Writing failed, or this is a forked child of the process that started it.
        LimitError, BackendError
        """
        cdef ags1_failure *failure
        was_started = self.stop()
        failure = &self.job.failure
        if was_started and failure.failed:
            if failure.status == AGS1_IO_WRITE:
                raise OSError(failure.system_error, os.strerror(failure.system_error), self.name)
            raise_status(failure.status, failure.backend_error, "encrypting blocks")
        return was_started

    def stop(self):
        """Wait until no thread works on this memory any more; return False if none did."""
        if not self.under_way:
            return False
        if self.process != ags1_process():
            raise OSError("this was begun by the process that this one was forked from")
        if self.is_waited_for:
            raise ValueError("another thread waits for this already: a stream must not be shared between threads")
        if self.helper is not None:
            self.is_waited_for = True
            with nogil:
                ags1_await(&self.helper.helper, &self.task)
        self.is_waited_for = self.under_way = False
        return True

    def stored(self):
        """The blocks that were sealed. The view must not outlive the next :meth:`take`."""
        if self.under_way:
            raise ValueError("this memory is being sealed")
        self._cells(self.filled)
        return memoryview(self.memory)[FIRST_CELL : FIRST_CELL + self._stored(self.filled)].toreadonly()

    def clear(self):
        """Forget what was gathered; keep the memory for more."""
        self.filled = 0

    cdef int _use(self, Key key, BufferView prefix) except -1:
        """Have a context under the key, the same for all blocks, and the additional data of the first."""
        cdef Cells *job = &self.job
        if key is not self.key:
            gcm_context_free(job.context)
            job.context = NULL
            self.key = key
        if job.context == NULL:
            job.context = gcm_context_new(key.octets, key.length, True)
            if job.context == NULL:
                raise_status(GCM_BACKEND, gcm_last_error(GCM_BACKEND), "making a context")
        job.aad = <uint8_t *>_resized(job.aad, prefix.nbytes + 4)
        job.aad_length = prefix.nbytes + 4
        memcpy(job.aad, prefix.data, prefix.nbytes)
        return 0

    cdef int64_t _stored(self, int64_t length) noexcept:
        """Bytes that plaintext from the first cell on has as blocks; nothing at all is one empty block."""
        return length + max(1, (length + self.block_length - 1) // self.block_length) * AGS1_BLOCK_OVERHEAD

    cdef uint8_t *_cells(self, int64_t filled) except NULL:
        """The cells, with room for `filled` bytes of plaintext."""
        cdef int64_t needed = FIRST_CELL + self._stored(filled)
        cdef int64_t room = len(self.memory)
        if room < needed:
            # Not initialised: bytes that were not written are never seen.
            PyByteArray_Resize(self.memory, max(needed, min(2 * room, FIRST_CELL + self._stored(self.capacity))))
        return <uint8_t *>PyByteArray_AS_STRING(self.memory) + FIRST_CELL
