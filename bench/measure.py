"""The harness: subjects that take turns, and ratios of what they took.

A machine changes its speed by the minute, and neighbours change it by the second. So nothing here is timed alone: all
subjects of a question run in every round, in one process, each round in the opposite order of the one before, so that
drift and what one leaves behind in the caches hit all alike::

    round 0   floor  ags1  peer
    round 1   peer   ags1  floor
    round 2   floor  ags1  peer          until the ratios stand still or the time is up

A figure is the ratio of the medians of two subjects over the same rounds. Its interval is a bootstrap over rounds:
both subjects are resampled together, so drift common to both cancels there too.
"""

from __future__ import annotations

import os
import platform
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

CONFIDENCE = 0.9
RESAMPLES = 1000
PRECISION = 0.01
"""Half-width of a ratio's interval at which more rounds would only cost time."""

Clock = Callable[[], float]
Kind = Literal["floor", "peer", "reference"]


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


@dataclass(frozen=True)
class Ratio:
    """A ratio of medians with its bootstrap interval."""

    value: float
    low: float
    high: float

    def inverse(self) -> Ratio:
        """The ratio the other way round."""
        return Ratio(1 / self.value, 1 / self.high, 1 / self.low)


def ratio_of_medians(
    above: Sequence[float],
    below: Sequence[float],
    *,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
    seed: int = 1,
) -> Ratio:
    """Median of `above` over median of `below`, for paired samples.

    Parameters
    ----------
    above, below
        Seconds of the same rounds, in order.
    confidence
        Share of the resampled ratios that the interval holds.
    resamples
        How many times the rounds are drawn again, with replacement.
    seed
        Of the generator: the same samples always give the same interval.
    """
    if len(above) != len(below) or not above:
        raise ValueError(f"{len(above)} and {len(below)} samples are no pairs")
    value = statistics.median(above) / statistics.median(below)
    count = len(above)
    if count < 3:
        ratios = [a / b for a, b in zip(above, below, strict=True)]
        return Ratio(value, min(ratios), max(ratios))
    generator = random.Random(seed)
    drawn = []
    for _ in range(resamples):
        rounds = generator.choices(range(count), k=count)
        drawn.append(statistics.median([above[i] for i in rounds]) / statistics.median([below[i] for i in rounds]))
    drawn.sort()
    tail = (1 - confidence) / 2
    return Ratio(value, drawn[int(tail * resamples)], drawn[min(resamples - 1, int((1 - tail) * resamples))])


def spread(samples: Sequence[float]) -> float:
    """Interquartile range."""
    if len(samples) < 2:
        return 0.0
    first, _, third = statistics.quantiles(samples, n=4, method="inclusive")
    return third - first


@dataclass
class Run:
    """What the subjects took, round by round."""

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

    def fastest(self, *names: str) -> str:
        """Whichever of the subjects has the lowest median."""
        return min(names, key=self.median)

    def time_ratio(self, name: str, other: str) -> Ratio:
        """Time of one subject over the time of another."""
        return ratio_of_medians(self.seconds[name], self.seconds[other])

    def speed_ratio(self, name: str, other: str) -> Ratio:
        """Speed of one subject over the speed of another."""
        return ratio_of_medians(self.seconds[other], self.seconds[name])


def interleave(
    subjects: Mapping[str, Subject],
    *,
    seconds: float,
    min_rounds: int = 5,
    max_rounds: int = 200,
    warm_up: int = 1,
    clock: Clock = time.perf_counter,
) -> Run:
    """Run all subjects in turn, round after round.

    Parameters
    ----------
    subjects
        By name; the first is the one that the others are compared with when the precision is judged.
    seconds
        Time to spend on rounds. They end earlier when every ratio to the first subject is known to `PRECISION`.
    min_rounds, max_rounds
        Bounds on the number of rounds, whatever the time.
    warm_up
        Rounds that run first and count for nothing.
    clock
        Answers seconds; a test brings its own.
    """
    names = list(subjects)
    run = Run({name: [] for name in names})
    for _ in range(warm_up):
        for name in names:
            _timed(subjects[name], clock)
    began = clock()
    check_at = min_rounds
    while True:
        for name in names if run.rounds % 2 == 0 else reversed(names):
            run.seconds[name].append(_timed(subjects[name], clock))
        done = run.rounds
        if done >= max_rounds or (done >= min_rounds and clock() - began >= seconds):
            return run
        if done >= check_at:
            if len(names) > 1 and all(_is_precise(run.time_ratio(names[0], name)) for name in names[1:]):
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


def _is_precise(ratio: Ratio) -> bool:
    return (ratio.high - ratio.low) / 2 <= PRECISION * ratio.value


@dataclass(frozen=True)
class Figure:
    """One line of the result table: ags1 beside its floor or a peer.

    Attributes
    ----------
    question
        What was asked, in words.
    kind
        Whether the reference is a floor (nothing of this kind can be faster), a peer (what a user would take instead)
        or just a reference.
    measure
        What `value` is: "speed" (ags1 over the reference, more is better), "time" (less is better), or an absolute
        difference in "ms" or "MiB" (less is better).
    value, low, high
        The figure and its interval.
    bound, target
        What was promised: "at least" or "at most" so much; None where nothing was.
    met
        Whether `value` keeps the promise; None without a target.
    certain
        Whether the whole interval is on the same side of the target.
    ratio
        Time of ags1 over time of the reference (bytes, for memory), whatever `measure` is.
    ratio_of_best
        The same of the fastest rounds of each: where it is far from `ratio`, something else used the machine.
    """

    question: str
    subject: str
    reference: str
    kind: Kind
    measure: str
    value: float
    low: float
    high: float
    bound: str | None
    target: float | None
    met: bool | None
    certain: bool | None
    ratio: float
    ratio_of_best: float | None = None
    subject_seconds: float | None = None
    subject_spread: float | None = None
    reference_seconds: float | None = None
    reference_spread: float | None = None
    subject_gbps: float | None = None
    reference_gbps: float | None = None
    subject_text: str = ""
    reference_text: str = ""
    rounds: int = 0
    nbytes: int | None = None
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """The fields, for pytest-benchmark's ``extra_info``."""
        return asdict(self)


def judge(
    value: float, low: float, high: float, bound: str | None, target: float | None
) -> tuple[bool | None, bool | None]:
    """Whether a target is met, and whether the interval leaves no doubt of that."""
    if target is None or bound is None:
        return None, None
    if bound not in ("at least", "at most"):
        raise ValueError(f"bound must be 'at least' or 'at most', not {bound!r}")
    met = value >= target if bound == "at least" else value <= target
    doubtful = low < target < high
    return met, not doubtful


def figure(
    run: Run,
    question: str,
    reference: str,
    *,
    subject: str = "ags1",
    kind: Kind = "floor",
    measure: Literal["speed", "time", "ms"] = "speed",
    target: float | None = None,
    nbytes: int | None = None,
    calls: int | None = None,
    note: str = "",
) -> Figure:
    """Make the figure that compares two subjects of a run.

    Parameters
    ----------
    target
        "speed": at least this; "time" and "ms": at most this.
    nbytes
        Bytes that each call works on, for throughput.
    calls
        Operations in one call, for operations per second.
    """
    mine, theirs = run.seconds[subject], run.seconds[reference]
    time_ratio = run.time_ratio(subject, reference)
    if measure == "speed":
        bound, shown = "at least", run.speed_ratio(subject, reference)
    elif measure == "time":
        bound, shown = "at most", time_ratio
    else:
        bound, shown = "at most", _difference_ms(mine, theirs)
    met, certain = judge(shown.value, shown.low, shown.high, bound, target)
    return Figure(
        question=question,
        subject=subject,
        reference=reference,
        kind=kind,
        measure=measure,
        value=shown.value,
        low=shown.low,
        high=shown.high,
        bound=bound if target is not None else None,
        target=target,
        met=met,
        certain=certain,
        ratio=time_ratio.value,
        ratio_of_best=min(mine) / min(theirs),
        subject_seconds=statistics.median(mine),
        subject_spread=spread(mine),
        reference_seconds=statistics.median(theirs),
        reference_spread=spread(theirs),
        subject_gbps=None if nbytes is None else nbytes / statistics.median(mine) / 1e9,
        reference_gbps=None if nbytes is None else nbytes / statistics.median(theirs) / 1e9,
        subject_text=describe(mine, nbytes, calls),
        reference_text=describe(theirs, nbytes, calls),
        rounds=run.rounds,
        nbytes=nbytes,
        note=note,
    )


def _difference_ms(mine: Sequence[float], theirs: Sequence[float]) -> Ratio:
    """Difference of medians in milliseconds, with its bootstrap interval."""
    generator = random.Random(1)
    drawn = []
    for _ in range(RESAMPLES):
        rounds = generator.choices(range(len(mine)), k=len(mine))
        drawn.append(statistics.median([mine[i] for i in rounds]) - statistics.median([theirs[i] for i in rounds]))
    drawn.sort()
    tail = (1 - CONFIDENCE) / 2
    value = statistics.median(mine) - statistics.median(theirs)
    return Ratio(1e3 * value, 1e3 * drawn[int(tail * RESAMPLES)], 1e3 * drawn[int((1 - tail) * RESAMPLES)])


def describe(samples: Sequence[float], nbytes: int | None, calls: int | None = None) -> str:
    """A subject's own figure in words: throughput, operations a second, or time; spread as a share of the median."""
    median = statistics.median(samples)
    share = f"±{100 * spread(samples) / median / 2:.0f}%"
    if calls is not None:
        return f"{median / calls * 1e6:.3g} µs each {share}"
    if nbytes is not None:
        return f"{nbytes / median / 1e9:.2f} GB/s {share}"
    return f"{median * 1e3:.3g} ms {share}"


def memory_figure(question: str, reference: str, mine: int, theirs: int, *, target: float, note: str = "") -> Figure:
    """Make the figure of two peak memories in bytes; the target is on the difference, in MiB."""
    value = (mine - theirs) / (1 << 20)
    met, _ = judge(value, value, value, "at most", target)
    return Figure(
        question=question,
        subject="ags1",
        reference=reference,
        kind="reference",
        measure="MiB",
        value=value,
        low=value,
        high=value,
        bound="at most",
        target=target,
        met=met,
        certain=True,
        ratio=mine / theirs,
        subject_text=f"{mine / (1 << 20):.0f} MiB",
        reference_text=f"{theirs / (1 << 20):.0f} MiB",
        rounds=1,
        note=note,
    )


class Replay:
    """A timer for pytest-benchmark that tells again what was measured here.

    pytest-benchmark times one function in bulk, and what counts here is taking turns. So the harness measures, and
    pytest-benchmark records: it reads this timer before and after each round of an empty function.
    """

    def __init__(self) -> None:
        self._now = 0.0
        self._pending: list[float] = []
        self._running = False

    def load(self, samples: Sequence[float]) -> None:
        """Set the durations of the rounds to come."""
        self._pending = list(samples)
        self._running = False

    def __call__(self) -> float:
        """Return the time: alternately the start and the end of a round."""
        if self._running and self._pending:
            self._now += self._pending.pop(0)
        self._running = not self._running
        return self._now


REPLAY = Replay()


def cpu_model() -> str:
    """Name of the CPU as the system gives it."""
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def machine() -> dict[str, Any]:
    """What the figures were measured on. Without names of users, hosts or directories."""
    import ags1
    from bench import settings

    backend = ags1.backend()
    return {
        "cpu_model": cpu_model(),
        "cores": settings.cpus(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)),
        "kernel": f"{platform.system()} {platform.release()}",
        "transparent_hugepages": _first_line("/sys/kernel/mm/transparent_hugepage/enabled"),
        "file_system": file_system(settings.load().directory or Path(tempfile.gettempdir())),
        "openssl": backend["openssl_version"],
        "linkage": backend["linkage"],
        "aes_gcm": backend["aes_gcm"],
        "python_version": platform.python_version(),
        "cryptography": _cryptography(),
        "ags1": ags1.__version__,
    }


def file_system(directory: Path) -> str:
    """Type of the file system that a directory is on, such as ext4 or tmpfs."""
    try:
        mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return "unknown"
    real = directory.resolve()
    found = [(len(mount[1]), mount[2]) for mount in mounts if real.is_relative_to(mount[1])]
    return max(found, default=(0, "unknown"))[1]


def _first_line(path: str) -> str | None:
    try:
        with open(path) as file:
            return file.readline().strip()
    except OSError:
        return None


def _cryptography() -> str | None:
    try:
        import cryptography
        from cryptography.hazmat.backends.openssl.backend import backend
    except ImportError:
        return None
    return f"{cryptography.__version__} ({backend.openssl_version_text()})"
