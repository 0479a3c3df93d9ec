"""Arrow's own threads, which must be done with our Python objects before the interpreter ends.

A scan that is over for its caller may not be over for Arrow: its threads let go of the last files, and after an error
they open those that were asked for ahead. A thread that calls into an interpreter which is ending is ended by it,
inside C++ that cannot be left in this way, and takes the process with it: "terminate called without an active
exception".
"""

from __future__ import annotations

import atexit
import sys
import time
import weakref
from collections.abc import Callable

from ags1._typing import Any

# Seconds that the end of a process waits at most: a file that stalls must not keep it, nor must work of others.
_LONGEST_WAIT = 10.0
_LONGEST_FOR_OTHERS = 1.0

# ThreadPool::GetNumTasks(): tasks that are queued or run. A task is counted until it has let go of all that it holds.
_COUNT = "_ZN5arrow8internal10ThreadPool11GetNumTasksEv"
_POOLS = ("_ZN5arrow8internal16GetCpuThreadPoolEv", "_ZN5arrow2io8internal15GetIOThreadPoolEv")
# A task of one pool may begin one of the other between two looks, but not this often without coming to its end.
_LOOKS = 20

_lent: weakref.WeakSet[Any] = weakref.WeakSet()


def lend(file: Any) -> None:
    """Remember that threads of Arrow may hold an object of Python's, so that the process does not end under them."""
    _lent.add(file)


def tasks_counter() -> Callable[[], int] | None:
    """What counts the tasks of Arrow's threads; None if PyArrow is not loaded, or does not tell."""
    library = sys.modules.get("pyarrow.lib")
    if library is None:
        return None
    import ctypes

    # The interpreter's lock is kept: nothing that needs it begins between two looks.
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
