"""What a command says while it works and when it is done: a bar on a terminal, lines elsewhere, JSON for machines."""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Callable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["Reporter", "format_bytes", "format_rate"]

# A bar for work that is over before one can read it would only cost its import.
_BAR_AFTER_SECONDS = 0.4
_LINE_EVERY_SECONDS = 10.0


def format_bytes(count: float) -> str:
    """Bytes for a person, in powers of 1000: 999 B, 1.0 kB, 1.1 GB."""
    if count < 1000:
        return f"{count:.0f} B"
    for unit in ("kB", "MB", "GB", "TB"):
        count /= 1000
        if count < 999.95 or unit == "TB":
            return f"{count:.1f} {unit}"
    raise AssertionError


def format_rate(count: int, seconds: float) -> str:
    """Bytes a second for a person."""
    return f"{format_bytes(count / max(seconds, 1e-9))}/s"


class Reporter:
    """Speaks for one run of a command over one or many files. Safe to call from several threads.

    Parameters
    ----------
    options : argparse.Namespace
        With `json`, `quiet` and `progress`.
    doing : str
        What a bar says: "encrypting".
    total : int or None
        Bytes of plaintext or ciphertext over all files, if known.
    file_count : int
        How many files there are.
    """

    def __init__(self, options: argparse.Namespace, doing: str, total: int | None, file_count: int) -> None:
        self._json = options.json
        self._quiet = options.quiet
        self._doing = doing
        self._total = total
        self._file_count = file_count
        self._finished = 0
        self._started = time.monotonic()
        self._next_line = self._started + _LINE_EVERY_SECONDS
        self._done: dict[str, int] = {}
        self._bar: Any = None
        self._bar_task: Any = None
        self._lock = threading.Lock()
        self._stopped = False
        wanted = options.progress == "always" or (
            options.progress == "auto" and not options.quiet and not options.json and sys.stderr.isatty()
        )
        self._show_bar = wanted
        self._show_lines = not wanted and options.progress == "auto" and not options.quiet and not options.json

    def progress_of(self, name: str) -> Callable[[int, int | None], None]:
        """Make the progress callback for one file."""

        def progress(done: int, total: int | None) -> None:
            if self._stopped:
                raise KeyboardInterrupt("interrupted")
            with self._lock:
                self._done[name] = done
                if self._total is None and total is not None and self._file_count == 1:
                    self._total = total
                self._show()

        return progress

    def _show(self) -> None:
        now = time.monotonic()
        done = sum(self._done.values())
        if self._show_bar and (self._bar is not None or now - self._started > _BAR_AFTER_SECONDS):
            self._update_bar(done)
        elif self._show_lines and now >= self._next_line:
            self._next_line = now + _LINE_EVERY_SECONDS
            share = f" of {format_bytes(self._total)} ({100 * done // max(self._total, 1)} %)" if self._total else ""
            print(
                f"{self._doing}: {format_bytes(done)}{share}, {format_rate(done, now - self._started)}, "
                f"{self._finished} of {self._file_count} files done",
                file=sys.stderr,
                flush=True,
            )

    def _update_bar(self, done: int) -> None:
        if self._bar is None:
            self._bar = _rich_bar() or _PlainBar()
            self._bar_task = self._bar.add_task(self._doing, total=self._total, files="")
            self._bar.start()
        files = f"{self._finished}/{self._file_count} files" if self._file_count > 1 else ""
        self._bar.update(self._bar_task, completed=done, total=self._total, files=files)

    def stop(self) -> None:
        """Make every file that is being worked on give up at its next sign of progress."""
        self._stopped = True

    def finished(self, line: str, record: dict[str, Any]) -> None:
        """Say that one file is done (or failed): `line` to a person, `record` to a machine."""
        with self._lock:
            self._finished += 1
            if self._json:
                import json

                print(json.dumps(record), flush=True)
            elif record.get("error"):
                self._print(f"ags1: {line}", error=True)
            elif not self._quiet:
                self._print(line, error=False)

    def note(self, text: str) -> None:
        """Say something beside the results, to a person only."""
        if not self._quiet and not self._json:
            with self._lock:
                self._print(text, error=True)

    def _print(self, line: str, *, error: bool) -> None:
        if self._bar is not None:
            self._bar.print(line)
        else:
            print(line, file=sys.stderr if error else sys.stdout, flush=True)

    def close(self) -> None:
        """Take the bar away and, after many files, sum up."""
        with self._lock:
            if self._bar is not None:
                self._bar.stop()
                self._bar = None
            if self._file_count > 1 and not self._quiet and not self._json:
                seconds = time.monotonic() - self._started
                done = sum(self._done.values())
                print(
                    f"{self._doing}: {self._finished} files, {format_bytes(done)} in {seconds:.1f} s "
                    f"({format_rate(done, seconds)})",
                    file=sys.stderr,
                )


def _rich_bar() -> Any:
    """Make rich's progress bar, or None without rich (extra "cli")."""
    try:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TaskProgressColumn,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )
    except ImportError:
        return None

    class Bar(Progress):
        def print(self, line: str) -> None:
            self.console.print(line, markup=False, highlight=False, soft_wrap=True)

    return Bar(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[files]}"),
        console=Console(stderr=True),
        transient=True,
        refresh_per_second=8,
    )


class _PlainBar:
    """One line that rewrites itself: what a terminal gets without rich."""

    def __init__(self) -> None:
        self._description = ""
        self._started = time.monotonic()
        self._last = 0.0

    def add_task(self, description: str, total: int | None, files: str) -> int:
        self._description = description
        return 0

    def start(self) -> None:
        pass

    def update(self, task: int, *, completed: int, total: int | None, files: str) -> None:
        now = time.monotonic()
        if now - self._last < 0.1:
            return
        self._last = now
        rate = completed / max(now - self._started, 1e-9)
        text = f"{self._description} {format_bytes(completed)}"
        if total:
            left = (total - completed) / max(rate, 1.0)
            text += f" of {format_bytes(total)} {100 * completed // total} % {left:.0f} s left"
        sys.stderr.write(f"\r\x1b[K{text} {format_bytes(rate)}/s {files}")
        sys.stderr.flush()

    def print(self, line: str) -> None:
        sys.stderr.write(f"\r\x1b[K{line}\n")
        sys.stderr.flush()

    def stop(self) -> None:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()
