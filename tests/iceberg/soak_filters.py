"""Row filters against Spark: random tables, random filters of PyIceberg, the same rows.

    python -m tests.iceberg.soak_filters --filters 10000 --tables 50 [--seed 0] [--seconds 3600]

A difference is printed with what is needed to see it again, and the exit status is 1. Spark is given many filters as
columns of one query, so that it evaluates them itself; its SQL has what null and NaN mean to PyIceberg.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import random
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from ags1.iceberg import EncryptedTable, open_table
from ags1.iceberg.files.file_io import SnapshotFiles
from ags1.kms import MemoryKms
from tests.iceberg.keys import MASTER_KEYS
from tests.iceberg.random_tables import Filter, RandomTable
from tests.iceberg.warehouse import SparkProcess, available
from tests.interop.jvm import PeerFailure

# A query with more of them takes Spark longer than two queries.
_AT_ONCE = 100
# For one table, on a machine that does other things.
_SECONDS = 600.0


class FilterPeer(SparkProcess):
    """A running Spark that makes tables, and says which rows pass a filter; a context manager."""

    def __init__(self) -> None:
        super().__init__("filter_peer")

    def ask(self, request: dict[str, Any], _: float | None = None) -> Any:
        """Return the answer to a request.

        Raises
        ------
        PeerFailure
            Spark refused, ended or did not answer in time.
        """
        answer = super().ask(request, _SECONDS)
        if "error" in answer:
            raise PeerFailure(answer["error"])
        return answer["answer"]

    def make(self, table: RandomTable) -> EncryptedTable:
        """Make a table, and open it."""
        return open_table(self.ask(table.request), MemoryKms(MASTER_KEYS))

    def passing(self, table: RandomTable, filters: list[Filter]) -> list[list[int]]:
        """The ids of the rows that pass each filter."""
        found: list[list[int]] = []
        for start in range(0, len(filters), _AT_ONCE):
            part = filters[start : start + _AT_ONCE]
            rows = self.ask({"table": table.request["table"], "filters": [each.sql for each in part]})
            found += [sorted(number for number, marks in rows if marks[index] == "1") for index in range(len(part))]
        return found

    def drop(self, table: RandomTable) -> None:
        """Let go of a table that is not needed any more."""
        name = table.request["table"]
        self.ask({"table": name, "drop": True})
        for directory in self.directory.rglob(name):
            shutil.rmtree(directory, ignore_errors=True)


@dataclass
class Outcome:
    """What a run found."""

    tables: int = 0
    filters: int = 0
    rows: int = 0
    matched: int = 0
    pruned: int = 0
    differences: list[str] = field(default_factory=list)


def compare(peer: FilterPeer, seed: int, filters: int) -> Outcome:
    """One table of this seed, and so many filters."""
    table = RandomTable(f"random_{seed}", seed)
    opened = peer.make(table)
    made = [table.filter() for _ in range(filters)]
    by_spark = peer.passing(table, made)
    with _manifests_decoded_once():
        outcome = _compared(opened, seed, made, by_spark)
    peer.drop(table)
    return outcome


@contextlib.contextmanager
def _manifests_decoded_once() -> Iterator[None]:
    """Keep what is decoded: it is the same for all filters, and most of the time of a small scan."""
    read = SnapshotFiles.entries
    kept: dict[tuple[str, bool], list[Any]] = {}

    def entries(self: SnapshotFiles, listed: Any, *, metrics: bool = True) -> list[Any]:
        key = listed["manifest_path"], metrics
        if key not in kept:
            kept[key] = list(read(self, listed, metrics=metrics))
        return kept[key]

    with mock.patch.object(SnapshotFiles, "entries", entries):
        yield


def _compared(opened: EncryptedTable, seed: int, filters: list[Filter], by_spark: list[list[int]]) -> Outcome:
    outcome = Outcome(tables=1, filters=len(filters), rows=opened.scan().count())
    chance = random.Random(seed)
    files = len(opened.scan().plan_files())
    for each, wanted in zip(filters, by_spark, strict=True):
        outcome.matched += 0 < len(wanted) < outcome.rows
        try:
            scan = opened.scan(columns=["id"] if chance.random() < 0.8 else None, row_filter=each.ours)
            tasks = scan.plan_files()
            found = sorted(scan._arrow_scan().to_table(tasks)["id"].to_pylist())
            outcome.pruned += len(tasks) < files
            count = scan.count() if chance.random() < 0.2 else len(wanted)
        except Exception as error:
            outcome.differences.append(f"seed {seed}: {each.ours!r}: {type(error).__name__}: {error}")
            continue
        if found != wanted or count != len(wanted):
            outcome.differences.append(
                f"seed {seed}: {each.ours!r}: {each.sql}: not found {sorted(set(wanted) - set(found))}, "
                f"too many {sorted(set(found) - set(wanted))}, counted {count} of {len(wanted)}"
            )
    return outcome


def run(peer: FilterPeer, *, filters: int, tables: int, seed: int) -> Iterator[Outcome]:
    """One outcome for each table."""
    for index in range(tables):
        share = filters * (index + 1) // tables - filters * index // tables
        yield compare(peer, seed + index, share)


def main(arguments: list[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--filters", type=int, default=10_000, help="of all tables together")
    parser.add_argument("--tables", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0, help="of the first table; each further one has the next")
    parser.add_argument("--seconds", type=float, default=math.inf, help="no table is begun after so long")
    options = parser.parse_args(arguments)
    if (reason := available()) is not None:
        print(f"Spark with Iceberg cannot run here: {reason}")
        return 1 if os.environ.get("AGS1_NO_SKIP") else 0
    total, started = Outcome(), time.monotonic()
    with FilterPeer() as peer:
        for each in run(peer, filters=options.filters, tables=options.tables, seed=options.seed):
            for line in each.differences:
                print(line, flush=True)
            total.tables += each.tables
            total.filters += each.filters
            total.rows += each.rows
            total.matched += each.matched
            total.pruned += each.pruned
            total.differences += each.differences
            seconds = time.monotonic() - started
            print(f"{total.tables} tables, {total.filters} filters, {seconds:.0f} s", flush=True)
            if seconds > options.seconds:
                break
    print(
        f"{total.filters} filters over {total.tables} tables of {total.rows} rows together: "
        f"{len(total.differences)} differences\n"
        f"{total.matched} filters passed some rows and not others, {total.pruned} left files unread"
    )
    # Filters that pass all rows or none, and files that are all read, show nothing.
    shown = total.matched > total.filters // 3 and total.pruned > total.filters // 12
    return 0 if shown and not total.differences else 1


if __name__ == "__main__":
    raise SystemExit(main())
