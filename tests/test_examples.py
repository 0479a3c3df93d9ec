"""Every script of examples/ runs twice in an empty directory, then the commands of its guide on what it has made."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ags1 import bench
from tests.pages import ROOT, blocks, run_python, run_shell

GUIDES = {
    match[1]: page
    for page in (ROOT / "docs" / "guides").glob("*.md")
    if (match := re.search(r'^```python title="examples/(\w+)\.py"$', page.read_text(), re.MULTILINE))
}
NEED_SPARK = {"spark_cluster"}
"""It runs in tests/spark/test_docs.py."""


def test_every_guide_has_a_script_and_every_script_a_guide() -> None:
    scripts = {script.stem for script in (ROOT / "examples").glob("*.py")}
    assert scripts == set(GUIDES)
    assert len(GUIDES) == len(list((ROOT / "docs" / "guides").glob("*.md")))


@pytest.mark.parametrize("name", sorted(set(GUIDES) - NEED_SPARK))
def test_the_guide_runs_as_pasted(name: str, tmp_path: Path) -> None:
    for needed in ("cryptography", "pyarrow", "pyiceberg"):
        pytest.importorskip(needed)
    work = tmp_path / "work"
    work.mkdir()
    script = ROOT / "examples" / f"{name}.py"
    run_python(script, work)
    if name != "benchmark_regression":  # which compares with what the first run stored
        run_python(script, work)
    run_shell("\n".join(blocks(GUIDES[name], "sh")), work)


def test_the_schedule_names_a_changed_and_a_plaintext_file(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    work = tmp_path / "work"
    work.mkdir()
    script = ROOT / "examples" / "verify_on_a_schedule.py"
    run_python(script, work)
    (stored,) = (work / "vault").glob("sales.csv.*")
    data = stored.read_bytes()
    stored.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    (work / "tables" / "plain.parquet").write_bytes((work / "plain.parquet").read_bytes())
    with pytest.raises(AssertionError, match=r"FOUND sales\.csv damaged") as caught:
        run_python(script, work)
    assert "FOUND tables/plain.parquet not protected" in str(caught.value)


def test_the_regression_test_refuses_a_baseline_of_another_machine(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    entry = bench.entry("encrypt 16 MiB", 1, 1, 1, {}, machine={**bench.machine(), "openssl": "OpenSSL 3.0.1"})
    bench.append(tmp_path / "baseline.jsonl", [entry])
    with pytest.raises(AssertionError, match=r"baseline\.jsonl is of another machine \(openssl: OpenSSL 3\.0\.1 there"):
        run_python(ROOT / "examples" / "benchmark_regression.py", tmp_path)
