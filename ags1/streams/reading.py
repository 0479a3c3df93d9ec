"""Reading of plaintext, the base of a Reader: by position from any source, in order from a pipe.

Plaintext     header, length, cipher; whole blocks straight into the caller's memory, edges through one kept block;
              thread-safe, no position
RawReader     a position in a Plaintext, and Ahead (ags1.core.ahead) or, of a remote source, ReadAhead (ags1.storage)
              while reading is sequential
PipeReader    the same interface for a source that has no length and cannot seek
"""

from __future__ import annotations

import errno
import io
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import closing

from ags1 import layout
from ags1.core import blocks as native_blocks
from ags1.core.ahead import Ahead, answers_closed_quickly
from ags1.core.gcm import Key
from ags1.errors import Ags1Error, AuthenticationError, FormatError, LimitError, TruncatedError
from ags1.layout import BLOCK_OVERHEAD, HEADER_LENGTH, NONCE_LENGTH
from ags1.storage import (
    SEQUENTIAL_PIECE,
    STREAM_BUDGET,
    Budget,
    DescriptorSource,
    PipeSource,
    ReadAhead,
    Source,
    in_order,
)
from ags1.streams.cipher import BlockCipher
from ags1.support.forks import renew_in_children
from ags1.support.typing import Any, Buffer, NoReturn

# Plaintext that a Writer gathers before it encrypts: some blocks for every core, and little of the 64 MiB that
# streaming may take.
WINDOW = 8 << 20
SMALL_WINDOW = 1 << 20
REMOTE_PIECE = SEQUENTIAL_PIECE
# A Reader's own buffer, where plaintext is in memory already: larger reads are copied from there.
SMALL_BUFFER = 32 << 10


class Plaintext:
    """The plaintext of one stream, by position. Thread-safe; after its first failure it refuses everything."""

    def __init__(
        self,
        source: Source,
        key: Key,
        aad_prefix: bytes,
        length: int | None,
        threads: int | None,
        memory_budget: int | None = None,
    ) -> None:
        self.source = source
        self.length_trusted = length is not None
        self.memory_budget = STREAM_BUDGET if memory_budget is None else memory_budget
        self.error: BaseException | None = None
        self.renew()
        renew_in_children(self)
        head = bytes(memoryview(source.read(0, min(source.size, HEADER_LENGTH))))
        self.block_length = layout.read_header(head, source.name)
        self.cipher = BlockCipher(key, aad_prefix, self.block_length, threads)
        self.encrypted_length = _check_length(source.size, length, source.name)
        try:
            self.size = layout.plaintext_length(source.size, self.block_length)
        except (FormatError, LimitError) as error:
            raise type(error)(f"{source.name}: {error}" if source.name else str(error)) from None

    def renew(self) -> None:
        """Reset in a forked child: a thread of the parent may have held the lock."""
        self._lock = threading.Lock()
        self._kept_index = -1
        self._kept = bytearray()

    def read_into(self, offset: int, out: memoryview) -> int:
        """Fill `out` from `offset`; return how many bytes there were before the end."""
        if self.error is not None:
            refuse(self.error, "Reader")
        size = min(len(out), self.size - offset)
        if size <= 0:
            self._verify_empty()
            return 0
        try:
            if self.source.is_remote:
                self._fill_in_pieces(offset, out[:size])
            else:
                self._fill(offset, out[:size], None, 0)
        except AuthenticationError as error:
            out[:size] = bytes(size)
            self.error = self.explained(error)
            raise self.error from None
        except BaseException as error:
            out[:size] = bytes(size)
            if not isinstance(error, (KeyboardInterrupt, ValueError)) or isinstance(error, FormatError):
                self.error = error
            raise
        return size

    def explained(self, error: AuthenticationError) -> AuthenticationError:
        """The error of a block, or a better one if a short last block failed and the block before it is authentic."""
        # That of a short last block alone: behind a whole one it is the number of blocks.
        last = self.size // self.block_length
        if self.length_trusted or not last or error.block_index != last:
            return error
        try:
            self.open_whole(last - 1, memoryview(bytearray(self.block_length)))
        except (Ags1Error, OSError):
            return error
        return AuthenticationError.for_block(last, self.source.name, may_be_cut=True)

    def pieces(self, offset: int, end: int) -> Iterator[tuple[int, int]]:
        """Ranges of plaintext between two offsets, each of whole blocks but at the two ends."""
        step = piece_length(self.block_length)
        while offset < end:
            stop = min(end, offset - offset % step + step)
            yield offset, stop
            offset = stop

    def pieces_at_once(self) -> int:
        """Requests that may be under way for one read."""
        return max(1, self.memory_budget // max(REMOTE_PIECE, self.block_length))

    def opened(self, first: int, end: int) -> Iterator[bytes]:
        """Yield the plaintext from the start of a block on; several pieces are read at once, each on one thread."""
        alone = self.cipher.alone()

        def piece(bounds: tuple[int, int]) -> bytes:
            begin, stop = bounds
            out: bytes = native_blocks.fresh_bytes(stop - begin)
            with native_blocks.writable_view(out) as view:
                alone.open_from(self.source, view, begin // self.block_length)
            return out

        at_once = pieces_within(self.block_length, self.memory_budget)
        with closing(in_order(piece, self.pieces(first, end), at_once=at_once)) as opened:
            yield from opened

    def fetch(self, offset: int, end: int) -> tuple[int, Buffer]:
        """The blocks that hold a range of plaintext, and the offset at which they are stored."""
        first = offset // self.block_length
        base = self.cipher.offset_of(first)
        stop = min(self.cipher.offset_of(-(-end // self.block_length)), self.encrypted_length)
        return base, self.source.read(base, stop - base)

    def _fill_in_pieces(self, offset: int, out: memoryview) -> None:
        """Fetch several pieces at once, each in one request, and open them as they come."""
        end = offset + len(out)
        first = offset // self.block_length
        if end <= (first + 1) * self.block_length and first == self._kept_index:
            self._fill(offset, out, None, 0)
            return
        pieces = list(self.pieces(offset, end))
        if len(pieces) == 1:
            base, data = self.fetch(offset, end)
            self._fill(offset, out, data, base)
            return
        # Closed at once: otherwise the remembered error would keep the generator and all its data alive.
        with closing(in_order(lambda piece: self.fetch(*piece), pieces, at_once=self.pieces_at_once())) as fetched:
            for (begin, stop), (base, data) in zip(pieces, fetched, strict=True):
                self._fill(begin, out[begin - offset : stop - offset], data, base)

    def _fill(self, offset: int, out: memoryview, ahead: Buffer | None, base: int) -> None:
        """Fill `out`, from blocks in memory that begin at the stored offset `base`, or from the source."""
        block_length = self.block_length
        done = 0
        while done < len(out):
            position = offset + done
            index, within = divmod(position, block_length)
            whole = self._whole_blocks(position, len(out) - done) if within == 0 else 0
            if whole:
                self._open(index, out[done : done + whole], ahead, base)
                done += whole
            else:
                count = min(block_length - within, len(out) - done)
                self._copy_from_block(index, within, out[done : done + count], ahead, base)
                done += count

    def _whole_blocks(self, position: int, wanted: int) -> int:
        """How many of the `wanted` bytes at a block's start are whole blocks."""
        if position + wanted >= self.size:
            return self.size - position
        return wanted - wanted % self.block_length

    def _open(self, first: int, out: memoryview, ahead: Buffer | None, base: int) -> None:
        if ahead is None:
            self.cipher.open_from(self.source, out, first)
            return
        begin = self.cipher.offset_of(first) - base
        data = memoryview(ahead)[begin : begin + self.cipher.stored(len(out))]
        self.cipher.open(data, out, first, self.source.name)

    def open_whole(self, first: int, out: memoryview) -> None:
        """Decrypt whole blocks; a failure is not remembered, because the other blocks may be intact."""
        self.cipher.open_from(self.source, out, first)

    def _copy_from_block(self, index: int, within: int, out: memoryview, ahead: Buffer | None, base: int) -> None:
        with self._lock:
            if self._kept_index == index:
                out[:] = memoryview(self._kept)[within : within + len(out)]
                return
            # Removed while it is filled, so that its memory is reused and no other thread sees an incomplete block.
            scratch, self._kept, self._kept_index = self._kept, bytearray(), -1
        size = min(self.block_length, self.size - index * self.block_length)
        if len(scratch) < size:
            scratch = bytearray(size)
        with memoryview(scratch) as view:
            self._open(index, view[:size], ahead, base)
            out[:] = view[within : within + len(out)]
        with self._lock:
            self._kept, self._kept_index = scratch, index

    def _verify_empty(self) -> None:
        """Check the tag of an empty stream once, so that a wrong key is detected."""
        if self.size == 0 and self._kept_index != 0:
            try:
                self.cipher.open(self.source.read(HEADER_LENGTH, BLOCK_OVERHEAD), bytearray(), 0, self.source.name)
            except BaseException as error:
                self.error = error
                raise
            self._kept_index = 0


def piece_length(block_length: int) -> int:
    """Bytes of plaintext for one request: whole blocks."""
    return max(1, REMOTE_PIECE // block_length) * block_length


def pieces_within(block_length: int, budget: int | None = None) -> int:
    """Number of pieces in flight; each may exist twice for a while, as read data and as data to write."""
    return max(1, (STREAM_BUDGET if budget is None else budget) // (2 * piece_length(block_length)))


class _RawPlaintext(io.RawIOBase):
    """For a BufferedReader on top; one thread at a time (the BufferedReader's lock)."""

    # The BufferedReader looks at it for each line: the property of IOBase takes longer than reading one.
    __slots__ = ("closed",)
    closed: bool

    def __init__(self) -> None:
        super().__init__()
        self.closed = False
        self._position = 0

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        if self.closed:
            raise ValueError("I/O operation on closed file.")
        return self._position

    def close(self) -> None:
        if not self.closed:
            super().close()
            self.closed = True
            self._release()

    def _release(self) -> None:
        raise NotImplementedError


@answers_closed_quickly
class RawReader(_RawPlaintext):
    """A position in a plaintext.

    The buffer of a BufferedReader on top has `window` bytes: the requested size, or less where pieces are read ahead.
    """

    def __init__(self, plaintext: Plaintext, window: int) -> None:
        super().__init__()
        self.plaintext = plaintext
        self._refill = 0
        self._ahead = _ahead_of(plaintext)
        # Of a local file.
        self._straight = self._ahead if isinstance(self._ahead, Ahead) else None
        self._budget: Budget | None = None
        self._owner = 0
        self.window = window if self._ahead is None else min(window, SMALL_BUFFER)
        # A remote source is read ahead from its first read on, if that is at its beginning.
        self._expected = 0 if self._ahead is not None and plaintext.source.is_remote else -1

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        position = self._position
        count = self._straight.read_into(position, buffer) if self._straight is not None else 0
        if not count:
            with memoryview(buffer) as view:
                count = self._read(position, view)
        self._position = self._expected = position + count
        return count

    def _read(self, position: int, view: memoryview) -> int:
        """Read where nothing is ahead of a local file; it may be from here on."""
        plaintext = self.plaintext
        block_length = plaintext.block_length
        size = len(view)
        straight_on = position == self._expected
        if plaintext.error is not None:
            # A positional read failed: from then on all reads fail, also those from memory.
            self._drop_ahead()
        if self._straight is not None:
            self._give_budget()
            if straight_on and position < plaintext.size:
                self._begin(self._straight, position)
                if count := self._straight.read_into(position, view):
                    return count
        elif isinstance(self._ahead, ReadAhead):
            if straight_on:
                self._ahead.begin_at(position, size)
            try:
                if count := self._ahead.read_into(position, view):
                    return count
            except OSError as error:
                plaintext.error = error
                raise
        if size <= self.window:
            # A refill of the buffer may return any size: one block after a seek, then more and
            # more whole blocks while the reading is sequential.
            self._refill = min(max(2 * self._refill, block_length), self.window) if straight_on else 1
            stop = -(-(position + min(self._refill, size)) // block_length) * block_length
            size = min(size, stop - position)
        return plaintext.read_into(position, view[:size])

    def _begin(self, ahead: Ahead, position: int) -> None:
        """Have blocks of a local file opened from here on, in as much memory as there may be."""
        source = self.plaintext.source
        assert isinstance(source, DescriptorSource)
        self._budget, self._owner = Budget(self.plaintext.memory_budget), os.getpid()
        slots = 0
        while slots < ahead.most_slots and self._budget.take(ahead.unit_length):
            slots += 1
        ahead.begin(position, slots, source.fileno(), source.status)

    def _give_budget(self) -> None:
        # In a forked child, a thread of the parent may hold its lock.
        if self._budget is not None and self._owner == os.getpid():
            self._budget.give(self._budget.taken)
        self._budget = None

    def readall(self) -> bytes:
        size = max(0, self.plaintext.size - self._position)
        out = native_blocks.fresh_bytes(size)
        with native_blocks.writable_view(out) as view:
            count = self.plaintext.read_into(self._position, view)
        self._position += count
        return out

    def _drop_ahead(self) -> None:
        if self._ahead is not None:
            self._ahead.drop()
            self._give_budget()
            self._ahead = self._straight = None

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence == os.SEEK_SET:
            position = offset
        elif whence == os.SEEK_CUR:
            position = self._position + offset
        elif whence == os.SEEK_END:
            position = self.plaintext.size + offset
        else:
            raise ValueError(f"whence must be 0, 1 or 2, got {whence}")
        if position < 0:
            raise OSError(errno.EINVAL, f"negative seek position {position}")
        if self.plaintext.error is not None:
            # A positional read failed: what is ahead must not be read either.
            self._drop_ahead()
        self._position = position
        return position

    def _release(self) -> None:
        self._drop_ahead()
        self.plaintext.source.close()


def _ahead_of(plaintext: Plaintext) -> Ahead | ReadAhead | None:
    """What reads ahead for a Reader; None for memory, file objects of the caller, and what is short."""
    source, cipher, block_length = plaintext.source, plaintext.cipher, plaintext.block_length
    if plaintext.size <= 2 * block_length:
        return None
    if isinstance(source, DescriptorSource):
        threads = native_blocks.usable_cpus() if cipher.threads is None else cipher.threads
        return Ahead(cipher.key, cipher.aad_prefix, block_length, plaintext.size, threads)
    if not source.is_remote:
        return None
    one = cipher.alone()

    def fetch(offset: int, length: int, memory: Callable[[int], bytearray]) -> Buffer:
        first = offset // block_length
        data = source.read(one.offset_of(first), one.stored(length))
        out = memory(length)
        with memoryview(out) as whole, whole[:length] as view:
            one.open(data, view, first, source.name)
        return out

    budget = Budget(plaintext.memory_budget)
    return ReadAhead(fetch, plaintext.size, block_length, REMOTE_PIECE, plaintext.pieces_at_once(), budget)


@answers_closed_quickly
class PipeReader(_RawPlaintext):
    """Plaintext of a pipe, one block after the other.

    A BufferedReader on top, whose buffer has `window` bytes, gets whole blocks: no Python runs for what is copied from
    there.
    """

    def __init__(
        self, source: PipeSource, key: Key, aad_prefix: bytes, length: int | None, threads: int | None
    ) -> None:
        super().__init__()
        self._source = source
        self._length = length
        self._next_block = 0
        # Opened where there was no room for all of it, and not handed over yet.
        self._plain = memoryview(b"")
        self._ended = False
        self.error: BaseException | None = None
        # Of blocks that are read, reused.
        self._memory = bytearray(HEADER_LENGTH)
        with memoryview(self._memory) as head:
            self.block_length = layout.read_header(head[: source.read_into(head)], source.name)
        self._cipher = BlockCipher(key, aad_prefix, self.block_length, threads)
        self._stored = HEADER_LENGTH
        blocks = max(1, SMALL_WINDOW // self.block_length)
        self._wanted = self._cipher.stored(blocks * self.block_length)
        self.window = min(SMALL_WINDOW, blocks * self.block_length)

    def readinto(self, buffer: Any) -> int:
        if self.error is not None:
            refuse(self.error, "Reader")
        with memoryview(buffer) as view:
            count = 0
            try:
                while not self._plain and not self._ended and not count:
                    count = self._next(view)
            except BaseException as error:
                self.error = error
                raise
            if not count:
                count = min(len(view), len(self._plain))
                view[:count] = self._plain[:count]
                self._plain = self._plain[count:]
        self._position += count
        return count

    def _next(self, out: memoryview) -> int:
        """Open the next blocks: into `out`, if there is room for all of them; return how many bytes are there."""
        # It may be in the memory that is filled.
        self._plain = memoryview(b"")
        filled = self._fill(self._wanted)
        self._stored += filled
        self._ended = filled < self._wanted
        if not filled and self._next_block:
            self._check_end()
            return 0
        if self._ended:
            self._check_end()
        elif self._length is not None and self._stored > self._length:
            _check_length(self._stored, self._length, self._source.name)
        stride = self.block_length + BLOCK_OVERHEAD
        count = -(-filled // stride)
        size = filled - count * BLOCK_OVERHEAD
        is_direct = len(out) >= size
        data = memoryview(self._memory)
        if is_direct:
            opened = out[:size]
        elif count == 1:
            # Where its ciphertext is: a block may have gigabytes.
            opened = data[NONCE_LENGTH : NONCE_LENGTH + size]
        else:
            opened = memoryview(bytearray(size))
        last = self._next_block + count - 1
        try:
            with data:
                self._cipher.open(data[:filled], opened, self._next_block, self._source.name)
        except AuthenticationError as error:
            # The first block that fails is named, so all before it are authentic.
            if self._length is None and 0 < last == error.block_index and filled % stride:
                raise AuthenticationError.for_block(last, self._source.name, may_be_cut=True) from None
            raise
        self._next_block = last + 1
        if is_direct:
            return size
        self._plain = opened
        return 0

    def _fill(self, wanted: int) -> int:
        """Read so many bytes of the pipe, fewer at its end. A header may claim blocks of gigabytes: memory grows."""
        filled = 0
        while filled < wanted:
            room = min(wanted, max(SMALL_WINDOW, 2 * filled))
            self._memory.extend(bytes(max(0, room - len(self._memory))))
            with memoryview(self._memory) as view, view[filled:room] as part:
                filled += self._source.read_into(part)
            if filled < room:
                break
        return filled

    def _check_end(self) -> None:
        _check_length(self._stored, self._length, self._source.name)
        try:
            layout.plaintext_length(self._stored, self.block_length)
        except (FormatError, LimitError) as error:
            raise type(error)(f"{self._source.name}: {error}" if self._source.name else str(error)) from None

    @property
    def encrypted_length(self) -> int | None:
        return self._stored if self._ended else self._length

    def _release(self) -> None:
        self._source.close()


def _check_length(actual: int, trusted: int | None, name: str | None) -> int:
    where = f"{name}: " if name else ""
    if trusted is not None and actual < trusted:
        raise TruncatedError(
            f"{where}has {actual} bytes, but its trusted length is {trusted}: {trusted - actual} bytes are missing at "
            "its end"
        )
    if trusted is not None and actual > trusted:
        raise FormatError(
            f"{where}has {actual} bytes, but its trusted length is {trusted}: {actual - trusted} bytes were added, or "
            "the length belongs to another file"
        )
    return actual


def window_of(plaintext: Plaintext, threads: int | None) -> int:
    """Size of the buffer: whole blocks, about one MiB for each thread, at most the size of the stream.

    A read that is larger than the buffer goes straight into the caller's memory; a smaller one is copied from it.
    So the buffer is only as large as needed to keep every thread busy.
    """
    wanted = min(WINDOW, SMALL_WINDOW * (native_blocks.usable_cpus() if threads is None else threads))
    block_length = plaintext.block_length
    blocks = max(1, wanted // block_length)
    return max(1, min(blocks * block_length, plaintext.size, 2 * WINDOW))


def refuse(error: BaseException, what: str) -> NoReturn:
    """Raise the first failure again, with its own type, for every later call."""
    text = f"this {what} failed before and refuses everything since: {error}"
    if isinstance(error, AuthenticationError):
        again: BaseException = AuthenticationError(text)
        again.block_index = error.block_index  # type: ignore[attr-defined]
    elif isinstance(error, (FormatError, LimitError)):
        again = type(error)(text)
    elif isinstance(error, OSError):
        again = OSError(error.errno, text) if error.errno is not None else OSError(text)
    else:
        again = ValueError(text)
    raise again from error
