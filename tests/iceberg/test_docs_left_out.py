"""The code below the headings of docs/left-out.md that are about tables and audits runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.pages import blocks, run_python, run_shell

PAGE = Path(__file__).resolve().parents[2] / "docs" / "left-out.md"


@pytest.mark.parametrize("heading", ["Many tables at once", "Branches, tags, rollback and properties"])
def test_the_code_below_a_heading_runs(heading: str, tmp_path: Path) -> None:
    (section,) = re.findall(rf"^## {heading}\n.*?(?=^## |\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    work, part = tmp_path / "work", tmp_path / "part.md"
    work.mkdir()
    part.write_text(section)
    assert blocks(part, "python") or blocks(part, "sh")
    run_python("\n".join(blocks(part, "python")), work)
    run_shell("\n".join(blocks(part, "sh")), work)
