"""The Arrow UDFs of docs/batches.md encrypt and decrypt a column, as they stand."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import ags1

ROOT = Path(__file__).resolve().parent.parent.parent


def test_the_arrow_udfs_of_the_page_on_batches_run(
    tmp_path: Path, run_spark: Callable[..., CompletedProcess[str]]
) -> None:
    (tmp_path / "column.key").write_bytes(bytes(ags1.Key.generate()))
    (tmp_path / "column.key").chmod(0o600)
    text = (ROOT / "docs" / "batches.md").read_text()
    blocks = re.findall(r"^```python spark\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 1
    # The JVM and its workers begin in the current directory of whoever starts them.
    done = run_spark("\n".join(["import os", f"os.chdir({str(tmp_path)!r})", *blocks]))
    assert "the rows came back" in done.stdout
