"""Links in a TARGET: who can write there must not choose where else files are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli import parquet_work
from tests.cli.conftest import Run, make_tree

COMMANDS = {
    "encrypt": ("encrypt", "tree", "target/", "--key-file", "k"),
    "decrypt": ("decrypt", "vault", "target/", "--key-file", "k", "--any-length"),
    "parquet encrypt": ("parquet", "encrypt", "lake", "target/", "--shared-keys", *parquet_work.GIVEN),
    "parquet decrypt": ("parquet", "decrypt", "sealed", "target/", *parquet_work.READ),
}
FIRST = {"encrypt": "sub/a.txt.ags1", "decrypt": "sub/a.txt", **dict.fromkeys(list(COMMANDS)[2:], "p=1/a.parquet")}


@pytest.fixture
def trees(work: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What each command has for a source, and a directory `outside` with a file of somebody."""
    make_tree(work)
    parquet_work.prepare(work, monkeypatch)
    assert run("encrypt", "tree", "vault/", "--key-file", "k").code == 0
    assert run("parquet", "encrypt", "lake", "sealed/", "--shared-keys", *parquet_work.GIVEN).code == 0
    (work / "outside").mkdir()
    (work / "outside" / "precious").write_bytes(b"precious")
    return work


@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_is_written_through_a_link_to_a_directory(trees: Path, run: Run, command: str) -> None:
    directory = FIRST[command].partition("/")[0]
    (trees / "target").mkdir()
    (trees / "target" / directory).symlink_to(trees / "outside")
    found = run(*COMMANDS[command])
    assert found.code != 0
    assert directory in found.err
    assert {path.name: path.read_bytes() for path in (trees / "outside").iterdir()} == {"precious": b"precious"}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_link_in_the_place_of_a_file_is_replaced_or_refused(trees: Path, run: Run, command: str) -> None:
    place = trees / "target" / FIRST[command]
    place.parent.mkdir(parents=True)
    place.symlink_to(trees / "outside" / "precious")
    found = run(*COMMANDS[command])
    assert (found.code == 0) is not place.is_symlink()
    assert (trees / "outside" / "precious").read_bytes() == b"precious"


def test_a_target_that_is_a_link_itself_is_the_directory_that_was_named(trees: Path, run: Run) -> None:
    (trees / "disk").mkdir()
    (trees / "target").symlink_to("disk")
    assert run(*COMMANDS["encrypt"]).code == 0
    assert (trees / "disk" / "sub" / "a.txt.ags1").exists()
