"""Modes of directories that commands write, and links that commands leave out."""

from __future__ import annotations

import io
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests import modes
from tests.cli import parquet_work
from tests.cli.conftest import Run

UNPROTECTED = 5


@pytest.mark.parametrize("mask", modes.UMASKS[::2])
def test_directories_are_encrypted_and_decrypted_with_their_modes(mask: int, work: Path, run: Run) -> None:
    source = modes.make_tree(work / "tree", random.Random(mask), lambda: b"data")
    with modes.umask(mask):
        made = run("encrypt", "tree", "vault", "--key-file", "k")
        assert made.code == UNPROTECTED
        for link in modes.links_in(source):
            assert f"ags1: warning: tree/{link} is left out: it is a link, which is not followed" in made.err
        assert modes.different(source, work / "vault", mask, ".ags1", empty=False) == {}
        assert run("decrypt", "vault", "back", "--key-file", "k", "--any-length").code == 0
        assert modes.different(source, work / "back", mask, empty=False) == {}


@pytest.mark.parametrize("mask", modes.UMASKS[1::2])
def test_trees_of_parquet_are_encrypted_and_decrypted_with_their_modes(
    mask: int, work: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    into = io.BytesIO()
    parquet_work.prepare(work, monkeypatch)
    pq.write_table(pa.table({"name": ["a"], "real": [1.5]}), into)
    source = modes.make_tree(work / "tree", random.Random(mask), into.getvalue, ".parquet")
    with modes.umask(mask):
        made = run("parquet", "encrypt", "tree", "sealed", "--shared-keys", *parquet_work.GIVEN)
        assert (made.code, "l0.parquet is left out: it is a link, which is not followed" in made.err) == (5, True)
        assert modes.different(source, work / "sealed", mask, empty=False) == {}
        assert run("parquet", "decrypt", "sealed", "back", *parquet_work.READ).code == 0
        assert modes.different(source, work / "back", mask, empty=False) == {}


def test_several_sources_have_the_modes_of_their_own_directories(work: Path, run: Run) -> None:
    for name, mode in {"one/a": 0o700, "two/b": 0o750}.items():
        (work / name).mkdir(parents=True)
        (work / name / "file").write_bytes(b"x")
        (work / name).chmod(mode)
    (work / "one").chmod(0o700)
    with modes.umask(0o022):
        assert run("encrypt", "one", "two", "vault/", "--key-file", "k").code == 0
    assert [(work / "vault" / each).stat().st_mode & 0o777 for each in ("", "a", "b")] == [0o755, 0o700, 0o750]


@pytest.mark.parametrize("to", ["a.txt", "sub", "nothing", "link"])
def test_any_link_is_left_out_of_a_dataset_and_said_with_its_exit_code(
    to: str, tree: dict[str, bytes], run: Run
) -> None:
    Path("tree/link").symlink_to(to)
    encrypt = ("dataset", "encrypt", "tree", "vault", "--key-id", "lake")
    made = run(*encrypt)
    assert made.code == UNPROTECTED
    assert "ags1: warning: link was left out: it is a link, which is not followed\n" in made.err
    record = run(*encrypt, "--json").records[0]
    assert record["skipped"] == [{"path": "link", "reason": "is a link, which is not followed"}]
    # Who leaves it out himself knows.
    assert run(*encrypt, "--exclude", "link").code == 0


def test_a_link_that_is_named_itself_is_followed(work: Path, run: Run) -> None:
    (work / "file").write_bytes(b"x")
    (work / "link").symlink_to("file")
    assert run("encrypt", "link", "link.ags1", "--key-file", "k").code == 0
