"""Read-ahead: fetches (and decrypts) bytes before they are requested, while reading is sequential.

    position                                   read so far
    --------|=========|---------|---------|    ===  the piece that is being consumed
             current    pending   pending      ---  under way on request threads
                                               their number and length grow while reading is sequential

A read at the beginning of a remote source is assumed to start a read of all of it. A few pieces are requested at once,
and more when the second piece is read, or at once if the first read wants a whole piece.

Data that is read ahead belongs to one Reader: a seek drops it, closing ends it, a forked child begins without any. An
error in it is raised only by the read that reaches its position. Other errors than faults of the store are retried
first.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable
from functools import partial

from ags1.storage._requests import Request, start
from ags1.storage.budget import Budget
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
