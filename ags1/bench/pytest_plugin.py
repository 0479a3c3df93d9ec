"""The fixture ``paired`` of pytest: a subject beside its floor, and a promise on their ratio.

    def test_encrypt(paired):
        paired(mine, floor, at_least=0.9)

With pytest-benchmark, the figure is also in its JSON, in ``extra_info.paired`` of the benchmark of that name, together
with the machine. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import gc
import warnings

import pytest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from ags1.bench import Comparison, Subject


class Replay:
    """A timer for pytest-benchmark that tells again what was measured elsewhere.

    pytest-benchmark times one function in bulk, and what counts here is taking turns. So rounds are measured in turns,
    and pytest-benchmark records: it reads this timer before and after each round of an empty function.
    """

    def __init__(self) -> None:
        self._now = 0.0
        self._pending: list[float] = []
        self._running = False

    def load(self, samples: Sequence[float]) -> None:
        """Set the durations of the rounds to come."""
        self._pending = list(samples)
        self._running = False

    def __call__(self) -> float:
        """Return the time: alternately the start and the end of a round."""
        if self._running and self._pending:
            self._now += self._pending.pop(0)
        self._running = not self._running
        return self._now


REPLAY = Replay()


class Paired:
    """What the fixture ``paired`` is: call it with a subject and its floor."""

    def __init__(self, name: str, benchmark: Any, defaults: dict[str, Any]) -> None:
        self._name = name
        self._benchmark = benchmark
        self._defaults = defaults
        self._used = False

    def __call__(
        self,
        mine: Callable[[], object] | Subject,
        floor: Callable[[], object] | Subject,
        *,
        at_least: float | None = None,
        nbytes: int | None = None,
        **options: Any,
    ) -> Comparison:
        """Compare `mine` with `floor`; fail the test if it is slower than promised.

        Parameters
        ----------
        mine, floor
            Functions without arguments, or `ags1.bench.Subject`.
        at_least
            The share of the floor's speed that is promised. The test fails if the whole interval is below it. If the
            interval holds it after ``limit`` seconds, the test warns with `ags1.bench.UndecidedWarning`; with
            ``-W error::ags1.bench.UndecidedWarning`` it fails.
        nbytes
            Bytes that a call works on, for throughput in the JSON.
        **options
            Those of `ags1.bench.compare`.
        """
        from ags1 import bench

        if self._used:
            raise RuntimeError("paired was called twice in one test: one figure is one test")
        self._used = True
        if self._benchmark is not None and self._benchmark.disabled:
            # --benchmark-disable: run everything once, and promise nothing.
            options = {"seconds": 0.0, "limit": 0.0, "min_rounds": 1, **options}
            at_least = None
        gc.collect()
        expected = 1 if at_least is None else 1 / at_least
        found = bench.compare(mine, floor, expected=expected, **{**self._defaults, **options})
        self._record(found, at_least, nbytes)
        if at_least is None:
            return found
        speed = found.speed
        said = (
            f"{speed.value:.3f} [{speed.low:.3f}, {speed.high:.3f}] of the floor's speed, at least {at_least:g} wanted"
        )
        if speed.high < at_least and found.verdict != "undecided":
            pytest.fail(f"{self._name}: {said}, {found.run.rounds} rounds", pytrace=False)
        if speed.low < at_least and found.verdict == "undecided":
            text = f"{self._name}: {said}: undecided after {found.run.rounds} rounds; the machine may be too busy"
            warnings.warn(text, bench.UndecidedWarning, stacklevel=2)
        return found

    def _record(self, found: Comparison, at_least: float | None, nbytes: int | None) -> None:
        from ags1 import bench

        benchmark = self._benchmark
        if benchmark is None:
            return
        record = found.to_json() | {"at_least": at_least, "load": bench.load_average(), "machine": bench.machine()}
        if nbytes is not None:
            record["gb_s"] = {name: nbytes / found.run.median(name) / 1e9 for name in found.run.seconds}
        benchmark.extra_info["paired"] = record
        samples = found.run.seconds["mine"]
        REPLAY.load(samples)
        benchmark.pedantic(lambda: None, rounds=len(samples), iterations=1)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Times of all tests with ``paired``; a test may say otherwise."""
    group = parser.getgroup("ags1.bench", "paired benchmarks")
    group.addoption("--paired-seconds", type=float, default=2.0, help="time for the first rounds of each (2)")
    group.addoption("--paired-limit", type=float, default=10.0, help="time for rounds while it is undecided (10)")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Let pytest-benchmark see a benchmark in each test that has ``paired``."""
    names: list[str] = getattr(item, "fixturenames", [])
    if "paired" in names and item.config.pluginmanager.hasplugin("benchmark"):
        if "benchmark" not in names:
            names.insert(names.index("paired"), "benchmark")
        item.add_marker(pytest.mark.benchmark(timer=REPLAY, disable_gc=False))


@pytest.fixture
def paired(request: pytest.FixtureRequest) -> Paired:
    """Compare a subject with its floor: ``paired(mine, floor, at_least=0.9)``."""
    benchmark = request.getfixturevalue("benchmark") if "benchmark" in request.fixturenames else None
    config = request.config
    defaults = {"seconds": config.getoption("--paired-seconds"), "limit": config.getoption("--paired-limit")}
    return Paired(request.node.name, benchmark, defaults)
