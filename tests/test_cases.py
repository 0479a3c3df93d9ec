"""Faults that bug reports of other projects led to stay mended: each script beside the checkout ends with a verdict."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.checks import HANG_SECONDS

ROOT = Path(__file__).resolve().parent.parent
CASES = sorted((ROOT.parent / "shared" / "cases").glob("[a-z]*.py"))


@pytest.mark.skipif(not CASES, reason="there is no directory of cases beside the checkout")
@pytest.mark.parametrize("script", CASES, ids=lambda script: script.stem)
def test_a_case_is_good(script: Path) -> None:
    done = subprocess.run(
        [sys.executable, script],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert done.stdout.rstrip().endswith("CASE good"), done.stdout[-3000:]
