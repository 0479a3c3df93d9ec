"""A plaintext Iceberg table, encrypted in place, beside a durable copy of its data files.

64 Parquet files of random numbers, which PyIceberg has added to a table of format version 2. The conversion reads the
metadata, looks at every file, moves it, looks at the result, writes manifests and commits; all of it is durable. The
floor reads and writes as many bytes: `cp -r`, and then the file system is synced. Where Spark with Iceberg can run, it
makes an encrypted table of the same files, as it is done without ags1: CREATE TABLE ... AS SELECT. Spark syncs nothing,
so the file system is synced after it too.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ags1.bench import Run, Subject
from ags1.expected import Expected
from bench import settings
from bench.bench_dataset import sync
from bench.conftest import Record
from bench.measure import figure
from bench.parquet_samples import size_name
from bench.spark_peer import SparkPeer

pytest.importorskip("pyarrow")
pytest.importorskip("pyiceberg")
pytest.importorskip("fastavro")

TARGET, SPARK_TARGET = 1.5, 5
FILES = 64
KEYS = {"lake": b"a key for a lake"}


@pytest.fixture(scope="module")
def table(directory: Path, sizes: settings.Settings) -> dict[str, Any]:
    """The metadata of the table; its files are in ``directory / "files"``."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyiceberg.catalog.sql import SqlCatalog

    files = directory / "files"
    files.mkdir()
    generator = np.random.default_rng(3)
    # With less, the metadata would be what is measured.
    count = sizes.large_file_bytes // 2 // FILES // 24
    for number in range(FILES):
        columns = {"id": np.arange(count) + number * count, "amount": generator.random(count)}
        columns["code"] = generator.integers(0, 1 << 62, count)
        pq.write_table(pa.table(columns), files / f"{number:02}.parquet")
    catalog = SqlCatalog("bench", uri=f"sqlite:///{directory}/catalog.db", warehouse=directory.as_uri())
    catalog.create_namespace("db")
    made = catalog.create_table("db.numbers", pq.read_schema(files / "00.parquet"))
    made.add_files([str(path) for path in sorted(files.iterdir())])
    fields: dict[str, Any] = json.loads(Path(made.metadata_location.removeprefix("file://")).read_bytes())
    return fields


@pytest.fixture(scope="module")
def spark(sizes: settings.Settings) -> Iterator[SparkPeer | None]:
    """One JVM, or None where Spark with Iceberg cannot run."""
    from tests.iceberg import warehouse

    if warehouse.available() is not None:
        yield None
        return
    with SparkPeer(long_lived=not sizes.quick) as peer:
        yield peer


def test_iceberg_conversion(
    table: dict[str, Any],
    spark: SparkPeer | None,
    directory: Path,
    interleave: Callable[..., Run],
    record: Record,
) -> None:
    from ags1 import iceberg
    from ags1.iceberg.catalogs import catalog_table
    from ags1.kms import MemoryKms

    place, copy, files = directory / "converted", directory / "copied", directory / "files"
    start = place / "metadata" / "00000-start.metadata.json"
    stored = sum(path.stat().st_size for path in files.iterdir())

    def fresh() -> None:
        for each in (place, copy):
            shutil.rmtree(each, ignore_errors=True)
        start.parent.mkdir(parents=True)
        start.write_text(json.dumps({**table, "location": str(place)}))
        sync(directory)

    def convert() -> None:
        made = catalog_table(None, str(start), expected=Expected(allowed_locations=[str(directory)]))
        report = iceberg.encrypt_table(made, key_id="lake", kms=MemoryKms(KEYS))
        assert report.files == FILES

    def durable_copy() -> None:
        subprocess.run(["cp", "-r", files, copy], check=True)
        sync(directory)

    floor, by_spark = "cp -r and syncfs", "Spark, CREATE TABLE AS SELECT and syncfs"
    subjects = {"ags1": Subject(convert, before=fresh), floor: Subject(durable_copy, before=fresh)}
    if spark is not None:
        peer = spark

        def create() -> None:
            properties = "'format-version' = '3', 'encryption.key-id' = 'keyA'"
            peer.sql(f"CREATE TABLE made USING iceberg TBLPROPERTIES ({properties}) AS SELECT * FROM parquet.`{files}`")
            sync(directory)

        subjects[by_spark] = Subject(create, before=fresh, after=lambda: peer.sql("DROP TABLE made PURGE"))
    run = interleave(subjects, warm_up=1)
    words = f"encryption of an Iceberg table in place: {FILES} Parquet files, {size_name(stored)}"
    note = f"{settings.cpus()} CPUs"
    figures = [figure(run, words, floor, kind="floor", measure="time", target=TARGET, note=note)]
    if spark is not None:
        figures.append(figure(run, words, by_spark, kind="peer", nbytes=stored, target=SPARK_TARGET, note=note))
    record(run, *figures)
