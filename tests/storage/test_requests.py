"""Requests run on other threads: in order, bounded, interruptible, and never in the way of a process's end."""

from __future__ import annotations

import threading

import pytest

from ags1.storage import in_order, start
from tests.checks import HANG_SECONDS, run_python


def test_results_come_in_the_order_of_the_items() -> None:
    gates = [threading.Event() for _ in range(4)]

    def work(index: int) -> int:
        assert gates[index].wait(HANG_SECONDS)
        return index * index

    results = in_order(work, range(4), at_once=4)
    for gate in reversed(gates):
        gate.set()
    assert list(results) == [0, 1, 4, 9]


@pytest.mark.parametrize("most", [1, 3])
def test_no_more_than_allowed_is_under_way(most: int) -> None:
    lock = threading.Lock()
    running, highest = 0, 0

    def work(index: int) -> int:
        nonlocal running, highest
        with lock:
            running += 1
            highest = max(highest, running)
        with lock:
            running -= 1
        return index

    assert list(in_order(work, range(100), at_once=most)) == list(range(100))
    assert highest <= most


def test_an_error_comes_at_its_place_and_ends_the_rest() -> None:
    begun: list[int] = []

    def work(index: int) -> int:
        begun.append(index)
        if index == 3:
            raise OSError(5, "broken")
        return index

    results = in_order(work, range(1000), at_once=2)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(OSError, match="broken"):
        next(results)
    assert len(begun) < 10


def test_a_result_can_be_asked_for_again() -> None:
    assert [request.result() for request in [start(lambda: 5)] * 2] == [5, 5]


def test_ctrl_c_reaches_whoever_waits_for_a_stalled_request() -> None:
    """The threat: a server that does not reply keeps the terminal."""
    shown = run_python(
        """
        import os, signal, threading
        from ags1.storage import start
        stalled = threading.Event()
        request = start(stalled.wait)
        main = threading.main_thread().ident
        waits = threading.Event()

        def interrupt():
            waits.wait()
            signal.pthread_kill(main, signal.SIGINT)

        threading.Thread(target=interrupt).start()
        try:
            waits.set()
            request.result()
        except KeyboardInterrupt:
            print("interrupted")
        """
    )
    # And the process ended, although the request is still under way.
    assert shown.split() == ["interrupted"]


def test_ctrl_c_is_noticed_although_another_thread_takes_the_signal() -> None:
    """The threat: the wait does not end. A signal that comes just before a wait begins has the same effect."""
    shown = run_python(
        """
        import os, signal, threading
        from ags1.storage import start
        stalled, waits = threading.Event(), threading.Event()

        def interrupt():
            waits.wait()
            os.kill(os.getpid(), signal.SIGINT)

        request = start(stalled.wait)
        threading.Thread(target=interrupt).start()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            waits.set()
            request.result()
        except KeyboardInterrupt:
            print("interrupted")
        """
    )
    assert shown.split() == ["interrupted"]


def test_an_interrupt_while_a_thread_starts_reaches_the_caller() -> None:
    """The threat: it is taken for a lack of threads, and the caller goes on waiting for a server that is stalled."""
    # In a process of its own: where earlier tests left 64 idle threads, none would be started.
    shown = run_python(
        """
        import threading
        from ags1.storage import start
        begin = threading.Thread.start

        def interrupted(self):
            begin(self)
            raise KeyboardInterrupt

        release = threading.Event()
        busy = start(release.wait)
        threading.Thread.start = interrupted
        try:
            start(release.wait)
        except KeyboardInterrupt:
            print("interrupted")
        threading.Thread.start = begin
        release.set()
        print(busy.result(), start(lambda: "and on").result())
        """
    )
    assert shown.split("\n") == ["interrupted", "True and on", ""]


def test_idle_threads_end_and_a_child_begins_with_none() -> None:
    shown = run_python(
        """
        import os
        from ags1.storage import start
        assert start(lambda: 1).result() == 1
        child = os.fork()
        if child == 0:
            ok = start(lambda: 2).result() == 2
            os._exit(0 if ok else 1)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """
    )
    assert shown.split() == ["0"]


def test_a_request_of_the_parent_is_refused_in_a_child() -> None:
    """The threat: the child waits for a thread that it does not have."""
    shown = run_python(
        """
        import os, threading
        from ags1.storage import start
        release = threading.Event()
        request = start(release.wait)
        child = os.fork()
        if child == 0:
            try:
                request.result()
            except OSError as error:
                os._exit(0 if "before the fork" in str(error) else 1)
            os._exit(2)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        release.set()
        print(code, request.result())
        """
    )
    assert shown.split() == ["0", "True"]


def test_what_a_call_holds_is_let_go_of_when_it_is_over() -> None:
    class Held:
        pass

    import weakref

    held = Held()
    known = weakref.ref(held)
    request = start(lambda held=held: id(held))  # type: ignore[misc]
    del held
    request.result()
    assert known() is None


def test_the_number_of_threads_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    begin, begun = threading.Thread.start, []

    def counted(self: threading.Thread) -> None:
        begun.append(self)
        begin(self)

    monkeypatch.setattr(threading.Thread, "start", counted)
    release = threading.Event()
    requests = [start(release.wait) for _ in range(200)]
    release.set()
    assert all(request.result() for request in requests)
    # Idle ones of earlier tests took the others.
    assert len(begun) <= 64


def test_more_calls_than_threads_may_each_wait_for_another() -> None:
    def outer(number: int) -> int:
        return sum(in_order(lambda each: each * number, range(3), at_once=3)) + start(lambda: number).result()

    assert list(in_order(outer, range(500), at_once=200)) == [4 * number for number in range(500)]
