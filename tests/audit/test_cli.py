"""``ags1 audit``: what it prints, and its exit codes."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from ags1.cli import main
from ags1.kms import LocalKms
from tests.audit.lake import FILE_KEY, MASTER_KEYS, make
from tests.cli.conftest import Run, run

__all__ = ["run"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AGS1_KMS", raising=False)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.csv").write_text("name,born\nAda,1815\n")
    return tmp_path


def test_the_report_is_printed(run: Run, here: Path) -> None:
    result = run("audit", "data", "--allow", "*")
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("data: 1 file, 19 B\n  plaintext")
    assert result.out.endswith("ok: all files look encrypted, except 1 file that --allow names\n")


def test_an_audit_of_nothing_is_no_success(run: Run, here: Path) -> None:
    """The threat: a schedule with a wrong path."""
    (here / "empty").mkdir()
    text = "error: nothing-found: empty: there are no files here, so nothing was inspected\n"
    loud = run("audit", "empty")
    assert (loud.code, "ok:" in loud.out) == (4, False)
    assert text in loud.out
    quiet = run("audit", "empty", "--quiet")
    assert (quiet.code, quiet.out, quiet.err) == (4, "", f"ags1: {text}")


def test_plaintext_that_is_not_allowed_is_exit_code_5(run: Run, here: Path) -> None:
    result = run("audit", "data", "--allow", "*.md")
    assert result.code == 5
    assert "violation: not-encrypted: a.csv: is plaintext, and no pattern of --allow matches its name" in result.out
    quiet = run("audit", "data", "--quiet")
    assert (quiet.code, quiet.out) == (5, "")
    assert quiet.err.startswith("ags1: violation: not-encrypted: a.csv")
    assert result.out.endswith("NOT OK: 1 file is not encrypted\n")
    (here / "data" / "b.md").write_text("text")
    verdict = "NOT OK: 1 file is not encrypted, except 1 file that --allow names\n"
    assert run("audit", "data", "--allow", "*.md").out.endswith(verdict)
    assert run("audit", "data", "--allow", "*.md", "--allow", "a.*").code == 0


def test_json_has_everything(run: Run, here: Path) -> None:
    (found,) = run("audit", "data", "--json").records
    assert (found["subject"], found["exit_code"], found["ok"]) == ("data", 5, False)
    assert [each["name"] for each in found["files"]] == ["a.csv"]


def test_a_kms_opens_datasets_and_tables(run: Run, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = make(here / "lake")
    (here / "password").write_text("a password of some length")
    (here / "password").chmod(0o600)
    LocalKms.create("keys.json", MASTER_KEYS, password_file="password").close()
    without = run("audit", lake)
    assert "no KMS was given" in without.out
    result = run("audit", lake, "--kms", "local:keys.json", "--password-file", "password")
    assert (result.code, "no KMS was given" in result.out) == (5, False)
    monkeypatch.setenv("AGS1_KMS", "local:keys.json?password_file=password")
    without_time = re.compile(".*, ags1 .*")
    assert without_time.sub("", run("audit", lake).out) == without_time.sub("", result.out)
    assert FILE_KEY.hex() not in result.out


def test_names_cannot_move_the_cursor(run: Run, here: Path) -> None:
    (here / "data" / "x\x1b[2J\ny\u202e.csv").write_text("a,b\n1,2\n")
    (here / "data" / os.fsdecode(b"\xff.csv")).write_text("a,b\n1,2\n")
    for options in ((), ("--json",)):
        result = run("audit", "data", *options)
        assert result.code == 5
        assert "\x1b" not in result.out
        assert "\u202e" not in result.out


def test_what_cannot_be_read_is_exit_code_4(run: Run, here: Path) -> None:
    (here / "data" / "broken").symlink_to("nothing")
    result = run("audit", "data", "--json")
    assert result.code == 4
    assert json.loads(result.out)["counts"] == {"unreadable": 1, "not-encrypted": 1}
    assert run("audit", "missing").code == 4
    assert main(["audit", "data", "--threads", "0"]) == 2


def test_several_locations_have_a_report_each_and_the_worst_exit_code(run: Run, here: Path) -> None:
    (here / "other").mkdir()
    (here / "other" / "b.md").write_text("text")
    result = run("audit", "data", "other", "--allow", "*.md", "--json")
    assert [(each["subject"], each["exit_code"]) for each in result.records] == [("data", 5), ("other", 0)]
    assert result.code == 5
    globbed = run("audit", "[do]*", "data", "--allow", "*")
    assert (globbed.code, globbed.out.count("ok: all files look encrypted, except 1 file that --allow names\n")) == (
        0,
        2,
    )
    missing = run("audit", "x*")
    assert (missing.code, missing.err) == (2, "ags1: no file matches x*\n")
