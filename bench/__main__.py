"""Run the benchmarks: ``python -m bench [--quick] [-k EXPRESSION]``. Writes bench/results/."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from ags1 import bench
from ags1.bench import IDENTITY
from bench import headlines, history, report, schedule
from bench.floors import ROOT

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
QUESTION_LIMIT = 600
"""Seconds after which a question is taken for one that hangs."""

_PYTEST = (
    *(sys.executable, "-m", "pytest"),
    # What a peer forgets to close is no failure of a benchmark.
    *("-o", f"timeout={QUESTION_LIMIT}", "-o", "addopts=--import-mode=importlib", "-o", "filterwarnings=default"),
    *("-p", "no:cacheprovider", "-q"),
)


def _questions(expression: str | None) -> list[str]:
    """Name the questions that the expression selects, in the order in which pytest asks them."""
    chosen = ("-k", expression) if expression else ()
    command = [*_PYTEST, "--collect-only", *chosen, *map(str, sorted(HERE.glob("bench_*.py")))]
    done = subprocess.run(command, cwd=HERE.parent, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 5):
        raise SystemExit(done.stdout + done.stderr)
    return [line for line in done.stdout.splitlines() if line.startswith("bench/") and "::" in line]


def _run(path: Path, expression: str | None, env: dict[str, str]) -> tuple[list[str], dict[str, Any] | None]:
    """Run one file; return what failed, and pytest-benchmark's JSON, or None where it ran nothing."""
    with tempfile.TemporaryDirectory(prefix="ags1-bench-results-") as scratch:
        answer, said = Path(scratch) / "benchmark.json", Path(scratch) / "junit.xml"
        command = [
            *(*_PYTEST, str(path), "-s", "-rs", f"--junitxml={said}"),
            *("--benchmark-only", "--benchmark-quiet", f"--benchmark-json={answer}"),
            # Where all of a file is skipped there is nothing to save, and that is no error.
            *("-W", "ignore::pytest_benchmark.logger.PytestBenchmarkWarning"),
            *(("-k", expression) if expression else ()),
        ]
        done = subprocess.run(command, cwd=HERE.parent, env=env, check=False)
        failed = failures(said.read_text()) if said.is_file() else []
        if done.returncode not in (0, 5) and not failed:
            failed = [f"{path.name}: its process ended with exit code {done.returncode}"]
        if not answer.is_file() or not answer.stat().st_size:
            return failed, None
        results = json.loads(answer.read_text())
        return failed, results if results["benchmarks"] else None


def failures(junit: str) -> list[str]:
    """Name the questions that failed, and why, by pytest's XML."""
    return [
        f"{case.get('classname')}::{case.get('name')}: {(found.get('message') or '').partition(chr(10))[0]}"
        for case in ElementTree.fromstring(junit).iter("testcase")
        for found in case
        if found.tag in ("failure", "error")
    ]


def merged(before: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    """Results with the benchmarks of `answer` in the place of those of the same name on the same machine.

    What another machine had stays beside it: each benchmark has its own machine, commit, date and load.
    """

    def place(each: dict[str, Any]) -> tuple[str, str]:
        machine = each["extra_info"]["machine"]
        return each["fullname"], json.dumps({name: machine.get(name) for name in IDENTITY}, sort_keys=True)

    asked = {place(each) for each in answer["benchmarks"]}
    kept = [each for each in before.get("benchmarks", []) if place(each) not in asked]
    return {**answer, "benchmarks": sorted([*kept, *answer["benchmarks"]], key=lambda each: each["fullname"])}


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Benchmarks of ags1 beside their floors.")
    parser.add_argument("--quick", action="store_true", help="small sizes, a few minutes; its figures prove nothing")
    parser.add_argument(
        "-k", metavar="EXPRESSION", help="only benchmarks that match, as pytest -k; other figures stay as they are"
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=RESULTS,
        help="directory for the results; below bench/results for a machine that README.md does not show",
    )
    parser.add_argument("--minutes", type=float, default=40, help="a run that would take longer asks fewer rounds (40)")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run pytest on the benchmark files, and write what came of it."""
    options = _options(arguments)
    output = options.output.resolve()
    env = dict(os.environ)
    # The load and the commit before anything was asked: later they are the benchmarks' own.
    env.setdefault("AGS1_BENCH_LOAD", str(bench.load_average()))
    env.setdefault("AGS1_BENCH_COMMIT", bench.commit_of(ROOT))
    if options.quick:
        env["AGS1_BENCH_QUICK"] = "1"
        print("Quick run: small data and few rounds. Its figures show that everything works, and nothing else.")
    began, ends = time.monotonic(), time.time() + 60 * options.minutes
    last = output / "results.json"
    before: dict[str, Any] = json.loads(last.read_text()) if last.is_file() else {}
    results: dict[str, Any] = before if options.k else {}
    failed: list[str] = []
    written: list[Path] = []
    new: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="ags1-bench-schedule-") as scratch:
        plan = schedule.Schedule(_questions(options.k), ends, schedule.took(before))
        plan.save(Path(scratch) / "schedule.json")
        env[schedule.VARIABLE] = str(Path(scratch) / "schedule.json")
        for name in dict.fromkeys(each.partition("::")[0] for each in plan.names):
            # A process each: a million buffers that one file frees would be the fresh memory of the next.
            wrong, answer = _run(HERE.parent / name, options.k, env)
            failed += wrong
            if answer is not None:
                new += answer["benchmarks"]
                results = merged(results, answer) | {"quick": options.quick}
                # After each file, so that a run that is cut short still says what it measured.
                written = report.write(results, output, quick=options.quick)
    if new and output == RESULTS and not options.quick:
        headlines.main()
        written.append(headlines.README)
    if new and RESULTS in (output, *output.parents) and not options.quick:
        written += [*history.keep(new), history.draw()]
    print()
    print(report.table([entry for each in new for entry in each["extra_info"].get("figures", ())]))
    for path in written:
        print(f"wrote {os.path.relpath(path)}")
    said = "; quick run, its figures prove nothing" if options.quick else ""
    print(f"{len(new)} of {len(plan.names)} questions answered in {time.monotonic() - began:.0f} seconds{said}")
    for line in failed:
        print(f"failed: {line}", file=sys.stderr)
    if not new:
        print("No benchmark was run.", file=sys.stderr)
    return 1 if failed or not new else 0


if __name__ == "__main__":
    sys.exit(main())
