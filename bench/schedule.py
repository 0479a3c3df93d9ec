"""Where a run stands: which question is next, when all are expected to be asked, and how long one may take."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

VARIABLE = "AGS1_BENCH_SCHEDULE"
UNKNOWN = 10.0
"""Seconds that a question is taken for which was never asked."""
SHORTEST = 1.0


@dataclass(frozen=True)
class Schedule:
    """The questions of a run.

    Attributes
    ----------
    names
        Questions in the order in which they are asked.
    ends
        Time, in seconds since the epoch, at which the last one should have been asked.
    took
        Seconds that questions took in an earlier run, with all that they prepared.
    """

    names: list[str]
    ends: float
    took: dict[str, float] = field(default_factory=dict)

    def remaining(self, name: str) -> float:
        """Seconds that this question and those after it are expected to take."""
        return sum(self.took.get(each, UNKNOWN) for each in self.names[self.names.index(name) :])

    def seconds(self, name: str, wanted: float, now: float) -> float:
        """Time for the rounds of a question: less than wanted, if the run would end too late."""
        share = (self.ends - now) / self.remaining(name)
        return max(min(wanted, SHORTEST), wanted * min(1.0, share))

    def line(self, name: str, now: float) -> str:
        """Say where the run stands, for a terminal."""
        end = time.strftime("%H:%M", time.localtime(now + self.remaining(name)))
        return f"question {self.names.index(name) + 1} of {len(self.names)}, all by about {end}: {name}"

    def save(self, path: Path) -> None:
        """Write the schedule for the processes that ask."""
        path.write_text(json.dumps(asdict(self)))


def load() -> Schedule | None:
    """The schedule of this process's run; None for a question that is asked by plain pytest."""
    path = os.environ.get(VARIABLE)
    return Schedule(**json.loads(Path(path).read_text())) if path else None


def took(results: Mapping[str, Any]) -> dict[str, float]:
    """How long each question took, by pytest-benchmark's JSON of an earlier run."""
    found = {each["fullname"]: each["extra_info"].get("took") for each in results.get("benchmarks", ())}
    return {name: seconds for name, seconds in found.items() if seconds is not None}
