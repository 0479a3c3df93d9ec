"""Threads that wait for requests, so that a signal can interrupt the thread that needs the result.

    caller --start(function)--> queue --> one of at most 64 daemon threads
       |                                        |
       +-- result(): waits on a lock <----------+      Ctrl-C is handled while it waits

A call into obstore handles a signal only when it returns, and the end of a process joins the threads of
concurrent.futures. Neither is true here: a waiting caller can be interrupted, and a stalled request does not keep a
process alive. A call that is started on one of these threads runs there at once: otherwise all threads could wait for
each other.
"""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable

from ags1.support.interrupts import NOTICE_SECONDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Generic, TypeVar

    Item = TypeVar("Item")
    Result = TypeVar("Result")
else:

    class _Subscript:
        def __getitem__(self, item: object) -> type:
            return object

    Generic = _Subscript()
    Result = None

_MOST_THREADS = 64
# An idle thread costs only its stack; a new thread costs the next request a tenth of a millisecond.
_IDLE_SECONDS = 5.0
_local = threading.local()
# Held only for a moment, when a call begins, ends or is cancelled.
_ending = threading.Lock()


class Request(Generic[Result]):
    """A call that runs on another thread."""

    __slots__ = ("_after", "_call", "_done", "_ended", "_error", "_over", "_process", "_value")

    def __init__(self, call: Callable[[], Result]) -> None:
        self._call: Callable[[], Result] | None = call
        self._value: Result | None = None
        self._error: BaseException | None = None
        self._after: Callable[[], object] | None = None
        # The call has ended, or there is nothing to call.
        self._over = False
        # What `cancel` was given was called, too.
        self._ended = False
        self._process = os.getpid()
        self._done = threading.Lock()
        self._done.acquire()

    def run(self) -> None:
        """Make the call, unless it was cancelled."""
        with _ending:
            call, self._call = self._call, None
        try:
            if call is not None:
                self._value = call()
        except BaseException as error:
            self._error = error
        finally:
            # Free what the call refers to (memory, for example) now, not when the Request is freed.
            del call
            with _ending:
                self._over = True
                after, self._after = self._after, None
            if after is not None:
                # It was cancelled.
                self._value = None
                after()
            self._ended = True
            self._done.release()

    def cancel(self, after: Callable[[], object] | None = None) -> None:
        """Do not begin the call, if it has not begun. Its result must not be used afterwards.

        `after` is called when the call has ended, on the thread that made it; or here and now, if the call never
        begins.
        """
        if sys.is_finalizing():
            # A forked child does not have the threads, and one of them may have held the lock.
            return
        with _ending:
            begun, self._call = self._call is None, None
            if begun and not self._over:
                self._after = after
                return
        if after is not None:
            after()

    def wait(self, seconds: float = math.inf) -> None:
        """Wait until the call has ended or was cancelled, at most `seconds`.

        OSError: this process was forked while the call ran, so its thread exists only in the parent; or the interpreter
        shuts down and has ended the thread. TimeoutError: the call takes longer.
        """
        if self._process != os.getpid() and not self._ended:
            raise OSError("this request was started in the parent process, before the fork: start it again")
        if sys.is_finalizing() and not self._ended:
            raise OSError("the interpreter is shutting down: the thread of this request has ended")
        deadline = time.monotonic() + seconds
        # An interrupt between acquire() and release() leaves the lock locked. It is not used again.
        while not self._ended:
            remaining = min(NOTICE_SECONDS, deadline - time.monotonic())
            if remaining <= 0:
                raise TimeoutError
            if self._done.acquire(timeout=remaining):
                self._done.release()

    def ready(self) -> bool:
        """Whether the call has ended."""
        return self._ended

    def result(self, seconds: float = math.inf) -> Result:
        """Wait for the call, as :meth:`wait` does; return what it returned, raise what it raised."""
        self.wait(seconds)
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]


class _Pool:
    def __init__(self) -> None:
        # Taken by itself: an interrupt inside Condition.__enter__ would leave it locked for ever.
        self._lock = threading.Lock()
        self._condition = threading.Condition(self._lock)
        self._waiting: deque[Request[Any]] = deque()
        self._idle = 0
        self._threads = 0
        self._finished = False

    def start(self, request: Request[Any]) -> None:
        with self._lock:
            self._waiting.append(request)
            if self._idle >= len(self._waiting) or self._threads >= _MOST_THREADS:
                self._condition.notify()
                return
            self._threads += 1
        thread = threading.Thread(target=self._work, name="ags1-request", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            with self._lock:
                self._threads -= 1
                if self._threads:
                    # Other threads will run it.
                    return
                self._waiting.remove(request)
            raise
        except BaseException:
            # A signal interrupted the wait for the new thread; the caller never gets the Request.
            request.cancel()
            if thread.ident is None:
                with self._lock:
                    self._threads -= 1
            raise

    def _work(self) -> None:
        _local.is_request_thread = True
        while True:
            with self._lock:
                deadline = time.monotonic() + _IDLE_SECONDS
                while not self._waiting:
                    self._idle += 1
                    self._condition.wait(_IDLE_SECONDS)
                    self._idle -= 1
                    if not self._waiting and (self._finished or time.monotonic() >= deadline):
                        self._threads -= 1
                        return
                request = self._waiting.popleft()
            request.run()
            del request


_pool = _Pool()


def _forget() -> None:
    """Start again in a forked child, which has none of its parent's threads."""
    global _ending, _pool
    _ending = threading.Lock()
    _pool = _Pool()
    _local.is_request_thread = False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def on_request_thread() -> bool:
    """Whether the calling thread is a request thread, which makes its calls itself."""
    return getattr(_local, "is_request_thread", False)


def start(call: Callable[[], Result]) -> Request[Result]:
    """Begin a call on another thread; on a request thread, make it here."""
    request = Request(call)
    if on_request_thread():
        request.run()
    else:
        _pool.start(request)
    return request


def within(seconds: float, call: Callable[[], Result]) -> Result:
    """Make a call on a thread of its own. TimeoutError: it takes longer; it continues until it or the process ends."""
    request = Request(call)
    threading.Thread(target=request.run, name="ags1-limited", daemon=True).start()
    return request.result(seconds)


def in_order(
    function: Callable[[Item], Result], items: Iterable[Item], *, at_once: int | Callable[[], int]
) -> Generator[Result, None, None]:
    """Apply a function to items on request threads; yield the results in the order of the items.

    At most `at_once` calls run or have results that were not yielded yet; a callable is called before each to get that
    number. Closing the generator, or an error, cancels the calls that have not begun. The others continue, because an
    interrupted caller must not wait for a stalled request. So `function` must write into no memory but its own.
    """
    pending: deque[Request[Result]] = deque()
    remaining = iter(items)
    ended = False
    try:
        while True:
            most = at_once() if callable(at_once) else at_once
            while not ended and len(pending) < max(1, most):
                try:
                    item = next(remaining)
                except StopIteration:
                    ended = True
                    break
                pending.append(start(lambda item=item: function(item)))  # type: ignore[misc]
            if not pending:
                return
            yield pending.popleft().result()
    finally:
        for request in pending:
            request.cancel()
