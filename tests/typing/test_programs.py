"""Type checkers accept and refuse what the programs beside this file say, for every public function."""

from __future__ import annotations

import importlib
import inspect
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = sorted((Path(__file__).parent / "programs").glob("*.py"))
ROOT = Path(__file__).parents[2]
MODULES = (
    "", ".arrow", ".audit", ".avro", ".bench", ".dataset", ".fs", ".iceberg", ".kms", ".layout", ".parquet", ".spark",
)  # fmt: skip
SECONDS = 600
Lines = dict[str, set[int]]


def marked() -> Lines:
    """The lines of each program that a type checker must refuse."""
    return {
        path.name: {n for n, line in enumerate(path.read_text().splitlines(), 1) if line.endswith("# refused")}
        for path in PROGRAMS
    }


def refused_by_mypy(tmp_path: Path) -> Lines:
    command = [sys.executable, "-m", "mypy", "--no-incremental", f"--cache-dir={tmp_path}", "--no-error-summary"]
    command += ["--config-file=pyproject.toml", "--no-warn-unused-ignores", "--allow-untyped-defs", *map(str, PROGRAMS)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False)
    found: Lines = {path.name: set() for path in PROGRAMS}
    for line in done.stdout.splitlines():
        place = re.match(r"(\S+?):(\d+): error: (.*)", line)
        if place is None:
            continue
        name = Path(place[1]).name
        assert name in found, line
        found[name].add(int(place[2]))
    assert not done.stderr, done.stderr
    return found


def refused_by_pyright(_: Path) -> Lines:
    command = shutil.which("pyright")
    if command is None:
        pytest.skip("pyright is not installed: npm install --global pyright")
    done = subprocess.run(
        [command, "--outputjson", "--pythonpath", sys.executable, *map(str, PROGRAMS)],
        cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False,
    )  # fmt: skip
    found: Lines = {path.name: set() for path in PROGRAMS}
    for diagnostic in json.loads(done.stdout)["generalDiagnostics"]:
        if diagnostic["severity"] == "error":
            found[Path(diagnostic["file"]).name].add(diagnostic["range"]["start"]["line"] + 1)
    return found


@pytest.mark.parametrize("checker", [refused_by_mypy, refused_by_pyright])
def test_a_type_checker_refuses_the_marked_lines_and_no_others(checker: object, tmp_path: Path) -> None:
    assert callable(checker)
    found, wanted = checker(tmp_path), marked()
    assert {name: sorted(found[name] ^ wanted[name]) for name in wanted if found[name] != wanted[name]} == {}


def test_every_public_function_has_a_program() -> None:
    text = "\n".join(path.read_text() for path in PROGRAMS)
    missing = []
    for suffix in MODULES:
        module = importlib.import_module(f"ags1{suffix}")
        for name in module.__all__:
            value = getattr(module, name)
            is_function = callable(value) and not inspect.isclass(value)
            used = re.search(rf"\b{module.__name__.rpartition('.')[2]}s?\.{name}\(.*# refused", text)
            if is_function and used is None:
                missing.append(f"{module.__name__}.{name}")
    assert missing == []
