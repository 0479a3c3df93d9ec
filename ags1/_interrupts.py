"""Ctrl-C while the `ags1` command is being imported: it ends as it does later, without a traceback."""

from __future__ import annotations

import os
import signal
import sys

__all__ = ["INTERRUPTED", "raise_from_now_on"]

INTERRUPTED = "interrupted; no file was left half-written"


def raise_from_now_on() -> None:
    """Let Ctrl-C raise KeyboardInterrupt again: the command catches it."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(*_: object) -> None:
    os.write(2, f"ags1: {INTERRUPTED}\n".encode())
    raise SystemExit(130)


def _is_command() -> bool:
    """Whether this process was started as the command; for everybody else, signals are theirs."""
    name = os.path.basename(next(iter(getattr(sys, "argv", ())), ""))
    if name == "-m":
        # What Python calls it until the module is found, which imports its package.
        arguments = iter(sys.orig_argv)
        return "-m" in arguments and next(arguments) in ("ags1", "ags1.cli")
    return name == "ags1"


# Where Ctrl-C is ignored, as by nohup and in the background of a script, it stays so.
if _is_command() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, _end)
