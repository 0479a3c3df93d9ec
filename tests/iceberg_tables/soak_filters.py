"""Row filters against Spark's own: random tables, random filters, the same rows.

    python -m tests.iceberg_tables.soak_filters --filters 10000 --tables 50 [--seed 0] [--seconds 3600]
    python -m tests.iceberg_tables.soak_filters --texts --filters 10000
    python -m tests.iceberg_tables.soak_filters --record tests/iceberg/filters_of_spark.json --filters 420 --seed 5
    python -m tests.iceberg_tables.soak_filters --engines --filters 10000

Most filters are text; the others are PyIceberg's expressions. With `--texts`, they are compared over the rows of
`PlainRows`, which is faster; with `--record`, Spark's answers are also written to a file, which
tests/iceberg/test_filter_text.py reads. With `--engines`, as many filters are given to polars and to DuckDB, each over
a scan and over the same rows in Arrow. A difference is printed with what is needed to see it again, and the exit status
is 1. Spark is given many filters as columns of one query, so that it evaluates them itself.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from ags1.iceberg import EncryptedTable, open_table
from ags1.iceberg.files.file_io import SnapshotFiles
from ags1.kms import MemoryKms
from tests.iceberg_tables.keys import MASTER_KEYS
from tests.iceberg_tables.random_filters import PlainRows, RandomText
from tests.iceberg_tables.random_queries import PlainTable
from tests.iceberg_tables.random_tables import Filter, RandomTable
from tests.iceberg_tables.warehouse import SparkProcess, available
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

    def truths(self, rows: PlainRows, filters: list[str]) -> list[str]:
        """For each filter, whether it is true (1), false (0) or null (n), row by row."""
        self.ask({"table": "plain_rows", "view": rows.view})
        found: list[str] = []
        for start in range(0, len(filters), _AT_ONCE):
            part = filters[start : start + _AT_ONCE]
            marks = sorted(self.ask({"table": "plain_rows", "filters": part}))
            found += ["".join(each[1][index] for each in marks) for index in range(len(part))]
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


def compare_texts(peer: FilterPeer, path: Path | None, *, filters: int, seed: int) -> int:
    """Ask Spark for the truth of texts over the rows of `PlainRows`, and write its answers; return the exit status."""
    rows = PlainRows()
    made = RandomText(random.Random(seed), rows.columns)
    texts = list(dict.fromkeys(made.filter() for _ in range(filters)))
    answers = list(zip(texts, peer.truths(rows, texts), strict=True))
    if path is not None:
        path.write_text("[\n" + ",\n".join(json.dumps(each) for each in answers) + "\n]\n")
    found = 0
    for text, wanted in answers:
        try:
            ours = rows.truths(text)
        except ValueError as error:
            ours = str(error)
        if ours != wanted:
            found += 1
            print(f"{text!r}: {ours} instead of {wanted}", flush=True)
    print(f"{len(texts)} texts over {len(answers[0][1])} rows: {found} differences", flush=True)
    return 1 if found else 0


def _with_engines(filters: int, seed: int) -> int:
    with tempfile.TemporaryDirectory(prefix="ags1-engines-") as directory:
        table = PlainTable(Path(directory) / "t")
        found = 0
        for compare_with in (table.polars_differences, table.duckdb_differences):
            started, differences = time.monotonic(), compare_with(seed, filters)
            print("\n".join(differences))
            seconds = time.monotonic() - started
            print(f"{compare_with.__name__}: {len(differences)} of {filters}, {seconds:.0f} s", flush=True)
            found += len(differences)
    return 1 if found else 0


def main(arguments: list[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--filters", type=int, default=10_000, help="of all tables together")
    parser.add_argument("--tables", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0, help="of the first table; each further one has the next")
    parser.add_argument("--seconds", type=float, default=math.inf, help="no table is begun after so long")
    parser.add_argument("--texts", action="store_true", help="compare truth, row by row, without tables of Iceberg")
    parser.add_argument("--record", type=Path, help="so too, and write what Spark says to this file")
    parser.add_argument("--engines", action="store_true", help="ask polars and DuckDB instead of Spark")
    options = parser.parse_args(arguments)
    if options.engines:
        return _with_engines(options.filters, options.seed)
    if (reason := available()) is not None:
        print(f"Spark with Iceberg cannot run here: {reason}")
        return 1 if os.environ.get("AGS1_NO_SKIP") else 0
    total, started = Outcome(), time.monotonic()
    with FilterPeer() as peer:
        if options.texts or options.record is not None:
            return compare_texts(peer, options.record, filters=options.filters, seed=options.seed)
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
