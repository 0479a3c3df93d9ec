"""Every guide runs as pasted, its commands and its script in the order of the page; a script runs twice."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ags1 import bench
from tests.pages import ROOT, blocks, run_python, run_shell

PAGES = sorted((ROOT / "docs" / "guides").glob("*.md"))
GUIDES = {
    match[1]: page
    for page in PAGES
    if (match := re.search(r'^```python title="examples/(\w+)\.py"$', page.read_text(), re.MULTILINE))
}
NEED_SPARK = {"pyspark_hour", "spark_cluster"}
"""They run in tests/spark/test_docs.py."""


def _begins_with_commands(page: Path) -> bool:
    fences = re.findall(r"^```(sh|python)\b", page.read_text(), re.MULTILINE)
    return fences[:1] == ["sh"] and page not in {GUIDES.get(name) for name in NEED_SPARK}


def test_every_script_has_a_guide() -> None:
    assert {script.stem for script in (ROOT / "examples").glob("*.py")} == set(GUIDES)


@pytest.mark.parametrize("page", [page for page in PAGES if _begins_with_commands(page)], ids=lambda page: page.stem)
def test_the_commands_of_the_guide_run_as_pasted(page: Path, tmp_path: Path) -> None:
    """In an empty directory: a guide that begins with its commands needs nothing of its script."""
    pytest.importorskip("pyiceberg")
    work = tmp_path / "work"
    work.mkdir()
    run_shell("\n".join(blocks(page, "sh")), work)


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
    if not _begins_with_commands(GUIDES[name]):
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
