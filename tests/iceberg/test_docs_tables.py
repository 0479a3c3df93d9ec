"""The code about tables and their engines in docs/iceberg-tables.md and docs/left-out.md runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.pages import blocks

DOCS = Path(__file__).resolve().parents[2] / "docs" / "iceberg-tables.md"


def test_the_code_runs_from_top_to_bottom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec("\n".join(blocks(DOCS, "python")), names)
    assert names["table"].scan(row_filter="amount = 0.5").count() == 3
    shown = capsys.readouterr().out
    assert "100 rows added in 1 file" in shown
    assert "NOT" not in shown
    names["catalog"].engine.dispose()


def test_the_engines_of_what_is_left_to_others_read_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for needed in ("polars", "duckdb"):
        pytest.importorskip(needed)
    monkeypatch.chdir(tmp_path)
    (block,) = blocks(DOCS.with_name("left-out.md"), 'python title="query engines"')
    names: dict[str, Any] = {}
    exec(block, names)
    names["connection"].close()
