"""What the model of bench.scale is fed with, and compared with: small real runs on this machine.

Most costs are measured without Spark: a stand-in for its session runs the tasks in this process, so that what the
driver does and what a task does can be told apart. What Spark itself costs comes from real sessions, each in a process
of its own: ``python -m bench.scale_runs MASTER [check]`` prints what it measured as JSON.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import repeat
from pathlib import Path
from typing import Any

import pyarrow as pa

from bench import measure as machine
from bench import settings
from bench.scale import KIB, LOCAL, MIB, Cluster, Costs, Load, predict

ROUNDS = 3
FILES = 4_000
"""As many as one wave has: the driver's work and the tasks' do not overlap then."""
MASTERS = ("local[1]", "local[2]", "local-cluster[2,1,1024]")
CHECKS = (
    ("2,000 files of 4 KiB", Load(2_000, 2_000 * 4 * KIB), 256 * MIB),
    ("10,000 files of 4 KiB", Load(10_000, 10_000 * 4 * KIB), 256 * MIB),
    ("8 files of 64 MiB, in ranges of 16 MiB", Load(8, 512 * MIB), 16 * MIB),
)
_HERE = Path(__file__).resolve().parent


# -- without Spark -----------------------------------------------------------------------------------------------------


class _Frame:
    """Runs what it is given here and now, and remembers when."""

    def __init__(self, bins: int, times: list[tuple[float, float]]) -> None:
        self._bins = bins
        self._times = times
        self._work: Any = None

    def mapInArrow(self, work: Any, schema: str) -> _Frame:
        self._work = work
        return self

    def toArrow(self) -> pa.Table:
        began = time.perf_counter()
        batches = []
        for number in range(self._bins):
            batches += self._work(iter([pa.RecordBatch.from_pydict({"id": [number]})]))
        self._times.append((began, time.perf_counter()))
        return pa.Table.from_batches(batches)


class _Context:
    master = "local[1]"
    defaultParallelism = 1

    def getLocalProperty(self, name: str) -> None:
        return None

    def setLocalProperty(self, name: str, value: object) -> None:
        pass

    def cancelJobGroup(self, group: str) -> None:
        pass


class StandIn:
    """What :func:`ags1.spark.encrypt_files` needs of a Spark session, in this process and without Spark."""

    def __init__(self) -> None:
        self.sparkContext = _Context()
        self.conf: dict[str, str] = {}
        self.times: list[tuple[float, float]] = []

    def createDataFrame(self, data: object) -> object:
        return data

    def range(self, start: int, end: int, step: int, partitions: int) -> _Frame:
        return _Frame(end, self.times)


@contextmanager
def _scratch() -> Iterator[Path]:
    parent = settings.load().directory
    directory = Path(tempfile.mkdtemp(prefix="ags1-scale-", dir=parent))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _keystore(directory: Path) -> str:
    from ags1.kms import LocalKms

    key_file = directory / "keystore.key"
    key_file.touch(mode=0o600)
    key_file.write_text(os.urandom(32).hex())
    with LocalKms.create(directory / "keys.json", key_file=key_file) as client:
        client.add_key("lake")
    return f"local:{directory / 'keys.json'}?key_file={key_file}"


def _fill(root: Path, files: int, nbytes: int) -> Path:
    """A tree of files of the same size, a hundred in a directory."""
    piece = os.urandom(min(nbytes, 8 * MIB))
    for index in range(files):
        path = root / f"{index // 100:05}" / f"{index:07}"
        if index % 100 == 0:
            path.parent.mkdir(parents=True)
        with open(path, "wb", buffering=0) as file:
            file.writelines(repeat(piece, nbytes // len(piece)))
    return root


def _split(source: Path, directory: Path, kms: str, part_bytes: int = 256 * MIB) -> tuple[float, float, float, Path]:
    """Encrypt without Spark; answer seconds before the tasks, in them and after them, and the dataset."""
    from ags1.spark import encrypt_files

    target = directory / "vault"
    shutil.rmtree(target, ignore_errors=True)
    session = StandIn()
    began = time.perf_counter()
    encrypt_files(session, source, target, kms=kms, key_id="lake", part_bytes=part_bytes, progress=False)
    ended = time.perf_counter()
    assert len(session.times) == 1, "the driver's work and the tasks' overlap in more waves than one"
    first, last = session.times[0]
    return first - began, last - first, ended - last, target


def _medians(measurement: Callable[[], tuple[float, ...]]) -> list[float]:
    return [statistics.median(values) for values in zip(*(measurement() for _ in range(ROUNDS)), strict=True)]


def _without_spark(directory: Path) -> dict[str, float]:
    from ags1.codec import encrypt_many
    from ags1.dataset._tree import Filter
    from ags1.spark._locations import locate
    from ags1.spark._storage import Storage

    kms = _keystore(directory)
    one, many = _fill(directory / "one", 1, 64), _fill(directory / "many", FILES, 64)
    big, cut = _fill(directory / "big", 4, 64 * MIB), _fill(directory / "cut", 100, 2 * MIB)
    _split(one, directory, kms)

    def listing() -> tuple[float]:
        began = time.perf_counter()
        assert sum(1 for _ in Storage(locate(many)).walk(Filter())) == FILES
        return (time.perf_counter() - began,)

    def sealing() -> tuple[float]:
        data = [os.urandom(MIB)] * 64
        began = time.perf_counter()
        encrypt_many(data, [bytes(32)] * 64, threads=1)
        return (time.perf_counter() - began,)

    (listed,) = _medians(listing)
    (sealed,) = _medians(sealing)
    base = _medians(lambda: _split(one, directory, kms)[:3])
    small = _medians(lambda: _split(many, directory, kms)[:3])
    manifest = next((directory / "vault" / "_ags1").glob("manifest-*")).stat().st_size
    large = _medians(lambda: _split(big, directory, kms, 16 * MIB)[:3])
    ranged = _medians(lambda: _split(cut, directory, kms, MIB)[:3])
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    _split(many, directory, kms)
    peak = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    found = {
        "listed": listed / FILES,
        "planned": max(0.0, small[0] - base[0] - listed) / FILES,
        "committed": max(0.0, small[2] - base[2]) / FILES,
        "small_file": (small[1] - base[1]) / FILES,
        "copied_byte": large[1] / (4 * 64 * MIB),
        "sealed_byte": sealed / (64 * MIB),
        "manifest_bytes": manifest / FILES,
        "unit_bytes": peak / FILES,
    }
    driver = ranged[0] + ranged[2] - base[0] - base[2]
    found["cut_file"] = max(0.0, driver / 100 - found["listed"] - found["planned"] - found["committed"])
    return found


# -- with Spark --------------------------------------------------------------------------------------------------------


class Nothing:
    """Work that is none: what is left is Spark's."""

    verb = "wait"

    def run(self, units: list[Any], tell: Any) -> Iterator[Any]:
        """Answer."""
        from ags1.spark._engine import Outcome

        return iter([Outcome(unit.path, start=unit.start) for unit in units])


def _session(master: str, directory: Path) -> Any:
    """A real session, quiet and on loopback."""
    import pyspark

    os.environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(_HERE.parent), os.environ.get("PYTHONPATH")]))
    if master.startswith("local-cluster"):
        # Executors write into the directory "work" of SPARK_HOME.
        home, installed = directory / "home", Path(str(pyspark.__file__)).parent
        home.mkdir()
        for name in ("bin", "jars", "python"):
            (home / name).symlink_to(installed / name)
        os.environ["SPARK_HOME"] = str(home)
    from pyspark.sql import SparkSession

    chosen = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(directory / "local"),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.log.level": "ERROR",
    }
    builder = SparkSession.builder.master(master).appName("ags1 scale")
    for name, value in chosen.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _engine_seconds(spark: Any, units: list[Any], parallelism: int) -> float:
    from ags1.spark._engine import Engine

    engine = Engine(spark, Nothing(), parallelism=parallelism, progress=False)
    began = time.perf_counter()
    for _ in engine.run(units):
        pass
    return time.perf_counter() - began


def _worker_memory(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        pass
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIB
    yield pa.RecordBatch.from_pydict({"peak": pa.array([peak], pa.int64())})


def _warm(spark: Any, directory: Path, kms: str) -> Path:
    import ags1.spark

    source = _fill(directory / "one", 1, 64)
    slots = int(spark.sparkContext.defaultParallelism)
    for number in range(2):
        _engine_seconds(spark, _units(16 * slots), 4 * slots)
        ags1.spark.encrypt_files(spark, source, directory / f"warm-{number}", kms=kms, key_id="lake", progress=False)
    return source


def _units(count: int) -> list[Any]:
    from ags1.spark._planning import Unit

    return [Unit(f"{index:06}", 0) for index in range(count)]


def _costs_of_spark(master: str, directory: Path) -> dict[str, float]:
    """Seconds of a task, of a wave and of a run, and the memory of a worker."""
    from ags1.spark import encrypt_files
    from ags1.spark._engine import FLUSH

    kms = _keystore(directory)
    spark = _session(master, directory)
    driver_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIB
    source = _warm(spark, directory, kms)
    few, many = 4, 36

    def tasks() -> tuple[float]:
        units = _units(many)
        return ((_engine_seconds(spark, units, many) - _engine_seconds(spark, units, few)) / (many - few),)

    def waves() -> tuple[float]:
        units = _units(12)
        flushed = [each for unit in units for each in (unit, FLUSH)]
        return ((_engine_seconds(spark, flushed, 1) - _engine_seconds(spark, flushed[:4], 1)) / 10,)

    numbers = iter(range(ROUNDS))

    def runs() -> tuple[float]:
        began = time.perf_counter()
        encrypt_files(spark, source, directory / f"run-{next(numbers)}", kms=kms, key_id="lake", progress=False)
        return (time.perf_counter() - began,)

    slots = int(spark.sparkContext.defaultParallelism)
    task = _medians(tasks)[0] * slots
    # Waves take turns in the slots: what is left when their tasks are taken away is the driver's.
    wave = max(0.0, _medians(waves)[0] - task / min(2, slots))
    run = max(0.0, _medians(runs)[0] - task - wave)
    big = _fill(directory / "big", 4, 64 * MIB)
    encrypt_files(spark, big, directory / "big-vault", kms=kms, key_id="lake", part_bytes=16 * MIB, progress=False)
    memory = spark.range(0, slots, 1, slots).mapInArrow(_worker_memory, "peak long").toArrow()
    spark.stop()
    return {
        "task": task,
        "wave": wave,
        "run": run,
        "driver_bytes": driver_bytes,
        "worker_bytes": max(memory.column("peak").to_pylist()),
    }


def _real_runs(master: str, directory: Path) -> list[dict[str, Any]]:
    """How long real runs take."""
    from ags1.spark import encrypt_files

    kms = _keystore(directory)
    spark = _session(master, directory)
    _warm(spark, directory, kms)
    found = []
    for number, (words, load, part_bytes) in enumerate(CHECKS):
        source = _fill(directory / f"source-{number}", load.files, load.file_bytes)
        seconds = []
        for _ in range(ROUNDS):
            os.sync()
            target = directory / "target"
            shutil.rmtree(target, ignore_errors=True)
            began = time.perf_counter()
            encrypt_files(spark, source, target, kms=kms, key_id="lake", part_bytes=part_bytes, progress=False)
            seconds.append(time.perf_counter() - began)
        found.append(
            {"what": words, "seconds": statistics.median(seconds), "all": [round(each, 3) for each in seconds]}
        )
    spark.stop()
    return found


def _in_a_process(*arguments: str) -> Any:
    """A session of its own: what one left behind would be in the next."""
    with _scratch() as directory:
        answer = directory / "answer.json"
        command = [sys.executable, "-m", "bench.scale_runs", str(answer), *arguments]
        log = directory / "log"
        with log.open("wb") as file:
            done = subprocess.run(command, cwd=_HERE.parent, stdout=file, stderr=file, timeout=600, check=False)
        if done.returncode:
            raise SystemExit(f"the run on {arguments[0]} failed:\n{log.read_text(errors='replace')[-4000:]}")
        return json.loads(answer.read_text())


# -- what is asked for -------------------------------------------------------------------------------------------------


def measure() -> dict[str, Any]:
    """Measure all costs."""
    load = os.getloadavg()[0]
    with _scratch() as directory:
        found = _without_spark(directory)
    by_master = {}
    for master in MASTERS:
        print(f"measuring what Spark costs on {master} ...", flush=True)
        by_master[master] = _in_a_process(master, "costs")
    # With one slot nothing else runs on the machine meanwhile, which is as near to an executor's own core as it gets.
    found |= by_master["local[1]"]
    return {
        "costs": found,
        "by_master": by_master,
        "machine": machine.machine(),
        "load_average_at_start": round(load, 2),
        "date": time.strftime("%Y-%m-%d"),
    }


def check(measured: dict[str, Any]) -> list[dict[str, Any]]:
    """Predict some runs, and do them. What Spark itself costs is that of the same kind of session."""
    found = []
    for master in MASTERS:
        costs = Costs(**{**measured["costs"], **measured["by_master"][master]})
        print(f"running on {master} ...", flush=True)
        executors, slots = (2, 1) if "cluster" in master else (1, int(master[6:-1]))
        actual = _in_a_process(master, "check")
        for (words, load, part_bytes), run in zip(CHECKS, actual, strict=True):
            predicted = predict(load, Cluster(executors, slots), LOCAL, costs, part_bytes)
            found.append(
                {
                    "master": master,
                    "what": words,
                    "predicted": predicted.seconds,
                    "actual": run["seconds"],
                    "all": run["all"],
                    "ratio": predicted.seconds / run["seconds"],
                    "bottleneck": predicted.bottleneck,
                    "load_average": round(os.getloadavg()[0], 2),
                }
            )
    return found


def main() -> None:
    """Run one session, and write what it measured."""
    warnings.simplefilter("ignore", FutureWarning)
    answer, master, what = sys.argv[1:]
    # By its own name: workers import what they are to run.
    from bench import scale_runs

    work = {"costs": scale_runs._costs_of_spark, "check": scale_runs._real_runs}[what]
    with _scratch() as directory:
        Path(answer).write_text(json.dumps(work(master, directory)))


if __name__ == "__main__":
    main()
