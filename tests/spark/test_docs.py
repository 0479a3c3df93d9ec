"""What docs/spark.md and examples/ have for Spark runs, as it stands; what is for a cluster is shell, at least."""

from __future__ import annotations

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
    others = _blocks("docs/left-out.md", 'python title="Spark"')
    page = _blocks("docs/spark.md", 'python title="Spark"')  # it continues the script of the guide
    assert others
    assert page
    (tmp_path / "guide").mkdir()
    # The JVM and its workers begin in the current directory of whoever starts them; the guide's script does not mind.
    guide = f"os.chdir({str(tmp_path / 'guide')!r})\n{(ROOT / 'examples' / GUIDE).read_text()}"
    # All of them in one session.
    program = "\n".join(["import os", f"os.chdir({str(tmp_path)!r})", *others, guide, *page])
    done = run_spark(program.replace("\nspark.stop()\n", "\n"))
    assert "above 150" in done.stdout
    assert "3 files" in done.stdout
    (stored,) = (tmp_path / "guide/spark-cluster/vault/day=1").glob("sales.json.*.ags1")
    assert stored.read_bytes().startswith(b"AGS1")


def test_the_commands_for_an_environment_are_shell(tmp_path: Path) -> None:
    blocks = _blocks("docs/spark.md", "sh")
    assert blocks
    run_shell("\n".join(["if false; then", *blocks, "fi"]), tmp_path)
