"""The code in docs/iceberg-tables.md runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from ags1.kms import MemoryKms

DOCS = Path(__file__).resolve().parents[2] / "docs" / "iceberg-tables.md"


def test_the_code_runs_from_top_to_bottom(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for needed in ("polars", "duckdb"):
        pytest.importorskip(needed)
    catalog = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=tmp_path.as_uri())
    catalog.create_namespace("db")
    names: dict[str, Any] = {"kms": MemoryKms({"lake": bytes(16), "lake-2027": bytes(range(16))}), "catalog": catalog}
    blocks = re.findall(r"^```python\n(.*?)^```$", DOCS.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 9
    exec("\n".join(blocks), names)
    assert names["table"].scan(row_filter="amount = 0.5").count() == 3
    shown = capsys.readouterr().out
    assert "100 rows added in 1 file" in shown
    assert "NOT" not in shown
    catalog.engine.dispose()
