"""The work on a window: consecutive items of a batch, each of which becomes, or was, a stream or message of its own.

A member of the crew takes a share of the window's part of the arena, finds its first item by bisection, and goes on to
the end of the share. Items are looked at twice, to measure them and to work on them; what does not agree the second
time is refused, and no memory of the caller is kept: its owner may change it meanwhile.
"""

from cpython.mem cimport PyMem_Free
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

from ags1.core.gcm cimport (
    GCM_BACKEND, GCM_BAD_TAG, GCM_NO_MEMORY, GCM_OK, gcm_context_free, gcm_context_new, gcm_context_rekey,
    gcm_last_error, gcm_open, gcm_seal, raise_status,
)
from ags1.core.gcm_library cimport GcmContext
from ags1.core.items cimport (
    ITEM_HERE, ITEM_NULL, ITEMS_NUMBERED, ITEMS_OFFSETS_32, ITEMS_OFFSETS_64, ITEMS_ONE, Hold, expect, load_32, load_64,
    locate,
)
from ags1.core.layout cimport AGS1_BLOCK_OVERHEAD, AGS1_NONCE_LENGTH, ags1_store_le32, ags1_write_header
from ags1.core.workers cimport (
    ags1_add, ags1_fail, ags1_failure_init, ags1_has_failed, ags1_join_crew, ags1_start_crew, ags1_take_share,
)

from ags1.errors import AuthenticationError

# What an item costs beside its bytes, in bytes of AES-GCM: shares are of this weight.
cdef int64_t ITEM_WEIGHT = 1024
cdef int64_t SMALLEST_SHARE = 64 << 10


cdef inline int64_t _weight_of(const Work *work, int64_t index) noexcept nogil:
    return work.starts[index] - work.starts[work.first] + (index - work.first) * ITEM_WEIGHT


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


cdef int put_aad(const Work *work, int64_t index, uint8_t **aad, size_t *room, size_t *length) noexcept nogil:
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


cdef bint _is_packed(const Work *work) noexcept nogil:
    """Whether all items are values of one block, found by offsets, without nulls, under one key and one prefix."""
    return (
        work.nonces != NULL and work.units == NULL and work.lengths == NULL and work.mask == 0
        and work.items.validity == NULL and work.items.kind in (ITEMS_OFFSETS_32, ITEMS_OFFSETS_64)
        and work.keys.kind == ITEMS_ONE and work.prefixes.kind == ITEMS_ONE)


cdef int _seal_packed(
        const Work *work, GcmContext *context, const uint8_t *aad, size_t aad_length, int64_t end,
        int64_t *at) noexcept nogil:
    """Seal the items of a share from `at` on, which ends where the share does: a third of the work that each takes
    in :func:`_work` beside its message, for what most batches are."""
    cdef const uint8_t *places = work.items.places - (
        work.items.first * (8 if work.items.kind == ITEMS_OFFSETS_64 else 4))
    cdef bint wide = work.items.kind == ITEMS_OFFSETS_64
    cdef const int64_t *starts = work.starts
    cdef const uint8_t *nonces = work.nonces
    cdef int64_t front = work.form.lead + work.form.header, overhead = front + AGS1_BLOCK_OVERHEAD
    cdef int64_t index = at[0], base = starts[work.first], weight, before, behind
    cdef uint8_t *out
    cdef int status = GCM_OK
    while index < work.last:
        weight = starts[index] - base + (index - work.first) * ITEM_WEIGHT
        if weight >= end:
            break
        before = load_64(places + 8 * index) if wide else load_32(places + 4 * index)
        behind = load_64(places + 8 * index + 8) if wide else load_32(places + 4 * index + 4)
        if (
            not 0 <= before <= behind <= work.items.nbytes or behind - before > work.block_length
            or behind - before + overhead != starts[index + 1] - starts[index]
        ):
            status = CHANGED
            break
        out = work.arena + starts[index]
        if work.form.lead:
            memcpy(out, work.lead, <size_t>work.form.lead)
        if work.form.header:
            ags1_write_header(out + work.form.lead, work.block_length)
        out += front
        memcpy(out, nonces + AGS1_NONCE_LENGTH * (index - work.first), AGS1_NONCE_LENGTH)
        status = gcm_seal(
            context, out, aad, aad_length, work.items.data + before, behind - before, out + AGS1_NONCE_LENGTH,
            out + AGS1_NONCE_LENGTH + behind - before)
        if status != GCM_OK:
            break
        index += 1
    at[0] = index
    return status


cdef void *_work(void *argument) noexcept nogil:
    """One member of the crew: take shares until none is left or something failed."""
    cdef Work *work = <Work *>argument
    cdef bint encrypt = work.nonces != NULL
    cdef GcmContext *context = NULL
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
    cdef int64_t found = 0, counted = 0, done = 0, front = work.form.lead + work.form.header
    cdef size_t number_length = 4 if work.form.header else 0
    cdef int status = GCM_OK, place
    cdef bint packed = _is_packed(work)

    if work.prefixes.kind == ITEMS_ONE:
        status = put_aad(work, 0, &aad, &aad_room, &aad_length)
        if status != GCM_OK:
            ags1_fail(&work.failure, status, work.first, 0, 0, 0)
    if packed and status == GCM_OK:
        locate(&work.keys, 0, &key, &key_length)
        context = gcm_context_new(key, <size_t>key_length, True)
        ags1_store_le32(aad + aad_length, 0)
        if context == NULL:
            status = GCM_BACKEND
            ags1_fail(&work.failure, status, work.first, 0, 0, gcm_last_error(status))
    while status == GCM_OK and not ags1_has_failed(&work.failure):
        start = ags1_take_share(&work.next_share, work.weight, SMALLEST_SHARE, work.members, &end)
        if start == work.weight:
            break
        index = _item_at(work, start)
        if packed:
            # An item that began before this share is another's.
            index += _weight_of(work, index) < start
            block = index
            status = _seal_packed(work, context, aad, aad_length + number_length, end, &index)
            found += index - block
            counted += index - block
            done += index - block
            if status != GCM_OK:
                ags1_fail(&work.failure, status, index, 0, 0, gcm_last_error(status))
            continue
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
            elif place != ITEM_HERE or measure_item(
                    &work.form, encrypt, data, nbytes, &block_length, &plain, &size, &blocks):
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
                    elif context_length != key_length or context_key != key and memcmp(
                            context_key, key, <size_t>key_length) != 0:
                        status = gcm_context_rekey(context, key, <size_t>key_length, encrypt)
                    context_key = key
                    context_length = key_length
                    if status == GCM_OK and work.prefixes.kind != ITEMS_ONE:
                        status = put_aad(work, index, &aad, &aad_room, &aad_length)
                out = work.arena + work.starts[index]
                while block < blocks and weight + block * step < end and status == GCM_OK:
                    # Not seal_block and open_block of ags1.core.blocks: a value of the form "gcm" has no index.
                    ags1_store_le32(aad + aad_length, <uint32_t>block)
                    length = min(block_length, plain - block * block_length)
                    if encrypt:
                        block_out = out + front + block * step
                        if block == 0 and work.form.lead:
                            memcpy(out, work.lead, <size_t>work.form.lead)
                        if block == 0 and work.form.header:
                            ags1_write_header(out + work.form.lead, block_length)
                        memcpy(
                            block_out, work.nonces + AGS1_NONCE_LENGTH * (
                                index - work.first if work.units == NULL else work.units[index - work.first] + block),
                            AGS1_NONCE_LENGTH)
                        status = gcm_seal(
                            context, block_out, aad, aad_length + number_length, data + block * block_length, length,
                            block_out + AGS1_NONCE_LENGTH, block_out + AGS1_NONCE_LENGTH + length)
                    else:
                        sealed = data + front + block * (block_length + AGS1_BLOCK_OVERHEAD)
                        status = gcm_open(
                            context, sealed, aad, aad_length + number_length, sealed + AGS1_NONCE_LENGTH, length,
                            sealed + AGS1_NONCE_LENGTH + length, out + block * block_length)
                        if status == GCM_BAD_TAG and work.failed != NULL:
                            # Its other blocks may belong to other members: the whole item is wiped when all are done.
                            work.failed[index] = 1
                            status = GCM_OK
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


cdef class Window:
    """Consecutive items of a batch, what is held of their owners' memory, and the crew that works on them."""

    def __cinit__(self):
        self.items = Hold.__new__(Hold)
        self.keys = Hold.__new__(Hold)
        self.prefixes = Hold.__new__(Hold)

    def __dealloc__(self):
        self.let_go()
        PyMem_Free(self.units)
        PyMem_Free(self.nonces)

    cdef int start(self, int threads) except -1:
        """Start the work with all but one of so many threads; the caller is the last one, in :meth:`help`."""
        cdef Work *work = &self.work
        work.weight = _weight_of(work, work.last)
        work.members = threads = <int>min(threads, max(1, work.weight // SMALLEST_SHARE))
        work.next_share = work.found = work.blocks = work.done = 0
        ags1_failure_init(&work.failure)
        self.flying = True
        self.crew.count = 0
        ags1_start_crew(&self.crew, _work, work, threads - 1)
        return 0

    cdef void help(self) noexcept:
        """Work on the window here too, until no share of it is left."""
        if self.flying:
            with nogil:
                _work(&self.work)

    cdef int wait(self) except -1:
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
                raise AuthenticationError.for_block(work.failure.block_index, f"buffer {index}", index)
            if work.failure.status == CHANGED:
                raise ValueError(f"buffer {index} changed its size while it was being worked on")
            raise_status(
                work.failure.status, work.failure.backend_error,
                "encrypting blocks" if self.nonces != NULL else "decrypting blocks")
        if work.found != work.last - work.first or work.done != work.blocks:
            # Fresh memory looks like a result: a block that no thread took must never go unnoticed.
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
