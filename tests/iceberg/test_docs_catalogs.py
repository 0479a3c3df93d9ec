"""The code in docs/catalogs.md runs."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from ags1.iceberg import create_table, load_table
from ags1.kms import MemoryKms
from tests.pages import blocks, run_shell

DOCS = Path(__file__).resolve().parents[2] / "docs" / "catalogs.md"


def test_the_code_runs_from_top_to_bottom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    kms = MemoryKms({"lake": bytes(16), "lake-2027": bytes(range(16))})
    catalog = SqlCatalog("lake", uri="sqlite:///catalog.db", warehouse="lake")
    catalog.create_namespace("db")
    location = str(tmp_path / "events")
    rows = pa.table({"id": [1, 2]})
    create_table(catalog, "db.events", rows.schema, kms=kms, key_id="lake", location=location).append(rows)
    blocks = re.findall(r"^```python\n(.*?)^```$", DOCS.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 2
    names = {"kms": kms}
    exec("\n".join(blocks), names)
    assert names["rows"].num_rows == 2  # type: ignore[attr-defined]
    names["catalog"].engine.dispose()  # type: ignore[attr-defined]
    moved = load_table(catalog, "db.events", kms=kms, table_key_id="lake-2027")
    assert moved.scan().to_arrow().num_rows == 2
    catalog.engine.dispose()


def test_the_commands_run_from_top_to_bottom(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    said = run_shell(blocks(DOCS, "sh")[0], work)
    assert "rekey of 1 table (db.*), master key lake-2027: 1 done" in said
    assert said.splitlines()[-1].startswith("verify of 1 table (db.*): 1 done"), said
