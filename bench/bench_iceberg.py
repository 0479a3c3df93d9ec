"""Scans of encrypted Iceberg tables, beside PyIceberg on the same tables unencrypted, and beside Spark; and appends.

Spark makes the tables of the scans: encrypted ones of format version 3, with a deletion vector, and their plaintext
twins of version 2, with a position delete file. They hold the same rows, of which one in a thousand is deleted. A scan
begins with the metadata file, for all sides: keys are unwrapped and manifests read each time.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ags1.bench import Run, Subject
from bench import settings
from bench.conftest import Record
from bench.measure import figure
from bench.parquet_samples import size_name
from bench.spark_peer import SparkPeer

pytest.importorskip("pyarrow")
pytest.importorskip("pyiceberg")
pytest.importorskip("fastavro")

TARGET = 1.2
APPEND_TARGET, DELETE_TARGET, TINY_TARGET, MANY_TARGET = 1.15, 1.0, 1.0, 1.0
WARM_UP = 2
JVM_WARM_UP = 6
SCANS = ("all", "column", "filter")
# The first scan of a JVM takes seconds, and so does its start. Of Avro, all columns of all rows are decoded each time.
IN_SPARK = (
    [("Parquet", "all")] if settings.load().quick else [*(("Parquet", which) for which in SCANS), ("Avro", "all")]
)


@dataclass(frozen=True)
class Question:
    """What is scanned."""

    words: str
    columns: tuple[str, ...] | None = None
    where: str | None = None


def question(which: str, rows: int) -> Question:
    """One of the scans, over a table of so many rows."""
    if which == "all":
        return Question("all rows and columns")
    if which == "column":
        return Question("one column of three", columns=("amount",))
    # In the middle. Positions of deleted rows count all rows, so no reader here skips row groups of such a file.
    return Question("one row in a hundred", where=f"id >= {rows // 2} and id < {rows // 2 + rows // 100}")


@pytest.fixture(scope="module")
def rows(sizes: settings.Settings) -> int:
    return 100_000 if sizes.quick else 2_000_000


@pytest.fixture(scope="module")
def tables(rows: int) -> Any:
    """Tables by name; made when first needed, which takes Spark a minute or two, and kept between runs."""
    try:
        from tests.iceberg import warehouse
    except ImportError as error:
        pytest.skip(f"no tables: {error}")
    reason = warehouse.available()
    if reason is not None:
        pytest.skip(f"no tables, because Spark with Iceberg cannot run here: {reason}")
    return warehouse.make_bulk(rows)


@pytest.fixture(scope="module")
def spark(tables: Any, sizes: settings.Settings) -> Iterator[SparkPeer]:
    """One JVM, for as long as this file takes."""
    with SparkPeer(long_lived=not sizes.quick) as peer:
        yield peer


def _ours(metadata: str, asked: Question) -> Callable[[], Any]:
    import ags1.iceberg
    from ags1.kms import MemoryKms
    from tests.iceberg.keys import MASTER_KEYS

    kms = MemoryKms(MASTER_KEYS)

    def scan() -> Any:
        return ags1.iceberg.open_table(metadata, kms).scan(columns=asked.columns, row_filter=asked.where).to_arrow()

    return scan


def _theirs(metadata: str, asked: Question) -> Callable[[], Any]:
    from pyiceberg.table import StaticTable

    options: dict[str, Any] = {} if asked.where is None else {"row_filter": asked.where}
    if asked.columns is not None:
        options["selected_fields"] = asked.columns
    return lambda: StaticTable.from_metadata(metadata).scan(**options).to_arrow()


def _in_spark(spark: SparkPeer, metadata: str, asked: Question, *, to_python: bool) -> Subject:
    def clock() -> float:
        return float(spark.scan(metadata, asked.columns, asked.where, to_python=to_python)["seconds"])

    return Subject(lambda: None, clock=clock)


def _stored(table: Any) -> int:
    """Bytes of its data files."""
    return sum(path.stat().st_size for path in (Path(table.location) / "data").rglob("*") if path.is_file())


@pytest.mark.parametrize("which", SCANS)
def test_iceberg_scan(which: str, tables: Any, rows: int, interleave: Callable[..., Run], record: Record) -> None:
    import pyiceberg

    encrypted, plain = tables["encrypted"], tables["plain"]
    asked = question(which, rows)
    peer = f"PyIceberg {pyiceberg.__version__}, not encrypted"
    subjects = {"ags1": _ours(encrypted.metadata, asked), peer: _theirs(plain.metadata, asked)}
    found = {name: scan() for name, scan in subjects.items()}
    # A scan that leaves rows out would be a fast one.
    assert all(each.cast(found["ags1"].schema).equals(found["ags1"]) for each in found.values())
    del found
    run = interleave(subjects, warm_up=WARM_UP)
    words = _words(encrypted, "Parquet", asked, rows)
    record(run, figure(run, words, peer, kind="peer", measure="time", target=TARGET))


@pytest.mark.parametrize(("file_format", "which"), IN_SPARK)
def test_iceberg_spark(
    file_format: str,
    which: str,
    tables: Any,
    rows: int,
    spark: SparkPeer,
    sizes: settings.Settings,
    interleave: Callable[..., Run],
    record: Record,
) -> None:
    table = tables["encrypted_avro" if file_format == "Avro" else "encrypted"]
    asked = question(which, rows)
    ours = _ours(table.metadata, asked)
    brought = spark.scan(table.metadata, asked.columns, asked.where, to_python=True)["rows"]
    assert ours().num_rows == brought
    names = {False: f"Spark {spark.version}", True: f"Spark {spark.version}, toArrow()"}
    subjects: dict[str, Any] = {"ags1": Subject(ours)}
    for to_python, name in names.items():
        subjects[name] = _in_spark(spark, table.metadata, asked, to_python=to_python)
        # The JVM compiles what runs often; before that it has a fraction of its speed.
        for _ in range(1 if sizes.quick else JVM_WARM_UP):
            subjects[name].clock()
    run = interleave(subjects, warm_up=0 if sizes.quick else 1)
    words = _words(table, file_format, asked, rows)
    note = (
        "Spark in local mode on two cores, after warm-up, by its own clock, JVM start-up excluded; it drops the rows "
        "where it has them, and toArrow() hands them to Python as the same table that ags1 makes"
    )
    record(
        run,
        figure(run, words, names[False], kind="peer", measure="time", note=note),
        figure(run, words, names[True], kind="peer", measure="time"),
    )


def _made_rows(count: int) -> Any:
    """Numbers, times and text, as tables of events have them."""
    import pyarrow
    import pyarrow.compute as compute

    chance = [compute.random(count, initializer=seed) for seed in range(4)]
    places = compute.floor(compute.multiply(chance[2], 4)).cast(pyarrow.int32())
    names = compute.floor(compute.multiply(chance[3], 1_000_000)).cast(pyarrow.int64()).cast(pyarrow.string())
    moments = compute.add(compute.floor(compute.multiply(chance[1], 1e15)).cast(pyarrow.int64()), 10**15)
    return pyarrow.table(
        {
            "id": pyarrow.array(range(count), pyarrow.int64()),
            "amount": compute.round(compute.multiply(chance[0], 1000), 2),
            "ts": moments.cast(pyarrow.timestamp("us")),
            "country": pyarrow.array(["CH", "DE", "FR", "IT"]).take(places),
            "name": compute.binary_join_element_wise("name", names, " "),
        }
    )


@dataclass
class Beside:
    """Two tables of the same rows that are made again for each round: an encrypted one of ags1, and PyIceberg's."""

    catalog: Any
    directory: Path
    data: Any
    found: dict[str, Any] = field(default_factory=dict)

    def fresh(self, name: str, *, filled: bool = False) -> Callable[[], None]:
        """Return what makes one of them, "ags1" or "PyIceberg", without the files of the round before."""
        from ags1.iceberg import create_table
        from ags1.kms import MemoryKms

        def before() -> None:
            shutil.rmtree(self.directory / "lake" / "t", ignore_errors=True)
            for each in self.catalog.list_tables("t"):
                self.catalog.drop_table(each)
            if name == "ags1":
                kms = MemoryKms({"master": bytes(16)})
                made = create_table(self.catalog, f"t.{name}", self.data.schema, kms=kms, key_id="master")
            else:
                made = self.catalog.create_table(f"t.{name}", self.data.schema)
            if filled:
                made.append(self.data)
            self.found[name] = made

        return before


def test_iceberg_append(
    sizes: settings.Settings, interleave: Callable[..., Run], record: Record, tmp_path: Path
) -> None:
    import pyiceberg
    from pyiceberg.catalog.sql import SqlCatalog

    count = 200_000 if sizes.quick else 4_000_000
    data = _made_rows(count)
    catalog = SqlCatalog("bench", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=(tmp_path / "lake").as_uri())
    catalog.create_namespace("t")
    beside = Beside(catalog, tmp_path, data)
    peer = f"PyIceberg {pyiceberg.__version__}, not encrypted"
    run = interleave(
        {
            "ags1": Subject(lambda: beside.found["ags1"].append(data), before=beside.fresh("ags1")),
            peer: Subject(lambda: beside.found["PyIceberg"].append(data), before=beside.fresh("PyIceberg")),
        },
        warm_up=1,
    )
    words = f"append to an Iceberg table, {count:,} rows of {size_name(data.nbytes)} in Arrow"
    note = "ags1 waits until its files are on the disk, PyIceberg does not"
    record(run, figure(run, words, peer, kind="peer", measure="time", target=APPEND_TARGET, note=note))


WIDE_COLUMNS, TINY_FILES = 51, 600


@pytest.fixture(scope="module")
def wide(sizes: settings.Settings, tmp_path_factory: pytest.TempPathFactory) -> Beside:
    """Numbers, times and texts, of which every second column has repeated values."""
    import numpy as np
    import pyarrow
    from pyiceberg.catalog.sql import SqlCatalog

    count = 50_000 if sizes.quick else 1_000_000
    chooser = np.random.default_rng(7)
    texts = pyarrow.array([f"name {each}" for each in range(1000)])
    kinds: list[Callable[[], Any]] = [
        lambda: chooser.integers(0, 1 << 40, count),
        lambda: chooser.integers(0, 1000, count, np.int32),
        lambda: chooser.random(count),
        lambda: texts.take(pyarrow.array(chooser.integers(0, 1000, count))),
        lambda: pyarrow.array(10**6 * chooser.integers(0, 10**9, count)).cast(pyarrow.timestamp("us")),
    ]
    columns = {f"c{number}": kinds[number % len(kinds)]() for number in range(1, WIDE_COLUMNS)}
    directory = tmp_path_factory.mktemp("wide")
    catalog = SqlCatalog("wide", uri=f"sqlite:///{directory}/catalog.db", warehouse=(directory / "lake").as_uri())
    catalog.create_namespace("t")
    return Beside(catalog, directory, pyarrow.table({"id": range(count), **columns}))


@pytest.mark.parametrize("which", ["append to", "delete of one row in a thousand from"])
def test_iceberg_wide(which: str, wide: Beside, interleave: Callable[..., Run], record: Record) -> None:
    import pyiceberg

    count, deletes = wide.data.num_rows, which.startswith("delete")
    where, peer = f"id >= {count // 2} and id < {count // 2 + count // 1000}", f"PyIceberg {pyiceberg.__version__}"
    peer += ", not encrypted"

    def work(name: str) -> Callable[[], Any]:
        return lambda: wide.found[name].delete(where) if deletes else wide.found[name].append(wide.data)

    run = interleave(
        {
            "ags1": Subject(work("ags1"), before=wide.fresh("ags1", filled=deletes)),
            peer: Subject(work("PyIceberg"), before=wide.fresh("PyIceberg", filled=deletes)),
        },
        warm_up=1,
    )
    words = (
        f"{which} an Iceberg table, {count:,} rows of {WIDE_COLUMNS} columns, {size_name(wide.data.nbytes)} in Arrow"
    )
    note = "a deletion vector, where PyIceberg writes the file again" if deletes else ""
    target = DELETE_TARGET if deletes else APPEND_TARGET
    record(run, figure(run, words, peer, kind="peer", measure="time", target=target, note=note))


def test_iceberg_tiny_files(
    sizes: settings.Settings, interleave: Callable[..., Run], record: Record, tmp_path: Path
) -> None:
    import pyarrow
    import pyarrow.parquet as pq
    import pyiceberg
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.table import StaticTable

    from ags1.iceberg import open_table
    from ags1.kms import MemoryKms

    count = 100 if sizes.quick else TINY_FILES
    paths = []
    for number in range(count):
        rows = pyarrow.table({"id": [number] * 10, "amount": [number / 3] * 10, "name": [f"name {number}"] * 10})
        paths.append(str(tmp_path / f"{number:05}.parquet"))
        pq.write_table(rows, paths[-1])
    catalog = SqlCatalog("tiny", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=(tmp_path / "lake").as_uri())
    catalog.create_namespace("t")
    table = catalog.create_table("t.tiny", rows.schema)
    for first in range(0, count, 100):
        table.add_files(paths[first : first + 100])
    metadata, kms = table.metadata_location, MemoryKms({})

    def ours() -> Any:
        return open_table(metadata, kms, allow_plaintext=True, allowed_locations=[str(tmp_path)]).scan().to_arrow()

    peer = f"PyIceberg {pyiceberg.__version__}"
    run = interleave({"ags1": ours, peer: lambda: StaticTable.from_metadata(metadata).scan().to_arrow()})
    words = f"scan of an Iceberg table that is not encrypted, {count:,} files of 10 rows"
    record(run, figure(run, words, peer, kind="peer", measure="time", target=TINY_TARGET))


@dataclass(frozen=True)
class ManyFiles:
    """A table of many files on a local disk: unencrypted, and encrypted."""

    words: str
    plain: str
    encrypted: str
    stored: list[Path]

    def read_all(self) -> None:
        """Read the encrypted data files one after another, and drop the bytes: what no verification can do without."""
        for each in self.stored:
            each.read_bytes()


# Files, rows of each, and whether half of the columns are texts: such a column has a dictionary.
MANY = {
    "200 files of 1,000 rows": (200, 1_000, False),
    "100 files of 20,000 rows, half of them texts": (100, 20_000, True),
}


@pytest.fixture(scope="module", params=MANY)
def many(
    request: pytest.FixtureRequest, sizes: settings.Settings, tmp_path_factory: pytest.TempPathFactory
) -> ManyFiles:
    import numpy as np
    import pyarrow
    import pyarrow.parquet as pq
    from pyiceberg.catalog.sql import SqlCatalog

    from ags1.iceberg import encrypt_table, load_table
    from ags1.kms import MemoryKms

    files, count, has_texts = MANY[request.param]
    directory, chooser, paths = tmp_path_factory.mktemp("many"), np.random.default_rng(3), list[str]()
    for number in range(files // 10 if sizes.quick else files):
        numbers = {f"c{each}": chooser.integers(0, 1000 if has_texts else 1 << 60, count) for each in range(8)}
        table = pyarrow.table(numbers)
        for each in range(0, 8 if has_texts else 0, 2):
            texts = pyarrow.array([f"the text of number {value}" for value in range(1000)])
            table = table.set_column(each, f"c{each}", texts.take(table[f"c{each}"]))
        paths.append(str(directory / f"{number:03}.parquet"))
        pq.write_table(table, paths[-1])
    catalog = SqlCatalog("many", uri=f"sqlite:///{directory}/catalog.db", warehouse=(directory / "lake").as_uri())
    catalog.create_namespace("t")
    for name in ("plain", "encrypted"):
        catalog.create_table(f"t.{name}", table.schema).add_files(paths)
    options: dict[str, Any] = {"allow_plaintext": True, "allowed_locations": [str(directory)]}
    encrypt_table(load_table(catalog, "t.encrypted", kms=MemoryKms({"lake": bytes(16)}), **options), key_id="lake")
    found = [catalog.load_table(f"t.{name}").metadata_location for name in ("plain", "encrypted")]
    return ManyFiles(request.param, *found, sorted((directory / "lake").rglob("*.parquet")))


@pytest.mark.parametrize("which", ["scan", "verification"])
def test_iceberg_many_files(which: str, many: ManyFiles, interleave: Callable[..., Run], record: Record) -> None:
    import pyiceberg
    from pyiceberg.table import StaticTable

    from ags1.iceberg import open_table
    from ags1.kms import MemoryKms

    kms = MemoryKms({"lake": bytes(16)})

    def ours() -> Any:
        table = open_table(many.encrypted, kms)
        return table.scan().to_arrow() if which == "scan" else table.verify(None)

    def theirs() -> Any:
        return StaticTable.from_metadata(many.plain).scan().to_arrow()

    if which == "scan":
        assert ours().num_rows == theirs().num_rows
    else:
        assert ours().ok
    peer = f"PyIceberg {pyiceberg.__version__}, not encrypted" + (", scan" if which == "verification" else "")
    subjects, floor = {"ags1": ours, peer: theirs}, "the same files, read by Python"
    if which == "verification":
        subjects[floor] = many.read_all
    run = interleave(subjects)
    words = f"{which} of an encrypted Iceberg table, {many.words}"
    figures = [figure(run, words, peer, kind="peer", measure="time", target=MANY_TARGET)]
    if which == "verification":
        figures.append(figure(run, words, floor, kind="floor", measure="time"))
    record(run, *figures)


def _words(table: Any, file_format: str, asked: Question, rows: int) -> str:
    size = f"{rows:,} rows in {size_name(_stored(table))} of {file_format}"
    return f"scan of an encrypted Iceberg table, {size}: {asked.words}"
