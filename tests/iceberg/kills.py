"""Children that SIGKILL ends at one of their function calls: the moment does not depend on the machine's speed."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

from ags1.errors import ConflictError


class Bomb:
    """Kills the process at one of its function calls, in whatever thread that is; with None it counts them."""

    def __init__(self, at: int | None) -> None:
        self.count, self._at = 0, at

    def __call__(self, _frame: Any, event: str, _argument: Any) -> None:
        if event in ("call", "c_call"):
            self.count += 1
            if self.count == self._at:
                os.kill(os.getpid(), signal.SIGKILL)

    def watch(self, work: Callable[[], object]) -> int:
        """Do the work; return how many calls that took."""
        threading.setprofile(self)
        sys.setprofile(self)
        try:
            work()
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
        return self.count


def in_child(work: Callable[[], object]) -> int:
    """Do it in a child; return its process id. It ends with 0, or 3 after a lost race, or 1."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        work()
        status = 0
    except (ConflictError, FileNotFoundError):
        # The faster one has removed what it needed no more.
        status = 3
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def ended(child: int) -> int:
    """Wait for a child; return its exit status, or the signal that killed it as a negative number."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
