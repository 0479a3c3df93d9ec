"""A key of a single file under a passphrase, whose derivation takes seconds each time."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.conftest import PLAIN, Run

pytest.importorskip("pyrage")


def test_a_passphrase_opens_the_file_and_another_does_not(run: Run, work: Path) -> None:
    (work / "secret").write_text("correct horse battery staple\n")
    (work / "secret").chmod(0o600)
    passphrase = ("--passphrase-file", "secret")
    assert run("encrypt", "plain", "out.ags1", *passphrase).code == 0
    found = re.search(rb"-> scrypt \S+ (\d+)\n", (work / "out.ags1.key-metadata.age").read_bytes())
    assert found is not None
    assert 14 <= int(found[1]) <= 20
    assert run("decrypt", "out.ags1", "back", *passphrase).code == 0
    assert (work / "back").read_bytes() == PLAIN
    (work / "secret").write_text("correct horse battery stable\n")
    assert run("decrypt", "out.ags1", "again", *passphrase).code == 3
    assert not (work / "again").exists()
