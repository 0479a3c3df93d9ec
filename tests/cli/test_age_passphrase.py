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
    refused = run("decrypt", "out.ags1", "again", *passphrase)
    assert (refused.code, "does not open with the passphrase in secret" in refused.err) == (3, True)
    assert not (work / "again").exists()

    # Neither file is found under another name, and what is missing is said with where it is expected.
    (work / "out.ags1").rename(work / "moved.ags1")
    lost = run("decrypt", "moved.ags1", "again", *passphrase)
    assert lost.code == 3
    assert "the age file moved.ags1.key-metadata.age cannot be read: No such file or directory" in lost.err
    assert "it stands beside the file, under that name; else give it as --key-metadata" in lost.err
    (work / "secret").write_text("correct horse battery staple\n")
    found = run("decrypt", "moved.ags1", "again", *passphrase, "--key-metadata", "out.ags1.key-metadata.age")
    assert (found.code, (work / "again").read_bytes()) == (0, PLAIN)
    (work / "secret").rename(work / "elsewhere")
    missing = run("decrypt", "moved.ags1", "b", *passphrase, "--key-metadata", "out.ags1.key-metadata.age")
    assert "the passphrase file secret cannot be read: No such file or directory" in missing.err
    (work / "moved.ags1").rename(work / "out.ags1")
    said = (
        "beside out.ags1 stands out.ags1.key-metadata.age, for --identity FILE, --passphrase or --passphrase-file FILE"
    )
    assert said in run("decrypt", "out.ags1", "b").err
