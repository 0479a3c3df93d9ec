"""README.md is true: its blocks run in an empty directory, its links lead somewhere, its figures are measured."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench import report
from tests.pages import ROOT, as_typed, commands, languages, run_shell

README = ROOT / "README.md"


def test_each_block_runs_as_it_is_typed_in_an_empty_directory(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    pytest.importorskip("pyiceberg")
    assert languages(README) == {"", "sh", "python"}
    directory = tmp_path / "empty"
    directory.mkdir()
    shown = run_shell(as_typed(README), directory)
    assert "b'1,10.50'\n" in shown
    assert shown.count("authentic") >= 3


def test_every_linked_file_exists() -> None:
    for page in (README, ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"):
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (ROOT / target).exists(), f"{page.name} links to {target}, which does not exist"


def test_every_command_that_is_named_exists() -> None:
    known = subprocess.run(
        [sys.executable, "-m", "ags1", "--help"], capture_output=True, text=True, check=True, cwd=ROOT
    )
    pages = [README, *(ROOT / "docs").rglob("*.md")]
    named = {command for page in pages for command in re.findall(r"`ags1 ([a-z]+)", page.read_text())}
    assert len(named) > 5
    for command in named | commands(pages):
        assert re.search(rf"^    {command}\b", known.stdout, re.MULTILINE), command


def test_every_make_target_that_is_named_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for page in (README, ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")):
        for target in re.findall(r"(?:`|^)make ([a-z-]+)", page.read_text(), re.MULTILINE):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_the_figures_are_those_of_the_last_run() -> None:
    results = json.loads((ROOT / "bench" / "results" / "results.json").read_text())
    text = README.read_text()
    assert report.headlines(results).count("\n") == 2 + len(report.HEADLINES)
    assert report.with_headlines(text, results) == text, "python -m bench.headlines brings them up to date"
