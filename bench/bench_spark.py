"""The Spark pipeline on two local slots, beside the single-process path on the same files; one huge file beside many.

Spark has started, and its workers have been warmed up: what is compared is what each byte and each file cost.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ags1.bench import Run, Subject
from bench import processes, settings
from bench.bench_dataset import make_manifests
from bench.conftest import Record
from bench.measure import figure, memory_figure
from bench.settings import MIB

pytest.importorskip("pyspark")
pytest.importorskip("pandas")

SLOTS = 2
TARGET = 0.8
TARGET_OF_HUGE = 0.85
COPIES = "an RDD of shutil.copyfile"
TARGETS_OF_COPIES = {"encrypt": 0.9, "decrypt": 1.0}
TARGET_OF_PLANS = 1_500.0
"""Milliseconds for 200,000 files."""
NOTE = f"local[{SLOTS}], one machine with {settings.cpus()} CPUs; Spark and its workers had started"


@dataclass(frozen=True)
class Tree:
    """Files of one kind of mixture."""

    root: Path
    files: int
    nbytes: int
    words: str


@pytest.fixture(scope="module")
def spark(directory: Path) -> Iterator[Any]:
    """One session for this file."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master(f"local[{SLOTS}]")
        .appName("ags1 bench")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.local.dir", str(directory / "spark"))
        .config("spark.driver.memory", "2g")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="module")
def kms(directory: Path) -> str:
    """A keystore that the workers open by its URL."""
    from ags1.kms import LocalKms

    key_file = directory / "keystore.key"
    key_file.write_text(os.urandom(32).hex())
    key_file.chmod(0o600)
    with LocalKms.create(directory / "keys.json", key_file=key_file) as client:
        client.add_key("lake")
    return f"local:{directory / 'keys.json'}?key_file={key_file}"


def _fill(path: Path, nbytes: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    piece = os.urandom(min(nbytes, 8 * MIB))
    with open(path, "wb", buffering=0) as file:
        file.writelines(piece for _ in range(nbytes // len(piece)))


@pytest.fixture(scope="module")
def mixed(directory: Path, sizes: settings.Settings) -> Tree:
    """One large file, some of 2 MiB, and many of 4 KiB."""
    root = directory / "mixed"
    huge, medium, small = (64 * MIB, 5, 500) if sizes.quick else (512 * MIB, 50, 2000)
    _fill(root / "huge", huge)
    for index in range(medium):
        _fill(root / "medium" / f"{index:03}", 2 * MIB)
    for index in range(small):
        _fill(root / "small" / f"{index // 100:03}" / f"{index:05}", 4096)
    nbytes = huge + medium * 2 * MIB + small * 4096
    words = f"one file of {huge // MIB:,} MiB, {medium} of 2 MiB, {small:,} of 4 KiB"
    os.sync()
    return Tree(root, 1 + medium + small, nbytes, words)


def _copy_over_spark(spark: Any, source: Path, target: Path) -> None:
    """What one writes without a library: a list of files, and a copy of each in a task."""
    root, into = str(source), str(target)
    names = [os.path.relpath(os.path.join(place, name), root) for place, _, found in os.walk(root) for name in found]

    def copy(name: str) -> None:
        path = os.path.join(into, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        shutil.copyfile(os.path.join(root, name), path)

    spark.sparkContext.parallelize(names, 4 * SLOTS).foreach(copy)


def _away(*paths: Path) -> Callable[[], None]:
    def remove() -> None:
        for path in paths:
            shutil.rmtree(path, ignore_errors=True)
        os.sync()

    return remove


@pytest.mark.parametrize("direction", ["encrypt", "decrypt", "verify"])
def test_mixed_tree(
    direction: str,
    mixed: Tree,
    spark: Any,
    kms: str,
    directory: Path,
    interleave: Callable[..., Run],
    record: Record,
) -> None:
    import ags1.spark
    from ags1 import dataset

    vault, target = directory / "mixed-vault", directory / "out"
    if not vault.exists():
        dataset.encrypt(mixed.root, vault, kms, "lake").close()

    def here() -> None:
        if direction == "encrypt":
            dataset.encrypt(mixed.root, target, kms, "lake").close()
            return
        with dataset.open(vault, kms) as opened:
            if direction == "decrypt":
                # As Spark's tasks do, which record only what is on the disk.
                opened.decrypt(target, durable=True)
            else:
                assert opened.verify().ok

    def over_spark() -> None:
        if direction == "encrypt":
            ags1.spark.encrypt_files(spark, mixed.root, target, kms=kms, key_id="lake", progress=False)
        elif direction == "decrypt":
            ags1.spark.decrypt_files(spark, vault, target, kms=kms, progress=False)
        else:
            assert ags1.spark.verify_files(spark, vault, kms=kms, progress=False).ok

    away = _away(target)
    subjects = {"ags1": Subject(over_spark, after=away), "one process": Subject(here, after=away)}
    if direction in TARGETS_OF_COPIES:
        source = mixed.root if direction == "encrypt" else vault
        subjects[COPIES] = Subject(lambda: _copy_over_spark(spark, source, target), after=away)
    run = interleave(subjects, warm_up=2)
    question = f"Spark: {direction} {mixed.words}"
    figures = [figure(run, question, "one process", kind="peer", target=TARGET, nbytes=mixed.nbytes, note=NOTE)]
    if direction in TARGETS_OF_COPIES:
        promised, note = TARGETS_OF_COPIES[direction], f"{NOTE}; copies are not on the disk afterwards"
        figures.append(figure(run, question, COPIES, kind="reference", target=promised, nbytes=mixed.nbytes, note=note))
    record(run, *figures)


@pytest.mark.parametrize("direction", ["encrypt", "decrypt"])
def test_one_huge_file(
    direction: str,
    spark: Any,
    kms: str,
    directory: Path,
    sizes: settings.Settings,
    interleave: Callable[..., Run],
    record: Record,
) -> None:
    import ags1.spark

    nbytes = 64 * MIB if sizes.quick else 512 * MIB
    huge, many, target = directory / "huge", directory / "many", directory / "out"
    if not huge.exists():
        _fill(huge / "one", nbytes)
        for index in range(16):
            _fill(many / f"{index:02}", nbytes // 16)
        for source in (huge, many):
            vault = source.with_name(f"{source.name}-vault")
            ags1.spark.encrypt_files(spark, source, vault, kms=kms, key_id="lake", progress=False)
        os.sync()

    def work(source: Path) -> Callable[[], object]:
        if direction == "encrypt":
            return lambda: ags1.spark.encrypt_files(spark, source, target, kms=kms, key_id="lake", progress=False)
        vault = source.with_name(f"{source.name}-vault")
        return lambda: ags1.spark.decrypt_files(spark, vault, target, kms=kms, progress=False)

    away = _away(target)
    subjects = {"ags1": Subject(work(huge), after=away), "in 16 files": Subject(work(many), after=away)}
    run = interleave(subjects)
    question = f"Spark: {direction} one file of {nbytes // MIB:,} MiB"
    record(run, figure(run, question, "in 16 files", kind="reference", target=TARGET_OF_HUGE, nbytes=nbytes, note=NOTE))


_PLANNING = """
import sys
from ags1.spark.source.data_source import Ags1DataSource
from pyspark.sql.types import StructType
if len(sys.argv) > 1:
    source = Ags1DataSource({"path": sys.argv[1], "kms": sys.argv[2]})
    assert source.reader(StructType().add("content", "binary")).partitions()
"""


def test_planning_many_files(
    kms: str, directory: Path, sizes: settings.Settings, interleave: Callable[..., Run], record: Record
) -> None:
    from pyspark.sql.types import StructType

    from ags1 import dataset
    from ags1.kms import load
    from ags1.spark.source.data_source import Ags1DataSource

    count, vault = (20_000 if sizes.quick else 200_000), directory / "planned"
    with load(kms) as client:
        make_manifests(vault, client, count, lambda keys, done: None)
    schema = StructType().add("content", "binary")
    options = {"path": str(vault), "kms": kms}

    def plan() -> None:
        assert Ags1DataSource(options).reader(schema).partitions()

    def plan_a_part() -> None:
        # What a filter leaves is known only from the leaves, which the driver reads then.
        assert Ags1DataSource({**options, "include": "month=01"}).reader(schema).partitions()

    def look() -> None:
        dataset.open(vault, kms).close()

    run = interleave({"ags1": plan, "with a filter": plan_a_part, "open it": look})
    question = f'Spark: plan read.format("ags1") of {count:,} files'
    note = "in one process, as Spark plans a Python source"
    figures = [
        figure(
            run,
            f"{question}{more}",
            "open it",
            subject=subject,
            kind="reference",
            measure="ms",
            target=TARGET_OF_PLANS,
            note=note,
        )
        for subject, more in (("ags1", ""), ("with a filter", ", some of them"))
    ]
    mine = processes.peak_memory([sys.executable, "-c", _PLANNING, str(vault), kms])
    bare = processes.peak_memory([sys.executable, "-c", _PLANNING])
    memory = f"peak memory of planning {count:,} files"
    figures.append(memory_figure(memory, "import ags1.spark", mine, bare, target=20.0, note=note))
    record(run, *figures)


@pytest.fixture(scope="module")
def lines(directory: Path, sizes: settings.Settings) -> Tree:
    """JSON lines in a few files."""
    root = directory / "lines"
    root.mkdir()
    rows, files = (20_000 if sizes.quick else 2_000_000), 4
    for number in range(files):
        with open(root / f"{number}.json", "w") as file:
            file.writelines(
                f'{{"id": {row}, "name": "customer {row}", "amount": {row / 4}, "day": "2026-11-21"}}\n'
                for row in range(number, rows, files)
            )
    nbytes = sum(path.stat().st_size for path in root.iterdir())
    return Tree(root, files, nbytes, f"{rows:,} JSON lines in {nbytes // MIB:,} MiB")


def test_reading_json_lines(
    lines: Tree, spark: Any, kms: str, directory: Path, interleave: Callable[..., Run], record: Record
) -> None:
    from pyspark.sql import functions

    import ags1.spark

    vault = directory / "lines-vault"
    ags1.spark.encrypt_files(spark, lines.root, vault, kms=kms, key_id="lake", progress=False)
    ags1.spark.register(spark)
    schema = "id bigint, name string, amount double, day string"
    reader = spark.read.format("ags1").options(kms=kms, decode="text")

    def ours() -> int:
        rows = reader.load(str(vault)).select(functions.from_json("value", schema).alias("row"))
        return int(rows.where("row.amount > 10").count())

    def theirs() -> int:
        return int(spark.read.schema(schema).json(str(lines.root)).where("amount > 10").count())

    assert ours() == theirs()
    reference = "spark.read.json, not encrypted"
    run = interleave({"ags1": Subject(ours), reference: Subject(theirs)}, warm_up=2)
    question = f'Spark: read.format("ags1") and from_json, {lines.words}'
    figures = [figure(run, question, reference, kind="peer", nbytes=lines.nbytes, note=NOTE)]
    record(run, *figures)


def test_reading_blocks(
    spark: Any, kms: str, directory: Path, sizes: settings.Settings, interleave: Callable[..., Run], record: Record
) -> None:
    import ags1.spark
    from ags1 import dataset

    nbytes = 64 * MIB if sizes.quick else 512 * MIB
    source, vault = directory / "blocks", directory / "blocks-vault"
    _fill(source / "one", nbytes)
    ags1.spark.encrypt_files(spark, source, vault, kms=kms, key_id="lake", progress=False)
    ags1.spark.register(spark)
    reader = spark.read.format("ags1").option("kms", kms)
    room = bytearray(32 * MIB)

    def ours() -> None:
        # Loaded anew: Spark keeps what a DataFrame has answered for as long as there is that DataFrame.
        assert reader.load(str(vault)).selectExpr("sum(length(content))").collect()[0][0] == nbytes

    def floor() -> None:
        with dataset.open(vault, kms) as opened, opened.open("one") as reader:
            while reader.readinto(room):
                pass

    run = interleave({"ags1": Subject(ours), "one Reader, no Spark": Subject(floor)}, warm_up=2)
    question = f'Spark: read.format("ags1"), {nbytes // MIB:,} MiB in blocks'
    note = f"{NOTE}; each block goes from Python to the JVM through a socket"
    record(run, figure(run, question, "one Reader, no Spark", kind="reference", nbytes=nbytes, note=note))


@pytest.mark.parametrize("length", [256, 1024])
def test_columns(
    length: int,
    spark: Any,
    kms: str,
    directory: Path,
    sizes: settings.Settings,
    interleave: Callable[..., Run],
    record: Record,
) -> None:
    from pyspark.sql import functions

    import ags1.spark

    count = (64 if sizes.quick else 256) * MIB // length
    values = functions.expr(f"CAST(repeat(char(65 + id % 26), {length}) AS BINARY)").alias("value")
    rows = spark.range(count, numPartitions=SLOTS).select("id", values).persist()
    assert rows.count() == count
    # What the key costs, once for each call, is not in it.
    forms = {
        form: ags1.spark.encrypt_columns(rows, {"value": "lake"}, kms=kms, keys=directory / "column-keys", form=form)
        for form in ("ags1", "gcm")
    }
    identity, by_spark = "identity mapInArrow, not encrypted", "Spark's aes_encrypt, GCM"
    key, mode = functions.lit(os.urandom(32)), functions.lit("GCM")
    frames = {
        "ags1": forms["ags1"],
        "ags1, form gcm": forms["gcm"],
        identity: rows.mapInArrow(lambda batches: batches, rows.schema),
        by_spark: rows.select("id", functions.aes_encrypt("value", key, mode)),
    }
    subjects = {name: Subject(frame.write.format("noop").mode("overwrite").save) for name, frame in frames.items()}
    run = interleave(subjects, warm_up=2)
    rows.unpersist()
    question = f"Spark: encrypt_columns, {count:,} values of {length:,} B"
    targets = {identity: {256: 0.8, 1024: 0.9}[length], by_spark: 1.0}
    figures = [
        figure(run, question, reference, subject=subject, kind="peer", target=target, nbytes=count * length, note=NOTE)
        for subject in ("ags1", "ags1, form gcm")
        for reference, target in targets.items()
    ]
    record(run, *figures)
