"""Threads that wait for requests, so that the thread that wants the result can be interrupted.

    caller --start(function)--> queue --> one of at most 64 daemon threads
       |                                        |
       +-- result(): waits on a lock <----------+      Ctrl-C is handled while it waits

A call into obstore handles a signal only when it returns, and the end of a process joins the threads of
concurrent.futures. Neither holds here: whoever waits can be interrupted, and a request that is stalled keeps no process
alive. A call that begins on one of these threads is made there at once: else all threads could wait for each other.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable

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
# An idle thread costs nothing but its stack; one that ends costs the next request a tenth of a millisecond.
_IDLE_SECONDS = 5.0
_local = threading.local()
# Held for a moment, when a call begins, is over or is cancelled.
_ending = threading.Lock()


class Request(Generic[Result]):
    """A call under way on another thread."""

    __slots__ = ("_after", "_call", "_done", "_error", "_over", "_process", "_value")

    def __init__(self, call: Callable[[], Result]) -> None:
        self._call: Callable[[], Result] | None = call
        self._value: Result | None = None
        self._error: BaseException | None = None
        self._after: Callable[[], object] | None = None
        self._over = False
        self._process = os.getpid()
        self._done = threading.Lock()
        self._done.acquire()

    def run(self) -> None:
        """Make the call, unless nobody wants it any more."""
        with _ending:
            call, self._call = self._call, None
        try:
            if call is not None:
                self._value = call()
        except BaseException as error:
            self._error = error
        finally:
            # What the call holds (memory, for example) ends with it, not with the last look at its result.
            del call
            with _ending:
                self._over = True
                after, self._after = self._after, None
            if after is not None:
                # Nobody asks for it any more.
                self._value = None
                after()
            self._done.release()

    def cancel(self, after: Callable[[], object] | None = None) -> None:
        """Do not begin the call, if it has not begun; nobody will ask for its result.

        `after` is called when the call is over, at once if it never begins: on the thread that makes the call, or here.
        """
        if sys.is_finalizing():
            # The threads are gone, and one of them may have held the lock.
            return
        with _ending:
            begun, self._call = self._call is None, None
            if begun and not self._over:
                self._after = after
                return
        if after is not None:
            after()

    def wait(self) -> None:
        """Return when the call is over or was cancelled.

        OSError: it was under way when this process was forked, so that the thread that makes it is the parent's; or the
        interpreter ends, and the thread has ended before.
        """
        if self._process != os.getpid() and not self._over:
            raise OSError("this request was begun by the process that this one was forked from: begin it again")
        if sys.is_finalizing() and not self._over:
            raise OSError("the interpreter ends, and with it the thread of this request")
        with self._done:
            pass

    def ready(self) -> bool:
        """Whether the call is over."""
        return self._over

    def result(self) -> Result:
        """Wait for the call; return what it returned, raise what it raised."""
        self.wait()
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
                    # There are others to do it.
                    return
                self._waiting.remove(request)
            raise
        except BaseException:
            # An interrupt, while the new thread is waited for; the caller never gets to know of the request.
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
    """Start over in a forked child: it has none of its parent's threads."""
    global _ending, _pool
    _ending = threading.Lock()
    _pool = _Pool()
    _local.is_request_thread = False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def on_request_thread() -> bool:
    """Whether the calling thread is one of these: then it makes its calls itself."""
    return getattr(_local, "is_request_thread", False)


def start(call: Callable[[], Result]) -> Request[Result]:
    """Begin a call on another thread; on one of these threads, make it."""
    request = Request(call)
    if on_request_thread():
        request.run()
    else:
        _pool.start(request)
    return request


def in_order(
    function: Callable[[Item], Result], items: Iterable[Item], *, at_once: int | Callable[[], int]
) -> Generator[Result, None, None]:
    """Apply a function to items on request threads; yield the results in the order of the items.

    `at_once` calls may be under way or waiting to be fetched; a callable is asked before each. Closing the generator,
    or an error, cancels what has not begun. What has begun ends by itself: a stalled request must not keep an
    interrupted caller waiting. So `function` must write into no memory but its own.
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
