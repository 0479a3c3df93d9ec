"""The examples of docs/batches.md run, in order; that of Spark runs in tests/spark."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.timeout(120)
def test_the_examples_of_the_page_run_in_order(tmp_path: Path) -> None:
    for needed in ("pyarrow.parquet", "pandas", "polars"):
        pytest.importorskip(needed)
    text = (ROOT / "docs" / "batches.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 5
    done = subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning", "-c", "\n".join(blocks)],
        cwd=tmp_path, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
