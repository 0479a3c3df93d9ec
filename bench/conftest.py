"""What the benchmark files share: sizes, floors, data, files, and the way figures reach pytest-benchmark."""

from __future__ import annotations

import dataclasses
import datetime
import gc
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ags1 import bench as benching
from ags1.bench import Run, Subject
from ags1.bench.pytest_plugin import REPLAY
from bench import floors as floors_module
from bench import measure, schedule, settings

HERE = Path(__file__).resolve().parent
Record = Callable[..., None]
Octets = np.ndarray[Any, np.dtype[np.uint8]]
KEY = bytes(range(32))
_BEGAN = pytest.StashKey[float]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.benchmark(timer=REPLAY, disable_gc=False))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Note when a question begins, for what it prepares takes time too; and say where the run stands."""
    item.config.stash[_BEGAN] = time.monotonic()
    plan = schedule.load()
    if plan is not None and item.nodeid in plan.names:
        print(f"\n{plan.line(item.nodeid, time.time())}", flush=True)


def pytest_benchmark_update_machine_info(config: pytest.Config, machine_info: dict[str, Any]) -> None:
    # The name of the host says nothing about a figure.
    machine_info.pop("node", None)
    machine_info.update(measure.machine())


@pytest.fixture(scope="session")
def sizes() -> settings.Settings:
    return settings.load()


@pytest.fixture(scope="session")
def floors() -> floors_module.Floors:
    return floors_module.load()


@pytest.fixture(scope="session")
def loops() -> dict[str, floors_module.Floors]:
    return floors_module.loops()


@pytest.fixture
def interleave(sizes: settings.Settings, request: pytest.FixtureRequest) -> Callable[..., Run]:
    """`ags1.bench.interleave` with the times of this run; plain functions will do for subjects.

    `fresh` says how much new memory or page cache a call takes from the system: as much is touched and given back,
    untimed, before every call. A virtual machine may have handed free pages back to its host, and then the first touch
    costs ten times the second: that is the host's doing, and would drown what is asked here.
    """

    def call(subjects: dict[str, Any], *, fresh: int = 0, **options: Any) -> Run:
        ready = {
            name: subject if isinstance(subject, Subject) else Subject(subject) for name, subject in subjects.items()
        }
        if fresh:
            ready = {name: _with_memory_at_hand(subject, fresh) for name, subject in ready.items()}
        seconds, plan, name = sizes.seconds, schedule.load(), request.node.nodeid
        if plan is not None and name in plan.names:
            seconds = plan.seconds(name, seconds, time.time())
        options = {"seconds": seconds, "min_rounds": sizes.min_rounds, **options}
        # What earlier tests left behind is not collected again and again while this one runs.
        gc.collect()
        gc.freeze()
        try:
            return benching.interleave(ready, **options)
        finally:
            gc.unfreeze()

    return call


def _with_memory_at_hand(subject: Subject, nbytes: int) -> Subject:
    before = subject.before

    def prepare() -> None:
        if before is not None:
            before()
        floors_module.load().touch(nbytes, huge=True, threads=settings.cpus())

    return dataclasses.replace(subject, before=prepare)


@pytest.fixture(scope="session")
def load() -> float:
    """The load before the run began: afterwards it is the run's own."""
    given = os.environ.get("AGS1_BENCH_LOAD")
    return benching.load_average() if given is None else float(given)


@pytest.fixture(scope="session")
def commit() -> str:
    """What is measured: before the run, which writes results into files that git has."""
    given = os.environ.get("AGS1_BENCH_COMMIT")
    return benching.commit_of(HERE) if given is None else given


@pytest.fixture
def record(
    benchmark: Any, sizes: settings.Settings, commit: str, load: float, request: pytest.FixtureRequest
) -> Record:
    """Hand a run and its figures to pytest-benchmark."""

    def call(run: Run | None, *figures: measure.Figure, subject: str = "ags1", **extra: Any) -> None:
        benchmark.extra_info["figures"] = [figure.to_json() for figure in figures]
        benchmark.extra_info["quick"] = sizes.quick
        # A figure belongs to a machine, a commit, a date and a load, whatever else is in the same file.
        benchmark.extra_info["machine"] = measure.machine()
        benchmark.extra_info["commit"] = commit
        benchmark.extra_info["date"] = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        benchmark.extra_info["load"] = load
        benchmark.extra_info["took"] = round(time.monotonic() - request.config.stash[_BEGAN], 1)
        if run is not None:
            benchmark.extra_info["samples"] = run.seconds
        benchmark.extra_info.update(extra)
        samples = run.seconds[subject] if run is not None else [1.0]
        REPLAY.load(samples)
        benchmark.pedantic(lambda: None, rounds=len(samples), iterations=1)
        for figure in figures:
            promise = "" if figure.target is None else f", {figure.bound} {figure.target:g}: {figure.met}"
            print(
                f"\n  {figure.question}: {figure.subject} {figure.subject_text}, "
                f"{figure.reference} {figure.reference_text}: {figure.measure} {figure.value:.3f} "
                f"[{figure.low:.3f}, {figure.high:.3f}], {figure.rounds} rounds{promise}"
            )

    return call


@pytest.fixture(scope="session")
def plaintext(sizes: settings.Settings) -> Octets:
    """Random bytes in memory: what AES makes of them costs the same whatever they are, but pages must exist."""
    return np.random.default_rng(1).integers(0, 256, sizes.nbytes, np.uint8)


@pytest.fixture(scope="session")
def room(sizes: settings.Settings) -> Octets:
    """Memory for a whole encrypted stream at any block length of 256 or more, touched; tests reuse it."""
    return np.ones(sizes.nbytes + sizes.nbytes // 8 + 4096, np.uint8)


@pytest.fixture(scope="session")
def back(sizes: settings.Settings) -> Octets:
    """Memory for what is decrypted, touched; tests reuse it."""
    return np.ones(sizes.nbytes, np.uint8)


@pytest.fixture(scope="session")
def directory(sizes: settings.Settings) -> Iterator[Path]:
    """A directory for files, removed at the end."""
    with tempfile.TemporaryDirectory(prefix="ags1-bench-", dir=sizes.directory) as name:
        yield Path(name)


@pytest.fixture(scope="session")
def source_file(directory: Path, sizes: settings.Settings) -> Path:
    """A file of random bytes, in the page cache and on the disk."""
    path = directory / "plain"
    generator = np.random.default_rng(2)
    with open(path, "wb") as file:
        left = sizes.file_bytes
        while left > 0:
            some = min(left, 64 * settings.MIB)
            file.write(generator.integers(0, 256, some, np.uint8).data)
            left -= some
        file.flush()
        os.fsync(file.fileno())
    return path


@pytest.fixture(scope="session")
def encrypted_file(source_file: Path) -> Path:
    """The same, encrypted with `KEY`."""
    import ags1

    path = source_file.with_name("encrypted")
    ags1.encrypt_file(source_file, path, KEY)
    os.sync()
    return path


@pytest.fixture(scope="session")
def samples(directory: Path, sizes: settings.Settings) -> Any:
    """Parquet files; see parquet_samples.py."""
    pytest.importorskip("pyarrow")
    from bench.parquet_samples import Samples

    return Samples(directory, sizes.file_bytes)
