"""A run of all questions: where it stands, how long a question may take, and what becomes of one that fails."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("numpy")

from bench import __main__ as runner
from bench import schedule
from bench.schedule import Schedule

JUNIT = """<?xml version="1.0" encoding="utf-8"?><testsuites><testsuite>
<testcase classname="bench.bench_a" name="test_one" />
<testcase classname="bench.bench_a" name="test_two[x]"><failure message="ValueError: too bad&#10;more">text</failure>
</testcase>
<testcase classname="bench.bench_a" name="test_three"><error message="failed on setup">text</error></testcase>
<testcase classname="bench.bench_a" name="test_four"><skipped message="no Java">text</skipped></testcase>
</testsuite></testsuites>"""


def test_a_question_has_its_time_while_the_run_has_and_less_when_it_would_end_too_late() -> None:
    plan = Schedule(["a", "b", "c"], ends=1000.0, took={"a": 60.0, "b": 30.0})
    assert plan.remaining("b") == 30.0 + schedule.UNKNOWN
    assert plan.seconds("a", 6.0, now=0.0) == 6.0
    assert plan.seconds("b", 6.0, now=980.0) == 3.0
    # Late as it may be, a question that is asked gets some rounds.
    assert plan.seconds("c", 6.0, now=2000.0) == schedule.SHORTEST
    assert plan.seconds("c", 0.5, now=2000.0) == 0.5


def test_a_line_says_which_question_is_asked_and_the_processes_know_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Schedule(["a", "b"], ends=1000.0)
    assert plan.line("b", now=0.0).startswith("question 2 of 2, all by about ")
    monkeypatch.delenv(schedule.VARIABLE, raising=False)
    assert schedule.load() is None
    plan.save(tmp_path / "schedule.json")
    monkeypatch.setenv(schedule.VARIABLE, str(tmp_path / "schedule.json"))
    assert schedule.load() == plan


def test_what_questions_took_is_known_from_the_run_before() -> None:
    before = [{"fullname": "a", "extra_info": {"took": 2.5}}, {"fullname": "b", "extra_info": {}}]
    assert schedule.took({"benchmarks": before}) == {"a": 2.5}
    assert schedule.took({}) == {}


def test_questions_that_failed_are_named_and_those_that_were_skipped_are_not() -> None:
    assert runner.failures(JUNIT) == [
        "bench.bench_a::test_two[x]: ValueError: too bad",
        "bench.bench_a::test_three: failed on setup",
    ]


def test_a_run_goes_on_behind_a_question_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def run(path: Path, expression: str | None, env: dict[str, str]) -> tuple[list[str], None]:
        asked.append(path.name)
        return [f"{path.name}: too bad"], None

    monkeypatch.setattr(runner, "_questions", lambda expression: ["bench/bench_a.py::one", "bench/bench_b.py::two"])
    monkeypatch.setattr(runner, "_run", run)
    assert runner.main(["--output", str(tmp_path)]) == 1
    assert asked == ["bench_a.py", "bench_b.py"]
    said = capsys.readouterr()
    assert "0 of 2 questions answered" in said.out
    assert said.err.splitlines() == [
        "failed: bench_a.py: too bad", "failed: bench_b.py: too bad", "No benchmark was run."
    ]  # fmt: skip
