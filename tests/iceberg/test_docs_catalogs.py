"""The code in docs/catalogs.md runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ags1.iceberg import load_table
from tests.pages import blocks, run_shell

DOCS = Path(__file__).resolve().parents[2] / "docs" / "catalogs.md"


def test_the_code_runs_from_top_to_bottom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec("\n".join(blocks(DOCS, "python")), names)
    assert "id: [[1,2]]" in capsys.readouterr().out
    moved = load_table(names["catalog"], "db.events", kms=names["kms"], table_key_id="lake-2027")
    assert moved.scan().to_arrow().num_rows == 2
    names["catalog"].engine.dispose()


def test_the_commands_run_from_top_to_bottom(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    said = run_shell(blocks(DOCS, "sh")[0], work)
    assert "2 files, " in said
    assert " became 1 file, " in said
    assert "the old master keys (lake) may be disabled" in said
    assert ": all authentic\n" in said
