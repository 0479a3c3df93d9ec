"""What docs/spark.md and examples/ have for Spark runs, as it stands; what is for a cluster is Python, at least."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

from tests.pages import run_shell

GUIDE = "spark_cluster.py"
ROOT = Path(__file__).resolve().parent.parent.parent


def _blocks(name: str, language: str) -> list[str]:
    text = (ROOT / name).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def test_the_spark_examples_of_the_pages_and_the_script_of_the_guide_run(
    tmp_path: Path, run_spark: Callable[..., CompletedProcess[str]]
) -> None:
    run_shell(*_blocks("docs/spark.md", 'sh title="before the examples"'), tmp_path)
    pages = [_blocks(name, 'python title="Spark"') for name in ("docs/spark.md", "docs/left-out.md")]
    assert all(pages)
    (tmp_path / "guide").mkdir()
    # The JVM and its workers begin in the current directory of whoever starts them; the guide's script does not mind.
    guide = f"os.chdir({str(tmp_path / 'guide')!r})\n{(ROOT / 'examples' / GUIDE).read_text()}"
    # All of them in one session.
    program = "\n".join(["import os", f"os.chdir({str(tmp_path)!r})", *itertools.chain(*pages), guide])
    done = run_spark(program.replace("\nspark.stop()\n", "\n"))
    assert "above 150" in done.stdout
    assert "2 files" in done.stdout
    assert "3 files" in done.stdout
    (stored,) = (tmp_path / "vault" / "day=1").glob("sales.json.*.ags1")
    assert stored.read_bytes().startswith(b"AGS1")


def test_the_examples_of_the_page_on_clusters_are_python() -> None:
    blocks = _blocks("docs/spark.md", "python")
    assert blocks
    for block in blocks:
        ast.parse(block)
