"""Many buffers, one native call: each becomes, or was, an AGS1 stream of its own; results share one arena.

    items     [ data 0 ]   [ data 1 ]        [ data 2 ]            anywhere in memory: see ags1._items
    arena     | stream 0 | stream 1        | stream 2 |            one piece of memory
    offsets   0          o1                o2         o3           int64, as Arrow's LargeBinary has them

The arena and its offsets are the result, a :class:`Batch`; nothing is made for an item before somebody asks for it.
Work goes in windows of consecutive items. A member of the crew takes a share of a window's arena, finds its first item
by bisection, and goes on to the end of the share::

    measure every item: the offsets
    for each window:
        find its items (or hold their memory), draw its nonces, launch a crew
        land the window two before it

Items are looked at twice, to measure them and to work on them. What does not agree the second time is refused, and
nobody's memory is left: their owners may change them meanwhile.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.memoryview cimport PyMemoryView_FromObject, PyMemoryView_GET_BUFFER
from cpython.ref cimport Py_REFCNT
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uintptr_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from ags1._blocks cimport MAX_UNITS, Run, choose_threads, new_bytes, seal_runs
from ags1._buffer cimport BufferView, overlap, readable, writable
from ags1._gcm cimport (
    GCM_BACKEND,
    GCM_BAD_TAG,
    GCM_NO_MEMORY,
    GCM_OK,
    Key,
    as_key,
    count_messages,
    gcm_context_free,
    gcm_context_new,
    gcm_context_rekey,
    gcm_last_error,
    gcm_open,
    gcm_random,
    gcm_seal,
    raise_status,
)
from ags1._items cimport (
    ITEM_HERE,
    ITEM_NULL,
    ITEM_OUTSIDE,
    ITEMS_NUMBERED,
    ITEMS_OFFSETS_32,
    ITEMS_OFFSETS_64,
    ITEMS_ONE,
    ITEMS_STRIDED,
    Hold,
    Items,
    Memory,
    Span,
    expect,
    export_binary,
    items_of,
    load_32,
    load_64,
    locate,
    one_item,
)
from ags1.evp cimport EVP_CIPHER_CTX
from ags1.layout cimport (
    AGS1_BLOCK_OVERHEAD,
    AGS1_HEADER_LENGTH,
    AGS1_NONCE_LENGTH,
    ags1_block_count,
    ags1_encrypted_length,
    ags1_plaintext_length,
    ags1_read_header,
    ags1_store_le32,
    ags1_write_header,
)
from ags1.workers cimport (
    ags1_add,
    ags1_crew,
    ags1_fail,
    ags1_failure,
    ags1_failure_init,
    ags1_has_failed,
    ags1_join_crew,
    ags1_start_crew,
    ags1_take,
)

from collections.abc import Sequence

from ags1 import _layout
from ags1._items import NumberedPrefixes
from ags1.errors import AuthenticationError, FormatError, LimitError, TruncatedError

# Objects whose memory is held at once.
cdef int64_t OBJECTS = 16384
cdef int64_t FEW = 256
# Items that are brought into the cache ahead.
cdef int64_t AHEAD = 16
cdef int64_t MAX_ARENA = <int64_t>1 << 61
# What an item costs beside its bytes, in bytes of AES-GCM: shares are of this weight.
cdef int64_t ITEM_WEIGHT = 1024
cdef enum:
    STACK_AAD = 512
# An item is not what it was when it was measured. Beside the numbers of GcmStatus.
cdef int CHANGED = 100


# -- the work on a window ----------------------------------------------------------------------------------------

cdef struct Work:
    Span items
    Span keys
    Span prefixes
    int64_t first
    int64_t last
    const int64_t *starts        # in the arena, of every item of the batch and of the end
    int64_t mask                 # starts are multiples of mask + 1
    uint8_t *arena
    const int64_t *lengths       # trusted, of every item, -1 for none; or NULL
    int64_t block_length         # sealing
    const uint32_t *units        # sealing: blocks of the window in front of each item; NULL if each has one
    const uint8_t *nonces        # sealing; NULL when opening
    int64_t weight
    int64_t share
    int64_t next_share
    int64_t found                # items that were looked at, over all members
    int64_t blocks               # that they have
    int64_t done                 # that were sealed or opened
    ags1_failure failure


cdef inline int64_t _weight_of(const Work *work, int64_t index) noexcept nogil:
    return work.starts[index] - work.starts[work.first] + (index - work.first) * ITEM_WEIGHT


cdef inline int _measure(
        bint encrypt, const uint8_t *data, int64_t nbytes, int64_t *block_length, int64_t *plain, int64_t *size,
        int64_t *blocks) noexcept nogil:
    """Lengths of an item's plaintext and of its result, and its blocks; not 0 if it cannot be."""
    if encrypt:
        plain[0] = nbytes
        if nbytes <= block_length[0]:
            blocks[0] = 1
        elif ags1_block_count(nbytes, block_length[0], blocks):
            return CHANGED
        size[0] = AGS1_HEADER_LENGTH + blocks[0] * AGS1_BLOCK_OVERHEAD + nbytes
        return 0
    if nbytes < AGS1_HEADER_LENGTH or ags1_read_header(data, block_length):
        return CHANGED
    plain[0] = nbytes - AGS1_HEADER_LENGTH - AGS1_BLOCK_OVERHEAD
    if 0 <= plain[0] <= block_length[0]:
        blocks[0] = 1
    elif ags1_plaintext_length(nbytes, block_length[0], plain) or ags1_block_count(plain[0], block_length[0], blocks):
        return CHANGED
    size[0] = plain[0]
    return 0


cdef int64_t _item_at(const Work *work, int64_t weight) noexcept nogil:
    """The last item that begins at this weight or in front of it."""
    cdef int64_t low = work.first, high = work.last, middle
    while high - low > 1:
        middle = (low + high) // 2
        if _weight_of(work, middle) <= weight:
            low = middle
        else:
            high = middle
    return low


cdef int _aad(const Work *work, int64_t index, uint8_t **aad, size_t *room, size_t *length) noexcept nogil:
    """Put the prefix of an item into `aad`, with room for the index of a block behind it."""
    cdef const uint8_t *prefix = NULL
    cdef int64_t nbytes = 0, number
    cdef uint8_t *grown
    if locate(&work.prefixes, index, &prefix, &nbytes) != ITEM_HERE:
        return CHANGED
    if <size_t>nbytes + 12 > room[0]:
        grown = <uint8_t *>malloc(<size_t>nbytes + 12)
        if grown == NULL:
            return GCM_NO_MEMORY
        if room[0] > STACK_AAD:
            free(aad[0])
        aad[0] = grown
        room[0] = <size_t>nbytes + 12
    if nbytes > 0:
        memcpy(aad[0], prefix, <size_t>nbytes)
    if work.prefixes.kind == ITEMS_NUMBERED:
        number = work.prefixes.number + index
        ags1_store_le32(aad[0] + nbytes, <uint32_t>number)
        ags1_store_le32(aad[0] + nbytes + 4, <uint32_t>(number >> 32))
        nbytes += 8
    length[0] = <size_t>nbytes
    return GCM_OK


cdef void *_work(void *argument) noexcept nogil:
    """One member of the crew: take shares until none is left or something failed."""
    cdef Work *work = <Work *>argument
    cdef bint encrypt = work.nonces != NULL
    cdef EVP_CIPHER_CTX *context = NULL
    cdef const uint8_t *context_key = NULL
    cdef const uint8_t *key = NULL
    cdef const uint8_t *data = NULL
    cdef const uint8_t *sealed
    cdef uint8_t stack_aad[STACK_AAD]
    cdef uint8_t *aad = stack_aad
    cdef uint8_t *out
    cdef uint8_t *block_out
    cdef size_t aad_room = STACK_AAD, aad_length = 0
    cdef int64_t start, end, index, weight, nbytes = 0, key_length = 0, context_length = 0
    cdef int64_t block_length = work.block_length, plain = 0, size = 0, blocks = 0, step, block, length
    cdef int64_t found = 0, counted = 0, done = 0
    cdef int status = GCM_OK, place

    if work.prefixes.kind == ITEMS_ONE:
        status = _aad(work, 0, &aad, &aad_room, &aad_length)
        if status != GCM_OK:
            ags1_fail(&work.failure, status, work.first, 0, 0, 0)
    while status == GCM_OK and not ags1_has_failed(&work.failure):
        start = ags1_take(&work.next_share) * work.share
        if start >= work.weight:
            break
        end = start + work.share
        index = _item_at(work, start)
        while index < work.last and status == GCM_OK:
            weight = _weight_of(work, index)
            if weight >= end:
                break
            block = 0
            expect(&work.items, index + 4)
            place = locate(&work.items, index, &data, &nbytes)
            if place == ITEM_NULL:
                if weight >= start:
                    found += 1
                    if work.starts[index + 1] != work.starts[index]:
                        status = CHANGED
            elif place != ITEM_HERE or _measure(encrypt, data, nbytes, &block_length, &plain, &size, &blocks):
                status = CHANGED
            elif ((size + work.mask) & ~work.mask) != work.starts[index + 1] - work.starts[index]:
                status = CHANGED
            elif work.units != NULL and blocks != work.units[index + 1 - work.first] - work.units[index - work.first]:
                status = CHANGED
            elif work.lengths != NULL and work.lengths[index] >= 0 and work.lengths[index] != nbytes:
                status = CHANGED
            else:
                step = block_length + AGS1_BLOCK_OVERHEAD if encrypt else block_length
                if weight < start:
                    # Its first blocks belong to shares before this one.
                    block = (start - weight + step - 1) // step
                else:
                    found += 1
                    counted += blocks
                if block < blocks:
                    if locate(&work.keys, index, &key, &key_length) != ITEM_HERE or key_length not in (16, 24, 32):
                        status = CHANGED
                    elif context == NULL:
                        context = gcm_context_new(key, <size_t>key_length, encrypt)
                        status = GCM_OK if context != NULL else GCM_BACKEND
                    elif context_key != key or context_length != key_length:
                        status = gcm_context_rekey(context, key, <size_t>key_length, encrypt)
                    context_key = key
                    context_length = key_length
                    if status == GCM_OK and work.prefixes.kind != ITEMS_ONE:
                        status = _aad(work, index, &aad, &aad_room, &aad_length)
                out = work.arena + work.starts[index]
                while block < blocks and weight + block * step < end and status == GCM_OK:
                    ags1_store_le32(aad + aad_length, <uint32_t>block)
                    length = min(block_length, plain - block * block_length)
                    if encrypt:
                        block_out = out + AGS1_HEADER_LENGTH + block * step
                        if block == 0:
                            ags1_write_header(out, block_length)
                        memcpy(
                            block_out, work.nonces + AGS1_NONCE_LENGTH * (
                                index - work.first if work.units == NULL else work.units[index - work.first] + block),
                            AGS1_NONCE_LENGTH)
                        status = gcm_seal(
                            context, block_out, aad, aad_length + 4, data + block * block_length, length,
                            block_out + AGS1_NONCE_LENGTH, block_out + AGS1_NONCE_LENGTH + length)
                    else:
                        sealed = data + AGS1_HEADER_LENGTH + block * (block_length + AGS1_BLOCK_OVERHEAD)
                        status = gcm_open(
                            context, sealed, aad, aad_length + 4, sealed + AGS1_NONCE_LENGTH, length,
                            sealed + AGS1_NONCE_LENGTH + length, out + block * block_length)
                    if status != GCM_OK:
                        break
                    block += 1
                    done += 1
            if status != GCM_OK:
                ags1_fail(&work.failure, status, index, block, 0, gcm_last_error(status))
            index += 1
    ags1_add(&work.found, found)
    ags1_add(&work.blocks, counted)
    ags1_add(&work.done, done)
    gcm_context_free(context)
    if aad != stack_aad:
        free(aad)
    return NULL


cdef class _Window:
    # Consecutive items of a batch, what is held of their owners' memory, and the crew that works on them.
    cdef Work work
    cdef ags1_crew crew
    cdef bint flying
    cdef bint alone              # one item of very many blocks
    cdef Hold items
    cdef Hold keys
    cdef Hold prefixes
    cdef uint32_t *units
    cdef uint8_t *nonces
    cdef int64_t room            # of nonces

    def __cinit__(self):
        self.items = Hold.__new__(Hold)
        self.keys = Hold.__new__(Hold)
        self.prefixes = Hold.__new__(Hold)

    def __dealloc__(self):
        self.let_go()
        PyMem_Free(self.units)
        PyMem_Free(self.nonces)

    cdef int launch(self, int threads) except -1:
        """Start `threads` members on the window; with one thread, do all of it here and now."""
        cdef Work *work = &self.work
        work.weight = _weight_of(work, work.last)
        work.share = max(64 << 10, min(1 << 20, work.weight // (16 * threads)))
        threads = <int>min(threads, (work.weight + work.share - 1) // work.share)
        work.next_share = work.found = work.blocks = work.done = 0
        ags1_failure_init(&work.failure)
        self.flying = True
        self.crew.count = 0
        if threads > 1:
            ags1_start_crew(&self.crew, _work, work, threads)
        if self.crew.count == 0:
            with nogil:
                _work(work)
        return 0

    cdef int land(self) except -1:
        """Wait for the crew, and raise what the earliest failure means."""
        cdef Work *work = &self.work
        cdef int64_t index
        cdef bint flew = self.flying
        self.let_go()
        if not flew:
            return 0
        if work.failure.failed:
            index = work.failure.run
            if work.failure.status == GCM_BAD_TAG:
                raise AuthenticationError.for_block(work.failure.block_index, f"buffer {index}")
            if work.failure.status == CHANGED:
                raise ValueError(f"buffer {index} changed its size while it was being worked on")
            raise_status(
                work.failure.status, work.failure.backend_error,
                "encrypting blocks" if self.nonces != NULL else "decrypting blocks")
        if work.found != work.last - work.first or work.done != work.blocks:
            # Fresh memory would pass for a result: a block that nobody took must never go unnoticed.
            raise SystemError(
                f"{work.found} of {work.last - work.first} buffers and {work.done} of {work.blocks} blocks were "
                "processed; this is a defect of ags1"
            )
        return 0

    cdef void let_go(self) noexcept:
        if self.flying:
            with nogil:
                ags1_join_crew(&self.crew)
            self.flying = False
        # None if there was no memory for it.
        if self.prefixes is not None:
            self.items.let_go()
            self.keys.let_go()
            self.prefixes.let_go()


# -- a batch being made ------------------------------------------------------------------------------------------

cdef class _Making:
    # The arguments of a batch, and where each result lies in the arena.
    cdef Items items
    cdef Items keys
    cdef Items prefixes
    cdef Key key                 # the one that counts what is sealed with it; None if each item has its own
    cdef bint encrypt
    cdef int64_t block_length    # sealing
    cdef int64_t count
    cdef object trusted          # owner of the trusted lengths
    cdef const int64_t *lengths
    cdef object offsets          # bytes of count + 1 int64
    cdef int64_t *starts
    cdef int64_t source_nbytes
    cdef int64_t longest         # bytes of the longest item
    cdef int64_t total
    cdef int64_t mask
    cdef bytearray validity      # a bitmap, or None
    cdef int64_t null_count
    cdef object owner            # of the arena
    cdef uint8_t *arena

    def __cinit__(self, buffers, key, aad_prefixes, lengths, bint encrypt, int64_t block_length, int64_t alignment):
        self.items = items_of(buffers, "buffer")
        self.count = self.items.count
        self.encrypt = encrypt
        self.block_length = block_length
        self.mask = alignment - 1
        self.take_keys(key)
        self.take_prefixes(aad_prefixes)
        self.take_lengths(lengths)

    cdef int take_keys(self, object key) except -1:
        cdef int64_t index
        if not _is_many(key):
            self.key = as_key(key)
            self.keys = one_item(self.key, "key")
            return 0
        self.keys = items_of(key, "key")
        if self.keys.objects != NULL:
            self.keys = items_of(
                [_as_key(<object>self.keys.objects[index], index) for index in range(self.keys.count)], "key")
        if self.keys.count != self.count:
            raise ValueError(f"{self.keys.count} keys for {self.count} buffers: give one for all, or one each")
        if not self.keys.held:
            self.check_keys()
        return 0

    cdef int check_keys(self) except -1:
        cdef Span span
        cdef const uint8_t *data = NULL
        cdef int64_t index = 0, end, nbytes = 0
        while index < self.count:
            end = min(self.count, self.keys.span_at(index, &span))
            while index < end:
                if locate(&span, index, &data, &nbytes) != ITEM_HERE:
                    raise ValueError(f"buffer {index}: its key is null, or outside of its array's memory")
                if nbytes not in (16, 24, 32):
                    raise ValueError(
                        f"buffer {index}: key must be 16, 24 or 32 bytes (AES-128, AES-192, AES-256), got {nbytes}"
                    )
                index += 1
        return 0

    cdef int take_prefixes(self, object prefixes) except -1:
        cdef Span span
        cdef const uint8_t *data = NULL
        cdef int64_t index = 0, end, nbytes = 0, place
        if prefixes is None:
            prefixes = b""
        if isinstance(prefixes, str):
            raise TypeError("aad_prefixes must be one prefix for all buffers, or one each, as bytes: encode this str")
        if isinstance(prefixes, NumberedPrefixes) and prefixes.first > (1 << 63) - 1 - self.count:
            raise ValueError(f"prefixes from {prefixes.first} on do not reach for {self.count} buffers")
        if isinstance(prefixes, NumberedPrefixes) or not _is_many(prefixes):
            self.prefixes = one_item(prefixes, "aad_prefix")
            return 0
        self.prefixes = items_of(prefixes, "aad_prefix of buffer")
        if self.prefixes.count != self.count:
            raise ValueError(f"{self.prefixes.count} aad_prefixes for {self.count} buffers: give one each")
        while not self.prefixes.held and index < self.count:
            end = min(self.count, self.prefixes.span_at(index, &span))
            while index < end:
                place = locate(&span, index, &data, &nbytes)
                if place == ITEM_NULL:
                    raise ValueError(f"aad_prefix of buffer {index} is null: give an empty one instead")
                if place == ITEM_OUTSIDE:
                    self.prefixes.refuse(index)
                index += 1
        return 0

    cdef int take_lengths(self, object lengths) except -1:
        cdef object packed
        cdef int64_t *values
        cdef int64_t index = 0
        if lengths is None:
            return 0
        lengths = lengths if hasattr(lengths, "__len__") else list(lengths)
        if len(lengths) != self.count:
            raise ValueError(f"{len(lengths)} lengths for {self.count} buffers: give one each")
        packed = new_bytes(8 * self.count + 8)
        values = <int64_t *>PyBytes_AS_STRING(packed)
        for each in lengths:
            if each is None:
                values[index] = -1
            elif isinstance(each, bool) or not hasattr(each, "__index__"):
                raise TypeError(f"buffer {index}: length must be an integer or None, not {type(each).__name__}")
            elif each < 0:
                raise ValueError(f"buffer {index}: length must not be negative, got {each}")
            else:
                # More than any memory has is as wrong as this.
                values[index] = min(int(each), (1 << 63) - 1)
            index += 1
        self.trusted = packed
        self.lengths = values
        return 0

    cdef int refuse(self, int64_t index, const uint8_t *data, int64_t nbytes) except -1:
        """Raise why an item cannot be encrypted or decrypted."""
        cdef int64_t length = 0, block_length = 0
        if self.encrypt:
            _layout.encrypted_length(nbytes, self.block_length)
        if nbytes < AGS1_HEADER_LENGTH or ags1_read_header(data, &block_length):
            _layout.read_header(data[:min(nbytes, 16)], f"buffer {index}")
        try:
            _layout.plaintext_length(nbytes, block_length)
        except (FormatError, LimitError) as error:
            raise type(error)(f"buffer {index}: {error}") from None
        raise ValueError(f"buffer {index} changed while it was being measured")

    cdef int refuse_length(self, int64_t index, int64_t nbytes) except -1:
        kind = TruncatedError if nbytes < self.lengths[index] else FormatError
        raise kind(f"buffer {index}: has {nbytes} bytes, but its trusted length is {self.lengths[index]}")

    cdef int refuse_total(self) except -1:
        raise MemoryError("the results of this batch are larger than any memory: make several batches")

    cdef int lay_out(self, BufferView target) except -1:
        """Measure every item: where each result starts, and how many bytes they take together."""
        cdef Hold hold = Hold.__new__(Hold)
        cdef Span span
        cdef int64_t index = 0, end
        self.starts[0] = 0
        if self.items.nullable:
            self.validity = bytearray(b"\xff" * ((self.count + 7) // 8))
        while index < self.count:
            # Of objects, few are held at once: there may be millions.
            end = min(self.count, index + FEW) if self.items.held else self.count
            end = self.items.window(index, end, hold, &span)
            self.measure(index, end, &span, target)
            hold.let_go()
            index = end
        self.total = self.starts[self.count]
        return 0

    cdef int measure(self, int64_t index, int64_t end, const Span *span, BufferView target) except -1:
        cdef const uint8_t *data = NULL
        cdef int64_t nbytes = 0, block_length = self.block_length, plain = 0, size = 0, blocks = 0
        cdef int64_t total = self.starts[index], source_nbytes = self.source_nbytes, longest = self.longest
        cdef int place
        cdef uint8_t *validity = NULL if self.validity is None else <uint8_t *>PyByteArray_AS_STRING(self.validity)
        while index < end:
            expect(span, index + AHEAD)
            place = locate(span, index, &data, &nbytes)
            if place == ITEM_NULL:
                validity[index >> 3] &= ~(1 << (index & 7))
                self.null_count += 1
            elif place == ITEM_OUTSIDE:
                self.items.refuse(index)
            else:
                if _measure(self.encrypt, data, nbytes, &block_length, &plain, &size, &blocks):
                    self.refuse(index, data, nbytes)
                if self.lengths != NULL and self.lengths[index] >= 0 and self.lengths[index] != nbytes:
                    self.refuse_length(index, nbytes)
                # One item may come many times, so the sum may be more than 64 bits hold.
                if max(nbytes, size) > MAX_ARENA - max(total, source_nbytes):
                    self.refuse_total()
                source_nbytes += nbytes
                longest = max(longest, nbytes)
                total += (size + self.mask) & ~self.mask
                if target is not None and overlap(data, nbytes, target.data, target.nbytes):
                    self.refuse_overlap(f"buffer {index}")
            index += 1
            self.starts[index] = total
        self.source_nbytes = source_nbytes
        self.longest = longest
        return 0

    cdef int refuse_overlap(self, str what) except -1:
        raise ValueError(f"{what} and out overlap in memory: results would overwrite it; pass separate memory")

    cdef int place(self, object out) except -1:
        """Lay the results out, and find memory for them: fresh, the caller's, or that of a reserved batch."""
        cdef BufferView target = None
        cdef _Room room = None
        cdef BufferView prefix
        cdef int64_t index
        if isinstance(out, Batch):
            room = (<Batch>out).room
            if room is None:
                raise TypeError("out must be a writable buffer or a batch of Batch.reserve(), not any other Batch")
        elif out is not None:
            target = writable(out, "out")
            for each, what in ((self.items, "buffers"), (self.keys, "keys"), (self.prefixes, "aad_prefixes")):
                if (<Items>each).overlaps(target.data, target.nbytes):
                    self.refuse_overlap(what)
            for index in range(self.count if self.prefixes.held else 0):
                prefix = readable(<object>self.prefixes.objects[index], f"aad_prefix of buffer {index}")
                if overlap(prefix.data, prefix.nbytes, target.data, target.nbytes):
                    self.refuse_overlap("aad_prefixes")
        self.offsets = room.take(room.offsets, 8 * (self.count + 1)) if room is not None else (
            new_bytes(8 * (self.count + 1)))
        self.starts = <int64_t *>PyBytes_AS_STRING(self.offsets)
        self.lay_out(target)
        if target is not None:
            if target.nbytes < self.total:
                raise ValueError(f"out has {target.nbytes} bytes, but the results of this batch take {self.total}")
            self.owner, self.arena = target, target.data
            return 0
        if room is not None:
            self.owner = room.take(room.arenas, self.total)
        else:
            self.owner = new_bytes(self.total + self.mask)
        self.arena = <uint8_t *>PyBytes_AS_STRING(self.owner)
        if self.mask:
            # The gaps before, between and behind the results show nothing that was in this memory before.
            memset(self.arena, 0, <size_t>(self.total + self.mask))
            self.arena += -<int64_t><uintptr_t>self.arena & self.mask
        return 0

    cdef list aligned(self):
        """Memoryviews of the results, each of which starts at an aligned address."""
        cdef Span span
        cdef Hold hold = Hold.__new__(Hold)
        cdef const uint8_t *data = NULL
        cdef int64_t index, nbytes = 0, block_length = 0, plain = 0, size = 0, blocks = 0
        cdef object view = memoryview(self.owner)[self.arena - <uint8_t *>PyBytes_AS_STRING(self.owner):]
        found = []
        for index in range(self.count):
            self.items.window(index, index + 1, hold, &span)
            locate(&span, index, &data, &nbytes)
            _measure(self.encrypt, data, nbytes, &block_length, &plain, &size, &blocks)
            hold.let_go()
            size = min(size, self.starts[index + 1] - self.starts[index])
            found.append(view[self.starts[index] : self.starts[index] + size])
        return found

    cdef int fill(self, _Window window, int64_t first) except -1:
        """Describe the work on as many items from `first` on as make a window."""
        cdef Work *work = &window.work
        cdef Span span
        cdef int64_t last = self.count
        if self.items.held or self.keys.held or self.prefixes.held:
            last = min(last, first + OBJECTS)
        last = min(last, self.items.span_at(first, &span) if not self.items.held else last)
        last = min(last, self.keys.span_at(first, &span) if not self.keys.held else last)
        last = min(last, self.prefixes.span_at(first, &span) if not self.prefixes.held else last)
        if self.encrypt:
            last = min(last, first + MAX_UNITS)
        self.items.window(first, last, window.items, &work.items)
        self.keys.window(first, last, window.keys, &work.keys)
        self.prefixes.window(first, last, window.prefixes, &work.prefixes)
        work.first = first
        work.last = last
        work.starts = self.starts
        work.mask = self.mask
        work.arena = self.arena
        work.lengths = self.lengths
        work.block_length = self.block_length
        work.nonces = NULL
        window.alone = False
        if self.encrypt:
            self.draw(window)
        return 0

    cdef int draw(self, _Window window) except -1:
        """Draw the nonces of a window, and end it where there are enough of them."""
        cdef Work *work = &window.work
        cdef int64_t index, blocks, total = work.last - work.first
        cdef int status
        work.units = NULL
        if self.longest > self.block_length:
            total = self.count_units(window)
        if self.key is not None:
            count_messages(self.key, total)
        elif self.keys.held:
            for index in range(work.first, work.last):
                blocks = 1
                if total > MAX_UNITS:
                    blocks = total
                elif work.units != NULL:
                    blocks = window.units[index + 1 - work.first] - window.units[index - work.first]
                count_messages(<Key><object>self.keys.objects[index], blocks)
        if total > MAX_UNITS:
            window.alone = True
            return 0
        if total > window.room:
            window.room = 0
            PyMem_Free(window.nonces)
            window.nonces = <uint8_t *>PyMem_Malloc(total * AGS1_NONCE_LENGTH)
            if window.nonces == NULL:
                raise MemoryError(f"no memory for the nonces of {total} blocks")
            window.room = total
        status = gcm_random(window.nonces, <size_t>total * AGS1_NONCE_LENGTH)
        if status != GCM_OK:
            raise_status(status, gcm_last_error(status), "drawing nonces")
        work.nonces = window.nonces
        return 0

    cdef int64_t count_units(self, _Window window) except -1:
        """Count the blocks of a window in front of each of its items, and end it where there are enough."""
        cdef Work *work = &window.work
        cdef const uint8_t *data = NULL
        cdef int64_t index, nbytes = 0, blocks, total = 0
        cdef int place
        if window.units == NULL:
            window.units = <uint32_t *>PyMem_Malloc((min(self.count, MAX_UNITS) + 1) * sizeof(uint32_t))
            if window.units == NULL:
                raise MemoryError("no memory for the blocks of a batch")
        work.units = window.units
        window.units[0] = 0
        for index in range(work.first, work.last):
            blocks = 0
            place = locate(&work.items, index, &data, &nbytes)
            if place == ITEM_HERE and ags1_block_count(nbytes, self.block_length, &blocks) or place == ITEM_OUTSIDE:
                raise ValueError(f"buffer {index} changed its size while it was being worked on")
            if total + blocks > MAX_UNITS:
                if index > work.first:
                    work.last = index
                    break
                # One item of very many blocks has a window of its own, and its nonces come in windows too.
                work.last = index + 1
                return blocks
            total += blocks
            window.units[index + 1 - work.first] = <uint32_t>total
        return total

    cdef int seal_alone(self, Work *work, int threads) except -1:
        """Seal one item of more blocks than have their nonces drawn at once, while this thread waits."""
        cdef Run run
        cdef const uint8_t *data = NULL
        cdef const uint8_t *key = NULL
        cdef int64_t index = work.first, nbytes = 0, key_length = 0, length = 0
        cdef uint8_t stack_aad[STACK_AAD]
        cdef uint8_t *aad = stack_aad
        cdef size_t aad_room = STACK_AAD, aad_length = 0
        cdef int status = CHANGED
        if (
            locate(&work.items, index, &data, &nbytes) == ITEM_HERE
            and ags1_encrypted_length(nbytes, self.block_length, &length) == 0
            and length == self.starts[index + 1] - self.starts[index]
            and locate(&work.keys, index, &key, &key_length) == ITEM_HERE
            and key_length in (16, 24, 32)
        ):
            status = _aad(work, index, &aad, &aad_room, &aad_length)
        if status == CHANGED:
            raise ValueError(f"buffer {index} changed its size while it was being worked on")
        try:
            if status != GCM_OK:
                raise_status(status, 0, "encrypting blocks")
            memset(&run, 0, sizeof(run))
            run.header = True
            run.data = data
            run.out = self.arena + self.starts[index] + AGS1_HEADER_LENGTH
            run.length = nbytes
            run.block_length = self.block_length
            run.key = key
            run.key_length = <size_t>key_length
            run.aad_prefix = aad
            run.aad_prefix_length = aad_length
            seal_runs(&run, 1, threads, None)
        finally:
            if aad != stack_aad:
                free(aad)
        return 0

    cdef int run(self, object threads) except -1:
        """Do all of the work."""
        cdef int crew = choose_threads(threads, self.source_nbytes)
        cdef _Window newest = None, older = None, window
        cdef int64_t first = 0
        try:
            while first < self.count:
                window = older if older is not None else _Window.__new__(_Window)
                window.land()
                older = newest
                newest = window
                self.fill(window, first)
                if window.alone:
                    self.seal_alone(&window.work, crew)
                else:
                    window.launch(crew)
                first = window.work.last
            if older is not None:
                older.land()
            if newest is not None:
                newest.land()
        except BaseException:
            # Nobody writes into the arena any more, and nothing unverified stays there: it may be the caller's.
            for window in (older, newest):
                if window is not None:
                    window.let_go()
            if not self.encrypt:
                memset(self.arena, 0, <size_t>self.total)
            raise
        return 0


# -- the result --------------------------------------------------------------------------------------------------

cdef class _Room:
    # Memory for the results of many calls. What nobody but this list knows is free.
    cdef list arenas
    cdef list offsets

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
    """A sequence of streams or plaintexts that lie in one piece of memory, one behind the other.

    Items are read-only memoryviews, made when they are asked for; None for a null. Slices share the memory, and each
    item and slice keeps all of it alive: copy what you keep for long.

    Parameters
    ----------
    data : buffer
        The memory.
    offsets : buffer of int64 or int32
        Where each item starts, in bytes, and behind them where the last one ends: one more than there are items.
    validity : buffer, optional
        A bitmap, least significant bit first, in which a 0 makes an item null.

    Raises
    ------
    TypeError
        `data` is no buffer, or `offsets` has no integers of 64 or 32 bits.
    ValueError
        The offsets descend, or leave `data`; `validity` is too short.

    Notes
    -----
    Immutable, and safe to share between threads, as long as nobody changes memory that it was made of.
    ``ags1.arrow``, pyarrow (``pyarrow.array(batch)``), polars (``polars.Series(batch)``) and others read it without a
    copy, as an Arrow array of type large_binary.
    """

    cdef object owner
    cdef object offsets_owner
    cdef object validity_owner
    cdef const uint8_t *arena
    cdef int64_t arena_nbytes
    cdef const int64_t *starts
    cdef const uint8_t *bits
    # Bit of the first item. Where there are bits, as many offsets lie in front of `starts`.
    cdef int64_t bit
    cdef int64_t length
    cdef object view
    cdef _Room room

    def __init__(self, data, offsets, validity=None):
        cdef Items items
        cdef BufferView bits
        pair = (data, memoryview(offsets))
        readable(data, "data")
        items = items_of(pair, "item")
        if items.objects != NULL:
            raise TypeError(
                "offsets must be integers of 64 or 32 bits (a numpy array, or memoryview(raw).cast('q')), beside data "
                "of single bytes"
            )
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
            An empty batch. A call with ``out=`` it returns a batch of its own in this memory. Memory that a result still
            uses is never written to: up to two results can be alive without fresh memory being taken.
        """
        nbytes, count = int(nbytes), int(count)
        if nbytes < 0 or count < 0:
            raise ValueError(f"nbytes and count must not be negative, got {nbytes} and {count}")
        cdef Batch self = Batch(b"", memoryview(bytes(8)).cast("q"))
        self.room = _Room.__new__(_Room, nbytes, count)
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
        """The batch as a ``pyarrow.LargeBinaryArray`` in the same memory. Needs pyarrow: ``pip install 'ags1[arrow]'``."""
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
            return part
        place = index
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
            return _restore, tuple([None if part is None else bytes(part) for part in parts])
        from pickle import PickleBuffer

        return _restore, tuple([None if part is None else PickleBuffer(part) for part in parts])


Sequence.register(Batch)


def _restore(data, offsets, validity):
    """A pickled batch."""
    return Batch(data, memoryview(offsets).cast("B").cast("q"), validity)


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


cdef Batch _finished(_Making making):
    """The result of a call as a batch."""
    cdef Batch self = Batch.__new__(Batch)
    self.owner = making.owner
    self.offsets_owner = making.offsets
    self.arena = making.arena
    self.arena_nbytes = making.total
    self.starts = making.starts
    self.length = making.count
    if making.null_count:
        self.validity_owner = making.validity
        self.bits = <const uint8_t *>PyByteArray_AS_STRING(making.validity)
    self.view = memoryview(making.owner)[: making.total].toreadonly()
    return self


cdef bint _is_many(object value) except -1:
    """Whether this is a sequence or an array, and not one key or prefix."""
    if isinstance(value, (list, tuple, Batch)) or hasattr(value, "__arrow_c_array__"):
        return True
    if hasattr(value, "__arrow_c_stream__"):
        return True
    try:
        view = memoryview(value)
    except (TypeError, ValueError, BufferError):
        return hasattr(value, "__iter__") and not isinstance(value, str)
    return view.ndim > 1 or view.format == "O"


cdef Key _as_key(object value, int64_t index):
    try:
        return as_key(value)
    except (TypeError, ValueError) as error:
        raise type(error)(f"buffer {index}: {error}") from None


def encrypt_batch(buffers, key, aad_prefixes, block_length, threads, out=None):
    """Encrypt each buffer into a stream of its own. See :func:`ags1.encrypt_many`."""
    _layout.encrypted_length(0, block_length)
    cdef _Making making = _Making(buffers, key, aad_prefixes, None, True, block_length, 1)
    making.place(out)
    making.run(threads)
    return _finished(making)


def decrypt_batch(buffers, key, aad_prefixes, lengths, threads, out=None):
    """Decrypt each buffer, a stream of its own. See :func:`ags1.decrypt_many`."""
    cdef _Making making = _Making(buffers, key, aad_prefixes, lengths, False, 0, 1)
    making.place(out)
    making.run(threads)
    return _finished(making)


def decrypt_aligned(buffers, key, aad_prefixes, threads, alignment):
    """Decrypt each buffer; every result starts at an address that is a multiple of `alignment`, a power of two.

    Returns
    -------
    list of memoryview
    """
    cdef _Making making = _Making(buffers, key, aad_prefixes, None, False, 0, alignment)
    making.place(None)
    making.run(threads)
    return making.aligned()
