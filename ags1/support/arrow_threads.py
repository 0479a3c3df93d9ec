"""Wait at exit for Arrow's threads, which may still use Python objects.

After a scan has ended for its caller, Arrow's threads still release the last files; after an error they open files that
were requested ahead. At its end the interpreter stops a thread that calls into it. Inside of C++ this aborts the
process: "terminate called without an active exception".
"""

from __future__ import annotations

import atexit
import sys
import time
import weakref
from collections.abc import Callable

from ags1.support.typing import Any

# Longest wait at exit in seconds, for a file of ags1 that stalls, and for work of other users of Arrow.
_LONGEST_WAIT = 10.0
_LONGEST_FOR_OTHERS = 1.0

# ThreadPool::GetNumTasks(): tasks that are queued or run. A task counts until it has released all its objects.
_COUNT = "_ZN5arrow8internal10ThreadPool11GetNumTasksEv"
_POOLS = ("_ZN5arrow8internal16GetCpuThreadPoolEv", "_ZN5arrow2io8internal15GetIOThreadPoolEv")
# A task of one pool may start a task of the other between two counts, but not this often without ending.
_LOOKS = 20

_lent: weakref.WeakSet[Any] = weakref.WeakSet()


def lend(file: Any) -> None:
    """Note that threads of Arrow may hold a Python object, so that the process waits for them at exit."""
    _lent.add(file)


def tasks_counter() -> Callable[[], int] | None:
    """A function that counts the tasks of Arrow's threads; None if PyArrow is not loaded or lacks the symbols."""
    library = sys.modules.get("pyarrow.lib")
    if library is None:
        return None
    import ctypes

    # PyDLL keeps the GIL: no task that needs it starts between two counts.
    arrow = ctypes.PyDLL(library.__file__)
    try:
        count, pools = getattr(arrow, _COUNT), [getattr(arrow, name) for name in _POOLS]
    except AttributeError:
        return None
    count.argtypes, count.restype = [ctypes.c_void_p], ctypes.c_int
    for pool in pools:
        pool.restype = ctypes.c_void_p
    places = [pool() for pool in pools]
    return lambda: sum(count(place) for _ in range(_LOOKS) for place in places)


@atexit.register
def wait_for_arrow() -> None:
    """Wait until Arrow's threads have nothing to do."""
    tasks = tasks_counter()
    if tasks is None:
        return
    begin = time.monotonic()
    while tasks() and time.monotonic() - begin < (_LONGEST_WAIT if _lent else _LONGEST_FOR_OTHERS):
        time.sleep(0.001)
