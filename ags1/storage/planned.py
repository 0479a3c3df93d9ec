"""Ranges that are known before they are read: fetched together, in parallel requests and bounded memory.

will_read:  [a----]   [b--]        [c-------------]      as the caller will ask for them, more or less
pieces:     [1------------]        [2------][3----]      small gaps closed, long ranges cut
             read    fetching       waiting for memory
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Iterable

from ags1.storage._requests import Request, start
from ags1.storage.budget import Budget
from ags1.storage.read_ahead import SEQUENTIAL_PIECE
from ags1.storage.sources import Source
from ags1.support.typing import Buffer

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
