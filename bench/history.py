"""Figures over commits: bench/history/ has a line for each figure, commit and machine, and a page that draws them.

``python -m bench`` appends, and ``python -m bench.history`` makes the page from the files alone. Steps are found by
ruptures (the extra `bench`), not by a threshold: a question that gets slower by 1 % in each of ten commits has moved.
"""

from __future__ import annotations

import itertools
import math
import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ags1 import bench

ROOT = Path(__file__).resolve().parent.parent
DIRECTORY = ROOT / "bench" / "history"
PAGE = DIRECTORY / "README.md"
_BARS = "▁▂▃▄▅▆▇"
_FEWEST = 6
"""Commits of a question below which a step would be a guess."""
_SMALLEST = 0.02
"""A step below this share is as often the layout of code in memory."""


_HEAD = """\
# Figures over commits

A bar for each commit, the oldest first: the ratio of ags1 to its floor or peer. A step is where it moved, found by
ruptures; what moved less than 2 % is none. A row is one figure on one machine: those of two machines are not compared.
`python -m bench.history` makes this page from the files beside it, to which `make bench` appends.
"""


@dataclass(frozen=True)
class Step:
    """A question moved: from `commit` on it has `after`, where it had `before`."""

    commit: str
    before: float
    after: float


def entries_of(benchmarks: Iterable[dict[str, Any]]) -> list[bench.HistoryEntry]:
    """The figures of pytest-benchmark's JSON as lines of a history."""
    found = []
    for each in benchmarks:
        info = each["extra_info"]
        for figure in info.get("figures", ()):
            samples = info.get("samples", {})
            pair = {name: samples[name] for name in (figure["subject"], figure["reference"]) if name in samples}
            # A question may be asked of two subjects: of both forms of a value, for example.
            subject = "" if figure["subject"] == "ags1" else f", {figure['subject']}"
            made = bench.entry(
                f"{figure['question']}{subject} / {figure['reference']}",
                *(figure[name] for name in ("value", "low", "high")),
                pair,
                commit=info["commit"],
                machine=info["machine"],
                load=info["load"],
                measure=figure["measure"],
                subject=figure["subject"],
            )
            found.append(made)
    return found


def file_of(machine: dict[str, Any], directory: Path = DIRECTORY) -> Path:
    """The file that has the lines of a machine."""
    words = f"{machine['cpu_model']} {machine.get('cpu_id', '')} {machine['aes_gcm']} {machine['cores']} cores"
    return directory / (re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-") + ".jsonl")


def keep(benchmarks: Iterable[dict[str, Any]], directory: Path = DIRECTORY) -> list[Path]:
    """Append what was measured; return the files."""
    directory.mkdir(exist_ok=True)
    files: dict[Path, list[bench.HistoryEntry]] = {}
    for each in entries_of(benchmarks):
        files.setdefault(file_of(each.machine, directory), []).append(each)
    for path, found in files.items():
        bench.append(path, found)
    return sorted(files)


def series(entries: Iterable[bench.HistoryEntry]) -> dict[str, list[bench.HistoryEntry]]:
    """The lines of each figure in the order of their commits; of several lines of a commit, the last."""
    found: dict[str, dict[str, bench.HistoryEntry]] = {}
    for each in entries:
        found.setdefault(each.figure, {})[each.commit] = each
    return {figure: list(lines.values()) for figure, lines in sorted(found.items())}


def steps(lines: Sequence[bench.HistoryEntry]) -> list[Step]:
    """Where a question moved, by the optimal segmentation of its ratios (PELT, ruptures)."""
    if len(lines) < _FEWEST or min(each.value for each in lines) <= 0:
        return []
    import numpy as np
    import ruptures

    values = np.array([math.log(each.value) for each in lines])
    # The noise: of neighbours, so that a step counts once; and no less than what nobody would call a step.
    noise = max(1.4826 * float(np.median(np.abs(np.diff(values)))) / math.sqrt(2), _SMALLEST / 4)
    found = ruptures.Pelt(model="l2", min_size=2, jump=1).fit(values).predict(pen=6 * noise**2 * math.log(len(values)))
    edges = [0, *found]
    levels = [statistics.median(each.value for each in lines[a:b]) for a, b in itertools.pairwise(edges)]
    return [
        Step(lines[edge].commit, before, after)
        for edge, before, after in zip(edges[1:], levels, levels[1:], strict=False)
        if abs(math.log(after / before)) >= _SMALLEST
    ]


def drawn(values: Sequence[float]) -> str:
    """A line of bars, the lowest value lowest."""
    # What differs by less than a tenth is drawn flat, in the middle: noise is not to look like news.
    middle = statistics.median(values)
    low, high = min(*values, 0.95 * middle), max(*values, 1.05 * middle)
    return "".join(_BARS[round((len(_BARS) - 1) * (each - low) / (high - low))] for each in values)


def page(directory: Path = DIRECTORY) -> str:
    """The page, from the files alone."""
    parts = [_HEAD]
    files = sorted(directory.glob("*.jsonl"))
    if not files:
        parts.append("Nothing was recorded yet.\n")
    for path in files:
        entries = bench.read(path)
        machine = entries[-1].machine
        parts.append(f"## {machine['cpu_model']} ({machine['aes_gcm']}), {machine['cores']} cores\n")
        parts.append(f"{machine['kernel']}, {machine['openssl']}, {machine.get('python', '')}.\n")
        rows = ["| figure | | first | last | commits | steps |", "|---|---|---|---|---|---|"]
        for figure, lines in series(entries).items():
            said = "; ".join(f"{step.commit[:10]}: {step.before:.2f} → {step.after:.2f}" for step in steps(lines))
            values = [each.value for each in lines]
            name = figure.replace("|", "\\|")
            rows.append(
                f"| {name} ({lines[-1].more.get('measure', 'time')}) | {drawn(values)} | {values[0]:.2f} | "
                f"{values[-1]:.2f} | {len(lines)} | {said} |"
            )
        parts.append("\n".join(rows) + "\n")
    return "\n".join(parts)


def draw(path: Path = PAGE) -> Path:
    """Write the page."""
    path.write_text(page())
    return path


if __name__ == "__main__":
    print(f"wrote {draw().relative_to(ROOT)}")
