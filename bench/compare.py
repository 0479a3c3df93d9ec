"""Compare two revisions: ``python -m bench.compare BASE [HEAD] [-k WORD]``; exit codes say what came of it.

Both are checked out into a temporary directory and built there with the same flags and the same libcrypto; the working
tree is copied too, so what lies built in it is neither used nor touched. Then one process a side answers the same
questions in turns::

    base   q   .   .   q   q   .
    head   .   q   q   .   .   q

A figure has moved if the 99 % bootstrap interval of the ratio of medians lies more than 2 % away from 1, and does so
again in new processes: less than that is as often the layout of the code in memory as the change itself, and two
processes of one program differ too. An interval that holds both "no change" and "4 % slower" is undecided: it is
measured on, in new processes, up to a limit, and then reported as what it is.

Exit codes: 0 nothing got slower; 1 something did; 2 wrong usage, or no comparison; 3 nothing is slower for certain, but
something is undecided. Peak memory is compared too: more than 10 % (and 4 MiB) more is slower.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from ags1 import bench
from ags1.bench import Comparison, Run, Subject, interleave
from bench.floors import ROOT, openssl_environment
from bench.processes import end
from bench.questions import QUESTIONS

EXIT_SLOWER, EXIT_FAILED, EXIT_UNDECIDED = 1, 2, 3
THRESHOLD, MARGIN, CONFIDENCE = 0.04, 0.02, 0.99
# Equal code in two processes differs for as long as they live, by where their memory is and what their processor does
# besides: by 1 % on a quiet machine, by 14 % on a shared one. So a pair is one sample, however often it is asked.
PAIR_SECONDS, FEWEST_PAIRS = 0.375, 3
MEMORY_SHARE, MEMORY_BYTES = 0.1, 4 << 20


class CompareError(Exception):
    """The comparison could not be made; the message says why."""


@dataclass(frozen=True)
class Moved:
    """What became of one question.

    Attributes
    ----------
    ratio, low, high
        Time of head over time of base, with its interval.
    verdict
        "faster", "slower", "same", "undecided", or "not asked" with the reason in `note`.
    samples
        Seconds of each round, by side.
    base_bytes, head_bytes
        By how much the peak memory of each side rose.
    """

    question: str
    base_seconds: float | None
    head_seconds: float | None
    ratio: float | None
    low: float | None
    high: float | None
    rounds: int
    verdict: str
    note: str = ""
    samples: dict[str, list[float]] = field(default_factory=dict)
    base_bytes: int | None = None
    head_bytes: int | None = None
    load: float = 0.0


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CompareError(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


@contextmanager
def checkout(revision: str | None, directory: Path) -> Iterator[Path]:
    """Put a revision, or a copy of the working tree for None, into `directory`."""
    if revision is None:
        names = _git("ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
        for name in filter(None, names):
            # A file that was deleted but not yet committed as such is still listed.
            if (ROOT / name).is_file():
                (directory / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, directory / name)
        yield directory
        return
    _git("worktree", "add", "--detach", "--force", str(directory), revision)
    try:
        yield directory
    finally:
        _git("worktree", "remove", "--force", str(directory))


def build(tree: Path, env: dict[str, str]) -> None:
    """Build the extension modules of a tree in place."""
    if not (tree / "setup.py").is_file():
        raise CompareError(f"{tree.name} has no setup.py: that revision cannot be built")
    command = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
    done = subprocess.run(command, cwd=tree, env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CompareError(f"building {tree.name} failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")


class Side:
    """One revision in a process of its own."""

    def __init__(
        self, tree: Path, nbytes: int, prefix: Sequence[str] = (), more: Mapping[str, str] | None = None
    ) -> None:
        env = {**os.environ, **(more or {})}
        # The questions are this revision's; ags1 is the tree's, before any that is installed.
        env["PYTHONPATH"] = str(tree)
        command = [*prefix, sys.executable, str(Path(__file__).with_name("questions.py")), str(tree), str(nbytes)]
        self._process = subprocess.Popen(
            command, cwd=tree, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def __enter__(self) -> Side:  # noqa: PYI034 - typing.Self came with Python 3.11
        return self

    def __exit__(self, *exception: object) -> None:
        end(self._process)

    def ask(self, **request: str) -> dict[str, Any]:
        """Send one request and return the answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        line = self._process.stdout.readline()
        if not line:
            raise CompareError(f"a side ended while it was asked {request}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def seconds(self, question: str) -> float:
        """Return a prepared question once."""
        answer = self.ask(run=question)
        if "error" in answer:
            raise CompareError(f"{question}: {answer['error']}")
        return float(answer["seconds"])


# It is given whether head starts before base.
Start = Callable[[bool], "Sides"]


class Sides:
    """Base and head, each in a process of its own; `head_first` says which one starts, and prepares, first."""

    def __init__(self, base: Path, head: Path, nbytes: int, head_first: bool = False) -> None:
        self._stack = ExitStack()
        trees = {"base": base, "head": head}
        self._sides = {
            name: self._stack.enter_context(Side(trees[name], nbytes))
            for name in (("head", "base") if head_first else ("base", "head"))
        }
        self.base, self.head = self._sides["base"], self._sides["head"]

    def __enter__(self) -> Sides:  # noqa: PYI034 - typing.Self came with Python 3.11
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def prepare(self, question: str) -> None:
        """Prepare a question on both; NotAsked says why one cannot."""
        for name, side in self._sides.items():
            answer = side.ask(prepare=question)
            if "error" in answer:
                raise NotAskedError(f"{name}: {answer['error']}")


class NotAskedError(Exception):
    """A revision cannot answer a question."""


def ask_both(question: str, start: Start, *, seconds: float, limit: float) -> Moved:
    """Ask both sides one question, in pairs of new processes; go on while it is undecided.

    A pair takes turns, and its medians are one sample. The side that starts first gets other memory than the second,
    and was 1 % slower for it, so every other pair starts with head.
    """
    peaks: dict[str, list[int]] = {"base": [], "head": []}

    def measure(seconds: float, warm_up: int) -> Run:
        run = Run()
        for _ in range(max(FEWEST_PAIRS, round(seconds / PAIR_SECONDS))):
            run.extend(one_pair(min(seconds, PAIR_SECONDS)))
        return run

    def one_pair(seconds: float) -> Run:
        with start(len(peaks["base"]) % 2 == 1) as sides:
            sides.prepare(question)
            both = {"head": sides.head, "base": sides.base}
            turns = interleave(
                {
                    name: Subject(lambda: None, clock=lambda side=side: side.seconds(question))
                    for name, side in both.items()
                },
                seconds=seconds,
                min_rounds=3,
                # Each time, because the processes are new.
                warm_up=1,
                precision=(THRESHOLD - MARGIN) / 2,
                confidence=CONFIDENCE,
            )
            for name, side in both.items():
                peaks[name].append(int(side.ask(memory=question)["bytes"]))
            return Run({name: [turns.median(name)] for name in both})

    load = bench.load_average()
    try:
        found = bench.decide(
            measure, seconds=seconds, limit=limit, names=("head", "base"), threshold=THRESHOLD, margin=MARGIN
        )
    except NotAskedError as error:
        return Moved(question, None, None, None, None, None, 0, "not asked", str(error))
    return judge(question, found, {name: min(each) for name, each in peaks.items()}, load)


def judge(question: str, found: Comparison, peaks: dict[str, int] | None = None, load: float = 0.0) -> Moved:
    """Make the line of one question; more memory is slower too."""
    base, head = (None, None) if peaks is None else (peaks["base"], peaks["head"])
    verdict, note = found.verdict, ""
    if base is not None and head is not None and head > base + max(MEMORY_BYTES, MEMORY_SHARE * base):
        verdict, note = "slower", f"peak memory rose by {head / (1 << 20):.1f} MiB, by {base / (1 << 20):.1f} in base"
    return Moved(
        question,
        found.run.median("base"),
        found.run.median("head"),
        *(found.ratio.value, found.ratio.low, found.ratio.high),
        found.run.rounds,
        verdict,
        note,
        found.run.seconds,
        base,
        head,
        load,
    )


def table(lines: Sequence[Moved]) -> str:
    """Render the comparison as a Markdown table."""
    rows = ["| question | base | head | head / base [99% interval] | verdict |", "|---|---:|---:|---|---|"]
    for line in lines:
        if line.ratio is None or line.base_seconds is None or line.head_seconds is None:
            rows.append(f"| {line.question} | | | | {line.verdict}: {line.note} |")
            continue
        said = line.verdict if line.verdict == "same" else f"**{line.verdict}**"
        rows.append(
            f"| {line.question} | {line.base_seconds * 1e3:.4g} ms | {line.head_seconds * 1e3:.4g} ms | "
            f"{line.ratio:.3f} [{line.low:.3f}, {line.high:.3f}] | {said}{f': {line.note}' if line.note else ''} |"
        )
    return "\n".join(rows) + "\n"


def exit_code(verdicts: set[str], worse: str) -> int:
    """0, or the code of the worst that was found."""
    return EXIT_SLOWER if worse in verdicts else EXIT_UNDECIDED if "undecided" in verdicts else 0


def commits(base: str, head: str | None) -> dict[str, str]:
    """The commits of both sides; "+" says that the working tree differs from its own."""
    return {
        "base": _git("rev-parse", "--verify", f"{base}^{{commit}}").strip(),
        "head": bench.commit_of(ROOT) if head is None else _git("rev-parse", "--verify", f"{head}^{{commit}}").strip(),
    }


def changed_files(base: str, head: str | None) -> list[str]:
    """Files that differ between the two, also those that git does not know yet."""
    new = [] if head is not None else _git("ls-files", "--others", "--exclude-standard").splitlines()
    return [*_git("diff", "--name-only", base, *([] if head is None else [head])).splitlines(), *new]


@contextmanager
def built(base: str, head: str | None) -> Iterator[tuple[Path, Path]]:
    """Check out and build both sides with the same OpenSSL; what they share is built once."""
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ags1-compare-"))).resolve()
        env = openssl_environment()
        trees = []
        for name, revision in (("base", base), ("head", head)):
            tree = scratch / name
            tree.mkdir()
            stack.enter_context(checkout(revision, tree))
            print(f"building {name}: {revision or 'the working tree'}", file=sys.stderr, flush=True)
            if not (trees and take_modules(trees[0], tree)):
                build(tree, env)
            trees.append(tree)
        yield trees[0], trees[1]


def native_sources(tree: Path) -> dict[str, bytes]:
    """What the extension modules of a tree are built from."""
    found = [path for top in ("ags1", "include", "buildtools") for path in (tree / top).rglob("*") if path.is_file()]
    wanted = [path for path in found if path.suffix in {".pyx", ".pxd", ".h"} or path.parent.name == "buildtools"]
    return {str(path.relative_to(tree)): path.read_bytes() for path in (*wanted, tree / "setup.py")}


def take_modules(built: Path, tree: Path) -> bool:
    """Copy the modules that another tree has built, if this one has the same sources; return whether it has."""
    if not (tree / "setup.py").is_file() or native_sources(built) != native_sources(tree):
        return False
    for path in (built / "ags1").rglob("*.so"):
        shutil.copy2(path, tree / path.relative_to(built))
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, print, and return the exit code that says what was found."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.compare",
        description="Compare two revisions of ags1.",
        epilog="exit codes: 0 nothing got slower, 1 slower, 2 no comparison, 3 undecided",
    )
    parser.add_argument("base", help="revision to compare with")
    parser.add_argument("head", nargs="?", help="revision to judge; by default the working tree as it is")
    parser.add_argument("-k", metavar="WORD", default="", help="only questions whose name contains WORD")
    parser.add_argument("--seconds", type=float, default=6.0, help="time for the first rounds of a question (6)")
    parser.add_argument("--limit", type=float, default=60.0, help="time for a question while it is undecided (60)")
    parser.add_argument("--bytes", type=int, default=128 << 20, help="plaintext of a question (128 MiB)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result there too, with all samples")
    parser.add_argument("--append", type=Path, metavar="FILE", help="add each figure as a line of ags1.bench")
    options = parser.parse_args(arguments)
    questions = [name for name in QUESTIONS if options.k in name]
    if not questions:
        parser.error(f"no question has {options.k!r} in its name; there are {', '.join(QUESTIONS)}")
    lines: list[Moved] = []
    try:
        of = commits(options.base, options.head)
        with built(options.base, options.head) as (base, head):
            for question in questions:
                line = ask_both(
                    question, partial(Sides, base, head, options.bytes), seconds=options.seconds, limit=options.limit
                )
                lines.append(line)
                shown = line.note if line.ratio is None else f"{line.ratio:.3f} [{line.low:.3f}, {line.high:.3f}]"
                print(f"{question}: {shown} {line.verdict}", file=sys.stderr, flush=True)
    except CompareError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_FAILED
    print(table(lines))
    if options.json is not None:
        options.json.write_text(json.dumps(report(of, lines), indent=1) + "\n")
    if options.append is not None:
        bench.append(options.append, entries(of, lines))
    for verdict in ("slower", "undecided"):
        if found := [line.question for line in lines if line.verdict == verdict]:
            print(f"{verdict}: {', '.join(found)}")
    return exit_code({line.verdict for line in lines}, "slower")


def report(of: dict[str, str], lines: Sequence[Moved]) -> dict[str, Any]:
    """Everything, for a dashboard: commits, machine, date, margins, and each question with its samples."""
    return {
        **of,
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": bench.machine(),
        "threshold": THRESHOLD,
        "margin": MARGIN,
        "confidence": CONFIDENCE,
        "questions": [asdict(line) for line in lines],
    }


def entries(of: dict[str, str], lines: Sequence[Moved]) -> list[bench.HistoryEntry]:
    """The figures as lines of a history."""
    where = {"commit": of["head"], "base": of["base"]}
    return [
        bench.entry(line.question, line.ratio, line.low, line.high, line.samples, load=line.load, **where)
        for line in lines
        if line.ratio is not None and line.low is not None and line.high is not None
    ]


if __name__ == "__main__":
    sys.exit(main())
