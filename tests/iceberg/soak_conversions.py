"""Conversions that are killed, and several at once: the rows stay right, and nothing is left over.

    python -m tests.iceberg.soak_conversions --kills 100 --pairs 20 [--seed 0] [--seconds 3600] [--seconds 600]

A child is killed at a random one of its function calls. Then the same conversion is run again, what is old is expired,
and what is left over removed.
"""

from __future__ import annotations

import argparse
import datetime
import math
import random
import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

from ags1 import iceberg
from ags1.iceberg.catalogs import CatalogTable, catalog_table
from ags1.kms import MemoryKms
from tests.iceberg.conversions import LINEAGE, PLAINTEXT, beginning_with, read_rows, writable
from tests.iceberg.keys import MASTER_KEYS
from tests.iceberg.kills import Bomb, ended, in_child
from tests.iceberg.warehouse import SparkTable, make_tables

NOW = datetime.timedelta(0)


def _convert(place: Path, kms: MemoryKms) -> None:
    """What is killed, and run again: new keys for what has some, and keys for what has none."""
    table = catalog_table(None, str(place))
    if table.load().document.fields["properties"].get("encryption.key-id") is None:
        iceberg.encrypt_table(table, key_id="keyA", kms=kms, steps=("enable", "convert", "expire"))
    else:
        iceberg.rekey_table(table, key_id="keyB", data_keys=True, kms=kms, expire=True)


class Trial:
    """A table of its own, which is converted."""

    def __init__(self, table: SparkTable, kms: MemoryKms, directory: Path) -> None:
        self.kms, self.place = kms, directory / "table"
        key_id = table.document["properties"].get("encryption.key-id")
        source = writable(table, directory / "source")
        iceberg.relocate_table(source, str(self.place), kms=kms, key_id=key_id)
        assert table.current is not None
        self._columns = [*table.current.columns, *LINEAGE]
        self._rows = self.rows()

    @property
    def table(self) -> CatalogTable:
        return catalog_table(None, str(self.place))

    def rows(self) -> list[Any]:
        return read_rows(self.table, self.kms, self._columns)

    def check(self, *, finished: bool) -> None:
        assert self.rows() == self._rows, "other rows"
        if finished:
            table = self.table
            iceberg.expire_snapshots(table, kms=self.kms)
            iceberg.clean(table, kms=self.kms, older_than=NOW)
            assert self.rows() == self._rows, "other rows after clean"
            found = beginning_with(self.place, PLAINTEXT)
            assert not found, f"plaintext: {found}"
            names = {each.path.removeprefix("file://") for each in _files(table, self.kms)}
            left = {str(path) for path in self.place.rglob("*") if path.is_file() and path.suffix != ".json"} - names
            left = {path for path in left if not path.endswith("version-hint.text")}
            assert not left, f"orphans: {left}"
            assert not (self.place / "metadata" / "ags1-conversion").exists(), "a journal is left"


def _files(table: CatalogTable, kms: MemoryKms) -> Any:
    from ags1.iceberg.walk.table_walk import walk

    opened = iceberg.open_table(table.load().metadata_location, kms)
    return walk(opened.metadata_location, opened.io, "all")


def kill(table: SparkTable, kms: MemoryKms, chance: random.Random, calls: int) -> bool:
    """One conversion that is killed, and run again; return whether it was killed before its end."""
    with tempfile.TemporaryDirectory() as name:
        trial = Trial(table, kms, Path(name))
        bomb = Bomb(chance.randrange(1, calls))
        status = ended(in_child(lambda: bomb.watch(lambda: _convert(trial.place, kms))))
        assert status in (0, -signal.SIGKILL), f"the conversion failed: {status}"
        trial.check(finished=False)
        _convert(trial.place, kms)
        trial.check(finished=True)
        return status != 0


def pair(table: SparkTable, kms: MemoryKms) -> None:
    """Two conversions at once."""
    with tempfile.TemporaryDirectory() as name:
        trial = Trial(table, kms, Path(name))
        children = [in_child(lambda: _convert(trial.place, kms)) for _ in range(2)]
        ends = sorted(ended(each) for each in children)
        assert ends[0] == 0, f"both failed: {ends}"
        assert ends[1] in (0, 3), f"one failed: {ends}"
        trial.check(finished=True)


def count_calls(table: SparkTable, kms: MemoryKms) -> int:
    """Function calls of a whole conversion."""
    directory = Path(tempfile.mkdtemp())
    try:
        trial = Trial(table, kms, directory)
        return Bomb(None).watch(lambda: _convert(trial.place, kms))
    finally:
        shutil.rmtree(directory)


def main() -> None:
    """Run as many as were asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=math.inf, help="nothing is begun after so long")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    end = time.monotonic() + options.seconds
    kms = MemoryKms(MASTER_KEYS)
    tables = make_tables()
    names = ["deletes", "events_plain", "branches"]
    calls = {name: count_calls(tables[name], kms) for name in names}
    killed = done = paired = 0
    while (done < options.kills or paired < options.pairs) and time.monotonic() < end:
        name, seed = names[(done + paired) % len(names)], options.seed * 1_000_003 + done
        try:
            # Of both kinds from the beginning, as many as were asked for.
            if done * options.pairs <= paired * options.kills and done < options.kills:
                killed += kill(tables[name], kms, random.Random(seed), calls[name])
                done += 1
            else:
                pair(tables[name], kms)
                paired += 1
        except BaseException:
            print(f"failed: table {name}, seed {seed}", flush=True)
            raise
    print(f"{done} conversions, {killed} of them killed; {paired} times two at once: all right")


if __name__ == "__main__":
    main()
