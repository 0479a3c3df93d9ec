"""A line of progress, rewritten each second on a terminal or in a notebook.

    ags1 encrypt: 1,234 of 10,101 files, 1.2 GB of 2.3 GB, 812 MB/s, 2 s left

Whole tasks are counted.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ags1.spark.engine.sessions import Session
from ags1.support.periodic import Periodic
from ags1.support.words import counted, duration_text, size_text

Progress = bool | Callable[[int, int | None], object]
"""Whether to show progress on a terminal or in a notebook, or a function that gets bytes done and their total."""
_SECOND = 1.0
_PHASE_SECONDS = 30.0


class Meter:
    """What a run has done, and what is left. Safe to use from several threads.

    `done_tasks` returns the number of finished tasks, or None; the tasks of a wave have nearly equal work.
    """

    def __init__(self, verb: str, done_tasks: Callable[[], int | None]) -> None:
        self._verb = verb
        self._done_tasks = done_tasks
        self._lock = threading.Lock()
        self._started = time.monotonic()
        self._waves: list[tuple[int, int, int]] = []
        self._files = self._bytes = 0
        self._finished_files = self._finished_bytes = 0
        self._done_files = self._done_bytes = 0
        self._is_listed = False

    def expect(self, files: int, size: int) -> None:
        """Add files that are to be done."""
        with self._lock:
            self._files += files
            self._bytes += size

    def listed(self) -> None:
        """Say that all files are listed, so that the total is known."""
        self._is_listed = True

    def begun(self, tasks: int, files: int, size: int) -> None:
        """Note a wave of tasks that begins."""
        with self._lock:
            self._waves.append((tasks, files, size))

    def finished(self, files: int, size: int) -> None:
        """Note the files of a wave that is over."""
        with self._lock:
            self._finished_files += files
            self._finished_bytes += size

    def read(self) -> tuple[int, int, int | None]:
        """Files and bytes done, and the bytes of all files, which is None until all are listed."""
        files, size = self._of_tasks()
        with self._lock:
            total = self._bytes if self._is_listed else None
            # The numbers never decrease, even if a task is repeated.
            self._done_files = min(self._files, max(self._done_files, self._finished_files, files))
            self._done_bytes = min(self._bytes, max(self._done_bytes, self._finished_bytes, size))
            return self._done_files, self._done_bytes, total

    def _of_tasks(self) -> tuple[int, int]:
        """Estimate what the finished tasks have done. The waves run nearly in order."""
        left = self._done_tasks() or 0
        files = size = 0
        for tasks, of_wave, size_of_wave in list(self._waves):
            over = min(left, tasks)
            left -= over
            files += of_wave * over // tasks
            size += size_of_wave * over // tasks
        return files, size

    def line(self) -> str:
        """The line of progress as it is now."""
        files, size, total = self.read()
        seconds = max(1e-3, time.monotonic() - self._started)
        rate = size / seconds
        text = f"ags1 {self._verb}: "
        if total is None:
            text += f"{files:,} of {self._files:,} files and more, {size_text(size)}"
        else:
            text += f"{files:,} of {self._files:,} files, {size_text(size)} of {size_text(total)}"
        text += f", {size_text(rate)}/s"
        if total is not None and size < total and rate > 0:
            text += f", {duration_text((total - size) / rate)} left"
        return text


@contextmanager
def open_meter(verb: str, progress: Progress, session: Session, tag: str) -> Iterator[Meter]:
    """Show progress of the jobs that have a tag each second until it is closed."""
    meter = Meter(verb, lambda: session.done_tasks(tag))
    if progress is False or (progress is True and not _is_watched()):
        yield meter
        return
    show: Any = progress if callable(progress) else None
    shown = Periodic(lambda: _show(meter, show, end=False), _SECOND)
    try:
        yield meter
    finally:
        shown.stop()
        _show(meter, show, end=True)


def phase_lines(verb: str, progress: object) -> Callable[[str, int, int | None], None]:
    """What reports work of the driver itself: a line when it begins, and one now and then. A callable gets none."""
    last, due = "", 0.0

    def show(doing: str, done: int, total: int | None) -> None:
        nonlocal last, due
        now = time.monotonic()
        if progress is True and _is_watched() and (doing != last or now >= due):
            count = f", {counted(done, 'object')}" if done else ""
            sys.stderr.write(f"ags1 {verb}: {doing}{count}\n")
            sys.stderr.flush()
            last, due = doing, now + _PHASE_SECONDS

    return show


def _show(meter: Meter, show: Callable[[int, int | None], object] | None, *, end: bool) -> None:
    if show is not None:
        _, size, total = meter.read()
        show(size, total)
        return
    stream = sys.stderr
    stream.write(f"\r\x1b[K{meter.line()}" if stream.isatty() else f"\r{meter.line():<100}")
    stream.write("\n" if end else "")
    stream.flush()


def _is_watched() -> bool:
    """Whether standard error is a terminal or a notebook, where a line can be rewritten, and not a log."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules
