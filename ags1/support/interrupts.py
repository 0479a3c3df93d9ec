"""Signals that end the `ags1` command: Ctrl-C, also while it is being imported, SIGTERM and SIGHUP.

Each raises KeyboardInterrupt, so that unfinished output is removed, and completed work is kept for the next run.
"""

from __future__ import annotations

import os
import signal
import sys

INTERRUPTED = "interrupted; no file was left half-written"

# A signal that another thread takes, or that comes just before a thread begins to wait, does not wake that thread up.
# So waits that Ctrl-C must end have a time-out of this length, and are repeated.
NOTICE_SECONDS = 0.3

_received = int(signal.SIGINT)


def raise_from_now_on() -> None:
    """Make signals raise KeyboardInterrupt, which the command catches."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        # nohup ignores SIGHUP.
        if _IS_COMMAND and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _interrupt)


def interrupted_code() -> int:
    """The exit code after an interrupt: that of a shell for the signal, 130 for Ctrl-C."""
    return 128 + _received


def _interrupt(number: int, frame: object) -> None:
    global _received
    _received = number
    raise KeyboardInterrupt


def _end(*_: object) -> None:
    os.write(2, f"ags1: {INTERRUPTED}\n".encode())
    raise SystemExit(130)


def _is_command() -> bool:
    """Whether this process was started as the command; other programs handle signals themselves."""
    name = os.path.basename(next(iter(getattr(sys, "argv", ())), ""))
    if name == "-m":
        # sys.argv[0] is "-m" until Python has found the module, which imports its package.
        arguments = iter(sys.orig_argv)
        return "-m" in arguments and next(arguments) in ("ags1", "ags1.cli")
    return name == "ags1"


_IS_COMMAND = _is_command()
# If SIGINT is ignored, as in the background of a script, it stays ignored.
if _IS_COMMAND and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, _end)
