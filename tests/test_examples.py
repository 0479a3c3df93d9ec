"""Every guide runs as pasted, its commands and its script in the order of the page; a script runs twice."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from ags1 import bench
from tests.pages import ROOT, blocks, run_python, run_shell

GUIDES = sorted((ROOT / "docs" / "guides").glob("*.md"))
NEED_SPARK = {"spark_cluster"}
"""It runs in tests/spark/test_docs.py."""


def _script(guide: Path) -> str:
    """Return the name of the script that a guide shows, or nothing."""
    match = re.search(r'^```python title="examples/(\w+)\.py"$', guide.read_text(), re.MULTILINE)
    return match[1] if match else ""


def test_every_script_has_a_guide() -> None:
    scripts = [name for name in map(_script, GUIDES) if name]
    assert sorted(scripts) == sorted(script.stem for script in (ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize(
    "guide", [guide for guide in GUIDES if _script(guide) not in NEED_SPARK], ids=lambda guide: guide.stem
)
def test_the_guide_runs_as_pasted(guide: Path, tmp_path: Path) -> None:
    for needed in ("cryptography", "pyarrow", "pyiceberg"):
        pytest.importorskip(needed)
    work = tmp_path / "work"
    work.mkdir()
    commands = "\n".join(blocks(guide, "sh")).replace(" &&\n", "\n")  # `sh -e` does not stop at a failure before `&&`
    steps: list[Callable[[], str]] = [lambda: run_shell(commands, work)]
    if name := _script(guide):
        times = 1 if name == "benchmark_regression" else 2  # it compares with what the first run stored
        script = [lambda: run_python(ROOT / "examples" / f"{name}.py", work)] * times
        commands_first = re.findall(r"^```(sh|python)\b", guide.read_text(), re.MULTILINE)[0] == "sh"
        steps = [*steps, *script] if commands_first else [*script, *steps]
    for step in steps:
        step()


def test_the_schedule_names_a_changed_and_a_plaintext_file(tmp_path: Path) -> None:
    pytest.importorskip("pyiceberg")
    work = tmp_path / "work"
    work.mkdir()
    run_shell("\n".join(blocks(ROOT / "docs/guides/verify-on-a-schedule.md", "sh")), work)
    (stored,) = (work / "vault").glob("sales.csv.*")
    data = stored.read_bytes()
    stored.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    (work / "tables" / "plain.parquet").write_bytes((work / "plain.parquet").read_bytes())
    with pytest.raises(AssertionError):
        run_python(ROOT / "examples" / "verify_on_a_schedule.py", work)
    findings = json.loads((work / "report.json").read_text())
    assert [finding[:2] for finding in findings] == [
        ["sales.csv", "damaged"],
        ["plain.parquet", "footer-not-authenticated"],
    ]


def test_the_regression_test_refuses_a_baseline_of_another_machine(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    entry = bench.entry("encrypt 16 MiB", 1, 1, 1, {}, machine={**bench.machine(), "openssl": "OpenSSL 3.0.1"})
    bench.append(tmp_path / "baseline.jsonl", [entry])
    with pytest.raises(AssertionError, match=r"baseline\.jsonl is of another machine \(openssl: OpenSSL 3\.0\.1 there"):
        run_python(ROOT / "examples" / "benchmark_regression.py", tmp_path)
