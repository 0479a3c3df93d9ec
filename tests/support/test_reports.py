"""All reports have one interface, and nothing in them that JSON cannot have."""

from __future__ import annotations

import ast
import importlib
import json
from dataclasses import dataclass, field
from pathlib import Path

import ags1
from ags1 import dataset, parquet
from ags1.support.reports import Report

PACKAGE = Path(ags1.__file__).parent


@dataclass
class Sample(Report):
    count: int = 0
    name: str = ""
    digest: bytes = b"\1"
    errors: list[tuple[str, Exception]] = field(default_factory=list)
    kinds: dict[str, int] = field(default_factory=dict)
    inner: Report | None = None

    @property
    def ok(self) -> bool:
        return not self.errors


def test_a_report_is_json_and_text() -> None:
    report = Sample(2000, errors=[("a\nb", OSError("full"))], kinds={"x": 1}, inner=Sample())
    found = json.loads(json.dumps(report.to_dict()))
    assert found["ok"] is False
    assert found["errors"] == [["a\nb", "full"]]
    assert found["inner"]["ok"] is True
    assert found["digest"] == "01"
    text = str(report).splitlines()
    assert text[:2] == ["count: 2,000", "digest: 01"]
    # A stranger's name does not look like another line.
    assert len(text) == 5


def test_every_report_has_the_base() -> None:
    found = {}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and node.name.endswith(("Report", "ConversionPlan")):
                name = ".".join(("ags1", *path.relative_to(PACKAGE).with_suffix("").parts))
                found[f"{name}.{node.name}"] = getattr(importlib.import_module(name), node.name)
    assert len(found) >= 15
    assert {name for name, each in found.items() if not issubclass(each, Report)} == set()


def test_an_empty_report_is_text_too() -> None:
    for report in (dataset.RunReport(), parquet.ParquetTreeReport(), dataset.DatasetVerifyReport(1, 2, 3)):
        assert report.ok
        assert json.dumps(report.to_dict())
        assert str(report)
