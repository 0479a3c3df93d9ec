"""README.md is always true: its Python runs, its commands run, the files that it names exist."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)


def test_the_python_examples_run_in_order(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    (tmp_path / "sales.csv").write_bytes(b"id,amount\n1,10.50\n2,99.90\n")
    _people(tmp_path / "people.parquet")
    (tmp_path / "raw" / "day=1").mkdir(parents=True)
    (tmp_path / "raw" / "day=1" / "sales.csv").write_bytes(b"id,amount\n1,10.50\n")
    program = "\n".join(blocks("python"))
    done = subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning", "-c", program],
        cwd=tmp_path, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == "b'1,10.50'\n"
    assert (tmp_path / "restored.csv").read_bytes() == (tmp_path / "sales.csv").read_bytes()


def _people(path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"name": ["Ada", "Grace"], "ssn": ["1", "2"], "salary": [3.5, 4.5]}), path)


def test_the_shell_examples_run_in_order(tmp_path: Path) -> None:
    (tmp_path / "sales.csv").write_bytes(b"id,amount\n1,10.50\n")
    _people(tmp_path / "people.parquet")
    tools = tmp_path / "bin"
    tools.mkdir()
    command = tools / "ags1"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ags1 "$@"\n')
    command.chmod(0o755)
    for script in blocks("sh"):
        subprocess.run(
            ["sh", "-eu", "-c", script],
            cwd=tmp_path, check=True, capture_output=True,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"},
        )  # fmt: skip
    assert (tmp_path / "restored.csv").read_bytes() == b"id,amount\n1,10.50\n"
    assert (tmp_path / "sales.csv.ags1").read_bytes().startswith(b"AGS1")


def test_every_linked_file_exists() -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", README.read_text()):
        assert (ROOT / target).exists(), f"README.md links to {target}, which does not exist"


def test_every_command_of_the_table_exists() -> None:
    commands = set(re.findall(r"`ags1 ([a-z]+)", README.read_text()))
    known = subprocess.run(
        [sys.executable, "-m", "ags1", "--help"], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert commands
    for command in commands:
        assert re.search(rf"^    {command}\b", known.stdout, re.MULTILINE), command


def test_every_make_target_that_is_named_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"`make ([a-z-]+)", README.read_text()):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
