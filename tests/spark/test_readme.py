"""The examples of README.md and docs/spark.md that need Spark run, as they stand, with the session of the tests."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from ags1.kms import LocalKms

ROOT = Path(__file__).resolve().parent.parent.parent


def _blocks(name: str) -> list[str]:
    return re.findall(r"^```python spark\n(.*?)^```$", (ROOT / name).read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("name", ["README.md", "docs/spark.md"])
def test_the_spark_examples_run_in_order(
    name: str, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("keys.key").write_text("00" * 32)
    Path("keys.key").chmod(0o600)
    with LocalKms.create("keys.json", key_file="keys.key") as client:
        client.add_key("lake")
    for day, amount in ((1, 10.5), (2, 99.9)):
        directory = Path("raw") / f"day={day}"
        directory.mkdir(parents=True)
        (directory / "sales.json").write_text(f'{{"id": {day}, "amount": {amount}}}\n')
    blocks = _blocks(name)
    assert blocks
    exec("\n".join(blocks), {"__name__": "__example__"})
    assert "2 files" in capsys.readouterr().out
