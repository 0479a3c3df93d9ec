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

# An interrupt that a callback swallowed is raised again when the callback is over.
_AGAIN_SECONDS = 0.01

_received: int | None = None


def raise_from_now_on() -> None:
    """Make signals raise KeyboardInterrupt, which the command catches."""
    if not _IS_COMMAND:
        return
    sys.unraisablehook = _unraisable
    signal.signal(signal.SIGALRM, _raise)
    # The background of a script ignores SIGINT, and nohup ignores SIGHUP.
    for number, before in ((signal.SIGINT, _end), (signal.SIGTERM, signal.SIG_DFL), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is before:
            signal.signal(number, _interrupt)


def end_from_now_on() -> None:
    """Make signals end the process at once, because the command has no more work and catches nothing."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is _interrupt:
            signal.signal(number, _end)
    if signal.getsignal(signal.SIGALRM) is _raise:
        signal.signal(signal.SIGALRM, signal.SIG_IGN)


def was_interrupted() -> bool:
    """Whether a signal has come, also if other code caught what it raised."""
    return _received is not None


def interrupted_code() -> int:
    """The exit code after an interrupt: that of a shell for the signal, 130 for Ctrl-C."""
    return 128 + (_received or signal.SIGINT)


def _interrupt(number: int, frame: object) -> None:
    global _received
    _received = number
    raise KeyboardInterrupt


def _raise(*_: object) -> None:
    raise KeyboardInterrupt


def _unraisable(seen: sys.UnraisableHookArgs) -> None:
    """Raise an interrupt again that came while Python ran a destructor or another callback, which cannot raise."""
    if was_interrupted() and seen.exc_type is KeyboardInterrupt:
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS)
    else:
        sys.__unraisablehook__(seen)


def _end(number: int, frame: object) -> None:
    # Not SystemExit: a callback, such as the one that drops the lock of an imported module, would swallow it.
    os.write(2, f"ags1: {INTERRUPTED}\n".encode())
    os._exit(128 + number)


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
