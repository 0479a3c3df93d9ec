"""What docs/compatibility.md says of bare systems is what was run there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import pythons
from tests.packaging import bare, systems

ONE = {
    "title": "Debian 12, x86_64",
    "emulated": False,
    "busy": False,
    "python": "3.11.2",
    "libc": "glibc 2.36",
    "install_seconds": 12.4,
    "first_table_seconds": 3.6,
    "core": {"passed": 1234, "failed": 0, "skipped": 5, "error": 0},
    "core_passed": True,
    "readme_passed": True,
    "backend": {"aes_gcm": "vaes-avx512"},
}


def test_the_page_has_the_stored_results() -> None:
    results = json.loads(systems.RESULTS.read_text())
    page = systems.PAGE.read_text()
    assert all(f"| {found['title']} |" in page for found in results.values())
    assert systems.with_table(page, results) == page, "python -m tests.packaging.systems brings it up to date"


def test_every_stored_result_is_of_a_system_and_passed() -> None:
    for name, found in json.loads(systems.RESULTS.read_text()).items():
        assert name in systems.SYSTEMS
        assert found["machine"] == systems.SYSTEMS[name].machine
        assert found["readme_passed"]
        assert found["core_passed"]
        assert found["core"]["passed"] > 1000


def test_a_failure_is_in_the_table_and_an_emulated_system_has_no_seconds() -> None:
    failed = {**ONE, "core": {**ONE["core"], "failed": 3}, "readme_passed": False}  # type: ignore[dict-item]
    busy = {**ONE, "title": "Debian 13, x86_64", "busy": True}
    text = systems.table(
        {"debian-12-x86_64": failed, "debian-12-aarch64": {**ONE, "emulated": True}, "debian-13-x86_64": busy}
    )
    line, loaded, emulated = text.splitlines()[2:]
    assert "| 12 s on a busy machine | 4 s on a busy machine |" in loaded
    assert "| 12 s | 4 s | 1,234 passed, 3 failed, 5 skipped | failed |" in line
    assert "| emulated | emulated | 1,234 passed" in emulated
    without = {**ONE, "emulated": True, "core": {}, "core_passed": None}
    assert "| emulated | emulated | not run | passed |" in systems.table({"debian-12-aarch64": without})


def test_the_numbers_are_those_of_pytests_last_line() -> None:
    said = "FAILED a - 7 passed the door\n=== 2 failed, 1801 passed, 9 skipped, 1 error in 80.1s ===\n"
    assert bare.counts(said) == {"passed": 1801, "failed": 2, "skipped": 9, "error": 1}


def test_what_cannot_be_run_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert systems.main(["debian-12-aarch64", "--wheels", str(tmp_path)]) == 1
    said = capsys.readouterr().out
    assert said.startswith("NOT RUN: debian-12-aarch64: no wheel: python -m buildtools.wheels 3.11")


def test_a_file_that_fails_crashes_or_hangs_does_not_hide_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    files = {
        "good": "import pytest\ndef test_a(): pass\n@pytest.mark.skip(reason='no such CPU')\ndef test_b(): pass\n",
        "bad": "def test_a(): pass\ndef test_b(): assert 0\n",
        "crash": "import os\ndef test_a(): os._exit(3)\n",
        "hang": "",
        "last": "def test_a(): pass\n",
    }
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(text)
    core = pythons.core

    def or_hang(*arguments: Any, **options: Any) -> subprocess.CompletedProcess[str]:
        if arguments[4] == [str(tmp_path / "hang")]:
            raise subprocess.TimeoutExpired("pytest", options["timeout"])
        return core(*arguments, **options)

    monkeypatch.setattr(pythons, "core", or_hang)
    monkeypatch.setattr(pythons, "CORE", [str(tmp_path / name) for name in files])
    assert pythons.each_file(Path(sys.executable), tmp_path, [], os.environ) != 0
    *_, skipped, last = capfd.readouterr().out.splitlines()
    assert skipped.startswith("SKIPPED ")
    assert skipped.endswith("::test_b - Skipped: no such CPU")
    assert bare.counts(last) == {"passed": 3, "failed": 1, "skipped": 1, "error": 2}
    monkeypatch.setattr(pythons, "CORE", [str(tmp_path / "last")])
    assert pythons.each_file(Path(sys.executable), tmp_path, [], os.environ) == 0
