"""The fixture `paired`, as a third party's tests use it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pytest_benchmark")
tomllib = pytest.importorskip("tomllib")

ROOT = Path(__file__).resolve().parent.parent.parent
# Time is what the work says: each call adds to a clock of its own.
TESTS = """
import pytest
from ags1 import bench

def subject(*seconds):
    left = list(seconds) * 100
    return bench.Subject(lambda: None, clock=lambda: left.pop())

def test_fast_enough(paired):
    found = paired(subject(1.0), subject(0.95), at_least=0.9, nbytes=1000)
    assert round(found.speed.value, 3) == 0.95

def test_too_slow(paired):
    paired(subject(1.0), subject(0.8), at_least=0.9)

def test_unknown(paired):
    paired(subject(1.0, 0.2, 3.0, 0.5), subject(0.8, 0.9, 0.3, 2.0, 1.0), at_least=0.9, seconds=0, limit=0)

def test_no_promise(paired):
    paired(lambda: None, lambda: None, seconds=0, limit=0)

def test_twice(paired):
    paired(subject(1.0), subject(1.0))
    with pytest.raises(RuntimeError, match="called twice"):
        paired(subject(1.0), subject(1.0))
"""


def run(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (directory / "test_mine.py").write_text(TESTS)
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    env |= {"PYTHONPATH": os.pathsep.join(sys.path), "COLUMNS": "200"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "ags1.bench.pytest_plugin", "-p", "no:cacheprovider"]
    command += ["-p", "no:xdist", *arguments]
    return subprocess.run(command, cwd=directory, env=env, capture_output=True, text=True, check=False)


def test_a_promise_that_is_broken_fails_and_one_that_nobody_knows_of_warns(tmp_path: Path) -> None:
    done = run(tmp_path, "--benchmark-json=out.json")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 failed, 4 passed, 1 warning" in done.stdout, done.stdout
    assert "test_too_slow: 0.800 [0.800, 0.800] of the floor's speed, at least 0.9 wanted" in done.stdout
    assert "UndecidedWarning: test_unknown" in done.stdout
    stored = {each["name"]: each for each in json.loads((tmp_path / "out.json").read_text())["benchmarks"]}
    record = stored["test_fast_enough"]["extra_info"]["paired"]
    assert record["samples"]["mine"][:3] == [1.0] * 3
    assert (record["at_least"], record["verdict"], record["gb_s"]["mine"]) == (0.9, "faster", 1e-6)
    assert {"cpu_model", "openssl"} <= set(record["machine"])
    assert stored["test_fast_enough"]["stats"]["median"] == pytest.approx(1.0)
    assert stored["test_unknown"]["extra_info"]["paired"]["verdict"] == "undecided"


def test_it_works_without_pytest_benchmark_and_with_it_disabled(tmp_path: Path) -> None:
    without = run(tmp_path, "-p", "no:benchmark", "-W", "error::ags1.bench.UndecidedWarning")
    assert "2 failed, 3 passed" in without.stdout, without.stdout
    assert "undecided after" in without.stdout
    disabled = run(tmp_path, "--benchmark-disable")
    assert "5 passed" in disabled.stdout, disabled.stdout


def test_pytest_finds_it_by_itself_where_the_package_is_installed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"ags1.bench.pytest_plugin": "ags1.bench.pytest_plugin"}
