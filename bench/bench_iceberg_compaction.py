"""Compaction of an encrypted Iceberg table, beside Spark's rewrite_data_files on the same table.

large    6 files with row groups of more than 32 MiB, which are moved
small    150 files of 20,000 rows, which are read and written again

Spark runs in local mode on as many cores, is warm, and syncs nothing; so the file system is synced after it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ags1.bench import Run, Subject
from bench import settings
from bench.bench_dataset import sync
from bench.conftest import Record
from bench.measure import figure
from bench.parquet_samples import size_name
from bench.spark_peer import SparkPeer

pytest.importorskip("pyarrow")
pytest.importorskip("pyiceberg")
pytest.importorskip("fastavro")

TARGETS = {"large": 3.0, "small": 1.5}
QUICK_FILES = {"large": 4, "small": 20}
FILES = {"large": 6, "small": 150}
ROWS = {"large": 2_500_000, "small": 20_000}
REWRITE = "CALL lake.system.rewrite_data_files(table => 'tables.compacted', options => map('rewrite-all', 'true'))"


@pytest.fixture(scope="module")
def spark(sizes: settings.Settings) -> Iterator[SparkPeer]:
    from tests.iceberg import warehouse

    if (reason := warehouse.available()) is not None:
        pytest.skip(f"Spark with Iceberg cannot run here: {reason}")
    with SparkPeer(long_lived=not sizes.quick) as peer:
        yield peer


@dataclass(frozen=True)
class Made:
    """A table, and the files that it has before anybody compacts it."""

    table: Any
    place: Path
    files: frozenset[Path]

    def clean(self) -> None:
        """Remove what was made of it."""
        for path in self.place.rglob("*"):
            if path.is_file() and path not in self.files:
                path.unlink()
        sync(self.place)


@pytest.fixture(scope="module")
def table_of(directory: Path, sizes: settings.Settings) -> Callable[[str], Made]:
    """The tables, each made when a question first needs it."""

    @functools.cache
    def make(which: str) -> Made:
        place = directory / which
        table = _table(place, which, quick=sizes.quick)
        return Made(table, place, frozenset(path for path in place.rglob("*") if path.is_file()))

    return make


def _table(place: Path, which: str, *, quick: bool) -> Any:
    """A table of many files, as appends have left it."""
    import numpy as np
    import pyarrow as pa

    from ags1.iceberg import create_table
    from ags1.kms import MemoryKms
    from tests.iceberg.keys import MASTER_KEYS

    chance = np.random.default_rng(1)
    schema = pa.schema([("id", pa.int64()), ("amount", pa.float64()), ("code", pa.int64()), ("name", pa.string())])
    large = {"write.parquet.row-group-limit": str(1 << 22), "write.parquet.row-group-size-bytes": str(1 << 30)}
    properties = large if which == "large" else {}
    table = create_table(None, str(place), schema, kms=MemoryKms(MASTER_KEYS), key_id="keyA", properties=properties)
    for number in range((QUICK_FILES if quick else FILES)[which]):
        count = ROWS[which]
        ids = np.arange(count) + number * count
        names = pa.array(ids % 5000).cast(pa.string())
        columns = [ids, chance.random(count), chance.integers(0, 1 << 62, count), names]
        table.append(pa.table(columns, schema=schema))
    return table


@pytest.mark.parametrize("which", ["large", "small"])
def test_iceberg_compaction(
    which: str,
    spark: SparkPeer,
    table_of: Callable[[str], Made],
    sizes: settings.Settings,
    directory: Path,
    interleave: Callable[..., Run],
    record: Record,
) -> None:
    from ags1.iceberg import load_table
    from ags1.kms import MemoryKms
    from tests.iceberg.keys import MASTER_KEYS

    made = table_of(which)
    place, table = made.place, made.table
    first = Path(table.metadata_location.removeprefix("file://"))
    files = len(table.scan().plan_files())
    stored = sum(path.stat().st_size for path in (place / "data").rglob("*") if path.is_file())
    rows = table.scan().count()
    kms = MemoryKms(MASTER_KEYS)

    def ours() -> None:
        report = load_table(None, str(first), kms=kms).compact(rewrite_all=True)
        assert report.files == files
        assert (report.moved_bytes > stored / 2) == (which == "large")

    def register() -> None:
        made.clean()
        spark.sql(f"CALL lake.system.register_table(table => 'tables.compacted', metadata_file => '{first.as_uri()}')")

    def theirs() -> None:
        spark.sql(REWRITE)
        sync(directory)

    peer = f"Spark {spark.version}, rewrite_data_files and syncfs"
    run = interleave(
        {
            "ags1": Subject(ours, before=made.clean),
            peer: Subject(theirs, before=register, after=lambda: spark.sql("DROP TABLE compacted")),
        },
        warm_up=1 if sizes.quick else 3,
    )
    words = f"compaction of an encrypted Iceberg table: {files} files, {size_name(stored)}, {rows:,} rows"
    note = f"{settings.cpus()} CPUs"
    record(run, figure(run, words, peer, kind="peer", nbytes=stored, target=TARGETS[which], note=note))


def test_scan_of_what_was_compacted(
    spark: SparkPeer,
    table_of: Callable[[str], Made],
    directory: Path,
    interleave: Callable[..., Run],
    record: Record,
) -> None:
    """A scan of what ags1 made of small files, beside one of what Spark made of the same."""
    from ags1.iceberg import load_table
    from ags1.kms import MemoryKms
    from tests.iceberg.keys import MASTER_KEYS

    table, kms = table_of("small"), MemoryKms(MASTER_KEYS)
    table.clean()
    place, first = table.place, Path(table.table.metadata_location.removeprefix("file://"))
    before = set((place / "metadata").glob("*.metadata.json"))
    mine = load_table(None, str(first), kms=kms)
    mine.compact(rewrite_all=True)
    made = set((place / "metadata").glob("*.metadata.json"))
    spark.sql(f"CALL lake.system.register_table(table => 'tables.compacted', metadata_file => '{first.as_uri()}')")
    spark.sql(REWRITE)
    theirs = max(set((place / "metadata").glob("*.metadata.json")) - made)
    spark.sql("DROP TABLE compacted")
    (ours,) = made - before

    def scan(metadata: Path) -> Callable[[], object]:
        return lambda: load_table(None, str(metadata), kms=kms).scan().to_arrow()

    by_spark = f"what Spark {spark.version} made"
    assert scan(ours)().num_rows == scan(theirs)().num_rows
    run = interleave({"ags1": scan(ours), by_spark: scan(theirs)})
    words = "scan of a compacted Iceberg table of small files"
    record(run, figure(run, words, by_spark, kind="peer", measure="time", target=1.1, note=f"{settings.cpus()} CPUs"))
