"""Bytes fetched (and decrypted) before they are requested, in bounded memory: read-ahead, and planned ranges.

Read-ahead, while reading is sequential:

    position                                   read so far
    --------|=========|---------|---------|    ===  the piece that is being consumed
             current    pending   pending      ---  under way on request threads
                                               their number and length grow while reading is sequential

A read at the beginning of a remote source is assumed to start a read of all of it. A few pieces are requested at once,
and more when the second piece is read, or at once if the first read wants a whole piece.

Data that is read ahead belongs to one Reader: a seek drops it, closing ends it, a forked child begins without any. An
error in it is raised only by the read that reaches its position. Other errors than faults of the store are retried
first.

Ranges that are known before they are read are fetched together, in parallel requests:

    will_read:  [a----]   [b--]        [c-------------]      as the caller will ask for them, more or less
    pieces:     [1------------]        [2------][3----]      small gaps closed, long ranges cut
                 read    fetching       waiting for memory
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial

from ags1.storage._requests import Request, start
from ags1.storage.sources import Source
from ags1.support.typing import Buffer

# Bytes of one request. A budget of 64 MiB holds sixteen: with 20 ms and 90 MB/s for each connection they reach 1 GB/s;
# eight requests of twice the length reach 0.6 GB/s.
SEQUENTIAL_PIECE = 4 << 20
_SEQUENTIAL_STEP = 1 << 20
# Pieces that the first read requests, at the beginning of a remote source.
_FIRST_PIECES = 4
# So many pieces in a row have the same length, until they have the greatest. If all grew at once, all would arrive at
# once and be decrypted at once while no request is running; and the next ones again.
_ALIKE = 4
# Pieces of memory that are kept for reuse.
_SPARE = 4


class ReadAhead:
    """Reads ahead for one sequential reader. For one thread at a time.

    Parameters
    ----------
    fetch : callable
        ``fetch(offset, length, memory)`` returns the bytes of a piece. Called on other threads. ``memory(length)``
        returns a bytearray of at least that length for them, which is reused after they are read. Call it late, so that
        few are in use and they stay in the processor's cache.
    size : int
        Bytes in all.
    block_length : int
        Pieces begin and end at multiples of this. The first pieces have this length, or the least that is worth a
        request.
    longest : int
        Most bytes in a piece.
    most : int
        Most pieces requested at the same time.
    budget : Budget
        Limits the memory of data that is read ahead.
    """

    def __init__(
        self,
        fetch: Callable[[int, int, Callable[[int], bytearray]], Buffer],
        size: int,
        block_length: int,
        longest: int,
        most: int,
        budget: Budget,
    ) -> None:
        self._fetch = fetch
        self._size = size
        self._block_length = block_length
        self._longest = max(1, longest // block_length) * block_length
        self._most = most
        self._budget = budget
        self._pending: deque[tuple[int, int, Request[Buffer]]] = deque()
        self._current: memoryview | None = None
        self._memory: Buffer | None = None
        self._spare: list[bytearray] = []
        self._begin = 0
        self._next = 0
        self._process = os.getpid()
        self._shortest = min(max(1, _SEQUENTIAL_STEP // block_length) * block_length, self._longest)
        self._narrow()

    def _narrow(self) -> None:
        """Begin with few pieces again, until reading is sequential again."""
        self._length, self._depth, self._is_guess, self._is_growing = self._shortest, 1, False, False
        self._started = 0

    def read_into(self, position: int, view: memoryview) -> int:
        """Copy the bytes at `position` that have arrived; wait for the first of them.

        Afterwards the next pieces are requested, for sequential reading.

        Returns
        -------
        int
            Bytes copied. 0 if nothing is read ahead at `position`; data for other positions is then dropped.

        Raises
        ------
        OSError
            The store failed, also after retries.
        """
        if self._process != os.getpid():
            self._forget()
        done = 0
        while done < len(view) and position + done < self._size:
            if not self._advance_to(position + done, wait=not done):
                break
            assert self._current is not None
            within = position + done - self._begin
            count = min(len(view) - done, len(self._current) - within)
            view[done : done + count] = self._current[within : within + count]
            done += count
        if done:
            self._top_up()
        return done

    def begin_at(self, position: int, size: int) -> None:
        """Begin to fetch from `position` on, where `size` bytes are needed now: reading has been sequential so far."""
        if self._process != os.getpid():
            self._forget()
        if not self._pending and self._current is None:
            self._next = position - position % self._block_length
            if position == 0 and size >= self._shortest:
                # If the other pieces were requested after the first ones arrive, it would take two more round trips.
                self._depth, self._is_growing = self._most, True
            elif position == 0:
                self._depth, self._is_guess = min(_FIRST_PIECES, self._most), True
            self._top_up()

    def drop(self) -> None:
        """Drop all data that is read ahead. Requests may stall: they are not waited for."""
        if sys.is_finalizing():
            # A forked child has no threads: no request is running, and a lock that a thread held is never released.
            return
        if self._process != os.getpid():
            self._forget()
        self._finish_current()
        self._spare.clear()
        dropped = list(self._pending)
        self._pending.clear()
        for _, length, request in dropped:
            self._give_up(length, request)
        self._narrow()

    def _give_up(self, length: int, request: Request[Buffer]) -> None:
        """Drop a piece. Its memory, and its share of the budget, are held until its request has ended."""
        request.cancel(lambda: self._budget.give(length))

    def _forget(self) -> None:
        """Start again in a forked child, where the requests of the parent never end.

        The old budget is not used: a thread of the parent may have held its lock when this process was forked.
        """
        self._process = os.getpid()
        self._pending.clear()
        self._current = self._memory = None
        self._budget = Budget(self._budget.limit)
        self._narrow()

    def _advance_to(self, position: int, *, wait: bool) -> bool:
        """Make the piece at `position` the current one; without `wait`, only if it has arrived."""
        while True:
            if self._current is not None:
                if self._begin <= position < self._begin + len(self._current):
                    return True
                self._finish_current()
            if not self._pending:
                return False
            offset, length, request = self._pending[0]
            if not offset <= position < offset + length:
                if offset + length == position or (position > offset and position < self._next):
                    # A short step forwards: the bytes between are not needed.
                    self._pending.popleft()
                    self._give_up(length, request)
                    continue
                self.drop()
                return False
            if not wait and not request.ready():
                return False
            self._top_up()
            try:
                memory = request.result()
            except Exception as error:
                if not wait:
                    return False
                self.drop()
                if isinstance(error, OSError):
                    # The client has already retried it.
                    raise
                # The caller then reads this position itself, and raises the error.
                return False
            self._pending.popleft()
            self._begin, self._memory = offset, memory
            self._current = memoryview(memory).cast("B")[:length]
            # A piece was read, so more and longer ones will be needed. But the very first may be all that the caller
            # reads.
            if not self._is_guess:
                self._depth = min(4 * self._depth, self._most)
                self._is_growing = True
            self._is_guess = False

    def _finish_current(self) -> None:
        if self._current is not None:
            length = len(self._current)
            self._current.release()
            self._current = None
            self._budget.give(length)
            # Keep its memory for a later piece, unless pieces are longer now.
            if isinstance(self._memory, bytearray) and len(self._memory) >= self._length and len(self._spare) < _SPARE:
                self._spare.append(self._memory)
            self._memory = None

    def _take_memory(self, length: int) -> bytearray:
        try:
            memory = self._spare.pop()
        except IndexError:
            return bytearray(length)
        return memory if len(memory) >= length else bytearray(length)

    def _top_up(self) -> None:
        while len(self._pending) < self._depth and self._next < self._size:
            length = min(self._length, self._size - self._next)
            if not self._budget.take(length):
                return
            offset = self._next
            try:
                request = start(partial(self._fetch, offset, length, self._take_memory))
            except BaseException:
                self._budget.give(length)
                raise
            self._pending.append((offset, length, request))
            self._next += length
            self._started += 1
            if self._is_growing and self._started % _ALIKE == 0:
                self._length += max(self._shortest, self._longest // _ALIKE // self._block_length * self._block_length)
                self._length = min(self._length, self._longest)


# The cost of a request, in bytes that could be read in the same time, at 20 ms and 90 MB/s.
_GAP = 1 << 20
# A piece that is not read is dropped after this many later pieces were read: about as many as the budget holds.
_PASSED = 16


class _Piece:
    __slots__ = ("begin", "end", "number", "passed", "request", "touched", "unread")

    def __init__(self, begin: int, end: int) -> None:
        self.begin = begin
        self.end = end
        self.unread = end - begin
        # Its place in the plan, whether any of it was read, and how many of the later pieces were read.
        self.number = 0
        self.touched = False
        self.passed = 0
        self.request: Request[Buffer] | None = None


class PlannedSource(Source):
    """A remote source that fetches announced ranges ahead. It owns the source below it. Thread-safe.

    At most `memory_budget` bytes are requested or wait to be read.
    """

    is_remote = True

    def __init__(self, source: Source, memory_budget: int | None = None) -> None:
        self.name = source.name
        self.size = source.size
        self._source = source
        self._begin(memory_budget)

    def _begin(self, memory_budget: int | None) -> None:
        self._budget = Budget(memory_budget)
        self._lock = threading.Lock()
        self._waiting: deque[_Piece] = deque()
        self._started: list[_Piece] = []
        self._planned = 0
        self._process = os.getpid()

    def _check_process(self) -> None:
        """Start again in a forked child: a thread of the parent may hold the lock, and its requests never end here."""
        if self._process != os.getpid():
            self._begin(self._budget.limit)

    def will_read(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Begin to fetch ranges, (begin, end) each, in about this order; overlapping bytes are fetched once."""
        self._check_process()
        pieces: list[_Piece] = []
        for begin, end in ranges:
            if begin >= end:
                continue
            last = pieces[-1] if pieces else None
            if last is not None and last.begin <= begin <= last.end + _GAP and end - last.begin <= SEQUENTIAL_PIECE:
                last.end = max(last.end, end)
                last.unread = last.end - last.begin
                continue
            # Equal pieces: a short one at the end would cost a whole request.
            count = max(1, (end - begin + SEQUENTIAL_PIECE // 2) // SEQUENTIAL_PIECE)
            length = -(-(end - begin) // count)
            pieces.extend(_Piece(offset, min(end, offset + length)) for offset in range(begin, end, length))
        with self._lock:
            for piece in pieces:
                piece.number = self._planned
                self._planned += 1
            self._waiting.extend(pieces)
            self._top_up()

    def _top_up(self) -> None:
        while self._waiting and self._budget.take(self._waiting[0].end - self._waiting[0].begin):
            self._start(self._waiting.popleft())

    def _start(self, piece: _Piece) -> None:
        source, begin, size = self._source, piece.begin, piece.end - piece.begin
        try:
            piece.request = start(lambda: source.read(begin, size))
        except BaseException:
            self._budget.give(size)
            raise
        self._started.append(piece)

    def read(self, offset: int, size: int) -> Buffer:
        """The range: from fetched pieces if it was planned, else by a request of its own."""
        parts = self._parts(offset, size)
        if parts is None:
            return self._source.read(offset, size)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def read_into(self, offset: int, out: memoryview) -> None:
        """The same, each byte copied once."""
        parts = self._parts(offset, len(out))
        if parts is None:
            self._source.read_into(offset, out)
            return
        at = 0
        for part in parts:
            out[at : at + len(part)] = part
            at += len(part)

    def _parts(self, offset: int, size: int) -> list[memoryview] | None:
        """The range in pieces; None if it was not planned, or a piece did not come."""
        self._check_process()
        end = offset + size
        with self._lock:
            found = self._covering(offset, end)
        if not found:
            return None
        try:
            parts = []
            at = offset
            for piece in found:
                assert piece.request is not None
                data = memoryview(piece.request.result()).cast("B")
                # Pieces of different plans may overlap: each adds the bytes that those before it did not have.
                parts.append(data[at - piece.begin : min(end, piece.end) - piece.begin])
                at = piece.end
        except Exception:
            # Request it again: a temporary fault is gone, and a permanent one is raised to the caller.
            with self._lock:
                for piece in found:
                    self._drop(piece)
            return None
        with self._lock:
            for piece, part in zip(found, parts, strict=True):
                self._pass_by(piece)
                piece.unread -= len(part)
                if piece.unread <= 0:
                    self._drop(piece)
            self._top_up()
        return parts

    def _covering(self, offset: int, end: int) -> list[_Piece]:
        """Pieces that together cover a range; those that have not begun are started."""
        found: list[_Piece] = []
        at = offset
        while at < end:
            piece = next((each for each in self._started if each.begin <= at < each.end), None)
            if piece is None:
                piece = next((each for each in self._waiting if each.begin <= at < each.end), None)
                if piece is None:
                    return []
                self._waiting.remove(piece)
                self._budget.force(piece.end - piece.begin)
                self._start(piece)
            found.append(piece)
            at = piece.end
        return found

    def _drop(self, piece: _Piece) -> None:
        """Drop a piece. Its memory, and its share of the budget, are held until its request has ended."""
        if piece in self._started:
            self._started.remove(piece)
            assert piece.request is not None
            budget, size = self._budget, piece.end - piece.begin
            piece.request.cancel(lambda: budget.give(size))

    def _pass_by(self, piece: _Piece) -> None:
        """Drop pieces that were planned long before this one, which is being read: they will not be read.

        A single read further ahead, of a footer or an index, does not drop them.
        """
        if piece.touched:
            return
        piece.touched = True
        for other in [each for each in self._started if each.number < piece.number]:
            other.passed += 1
            if other.passed >= _PASSED:
                self._drop(other)

    def close(self) -> None:
        """Cancel the pending requests, and close the source."""
        if sys.is_finalizing():
            # A forked child does not have the threads, and one of them may have held a lock.
            return
        self._check_process()
        with self._lock:
            self._waiting.clear()
            for piece in list(self._started):
                self._drop(piece)
        self._source.close()


STREAM_BUDGET = 64 << 20
PROCESS_BUDGET = 256 << 20


class _Process:
    """The sum over all budgets of this process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.taken = 0


_process = _Process()


def _forget() -> None:
    global _process
    _process = _Process()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


class Budget:
    """The share of one stream, which may hold `limit` bytes of data read ahead. Thread-safe.

    The first piece is always granted: without any memory a stream cannot continue.
    """

    __slots__ = ("_process", "limit", "taken")

    def __init__(self, limit: int | None = None) -> None:
        self.limit = STREAM_BUDGET if limit is None else limit
        self._process = _process
        self.taken = 0

    def take(self, size: int) -> bool:
        """Take `size` bytes and return True, if that stays within the limits of the stream and of the process."""
        process = self._process
        with process.lock:
            allowed = not self.taken or (
                self.taken + size <= self.limit and process.taken + size <= max(PROCESS_BUDGET, self.limit)
            )
            if allowed:
                self.taken += size
                process.taken += size
        return allowed

    def force(self, size: int) -> None:
        """Take `size` bytes that are needed now, even beyond the limits."""
        with self._process.lock:
            self.taken += size
            self._process.taken += size

    def give(self, size: int) -> None:
        """Give `size` bytes back."""
        with self._process.lock:
            self.taken -= size
            self._process.taken -= size
