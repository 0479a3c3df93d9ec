"""Forks children while threads of the parent start, encrypt, meet bad tags and exit; each child then uses a thread.

A lock that a thread of the parent holds at the moment of the fork is never released in the child. Whoever takes such a
lock there hangs, once in a thousand children or less, so many are needed::

    python -m tests.threats.soak_forks --children 100000

The exit status is 0 if every child ended by itself and well.
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence

import ags1
from tests import checks

KEY = checks.KEY
BLOCK = 4096
DATA = checks.pattern(3 * BLOCK)
STREAM = ags1.encrypt(DATA, KEY, block_length=BLOCK)
DAMAGED = checks.damage(STREAM, BLOCK, 1)
DEADLINE = 60
"""Seconds after which a child that has not ended is taken to hang: it needs some milliseconds."""


def use() -> None:
    """Encrypt and decrypt, with a key that was just made, in this thread and in a crew; meet a tag that is wrong."""
    key = ags1.Key.generate()
    for threads in (1, 2):
        made = ags1.encrypt(DATA, key, block_length=BLOCK, threads=threads)
        assert ags1.decrypt(made, key, threads=threads) == DATA
        try:
            ags1.decrypt(DAMAGED, KEY, threads=threads)
        except ags1.AuthenticationError:
            continue
        raise AssertionError("a wrong tag was accepted")


def _in_thread(work: Callable[[], None]) -> None:
    """Run `work` in a thread that starts and exits for it alone, and raise what it raised."""
    failures: list[BaseException] = []

    def guarded() -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=guarded)
    thread.start()
    thread.join()
    for failure in failures:
        raise failure


def ends_well(child: int) -> bool:
    """Wait for a child; kill it if it does not end."""
    descriptor = os.pidfd_open(child)
    try:
        if not select.select([descriptor], [], [], DEADLINE)[0]:
            os.kill(child, signal.SIGKILL)
    finally:
        os.close(descriptor)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def soak(children: int, seconds: float = float("inf"), parents: int = 3) -> tuple[int, int]:
    """Fork up to `children` children for up to `seconds`, beside `parents` busy threads.

    Returns
    -------
    (int, int)
        How many children there were, and how many of them hung or failed.
    """
    stop = threading.Event()
    failures: list[BaseException] = []

    def busy() -> None:
        try:
            while not stop.is_set():
                _in_thread(use)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=busy) for _ in range(parents)]
    for thread in threads:
        thread.start()
    until = time.monotonic() + seconds
    count = bad = 0
    try:
        while count < children and time.monotonic() < until and not failures:
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    _in_thread(use)
                    status = 0
                finally:
                    os._exit(status)
            count += 1
            bad += not ends_well(child)
            if count % 10_000 == 0:
                print(f"{count:,} children, {bad} of them hung or failed", flush=True)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    for failure in failures:
        raise failure
    return count, bad


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the soak test and print what it gave."""
    parser = argparse.ArgumentParser(description="Fork beside threads that encrypt, and look for children that hang.")
    parser.add_argument("--children", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this time")
    parser.add_argument("--parents", type=int, default=3, help="threads that start, encrypt and exit in the parent")
    options = parser.parse_args(arguments)
    started = time.monotonic()
    count, bad = soak(options.children, options.seconds, options.parents)
    print(f"{count:,} children in {time.monotonic() - started:.0f} s: {bad} hung or failed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
