"""Kills at moments by chance, as many as there is time for: what tests/dataset/test_kills.py does a few times.

    python -m tests.dataset.soak_kills [--seed 0] [--rounds 20] [--seconds 600]

A round is some 250 kills. The seed of a round that fails is printed, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from tests.dataset.test_kills import CHANGES, changes, decryptions, first_runs, kills_from_outside

KILLS = 24


def checks(seed: int) -> Iterator[tuple[str, Callable[[Path], None]]]:
    """What a round does, each in an empty directory."""
    for threads in (1, None):
        yield f"first run, {threads} threads", partial(first_runs, threads=threads, seed=seed, kills=KILLS)
    for change in CHANGES:
        yield change, lambda directory, change=change: changes(change, directory, seed, KILLS)  # type: ignore[misc]
    yield "decryption", partial(decryptions, seed=seed, kills=KILLS)
    yield "from outside", partial(kills_from_outside, seed=seed, kills=KILLS // 2)


def main(arguments: list[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="of the first round; each further one has the next")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=math.inf, help="nothing is begun after so long")
    options = parser.parse_args(arguments)
    until, done, failed = time.monotonic() + options.seconds, 0, 0
    for seed in range(options.seed, options.seed + options.rounds):
        for what, check in checks(seed):
            if time.monotonic() > until:
                break
            done += 1
            try:
                with tempfile.TemporaryDirectory() as directory:
                    check(Path(directory))
            except Exception:
                failed += 1
                print(f"seed {seed}, {what}\n{traceback.format_exc()}", flush=True)
    print(f"{done:,} times a work was killed at some moments, {failed} of them failed")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
