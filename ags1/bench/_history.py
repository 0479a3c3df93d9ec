"""Figures as JSON lines, one a figure, commit and machine: a file that grows."""

from __future__ import annotations

import datetime
import json
import os
import subprocess
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field

from ags1.bench import _machine
from ags1.support.typing import Any


@dataclass(frozen=True)
class HistoryEntry:
    """One figure, and where it comes from.

    Attributes
    ----------
    figure
        What was asked, in words: the name under which figures are compared.
    value, low, high
        Ratio of times with its interval: above 1 is slower than the reference.
    samples
        Seconds by subject, in the order of the rounds.
    machine
        As `ags1.bench.machine` describes it.
    commit
        Of what was measured, with "+" if it was changed since; empty outside a repository.
    date
        UTC, as ISO 8601 writes it.
    load
        Load average when it was measured.
    """

    figure: str
    value: float
    low: float
    high: float
    samples: dict[str, list[float]]
    machine: dict[str, Any]
    commit: str
    date: str
    load: float
    more: dict[str, Any] = field(default_factory=dict)

    def to_line(self) -> str:
        """The entry as one line of JSON, without the end of the line."""
        return json.dumps(asdict(self), ensure_ascii=False, separators=(",", ":"))


def commit_of(directory: str | os.PathLike[str]) -> str:
    """The commit that a directory is at, with "+" if files differ from it; empty where there is no repository."""

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(["git", "-C", directory, *arguments], capture_output=True, text=True, check=False)
        except OSError:
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    head = git("rev-parse", "HEAD")
    return "" if head is None else head + ("+" if git("status", "--porcelain", "--untracked-files=no") else "")


def entry(
    figure: str,
    value: float,
    low: float,
    high: float,
    samples: dict[str, list[float]],
    *,
    commit: str = "",
    machine: dict[str, Any] | None = None,
    load: float | None = None,
    **more: Any,
) -> HistoryEntry:
    """Make the entry of a figure that was measured now, on this machine.

    Parameters
    ----------
    figure, value, low, high, samples, commit
        As of `HistoryEntry`.
    machine, load
        Of now, unless given.
    **more
        Kept beside: what else a reader of the history needs.
    """
    date = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    machine = _machine.machine() if machine is None else machine
    # Six digits are more than any clock has.
    short = {name: [float(f"{each:.6g}") for each in seconds] for name, seconds in samples.items()}
    load = _machine.load_average() if load is None else load
    return HistoryEntry(figure, value, low, high, short, machine, commit, date, load, more)


def append(path: str | os.PathLike[str], entries: Iterable[HistoryEntry]) -> None:
    """Add entries to the end of a file, which is made if there is none. What it has stays."""
    text = "".join(each.to_line() + "\n" for each in entries)
    with open(path, "a", encoding="utf-8") as file:
        file.write(text)


def read(path: str | os.PathLike[str]) -> list[HistoryEntry]:
    """Read the entries of a file, oldest first.

    Raises
    ------
    ValueError
        A line is not an entry; the message names the file and the line.
    """
    found = []
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                fields = json.loads(line)
                found.append(HistoryEntry(**fields))
            except (ValueError, TypeError) as error:
                raise ValueError(f"{os.fspath(path)}, line {number}: no figure of ags1.bench ({error})") from None
    return found
