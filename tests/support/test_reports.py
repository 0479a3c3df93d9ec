"""All reports have one interface, and nothing in them that JSON cannot have."""

from __future__ import annotations

import ast
import importlib
import json
from dataclasses import dataclass, field
from pathlib import Path

import ags1
from ags1 import dataset, parquet
from ags1.errors import UnsupportedError
from ags1.support.reports import Finding, Report, VerifyReport, judged

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


def test_findings_are_counted_and_the_worst_one_decides() -> None:
    report = VerifyReport("t\nt", {"files": 2, "bytes": 1000})
    assert (report.ok, report.outcome, report.exit_code) == (True, "authentic", 0)
    assert str(report) == "t\\nt: all authentic\nchecked: 2 files, 1,000 bytes"
    for severity, outcome, ok, code in (
        ("note", "", True, 0),
        ("note", "not protected", True, 0),
        ("warning", "not protected", True, 5),
        ("violation", "not protected", False, 5),
        ("error", "not checked", False, 4),
        ("error", "damaged", False, 1),
    ):
        report.add(Finding(severity, f"{severity} {outcome}", "a", "a: a\nb", outcome))
        assert (report.ok, report.outcome, report.exit_code) == (ok, outcome or "authentic", code)
    report.sort()
    assert [each.severity for each in report.findings] == ["error", "error", "violation", "warning", "note", "note"]
    assert str(report).splitlines()[0] == "t\\nt: DAMAGED (2 errors, 1 violation)"
    # A stranger's name does not look like another line.
    assert len(str(report).splitlines()) == 8
    found = json.loads(json.dumps(report.to_dict()))
    assert (found["ok"], found["outcome"], found["exit_code"]) == (False, "damaged", 1)


def test_a_flood_of_findings_is_counted_and_not_kept() -> None:
    report = VerifyReport("t")
    for number in range(5000):
        report.add(Finding("error", "damaged", f"f{number}", f"f{number} is short", "damaged"))
        report.add(Finding("note", "levels", f"f{number}", f"f{number} is flat"))
    assert report.counts == {"damaged": 5000, "levels": 5000}
    assert len(report.having("damaged")) == len(report.having("levels")) == 1000
    assert report.fault() == "f0 is short, and 4,999 more"
    lines = report.lines()
    assert len(lines) == 20 + 1 + 3 + 1
    assert lines[20] == "error: damaged: ... and 4,980 more"


def test_an_error_says_what_became_of_its_subject() -> None:
    for error, code, outcome, exit_code in (
        (FileNotFoundError(), "missing", "damaged", 1),
        (ags1.TruncatedError(), "truncated", "damaged", 1),
        (ags1.AuthenticationError(), "damaged", "damaged", 1),
        (ags1.KeyAccessError(), "key-missing", "not checked", 3),
        (UnsupportedError(), "unsupported", "not checked", 2),
        (PermissionError(), "unreadable", "not checked", 4),
    ):
        assert judged(error) == (code, outcome)
        assert Finding("error", code, "f", "f", outcome).exit_code == exit_code


def test_an_empty_report_is_text_too() -> None:
    for report in (dataset.RunReport(), parquet.ParquetTreeReport(), VerifyReport("t")):
        assert report.ok
        assert json.dumps(report.to_dict())
        assert str(report)
