"""What a command says while it works and when it is done: a bar on a terminal, lines, JSON for machines."""

from __future__ import annotations

import os
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from ags1.cli.output import OutputClosed, forget_output, say, warn
from ags1.support.exit_codes import EXIT_DATA, EXIT_OK, EXIT_UNPROTECTED
from ags1.support.periodic import Periodic
from ags1.support.words import counted, duration_text, printable, size_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    from typing_extensions import Self

    T = TypeVar("T")

# A bar for work that is over before one can read it would only cost its import.
_BAR_AFTER_SECONDS = 0.4
_BAR_EVERY_SECONDS = 0.1
_LINE_EVERY_SECONDS = 10.0
# More lines than this scroll away what matters: then failures and a sum are all that is said.
_MANY = 20
# Below this, a rate says more about starting than about the work.
_RATE_AFTER_SECONDS = 0.02
_BAR_COLUMNS = 70
_BAR_WIDTH = 16


def code_of(report: Any, *, quiet: bool) -> int:
    """The exit code for a report or plan; `quiet`: what it left is said here, because the report is not shown."""
    left = getattr(report, "left", None)
    if quiet and left:
        warn(f"ags1: warning: {left}")
    return EXIT_DATA if not report.ok else EXIT_UNPROTECTED if left else EXIT_OK


def in_time(count: int, seconds: float) -> str:
    """Bytes and, if it took long enough to tell, time and rate: "1.1 GB in 0.52 s (2.1 GB/s)"."""
    if seconds < _RATE_AFTER_SECONDS:
        return size_text(count)
    rate = f" ({size_text(count / seconds)}/s)" if count >= seconds else ""
    return f"{size_text(count)} in {seconds:.2f} s{rate}"


class Reporter:
    """Speaks for one run of a command over one or many files. Safe to call from several threads.

    As a context manager, it shows that time passes where no callback says what is done, and is closed at the end.
    `said` are the options of what is said. `words` are what is done, while it is done and afterwards; `total` is bytes
    over all files, if known. Without `to_stdout`, standard output is taken by data. With `name_all`, a person is told
    of every file that fails.
    """

    def __init__(
        self,
        said: Namespace,
        words: tuple[str, str],
        total: int | None = None,
        file_count: int = 1,
        *,
        to_stdout: bool = True,
        name_all: bool = False,
    ) -> None:
        self._json = getattr(said, "json", False)
        self._quiet = getattr(said, "quiet", False)
        self._lines = not self._quiet and to_stdout
        verbose = getattr(said, "verbose", False)
        self._each = verbose or file_count <= _MANY
        self._failures_shown = None if verbose or name_all or self._json else _MANY
        self._doing, self._did = words
        self._total = total
        self._file_count = file_count
        self._finished = 0
        self._failed = 0
        self._started = time.monotonic()
        self._next_line = self._started + _LINE_EVERY_SECONDS
        self._next_bar = self._started + _BAR_AFTER_SECONDS
        self._done: dict[str, int] = {}
        self._sum = 0
        self._told = 0
        self._bar: _RichBar | None = None
        self._lock = threading.Lock()
        self._shown: Periodic | None = None
        progress = getattr(said, "progress", "auto")
        always = progress == "always"
        wanted = always or (progress == "auto" and not self._quiet and not self._json)
        terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        if sys.stdout is not None and not to_stdout and sys.stdout.isatty():
            # The data goes where a bar would.
            terminal = False
        self._show_bar = wanted and terminal
        # A log that is read later, or that cron sends by mail, gets lines only where they are asked for.
        self._show_lines = always and not terminal

    def __enter__(self) -> Self:
        if self._show_bar or self._show_lines:
            self._shown = Periodic(self._show_again, _BAR_EVERY_SECONDS)
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def progress_of(self, name: str) -> Callable[[int, int | None], None]:
        def progress(done: int, total: int | None) -> None:
            with self._lock:
                self._sum += done - self._done.get(name, 0)
                self._done[name] = done
                if self._total is None and total is not None and self._file_count == 1:
                    self._total = total
                self._show()

        return progress

    def rows(self, found: Iterable[T]) -> Iterator[T]:
        """Yield what is found. On a terminal the bar goes away before the first is printed: it shows enough."""
        for each in found:
            if sys.stdout is not None and sys.stdout.isatty():
                self.close()
            yield each

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Show no bar meanwhile: a person reads, and is asked."""
        with self._lock:
            if self._bar is not None:
                self._bar.stop()
                self._bar = None
            yield

    def _show_again(self) -> None:
        with self._lock:
            self._show()

    def _show(self) -> None:
        now = time.monotonic()
        if self._show_bar and now >= self._next_bar:
            self._next_bar = now + _BAR_EVERY_SECONDS
            if self._bar is None:
                self._bar = _RichBar.make(self._doing)
            if self._bar is None:
                # Without rich, a person sees the lines of a log.
                self._show_bar, self._show_lines = False, True
            else:
                self._bar.update(self._doing, self._sum, self._total, self._state(now))
        elif self._show_lines and now >= self._next_line:
            self._next_line = now + _LINE_EVERY_SECONDS
            print(f"{self._doing}: {', '.join(self._state(now))}", file=sys.stderr, flush=True)

    def _state(self, now: float) -> list[str]:
        """How far the work is, the most important first."""
        done, total = self._sum, self._total
        if not done and total is None:
            return [duration_text(now - self._started)]
        if total and done > total:
            # The total is of what is stored, or the file grew.
            total = done
        rate = done / max(now - self._started, 1e-9)
        state = [f"{100 * done // total} %"] if total else []
        state.append(f"{size_text(done)} of {size_text(total)}" if total else size_text(done))
        if self._file_count > 1:
            state.append(f"{self._finished:,}/{counted(self._file_count, 'file')}")
        state.append(f"{size_text(rate)}/s")
        if total and rate > 0:
            state.append(f"{duration_text((total - done) / rate)} left")
        return state

    def finished(self, line: str, record: dict[str, Any]) -> None:
        """Say that a file is done, or that it failed (the record has an error)."""
        with self._lock:
            self._finished += 1
            failed = bool(record.get("error"))
            self._failed += failed
            self._told += record.get("bytes") or 0
            if self._json:
                import json

                self._to_stdout(json.dumps(record))
            elif failed:
                if self._failures_shown is None or self._failed <= self._failures_shown:
                    self._to_stderr(f"ags1: {line}")
            elif self._lines and self._each:
                self._to_stdout(line)

    def close(self) -> None:
        """Take the bar away and, after many files, sum up."""
        if self._shown is not None:
            self._shown.stop()
        with self._lock:
            bar, self._bar = self._bar, None
            try:
                if bar is not None:
                    bar.stop()
            except Exception:
                # Interrupted in the middle of its start, rich cannot stop; the cursor is still to be shown again.
                sys.stderr.write("\x1b[?25h\n")
            if self._failures_shown is not None and self._failed > self._failures_shown:
                more = counted(self._failed - self._failures_shown, "file")
                self._to_stderr(f"ags1: ... and {more} more (--verbose names them all)")
            if self._file_count == 1 or not self._lines or self._json:
                return
            seconds = time.monotonic() - self._started
            good = self._finished - self._failed
            count = (
                counted(good, "file")
                if good == self._file_count
                else f"{good:,} of {counted(self._file_count, 'file')}"
            )
            failed = f"; {self._failed:,} failed" if self._failed else ""
            self._to_stdout(f"{self._did} {count}, {in_time(self._told or self._sum, seconds)}{failed}")

    def _to_stdout(self, line: str) -> None:
        if sys.stdout is None:
            return
        if self._bar is not None and sys.stdout.isatty():
            self._bar.print(printable(line))
            return
        try:
            say(line, flush=True)
        except OutputClosed:
            # Nobody reads what is said; the work itself is still wanted.
            forget_output()
            self._lines = False

    def _to_stderr(self, line: str) -> None:
        line = printable(line)
        if self._bar is not None:
            self._bar.print(line)
        else:
            print(line, file=sys.stderr, flush=True)


def _joined(state: list[str], width: int) -> str:
    """As much of the state as fits, from the front."""
    text = state[0]
    for part in state[1:]:
        if len(text) + 2 + len(part) > width:
            break
        text += f"  {part}"
    return text


class _RichBar:
    """rich's progress bar, with the words of this command beside it."""

    def __init__(self, progress: Any, doing: str) -> None:
        self._progress = progress
        self._width: int = progress.console.width
        self._task: Any = progress.add_task(doing, total=None, state="")
        self._shown = False

    @classmethod
    def make(cls, doing: str) -> _RichBar | None:
        """Make the bar; None without rich (extra "cli")."""
        try:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn
            from rich.table import Column
        except ImportError:
            return None
        console = Console(stderr=True)
        columns: list[ProgressColumn] = [
            TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True)),
            TextColumn("{task.fields[state]}", markup=False, table_column=Column(no_wrap=True)),
        ]
        if console.width >= _BAR_COLUMNS:
            columns.insert(1, BarColumn(bar_width=_BAR_WIDTH))
        # Results go to standard output while the bar is shown: rich would take them for its console, the other stream.
        progress = Progress(
            *columns,
            console=console,
            transient=True,
            refresh_per_second=8,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        return cls(progress, doing)

    def update(self, doing: str, done: int, total: int | None, state: list[str]) -> None:
        room = self._width - len(doing) - 2 - (_BAR_WIDTH + 1 if self._width >= _BAR_COLUMNS else 0)
        # Without None here, rich would keep the total of the phase before.
        self._progress.tasks[self._task].total = total
        self._progress.update(self._task, description=doing, completed=done, state=_joined(state, room))
        if not self._shown:
            self._shown = True
            self._progress.start()

    def print(self, line: str) -> None:
        self._progress.console.print(line, markup=False, highlight=False, emoji=False, soft_wrap=True)

    def stop(self) -> None:
        try:
            self._progress.stop()
        except IndexError:
            # Ctrl-C came while rich was still setting the bar up: there is nothing to take away but its hidden cursor.
            self._progress.console.show_cursor(True)
