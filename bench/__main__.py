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

from ags1 import bench
from ags1.bench import IDENTITY
from bench import headlines, history, report

HERE = Path(__file__).resolve().parent


_PYTEST = (
    *(sys.executable, "-m", "pytest"),
    # Sizes are in the tens of gigabytes of work: the tests' time-out is not for them.
    # What a peer forgets to close is no failure of a benchmark.
    *("-o", "timeout=0", "-o", "addopts=--import-mode=importlib", "-o", "filterwarnings=default"),
    *("-p", "no:cacheprovider", "-q"),
)


def _selected(expression: str | None) -> list[Path]:
    """Files with a benchmark that the expression selects."""
    paths = sorted(HERE.glob("bench_*.py"))
    if not expression:
        return paths
    command = [*_PYTEST, "--collect-only", "-k", expression, *map(str, paths)]
    done = subprocess.run(command, cwd=HERE.parent, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 5):
        raise SystemExit(done.stdout + done.stderr)
    return [path for path in paths if f"{path.name}::" in done.stdout]


def _run(path: Path, expression: str | None, env: dict[str, str]) -> tuple[int, dict[str, Any] | None]:
    """Run one file; return the exit code and pytest-benchmark's JSON, or None where it ran nothing."""
    with tempfile.TemporaryDirectory(prefix="ags1-bench-results-") as scratch:
        answer = Path(scratch) / "benchmark.json"
        command = [
            *(*_PYTEST, str(path), "-s", "-rs"),
            *("--benchmark-only", "--benchmark-quiet", f"--benchmark-json={answer}"),
            # Where all of a file is skipped there is nothing to save, and that is no error.
            *("-W", "ignore::pytest_benchmark.logger.PytestBenchmarkWarning"),
            *(("-k", expression) if expression else ()),
        ]
        done = subprocess.run(command, cwd=HERE.parent, env=env, check=False)
        if not answer.is_file() or not answer.stat().st_size:
            return done.returncode, None
        results = json.loads(answer.read_text())
        return done.returncode, results if results["benchmarks"] else None


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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run pytest on the benchmark files, and write what came of it."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="Benchmarks of ags1 beside their floors.")
    parser.add_argument("--quick", action="store_true", help="small sizes, under 3 minutes; its figures prove nothing")
    parser.add_argument(
        "-k", metavar="EXPRESSION", help="only benchmarks that match, as pytest -k; other figures stay as they are"
    )
    parser.add_argument("--output", type=Path, default=HERE / "results", help="directory for the results")
    options = parser.parse_args(arguments)
    env = dict(os.environ)
    # The load before anything was asked: later it is the benchmarks' own.
    env.setdefault("AGS1_BENCH_LOAD", str(bench.load_average()))
    if options.quick:
        env["AGS1_BENCH_QUICK"] = "1"
        print("Quick run: small data and few rounds. Its figures show that everything works, and nothing else.")
    began = time.monotonic()
    results: dict[str, Any] = {}
    last = options.output / "results.json"
    if options.k and last.is_file():
        results = json.loads(last.read_text())
    status = 0
    written: list[Path] = []
    new: list[dict[str, Any]] = []
    for path in _selected(options.k):
        # A process each: a million buffers that one file frees would be the fresh memory of the next.
        code, answer = _run(path, options.k, env)
        status = status or code
        if answer is not None:
            new += answer["benchmarks"]
            results = merged(results, answer) | {"quick": options.quick}
            # After each file, so that a run that is cut short still says what it measured.
            written = report.write(results, options.output, quick=options.quick)
    if not results:
        print("No benchmark was run.", file=sys.stderr)
        return status or 1
    if options.output == HERE / "results" and not options.quick:
        headlines.main()
        written += [headlines.README, *history.keep(new), history.draw()]
    print()
    print(report.table([entry for each in new for entry in each["extra_info"].get("figures", ())]))
    for path in written:
        print(f"wrote {os.path.relpath(path)}")
    said = "; quick run, its figures prove nothing" if options.quick else ""
    print(f"{time.monotonic() - began:.0f} seconds{said}")
    return status


if __name__ == "__main__":
    sys.exit(main())
