"""Whether the suite finds what it must: ``python -m bench.trials``, on an idle machine.

A copy of the package takes 5 % longer in one path (a loop that waits), and each of 20 trials must say "slower". Equal
code is compared with itself, and no question may say "slower"; beside a load of other processes, "undecided" is right.
"""

from __future__ import annotations

import argparse
import collections
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from bench.compare import Sides, ask_both
from bench.floors import ROOT
from bench.questions import QUESTIONS

# It ends with the process that started it, however that ends.
BUSY = "import os; parent = os.getppid()\nwhile os.getppid() == parent: pass"

INJECTED = """

import time as _time

_plain = {name}


def {name}(*arguments, **options):
    start = _time.perf_counter()
    result = _plain(*arguments, **options)
    now = _time.perf_counter()
    until = now + {share} * (now - start)
    while _time.perf_counter() < until:
        pass
    return result
"""


def slower_tree(target: Path, name: str, share: float) -> Path:
    """A copy of the package in which one function of ags1.codec takes a share longer."""
    for part in ("ags1", "include"):
        shutil.copytree(ROOT / part, target / part)
    with (target / "ags1" / "codec.py").open("a") as file:
        file.write(INJECTED.format(name=name, share=share))
    return target


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the trials; return 1 if one of them missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.trials", description="Does the suite find what it must?")
    parser.add_argument("--trials", type=int, default=20, help="with a slow-down in one path (20)")
    parser.add_argument("--path", default="encrypt_into", help="function of ags1.codec that is slower (encrypt_into)")
    parser.add_argument("--question", default="encrypt_into-64KiB-1", help="that is asked (encrypt_into-64KiB-1)")
    parser.add_argument("--share", type=float, default=0.05, help="of the slow-down (0.05)")
    parser.add_argument("--equal", type=int, default=3, help="passes over all questions with equal code (3)")
    parser.add_argument("--loaded", type=int, default=2, help="the same beside a load of 4 processes (2)")
    parser.add_argument(
        "-k", metavar="WORD", default="", help="only questions whose name contains WORD, for equal code"
    )
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--limit", type=float, default=60.0)
    parser.add_argument("--bytes", type=int, default=32 << 20)
    options = parser.parse_args(arguments)
    times = {"seconds": options.seconds, "limit": options.limit}
    missed = 0
    with tempfile.TemporaryDirectory(prefix="ags1-trials-") as scratch:
        slow = slower_tree(Path(scratch).resolve(), options.path, options.share)
        for number in range(options.trials):
            line = ask_both(options.question, partial(Sides, ROOT, slow, options.bytes), **times)
            print(f"slower by {options.share:.0%}, trial {number + 1}: {line.ratio:.3f} {line.verdict}", flush=True)
            missed += line.verdict != "slower"
        for title, passes, load in (("equal", options.equal, 0), ("equal, loaded", options.loaded, 4)):
            busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(load if passes else 0)]
            try:
                for number in range(passes):
                    found = collections.Counter[str]()
                    for question in [name for name in QUESTIONS if options.k in name]:
                        line = ask_both(question, partial(Sides, ROOT, ROOT, options.bytes), **times)
                        found[line.verdict] += 1
                        if line.verdict == "slower":
                            print(f"{title}: {question} {line.ratio} [{line.low}, {line.high}] {line.note}", flush=True)
                            missed += 1
                    print(f"{title}, pass {number + 1}: {dict(found)}", flush=True)
            finally:
                for each in busy:
                    each.kill()
                    each.wait()
    print(f"{missed} missed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
