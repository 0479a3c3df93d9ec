"""Work on threads of this process that end with the call."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeAlias

from ags1.core.blocks import usable_cpus
from ags1.storage import Location, files_at_once
from ags1.support.arguments import one_of
from ags1.support.parallel import in_parallel
from ags1.work.units import UnitOutcome, Work, is_fatal

# A thread that works for less than this part of the time waits for something.
_WAITS = 4

Progress: TypeAlias = Callable[[int, int | None], object]


class _Stopped(Exception):
    """Other work has failed, or the result is no longer needed."""


@dataclass(frozen=True)
class Threads:
    """How many units are done at once, each on how many threads.

    A unit of more than `alone` bytes is done by itself, on as many threads as there are units otherwise. `ahead` is the
    number of batches that run, wait, or have outcomes that were not taken yet, for each of those at once.
    """

    at_once: int
    each: int | None = 1
    alone: int | None = None
    ahead: int = 2

    @classmethod
    def of_files(
        cls,
        places: Iterable[Location],
        sizes: Sequence[int],
        threads: int | None,
        *,
        usual: int | None = None,
        written: bool = True,
    ) -> Threads:
        """For files of these sizes, which are read and `written` at these places.

        `threads` is what the caller said; `usual` is how many local files are worked on at once, by default one for
        each of the threads.
        """
        cpus = usable_cpus() if threads is None else threads
        usual = cpus if usual is None else usual
        at_once = max((files_at_once(each, sizes, usual, written=written) for each in places), default=1)
        at_once = max(1, min(len(sizes), at_once))
        return cls(at_once, threads if at_once == 1 else max(1, cpus // at_once))


class SharedProgress:
    """Progress over all units; the callback is called by one thread at a time, and its exception ends all of the work.

    `done` of `total` are done already.
    """

    def __init__(self, progress: Progress | None, total: int | None, done: int = 0) -> None:
        self._progress, self._total, self._done = progress, total, done
        self._error: BaseException | None = None
        self._is_stopped = False
        self._lock = threading.Lock()
        if progress is not None:
            progress(done, total)

    def advance(self, count: int) -> None:
        """So many more bytes are done."""
        with self._lock:
            self._tell(count)

    def within(self, count: int) -> None:
        """As :meth:`advance`, for units under way. After the end of the work, no progress is told."""
        with self._lock:
            self.check()
            try:
                self._tell(count)
            except BaseException as error:
                self.fail(error)
                raise _Stopped from error

    def _tell(self, count: int) -> None:
        self._done += count
        if self._progress is not None:
            self._progress(self._done, self._total)

    def check(self) -> None:
        """End the work of this thread, if all of it has ended."""
        if self._is_stopped:
            raise _Stopped

    def stop(self) -> None:
        """Make all work end: the next report of progress within a unit raises."""
        self._is_stopped = True

    def fail(self, error: BaseException) -> None:
        """Make all work end because of an error, if it is the first one."""
        if self._error is None:
            self._error = error
        self.stop()

    def raise_first(self) -> None:
        """Raise the error that has ended the work."""
        if self._error is not None:
            raise self._error from None


def run_on_threads(
    work: Work, units: Iterable[Any], threads: Threads, progress: SharedProgress, *, on_error: str = "fail"
) -> Generator[UnitOutcome, None, None]:
    """Yield the outcomes of units, in order; with one at once, no thread is started.

    The first batches are done on the calling thread as long as they are brief: several threads would wait for the GIL.

    Units are taken on the calling thread, a bounded number ahead of the outcomes. With ``on_error="fail"`` the first
    failure is raised. With "collect" a failure is an outcome, unless every other unit would fail as well (a full disk,
    a KMS that refuses all calls). After an error, or when the iterator is closed, no unit is started; those under way
    end when they next report progress.
    """
    one_of(on_error, ("fail", "collect"), "on_error")

    def ends(error: Exception | None) -> bool:
        return error is not None and (on_error == "fail" or is_fatal(error))

    def is_large(batch: list[Any]) -> bool:
        return threads.alone is not None and work.size_of(batch[0]) > threads.alone

    def outcomes(batch: list[Any]) -> list[UnitOutcome]:
        progress.check()
        found = work.outcomes(batch, threads.at_once if is_large(batch) else threads.each, progress.within)
        for each in found:
            if each.error is not None and ends(each.error):
                progress.fail(each.error)
        return found

    def batches() -> Generator[list[UnitOutcome], None, None]:
        waiting = work.batches(units)
        for batch in waiting:
            if threads.at_once > 1 and not work.is_brief(batch):
                waiting = chain([batch], waiting)
                break
            began, worked = time.monotonic(), time.thread_time()
            done = outcomes(batch)
            waits = time.thread_time() - worked < (time.monotonic() - began) / _WAITS
            yield done
            if threads.at_once > 1 and waits:
                # As for a disk behind a network.
                break
        found = in_parallel(outcomes, waiting, threads.at_once, ahead=threads.ahead, alone=is_large, stop=progress.stop)
        with closing(found):
            yield from found

    with closing(batches()) as running:
        try:
            for each in running:
                for outcome in each:
                    if ends(outcome.error):
                        raise outcome.error  # type: ignore[misc]
                    yield outcome
                    progress.advance(outcome.untold)
        except _Stopped:
            progress.raise_first()
            raise
