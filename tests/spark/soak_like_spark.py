"""CSV, JSON and names of directories against Spark's own readers: random texts, the same rows and the same schemas.

    python -m tests.spark.soak_like_spark --rounds 1000 [--seed 0] [--seconds 3600] [--only "csv types"]

A round is one query for each kind of text of tests/spark/like_spark.py. A difference is printed with the seed that
shows it again, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

from tests.spark.like_spark import SCENARIOS
from tests.spark.sessions import LOCAL, environment, prepare


def session(directory: Path) -> Any:
    """A Spark of this process."""
    os.environ.update(environment(prepare(directory, LOCAL)))
    from pyspark.sql import SparkSession

    return SparkSession.builder.appName("soak").getOrCreate()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--only", action="append", choices=SCENARIOS)
    chosen = parser.parse_args(arguments)
    until = time.monotonic() + chosen.seconds
    failures = queries = 0
    with tempfile.TemporaryDirectory(prefix="ags1-soak-") as name:
        directory = Path(name)
        spark = session(directory / "spark")
        for seed in range(chosen.seed, chosen.seed + chosen.rounds):
            for what in chosen.only or SCENARIOS:
                if time.monotonic() > until:
                    break
                queries += 1
                try:
                    SCENARIOS[what][0](spark, directory / "files", random.Random(f"{seed} {what}"), seed)
                except Exception:
                    failures += 1
                    print(f'--seed {seed} --rounds 1 --only "{what}"\n{traceback.format_exc(limit=3)[-6000:]}')
                shutil.rmtree(directory / "files", ignore_errors=True)
        spark.stop()
    print(f"{queries} queries, {failures} with a difference")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
