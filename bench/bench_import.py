"""How long `import ags1` takes, and `ags1 --help`, beside a bare interpreter."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from ags1.bench import Run
from bench import processes
from bench.conftest import Record
from bench.measure import figure

TARGET_MS = 40.0


def test_import(interleave: Callable[..., Run], record: Record) -> None:
    run = interleave(
        {
            "ags1": lambda: processes.run([sys.executable, "-c", "import ags1"]),
            "bare interpreter": lambda: processes.run([sys.executable, "-c", "pass"]),
        }
    )
    record(run, figure(run, "import ags1", "bare interpreter", kind="reference", measure="ms", target=TARGET_MS))


def test_help(interleave: Callable[..., Run], record: Record) -> None:
    command = processes.ags1_command()
    if command is None:
        pytest.skip("ags1 has no command line here (ags1.cli)")
    run = interleave(
        {
            "ags1": lambda: processes.run([*command, "--help"]),
            "bare interpreter": lambda: processes.run([sys.executable, "-c", "pass"]),
        }
    )
    record(run, figure(run, "ags1 --help", "bare interpreter", kind="reference", measure="ms"))
