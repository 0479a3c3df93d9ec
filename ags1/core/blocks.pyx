"""AGS1 blocks in memory: seal or open ranges of blocks, and whole batches of streams, over a crew of threads.

    plaintext   | B bytes      | B bytes      | 1..B      |       tightly packed
                     seal |  ^ open
    blocks      | nonce ct tag | nonce ct tag | nonce ct tag |    each 28 bytes longer
    AAD of block i = aad_prefix || int32_le(i)

Work is a list of runs: consecutive blocks of one stream each. A worker takes a share of the total weight (bytes plus a
constant a block) from a counter, finds its first run by bisection, and goes on until the share ends::

    runs[0] = Run(data, out, length, block_length, first_block, key, ..., aad_prefix, ...)
    seal_runs(runs, 1, threads, None)

The nonces of up to 2^17 blocks are drawn at once, before the crew starts. The crew runs without the GIL. When a tag
fails, all output of the call is wiped.

Source: AES GCM Stream specification, "Cipher Block structure" and "Additional Authenticated Data".
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uintptr_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from ags1.core.buffer cimport BufferView, overlap, readable, writable
from ags1.core.gcm cimport (
    GCM_BACKEND, GCM_BAD_TAG, GCM_NO_MEMORY, GCM_OK, Key, as_key, count_messages, draw_nonces, gcm_context_free,
    gcm_context_new, gcm_context_rekey, gcm_last_error, new_nonces, raise_status,
)
from ags1.core.gcm_library cimport GcmContext
from ags1.core.layout cimport (
    AGS1_BLOCK_OVERHEAD, AGS1_HEADER_LENGTH, AGS1_MAX_BLOCKS, AGS1_NONCE_LENGTH, ags1_block_count,
    ags1_encrypted_length, ags1_plaintext_length, ags1_read_header, ags1_write_header,
)
from ags1.core.workers cimport (
    AGS1_MAX_CREW, ags1_add, ags1_fail, ags1_failure, ags1_failure_init, ags1_has_failed, ags1_run_crew,
    ags1_take_share,
)

import operator
import os

from ags1.core import layout
from ags1.errors import AuthenticationError, FormatError, LimitError, TruncatedError

cdef extern from "Python.h":
    enum:
        PyBUF_WRITE
    void Py_SET_SIZE(object o, Py_ssize_t size)

cdef extern from "sys/mman.h" nogil:
    int madvise(void *address, size_t length, int advice)

cdef extern from *:
    """
    #include <sys/mman.h>
    #ifdef MADV_HUGEPAGE
    #define AGS1_ADVISE_HUGE MADV_HUGEPAGE
    #else
    #define AGS1_ADVISE_HUGE (-1)
    #endif
    #ifdef __linux__
    #define AGS1_COLLAPSE 25 /* MADV_COLLAPSE of Linux 6.1, newer than many C libraries' headers */
    #else
    #define AGS1_COLLAPSE AGS1_ADVISE_HUGE
    #endif
    """
    int AGS1_ADVISE_HUGE, AGS1_COLLAPSE

# What a block costs beside its bytes (nonce, AAD, tag, call), in bytes of AES-GCM.
cdef int64_t BLOCK_WEIGHT = 1024
# Below this a crew costs more than it saves.
cdef int64_t SMALL = 2 << 20
# A result at least this large is advised to use huge pages: page faults cost more than the cipher.
cdef int64_t HUGE_RESULT = 4 << 20
cdef int64_t PAGE = os.sysconf("SC_PAGESIZE")
cdef int64_t HUGE_PAGE = 2 << 20
# From here on malloc always takes a mapping of its own (the largest threshold that glibc gives itself), and how many
# bytes of that are the headers of malloc and of the object, and its last NUL.
cdef int64_t MAPPED_RESULT = 32 << 20
cdef int64_t MAPPING_OVERHEAD = 64
# A worker takes no less than this weight at once, or a block.
cdef int64_t SMALLEST_SHARE = 64 << 10
# AADs up to this many bytes are built on a worker's stack.
cdef enum:
    STACK_AAD = 512


cdef struct Job:
    Run *runs
    int64_t count
    int64_t weight               # of all runs
    int members
    int64_t next_share           # where it begins
    int64_t units                # blocks of all runs
    int64_t done                 # blocks that were sealed or opened, over all workers
    size_t longest_aad_prefix
    const uint8_t *nonces        # NULL when opening
    ags1_failure failure


cdef int64_t blocks_in(const Run *run) noexcept nogil:
    cdef int64_t count = 1
    ags1_block_count(run.length, run.block_length, &count)
    return count


cdef void *_work(void *argument) noexcept nogil:
    """One member of the crew: take shares until none is left or something failed."""
    cdef Job *job = <Job *>argument
    cdef bint encrypt = job.nonces != NULL
    cdef GcmContext *context = NULL
    cdef const uint8_t *context_key = NULL
    cdef uint8_t stack_aad[STACK_AAD]
    cdef uint8_t *aad = stack_aad
    cdef const Run *aad_run = NULL
    cdef const Run *run
    cdef const uint8_t *data
    cdef uint8_t *out
    cdef int64_t start, end, low, high, middle, block, weight, step, length, stride, done = 0
    cdef int status = GCM_OK

    if job.longest_aad_prefix + 4 > STACK_AAD:
        aad = <uint8_t *>malloc(job.longest_aad_prefix + 4)
        if aad == NULL:
            ags1_fail(&job.failure, GCM_NO_MEMORY, 0, 0, 0, 0)
            return NULL

    while status == GCM_OK and not ags1_has_failed(&job.failure):
        start = ags1_take_share(&job.next_share, job.weight, SMALLEST_SHARE, job.members, &end)
        if start == job.weight:
            break
        low = 0
        high = job.count
        while high - low > 1:
            middle = (low + high) // 2
            if job.runs[middle].first_weight <= start:
                low = middle
            else:
                high = middle
        while low < job.count and status == GCM_OK:
            run = &job.runs[low]
            step = run.block_length + BLOCK_WEIGHT
            stride = run.block_length + AGS1_BLOCK_OVERHEAD
            block = max(0, (start - run.first_weight + step - 1) // step)
            if block * run.block_length >= run.length and block > 0:
                # The share starts inside this run's last block, which belongs to the share before.
                low += 1
                continue
            weight = run.first_weight + block * step
            if weight >= end:
                break
            while weight < end and (block * run.block_length < run.length or block == 0):
                if context == NULL:
                    context = gcm_context_new(run.key, run.key_length, encrypt)
                    status = GCM_OK if context != NULL else GCM_BACKEND
                elif context_key != run.key:
                    status = gcm_context_rekey(context, run.key, run.key_length, encrypt)
                if status == GCM_OK:
                    context_key = run.key
                    if aad_run != run:
                        memcpy(aad, run.aad_prefix, run.aad_prefix_length)
                        aad_run = run
                    length = min(run.block_length, run.length - block * run.block_length)
                    if encrypt:
                        data = run.data + block * run.block_length
                        out = run.out + block * stride
                        if block == 0 and run.header:
                            ags1_write_header(out - AGS1_HEADER_LENGTH, run.block_length)
                        status = seal_block(
                            context, aad, run.aad_prefix_length, run.first_block + block,
                            job.nonces + (run.first_unit + block) * AGS1_NONCE_LENGTH, data, length, out)
                    else:
                        data = run.data + block * stride
                        out = run.out + block * run.block_length
                        status = open_block(
                            context, aad, run.aad_prefix_length, run.first_block + block, data, length, out)
                if status != GCM_OK:
                    ags1_fail(&job.failure, status, low, run.first_block + block, 0, gcm_last_error(status))
                    break
                block += 1
                weight += step
                done += 1
            low += 1
    ags1_add(&job.done, done)

    gcm_context_free(context)
    if aad != stack_aad:
        free(aad)
    return NULL


cdef void _prepare(Job *job, Run *runs, int64_t count, int64_t *units) noexcept nogil:
    cdef int64_t index, blocks
    job.runs = runs
    job.count = count
    job.weight = 0
    job.next_share = 0
    job.done = 0
    job.longest_aad_prefix = 0
    job.nonces = NULL
    units[0] = 0
    for index in range(count):
        blocks = blocks_in(&runs[index])
        runs[index].first_unit = units[0]
        runs[index].first_weight = job.weight
        units[0] += blocks
        # Blocks start at multiples of the step; the last one may be lighter.
        job.weight += (blocks - 1) * (runs[index].block_length + BLOCK_WEIGHT) + BLOCK_WEIGHT
        job.weight += runs[index].length - (blocks - 1) * runs[index].block_length
        job.longest_aad_prefix = max(job.longest_aad_prefix, runs[index].aad_prefix_length)
    job.units = units[0]
    ags1_failure_init(&job.failure)


cdef int _judge(Job *job, bint encrypt, object names) except -1:
    """Raise what the earliest failure of a finished job means; wipe what was decrypted."""
    cdef int64_t index
    if job.failure.failed:
        if encrypt:
            raise_status(job.failure.status, job.failure.backend_error, "encrypting blocks")
        for index in range(job.count):
            memset(job.runs[index].out, 0, <size_t>job.runs[index].length)
        if job.failure.status == GCM_BAD_TAG:
            raise AuthenticationError.for_block(
                job.failure.block_index, names[job.failure.run] if names is not None else None)
        raise_status(job.failure.status, job.failure.backend_error, "decrypting blocks")
    if job.done != job.units:
        # Fresh memory looks like a result: a block that no thread took must never go unnoticed.
        raise SystemError(f"{job.done} of {job.units} blocks were processed; this is a defect of ags1")
    return 0


cdef int _run(Job *job, int threads) except -1:
    job.members = <int>min(threads, job.units, max(1, job.weight // SMALLEST_SHARE))
    with nogil:
        ags1_run_crew(_work, job, job.members)
    return 0


cdef int _seal_window(Run *runs, int64_t count, int threads) except -1:
    cdef Job job
    cdef int64_t units
    cdef uint8_t few[64 * 12]
    cdef uint8_t *nonces = few
    _prepare(&job, runs, count, &units)
    if units > 64:
        nonces = new_nonces(units)
    else:
        draw_nonces(few, units * AGS1_NONCE_LENGTH)
    try:
        job.nonces = nonces
        _run(&job, threads)
        _judge(&job, True, None)
    finally:
        if nonces != few:
            PyMem_Free(nonces)
    return 0


cdef int seal_runs(Run *runs, int64_t count, int threads, object names) except -1:
    cdef Run part
    cdef int64_t first = 0, last, units, blocks, done
    while first < count:
        blocks = blocks_in(&runs[first])
        if blocks > MAX_UNITS:
            # One long run: its nonces come in windows.
            part = runs[first]
            done = 0
            while done < runs[first].length:
                part.data = runs[first].data + done
                part.out = runs[first].out + done // part.block_length * (part.block_length + AGS1_BLOCK_OVERHEAD)
                part.length = min(runs[first].length - done, MAX_UNITS * part.block_length)
                part.first_block = runs[first].first_block + done // part.block_length
                part.header = runs[first].header and done == 0
                _seal_window(&part, 1, threads)
                done += part.length
            first += 1
            continue
        units = blocks
        last = first + 1
        while last < count:
            blocks = blocks_in(&runs[last])
            if units + blocks > MAX_UNITS:
                break
            units += blocks
            last += 1
        _seal_window(runs + first, last - first, threads)
        first = last
    return 0


cdef int open_runs(Run *runs, int64_t count, int threads, object names) except -1:
    cdef Job job
    cdef int64_t units
    _prepare(&job, runs, count, &units)
    _run(&job, threads)
    return _judge(&job, False, names)


cdef int choose_threads(object threads, int64_t nbytes) except -1:
    """Threads for a call over `nbytes`: what the caller says, else one for little and every usable CPU for much."""
    if threads is None:
        if nbytes < SMALL:
            return 1
        return min(usable_cpus(), AGS1_MAX_CREW)
    if isinstance(threads, bool) or not isinstance(threads, int):
        raise TypeError(f"threads must be an integer or None, not {type(threads).__name__}")
    if threads < 1:
        raise ValueError(f"threads must be at least 1, got {threads}")
    return min(threads, AGS1_MAX_CREW)


cdef object new_bytes(int64_t length):
    """Uninitialised bytes, on huge pages if it is large: the caller fills all of it before anyone sees it."""
    cdef object result
    cdef uintptr_t start, end, last
    cdef int64_t room = length
    if AGS1_ADVISE_HUGE < 0 or length < HUGE_RESULT:
        return PyBytes_FromStringAndSize(NULL, length)
    if length >= MAPPED_RESULT:
        # The kernel puts a mapping of whole huge pages on a huge page. What is not used of the last one is not touched.
        room = (length + MAPPING_OVERHEAD + HUGE_PAGE - 1) // HUGE_PAGE * HUGE_PAGE - MAPPING_OVERHEAD
    result = PyBytes_FromStringAndSize(NULL, room)
    start = <uintptr_t>PyBytes_AS_STRING(result) & ~<uintptr_t>(PAGE - 1)
    end = (<uintptr_t>PyBytes_AS_STRING(result) + length + PAGE - 1) & ~<uintptr_t>(PAGE - 1)
    if room != length:
        PyBytes_AS_STRING(result)[length] = 0
        Py_SET_SIZE(result, length)
        last = end & ~<uintptr_t>(HUGE_PAGE - 1)
        if end - last < <uintptr_t>HUGE_PAGE // 8:
            end = last
    madvise(<void *>start, end - start, AGS1_ADVISE_HUGE)
    if room != length and start % HUGE_PAGE == 0:
        # malloc and the object wrote to the first page before it could be advised: without this its huge page stays 512
        # small ones. Where the kernel cannot collapse them, nothing is lost.
        madvise(<void *>start, HUGE_PAGE, AGS1_COLLAPSE)
    return result


def usable_cpus():
    """How many CPUs this process may use: fewer than the machine has in a container or under taskset."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def fresh_bytes(length):
    """Uninitialised bytes, to be filled through :func:`writable_view` before anyone else sees them."""
    return new_bytes(length)


def writable_view(bytes fresh):
    """A writable memoryview of bytes that no other code has seen. Release it before `fresh` dies."""
    return PyMemoryView_FromMemory(PyBytes_AS_STRING(fresh), len(fresh), PyBUF_WRITE)


cdef int _fill_run(
        Run *run, const uint8_t *data, uint8_t *out, int64_t length, int64_t block_length, int64_t first_block,
        Key key, BufferView aad_prefix) except -1:
    run.data = data
    run.out = out
    run.length = length
    run.block_length = block_length
    run.first_block = first_block
    run.header = False
    run.key = key.octets
    run.key_length = key.length
    run.aad_prefix = aad_prefix.data
    run.aad_prefix_length = aad_prefix.nbytes
    return 0


cdef int64_t _block_length(object block_length) except -1:
    block_length = operator.index(block_length)
    if not 1 <= block_length <= layout.MAX_BLOCK_LENGTH:
        raise ValueError(f"block_length must be 1 to {layout.MAX_BLOCK_LENGTH} bytes, got {block_length}")
    return block_length


cdef int _check_apart(BufferView data, BufferView aad_prefix, BufferView out, int64_t used) except -1:
    if overlap(data.data, data.nbytes, out.data, used):
        raise ValueError(
            "data and out overlap in memory: a block is 28 bytes longer encrypted than plain, so nothing can be "
            "converted in place; pass separate memory"
        )
    if overlap(aad_prefix.data, aad_prefix.nbytes, out.data, used):
        raise ValueError("aad_prefix and out overlap in memory: the prefix would be overwritten; pass a copy of it")
    return 0


def seal_blocks(data, out, key, aad_prefix, block_length, first_block, threads):
    """Seal plaintext into consecutive blocks, without a header.

    Parameters
    ----------
    data : bytes-like
        Plaintext; a multiple of `block_length` unless it ends the stream. Empty makes one empty block.
    out : bytes-like, writable
        Where the blocks go: at least 28 bytes a block more than `data`. Must not overlap `data`.
    key : bytes-like or Key
    aad_prefix : bytes-like
    block_length : int
        Bytes of plaintext in a block.
    first_block : int
        Index in the stream of the first block.
    threads : int or None

    Returns
    -------
    int
        Bytes written to `out`.

    Raises
    ------
    LimitError
        An index above 2^31 - 2, or the key has sealed 2^32 messages.
    ValueError, TypeError, BackendError
    """
    cdef BufferView source = readable(data, "data"), target = writable(out, "out")
    cdef BufferView prefix = readable(aad_prefix, "aad_prefix")
    cdef Key secret = as_key(key)
    cdef int64_t block = _block_length(block_length), count = 0, length
    cdef Run run
    if ags1_block_count(source.nbytes, block, &count) or first_block < 0 or first_block + count > AGS1_MAX_BLOCKS:
        raise LimitError(
            f"block {first_block + count} is above the {AGS1_MAX_BLOCKS} blocks that a stream can have: "
            "use a larger block_length or several files"
        )
    length = source.nbytes + count * AGS1_BLOCK_OVERHEAD
    if target.nbytes < length:
        raise ValueError(f"out has {target.nbytes} bytes, but {count} blocks of this data take {length}")
    _check_apart(source, prefix, target, length)
    count_messages(secret, count)
    _fill_run(&run, source.data, target.data, source.nbytes, block, first_block, secret, prefix)
    seal_runs(&run, 1, choose_threads(threads, source.nbytes), None)
    return length


def open_blocks(data, out, key, aad_prefix, block_length, first_block, threads, name=None):
    """Open consecutive blocks, without a header: the inverse of :func:`seal_blocks`.

    Parameters
    ----------
    data : bytes-like
        Whole blocks; only the last may be shorter than `block_length` + 28.
    out : bytes-like, writable
        Where the plaintext goes: 28 bytes a block less than `data`. Wiped if a tag fails. Must not overlap `data`,
        but may be where the ciphertext of one block is.
    name : str, optional
        What to call the stream in an error.

    Returns
    -------
    int
        Bytes written to `out`.

    Raises
    ------
    AuthenticationError
        Names the first block that failed.
    LimitError
        An index above 2^31 - 2.
    """
    cdef BufferView source = readable(data, "data"), target = writable(out, "out")
    cdef BufferView prefix = readable(aad_prefix, "aad_prefix")
    cdef Key secret = as_key(key)
    cdef int64_t block = _block_length(block_length), length, count
    cdef int64_t tail = source.nbytes % (block + AGS1_BLOCK_OVERHEAD)
    cdef Run run
    # An empty block behind a full one would have no place in `out`, and so go unread.
    if source.nbytes == 0 or 0 < tail < AGS1_BLOCK_OVERHEAD or tail == AGS1_BLOCK_OVERHEAD < source.nbytes:
        raise ValueError(f"{source.nbytes} bytes are not whole blocks of {block} + {AGS1_BLOCK_OVERHEAD} bytes")
    count = source.nbytes // (block + AGS1_BLOCK_OVERHEAD) + (tail > 0)
    if first_block < 0 or first_block + count > AGS1_MAX_BLOCKS:
        raise LimitError(f"block {first_block + count} is above the {AGS1_MAX_BLOCKS} blocks that a stream can have")
    length = source.nbytes - count * AGS1_BLOCK_OVERHEAD
    if target.nbytes < length:
        raise ValueError(f"out has {target.nbytes} bytes, but the plaintext has {length}")
    if count > 1 or target.data != source.data + AGS1_NONCE_LENGTH:
        _check_apart(source, prefix, target, length)
    _fill_run(&run, source.data, target.data, length, block, first_block, secret, prefix)
    open_runs(&run, 1, choose_threads(threads, length), [name])
    return length


def encrypt_stream(data, out, key, aad_prefix, block_length, threads):
    """A whole stream, header and blocks, into `out`, or into new bytes if `out` is None.

    Returns
    -------
    bytes or int
        The new bytes, or how many were written into `out`.
    """
    cdef BufferView source = readable(data, "data"), prefix = readable(aad_prefix, "aad_prefix"), target
    cdef Key secret = as_key(key)
    cdef int64_t block = _block_length(block_length), length = 0, count = 0
    cdef int crew = choose_threads(threads, source.nbytes)
    cdef object result = None
    cdef uint8_t *start
    cdef Run run
    if ags1_encrypted_length(source.nbytes, block, &length):
        layout.encrypted_length(source.nbytes, block)
    if out is None:
        result = new_bytes(length)
        start = <uint8_t *>PyBytes_AS_STRING(result)
    else:
        target = writable(out, "out")
        if target.nbytes < length:
            raise ValueError(
                f"out has {target.nbytes} bytes, but the encrypted stream takes {length}: size it with "
                "ags1.encrypted_length(...)"
            )
        _check_apart(source, prefix, target, length)
        start = target.data
    ags1_block_count(source.nbytes, block, &count)
    count_messages(secret, count)
    ags1_write_header(start, block)
    _fill_run(&run, source.data, start + AGS1_HEADER_LENGTH, source.nbytes, block, 0, secret, prefix)
    seal_runs(&run, 1, crew, None)
    return length if out is not None else result


cdef int64_t _measure(const uint8_t *data, int64_t nbytes, object trusted, int64_t *block_length, str name) except -1:
    """Check the header and the length of a stream in memory; return its plaintext length."""
    cdef int64_t length = 0
    where = f"{name}: " if name else ""
    if trusted is not None:
        if isinstance(trusted, bool) or not isinstance(trusted, int):
            raise TypeError(f"length must be an integer or None, not {type(trusted).__name__}")
        if trusted < 0:
            raise ValueError(f"length must not be negative, got {trusted}")
    if nbytes < AGS1_HEADER_LENGTH or ags1_read_header(data, block_length):
        layout.read_header(data[:min(nbytes, 16)], name)
    if trusted is not None and nbytes < trusted:
        raise TruncatedError(
            f"{where}has {nbytes} bytes, but its trusted length is {trusted}: "
            f"{trusted - nbytes} bytes are missing at its end"
        )
    if trusted is not None and nbytes > trusted:
        raise FormatError(
            f"{where}has {nbytes} bytes, but its trusted length is {trusted}: {nbytes - trusted} bytes were added, "
            "or the length belongs to another file"
        )
    if ags1_plaintext_length(nbytes, block_length[0], &length):
        try:
            layout.plaintext_length(nbytes, block_length[0])
        except (FormatError, LimitError) as error:
            raise type(error)(f"{where}{error}") from None
    return length


def decrypt_stream(data, out, key, aad_prefix, length, threads, name=None):
    """A whole stream into `out`, or into new bytes if `out` is None; every block is authenticated.

    Parameters
    ----------
    length : int or None
        Trusted length of the stream in bytes, header included. `data` must have exactly that many.

    Returns
    -------
    bytes or int
        The new bytes, or how many were written into `out`.
    """
    cdef BufferView source = readable(data, "data"), prefix = readable(aad_prefix, "aad_prefix"), target
    cdef Key secret = as_key(key)
    cdef int64_t block = 0
    cdef int64_t size = _measure(source.data, source.nbytes, length, &block, name)
    cdef object result = None
    cdef uint8_t *start
    cdef Run run
    if out is None:
        result = new_bytes(size)
        start = <uint8_t *>PyBytes_AS_STRING(result)
    else:
        target = writable(out, "out")
        if target.nbytes < size:
            raise ValueError(
                f"out has {target.nbytes} bytes, but the plaintext has {size}: size it with ags1.plaintext_length(...)"
            )
        _check_apart(source, prefix, target, size)
        start = target.data
    _fill_run(&run, source.data + AGS1_HEADER_LENGTH, start, size, block, 0, secret, prefix)
    open_runs(&run, 1, choose_threads(threads, size), [name])
    return size if out is not None else result
