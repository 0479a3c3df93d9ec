"""Many buffers, one native call: each becomes, or was, an AGS1 stream or a GCM message of its own, in one arena.

    items     [ data 0 ]   [ data 1 ]        [ data 2 ]            anywhere in memory: see ags1.core.items
    arena     | stream 0 | stream 1        | stream 2 |            one piece of memory: see ags1.core.arena
    offsets   0          o1                o2         o3           int64

    "ags1"    AGS1 | block length | nonce ciphertext tag | ...     a stream; AAD: the prefix and the block's number
    "gcm"     nonce (12) | ciphertext | tag (16)                   one message; AAD: the prefix as it is
    a lead    the same bytes in front of every result              for rooms above; not authenticated here

No object is made for an item until it is used::

    measure every item: the offsets
    for each window of consecutive items (ags1.core.window):
        find them, or hold their memory; draw their nonces, while a crew works on the window before it
        work on the window before it, until no share of that is left; start a crew on this one
"""

from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uintptr_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

from ags1.core.arena cimport Batch, Room, new_batch
from ags1.core.blocks cimport MAX_UNITS, Run, choose_threads, new_bytes, seal_runs
from ags1.core.buffer cimport BufferView, overlap, readable, writable
from ags1.core.gcm cimport GCM_OK, Key, as_key, count_messages, draw_nonces, raise_status
from ags1.core.items cimport (
    ITEM_HERE, ITEM_NULL, ITEM_OUTSIDE, ITEMS_OFFSETS_32, ITEMS_OFFSETS_64, Hold, Items, Span, expect, items_of,
    load_32, load_64, locate, one_item,
)
from ags1.core.window cimport CHANGED, STACK_AAD, Form, Window, Work, measure_item, put_aad
from ags1.core.layout cimport (
    AGS1_BLOCK_OVERHEAD, AGS1_HEADER_LENGTH, AGS1_MAX_BLOCK_LENGTH, AGS1_NONCE_LENGTH, ags1_block_count,
    ags1_encrypted_length, ags1_read_header,
)

from ags1.core import layout
from ags1.core.items import NumberedPrefixes
from ags1.errors import FormatError, LimitError, TruncatedError

# Objects whose memory is held at once, while it is worked on and while it is measured.
cdef int64_t OBJECTS = 16384
cdef int64_t FEW = 256
# Items that are brought into the cache ahead.
cdef int64_t AHEAD = 16
cdef int64_t MAX_ARENA = <int64_t>1 << 61


cdef int64_t _lay_out_packed(
        const Span *span, int64_t index, int64_t end, int64_t block_length, int64_t overhead, int64_t *starts,
        int64_t *longest) noexcept nogil:
    """Lay out results of one block, whose plaintexts lie one behind the other; return the first item that is none.

    What :meth:`_Making.measure` does, for what most batches are: a million items in a millisecond.
    """
    cdef bint wide = span.kind == ITEMS_OFFSETS_64
    cdef const uint8_t *places = span.places + (8 if wide else 4) * (index - span.first)
    cdef int64_t before = load_64(places) if wide else load_32(places), behind, nbytes
    cdef int64_t total = starts[index], most = longest[0]
    if before < 0:
        return index
    while index < end:
        if wide:
            places += 8
            behind = load_64(places)
        else:
            places += 4
            behind = load_32(places)
        nbytes = behind - before
        if behind < before or nbytes > block_length or behind > span.nbytes:
            break
        most = max(most, nbytes)
        total += nbytes + overhead
        before = behind
        index += 1
        starts[index] = total
    longest[0] = most
    return index


cdef class _Making:
    # The arguments of a batch, and where each result lies in the arena.
    cdef Items items
    cdef Items keys
    cdef Items prefixes
    cdef Key key                 # the one that counts what is sealed with it; None if each item has its own
    cdef bint encrypt
    cdef Form form
    cdef bytes lead              # sealing
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
    cdef bytearray failed        # a byte of each item whose tag may fail, or None: the first that fails ends all
    cdef tuple failures          # their positions
    cdef object owner            # of the arena
    cdef uint8_t *arena

    def __cinit__(
            self, buffers, key, aad_prefixes, lengths, bint encrypt, int64_t block_length, int64_t alignment,
            str form="ags1", lead=b""):
        self.take_form(form, lead)
        self.items = items_of(buffers, "buffer")
        self.count = self.items.count
        self.encrypt = encrypt
        self.block_length = block_length if self.form.header else AGS1_MAX_BLOCK_LENGTH
        self.mask = alignment - 1
        self.take_keys(key)
        self.take_prefixes(aad_prefixes)
        self.take_lengths(lengths)

    cdef int take_form(self, str form, bytes lead) except -1:
        if form not in ("ags1", "gcm"):
            raise ValueError(f"form must be 'ags1' or 'gcm', not {form!r}")
        self.lead = lead
        self.form.lead = len(lead)
        self.form.header = AGS1_HEADER_LENGTH if form == "ags1" else 0
        return 0

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
        cdef int64_t block_length = 0
        if self.form.header == 0 and nbytes - (0 if self.encrypt else self.form.lead) > AGS1_MAX_BLOCK_LENGTH:
            raise LimitError(
                f"buffer {index}: {nbytes} bytes are too many for one GCM message, of {AGS1_MAX_BLOCK_LENGTH} bytes at "
                "most here: use the form 'ags1'"
            )
        if self.encrypt:
            layout.encrypted_length(nbytes, self.block_length)
            self.refuse_change(index)
        if self.lengths != NULL and self.lengths[index] >= 0 and self.lengths[index] != nbytes:
            self.refuse_length(index, nbytes)
        if nbytes < self.form.lead or self.form.header == 0:
            raise TruncatedError(
                f"buffer {index}: has {nbytes} bytes, and what stands around a value takes "
                f"{self.form.lead + self.form.header + AGS1_BLOCK_OVERHEAD}: it is truncated, or of another form"
            )
        data += self.form.lead
        nbytes -= self.form.lead
        if nbytes < AGS1_HEADER_LENGTH or ags1_read_header(data, &block_length):
            layout.read_header(data[:min(nbytes, 16)], f"buffer {index}")
        try:
            layout.plaintext_length(nbytes, block_length)
        except (FormatError, LimitError) as error:
            raise type(error)(f"buffer {index}: {error}") from None
        self.refuse_change(index)

    cdef int refuse_change(self, int64_t index) except -1:
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
        cdef int64_t first = index, overhead = self.form.lead + self.form.header + AGS1_BLOCK_OVERHEAD
        cdef int place
        cdef uint8_t *validity = NULL if self.validity is None else <uint8_t *>PyByteArray_AS_STRING(self.validity)
        if (
            self.encrypt and self.mask == 0 and target is None and self.lengths == NULL and span.validity == NULL
            and span.kind in (ITEMS_OFFSETS_32, ITEMS_OFFSETS_64)
            and span.nbytes + (end - index) * overhead <= MAX_ARENA - max(total, source_nbytes)
        ):
            index = _lay_out_packed(span, index, end, block_length, overhead, self.starts, &longest)
            source_nbytes += self.starts[index] - total - (index - first) * overhead
            total = self.starts[index]
        while index < end:
            expect(span, index + AHEAD)
            place = locate(span, index, &data, &nbytes)
            if place == ITEM_NULL:
                validity[index >> 3] &= ~(1 << (index & 7))
                self.null_count += 1
            elif place == ITEM_OUTSIDE:
                self.items.refuse(index)
            else:
                if measure_item(
                        &self.form, self.encrypt, data, nbytes, &block_length, &plain, &size, &blocks):
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
        cdef Room room = None
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
            measure_item(&self.form, self.encrypt, data, nbytes, &block_length, &plain, &size, &blocks)
            hold.let_go()
            size = min(size, self.starts[index + 1] - self.starts[index])
            found.append(view[self.starts[index] : self.starts[index] + size])
        return found

    cdef int fill(self, Window window, int64_t first) except -1:
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
        work.form = self.form
        work.lead = <const uint8_t *>PyBytes_AS_STRING(self.lead)
        work.first = first
        work.last = last
        work.starts = self.starts
        work.mask = self.mask
        work.arena = self.arena
        work.lengths = self.lengths
        work.block_length = self.block_length
        work.nonces = NULL
        work.failed = NULL if self.failed is None else <uint8_t *>PyByteArray_AS_STRING(self.failed)
        window.alone = False
        if self.encrypt:
            self.draw(window)
        return 0

    cdef int draw(self, Window window) except -1:
        """Draw the nonces of a window, and end it where there are enough of them."""
        cdef Work *work = &window.work
        cdef int64_t index, blocks, total = work.last - work.first
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
        draw_nonces(window.nonces, <size_t>total * AGS1_NONCE_LENGTH)
        work.nonces = window.nonces
        return 0

    cdef int64_t count_units(self, Window window) except -1:
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
            and length == self.starts[index + 1] - self.starts[index] - self.form.lead
            and locate(&work.keys, index, &key, &key_length) == ITEM_HERE
            and key_length in (16, 24, 32)
        ):
            status = put_aad(work, index, &aad, &aad_room, &aad_length)
        if status == CHANGED:
            raise ValueError(f"buffer {index} changed its size while it was being worked on")
        try:
            if status != GCM_OK:
                raise_status(status, 0, "encrypting blocks")
            memset(&run, 0, sizeof(run))
            run.header = True
            run.data = data
            memcpy(self.arena + self.starts[index], work.lead, <size_t>self.form.lead)
            run.out = self.arena + self.starts[index] + self.form.lead + AGS1_HEADER_LENGTH
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
        cdef Window older = None, newer = Window.__new__(Window)
        cdef int64_t first = 0
        try:
            while first < self.count:
                # While others work on the older one.
                self.fill(newer, first)
                if older is not None and crew > 1:
                    older.help()
                if newer.alone:
                    self.seal_alone(&newer.work, crew)
                else:
                    newer.start(crew)
                if crew == 1:
                    # Before its nonces leave the cache.
                    newer.help()
                if older is None:
                    older = Window.__new__(Window)
                older.wait()
                older, newer = newer, older
                first = older.work.last
            if older is not None:
                if crew > 1:
                    older.help()
                older.wait()
        except BaseException:
            # No thread writes into the arena any more, and nothing unverified stays there: it may be the caller's.
            for window in (older, newer):
                if window is not None:
                    window.let_go()
            if not self.encrypt:
                memset(self.arena, 0, <size_t>self.total)
            raise
        return 0

    cdef int run_without_failed(self, object threads, bint key_is_right) except -1:
        """Do all of the work; items whose tags fail are wiped, and null."""
        cdef int64_t index
        self.failed = bytearray(self.count)
        self.run(threads)
        self.failures = tuple([index for index in range(self.count) if self.failed[index]])
        if self.failures and not key_is_right and len(self.failures) == self.count - self.null_count:
            # Nothing says that the key is the right one: raise as without on_error.
            self.failed = self.failures = None
            return self.run(threads)
        if self.failures and self.validity is None:
            self.validity = bytearray(b"\xff" * ((self.count + 7) // 8))
        for index in self.failures:
            self.validity[index >> 3] &= ~(1 << (index & 7))
            memset(self.arena + self.starts[index], 0, <size_t>(self.starts[index + 1] - self.starts[index]))
        self.null_count += len(self.failures)
        return 0

    cdef Batch finished(self):
        """The result as a batch."""
        return new_batch(
            self.owner, self.arena, self.total, self.offsets, self.starts, self.count,
            self.validity if self.null_count else None, self.failures)


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


def encrypt_batch(buffers, key, aad_prefixes, block_length, threads, out=None, form="ags1", lead=b""):
    """Encrypt each buffer into a value of its own. See :func:`ags1.encrypt_many`; `lead` stands in front of each."""
    layout.encrypted_length(0, block_length)
    if form == "gcm" and block_length != layout.DEFAULT_BLOCK_LENGTH:
        raise ValueError("block_length is for the form 'ags1': a value of the form 'gcm' has no blocks")
    cdef _Making making = _Making(buffers, key, aad_prefixes, None, True, block_length, 1, form, lead)
    making.place(out)
    making.run(threads)
    return making.finished()


def decrypt_batch(
        buffers, key, aad_prefixes, lengths, threads, out=None, on_error="raise", form="ags1", lead_length=0,
        key_is_right=False):
    """Decrypt each buffer. See :func:`ags1.decrypt_many`; the caller has looked at a lead of so many bytes.

    With ``on_error="null"`` and `key_is_right`, it does not raise if the tags of all items fail.
    """
    if on_error not in ("raise", "null"):
        raise ValueError(f"on_error must be 'raise' or 'null', not {on_error!r}")
    cdef _Making making = _Making(buffers, key, aad_prefixes, lengths, False, 0, 1, form, bytes(lead_length))
    making.place(out)
    if on_error == "null":
        making.run_without_failed(threads, key_is_right)
    else:
        making.run(threads)
    return making.finished()


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
