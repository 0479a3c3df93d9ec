"""Units in, outcomes out: the work of a room on its files, whoever runs it.

    units --> batches: a large unit alone, small ones together --> Work --> an outcome for each unit, in order

:mod:`ags1.work.threads` runs it on threads of this process, and Spark in its tasks.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

from ags1.errors import Ags1Error
from ags1.storage import in_order

Item = TypeVar("Item")
Result = TypeVar("Result")

BATCH_UNITS, _BATCH_BYTES = 64, 4 << 20
_REQUESTS = 32
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


class Work:
    """Work on units, which threads share. A room derives its own."""

    collected: tuple[type[Exception], ...] = (OSError, Ags1Error, ValueError, EOFError)
    """Errors of a unit; other exceptions are faults of the program."""

    def size_of(self, unit: Any) -> int:
        """Bytes of a unit."""
        size: int = unit.size
        return size

    def is_small(self, unit: Any) -> bool:
        """Whether a unit is done together with others."""
        return False

    def is_brief(self, batch: list[Any]) -> bool:
        """Whether a batch is mostly calls of Python and of the system, which several threads do no faster than one."""
        return False

    def one(self, unit: Any, threads: int | None, advance: Advance) -> Any:
        """Do one unit on so many threads, and return its result."""
        raise NotImplementedError

    def together(self, units: list[Any]) -> Sequence[Any]:
        """Do small units; return the result or the error of each."""
        raise NotImplementedError

    def batches(self, units: Iterable[Any]) -> Iterator[list[Any]]:
        """Group units: large ones alone, small ones together."""
        batch: list[Any] = []
        total = 0
        for unit in units:
            size, is_small = self.size_of(unit), self.is_small(unit)
            if batch and (not is_small or total + size > _BATCH_BYTES or len(batch) >= BATCH_UNITS):
                yield batch
                batch, total = [], 0
            if is_small:
                batch.append(unit)
                total += size
            else:
                yield [unit]
        if batch:
            yield batch

    def outcomes(self, batch: list[Any], threads: int | None, tell: Callable[[int], object]) -> list[UnitOutcome]:
        """Do a batch; a fault of a unit becomes its outcome."""
        started = time.monotonic()
        are_small, advance = self.is_small(batch[0]), Advance(self.size_of(batch[0]), tell)
        try:
            found = self.together(batch) if are_small else [self.one(batch[0], threads, advance)]
        except self.collected as error:
            # Of the target or of the cipher, if there are several.
            found = [error] * len(batch)
        share = (time.monotonic() - started) / len(batch)
        sizes = map(self.size_of, batch) if are_small else [advance.untold]
        return [
            UnitOutcome(unit, None, each, share, untold)
            if isinstance(each, Exception)
            else UnitOutcome(unit, each, None, share, untold)
            for unit, each, untold in zip(batch, found, sizes, strict=True)
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
                    yield from (UnitOutcome(unit, error=fatal, untold=self.size_of(unit)) for unit in left)


class OneByOne(Work):
    """A function for one unit: it is called as :meth:`Work.one`, by several threads at once."""

    def __init__(
        self, function: Callable[[Any, int | None, Advance], Any], size_of: Callable[[Any], int] = attrgetter("size")
    ) -> None:
        self._function, self._size_of = function, size_of

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
        return in_order(attempt, items, at_once=_REQUESTS)
    return map(attempt, items)
