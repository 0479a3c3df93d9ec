"""Limits for data that is read ahead: one for each stream, and one for all streams of the process."""

from __future__ import annotations

import os
import threading

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
