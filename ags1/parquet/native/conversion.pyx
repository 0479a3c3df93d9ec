"""Converts lists of pages from one protection to another, in several threads and without the GIL.

    walked pages   [ segment ] [ segment ] [ segment ] ...      neighbouring pages, about a mebibyte
    a worker       read in one call, convert each page, wait for its turn, write in one call

A worker waits for its turn to take its place in the target, because the length of a varint may depend on a CRC that
was not known before::

    conversion.start(pages, source, target, offset)      threads start
    ... walk the next pages ...
    offset = conversion.wait()

The conversion of one page is in page_conversion. Source: Parquet encryption specification, "Encrypted pages".
"""

cimport cython
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.errno cimport errno
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy, memset

from ags1.core.blocks cimport choose_threads
from ags1.core.buffer cimport BufferView, readable, writable
from ags1.core.gcm cimport GCM_BACKEND, GCM_NO_MEMORY, GCM_OK, count_messages, gcm_last_error, new_nonces
from ags1.core.ordered cimport (
    ags1_turnstile, ags1_turnstile_break, ags1_turnstile_destroy, ags1_turnstile_enter, ags1_turnstile_init,
)
from ags1.parquet.native.modules cimport GCM_OVERHEAD
from ags1.parquet.native.page_conversion cimport (
    HEADER_SLACK, Ends, Worker, convert_page, grow, verify_page, view_page, worker_free, worker_init,
)
from ags1.parquet.native.page_header cimport DICTIONARY, PLAIN, RAW_BYTES, Page
from ags1.parquet.native.pages cimport Chunk, PageList, PageSource, raise_page
from ags1.core.forks cimport ags1_count_forks, ags1_process
from ags1.core.positioned cimport ags1_read_at, ags1_write_at
from ags1.core.workers cimport (
    ags1_crew, ags1_fail, ags1_failure, ags1_failure_init, ags1_has_failed, ags1_join_crew, ags1_run_crew,
    ags1_start_crew, ags1_take,
)

if ags1_count_forks():
    raise MemoryError("no memory to be told of forks")

# Bytes that a worker reads and writes at once, unless one page is larger.
cdef int64_t SEGMENT_BYTES = 1 << 20
cdef enum:
    NONCE = 12

cdef enum Task:
    CONVERT = 0
    VIEW = 1
    VERIFY = 2


cdef struct Job:
    int task
    bint levels_inside
    Page *pages
    int64_t count
    const uint8_t *arena
    Ends *ends
    int64_t *segments            # index of the first page of each; one more at the end
    int64_t segment_count
    int64_t next_segment
    int source                   # descriptor, or -1
    const uint8_t *memory        # of the source
    int64_t memory_base
    int target                   # descriptor, or -1
    uint8_t *out                 # when there is no descriptor
    int64_t out_base             # offset in the target of out's first byte
    int64_t out_capacity
    const uint8_t *nonces        # two a page, if any page is sealed
    const uint8_t *source_aad
    size_t source_aad_length
    const uint8_t *target_aad
    size_t target_aad_length
    ags1_turnstile turnstile
    ags1_failure failure


cdef int _segment(Job *job, Worker *worker, int64_t ticket, int64_t *failed) noexcept nogil:
    """Convert one segment; on failure, record the page."""
    cdef int64_t first = job.segments[ticket], last = job.segments[ticket + 1], index
    cdef int64_t start = job.pages[first].offset
    cdef int64_t length, done = 0, at
    cdef const uint8_t *stored
    cdef Page *page = &job.pages[last - 1]
    cdef int status
    failed[0] = first
    length = page.offset + page.header_stored + <int64_t>page.body_stored - start
    if job.source >= 0:
        if not grow(&worker.stored, &worker.stored_capacity, length):
            return GCM_NO_MEMORY
        status = ags1_read_at(job.source, worker.stored, length, start)
        if status != GCM_OK:
            return status
        stored = worker.stored
    else:
        stored = job.memory + (start - job.memory_base)

    if job.task == VERIFY:
        for index in range(first, last):
            page = &job.pages[index]
            page.status = verify_page(worker, &job.ends[page.chunk], page, stored + (page.offset - start))
            if page.status == GCM_BACKEND or page.status == GCM_NO_MEMORY:
                failed[0] = index
                return page.status
        return GCM_OK
    if job.task == VIEW:
        for index in range(first, last):
            page = &job.pages[index]
            failed[0] = index
            status = view_page(
                worker, &job.ends[page.chunk], page, job.arena + page.header_at, stored + (page.offset - start),
                job.out + (page.offset - job.out_base))
            if status != GCM_OK:
                return status
        return GCM_OK

    at = length + (last - first) * (HEADER_SLACK + 2 * GCM_OVERHEAD)
    if not grow(&worker.converted, &worker.converted_capacity, at):
        return GCM_NO_MEMORY
    for index in range(first, last):
        page = &job.pages[index]
        failed[0] = index
        page.new_offset = done
        status = convert_page(
            worker, &job.ends[page.chunk], page, job.arena + page.header_at, job.nonces + 2 * NONCE * index,
            stored + (page.offset - start), worker.converted + done, &length)
        if status != GCM_OK:
            return status
        done += length
    failed[0] = first
    at = ags1_turnstile_enter(&job.turnstile, ticket, done)
    if at < 0:
        # A worker with an earlier segment has failed, and reports it.
        return GCM_OK
    for index in range(first, last):
        job.pages[index].new_offset += at
    if job.target >= 0:
        return ags1_write_at(job.target, worker.converted, done, at)
    memcpy(job.out + (at - job.out_base), worker.converted, done)
    return GCM_OK


cdef void *_work(void *argument) noexcept nogil:
    cdef Job *job = <Job *>argument
    cdef Worker worker
    cdef int64_t ticket, failed = 0
    cdef int status = worker_init(
        &worker, job.source_aad, job.source_aad_length, job.target_aad, job.target_aad_length, job.levels_inside)
    while not ags1_has_failed(&job.failure):
        ticket = ags1_take(&job.next_segment)
        if ticket >= job.segment_count:
            break
        if status == GCM_OK:
            status = _segment(job, &worker, ticket, &failed)
        else:
            failed = job.segments[ticket]
        if status != GCM_OK:
            ags1_fail(&job.failure, status, failed, 0, errno, gcm_last_error(status))
            ags1_turnstile_break(&job.turnstile)
            break
    worker_free(&worker)
    return NULL


# The threads use what it refers to until they are joined, so none of it may be freed before.
@cython.no_gc_clear
cdef class Conversion:
    """Converts lists of pages of one file. For one thread at a time; the memory must not change until :meth:`wait`.

    With `levels_inside`, V2 pages are sealed with their levels inside the module, as Arrow does, instead of before it,
    as parquet-java does.
    """

    cdef Job job
    cdef ags1_crew crew
    cdef bint flying
    cdef bint busy               # from _prepare to _release
    cdef bint waiting            # a caller waits for the threads
    cdef bint lined
    cdef int64_t process         # that has started the crew
    cdef tuple keys              # that the job points to
    cdef object threads
    cdef BufferView source_aad
    cdef BufferView target_aad
    cdef PageList pages
    cdef PageSource source
    cdef BufferView out
    cdef object target_name
    cdef uint8_t *nonces
    cdef int64_t first           # index in `pages` of the job's first page

    def __cinit__(self, source_aad=b"", target_aad=b"", *, bint levels_inside=False, threads=None):
        memset(&self.job, 0, sizeof(Job))
        self.flying = self.busy = self.waiting = self.lined = False
        self.nonces = NULL
        self.crew.count = 0
        self.source_aad = readable(source_aad, "source_aad")
        self.target_aad = readable(target_aad, "target_aad")
        self.job.levels_inside = levels_inside
        self.threads = threads

    def __dealloc__(self):
        self._stop()

    cdef void _stop(self) noexcept:
        if self.flying and self.process != ags1_process():
            # In a forked child there are no threads to wait for, and no thread releases the locks.
            self.crew.count = 0
            self.lined = False
        elif self.flying:
            ags1_fail(&self.job.failure, GCM_NO_MEMORY, 0, 0, 0, 0)
            ags1_turnstile_break(&self.job.turnstile)
            with nogil:
                ags1_join_crew(&self.crew)
        self._release()

    cdef void _release(self) noexcept:
        self.flying = False
        if self.busy:
            self.busy = False
            self.pages.users -= 1
        if self.lined:
            ags1_turnstile_destroy(&self.job.turnstile)
            self.lined = False
        PyMem_Free(self.job.ends)
        PyMem_Free(self.job.segments)
        PyMem_Free(self.nonces)
        self.job.ends = NULL
        self.job.segments = NULL
        self.nonces = NULL
        self.pages = None
        self.source = None
        self.out = None
        self.keys = None

    def stop(self):
        """Let the threads finish their current page, and drop the rest."""
        if self.waiting or (self.busy and not self.flying):
            raise RuntimeError("another thread waits for this conversion")
        self._stop()

    cdef int _prepare(self, PageList pages, PageSource source, int task, int64_t first, int64_t last) except -1:
        """Fill in the job; return the number of threads to use."""
        cdef Chunk chunk
        cdef Page *page
        cdef int64_t index
        cdef list keys = []
        if self.busy or pages.users < 0:
            raise RuntimeError("this conversion, or the list of pages, is in use")
        for index in range(first, last):
            page = &pages.pages[index]
            if source.descriptor < 0 and (
                    page.offset < source.base
                    or page.offset + page.header_stored + <int64_t>page.body_stored > source.size):
                raise ValueError("the source does not have all of the pages")
        for chunk in pages.chunks:
            keys.append(chunk.source_key)
            keys.append(chunk.target_key)
        self._release()
        self.pages = pages
        self.source = source
        # A tuple, because the garbage collector may clear a list but not a tuple.
        self.keys = tuple(keys)
        self.busy = True
        pages.users += 1
        try:
            return self._fill(pages, source, task, first, last)
        except BaseException:
            self._release()
            raise

    cdef int _fill(self, PageList pages, PageSource source, int task, int64_t first, int64_t last) except -1:
        cdef Chunk chunk
        cdef int64_t index, weight = 0, size, sealed = 0, share, stored = 0
        cdef Page *page
        cdef int crew
        cdef Job *job = &self.job
        self.first = first
        job.task = task
        job.pages = pages.pages + first
        job.count = last - first
        job.arena = pages.arena
        job.source = source.descriptor
        job.memory = source.view.data if source.descriptor < 0 else NULL
        job.memory_base = source.base
        job.source_aad = self.source_aad.data
        job.source_aad_length = self.source_aad.nbytes
        job.target_aad = self.target_aad.data
        job.target_aad_length = self.target_aad.nbytes
        job.next_segment = 0
        job.target = -1
        job.out = NULL
        ags1_failure_init(&job.failure)
        job.ends = <Ends *>PyMem_Malloc(max(1, len(pages.chunks)) * sizeof(Ends))
        job.segments = <int64_t *>PyMem_Malloc((job.count + 1) * sizeof(int64_t))
        if job.ends == NULL or job.segments == NULL:
            raise MemoryError(f"no memory to convert {job.count} pages")
        for index in range(job.count):
            stored += job.pages[index].header_stored + <int64_t>job.pages[index].body_stored
        for index in range(len(pages.chunks)):
            chunk = pages.chunks[index]
            job.ends[index] = chunk.ends
            if task != CONVERT:
                job.ends[index].target_mode = PLAIN
        crew = choose_threads(self.threads, stored)
        share = SEGMENT_BYTES if crew == 1 else max(1, min(SEGMENT_BYTES, stored // (2 * crew)))
        job.segment_count = 0
        for index in range(job.count):
            page = &job.pages[index]
            size = <int64_t>page.header_stored + page.body_stored
            if index == 0 or weight + size > share \
                    or page.offset != job.pages[index - 1].offset + job.pages[index - 1].header_stored \
                    + <int64_t>job.pages[index - 1].body_stored:
                job.segments[job.segment_count] = index
                job.segment_count += 1
                weight = 0
            weight += size
            if task == CONVERT and job.ends[page.chunk].target_mode != PLAIN and page.page_type != RAW_BYTES:
                sealed += 1
                chunk = pages.chunks[page.chunk]
                count_messages(chunk.target_key, 2)
        job.segments[job.segment_count] = job.count
        if sealed:
            self.nonces = new_nonces(job.count * 2)
        job.nonces = self.nonces
        return <int>min(crew, max(1, job.segment_count))

    cdef int _run(
            self, PageList pages, PageSource source, int task, int64_t first, int64_t last, BufferView out,
            int64_t base) except -1:
        """Do the work here and in other threads; a failure is recorded in the job."""
        cdef int crew = self._prepare(pages, source, task, first, last)
        self.out = out
        if out is not None:
            self.job.out = out.data
            self.job.out_base = base
        ags1_turnstile_init(&self.job.turnstile, base)
        self.lined = True
        with nogil:
            ags1_run_crew(_work, &self.job, crew)
        return 0

    def start(
            self, PageList pages not None, PageSource source not None, int target, int64_t offset, *, target_name=None):
        """Start to convert pages and write them one after another, from an offset of a regular file on."""
        cdef int crew
        if target < 0:
            raise ValueError(f"target must be a descriptor, got {target}")
        crew = self._prepare(pages, source, CONVERT, 0, pages.count)
        self.target_name = target_name
        self.job.target = target
        ags1_turnstile_init(&self.job.turnstile, offset)
        self.lined = True
        self.flying = True
        self.process = ags1_process()
        ags1_start_crew(&self.crew, _work, &self.job, crew)
        if self.crew.count == 0:
            self.waiting = True
            with nogil:
                _work(&self.job)
            self.waiting = False

    def wait(self):
        """Wait for the pages; return the offset after the last, or raise an error that names the first failed page.

        Their chunks know their new places and sizes then.
        """
        if not self.flying or self.waiting:
            raise RuntimeError("nothing was started, or another thread waits for it")
        if self.process != ags1_process():
            self._stop()
            raise RuntimeError("the threads of this conversion are in the parent process")
        self.waiting = True
        with nogil:
            ags1_join_crew(&self.crew)
        self.waiting = self.flying = False
        return self._finish()

    cdef int64_t _finish(self) except -1:
        cdef int64_t index, end
        cdef Chunk chunk
        cdef PageList pages = self.pages
        try:
            if self.job.failure.failed:
                self._raise()
            for index in range(pages.count):
                chunk = pages.chunks[pages.pages[index].chunk]
                chunk.locate(&pages.pages[index])
            end = self.job.turnstile.end
        finally:
            self._release()
        return end

    cdef int _raise(self) except -1:
        cdef Page *page = &self.pages.pages[self.first + self.job.failure.run]
        cdef Chunk chunk = self.pages.chunks[page.chunk]
        raise_page(
            self.job.failure.status, self.job.failure.system_error, self.job.failure.backend_error, chunk,
            page.page_type, page.ordinal, False, self.source.name, self.target_name)

    def convert(self, PageList pages not None, PageSource source not None, int64_t offset):
        """Convert pages into new memory, one after another, for an offset of the target; see :meth:`start`."""
        cdef int64_t end
        cdef bytearray memory = bytearray(pages.stored + pages.count * (HEADER_SLACK + 2 * GCM_OVERHEAD))
        self._run(pages, source, CONVERT, 0, pages.count, writable(memory, "out"), offset)
        end = self._finish()
        del memory[end - offset :]
        return memory

    def view(self, PageList pages not None, PageSource source not None, out, int64_t base, int64_t first=0, last=None):
        """Decrypt pages before `last` to their offsets in the file; `out` is the file from offset `base` on."""
        cdef int64_t end = pages.count if last is None else last
        cdef int64_t index
        cdef Page *page
        cdef BufferView room = writable(out, "out")
        if not 0 <= first <= end <= pages.count:
            raise ValueError(f"pages {first} to {end} of {pages.count}")
        for index in range(first, end):
            page = &pages.pages[index]
            if page.offset < base \
                    or page.offset - base + page.header_stored + <int64_t>page.body_stored > room.nbytes:
                raise ValueError("the pages do not fit into the memory for them")
        self._run(pages, source, VIEW, first, end, room, base)
        try:
            if self.job.failure.failed:
                memset(self.out.data, 0, self.out.nbytes)
                self._raise()
        finally:
            self._release()

    def verify(self, PageList pages not None, PageSource source not None):
        """Check every tag and CRC of pages; return chunk, ordinal (None: a dictionary) and error of failed pages."""
        cdef Page *page
        cdef int64_t index
        cdef Chunk chunk
        failures = []
        self._run(pages, source, VERIFY, 0, pages.count, None, 0)
        try:
            if self.job.failure.failed:
                self._raise()
            for index in range(pages.count):
                page = &pages.pages[index]
                if page.status != GCM_OK:
                    chunk = pages.chunks[page.chunk]
                    try:
                        raise_page(
                            page.status, 0, 0, chunk, page.page_type, page.ordinal, False, source.name, None)
                    except Exception as error:
                        ordinal = None if page.page_type == DICTIONARY else page.ordinal
                        failures.append((chunk, ordinal, error))
        finally:
            self._release()
        return failures
