"""Blocks of a file that are opened before they are asked for: what makes a Reader fast while it reads straight on.

    unit     some whole blocks, about a mebibyte
    slots    | being copied from | opened | being opened | given to a helper |    units that are not begun
               ^ first                                                           ^ next

The caller never waits while there is something to do: a unit that no helper has begun it takes back and opens itself,
and while a helper is at the unit that it needs, it opens a later one. A unit that the caller wants whole, and that
nobody has begun, is opened where the caller wants it. Everything else is copied once.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_CheckSignals
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset
from posix.stdlib cimport posix_memalign

from ags1.core.buffer cimport BufferView, writable
from ags1.core.descriptors cimport Transfer, span_of, transfer_work
from ags1.core.forks cimport ags1_count_forks, ags1_process
from ags1.core.gcm cimport Key, gcm_context_free, gcm_context_new
from ags1.core.gcm_library cimport GcmContext
from ags1.core.layout cimport ags1_block_offset
from ags1.core.workers cimport (
    ags1_await, ags1_dismiss, ags1_failure_init, ags1_give, ags1_helper, ags1_helper_init, ags1_is_under_way,
    ags1_take_back, ags1_task,
)

cimport cython

import io

if ags1_count_forks():
    raise MemoryError("no memory to be told of forks")

cdef extern from *:
    """
    #include <sys/stat.h>
    static int ags1_is_as_it_was(int descriptor, int64_t length, uint64_t modified)
    {
        struct stat found;
    #ifdef __APPLE__
    #define st_mtim st_mtimespec
    #endif
        return fstat(descriptor, &found) == 0 && found.st_size == length &&
               (uint64_t)found.st_mtim.tv_sec * UINT64_C(1000000000) + (uint64_t)found.st_mtim.tv_nsec == modified;
    }
    """
    bint ags1_is_as_it_was(int descriptor, int64_t length, uint64_t modified) nogil

cdef int64_t UNIT_BYTES = 1 << 20
# A larger copy lets other threads of Python run meanwhile.
cdef int64_t LONG_COPY = 256 << 10
# A crew of more threads than work here is faster then.
cdef int64_t LARGEST = 8 << 20
cdef size_t PAGE = 4096
cdef enum:
    MOST_HELPERS = 3


cdef struct Slot:
    uint8_t *memory
    GcmContext *context
    Transfer job
    ags1_task task
    ags1_helper *helper


# Where the caller wants the bytes of one call.
cdef struct Wanted:
    int64_t begin
    int64_t end
    uint8_t *data


# The garbage collector must not take the key from one whose helpers are at work.
@cython.no_gc_clear
cdef class Ahead:
    """Reads straight on through the plaintext of a file.

    Parameters
    ----------
    key : Key
    aad_prefix : bytes
    block_length : int
    size : int
        Bytes of plaintext.
    threads : int
        Threads that open blocks, the caller's included. With one, nothing is opened before it is asked for.

    Attributes
    ----------
    unit_length : int
        Bytes of memory that a slot takes.
    most_slots : int
        Slots that are of use.

    Notes
    -----
    For one thread at a time. A forked child starts anew.
    """

    cdef readonly int64_t unit_length
    cdef readonly int most_slots
    cdef int64_t block_length
    cdef int64_t size
    cdef Key key
    cdef bytes aad_prefix
    cdef const uint8_t *prefix
    cdef size_t prefix_length
    cdef int descriptor
    cdef int64_t stored          # bytes of the file
    cdef uint64_t modified       # when, in ns modulo 2^64: some file systems know the year 2262, and later ones
    cdef ags1_helper helpers[MOST_HELPERS]
    cdef int helper_count
    cdef int threads
    cdef Slot *slots             # NULL: nothing is ahead
    cdef int64_t count           # slots; unit u is in slot u % count
    cdef int64_t first
    cdef int64_t next
    cdef int64_t reach           # units from `first` on that may be begun; it grows while reading goes straight on
    cdef bint is_open            # `first` is opened, and the file was not changed
    cdef bint is_used
    cdef Wanted wanted
    cdef int64_t process

    def __cinit__(self, Key key not None, bytes aad_prefix not None, int64_t block_length, int64_t size, int threads):
        if block_length < 1 or size < 0:
            raise ValueError(f"{size} bytes in blocks of {block_length}")
        self.key, self.aad_prefix, self.block_length, self.size = key, aad_prefix, block_length, size
        self.prefix = <const uint8_t *>PyBytes_AS_STRING(aad_prefix)
        self.prefix_length = <size_t>PyBytes_GET_SIZE(aad_prefix)
        self.unit_length = max(1, UNIT_BYTES // block_length) * block_length
        self.threads, self.helper_count = threads, max(0, min(threads - 1, MOST_HELPERS))
        self.most_slots = 2 * (1 + self.helper_count) if self.helper_count else 1
        self._forget()

    def __dealloc__(self):
        cdef int number
        if self.process != ags1_process():
            self._free()
            return
        with nogil:
            self._drop()
            for number in range(self.helper_count):
                ags1_dismiss(&self.helpers[number])

    def begin(self, int64_t position, int slots, int descriptor, status):
        """Begin at a position of the plaintext, with so many slots; unless it is begun already.

        Parameters
        ----------
        descriptor : int
            A file that stays open until :meth:`drop`.
        status : os.stat_result
            Of the file when it was opened. No unit is used that was read after the file had changed.
        """
        self._enter()
        if self.slots != NULL:
            return
        if slots < 1 or position < 0:
            raise ValueError(f"{slots} slots at {position}")
        self.stored, self.modified = status.st_size, status.st_mtime_ns % (1 << 64)
        self.slots = <Slot *>calloc(<size_t>slots, sizeof(Slot))
        if self.slots == NULL:
            raise MemoryError(f"no memory for {slots} slots")
        self.count, self.descriptor = slots, descriptor
        self.first = self.next = position // self.unit_length
        self.reach, self.is_open = min(2, slots), False

    def read_into(self, int64_t position, out):
        """Fill `out` from a position; return how many bytes that were, 0 if nothing was begun there.

        Reading elsewhere drops what is ahead, and a failure does, too: then the caller reads the position by itself,
        and sees why.
        """
        cdef BufferView target
        cdef int64_t done = 0, unit, within, count
        cdef Slot *slot
        cdef bint is_well = False
        if self.slots == NULL:
            return 0
        self._enter()
        unit = position // self.unit_length
        if self.slots == NULL or position < 0 or position >= self.size:
            return 0
        if not self.first <= unit <= self.next:
            self.drop()
            return 0
        target = writable(out, "out")
        if self.threads > MOST_HELPERS + 1 and <int64_t>target.nbytes > LARGEST:
            return 0
        self.wanted.begin, self.wanted.end = position, min(position + <int64_t>target.nbytes, self.size)
        self.wanted.data = target.data
        self.is_used = True
        try:
            while position + done < self.wanted.end:
                unit = (position + done) // self.unit_length
                self._advance(unit)
                slot = &self.slots[unit % self.count]
                if not self.is_open and not self._obtain(slot, unit):
                    return done
                within = position + done - unit * self.unit_length
                count = min(slot.job.length - within, self.wanted.end - position - done)
                if slot.job.out != target.data + done:
                    if count < LONG_COPY:
                        memcpy(target.data + done, slot.job.out + within, <size_t>count)
                    else:
                        with nogil:
                            memcpy(target.data + done, slot.job.out + within, <size_t>count)
                done += count
                if within + count == slot.job.length:
                    self._advance(unit + 1)
            self.wanted.data = NULL
            self._give()
            is_well = True
            return done
        finally:
            self.wanted.data = NULL
            self.is_used = False
            if not is_well:
                # Helpers may still write to `out`.
                self.drop()

    def drop(self):
        """Forget what is ahead; wait for the helpers that are at it."""
        self._enter()
        with nogil:
            self._drop()

    cdef int _enter(self) except -1:
        if self.process != ags1_process():
            # The helpers, and who waits for them, are the parent's.
            self._free()
            self._forget()
        elif self.is_used:
            raise ValueError("another thread reads from this: a raw stream must not be shared between threads")
        return 0

    cdef void _forget(self) noexcept:
        cdef int number
        self.process = ags1_process()
        self.is_used = False
        for number in range(self.helper_count):
            ags1_helper_init(&self.helpers[number])

    cdef void _drop(self) noexcept nogil:
        cdef int64_t number
        cdef Slot *slot
        if self.slots != NULL:
            for number in range(self.count):
                slot = &self.slots[number]
                if slot.helper != NULL and not ags1_take_back(slot.helper, &slot.task):
                    ags1_await(slot.helper, &slot.task)
        self._free()

    cdef void _free(self) noexcept nogil:
        cdef int64_t number
        if self.slots != NULL:
            for number in range(self.count):
                gcm_context_free(self.slots[number].context)
                free(self.slots[number].memory)
            free(self.slots)
            self.slots = NULL

    cdef void _advance(self, int64_t unit) noexcept:
        """Let the units in front of this one go."""
        cdef Slot *slot
        while self.first < unit:
            slot = &self.slots[self.first % self.count]
            if self.first < self.next and slot.helper != NULL:
                with nogil:
                    if not ags1_take_back(slot.helper, &slot.task):
                        ags1_await(slot.helper, &slot.task)
            self.first += 1
            self.reach = min(2 * self.reach, self.count)
            self.is_open = False
        self.next = max(self.next, self.first)

    cdef bint _obtain(self, Slot *slot, int64_t unit) except -1:
        """Have a unit opened, here or by a helper; return whether it could be."""
        cdef bint is_mine = unit == self.next
        if is_mine:
            self.next += 1
            slot.helper = NULL
        self._give()
        with nogil:
            if not is_mine and slot.helper != NULL:
                is_mine = ags1_take_back(slot.helper, &slot.task)
            if is_mine:
                self._open(slot, unit)
            elif slot.helper != NULL:
                while ags1_is_under_way(slot.helper, &slot.task):
                    if not self._open_later(unit):
                        ags1_await(slot.helper, &slot.task)
            # Not by Python, whose code is in no cache after a unit: that took a tenth of all.
            self.is_open = not slot.job.failure.failed and ags1_is_as_it_was(
                self.descriptor, self.stored, self.modified)
        # Ctrl-C ends a large read.
        PyErr_CheckSignals()
        return self.is_open

    cdef bint _open_later(self, int64_t unit) noexcept nogil:
        """Open one of the units behind this one, if no helper has begun it."""
        cdef int64_t later
        cdef Slot *slot
        for later in range(unit + 1, self.next):
            slot = &self.slots[later % self.count]
            if slot.helper != NULL and ags1_take_back(slot.helper, &slot.task):
                self._open(slot, later)
                return True
        return False

    cdef void _give(self) noexcept:
        """Give units to the helpers, as far as they may be ahead."""
        cdef Slot *slot
        cdef ags1_helper *helper
        if not self.helper_count:
            return
        while self.next < self.first + self.reach and self.next * self.unit_length < self.size:
            slot = &self.slots[self.next % self.count]
            helper = &self.helpers[self.next % self.helper_count]
            slot.helper = NULL
            if not self._prepare(slot, self.next) or not ags1_give(helper, &slot.task):
                return
            slot.helper = helper
            self.next += 1

    cdef void _open(self, Slot *slot, int64_t unit) noexcept nogil:
        if self._prepare(slot, unit):
            transfer_work(&slot.job)
        else:
            slot.job.failure.failed = True

    cdef bint _prepare(self, Slot *slot, int64_t unit) noexcept nogil:
        """Say what is to be opened, and where to; return whether there is memory for it."""
        cdef Transfer *job = &slot.job
        cdef int64_t begin = unit * self.unit_length
        cdef int64_t length = min(self.unit_length, self.size - begin)
        memset(job, 0, sizeof(Transfer))
        ags1_failure_init(&job.failure)
        if slot.context == NULL:
            slot.context = gcm_context_new(self.key.octets, self.key.length, False)
        job.context = slot.context
        job.key.octets, job.key.length = self.key.octets, self.key.length
        job.key.aad_prefix, job.key.aad_prefix_length = self.prefix, self.prefix_length
        job.first_block = begin // self.block_length
        job.source, job.source_offset = self.descriptor, ags1_block_offset(job.first_block, self.block_length)
        job.target = -1
        job.length, job.block_length = length, self.block_length
        job.count = (length + self.block_length - 1) // self.block_length
        job.span = span_of(self.block_length)
        slot.task.work, slot.task.job = transfer_work, job
        if self.wanted.data != NULL and self.wanted.begin <= begin and begin + length <= self.wanted.end:
            job.out = self.wanted.data + (begin - self.wanted.begin)
            return True
        if slot.memory == NULL:
            if posix_memalign(<void **>&slot.memory, PAGE, <size_t>self.unit_length):
                slot.memory = NULL
        job.out = slot.memory
        return slot.memory != NULL


cdef extern from *:
    """
    #include <structmember.h>
    static _PyCFunctionFast ags1_readline;
    static PyObject *ags1_closed_name;
    static Py_ssize_t ags1_closed_place;
    static PyTypeObject *ags1_asked[8];
    static int ags1_asked_count;

    static PyObject *ags1_attribute(PyObject *raw, PyObject *name);

    static PyObject *ags1_next_line(PyObject *reader)
    {
        PyObject *line;
        /* From the first line on: of a type with another tp_getattro, CPython makes an object for each method call. */
        while (ags1_asked_count > 0)
            ags1_asked[--ags1_asked_count]->tp_getattro = ags1_attribute;
        line = ags1_readline(reader, NULL, 0);
        if (line != NULL && PyBytes_GET_SIZE(line) == 0)
            Py_CLEAR(line);
        return line;
    }

    static void ags1_iterate_by_lines(PyTypeObject *type, PyObject *readline)
    {
        PyMethodDef *method;
        if (!Py_IS_TYPE(readline, &PyMethodDescr_Type))
            return;
        method = ((PyMethodDescrObject *)readline)->d_method;
        if (method->ml_flags == METH_FASTCALL) {
            ags1_readline = (_PyCFunctionFast)(void (*)(void))method->ml_meth;
            type->tp_iternext = ags1_next_line;
            PyType_Modified(type);
        }
    }

    static PyObject *ags1_attribute(PyObject *raw, PyObject *name)
    {
        PyObject *closed = *(PyObject **)((char *)raw + ags1_closed_place);
        if (name != ags1_closed_name && PyUnicode_CheckExact(name) &&
            PyUnicode_CompareWithASCIIString(name, "closed") == 0) {
            /* CPython's own before 3.12 is not interned: the next time it is known. */
            Py_INCREF(name);
            Py_XSETREF(ags1_closed_name, name);
        }
        if (name != ags1_closed_name || closed == NULL)
            return PyObject_GenericGetAttr(raw, name);
        Py_INCREF(closed);
        return closed;
    }

    static void ags1_answer_closed(PyObject *raw, PyObject *slot)
    {
        PyTypeObject *type = (PyTypeObject *)raw;
        Py_ssize_t place;
        if (!Py_IS_TYPE(slot, &PyMemberDescr_Type) || type->tp_getattro != PyObject_GenericGetAttr)
            return;
        place = ((PyMemberDescrObject *)slot)->d_member->offset;
        if ((ags1_closed_place != 0 && ags1_closed_place != place) || ags1_asked_count == 8)
            return;
        ags1_closed_place = place;
        Py_INCREF(raw);
        ags1_asked[ags1_asked_count++] = type;
    }
    """
    void ags1_iterate_by_lines(type readers, object readline)
    void ags1_answer_closed(object raw, object slot)


def iterates_quickly(type readers not None):
    """Decorate a subclass of io.BufferedReader: iterating over its lines is then as fast as over those of that class.

    CPython looks the method readline up for each line of a subclass, which takes half as long as reading a short line.
    A class below the decorated one may replace the method: its lines are read as CPython does.
    """
    if not issubclass(readers, io.BufferedReader) or readers.readline is not io.BufferedReader.readline:
        raise TypeError(f"{readers.__name__} does not have the lines of io.BufferedReader")
    ags1_iterate_by_lines(readers, io.BufferedReader.readline)
    return readers


def answers_closed_quickly(raw):
    """Decorate a raw stream that says in a slot whether it is `closed`.

    A BufferedReader asks for each line, which would take a quarter of the time of a short one. A class below the
    decorated one is asked as slowly as others.
    """
    if not issubclass(raw, io.RawIOBase):
        raise TypeError(f"{raw.__name__} is no raw stream")
    ags1_answer_closed(raw, raw.closed)
    return raw
