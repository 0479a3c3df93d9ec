"""Units in, outcomes out: the work of a room on its files, whoever runs it.

    units --> batches: a large unit alone, small ones together --> Work --> an outcome for each unit, in order

:func:`run_on_threads` runs it on threads of this process that end with the call, and Spark in its tasks.
"""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias, TypeVar

from ags1.core.blocks import usable_cpus
from ags1.errors import Ags1Error
from ags1.storage import REQUESTS_AT_ONCE, Location, files_at_once, in_order
from ags1.support.arguments import one_of
from ags1.support.parallel import in_parallel

Item = TypeVar("Item")
Result = TypeVar("Result")
Progress: TypeAlias = Callable[[int, int | None], object]

BATCH_UNITS, _BATCH_BYTES = 64, 4 << 20
# A thread that works for less than this part of the time waits for something.
_WAITS = 4
_FATAL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})


class UnitOutcome(NamedTuple):
    """The result of a unit, or its error. It can be pickled if the unit and the result can.

    `seconds` is the time it took; for units that are processed together, its share. `untold` are the bytes of it that
    no progress has told yet.
    """

    unit: Any
    result: Any = None
    error: Exception | None = None
    seconds: float = 0.0
    untold: int = 0


class Advance:
    """Progress within a unit, in any measure or in its bytes. It tells each byte once."""

    def __init__(self, size: int, tell: Callable[[int], object]) -> None:
        self._size = size
        self._tell = tell
        self.untold = size

    def __call__(self, done: int, total: int | None) -> None:
        """So much is done of a total; None if that is not known."""
        self.bytes(self._size * done // total if total else 0)

    def bytes(self, done: int) -> None:
        """So many bytes of the unit are done."""
        left = max(0, self._size - done)
        more, self.untold = max(0, self.untold - left), min(self.untold, left)
        self._tell(more)


class UnitBatch(NamedTuple):
    """Units that are done by one call: a large one, or small ones together. `sizes` are their bytes."""

    units: list[Any]
    sizes: list[int]
    are_small: bool


class Work:
    """Work on units, which threads share. A room derives its own."""

    collected: tuple[type[Exception], ...] = (OSError, Ags1Error, ValueError, EOFError)
    """Errors of a unit; other exceptions are faults of the program."""
    brief = 0
    """One thread does units of at most so many bytes on average; 0 for files in a store, where it would wait."""

    def size_of(self, unit: Any) -> int:
        """Bytes of a unit."""
        size: int = unit.size
        return size

    def is_small(self, unit: Any) -> bool:
        """Whether a unit is done together with others."""
        return getattr(unit, "small", False)

    def one(self, unit: Any, threads: int | None, advance: Advance) -> Any:
        """Do one unit on so many threads, and return its result."""
        raise NotImplementedError

    def together(self, units: list[Any]) -> Sequence[Any]:
        """Do small units; return the result or the error of each."""
        raise NotImplementedError

    def batches(self, units: Iterable[Any]) -> Iterator[UnitBatch]:
        """Group units: large ones alone, small ones together."""
        batch = UnitBatch([], [], True)
        for unit in units:
            size, is_small = self.size_of(unit), self.is_small(unit)
            is_full = sum(batch.sizes) + size > _BATCH_BYTES or len(batch.units) >= BATCH_UNITS
            if batch.units and (is_full or not is_small):
                yield batch
                batch = UnitBatch([], [], True)
            if not is_small:
                yield UnitBatch([unit], [size], False)
                continue
            batch.units.append(unit)
            batch.sizes.append(size)
        if batch.units:
            yield batch

    def outcomes(self, batch: UnitBatch, threads: int | None, tell: Callable[[int], object]) -> list[UnitOutcome]:
        """Do a batch; a fault of a unit becomes its outcome."""
        started = time.monotonic()
        units, sizes, are_small = batch
        advance = Advance(sizes[0], tell)
        try:
            found = self.together(units) if are_small else [self.one(units[0], threads, advance)]
        except self.collected as error:
            # Of the target or of the cipher, if there are several.
            found = [error] * len(units)
        share = (time.monotonic() - started) / len(units)
        return [
            UnitOutcome(unit, None, each, share, untold)
            if isinstance(each, Exception)
            else UnitOutcome(unit, each, None, share, untold)
            for unit, each, untold in zip(units, found, sizes if are_small else [advance.untold], strict=True)
        ]

    def in_turn(
        self, units: Iterable[Any], tell: Callable[[int], object], threads: int | None = 1
    ) -> Iterator[UnitOutcome]:
        """Do units on this thread, batch after batch.

        After an error that all others would have as well (:func:`is_fatal`), the others fail without being tried.
        """
        waiting = self.batches(units)
        for batch in waiting:
            fatal: Exception | None = None
            for outcome in self.outcomes(batch, threads, tell):
                if outcome.error is not None and is_fatal(outcome.error):
                    fatal = outcome.error
                yield outcome
            if fatal is not None:
                for left in waiting:
                    for unit, size in zip(left.units, left.sizes, strict=True):
                        yield UnitOutcome(unit, error=fatal, untold=size)


class OneByOne(Work):
    """A function for one unit: it is called as :meth:`Work.one`, by several threads at once."""

    def __init__(
        self,
        function: Callable[[Any, int | None, Advance], Any],
        size_of: Callable[[Any], int] = attrgetter("size"),
        *,
        brief: int = 0,
    ) -> None:
        self._function, self._size_of, self.brief = function, size_of, brief

    def size_of(self, unit: Any) -> int:
        """Bytes of a unit."""
        return self._size_of(unit)

    def one(self, unit: Any, threads: int | None, advance: Advance) -> Any:
        """Call the function."""
        return self._function(unit, threads, advance)


def is_fatal(error: BaseException) -> bool:
    """Whether all further units would fail for the same reason: a full disk, a key service that refuses all calls."""
    return getattr(error, "holds_for_all", False) or (isinstance(error, OSError) and error.errno in _FATAL)


def attempts(
    function: Callable[[Item], Result], items: Sequence[Item], *, remote: bool
) -> Iterator[Result | OSError | Ags1Error]:
    """Call a function for each item, many at once where each is a request; an error is returned as a result."""

    def attempt(item: Item) -> Result | OSError | Ags1Error:
        try:
            return function(item)
        except (OSError, Ags1Error) as error:
            return error

    if remote and len(items) > 1:
        return in_order(attempt, items, at_once=REQUESTS_AT_ONCE)
    return map(attempt, items)


# -- on threads of this process ------------------------------------------------------------------------------------


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

    def is_large(batch: UnitBatch) -> bool:
        return threads.alone is not None and batch.sizes[0] > threads.alone

    def is_brief(batch: UnitBatch) -> bool:
        # Several threads do such a batch no faster than one.
        return work.brief > 0 and sum(batch.sizes) <= len(batch.units) * work.brief

    def outcomes(batch: UnitBatch) -> list[UnitOutcome]:
        progress.check()
        found = work.outcomes(batch, threads.at_once if is_large(batch) else threads.each, progress.within)
        for each in found:
            if each.error is not None and ends(each.error):
                progress.fail(each.error)
        return found

    def batches() -> Generator[list[UnitOutcome], None, None]:
        waiting = work.batches(units)
        for batch in waiting:
            if threads.at_once > 1 and not is_brief(batch):
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
