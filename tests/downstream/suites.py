"""What a suite of others says when it runs over ags1, and why it may say it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

ROOT = Path(__file__).parents[2]
SECONDS = 1800.0


@dataclass
class SuiteResult:
    """How a suite went.

    Attributes
    ----------
    name
        Of the suite, with the version.
    passed
        How many tests passed.
    failed
        What each other test said, by its name.
    skipped
        Why the suite itself skips a test, by its name.
    """

    name: str
    passed: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)

    def explained(self, reasons: Mapping[str, str]) -> tuple[dict[str, list[str]], list[str]]:
        """Failures by their reason, whose keys are patterns of names, and those without one."""
        found: dict[str, list[str]] = {}
        unknown = []
        for test in self.failed:
            reason = next((why for pattern, why in reasons.items() if fnmatchcase(test, pattern)), None)
            if reason is None:
                unknown.append(test)
            else:
                found.setdefault(reason, []).append(test)
        return found, unknown


def sources(package: str, version: str) -> Path:
    """Return the directory of a package's sources, with its tests; they come from its index once."""
    place = Path(sys.prefix, "sources", f"{package}-{version}")
    if not place.is_dir():
        with tempfile.TemporaryDirectory(prefix="ags1-downstream-") as folder:
            command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "-q", "--no-deps"]
            command += [f"--no-binary={package}", f"--dest={folder}", f"{package}=={version}"]
            subprocess.run(command, check=True)
            (archive,) = Path(folder).glob("*.tar.gz")
            place.parent.mkdir(exist_ok=True)
            shutil.unpack_archive(archive, place.parent)
    return place


def run_pytest(name: str, arguments: Sequence[str], path: Path | None = None) -> SuiteResult:
    """Run pytest in a directory and a process of its own; modules come from `path` before others."""
    environment = dict(os.environ)
    if path is not None:
        environment["PYTHONPATH"] = os.pathsep.join([str(path), *filter(None, [environment.get("PYTHONPATH")])])
    with tempfile.TemporaryDirectory(prefix="ags1-downstream-") as folder:
        report = Path(folder, "report.xml")
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *arguments]
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
        )
        if not report.exists():
            raise RuntimeError(f"pytest did not run: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        return _from_report(name, report)


def _from_report(name: str, report: Path) -> SuiteResult:
    result = SuiteResult(name)
    for case in ElementTree.parse(report).iter("testcase"):
        test = str(case.get("name"))
        bad = [each for each in case if each.tag in ("failure", "error")]
        skipped = case.find("skipped")
        if bad:
            result.failed[test] = " ".join(str(bad[0].get("message")).split())[:200]
        elif skipped is not None:
            result.skipped[test] = str(skipped.get("message"))
        else:
            result.passed += 1
    if not result.passed and not result.failed:
        raise RuntimeError(f"{name}: no test ran")
    return result
