"""Ratios of paired samples, their intervals, and what these mean."""

from __future__ import annotations

import random
import statistics
from dataclasses import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Literal

    Verdict = Literal["same", "faster", "slower", "undecided"]

THRESHOLD = 0.05
"""A slow-down of this share matters."""
MARGIN = 0.03
"""A difference below this share is as often the layout of code in memory as a change of the code."""
CONFIDENCE = 0.99
"""Of a verdict: of many questions asked with 90 %, some would move by chance each time."""
RESAMPLES = 1000


@dataclass(frozen=True)
class Ratio:
    """A ratio of medians (or a difference) with its bootstrap interval."""

    value: float
    low: float
    high: float

    def inverse(self) -> Ratio:
        """The ratio the other way round."""
        return Ratio(1 / self.value, 1 / self.high, 1 / self.low)

    @property
    def precision(self) -> float:
        """Half of the interval's width, as a share of the value."""
        return (self.high - self.low) / 2 / self.value


def _bootstrap(
    pairs: Sequence[tuple[float, float]],
    figure: Callable[[Sequence[float], Sequence[float]], float],
    confidence: float,
    resamples: int,
    seed: int,
) -> Ratio:
    above, below = zip(*pairs, strict=True)
    value = figure(above, below)
    if len(pairs) < 3:
        each = [figure([a], [b]) for a, b in pairs]
        return Ratio(value, min(each), max(each))
    generator = random.Random(seed)
    drawn = []
    for _ in range(resamples):
        # Both of a round are drawn together: what slowed the whole round cancels.
        above, below = zip(*generator.choices(pairs, k=len(pairs)), strict=True)
        drawn.append(figure(above, below))
    drawn.sort()
    tail = (1 - confidence) / 2
    return Ratio(value, drawn[int(tail * resamples)], drawn[min(resamples - 1, int((1 - tail) * resamples))])


def _paired(above: Sequence[float], below: Sequence[float]) -> list[tuple[float, float]]:
    if len(above) != len(below) or not above:
        raise ValueError(f"{len(above)} and {len(below)} samples are no pairs: give one of each for every round")
    return list(zip(above, below, strict=True))


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

    Raises
    ------
    ValueError
        The samples are no pairs, or there are none.
    """
    return _bootstrap(
        _paired(above, below), lambda a, b: statistics.median(a) / statistics.median(b), confidence, resamples, seed
    )


def difference_of_medians(
    above: Sequence[float], below: Sequence[float], *, confidence: float = CONFIDENCE, resamples: int = RESAMPLES
) -> Ratio:
    """Median of `above` less median of `below`, for paired samples, in their unit."""
    return _bootstrap(
        _paired(above, below), lambda a, b: statistics.median(a) - statistics.median(b), confidence, resamples, 1
    )


def spread(samples: Sequence[float]) -> float:
    """Interquartile range."""
    if len(samples) < 2:
        return 0.0
    first, _, third = statistics.quantiles(samples, n=4, method="inclusive")
    return third - first


def margin_of(threshold: float) -> float:
    """The margin that goes with a threshold, unless another is given."""
    return threshold * MARGIN / THRESHOLD


def verdict(ratio: Ratio, *, threshold: float = THRESHOLD, margin: float | None = None) -> Verdict:
    """Say what a ratio of times (new over old, mine over floor) means.

    Parameters
    ----------
    ratio
        Of times: above 1 is slower.
    threshold
        The smallest change that matters, as a share: 0.05 is 5 %.
    margin
        A change is one if the whole interval is farther than this from 1 (0.6 of the threshold).

    Returns
    -------
    str
        "slower" or "faster": the whole interval is beyond the margin. "same": the interval ends before the threshold,
        on both sides. "undecided": it does neither, so nobody knows; measure longer, or on a quieter machine.

    Raises
    ------
    ValueError
        Not 0 <= margin < threshold < 1: between margin and threshold lies what is called neither.
    """
    margin = margin_of(threshold) if margin is None else margin
    if not 0 <= margin < threshold < 1:
        raise ValueError(f"the margin ({margin}) must be below the threshold ({threshold}), and that below 1")
    if ratio.low > 1 + margin:
        return "slower"
    if ratio.high < 1 - margin:
        return "faster"
    if ratio.low > 1 - threshold and ratio.high < 1 + threshold:
        return "same"
    return "undecided"
