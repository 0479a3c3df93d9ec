"""Encryption at scale, on paper: ``python -m bench.scale [--measure | --check]``.

How long :func:`ags1.spark.encrypt_files` takes for 10^3 to 10^8 files and 1 GiB to 10 PiB on 1 to 1000 executors, what
it takes of the driver, and what holds it up. A model of the pipeline's own shape, wave by wave:

    driver, one thread:  list, plan | list, plan | commit | list, plan | commit ...      cost for each file
    slots:                          | tasks of wave 1 | tasks of wave 2 ...              cost for each task, file, byte
    storage:             requests a second, bytes a second                               limits of all together

The planner is that of ags1.spark itself, and so are the sizes of waves. What a task, a file and a byte cost is measured
on this machine (``--measure`` writes results/scale.json); what nobody can measure here, an object store and a cluster's
network, is assumed, and named so wherever it is used.
"""

from __future__ import annotations

import argparse
import heapq
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from ags1.dataset.worker import SMALL
from ags1.layout import encrypted_length
from ags1.spark._engine import _FIRST_WAVE_UNITS as FIRST_WAVE_UNITS
from ags1.spark._engine import _WAVE_GROWTH as WAVE_GROWTH
from ags1.spark._engine import _WAVE_UNITS as WAVE_UNITS
from ags1.spark._engine import _WAVES_AT_ONCE as WAVES_AT_ONCE
from ags1.spark._planning import PART_BYTES, Unit, bin_count, cut, pack

RESULTS = Path(__file__).resolve().parent / "results"
KIB, MIB, GIB, TIB, PIB = (1 << shift for shift in (10, 20, 30, 40, 50))
# What the worker and the storage room have, which are no public names: bytes read and uploaded at once, requests of
# small files at once. And what a page of manifests has, about.
WINDOW, UPLOAD_PART, AT_ONCE, MANIFEST_BLOCK = 32 * MIB, 8 * MIB, 32, 128 * KIB
LARGEST_OBJECT = 5 * TIB
"""Files above this are left out of the tables: many stores take none."""


@dataclass(frozen=True)
class Costs:
    """What was measured: seconds on this machine, one core, files in the page cache.

    Attributes
    ----------
    run : float
        Of a run, however little it does.
    wave : float
        Of a Spark job, on the driver.
    task : float
        Of a task in its slot, however little it does.
    listed, planned, committed : float
        On the driver, of each file: found in a local directory; made a unit and sent; taken into the manifest.
    cut_file : float
        On the driver, of each local file that is cut in ranges, besides.
    small_file : float
        In a task, of a small file: opened, read, created, renamed.
    copied_byte, sealed_byte : float
        In a task, of a byte from file to file, and from memory to memory.
    manifest_bytes : float
        In the manifest, of each file.
    unit_bytes : float
        In the driver's memory, of each unit of the waves that are under way.
    driver_bytes, worker_bytes : float
        Memory of the driver's Python process before it does anything, and the most that a worker's had.
    """

    run: float
    wave: float
    task: float
    listed: float
    planned: float
    committed: float
    cut_file: float
    small_file: float
    copied_byte: float
    sealed_byte: float
    manifest_bytes: float
    unit_bytes: float
    driver_bytes: float
    worker_bytes: float

    @classmethod
    def load(cls, path: Path) -> Costs:
        """Read what ``--measure`` wrote."""
        return cls(**json.loads(path.read_text())["costs"])


@dataclass(frozen=True)
class Storage:
    """Where source and target are. All of it is assumed, but "local", which adds nothing to what was measured.

    Attributes
    ----------
    latency : float
        Seconds of a request.
    connection : float
        Bytes a second of one connection; 0: as fast as was measured locally.
    page : int
        Files that one listing request answers: those of a directory, as it lists directory by directory.
    ahead : int
        Listing requests under way at once.
    gets, puts : float
        Requests a second that it answers, for all; 0: no limit.
    executor, total : float
        Bytes a second of an executor's network, and of the storage; 0: no limit.
    is_object_store : bool
        Requests of a small file are GET and PUT, several at once; else operations of a file system.
    """

    name: str
    words: str = ""
    latency: float = 0.0
    connection: float = 0.0
    page: int = 1000
    ahead: int = 1
    gets: float = 0.0
    puts: float = 0.0
    executor: float = 0.0
    total: float = 0.0
    is_object_store: bool = False


LOCAL = Storage("local", "this machine's files, in the page cache (measured)")
SHARED = Storage(
    "shared",
    "a shared file system, as NFS or Lustre: 1 ms an operation, 20,000 a second, 10 GB/s in all, 10 Gbit/s an executor",
    latency=1e-3, gets=20_000, puts=20_000, executor=1.25e9, total=10e9,
)  # fmt: skip
S3 = Storage(
    "S3",
    "an object store as S3: 30 ms a request, 100 MB/s a connection, 5,500 GET and 3,500 PUT a second (one prefix), "
    "100 files a directory and 8 directories listed at once, 10 Gbit/s an executor",
    latency=30e-3, connection=100e6, page=100, ahead=8, gets=5_500, puts=3_500, executor=1.25e9, is_object_store=True,
)  # fmt: skip
S3_PREFIXES = replace(
    S3,
    name="S3, many prefixes",
    words="the same, with its requests spread over 20 prefixes",
    gets=20 * S3.gets,
    puts=20 * S3.puts,
)
STORAGES = (S3, S3_PREFIXES, SHARED)


@dataclass(frozen=True)
class Load:
    """What is encrypted: so many files of the same size."""

    files: int
    nbytes: int

    @property
    def file_bytes(self) -> int:
        """Bytes of a file."""
        return self.nbytes // self.files


@dataclass(frozen=True)
class Cluster:
    """Who does it."""

    executors: int
    slots_each: int = 4

    @property
    def slots(self) -> int:
        """Tasks at once."""
        return self.executors * self.slots_each


@dataclass
class Prediction:
    """What comes of it.

    Attributes
    ----------
    seconds : float
        From the beginning to the end.
    alone : dict
        Seconds that each kind of work would take if the others took none. Their names are those of RESOURCES.
    """

    seconds: float = 0.0
    waves: int = 0
    tasks: int = 0
    units: int = 0
    gets: int = 0
    puts: int = 0
    driver_memory: float = 0.0
    manifest: float = 0.0
    alone: dict[str, float] = field(default_factory=dict)

    @property
    def bottleneck(self) -> str:
        """What takes the most time: of what shares something, its largest part."""
        return bottleneck_of(self.alone)


# What shares a resource takes turns, and so adds up; kinds that share none go on side by side.
RESOURCES: Mapping[str, tuple[str, ...]] = {
    "driver": ("listing", "planning", "commit", "uploads begun and ended"),
    "slots": ("start of tasks", "waits for each file", "bytes in tasks"),
    "requests": ("requests a second",),
    "network": ("network",),
    "fixed": ("start of the run",),
}


def bottleneck_of(alone: Mapping[str, float]) -> str:
    """The kind of work that holds up the rest."""
    worst = max(RESOURCES, key=lambda name: sum(alone.get(kind, 0.0) for kind in RESOURCES[name]))
    return max(RESOURCES[worst], key=lambda kind: alone.get(kind, 0.0))


class Slots:
    """Equal slots that take tasks first come, first served; those that are free at the same time are kept as one."""

    def __init__(self, count: int) -> None:
        self._free: list[tuple[float, int]] = [(0.0, count)]

    def run(self, start: float, kinds: Sequence[tuple[int, float]]) -> float:
        """Run tasks that are there from `start`: how many of which length. Answer when the last one ends."""
        end = start
        # Spark starts the tasks of a job in their order; the planner's heaviest come first.
        for count, seconds in sorted(kinds, key=lambda kind: -kind[1]):
            left = count
            while left:
                free, slots = heapq.heappop(self._free)
                taken = min(slots, left)
                done = max(free, start) + seconds
                heapq.heappush(self._free, (done, taken))
                if slots > taken:
                    heapq.heappush(self._free, (free, slots - taken))
                left -= taken
                end = max(end, done)
        return end


class Pipe:
    """What lets through so much a second, for all together."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._free = 0.0

    def run(self, start: float, amount: float) -> float:
        """Send an amount that is there from `start`; answer when it is through."""
        if not self._rate:
            return start
        self._free = max(self._free, start) + amount / self._rate
        return self._free


def wave_sizes(load: Load, part_bytes: int = PART_BYTES) -> Iterator[tuple[int, int]]:
    """Files and units of each wave, as the engine gathers them: the ranges of a file stay together."""
    units_of_file = len(ranges_of(load.file_bytes, part_bytes))
    left, enough = load.files, FIRST_WAVE_UNITS
    while left:
        files = min(left, -(-enough // units_of_file))
        yield files, files * units_of_file
        left -= files
        enough = min(WAVE_UNITS, enough * WAVE_GROWTH)


@lru_cache(4096)
def ranges_of(file_bytes: int, part_bytes: int = PART_BYTES) -> tuple[int, ...]:
    """Bytes of the units of a file, by the planner."""
    return tuple(unit.size for unit in cut(Unit("", file_bytes), part_bytes))


@lru_cache(4096)
def bins_of(files: int, file_bytes: int, slots: int, part_bytes: int) -> tuple[tuple[int, int, int], ...]:
    """The tasks of a wave, by the planner: how many of them, units of each, bytes of each.

    All units count as equal; the last range of a file may be shorter.
    """
    count = files * len(ranges_of(file_bytes, part_bytes))
    size = files * file_bytes // count
    kinds = _packed(count, bin_count([Unit("", size)] * count, slots))
    return tuple((bins, units, units * files * file_bytes // count) for bins, units in kinds)


@lru_cache(4096)
def _packed(count: int, bins: int) -> tuple[tuple[int, int], ...]:
    # Among equals the planner's answer does not depend on their size.
    kinds = Counter(len(each) for each in pack([Unit("", 0)] * count, bins))
    return tuple((bins, units) for units, bins in kinds.items())


@dataclass(frozen=True)
class Use:
    """What a unit takes in a task: seconds that do not depend on its size, seconds that do, and requests."""

    waits: float
    work: float
    gets: int
    puts: int


def use_of(size: int, is_range: bool, costs: Costs, storage: Storage) -> Use:
    """What it takes to encrypt a file, or a range of one, in a task."""
    if not storage.is_object_store:
        # stat, open, read, create, write, rename
        operations = 6 if storage.latency else 0
        waits = costs.small_file + operations * storage.latency
        return Use(waits, size * costs.copied_byte, operations // 2, operations - operations // 2)
    sent = size / storage.connection if storage.connection else 0.0
    if size <= SMALL and not is_range:
        # It is read, sealed with others, and written, each at once with as many others as a task has threads for.
        return Use(costs.small_file + 2 * storage.latency / AT_ONCE, 2 * sent + size * costs.sealed_byte, 1, 1)
    gets = -(-size // WINDOW) + 1
    puts = max(1, -(-size // UPLOAD_PART))
    if is_range:
        # A part is uploaded while the next is read and sealed; the last is waited for.
        last = min(size, UPLOAD_PART) / storage.connection if storage.connection else 0.0
        work = max(sent + size * costs.sealed_byte, sent) + last
        return Use(costs.small_file + (gets + 1) * storage.latency, work, gets, puts)
    # Read and written in turns; a file of several parts is a multipart upload of its own.
    puts += 2 if puts > 1 else 0
    work = 2 * sent + size * costs.sealed_byte
    return Use(costs.small_file + (gets + 1 + puts) * storage.latency, work, gets + 1, puts)


def predict(load: Load, cluster: Cluster, storage: Storage, costs: Costs, part_bytes: int = PART_BYTES) -> Prediction:
    """Encrypt some files, on paper.

    Parameters
    ----------
    load, cluster, storage
        What, by whom, and where.
    costs
        What was measured.
    part_bytes
        As of :func:`ags1.spark.encrypt_files`.
    """
    found = Prediction(alone=dict.fromkeys((kind for kinds in RESOURCES.values() for kind in kinds), 0.0))
    alone = found.alone
    sizes = ranges_of(load.file_bytes, part_bytes)
    is_range = len(sizes) > 1
    uses = {size: use_of(size, is_range, costs, storage) for size in set(sizes)}
    waits = sum(uses[size].waits for size in sizes) / len(sizes)
    # By byte: bins are known by their bytes.
    work = sum(uses[size].work for size in sizes) / max(1, load.file_bytes)
    gets, puts = (sum(getattr(uses[size], name) for size in sizes) for name in ("gets", "puts"))
    if is_range and storage.is_object_store:
        # The driver begins each upload, lists its parts a thousand at a time, and completes it; several at once.
        pages = max(1, -(-sum(uses[size].puts for size in sizes) // 1000))
        ending = (2 + pages) * storage.latency / AT_ONCE
        puts, gets = puts + 2, gets + pages
    else:
        ending = costs.cut_file if is_range else 0.0
    listed = costs.listed + max(0.0, storage.latency / storage.page / storage.ahead)
    slots, requests = Slots(cluster.slots), (Pipe(storage.gets), Pipe(storage.puts))
    network = Pipe(_network(cluster, storage))
    driver = costs.run / 2
    alone["start of the run"] = costs.run
    ends: list[tuple[float, int, int]] = []
    in_flight: list[int] = []

    def commit() -> None:
        nonlocal driver
        end, files, _ = ends.pop(0)
        driver = max(driver, end) + files * (costs.committed + ending / 2)

    for files, units in wave_sizes(load, part_bytes):
        found.waves += 1
        found.units += units
        in_flight.append(units)
        driver += files * (listed + costs.planned + ending / 2) + costs.wave
        kinds = []
        for count, units_each, nbytes in bins_of(files, load.file_bytes, cluster.slots, part_bytes):
            found.tasks += count
            kinds.append((count, costs.task + units_each * waits + nbytes * work))
            busy = min(cluster.slots, units)
            alone["start of tasks"] += count * costs.task / busy
            alone["waits for each file"] += count * units_each * waits / busy
            alone["bytes in tasks"] += count * nbytes * work / busy
        end = slots.run(driver, kinds)
        moved = files * (load.file_bytes + encrypted_length(load.file_bytes))
        end = max(end, network.run(driver, moved), requests[0].run(driver, files * gets),
                  requests[1].run(driver, files * puts))  # fmt: skip
        ends.append((end, files, units))
        if len(ends) >= WAVES_AT_ONCE:
            commit()
    while ends:
        commit()
    found.gets, found.puts = load.files * gets, load.files * puts
    alone["listing"] = load.files * listed
    alone["planning"] = load.files * costs.planned + found.waves * costs.wave
    alone["commit"] = load.files * costs.committed
    alone["uploads begun and ended"] = load.files * ending
    alone["requests a second"] = max(
        found.gets / storage.gets if storage.gets else 0.0, found.puts / storage.puts if storage.puts else 0.0
    )
    rate = _network(cluster, storage)
    alone["network"] = 2 * load.nbytes / rate if rate else 0.0
    found.seconds = driver + costs.run / 2
    # The waves that run, and the one that is being gathered.
    most = max(sum(in_flight[first : first + WAVES_AT_ONCE + 1]) for first in range(len(in_flight)))
    found.driver_memory = costs.driver_bytes + most * costs.unit_bytes
    found.manifest = load.files * costs.manifest_bytes + MANIFEST_BLOCK
    return found


def _network(cluster: Cluster, storage: Storage) -> float:
    """Bytes a second of all executors, in and out together."""
    rates = [rate for rate in (cluster.executors * storage.executor, storage.total) if rate]
    return min(rates, default=0.0)


def is_possible(load: Load) -> bool:
    """Whether there are such files: with something in them, and not above what stores take."""
    return 1 <= load.file_bytes <= LARGEST_OBJECT


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, check or print."""
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=str(__doc__).splitlines()[0])
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--measure", action="store_true", help="measure the costs here; writes scale.json (2 minutes)")
    action.add_argument("--check", action="store_true", help="compare with real runs here; writes them to scale.json")
    parser.add_argument("--output", type=Path, default=RESULTS, help="directory for the results")
    options = parser.parse_args(arguments)
    from bench import scale_report

    path = options.output / "scale.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    if options.measure or options.check:
        from bench import scale_runs

        options.output.mkdir(parents=True, exist_ok=True)
        if options.measure:
            found |= scale_runs.measure()
        else:
            found |= {"check": scale_runs.check(found)}
        path.write_text(json.dumps(found, indent=1) + "\n")
        print(f"wrote {path.name}")
    elif not found:
        print("nothing was measured yet: python -m bench.scale --measure", file=sys.stderr)
        return 1
    print(scale_report.write(found, options.output))
    return 0


if __name__ == "__main__":
    # By its name: what is pickled, or compared by class, must not be of a second module called __main__.
    from bench import scale

    sys.exit(scale.main())
