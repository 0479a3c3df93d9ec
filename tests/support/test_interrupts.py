"""Ctrl-C ends the command with 130 and one line, at whatever moment it comes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import ags1
from ags1.support.interrupts import INTERRUPTED
from tests.checks import HANG_SECONDS

SAID = f"ags1: {INTERRUPTED}\n"
ROOT = str(Path(ags1.__file__).parent.parent)

# A script of this name is the command. Forked children count the calls and lines that they run, and send themselves
# the signal at one of them: `parts` moments, evenly spread.
_AT_MANY_MOMENTS = """
import os, signal, sys, traceback

def child(moment, out):
    sys.stdout.flush()
    process = os.fork()
    if process:
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    os.dup2(os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    count = 0
    def trace(frame, event, argument):
        nonlocal count
        count += 1
        if count == moment:
            sys.settrace(None)
            signal.raise_signal(signal.SIGINT)
        return trace
    import ags1.support.interrupts
    if PRELOADED:
        import ags1.cli.transfer, ags1.cli.parser
    sys.settrace(trace)
    try:
        from ags1.cli import main
        code = main(sys.argv[2:])
        sys.settrace(None)
        os.write(counted, str(count).encode())
        sys.exit(code)
    except SystemExit as exit:
        os._exit(exit.code or 0)
    except BaseException:
        traceback.print_exc()
        os._exit(99)

counter, counted = os.pipe()
assert child(-1, os.devnull) == 0
total = int(os.read(counter, 20))
parts = int(sys.argv[1])
for part in range(parts):
    moment = 1 + total * part // parts
    code = child(moment, "said")
    said = open("said").read()
    assert (code, said) == (130, SAID), (moment, total, code, said)
print(total)
"""


def run_as_command(directory: Path, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a script that is named as the command is."""
    (directory / "ags1").write_text(f"SAID = {SAID!r}\n{text}")
    return subprocess.run(
        [sys.executable, str(directory / "ags1"), *arguments],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": ROOT},
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_SECONDS,
    )


@pytest.mark.parametrize(("preloaded", "parts"), [(False, 25), (True, 50)])
def test_an_interrupt_at_any_moment_is_one_line_and_130(tmp_path: Path, preloaded: bool, parts: int) -> None:
    (tmp_path / "plain").write_bytes(bytes(100_000))
    ags1.Key.generate().save(tmp_path / "k")
    command = ("encrypt", "plain", "out", "--key-file", "k", "--overwrite", "--quiet")
    done = run_as_command(tmp_path, f"PRELOADED = {preloaded}\n{_AT_MANY_MOMENTS}", str(parts), *command)
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) > 500


# Each calls `interrupt` where Python prints an exception and goes on.
_SWALLOWING = {
    "a destructor": """
class Dropped:
    def __del__(self):
        interrupt()
def swallow():
    Dropped()
""",
    "a weak reference": """
import weakref
class Dropped:
    pass
def swallow():
    dropped = Dropped()
    kept = weakref.ref(dropped, interrupt)
    del dropped
""",
    "a finalizer": """
import weakref
class Dropped:
    pass
def swallow():
    weakref.finalize(Dropped(), interrupt)
""",
    "the collection of garbage": """
import gc
def swallow():
    gc.callbacks.append(interrupt)
    gc.collect()
    gc.callbacks.clear()
""",
    "a C callback": """
import ctypes
def swallow():
    ctypes.CFUNCTYPE(None)(interrupt)()
""",
    "a release of memory that Arrow has held": """
import pyarrow
class Held(bytearray):
    def __del__(self):
        interrupt()
def swallow():
    pyarrow.py_buffer(Held(b"held"))
""",
    "an except clause": """
def swallow():
    try:
        interrupt()
    except:
        pass
""",
}
_SWALLOWED = """
import signal, sys, threading
from ags1.cli import main, transfer
def interrupt(*_):
    signal.raise_signal(getattr(signal, sys.argv[1]))
{swallowing}
def work(*_, **options):
    swallow()
    {after}
transfer.encrypt_file = work
sys.exit(main(sys.argv[2:]))
"""
_WAITS = "threading.Event().wait()"
_ENDS = "raise ValueError('something else')"


@pytest.mark.parametrize("place", _SWALLOWING)
def test_an_interrupt_that_a_callback_swallows_ends_the_command(tmp_path: Path, place: str) -> None:
    (tmp_path / "plain").write_bytes(b"plain")
    ags1.Key.generate().save(tmp_path / "k")
    # What catches everything, nobody hears of before the end.
    for after in (_ENDS,) if place == "an except clause" else (_WAITS, _ENDS):
        text = _SWALLOWED.format(swallowing=_SWALLOWING[place], after=after)
        for name, code in (("SIGINT", 130), ("SIGTERM", 143)):
            done = run_as_command(tmp_path, text, name, "encrypt", "plain", "out", "--key-file", "k")
            assert done.returncode == code, (after, done.stderr)
            assert done.stderr.endswith(SAID)
            assert "Traceback" not in done.stderr
            assert "ignored" not in done.stderr


def test_an_interrupt_in_a_callback_while_the_command_is_imported_ends_it(tmp_path: Path) -> None:
    text = f"""
import signal, sys
import ags1.support.interrupts
interrupt = lambda *_: signal.raise_signal(signal.SIGINT)
{_SWALLOWING["a weak reference"]}
swallow()
from ags1.cli import main
sys.exit(main(["--version"]))
"""
    done = run_as_command(tmp_path, text)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", SAID)


def test_other_faults_of_callbacks_are_still_printed(tmp_path: Path) -> None:
    text = """
import sys
from ags1.cli import main
class Dropped:
    def __del__(self):
        raise ValueError("of a destructor")
from ags1.cli import parser
parse = parser.parse
parser.parse = lambda arguments: (Dropped(), parse(arguments))[1]
sys.exit(main(["--version"]))
"""
    done = run_as_command(tmp_path, text)
    assert done.returncode == 0
    assert "ValueError: of a destructor" in done.stderr
