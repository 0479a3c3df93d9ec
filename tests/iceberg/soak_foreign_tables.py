"""Random tables of foreign forms, read by Iceberg Java in one JVM, before and after encryption.

    python -m tests.iceberg.soak_foreign_tables --tables 1000 [--seed 0] [--seconds 3600]

Each has the rows that the specification says, as ags1 reads them and as Java does.
"""

from __future__ import annotations

import argparse
import math
import os
import tempfile
import time
from pathlib import Path

from ags1 import iceberg
from ags1.iceberg import load_table
from ags1.kms import MemoryKms
from tests.iceberg.foreign_tables import ForeignTable, row_of, rows_of
from tests.iceberg.keys import MASTER_KEYS
from tests.iceberg.warehouse import SparkReader, available

KMS = MemoryKms(MASTER_KEYS)


def _by_java(reader: SparkReader, location: str) -> list[tuple[str, str]]:
    """The rows that Java reads; JSON has zeros of both signs, and names of NaN."""
    _, rows = reader.read(location if "://" in location else Path(location))
    return sorted(row_of(number, None if part is None else float(part)) for number, part in rows)


def differences(reader: SparkReader, seed: int) -> list[str]:
    """Return what one of both readers has otherwise, before or after encryption."""
    with tempfile.TemporaryDirectory() as name:
        made = ForeignTable(Path(name) / "t", seed, as_java=True)
        found = []
        for state in ("plaintext", "encrypted"):
            table = load_table(None, str(made.directory), kms=KMS, allow_plaintext=True)
            if state == "encrypted":
                iceberg.encrypt_table(table, key_id="keyA", steps=("enable", "convert", "expire"))
                table = load_table(None, str(made.directory), kms=KMS, table_key_id="keyA")
            if rows_of(table.scan().to_arrow()) != made.rows:
                found.append(f"seed {seed}, {state}: ags1 has other rows")
            if _by_java(reader, table.metadata_location) != made.rows:
                found.append(f"seed {seed}, {state}: Java has other rows")
        return found


def main(arguments: list[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tables", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="of the first table; each further one has the next")
    parser.add_argument("--seconds", type=float, default=math.inf, help="no table is begun after so long")
    options = parser.parse_args(arguments)
    if (reason := available()) is not None:
        print(f"Spark with Iceberg cannot run here: {reason}")
        return 1 if os.environ.get("AGS1_NO_SKIP") else 0
    started, done, found = time.monotonic(), 0, list[str]()
    with SparkReader() as reader:
        for seed in range(options.seed, options.seed + options.tables):
            if time.monotonic() - started > options.seconds:
                break
            for line in differences(reader, seed):
                found.append(line)
                print(line, flush=True)
            done += 1
            if done % 50 == 0:
                print(f"{done} tables, {time.monotonic() - started:.0f} s", flush=True)
    print(f"{done} tables before and after encryption: {len(found)} differences")
    return 1 if found or not done else 0


if __name__ == "__main__":
    raise SystemExit(main())
