"""AGS1 blocks between file descriptors and memory, over a crew of threads, without the GIL.

    seal_file   plaintext file  --pread--> scratch: | nonce | plaintext | tag |  sealed in place  --pwrite--> blocks
    open_file   blocks          --pread--> scratch: | nonce | ciphertext | tag | opened in place  --pwrite--> plaintext
    seal_into_file   memory     --seal---> scratch                                                --pwrite--> blocks
    open_from_file   blocks     --preadv-> caller's memory (ciphertext only), opened in place

A worker takes a span of blocks (about a mebibyte) from a counter, does one positioned read, the blocks, and one
positioned write. Now and then the caller, who works too, says how far all are: then signals are handled.

Reads and writes are repeated until complete and after EINTR. The end of the source inside the range, and errors of the
system, are reported with the first block that they hit. Source: AES GCM Stream specification, "Cipher Block structure".
"""

from cpython.mem cimport PyMem_Free
from libc.errno cimport EINTR, errno
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset
from posix.stdlib cimport posix_memalign

from ags1.core.blocks cimport choose_threads, open_block, seal_block
from ags1.core.buffer cimport BufferView, readable, writable
from ags1.core.gcm cimport (
    GCM_BACKEND, GCM_BAD_TAG, GCM_NO_MEMORY, GCM_OK, Key, as_key, count_messages, gcm_context_free, gcm_context_new,
    gcm_last_error, gcm_open, new_nonces, raise_status,
)
from ags1.core.gcm_library cimport GcmContext
from ags1.core.layout cimport AGS1_BLOCK_OVERHEAD, AGS1_MAX_BLOCKS, AGS1_NONCE_LENGTH, ags1_block_count, ags1_store_le32
from ags1.core.workers cimport (
    ags1_add, ags1_crew, ags1_fail, ags1_failure_init, ags1_has_failed, ags1_join_crew, ags1_run_crew, ags1_start_crew,
    ags1_take,
)

import os
import time

from ags1.errors import AuthenticationError, LimitError, TruncatedError

cdef extern from "sys/types.h" nogil:
    ctypedef long long off_t

cdef extern from "sys/uio.h" nogil:
    struct iovec:
        void *iov_base
        size_t iov_len
    Py_ssize_t preadv(int descriptor, const iovec *vectors, int count, off_t offset)
    Py_ssize_t pwritev(int descriptor, const iovec *vectors, int count, off_t offset)

cdef extern from *:
    """
    #include <errno.h>
    #include <fcntl.h>
    #include <stdio.h>
    #ifdef __linux__
    #include <linux/magic.h>
    #include <string.h>
    #include <sys/stat.h>
    #include <sys/syscall.h>
    #include <sys/vfs.h>
    #include <unistd.h>
    #else
    #include <string.h>
    #include <sys/mount.h>
    #include <sys/stat.h>
    #endif
    /* Not posix_fallocate: where the file system cannot reserve, that writes zeros to every block instead. Nor on
       tmpfs, which reserves by zeroing the memory that is about to be written anyway. */
    static int ags1_reserve(int descriptor, long long length)
    {
    #ifdef __linux__
        int status;
        struct statfs system;
        if (fstatfs(descriptor, &system) == 0 && system.f_type == TMPFS_MAGIC)
            return 0;
        do {
            status = fallocate(descriptor, 0, 0, length);
        } while (status != 0 && errno == EINTR);
        return status == 0 || errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL ? 0 : errno;
    #else
        (void)descriptor;
        (void)length;
        return 0;
    #endif
    }
    /* The number of the device, and the identifier that the file system was mounted with. */
    static int ags1_mounted_at(int descriptor, uint64_t identity[2])
    {
        struct stat entry;
        struct statfs system;
        identity[0] = identity[1] = 0;
        if (fstat(descriptor, &entry) != 0 || fstatfs(descriptor, &system) != 0)
            return errno;
        identity[0] = (uint64_t)entry.st_dev;
        memcpy(&identity[1], &system.f_fsid, sizeof(identity[1]));
        return 0;
    }
    static long long ags1_so_far(const int64_t *sum) { return __atomic_load_n(sum, __ATOMIC_RELAXED); }
    /* Some C libraries lack renameat2; 1 is RENAME_NOREPLACE. */
    static int ags1_rename_new(int directory, const char *source, const char *target)
    {
    #if defined(__linux__) && defined(SYS_renameat2)
        return syscall(SYS_renameat2, directory, source, directory, target, 1) == 0 ? 0 : errno;
    #elif defined(__APPLE__)
        return renameatx_np(directory, source, directory, target, RENAME_EXCL) == 0 ? 0 : errno;
    #else
        (void)directory;
        (void)source;
        (void)target;
        return ENOSYS;
    #endif
    }
    """
    int ags1_reserve(int descriptor, long long length) nogil
    int ags1_mounted_at(int descriptor, uint64_t *identity) nogil
    int64_t ags1_so_far(const int64_t *sum) nogil
    int ags1_rename_new(int directory, const char *source, const char *target) nogil

# Beside GcmStatus, what I/O adds.
cdef enum TransferStatus:
    IO_READ = 16
    IO_WRITE = 17
    IO_END = 18          # the source ended inside the range
    STOPPED = 19         # the caller raised meanwhile

# One span is about this many bytes, and never more blocks than three vectors each fit into one call (IOV_MAX is 1024).
cdef int64_t SPAN_BYTES = 1 << 20
cdef enum:
    MAX_SPAN_BLOCKS = 256
# Blocks whose nonces are drawn at once, as in blocks.
MAX_WINDOW_BLOCKS = 1 << 17
# Between two calls that say how much is done.
cdef double TELL_SECONDS = 0.2
cdef int64_t MAX_INT64 = 0x7fffffffffffffff
# Where in a page scratch memory begins. Processors of AMD copy with `rep movsb`, as the kernel does, at a fifth of
# their speed when the destination lies 1 to 31 bytes further into its page than the source. Plaintext is read from
# the beginning of a page, and goes behind a nonce.
cdef int64_t SCRATCH_OFFSET = 64
cdef size_t PAGE = 4096


cdef int _move_all(int descriptor, iovec *vectors, int count, int64_t offset, bint writes) noexcept nogil:
    """Fill all vectors from the file, or write them to it. The vectors are consumed."""
    cdef Py_ssize_t done
    while count > 0:
        if vectors.iov_len == 0:
            vectors += 1
            count -= 1
            continue
        done = pwritev(descriptor, vectors, count, offset) if writes else preadv(descriptor, vectors, count, offset)
        if done < 0:
            if errno == EINTR:
                continue
            return IO_WRITE if writes else IO_READ
        if done == 0 and not writes:
            return IO_END
        offset += done
        _advance(&vectors, &count, done)
    return GCM_OK


cdef void _advance(iovec **vectors, int *count, Py_ssize_t done) noexcept nogil:
    while count[0] > 0 and done >= <Py_ssize_t>vectors[0].iov_len:
        done -= vectors[0].iov_len
        vectors[0] += 1
        count[0] -= 1
    if count[0] > 0:
        vectors[0].iov_base = <uint8_t *>vectors[0].iov_base + done
        vectors[0].iov_len -= done


cdef int64_t span_of(int64_t block_length) noexcept nogil:
    return max(1, min(MAX_SPAN_BLOCKS, SPAN_BYTES // (block_length + AGS1_BLOCK_OVERHEAD)))


cdef void *transfer_work(void *transfer) noexcept nogil:
    """One member of the crew: spans until none is left or something failed."""
    _take_spans(<Transfer *>transfer, MAX_INT64)
    return NULL


cdef bint _take_spans(Transfer *job, int64_t most) noexcept nogil:
    """Read, convert and write so many spans at most; return whether more may be left."""
    cdef bint encrypt = job.nonces != NULL
    cdef int64_t stride = job.block_length + AGS1_BLOCK_OVERHEAD
    cdef int64_t largest = min(job.span * stride, job.length + job.count * AGS1_BLOCK_OVERHEAD)
    # open_from_file needs room for nonces and tags only: ciphertext goes where the plaintext will be.
    cdef bint direct = not encrypt and job.target < 0
    cdef iovec vectors[3 * MAX_SPAN_BLOCKS]
    cdef size_t prefix_length = job.key.aad_prefix_length
    cdef void *memory = NULL
    cdef uint8_t *scratch
    cdef uint8_t *aad = <uint8_t *>malloc(prefix_length + 4)
    cdef GcmContext *context = job.context
    cdef int64_t first, last, block, length, span_length, plain_offset
    cdef uint8_t *cell
    cdef uint8_t *plain
    cdef const uint8_t *data
    cdef int count, status = GCM_OK
    cdef bint is_left = True

    if context == NULL:
        context = gcm_context_new(job.key.octets, job.key.length, encrypt)
    if posix_memalign(&memory, PAGE, SCRATCH_OFFSET + (job.span * AGS1_BLOCK_OVERHEAD if direct else largest)):
        memory = NULL
    scratch = <uint8_t *>memory + SCRATCH_OFFSET
    if memory == NULL or aad == NULL:
        ags1_fail(&job.failure, GCM_NO_MEMORY, 0, job.first_block, 0, 0)
    elif context == NULL:
        ags1_fail(&job.failure, GCM_BACKEND, 0, job.first_block, 0, gcm_last_error(GCM_BACKEND))
    else:
        memcpy(aad, job.key.aad_prefix, prefix_length)
        while most > 0 and not ags1_has_failed(&job.failure):
            most -= 1
            first = ags1_take(&job.next_span) * job.span
            if first >= job.count:
                is_left = False
                break
            last = min(first + job.span, job.count)
            plain_offset = first * job.block_length
            span_length = min(last * job.block_length, job.length) - plain_offset

            # 1. The bytes of the span, where the cipher wants them.
            block = first
            count = 0
            if direct:
                for block in range(first, last):
                    length = min(job.block_length, job.length - block * job.block_length)
                    cell = scratch + (block - first) * AGS1_BLOCK_OVERHEAD
                    vectors[count].iov_base = cell
                    vectors[count].iov_len = AGS1_NONCE_LENGTH
                    vectors[count + 1].iov_base = job.out + block * job.block_length
                    vectors[count + 1].iov_len = <size_t>length
                    vectors[count + 2].iov_base = cell + AGS1_NONCE_LENGTH
                    vectors[count + 2].iov_len = AGS1_BLOCK_OVERHEAD - AGS1_NONCE_LENGTH
                    count += 3
                status = _move_all(job.source, vectors, count, job.source_offset + first * stride, False)
            elif not encrypt:
                vectors[0].iov_base = scratch
                vectors[0].iov_len = <size_t>(span_length + (last - first) * AGS1_BLOCK_OVERHEAD)
                status = _move_all(job.source, vectors, 1, job.source_offset + first * stride, False)
            elif job.source >= 0:
                for block in range(first, last):
                    vectors[count].iov_base = scratch + (block - first) * stride + AGS1_NONCE_LENGTH
                    vectors[count].iov_len = <size_t>min(job.block_length, job.length - block * job.block_length)
                    count += 1
                status = _move_all(job.source, vectors, count, job.source_offset + plain_offset, False)
            if status != GCM_OK:
                ags1_fail(&job.failure, status, 0, job.first_block + first, errno, 0)
                break

            # 2. The blocks.
            for block in range(first, last):
                length = min(job.block_length, job.length - block * job.block_length)
                cell = scratch + (block - first) * stride
                if encrypt:
                    plain = cell + AGS1_NONCE_LENGTH
                    data = job.data + block * job.block_length
                    if job.source >= 0:
                        data = plain
                    status = seal_block(
                        context, aad, prefix_length, job.first_block + block, job.nonces + block * AGS1_NONCE_LENGTH,
                        data, length, cell)
                elif direct:
                    cell = scratch + (block - first) * AGS1_BLOCK_OVERHEAD
                    plain = job.out + block * job.block_length
                    # Not one block in memory: its ciphertext lies where the plaintext will be.
                    ags1_store_le32(aad + prefix_length, <unsigned int>(job.first_block + block))
                    status = gcm_open(
                        context, cell, aad, prefix_length + 4, plain, length, cell + AGS1_NONCE_LENGTH, plain)
                else:
                    plain = cell + AGS1_NONCE_LENGTH
                    status = open_block(context, aad, prefix_length, job.first_block + block, cell, length, plain)
                if status != GCM_OK:
                    ags1_fail(&job.failure, status, 0, job.first_block + block, 0, gcm_last_error(status))
                    break
            if status != GCM_OK:
                break

            # 3. Only now, with every tag of the span made or verified, the bytes leave.
            if job.target >= 0:
                count = 0
                if encrypt:
                    vectors[0].iov_base = scratch
                    vectors[0].iov_len = <size_t>(span_length + (last - first) * AGS1_BLOCK_OVERHEAD)
                    count = 1
                    status = _move_all(job.target, vectors, count, job.target_offset + first * stride, True)
                else:
                    for block in range(first, last):
                        vectors[count].iov_base = scratch + (block - first) * stride + AGS1_NONCE_LENGTH
                        vectors[count].iov_len = <size_t>min(job.block_length, job.length - block * job.block_length)
                        count += 1
                    status = _move_all(job.target, vectors, count, job.target_offset + plain_offset, True)
                if status != GCM_OK:
                    ags1_fail(&job.failure, status, 0, job.first_block + first, errno, 0)
                    break
            ags1_add(&job.done, span_length)

    if job.context == NULL:
        gcm_context_free(context)
    free(aad)
    free(memory)
    return is_left and not ags1_has_failed(&job.failure)


cdef int _run_and_tell(Transfer *job, int crew, object tell) except -1:
    """Run a crew of so many threads; now and then, tell how many bytes are done. An exception of `tell` stops all."""
    cdef ags1_crew others
    cdef int64_t some = 1
    cdef bint is_left = True
    told = time.monotonic()
    with nogil:
        ags1_start_crew(&others, transfer_work, job, crew - 1)
    try:
        while is_left:
            begun = time.monotonic()
            with nogil:
                is_left = _take_spans(job, some)
            now = time.monotonic()
            some = 2 * some if now - begun < TELL_SECONDS / 4 else max(1, some // 2)
            if is_left and now - told >= TELL_SECONDS:
                told = now
                tell(ags1_so_far(&job.done))
    except BaseException:
        ags1_fail(&job.failure, STOPPED, 0, job.first_block, 0, 0)
        raise
    finally:
        with nogil:
            ags1_join_crew(&others)
    return 0


cdef int _transfer(
        Transfer *job, object secret, object prefix, int64_t block_length, int64_t first_block, bint encrypt,
        object threads, object source_name, object target_name, object tell=None) except -1:
    """Run a prepared transfer and raise what its earliest failure means."""
    cdef Key key = as_key(secret)
    cdef BufferView aad_prefix = readable(prefix, "aad_prefix")
    cdef uint8_t *nonces = NULL
    cdef int crew = choose_threads(threads, job.length)
    job.block_length = block_length
    job.first_block = first_block
    if job.first_block < 0 or ags1_block_count(job.length, job.block_length, &job.count):
        raise ValueError(f"{job.length} bytes at block {job.first_block} in blocks of {job.block_length}")
    if job.first_block > AGS1_MAX_BLOCKS - job.count:
        raise LimitError(
            f"block {job.first_block + job.count} is above the {AGS1_MAX_BLOCKS} blocks that a stream can have: "
            "use a larger block_length or several files"
        )
    if encrypt and job.count > MAX_WINDOW_BLOCKS:
        raise ValueError(f"a window of {job.count} blocks is above {MAX_WINDOW_BLOCKS}")
    job.key.octets = key.octets
    job.key.length = key.length
    job.key.aad_prefix = aad_prefix.data
    job.key.aad_prefix_length = aad_prefix.nbytes
    job.span = span_of(job.block_length)
    if crew > 1:
        # A short range still gives every member something to do.
        job.span = max(1, min(job.span, job.count // (2 * crew)))
    job.next_span = 0
    job.nonces = NULL
    ags1_failure_init(&job.failure)
    try:
        if encrypt:
            count_messages(key, job.count)
            job.nonces = nonces = new_nonces(job.count)
        crew = <int>min(crew, (job.count + job.span - 1) // job.span)
        if tell is not None:
            _run_and_tell(job, crew, tell)
        else:
            with nogil:
                ags1_run_crew(transfer_work, job, crew)
    finally:
        PyMem_Free(nonces)
    if job.failure.failed:
        if job.out != NULL:
            memset(job.out, 0, <size_t>job.length)
        _raise(job, encrypt, source_name, target_name)
    return 0


cdef int _raise(Transfer *job, bint encrypt, object source_name, object target_name) except -1:
    cdef int status = job.failure.status
    if status == GCM_BAD_TAG:
        raise AuthenticationError.for_block(job.failure.block_index, source_name)
    if status == IO_END:
        if encrypt:
            raise OSError(
                f"{source_name or 'the source'} became shorter while it was being encrypted; nothing was kept: "
                "encrypt a file that nobody writes to"
            )
        raise TruncatedError(
            f"{source_name or 'the source'} ends inside block {job.failure.block_index}: it became shorter while it "
            "was being read"
        )
    if status == IO_READ:
        raise OSError(job.failure.system_error, os.strerror(job.failure.system_error), source_name)
    if status == IO_WRITE:
        raise OSError(job.failure.system_error, os.strerror(job.failure.system_error), target_name)
    raise_status(status, job.failure.backend_error, "encrypting blocks" if encrypt else "decrypting blocks")
    return 0


def reserve(int descriptor, int64_t length, name=None):
    """Take the disk space for a file of `length` bytes now, where the file system can.

    Raises
    ------
    OSError
        There is not enough of it, or the file may not become so large.
    """
    cdef int status = 0
    if length > 0:
        with nogil:
            status = ags1_reserve(descriptor, length)
    if status:
        raise OSError(status, f"{os.strerror(status)} ({length:,} bytes are needed)", name)


def rename_new(bytes source not None, bytes target not None, int directory):
    """Rename a file inside a directory, given by its descriptor, if the new name is free.

    Raises
    ------
    OSError
        FileExistsError: the name is taken. EINVAL, ENOSYS or ENOTSUP: the file system has no such rename.
    """
    cdef const char *old = source
    cdef const char *new = target
    cdef int status
    with nogil:
        status = ags1_rename_new(directory, old, new)
    if status:
        raise OSError(status, os.strerror(status))


cdef int _between_files(
        int source, int64_t source_offset, int target, int64_t target_offset, int64_t length, object key,
        object aad_prefix, int64_t block_length, int64_t first_block, bint encrypt, object threads, object tell,
        object source_name, object target_name) except -1:
    cdef Transfer job
    memset(&job, 0, sizeof(Transfer))
    job.source, job.source_offset, job.length = source, source_offset, length
    job.target, job.target_offset = target, target_offset
    return _transfer(
        &job, key, aad_prefix, block_length, first_block, encrypt, threads, source_name, target_name, tell)


def seal_file(
        int source, int64_t source_offset, int target, int64_t target_offset, int64_t length, key, aad_prefix,
        int64_t block_length, int64_t first_block, threads, tell, source_name=None, target_name=None):
    """Seal `length` bytes of a file into blocks of another. Both descriptors must be seekable files.

    Parameters
    ----------
    source, target : int
        Descriptors; their positions are neither used nor moved.
    source_offset : int
        Offset of the first plaintext byte.
    target_offset : int
        Offset at which the first block goes.
    length : int
        Bytes of plaintext: a multiple of `block_length` unless they end the stream, in at most MAX_WINDOW_BLOCKS
        blocks.
    first_block : int
        Index in the stream of the first block.
    tell : callable
        Called now and then with the bytes of plaintext that are done so far. An exception stops the work.

    Raises
    ------
    OSError
        Reading or writing failed, or the source ended early.
    LimitError, BackendError
    """
    _between_files(
        source, source_offset, target, target_offset, length, key, aad_prefix, block_length, first_block, True, threads,
        tell, source_name, target_name)


def open_file(
        int source, int64_t source_offset, int target, int64_t target_offset, int64_t length, key, aad_prefix,
        int64_t block_length, int64_t first_block, threads, tell, source_name=None, target_name=None):
    """Open blocks of a file into another file; `length` is their plaintext. The inverse of :func:`seal_file`.

    No byte of a block is written before its tag has verified.

    Raises
    ------
    AuthenticationError
        Names the first block that failed.
    TruncatedError
        The source ended inside the range.
    OSError
        Reading or writing failed.
    """
    _between_files(
        source, source_offset, target, target_offset, length, key, aad_prefix, block_length, first_block, False,
        threads, tell, source_name, target_name)


def seal_into_file(
        data, int target, int64_t target_offset, key, aad_prefix, int64_t block_length, int64_t first_block, threads,
        target_name=None):
    """Seal memory into blocks of a file. See :func:`seal_file`."""
    cdef BufferView source = readable(data, "data")
    cdef Transfer job
    memset(&job, 0, sizeof(Transfer))
    job.source, job.data, job.target, job.target_offset = -1, source.data, target, target_offset
    job.length = source.nbytes
    _transfer(&job, key, aad_prefix, block_length, first_block, True, threads, None, target_name)


def open_from_file(
        int source, int64_t source_offset, out, key, aad_prefix, int64_t block_length, int64_t first_block, threads,
        source_name=None):
    """Open blocks of a file into memory: exactly as much plaintext as `out` has bytes, in whole blocks.

    Ciphertext is read to where its plaintext will be, so nothing is copied; if anything fails, `out` is zeroed.
    """
    cdef BufferView target = writable(out, "out")
    cdef Transfer job
    memset(&job, 0, sizeof(Transfer))
    job.source, job.source_offset, job.target, job.out = source, source_offset, -1, target.data
    job.length = target.nbytes
    _transfer(&job, key, aad_prefix, block_length, first_block, False, threads, source_name, None)


def mounted_at(int descriptor):
    """What tells the mounted file system of a descriptor from others, as two numbers.

    The number of its device alone is given to another file system later.

    Raises
    ------
    OSError
        The descriptor is not open, or the file system does not answer.
    """
    cdef uint64_t identity[2]
    cdef int status
    with nogil:
        status = ags1_mounted_at(descriptor, identity)
    if status:
        raise OSError(status, os.strerror(status))
    return identity[0], identity[1]
