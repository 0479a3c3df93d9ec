"""Compaction, maintenance and re-keys of tables that SIGKILL ends at a function call by chance, and that are run again.

    python -m tests.iceberg.soak_maintenance [--kills 100] [--seed 0] [--seconds N]

There are so many kills of each kind. After each, every row is there; after the next run that ends, the work is done;
and after `clean`, every file below a table is one that the table names.
"""

from __future__ import annotations

import argparse
import math
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ags1.iceberg import CompactionOptions, EncryptedTable, clean, load_table
from ags1.iceberg.metadata.metadata_document import VERSION_HINT
from ags1.iceberg.walk.table_walk import walk
from ags1.kms import MemoryKms
from tests.iceberg.kills import Bomb, ended, in_child
from tests.iceberg.test_compaction import NOW, content, new_table, opened, rows
from tests.iceberg.test_maintenance import ALL
from tests.iceberg.test_old_keys import BOTH, NEW, Lake, check_nothing_old

# So many kills of one table, before it has too many old files.
_OF_ONE = 5
TABLES = 3


def left_over(table: EncryptedTable, place: Path) -> list[Path]:
    """Files below a table that it does not name."""
    found = walk(table.metadata_location, table.io, "all")
    log = [each["metadata-file"] for each in table.document.fields.get("metadata-log") or ()]
    paths = [*found.manifest_lists, *found.manifests, *found.files, table.metadata_location, *log]
    named = {urlsplit(each).path for each in paths}
    files = (path for path in place.rglob("*") if path.is_file() and not path.name.endswith(VERSION_HINT))
    return sorted(path for path in files if str(path) not in named)


def kills_of(work: Callable[[EncryptedTable], Any], place: Path, kills: int, chance: random.Random) -> tuple[int, int]:
    """Kill some work on one table so often; return how often it was killed, and how often files were left."""
    new_table(place, ["part"], files=2)
    killed = torn = 0
    calls = 0
    for number in range(kills):
        table = opened(place)
        first = 1000 * (number + 1)
        table.append(rows(*range(first, first + 10)))
        table.delete(f"id = {first + 3}")
        before = content(table)
        if not number:
            calls = calls_on_copy(place, lambda: work(opened(place)))
        bomb = Bomb(chance.randrange(calls // 5, calls))
        status = ended(in_child(lambda bomb=bomb: bomb.watch(lambda: work(opened(place)))))  # type: ignore[misc]
        assert status in (0, -signal.SIGKILL), f"the work failed: {status}"
        killed += status != 0
        table = opened(place)
        assert content(table) == before, "other rows after a kill"
        torn += bool(left_over(table, place))
        work(table)
        table = opened(place)
        assert content(table) == before, "other rows after the next run"
        assert len(table.scan().plan_files()) == 2, "it was not finished"
        clean(table, older_than=NOW)
        assert content(table) == before, "other rows after clean"
        assert not (left := left_over(table, place)), f"orphans: {left}"
        assert table.verify().ok
    return killed, torn


def calls_on_copy(place: Path, work: Callable[[], object]) -> int:
    """How many calls some work below a directory takes; what it does there is undone."""
    calls = 0
    for _ in range(2):
        # The second time as in a child: what is kept of schemas is there.
        shutil.copytree(place, place.with_name("counted"))
        calls = Bomb(None).watch(work)
        shutil.rmtree(place)
        place.with_name("counted").rename(place)
    return calls


def compact(table: EncryptedTable) -> Any:
    return table.compact(min_input_files=2, rewrite_all=True)


def maintain(table: EncryptedTable) -> Any:
    return table.maintain(replace(ALL, compaction=CompactionOptions(min_input_files=2)))


def kills_of_rekeys(directory: Path, kills: int, chance: random.Random) -> tuple[int, int]:
    """Kill a re-key of some tables so often, and finish it; return what :func:`kills_of` does."""
    directory.mkdir()
    lake = Lake(directory)
    lake.fill(TABLES)
    killed = torn = 0

    def check_rows(kms: Any) -> list[EncryptedTable]:
        tables = [load_table(lake.catalog(), f"db.t{number}", kms=kms) for number in range(TABLES)]
        for number, table in enumerate(tables):
            found = sorted(table.scan().to_arrow()["id"].to_pylist())
            assert found == [10 * number, 10 * number + 1, 10 * number + 5, 10 * number + 6], "other rows"
        return tables

    for number in range(kills):
        # Each kill leaves less to do. One in each part of the work, so that some come amid the files of a table.
        calls = calls_on_copy(directory, lake.rekey_all)
        bomb = Bomb(int(calls * (number + chance.random()) / kills) + 1)
        status = ended(in_child(lambda bomb=bomb: bomb.watch(lake.rekey_all)))  # type: ignore[misc]
        assert status in (0, -signal.SIGKILL), f"the work failed: {status}"
        killed += status != 0
        tables = check_rows(MemoryKms(BOTH))
        torn += any(left_over(table, directory / "lake" / "db" / table_name(table)) for table in tables)
        for table in tables:
            if table.audit().facts["old_keys"].removed:  # type: ignore[union-attr]
                # It was killed amid the removal of old files: the report says that this is what removes them.
                clean(table, older_than=NOW)
    lake.rekey_all()
    check_nothing_old(lake, TABLES)
    for table in check_rows(MemoryKms(NEW)):
        clean(table, older_than=NOW)
        left = left_over(table.refresh(), directory / "lake" / "db" / table_name(table))
        assert not left, f"orphans: {left}"
    check_rows(MemoryKms(NEW))
    return killed, torn


def table_name(table: EncryptedTable) -> str:
    return Path(urlsplit(str(table.document.fields["location"])).path).name


KINDS: dict[str, Callable[[Path, int, random.Random], tuple[int, int]]] = {
    "compaction": lambda place, kills, chance: kills_of(compact, place / "t", kills, chance),
    "maintenance": lambda place, kills, chance: kills_of(maintain, place / "t", kills, chance),
    "rekey": lambda place, kills, chance: kills_of_rekeys(place / "r", kills, chance),
}


def main() -> None:
    """Kill each so often."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=math.inf, help="nothing is begun after so long")
    options = parser.parse_args()
    end = time.monotonic() + options.seconds
    counts = {name: [0, 0, 0] for name in KINDS}
    for number in range(0, options.kills, _OF_ONE):
        for name, work in KINDS.items():
            if time.monotonic() > end:
                break
            seed = options.seed * 1_000_003 + number
            kills = min(_OF_ONE, options.kills - number)
            try:
                with tempfile.TemporaryDirectory() as directory:
                    killed, torn = work(Path(directory).resolve(), kills, random.Random(seed))
            except BaseException:
                print(f"failed: {name}, seed {seed}", flush=True)
                raise
            counts[name] = [sum(pair) for pair in zip(counts[name], (kills, killed, torn), strict=True)]
    for name, (runs, killed, torn) in counts.items():
        print(f"{name}: {runs} runs, {killed} killed before their end, {torn} of them left files: all right")


if __name__ == "__main__":
    main()
