"""Actors that change one dataset, one step at a time, in every order.

Each actor runs the real code in a thread of its own, and stops at gates: the calls that others can see or that look at
what others did. A schedule says who goes on at each stop. :func:`explore` tries all schedules, depth first.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import ags1.dataset.maintenance as expiry
import ags1.dataset.transaction as transaction

__all__ = ["explore", "run_schedule"]

# Where an actor stops: the look at the last version, the commit, the listing and the removal of expire.
GATES = [
    (transaction, "read_latest"),
    (transaction, "publish"),
    (expiry, "list_files"),
    (expiry, "remove"),
]

_current = threading.local()


class _Actor:
    """One actor; it goes on only when it is told to."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._go, self._stopped = threading.Semaphore(0), threading.Semaphore(0)
        self.result: Any = None
        self.error: BaseException | None = None
        self.over = False
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self._thread.start()

    def _run(self, work: Callable[[], Any]) -> None:
        _current.actor = self
        self._go.acquire()
        try:
            self.result = work()
        except BaseException as error:
            self.error = error
        self.over = True
        self._stopped.release()

    def gate(self) -> None:
        """Stop, and wait for the next turn."""
        self._stopped.release()
        self._go.acquire()

    def step(self) -> None:
        """Go on to the next gate or the end."""
        self._go.release()
        self._stopped.acquire()
        if self.over:
            self._thread.join()


@contextmanager
def _gates() -> Iterator[None]:
    originals = [(module, name, getattr(module, name)) for module, name in GATES]

    def gated(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            actor = getattr(_current, "actor", None)
            if actor is not None:
                actor.gate()
            return function(*arguments, **named)

        return call

    for module, name, function in originals:
        setattr(module, name, gated(function))
    try:
        yield
    finally:
        for module, name, function in originals:
            setattr(module, name, function)


def run_schedule(works: list[Callable[[], Any]], choose: Callable[[list[int]], int]) -> list[_Actor]:
    """Run actors; `choose` says which of those that are not over goes on."""
    with _gates():
        actors = [_Actor(work) for work in works]
        while waiting := [index for index, each in enumerate(actors) if not each.over]:
            actors[choose(waiting)].step()
        return actors


def explore(
    scenario: Callable[[], tuple[list[Callable[[], Any]], Callable[[list[_Actor]], None]]], interruptions: int
) -> int:
    """Run a scenario under every schedule that interrupts actors at most so many times; return how many there were.

    An actor is interrupted where another one goes on although the first is not over. Nearly all faults of protocols
    need two or three interruptions; with as many as there are stops, this tries every order.

    Parameters
    ----------
    scenario : callable
        Makes the actors anew, and what checks the end of a run.
    """
    prefix: list[int] = []
    count = 0
    while True:
        works, check = scenario()
        schedule = _Schedule(prefix, interruptions)
        actors = run_schedule(works, schedule.choose)
        try:
            check(actors)
        except BaseException as error:
            raise AssertionError(f"schedule {schedule.taken}: {error!r}") from error
        count += 1
        untried = schedule.untried
        while untried and not untried[-1]:
            untried.pop()
        if not untried:
            return count
        prefix = [*schedule.taken[: len(untried) - 1], untried[-1][0]]


class _Schedule:
    """One schedule: what a prefix says, then each actor to its end; and what could be chosen otherwise."""

    def __init__(self, prefix: list[int], interruptions: int) -> None:
        self._prefix = prefix
        self._left = interruptions
        self.taken: list[int] = []
        self.untried: list[list[int]] = []

    def choose(self, waiting: list[int]) -> int:
        """Who goes on."""
        here = self.taken[-1] if self.taken and self.taken[-1] in waiting else None
        options = waiting if here is None else [here, *(each for each in waiting if each != here and self._left)]
        position = len(self.taken)
        chosen = self._prefix[position] if position < len(self._prefix) else options[0]
        self._left -= here is not None and chosen != here
        self.taken.append(chosen)
        self.untried.append(options[options.index(chosen) + 1 :])
        return chosen
