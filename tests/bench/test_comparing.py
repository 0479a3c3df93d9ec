"""ags1.bench: turns, ratios, verdicts, machines, histories. Nothing here asserts a speed."""

from __future__ import annotations

import collections
import json
import os
import random
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ags1 import bench
from ags1.bench import Ratio


class FakeClock:
    """A clock that moves only when work says so."""

    def __init__(self) -> None:
        self.now = 0.0
        self.log: list[str] = []

    def __call__(self) -> float:
        return self.now

    def work(self, name: str, seconds: Any) -> Callable[[], None]:
        def call() -> None:
            self.log.append(name)
            self.now += seconds() if callable(seconds) else seconds

        return call


# -- taking turns ----------------------------------------------------------------------------------------------


def test_subjects_take_turns_in_alternating_order() -> None:
    clock = FakeClock()
    subjects = {name: bench.Subject(clock.work(name, 1.0)) for name in "abc"}
    run = bench.interleave(subjects, seconds=0, min_rounds=4, warm_up=1, clock=clock)
    assert "".join(clock.log) == "abc" + "abc" + "cba" + "abc" + "cba"
    assert run.rounds == 4
    assert run.seconds == {name: [1.0] * 4 for name in "abc"}


def test_what_comes_before_and_after_is_not_timed() -> None:
    clock = FakeClock()
    subject = bench.Subject(clock.work("call", 2.0), before=clock.work("before", 5.0), after=clock.work("after", 7.0))
    run = bench.interleave({"a": subject}, seconds=0, min_rounds=2, warm_up=0, clock=clock)
    assert clock.log == ["before", "call", "after"] * 2
    assert run.seconds["a"] == [2.0, 2.0]


def test_a_subject_may_bring_its_own_clock() -> None:
    subject = bench.Subject(lambda: pytest.fail("called"), clock=lambda: 0.25)
    assert bench.interleave({"a": subject}, seconds=0, min_rounds=3, clock=FakeClock()).seconds["a"] == [0.25] * 3


def test_rounds_end_with_the_time_or_when_the_ratio_stands_still() -> None:
    clock, generator = FakeClock(), random.Random(5)
    noisy = {name: bench.Subject(clock.work(name, lambda: generator.uniform(0.5, 2.0))) for name in "ab"}
    run = bench.interleave(noisy, seconds=30, min_rounds=3, warm_up=0, clock=clock)
    assert 30 <= clock.now < 34
    assert run.rounds == len(clock.log) // 2
    steady = {"a": bench.Subject(clock.work("a", 1.0)), "b": bench.Subject(clock.work("b", 2.0))}
    assert bench.interleave(steady, seconds=1e9, min_rounds=5, warm_up=0, clock=clock).rounds == 5


# -- ratios ----------------------------------------------------------------------------------------------------


def test_common_drift_cancels_in_paired_samples() -> None:
    # The machine gets ten times slower meanwhile; one subject always takes 1.25 times the other.
    drift = [1.0 + 9.0 * i / 20 for i in range(21)]
    ratio = bench.ratio_of_medians([1.25 * d for d in drift], drift)
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((1.25, 1.25, 1.25))


def test_interval_holds_the_true_ratio_of_noisy_samples() -> None:
    generator = random.Random(11)
    above = [2.0 * generator.lognormvariate(0, 0.1) for _ in range(60)]
    below = [generator.lognormvariate(0, 0.1) for _ in range(60)]
    ratio = bench.ratio_of_medians(above, below, confidence=0.9)
    assert ratio.low < 2.0 < ratio.high
    assert ratio.low < ratio.value < ratio.high
    assert ratio.high - ratio.low < 0.3
    assert bench.ratio_of_medians(above, below, confidence=0.9) == ratio
    wide = bench.ratio_of_medians(above, below, confidence=0.99)
    assert (wide.low <= ratio.low, wide.high >= ratio.high) == (True, True)
    assert bench.ratio_of_medians([1.0] * 9 + [50.0], [2.0] * 10).value == 0.5
    more = bench.difference_of_medians([3.0] * 5, [1.0] * 5)
    assert (more.value, more.low, more.high) == (2.0, 2.0, 2.0)
    assert (bench.spread([1.0, 2.0, 3.0, 4.0, 5.0]), bench.spread([1.0])) == (2.0, 0.0)


def test_samples_that_are_no_pairs_are_refused() -> None:
    for above, below in (([], []), ([1.0], [1.0, 2.0])):
        with pytest.raises(ValueError, match="are no pairs: give one of each"):
            bench.ratio_of_medians(above, below)


def test_ratios_of_a_run_say_what_is_over_what() -> None:
    run = bench.Run({"ags1": [2.0] * 5, "floor": [1.0] * 5, "fresh": [3.0] * 5})
    assert run.time_ratio("ags1", "floor").value == 2.0
    assert run.speed_ratio("ags1", "floor").value == 0.5
    assert run.fastest("ags1", "fresh") == "ags1"
    run.add_sum("both", "floor", "fresh")
    assert run.seconds["both"] == [4.0] * 5


# -- verdicts --------------------------------------------------------------------------------------------------


def test_an_interval_that_holds_no_change_and_a_slow_down_is_undecided() -> None:
    for low, high, expected in (
        (1.04, 1.2, "slower"),
        (0.8, 0.96, "faster"),
        (0.98, 1.02, "same"),
        (1.01, 1.04, "same"),
        # What was once called "same", with the exit code 0.
        (0.458, 5.042, "undecided"),
        (1.01, 1.2, "undecided"),
        (0.8, 1.01, "undecided"),
        (0.96, 1.05, "undecided"),
        (0.95, 1.04, "undecided"),
    ):
        assert bench.verdict(Ratio((low + high) / 2, low, high)) == expected, (low, high)
    for low in range(50, 150):
        for high in range(low, 150):
            said = bench.verdict(Ratio(1.0, low / 100, high / 100), threshold=0.05)
            if low <= 100 and high >= 105:
                assert said == "undecided"
    with pytest.raises(ValueError, match="must be below the threshold"):
        bench.verdict(Ratio(1, 1, 1), threshold=0.05, margin=0.05)


def test_rounds_go_on_while_it_is_undecided_up_to_the_limit() -> None:
    for limit, verdict, least in ((10_000.0, "same", 100), (20.0, "undecided", 15)):
        clock, generator = FakeClock(), random.Random(3)
        work = clock.work("x", lambda generator=generator: generator.lognormvariate(0, 0.15))
        found = bench.compare(work, work, seconds=15, limit=limit, clock=clock)
        assert found.verdict == verdict
        assert found.run.rounds >= least
        assert clock.now < limit + 60
    assert found.to_json()["samples"] == found.run.seconds
    with pytest.raises(ValueError, match="must be times"):
        bench.compare(work, work, limit=float("inf"))


def test_a_slow_down_of_five_percent_is_found_each_time_and_none_where_there_is_none() -> None:
    """On noise as an idle machine has it: 1 % a sample, half as much again in a slow round now and then."""

    def trial(seed: int, factor: float) -> str:
        clock, generator = FakeClock(), random.Random(seed)
        drift = iter(range(10**6))

        def noise() -> float:
            slow = 1.5 if generator.random() < 0.03 else 1.0
            return slow * (1 + 1e-4 * next(drift)) * generator.lognormvariate(0, 0.01)

        mine, other = clock.work("mine", lambda: factor * noise()), clock.work("other", noise)
        return bench.compare(mine, other, seconds=60, limit=240, clock=clock).verdict

    assert [trial(seed, 1.05) for seed in range(20)] == ["slower"] * 20
    assert "slower" not in [trial(seed, 1.0) for seed in range(100, 150)]


def test_resampled_rounds_of_equal_commits_are_never_slower() -> None:
    """The file has what `python -m bench.compare HEAD HEAD --append` recorded, where some questions were disturbed.

    Sides of a round are of equal code, so each may stand for the other.
    """
    pytest.importorskip("numpy")
    from bench import compare

    recorded = bench.read(Path(__file__).parent / "equal_commits.jsonl")
    said = collections.Counter[str]()
    for seed in range(200):
        samples, generator = recorded[seed % len(recorded)].samples, random.Random(seed)
        rounds = list(zip(samples["head"], samples["base"], strict=True))

        def measure(seconds: float, warm_up: int, rounds: Any = rounds, generator: Any = generator) -> bench.Run:
            drawn = [generator.sample(each, 2) for each in generator.choices(rounds, k=len(rounds))]
            return bench.Run({"head": [head for head, _ in drawn], "base": [base for _, base in drawn]})

        found = bench.decide(
            measure,
            seconds=0,
            limit=0,
            names=("head", "base"),
            threshold=compare.THRESHOLD,
            margin=compare.MARGIN,
            confidence=compare.CONFIDENCE,
        )
        said[found.verdict] += 1
    # Were everything undecided, this would prove nothing.
    assert said["same"] >= 20
    assert set(said) == {"same", "undecided"}


# -- machines --------------------------------------------------------------------------------------------------


def test_the_machine_is_described_without_names() -> None:
    found = bench.machine()
    assert {"cpu_model", "cpu_features", "cores", "kernel", "openssl", "aes_gcm"} <= set(found)
    text = json.dumps(found)
    assert os.uname().nodename not in text.split('"')
    assert str(Path.home()) not in text
    assert json.loads(text) == found
    assert bench.load_average() >= 0


def test_machines_that_differ_are_refused_and_the_difference_is_named() -> None:
    here = bench.machine()
    bench.require_same(here, {**here, "ags1": "0.0", "memory_gib": 1})
    for name, value in (("cpu_model", "Another CPU"), ("openssl", "OpenSSL 3.0.1"), ("cpu_features", ["AES-NI"])):
        shown = " ".join(value) if isinstance(value, list) else value
        with pytest.raises(bench.OtherMachineError, match=f"{name}: {shown} there, .* here.*measure a baseline"):
            bench.require_same({**here, name: value}, here)


# -- histories -------------------------------------------------------------------------------------------------


def test_a_history_grows_and_says_which_line_is_none(tmp_path: Path) -> None:
    path = tmp_path / "figures.jsonl"
    machine = bench.machine()
    for commit in ("a" * 40, "b" * 40):
        made = bench.entry(
            "encrypt", 1.01, 0.99, 1.03, {"mine": [0.1234567891]}, commit=commit, machine=machine, kind=1
        )
        bench.append(path, [made])
    first, last = bench.read(path)
    assert (first.commit[0], last.commit[0], last.more) == ("a", "b", {"kind": 1})
    assert last.samples == {"mine": [0.123457]}
    assert (last.machine, last.date[-6:]) == (machine, "+00:00")
    with path.open("a") as file:
        file.write('{"figure": "x"}\n')
    with pytest.raises(ValueError, match=r"figures\.jsonl, line 3: no figure"):
        bench.read(path)


def test_a_commit_says_whether_files_differ_from_it(tmp_path: Path) -> None:
    assert bench.commit_of(tmp_path) == ""
    environment = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    (tmp_path / "file").write_text("1")
    for command in (["init", "-q"], ["add", "file"], [*environment, "commit", "-qm", "first"]):
        subprocess.run(["git", "-C", str(tmp_path), *command], check=True)
    commit = bench.commit_of(tmp_path)
    assert len(commit) == 40
    (tmp_path / "file").write_text("2")
    assert bench.commit_of(tmp_path) == commit + "+"
