"""Reports, merged runs, histories and comparisons: a figure belongs to a machine, a commit, a date and a load."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from ags1 import bench as benching
from ags1.bench import Run

pytest.importorskip("numpy")

from bench import __main__ as runner
from bench import compare, history, measure, report

HERE = {**benching.machine(), "file_system": "ext4", "cryptography": "50"}
THERE = {**HERE, "cpu_model": "Another CPU", "aes_gcm": "another-path"}


def benchmark(name: str, machine: dict[str, Any], seconds: float = 1.0, **info: Any) -> dict[str, Any]:
    """A benchmark of pytest-benchmark's JSON, with one figure."""
    run = Run({"ags1": [seconds] * 5, "C loop": [1.0] * 5})
    figure = measure.figure(run, name, "C loop", target=0.97)
    extra = {"figures": [figure.to_json()], "machine": machine, "samples": run.seconds}
    return {"fullname": name, "extra_info": {**extra, "commit": "a" * 40, "date": "2026-11-23", "load": 0.1, **info}}


def results(*benchmarks: dict[str, Any], machine: dict[str, Any] = HERE) -> dict[str, Any]:
    return {"machine_info": machine, "datetime": "2026-11-23T00:00:00", "benchmarks": list(benchmarks)}


# -- one machine, one table --------------------------------------------------------------------------------------


class _Pair:
    """Two processes, each of which is faster or slower than others for as long as it lives."""

    def __init__(self, generator: random.Random, factor: float, spread: float) -> None:
        self.head, self.base = (_Process(each * generator.lognormvariate(0, spread)) for each in (factor, 1.0))

    def __enter__(self) -> _Pair:  # noqa: PYI034 - typing.Self came with Python 3.11
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def prepare(self, question: str) -> None:
        pass


class _Process:
    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def seconds(self, question: str) -> float:
        return self._seconds

    def ask(self, **request: str) -> dict[str, int]:
        return {"bytes": 1 << 20}


def test_two_processes_are_one_sample_however_often_they_are_asked() -> None:
    """The threat: on a shared machine, where processes of equal code differ, "same" or "slower" is said for unknown."""

    def said(seed: int, factor: float, spread: float) -> str:
        generator = random.Random(seed)
        start: Any = lambda head_first: _Pair(generator, factor, spread)  # noqa: E731
        return compare.ask_both("q", start, seconds=6, limit=0).verdict

    assert {said(seed, factor, 0.1) for seed in range(20) for factor in (1.0, 1.05)} == {"undecided"}
    # Where they differ by 1 %, as on a quiet machine, 5 % is found each time, and no change where there is none.
    assert {said(seed, 1.05, 0.007) for seed in range(20)} == {"slower"}
    assert {said(seed, 1.0, 0.007) for seed in range(20)} == {"same"}


def test_a_run_of_some_benchmarks_does_not_take_those_of_another_machine_for_its_own() -> None:
    """Once the whole report got the header of whoever had asked one question again."""
    before = results(benchmark("one", THERE), benchmark("two", THERE), benchmark("two", HERE, 3.0), machine=THERE)
    answer = results(benchmark("two", HERE, 2.0, load=11.5, commit="b" * 40))
    after = runner.merged(before, answer)
    assert [(each["fullname"], each["extra_info"]["machine"]["cpu_model"]) for each in after["benchmarks"]] == [
        ("one", "Another CPU"),
        ("two", "Another CPU"),
        ("two", HERE["cpu_model"]),
    ]
    here, there = report.by_machine(after)
    assert [len(part["benchmarks"]) for part in (here, there)] == [1, 2]
    assert (here["machine_info"], there["machine_info"]["cpu_model"]) == (HERE, "Another CPU")
    page = report.markdown(after, quick=False, picture=False)
    mine, apart = page.split("## Another machine")
    assert "| one |" not in mine
    assert "1 figures: commit bbbbbbbbbbbb, 2026-11-23, load average 11.5; **the machine was busy" in mine
    assert "cpu_model: Another CPU there" in apart
    assert "| one |" in apart
    assert "2 figures: commit aaaaaaaaaaaa, 2026-11-23, load average 0.1" in apart
    assert "busy" not in apart


def test_headlines_and_pictures_are_of_one_machine() -> None:
    questions = [question for question, _ in report.HEADLINES[:2]]
    found = results(
        benchmark(questions[0], THERE), benchmark(questions[1], THERE), benchmark(questions[0], HERE, machine_info=HERE)
    )
    for each in found["benchmarks"]:
        each["extra_info"]["figures"][0]["reference"] = dict(report.HEADLINES)[each["fullname"]]
    shown = report.headlines(found)
    assert shown.startswith("| Another CPU (another-path), ")
    assert len(shown.splitlines()) == 4


# -- histories ---------------------------------------------------------------------------------------------------


def lines(values: list[float]) -> list[benching.HistoryEntry]:
    return [
        benching.HistoryEntry("encrypt", value, value, value, {}, HERE, f"{number:040x}", "2026-11-23", 0.1)
        for number, value in enumerate(values)
    ]


def test_what_was_measured_is_kept_a_line_a_figure_commit_and_machine(tmp_path: Path) -> None:
    for commit in "ab":
        measured = [benchmark("one", HERE, commit=commit * 40), benchmark("one", THERE, 2.0, commit=commit * 40)]
        files = history.keep(measured, tmp_path)
    assert len(files) == len(set(files)) == 2
    mine = benching.read(history.file_of(HERE, tmp_path))
    assert [(each.figure, each.commit[0], each.value) for each in mine] == [
        ("one / C loop", "a", 1.0),
        ("one / C loop", "b", 1.0),
    ]
    assert mine[0].samples == {"ags1": [1.0] * 5, "C loop": [1.0] * 5}
    page = history.page(tmp_path)
    assert page.count("| one / C loop (speed) |") == 2
    assert "| 0.50 | 0.50 | 2 |" in page
    assert "Nothing was recorded" in history.page(tmp_path / "none")


def test_the_page_is_made_from_the_files_alone() -> None:
    if any(len(found) >= 6 for path in history.DIRECTORY.glob("*.jsonl") for found in history.series(
        benching.read(path)).values()):  # fmt: skip
        pytest.importorskip("ruptures")
    assert history.PAGE.read_text() == history.page(), "python -m bench.history brings it up to date"


def test_of_two_lines_of_a_commit_the_last_counts() -> None:
    first, second = lines([1.0, 2.0])
    again = lines([3.0])[0]
    assert [each.value for each in history.series([first, second, again])["encrypt"]] == [3.0, 2.0]
    assert history.drawn([1.0, 1.0, 2.0]) == "▁▁▇"
    assert len(set(history.drawn([1.0, 1.001, 0.999]))) == 1


def test_steps_are_found_and_noise_is_none() -> None:
    pytest.importorskip("ruptures")
    generator = random.Random(4)
    flat = [generator.gauss(1.0, 0.005) for _ in range(60)]
    assert history.steps(lines(flat)) == []
    moved = [value * (0.94 if number >= 30 else 1.0) for number, value in enumerate(flat)]
    (step,) = history.steps(lines(moved))
    assert int(step.commit, 16) in (29, 30, 31)
    assert (step.before, step.after) == pytest.approx((1.0, 0.94), abs=0.01)
    # Slowly, too: 1 % in each of ten commits is more than one threshold would see.
    slowly = [value * 0.99 ** min(10, max(0, number - 20)) for number, value in enumerate(flat)]
    assert history.steps(lines(slowly))


# -- comparisons -------------------------------------------------------------------------------------------------


def moved(verdict: str, ratio: float | None = 1.0) -> compare.Moved:
    return compare.Moved("q", 1.0, 1.0, ratio, ratio, ratio, 9, verdict, samples={"head": [1.0], "base": [1.0]})


def test_a_comparison_says_what_it_found_by_its_exit_code() -> None:
    for verdicts, code in (
        (["same", "faster"], 0),
        (["same", "not asked"], 0),
        (["same", "slower", "undecided"], 1),
        (["same", "undecided"], 3),
    ):
        assert compare.exit_code(set(verdicts), "slower") == code, verdicts


def test_a_comparison_is_written_with_commits_machine_date_and_samples(tmp_path: Path) -> None:
    of = {"base": "a" * 40, "head": "b" * 40 + "+"}
    stored = json.loads(json.dumps(compare.report(of, [moved("same")])))
    assert stored | of == stored
    assert stored["machine"] == benching.machine()
    assert stored["date"].endswith("+00:00")
    assert stored["questions"][0]["samples"] == {"head": [1.0], "base": [1.0]}
    benching.append(tmp_path / "figures.jsonl", compare.entries(of, [moved("same"), moved("not asked", None)]))
    (line,) = benching.read(tmp_path / "figures.jsonl")
    assert (line.commit, line.more["base"]) == (of["head"], of["base"])


def test_comparison_lines_and_table() -> None:
    def measured(head: float, seconds: float, warm_up: int) -> Run:
        return Run({"head": [head] * 9, "base": [1.0] * 9})

    found = benching.decide(lambda *given: measured(1.2, *given), seconds=0, limit=0, names=("head", "base"))
    slower = compare.judge("encrypt", found)
    assert (slower.verdict, slower.ratio, slower.rounds) == ("slower", pytest.approx(1.2), 18)
    same = benching.decide(lambda *given: measured(1.0, *given), seconds=0, limit=0, names=("head", "base"))
    more = compare.judge("encrypt", same, {"base": 10 << 20, "head": 30 << 20})
    assert (more.verdict, more.note) == ("slower", "peak memory rose by 30.0 MiB, by 10.0 in base")
    assert compare.judge("encrypt", same, {"base": 10 << 20, "head": 13 << 20}).verdict == "same"
    missing = compare.Moved("new", None, None, None, None, None, 0, "not asked", "base: AttributeError: new")
    rows = compare.table([slower, more, missing]).splitlines()
    assert "**slower**" in rows[2]
    assert "**slower**: peak memory" in rows[3]
    assert "not asked: base: AttributeError: new" in rows[4]


def test_what_only_one_set_of_rounds_shows_is_undecided() -> None:
    """A neighbour's work slows one of two sets: two processes of the same commit are not to be told apart by it."""
    sets = iter([1.2, 1.0, 1.0, 1.0])
    found = benching.decide(
        lambda seconds, warm_up: Run({"mine": [next(sets)] * 9, "other": [1.0] * 9}), seconds=0, limit=0
    )
    assert (found.verdict, found.run.rounds) == ("undecided", 18)


def test_modules_of_equal_sources_are_built_once(tmp_path: Path) -> None:
    for name in ("base", "head"):
        (tmp_path / name / "ags1").mkdir(parents=True)
        (tmp_path / name / "setup.py").write_text("")
        (tmp_path / name / "ags1" / "a.pyx").write_text("x = 1")
    base, head = tmp_path / "base", tmp_path / "head"
    (base / "ags1" / "a.so").write_text("built")
    (head / "ags1" / "a.py").write_text("another")
    assert compare.take_modules(base, head)
    assert (head / "ags1" / "a.so").read_text() == "built"
    (head / "ags1" / "a.pyx").write_text("x = 2")
    assert not compare.take_modules(base, head)
