"""Compare two revisions: ``python -m bench.compare BASE [HEAD] [-k WORD] [--fail]``.

Both are checked out into a temporary directory and built there with the same flags and the same libcrypto; the working
tree is copied too, so what lies built in it is neither used nor touched. Then one process a side returns the same
questions in turns::

    base   q   .   .   q   q   .
    head   .   q   q   .   .   q

A figure has moved if the 99 % bootstrap interval of the ratio of medians lies more than 3 % away from 1. Less than
that is as often the layout of the code in memory as the change itself; and of many questions asked with a 90 %
interval, some would move by chance in every comparison.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.floors import ROOT, openssl_environment
from bench.measure import Ratio, Run, Subject, interleave, ratio_of_medians
from bench.questions import QUESTIONS

MARGIN = 0.03
CONFIDENCE = 0.99


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
        "faster", "slower", "same", or "not asked" with the reason in `note`.
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


def verdict(ratio: Ratio, margin: float = MARGIN) -> str:
    """Say what an interval of time ratios (head over base) means."""
    if ratio.low > 1 + margin:
        return "slower"
    if ratio.high < 1 - margin:
        return "faster"
    return "same"


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CompareError(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


@contextmanager
def _checkout(revision: str | None, directory: Path) -> Iterator[Path]:
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

    def __init__(self, tree: Path, nbytes: int) -> None:
        env = dict(os.environ)
        # The questions are this revision's; ags1 is the tree's, before any that is installed.
        env["PYTHONPATH"] = str(tree)
        command = [sys.executable, str(Path(__file__).with_name("questions.py")), str(tree), str(nbytes)]
        self._process = subprocess.Popen(
            command, cwd=tree, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def __enter__(self) -> Side:  # noqa: PYI034 - typing.Self came with Python 3.11
        return self

    def __exit__(self, *exception: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

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


def ask_both(question: str, base: Side, head: Side, *, seconds: float) -> Moved:
    """Ask both sides one question in turns."""
    for name, side in (("base", base), ("head", head)):
        answer = side.ask(prepare=question)
        if "error" in answer:
            return Moved(question, None, None, None, None, None, 0, "not asked", f"{name}: {answer['error']}")

    def clock(side: Side) -> Callable[[], float]:
        return lambda: side.seconds(question)

    run = interleave(
        {
            "head": Subject(lambda: None, clock=clock(head)),
            "base": Subject(lambda: None, clock=clock(base)),
        },
        seconds=seconds,
        min_rounds=7,
    )
    return judge(question, run)


def judge(question: str, run: Run) -> Moved:
    """Make the line of one question from what "base" and "head" took."""
    ratio = ratio_of_medians(run.seconds["head"], run.seconds["base"], confidence=CONFIDENCE)
    return Moved(
        question,
        run.median("base"),
        run.median("head"),
        ratio.value,
        ratio.low,
        ratio.high,
        run.rounds,
        verdict(ratio),
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
            f"{line.ratio:.3f} [{line.low:.3f}, {line.high:.3f}] | {said} |"
        )
    return "\n".join(rows) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, print, and return 1 if asked to fail on what got slower."""
    parser = argparse.ArgumentParser(prog="python -m bench.compare", description="Compare two revisions of ags1.")
    parser.add_argument("base", help="revision to compare with")
    parser.add_argument("head", nargs="?", help="revision to judge; by default the working tree as it is")
    parser.add_argument("-k", metavar="WORD", default="", help="only questions whose name contains WORD")
    parser.add_argument("--seconds", type=float, default=6.0, help="time for each question")
    parser.add_argument("--bytes", type=int, default=128 << 20, help="plaintext of a question")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result there too")
    parser.add_argument("--fail", action="store_true", help="exit with 1 if something got slower beyond noise")
    options = parser.parse_args(arguments)
    questions = [name for name in QUESTIONS if options.k in name]
    if not questions:
        parser.error(f"no question has {options.k!r} in its name; there are {', '.join(QUESTIONS)}")
    lines: list[Moved] = []
    try:
        with ExitStack() as stack:
            scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ags1-compare-"))).resolve()
            env = openssl_environment()
            trees = []
            for name, revision in (("base", options.base), ("head", options.head)):
                tree = scratch / name
                tree.mkdir()
                stack.enter_context(_checkout(revision, tree))
                print(f"building {name}: {revision or 'the working tree'}", file=sys.stderr, flush=True)
                build(tree, env)
                trees.append(tree)
            base, head = (stack.enter_context(Side(tree, options.bytes)) for tree in trees)
            for question in questions:
                line = ask_both(question, base, head, seconds=options.seconds)
                lines.append(line)
                shown = line.note if line.ratio is None else f"{line.ratio:.3f} [{line.low:.3f}, {line.high:.3f}]"
                print(f"{question}: {shown} {line.verdict}", file=sys.stderr, flush=True)
    except CompareError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(table(lines))
    if options.json is not None:
        report = {"base": options.base, "head": options.head or "working tree", "margin": MARGIN}
        options.json.write_text(json.dumps({**report, "questions": [asdict(line) for line in lines]}, indent=1) + "\n")
    slower = [line.question for line in lines if line.verdict == "slower"]
    if slower:
        print(f"slower beyond noise: {', '.join(slower)}")
    return 1 if slower and options.fail else 0


if __name__ == "__main__":
    sys.exit(main())
