"""How long `import ags1` takes, and commands that do little, beside a bare interpreter."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import ags1
from ags1.bench import Run
from bench import processes
from bench.conftest import KEY, Record
from bench.measure import figure

TARGET_MS = 40.0
COMMAND_TARGET_MS = 60.0
SMALL = 5000


def test_import(interleave: Callable[..., Run], record: Record) -> None:
    run = interleave(
        {
            "ags1": lambda: processes.run([sys.executable, "-c", "import ags1"]),
            "bare interpreter": lambda: processes.run([sys.executable, "-c", "pass"]),
        }
    )
    record(run, figure(run, "import ags1", "bare interpreter", kind="reference", measure="ms", target=TARGET_MS))


@pytest.mark.parametrize("what", ["--help", "--version", "cat"])
def test_command(what: str, directory: Path, interleave: Callable[..., Run], record: Record) -> None:
    command = processes.ags1_command()
    if command is None:
        pytest.skip("ags1 has no command line here (ags1.cli)")
    arguments = [what]
    if what == "cat":
        sealed, key = directory / "small.ags1", directory / "small.key"
        key.write_bytes(KEY)
        key.chmod(0o600)
        sealed.write_bytes(ags1.encrypt(bytes(SMALL), KEY))
        arguments = ["cat", str(sealed), "--key-file", str(key), "--length", str(ags1.encrypted_length(SMALL))]
    run = interleave(
        {
            "ags1": lambda: processes.run([*command, *arguments]),
            "bare interpreter": lambda: processes.run([sys.executable, "-c", "pass"]),
        }
    )
    question = "ags1 cat of 5 kB" if what == "cat" else f"ags1 {what}"
    target = None if what == "--help" else COMMAND_TARGET_MS
    record(run, figure(run, question, "bare interpreter", kind="reference", measure="ms", target=target))
