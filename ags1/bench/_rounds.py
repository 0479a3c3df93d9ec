"""Subjects that take turns.

All subjects of a question run in every round, in one process, each round in the opposite order of the one before, so
that drift, and what one leaves behind in the caches, hit all alike::

    round 0   floor  mine  peer
    round 1   peer   mine  floor
    round 2   floor  mine  peer          until the ratios stand still or the time is up
"""

from __future__ import annotations

import math
import statistics
import time
from dataclasses import dataclass, field

from ags1.bench import _ratios
from ags1.bench._ratios import Ratio, ratio_of_medians

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    Clock = Callable[[], float]

PRECISION = 0.01
"""Half-width of a ratio's interval at which more rounds would only cost time."""
FEWEST = 5
"""Rounds below which an interval may be narrow by chance."""


class UndecidedWarning(UserWarning):
    """A comparison ended with an interval too wide to say anything: the machine was too busy, or the time too short."""


@dataclass(frozen=True)
class Subject:
    """Something that is timed.

    Attributes
    ----------
    call
        The work; what it returns is released inside the timed span, because its user would have to release it too.
    before
        Run untimed before each call: removes outputs, waits for the disk.
    after
        Run untimed after each call.
    clock
        Returns the seconds of one call itself, instead of being timed from here: a partner process does that.
    """

    call: Callable[[], object]
    before: Callable[[], object] | None = None
    after: Callable[[], object] | None = None
    clock: Callable[[], float] | None = None


@dataclass
class Run:
    """What the subjects took, round by round, in seconds."""

    seconds: dict[str, list[float]] = field(default_factory=dict)

    @property
    def rounds(self) -> int:
        """Number of rounds."""
        return len(next(iter(self.seconds.values()), []))

    def median(self, name: str) -> float:
        """Median seconds of a subject."""
        return statistics.median(self.seconds[name])

    def add_sum(self, name: str, *parts: str) -> None:
        """Add a subject that nobody ran: the sum of others, round by round."""
        self.seconds[name] = [sum(values) for values in zip(*(self.seconds[part] for part in parts), strict=True)]

    def extend(self, other: Run) -> None:
        """Add the rounds of another run of the same subjects."""
        for name, samples in other.seconds.items():
            self.seconds.setdefault(name, []).extend(samples)

    def fastest(self, *names: str) -> str:
        """Whichever of the subjects has the lowest median."""
        return min(names, key=self.median)

    def time_ratio(self, name: str, other: str, *, confidence: float = 0.9) -> Ratio:
        """Time of one subject over the time of another."""
        return ratio_of_medians(self.seconds[name], self.seconds[other], confidence=confidence)

    def speed_ratio(self, name: str, other: str, *, confidence: float = 0.9) -> Ratio:
        """Speed of one subject over the speed of another."""
        return self.time_ratio(other, name, confidence=confidence)


def interleave(
    subjects: Mapping[str, Subject],
    *,
    seconds: float,
    min_rounds: int = 5,
    max_rounds: int = 200,
    warm_up: int = 1,
    precision: float = PRECISION,
    confidence: float = 0.9,
    clock: Clock = time.perf_counter,
) -> Run:
    """Run all subjects in turn, round after round.

    Parameters
    ----------
    subjects
        By name; the first is the one that the others are compared with when the precision is judged.
    seconds
        Time to spend, warm-up included. Rounds end earlier when every ratio to the first subject is known to
        `precision`.
    min_rounds, max_rounds
        Bounds on the number of rounds, whatever the time.
    warm_up
        Rounds that run first and count for nothing.
    precision, confidence
        Rounds end when half of each interval is not wider than this share of its ratio.
    clock
        Answers seconds; a test brings its own.
    """
    names = list(subjects)
    run = Run({name: [] for name in names})
    began = clock()
    for _ in range(warm_up):
        for name in names:
            _timed(subjects[name], clock)
    check_at = max(min_rounds, FEWEST)
    while True:
        for name in names if run.rounds % 2 == 0 else reversed(names):
            run.seconds[name].append(_timed(subjects[name], clock))
        done = run.rounds
        if done >= max_rounds or (done >= min_rounds and clock() - began >= seconds):
            return run
        if done >= check_at:
            ratios = [run.time_ratio(names[0], name, confidence=confidence) for name in names[1:]]
            if ratios and all(ratio.precision <= precision for ratio in ratios):
                return run
            # The bootstrap takes time too: ask less often as the rounds go on.
            check_at = done + max(3, done // 3)


def _timed(subject: Subject, clock: Clock) -> float:
    if subject.before is not None:
        subject.before()
    if subject.clock is not None:
        taken = subject.clock()
    else:
        start = clock()
        subject.call()
        taken = clock() - start
    if subject.after is not None:
        subject.after()
    return taken


@dataclass(frozen=True)
class Comparison:
    """What came of comparing a subject with another.

    Attributes
    ----------
    ratio
        Time of the subject over the time of the other, with its interval: above 1 is slower.
    verdict
        "same", "faster", "slower" or "undecided", of the subject; see `ags1.bench.verdict`.
    run
        The samples: ``run.seconds["mine"]`` and ``run.seconds["other"]``, in the order of the rounds.
    threshold
        The smallest change that mattered.
    """

    ratio: Ratio
    verdict: str
    run: Run
    threshold: float

    @property
    def speed(self) -> Ratio:
        """Speed of the subject over the speed of the other: below 1 is slower."""
        return self.ratio.inverse()

    def to_json(self) -> dict[str, Any]:
        """Everything, for a file."""
        return {
            "ratio": self.ratio.value,
            "low": self.ratio.low,
            "high": self.ratio.high,
            "verdict": self.verdict,
            "threshold": self.threshold,
            "rounds": self.run.rounds,
            "samples": self.run.seconds,
        }


def compare(
    mine: Callable[[], object] | Subject,
    other: Callable[[], object] | Subject,
    *,
    seconds: float = 2.0,
    limit: float = 10.0,
    threshold: float = _ratios.THRESHOLD,
    margin: float | None = None,
    expected: float = 1.0,
    confidence: float = _ratios.CONFIDENCE,
    min_rounds: int = 15,
    clock: Clock = time.perf_counter,
) -> Comparison:
    """Compare what two subjects take, and go on as long as that is undecided; see `decide`.

    Parameters
    ----------
    mine, other
        The work, or a `Subject` with what comes before and after it.
    seconds
        Time for the first rounds.
    limit
        Time for all rounds: as long as the verdict is "undecided", the time is doubled, up to this.
    threshold, margin
        As of `ags1.bench.verdict`.
    expected
        The ratio of times that "no change" is, such as a stored one.
    confidence
        Of the interval.
    min_rounds
        Rounds that are run at least, however long they take.
    clock
        Answers seconds; a test brings its own.

    Returns
    -------
    Comparison
        With the verdict on `mine`.

    Raises
    ------
    ValueError
        A threshold or a time that makes no sense.
    """
    subjects = {
        name: each if isinstance(each, Subject) else Subject(each) for name, each in (("mine", mine), ("other", other))
    }
    margin = _ratios.margin_of(threshold) if margin is None else margin

    def measure(seconds: float, warm_up: int) -> Run:
        return interleave(
            subjects,
            seconds=seconds,
            min_rounds=min_rounds,
            warm_up=warm_up,
            precision=(threshold - margin) / 2,
            confidence=confidence,
            clock=clock,
        )

    return decide(
        measure,
        seconds=seconds,
        limit=limit,
        threshold=threshold,
        margin=margin,
        expected=expected,
        confidence=confidence,
        clock=clock,
    )


def decide(
    measure: Callable[[float, int], Run],
    *,
    seconds: float,
    limit: float,
    names: tuple[str, str] = ("mine", "other"),
    threshold: float = _ratios.THRESHOLD,
    margin: float | None = None,
    expected: float = 1.0,
    confidence: float = _ratios.CONFIDENCE,
    clock: Clock = time.perf_counter,
) -> Comparison:
    """Measure until the verdict is one, and believe that something moved if that is seen twice.

    What looks slower in one set of rounds may be a neighbour's work. So "slower" and "faster" stand only if a second,
    independent set says the same; otherwise it is undecided, and measured on.

    Parameters
    ----------
    measure
        ``measure(seconds, warm_up)`` returns new rounds of the two subjects, measured for about so long, best in new
        processes; `warm_up` is 1 the first time, else 0.
    seconds, limit, threshold, margin, expected, confidence, clock
        As of `compare`.
    names
        Of the two subjects in the runs.
    """
    if not (seconds >= 0 and limit >= 0 and math.isfinite(limit)):
        raise ValueError(f"seconds ({seconds}) and limit ({limit}) must be times")
    mine, other = names
    run = Run()

    def look(at: Run) -> tuple[Ratio, str]:
        found = at.time_ratio(mine, other, confidence=confidence)
        beside = Ratio(found.value / expected, found.low / expected, found.high / expected)
        return found, _ratios.verdict(beside, threshold=threshold, margin=margin)

    began, wanted = clock(), seconds
    while True:
        # One look after each doubling: who looks after every round will see a change by chance at last.
        run.extend(measure(wanted, 0 if run.seconds else 1))
        found, said = look(run)
        if said in ("slower", "faster"):
            again = measure(wanted, 0)
            confirmed = look(again)[1] == said
            run.extend(again)
            found, pooled = look(run)
            said = said if confirmed and pooled == said else "undecided"
        passed = clock() - began
        if said != "undecided" or passed >= limit:
            return Comparison(found, said, run, threshold)
        wanted = min(2 * wanted, limit - passed)
