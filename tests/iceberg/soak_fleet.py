"""A fleet of 1,000 tables, re-keyed with a KMS that fails one call in five, and killed ten times.

    python -m tests.iceberg.soak_fleet [--seconds N]

With --seconds, there are as many tables as that time is enough for, at least 20.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from pathlib import Path

from tests.iceberg.test_fleet import Lake, rekey_with_kills

_TABLES, _KILLS = 1000, 10
_A_SECOND = 2
"""Tables made, re-keyed and checked in a second, at least."""


def main() -> None:
    """Run it, and say how long it took."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=int)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    tables = _TABLES if options.seconds is None else min(_TABLES, max(20, options.seconds * _A_SECOND))
    draw = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as directory:
        lake = Lake(Path(directory))
        started = time.monotonic()
        lake.fill(tables)
        print(f"seed {options.seed}: {tables} tables made in {time.monotonic() - started:.0f} s", flush=True)
        # Each table takes some calls, so all kills come before the end.
        kills = [draw.randrange(1, max(2, 4 * tables // _KILLS)) for _ in range(_KILLS)]
        started = time.monotonic()
        rekey_with_kills(lake, tables, kills, Path(directory, "calls"))
        print(f"killed at calls {kills}, finished and checked in {time.monotonic() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()
