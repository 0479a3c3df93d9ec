"""What the benchmark files share: sizes, floors, data, files, and the way figures reach pytest-benchmark."""

from __future__ import annotations

import dataclasses
import gc
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench import floors as floors_module
from bench import measure, settings

HERE = Path(__file__).resolve().parent
Record = Callable[..., None]
Octets = np.ndarray[Any, np.dtype[np.uint8]]
KEY = bytes(range(32))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.benchmark(timer=measure.REPLAY, disable_gc=False))


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


@pytest.fixture
def interleave(sizes: settings.Settings) -> Callable[..., measure.Run]:
    """`measure.interleave` with the times of this run; plain functions will do for subjects.

    `fresh` says how much new memory or page cache a call takes from the system: as much is touched and given back,
    untimed, before every call. A virtual machine may have handed free pages back to its host, and then the first touch
    costs ten times the second: that is the host's doing, and would drown what is asked here.
    """

    def call(subjects: dict[str, Any], *, fresh: int = 0, **options: Any) -> measure.Run:
        ready = {
            name: subject if isinstance(subject, measure.Subject) else measure.Subject(subject)
            for name, subject in subjects.items()
        }
        if fresh:
            ready = {name: _with_memory_at_hand(subject, fresh) for name, subject in ready.items()}
        options = {"seconds": sizes.seconds, "min_rounds": sizes.min_rounds, **options}
        # What earlier tests left behind is not collected again and again while this one runs.
        gc.collect()
        gc.freeze()
        try:
            return measure.interleave(ready, **options)
        finally:
            gc.unfreeze()

    return call


def _with_memory_at_hand(subject: measure.Subject, nbytes: int) -> measure.Subject:
    before = subject.before

    def prepare() -> None:
        if before is not None:
            before()
        floors_module.load().touch(nbytes, huge=True, threads=settings.cpus())

    return dataclasses.replace(subject, before=prepare)


@pytest.fixture
def record(benchmark: Any, sizes: settings.Settings) -> Record:
    """Hand a run and its figures to pytest-benchmark."""

    def call(run: measure.Run | None, *figures: measure.Figure, subject: str = "ags1", **extra: Any) -> None:
        benchmark.extra_info["figures"] = [figure.to_json() for figure in figures]
        benchmark.extra_info["quick"] = sizes.quick
        benchmark.extra_info["machine"] = measure.machine()
        benchmark.extra_info.update(extra)
        samples = run.seconds[subject] if run is not None else [1.0]
        measure.REPLAY.load(samples)
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
