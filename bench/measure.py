"""Figures: what a run of `ags1.bench` says about ags1 beside its floor or a peer, and whether a promise is kept."""

from __future__ import annotations

import platform
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from ags1 import bench
from ags1.bench import Run

CONFIDENCE = 0.9
"""Of the intervals in tables; verdicts of comparisons have their own."""

Kind = Literal["floor", "peer", "reference"]


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
        more = bench.difference_of_medians(mine, theirs, confidence=CONFIDENCE)
        bound, shown = "at most", bench.Ratio(1e3 * more.value, 1e3 * more.low, 1e3 * more.high)
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
        subject_spread=bench.spread(mine),
        reference_seconds=statistics.median(theirs),
        reference_spread=bench.spread(theirs),
        subject_gbps=None if nbytes is None else nbytes / statistics.median(mine) / 1e9,
        reference_gbps=None if nbytes is None else nbytes / statistics.median(theirs) / 1e9,
        subject_text=describe(mine, nbytes, calls),
        reference_text=describe(theirs, nbytes, calls),
        rounds=run.rounds,
        nbytes=nbytes,
        note=note,
    )


def best_loop(run: Run, name: str = "C loop") -> str:
    """Let `name` stand for the fastest of the loops "`name`, LIBRARY", and return a note that names its library."""
    columns = {f"{name}, {library}": library for library in ("OpenSSL", "BoringSSL")}
    best = run.fastest(*(columns.keys() & run.seconds.keys()))
    run.seconds[name] = run.seconds[best]
    others = [
        f"; {columns[each]}'s has {run.speed_ratio(each, best).value:.2f} of its speed"
        for each in columns
        if each in run.seconds and each != best
    ]
    return f"the C loop is {columns[best]}'s" + "".join(others)


def describe(samples: Sequence[float], nbytes: int | None, calls: int | None = None) -> str:
    """A subject's own figure in words: throughput, operations a second, or time; spread as a share of the median."""
    median = statistics.median(samples)
    share = f"±{100 * bench.spread(samples) / median / 2:.0f}%"
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


def machine() -> dict[str, Any]:
    """What the figures were measured on: the machine, and what the questions of this directory depend on besides."""
    from bench import settings

    return {
        **bench.machine(),
        "kernel_release": f"{platform.system()} {platform.release()}",
        "file_system": file_system(settings.load().directory or Path(tempfile.gettempdir())),
        "cryptography": _cryptography(),
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


def _cryptography() -> str | None:
    try:
        import cryptography
        from cryptography.hazmat.backends.openssl.backend import backend
    except ImportError:
        return None
    return f"{cryptography.__version__} ({backend.openssl_version_text()})"
