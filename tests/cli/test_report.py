"""What is said while a command works: a bar on a real terminal, a line now and then elsewhere; words for numbers."""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import ags1
from ags1.cli import report
from ags1.cli.report import Reporter
from tests.checks import KEY, MIB
from tests.cli.conftest import Run

DEADLINE = 600


def test_time_and_rate_are_shown_if_it_took_long_enough_to_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "_RATE_AFTER_SECONDS", 0.1)
    assert report.in_time(1000, 0.001) == "1.0 kB"
    assert report.in_time(5_000_000, 2.0) == "5.0 MB in 2.00 s (2.5 MB/s)"
    assert report.in_time(0, 2.0) == "0 B in 2.00 s"


def test_a_state_is_cut_from_its_end() -> None:
    state = ["84 %", "1.1 GB of 1.3 GB", "449.3 MB/s"]
    assert report._joined(state, 80) == "84 %  1.1 GB of 1.3 GB  449.3 MB/s"
    assert report._joined(state, 30) == "84 %  1.1 GB of 1.3 GB"
    assert report._joined(state, 1) == "84 %"


# -- the reporter --------------------------------------------------------------------------------------------


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The reporter's only clock."""
    found = Clock()
    monkeypatch.setattr(report, "time", found)
    monkeypatch.setattr(report, "_LINE_EVERY_SECONDS", 10.0)
    return found


def reporter(total: int | None = 1000, file_count: int = 2, **values: Any) -> Reporter:
    """A reporter with the options of a command line."""
    options = {"json": False, "quiet": False, "verbose": False, "progress": "auto", **values}
    return Reporter(argparse.Namespace(**options), ("working", "worked"), total, file_count)


def test_a_log_gets_a_line_every_ten_seconds_if_it_is_asked_for(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    found = reporter(progress="always")
    progress = found.progress_of("a")
    progress(100, 500)
    assert capsys.readouterr().err == ""
    clock.now += 10
    progress(200, 500)
    progress(300, 500)
    assert capsys.readouterr().err == "working: 20 %, 200 B of 1.0 kB, 0/2 files, 20 B/s, 40 s left\n"
    clock.now += 10
    progress(500, 500)
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_that_time_passes_is_shown_where_nothing_says_what_is_done(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    found = reporter(total=None, file_count=1, progress="always")
    for _ in range(2):
        clock.now += 10
        found._show_again()
    assert capsys.readouterr().err == "working: 10 s\nworking: 20 s\n"


def test_without_rich_a_person_sees_a_line_every_ten_seconds(
    clock: Clock, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setitem(sys.modules, "rich", None)
    monkeypatch.setitem(sys.modules, "rich.progress", None)
    found = reporter(total=None, file_count=1)
    for _ in range(3):
        clock.now += 10
        found._show_again()
    assert capsys.readouterr().err == "working: 20 s\nworking: 30 s\n"


def test_no_bar_is_drawn_over_a_question(
    clock: Clock, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    found = reporter(total=None, file_count=1, progress="always")
    clock.now += 10
    found._show_again()
    assert found._bar is not None
    with found.paused():
        assert found._bar is None
        capsys.readouterr()
        clock.now += 10
        other = threading.Thread(target=found._show_again)
        other.start()
        assert capsys.readouterr().err == ""
    other.join(DEADLINE)
    found.close()


def test_nothing_is_shown_after_the_end() -> None:
    with reporter(total=None, file_count=1, progress="always") as found:
        pass
    assert found._bar is None
    assert "ags1-periodic" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.parametrize("options", [{}, {"quiet": True}, {"json": True}, {"progress": "never"}])
def test_a_log_gets_no_line_unasked(clock: Clock, capsys: pytest.CaptureFixture[str], options: dict[str, Any]) -> None:
    found = reporter(**options)
    clock.now += 100
    found.progress_of("a")(100, 500)
    assert capsys.readouterr().err == ""


def test_a_length_that_becomes_known_is_used(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    found = reporter(total=None, file_count=1, progress="always")
    clock.now += 10
    found.progress_of("-")(100, None)
    assert capsys.readouterr().err == "working: 100 B, 10 B/s\n"
    clock.now += 10
    found.progress_of("a")(150, 200)
    assert "of 250 B" in capsys.readouterr().err or found._total == 200


def test_a_file_that_is_longer_than_was_thought_does_not_pass_100_percent(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    found = reporter(total=100, file_count=1, progress="always")
    clock.now += 10
    found.progress_of("a")(500, 500)
    assert "100 %, 500 B of 500 B" in capsys.readouterr().err


@pytest.mark.timeout(60)
def test_progress_of_many_files_costs_the_same_for_each(clock: Clock) -> None:
    found = reporter(file_count=200_000, progress="never")
    for index in range(200_000):
        found.progress_of(str(index))(5, 5)
    assert found._sum == 1_000_000


# -- terminals -----------------------------------------------------------------------------------------------


class Terminal:
    """A command whose standard streams are a terminal of this many columns."""

    def __init__(self, command: list[str], columns: int = 80, **environment: str) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        dropped = {"COLUMNS", "LINES", "NO_COLOR", "PYTHONUNBUFFERED"}
        environment = {
            **{name: value for name, value in os.environ.items() if name not in dropped},
            "TERM": "xterm",
            **environment,
        }
        self.process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environment)
        os.close(slave)
        self.shown = ""

    def read(self, timeout: float) -> bool:
        """Take what there is to see; False at the end."""
        if not select.select([self.master], [], [], timeout)[0]:
            return True
        try:
            data = os.read(self.master, 1 << 16)
        except OSError:
            data = b""
        self.shown += data.decode()
        return bool(data)

    def finish(self) -> int:
        """Read to the end; return the exit code."""
        end = time.monotonic() + DEADLINE
        while self.read(1) and time.monotonic() < end:
            pass
        os.close(self.master)
        return self.process.wait(DEADLINE)

    @property
    def text(self) -> str:
        """What was shown, without the terminal's control sequences."""
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.shown)


def feed(terminal: Terminal, pipe: Path, until: str, most: int = 1 << 34) -> int:
    """Write zeros into a pipe until the terminal shows something; return how many."""
    end = time.monotonic() + DEADLINE
    written = 0
    with pipe.open("wb", buffering=0) as file:
        os.set_blocking(file.fileno(), False)
        while not re.search(until, terminal.text) and written < most:
            assert time.monotonic() < end, terminal.shown
            ready = select.select([terminal.master], [file], [], 1)
            if ready[0]:
                assert terminal.read(0), terminal.shown
            if ready[1]:
                written += file.write(bytes(1 << 16)) or 0
    return written


@pytest.fixture
def pipe(work: Path) -> Path:
    """A named pipe, so that a test decides how long the work takes."""
    os.mkfifo(work / "pipe")
    return work / "pipe"


COMMAND = [sys.executable, "-m", "ags1"]
needs_rich = pytest.param(COMMAND, id="rich", marks=pytest.mark.skipif(not report._RichBar.make("x"), reason="no rich"))


@pytest.mark.timeout(120)
@pytest.mark.parametrize("command", [needs_rich])
def test_a_pipe_of_unknown_length_has_a_bar_that_goes_away(pipe: Path, command: list[str]) -> None:
    terminal = Terminal([*command, "encrypt", "pipe", "out", "--key-file", "k"])
    written = feed(terminal, pipe, r"encrypting[^\r\n]*B  [\d.]+ \w?B/s")
    assert terminal.finish() == 0
    assert "%" not in terminal.text
    assert "left" not in terminal.text
    assert "Traceback" not in terminal.shown
    assert re.search(r"[\r\n]pipe -> out  [\d.]+ [MG]B in ", terminal.text)
    # Erased where it stood last.
    assert re.search(r"\x1b\[2?K", terminal.shown.rpartition("encrypting")[2])
    assert ags1.plaintext_length((pipe.parent / "out").stat().st_size) == written


@pytest.mark.timeout(120)
@pytest.mark.parametrize("columns", [20, 40, 80, 200])
@pytest.mark.parametrize("command", [needs_rich])
def test_a_bar_fits_its_terminal(pipe: Path, command: list[str], columns: int) -> None:
    terminal = Terminal([*command, "encrypt", "pipe", "out", "--key-file", "k", "-q", "--progress", "always"], columns)
    feed(terminal, pipe, r"encrypting.*\r.*encrypting.*\r")
    assert terminal.finish() == 0
    for line in re.split(r"[\r\n]+", terminal.text):
        assert len(line) <= columns, line


@pytest.fixture
def large(work: Path) -> Path:
    """A file that takes longer than the bar waits, which the test makes short."""
    (work / "large").write_bytes(bytes(64 * MIB))
    ags1.encrypt_file(work / "large", work / "large.ags1", KEY, key_metadata_out=work / "large.meta")
    return work / "large"


def with_early_bar(*arguments: str) -> list[str]:
    """The command with a bar from the start."""
    code = (
        "import sys; from ags1.cli import report, main; report._BAR_AFTER_SECONDS = report._BAR_EVERY_SECONDS = 0\n"
        "report._LINE_EVERY_SECONDS = 0\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    return [sys.executable, "-c", code, *arguments]


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("arguments", "doing", "result"),
    [
        (("encrypt", "large", "out", "--key-file", "k"), "encrypting", "large -> out  67.1 MB"),
        (
            ("decrypt", "large.ags1", "out", "--key-file", "k", "--any-length"),
            "decrypting",
            "large.ags1 -> out  67.1 MB",
        ),
        (
            ("verify", "large.ags1", "--key-metadata", "large.meta"),
            "verifying",
            "large.ags1: 64 blocks, 67.1 MB",
        ),
    ],
)
def test_a_file_of_known_length_has_percents_and_time_left(
    large: Path, arguments: tuple[str, ...], doing: str, result: str
) -> None:
    terminal = Terminal(with_early_bar(*arguments))
    assert terminal.finish() == 0
    assert re.search(rf"{doing} .*\d+ %  [\d.]+ \w?B of 67\.1 MB  [\d.]+ \w?B/s", terminal.text)
    assert result in terminal.text
    assert "Traceback" not in terminal.shown


@pytest.mark.timeout(120)
def test_many_files_have_one_bar_with_their_number(large: Path) -> None:
    (large.parent / "tree").mkdir()
    for index in range(2):
        os.link(large, large.parent / f"tree/{index}")
    terminal = Terminal(with_early_bar("encrypt", "tree", "missing", "out", "--key-file", "k", "--jobs", "2"))
    assert terminal.finish() == 4
    assert re.search(r"[\d.]+ \w?B of 134\.2 MB  \d/3 files", terminal.text)
    assert "ags1: missing: No such file or directory" in terminal.text
    assert "encrypted 2 of 3 files, 134.2 MB in" in terminal.text


@pytest.mark.timeout(120)
def test_colour_is_left_out_where_it_is_not_wanted(large: Path) -> None:
    command = with_early_bar("encrypt", "large", "out", "--key-file", "k", "--overwrite")
    colour = r"\x1b\[[0-9;]*m"
    plain = Terminal(command, NO_COLOR="1")
    assert plain.finish() == 0
    assert not re.search(colour, plain.shown)
    if report._RichBar.make("x"):
        coloured = Terminal(command)
        assert coloured.finish() == 0
        assert re.search(colour, coloured.shown)


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("options", "environment"),
    [(("--progress", "never"), {}), (("--quiet",), {}), (("--json",), {}), ((), {"TERM": "dumb"})],
)
def test_there_is_no_bar_where_none_is_wanted(
    large: Path, options: tuple[str, ...], environment: dict[str, str]
) -> None:
    terminal = Terminal(with_early_bar("encrypt", "large", "out", "--key-file", "k", *options), **environment)
    assert terminal.finish() == 0
    assert "\x1b" not in terminal.shown
    assert "encrypting" not in terminal.shown


@pytest.mark.timeout(120)
def test_a_log_gets_lines_that_are_asked_for_and_no_bar(large: Path) -> None:
    command = with_early_bar("encrypt", "large", "out", "--key-file", "k", "--overwrite")
    for options, lines in (((), 0), (("--progress", "always"), 1)):
        result = subprocess.run([*command, *options], capture_output=True, check=True, timeout=DEADLINE)
        assert (b"\x1b" in result.stderr, result.stderr.count(b"encrypting: ") >= lines) == (False, True)
        assert (b"encrypting" in result.stderr) == bool(lines)
        assert result.stdout.startswith(b"large -> out  67.1 MB in ")
        assert len(result.stdout.splitlines()) == 1


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("encrypt", "plain", "-", "--key-file", "k"), "encrypted bytes would garble the terminal"),
        (("keygen", "-"), "a raw key would garble the terminal: use --format hex"),
    ],
)
def test_bytes_are_not_written_to_a_terminal(work: Path, arguments: tuple[str, ...], message: str) -> None:
    terminal = Terminal([*COMMAND, *arguments])
    assert terminal.finish() == 2
    assert message in terminal.shown


@pytest.mark.timeout(60)
def test_text_is_written_to_a_terminal(work: Path) -> None:
    (work / "text.ags1").write_bytes(ags1.encrypt(b"hello, world", KEY))
    terminal = Terminal([*COMMAND, "cat", "text.ags1", "--key-file", "k", "--any-length", "-q"])
    assert terminal.finish() == 0
    assert terminal.shown == "hello, world"


def test_without_a_terminal_rich_is_not_loaded(run: Run, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report._RichBar, "make", None)
    assert run("encrypt", "plain", "out", "--key-file", "k").code == 0
