"""SIGKILL at any moment of encrypt, add and rewrap: the dataset is whole before the next run, and right after it."""

from __future__ import annotations

import itertools
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ags1 import dataset
from tests.checks import pattern
from tests.dataset.conftest import (
    CONTENTS,
    Tree,
    assert_clean,
    fresh,
    killed_at,
    plain_of,
    read_tree,
    write_tree,
)

# Some files for each unit of work, one of several windows' worth, and one of more than a megabyte.
MANY: Tree = {**CONTENTS, **{f"many/{i:03}": pattern(i) for i in range(150)}, "large": pattern(2_500_000)}
CHANGED: Tree = {"a.txt": b"changed", "many/007": b"changed too", "new/file": b"new", "large": pattern(1_800_000)}
NEVER = 1 << 30


def some_steps(total: int, count: int, seed: int) -> list[int]:
    """Moments to be killed at: the first and the last ones, where most happens, and some between."""
    edges = [*range(1, 9), *range(total - 24, total + 1)]
    rest = list(range(9, total - 24))
    return sorted({*edges, *random.Random(seed).sample(rest, min(count, len(rest)))})


def encrypting(raw: Path, vault: Path, threads: int | None) -> Callable[[], Any]:
    return lambda: dataset.encrypt(raw, vault, fresh(), "lake", threads=threads).close()


def adding(raw: Path, vault: Path, threads: int | None) -> Callable[[], Any]:
    def work() -> None:
        with dataset.open(vault, fresh(), threads=threads) as opened:
            opened.add(raw)

    return work


def rewrapping(vault: Path) -> Callable[[], Any]:
    def work() -> None:
        with dataset.open(vault, fresh()) as opened:
            opened.rewrap("new")

    return work


def assert_whole(vault: Path, contents: Tree) -> None:
    with dataset.open(vault, fresh()) as opened:
        assert plain_of(opened) == contents
        assert opened.verify().problems == []
    assert_clean(vault)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("threads", [1, None])
def test_a_first_run_that_is_killed_is_no_dataset_yet_and_the_next_run_completes_it(
    tmp_path: Path, threads: int | None
) -> None:
    raw = write_tree(tmp_path / "raw", MANY)
    total = killed_at(NEVER, encrypting(raw, tmp_path / "counted", threads))
    assert total is not None
    killed = 0
    for step in some_steps(total, 20, seed=1):
        vault = tmp_path / f"vault-{step}"
        killed += killed_at(step, encrypting(raw, vault, threads)) is None
        if (vault / "_ags1" / "metadata.json").exists():
            with dataset.open(vault, fresh()) as opened:
                assert plain_of(opened) == MANY
        else:
            with pytest.raises(FileNotFoundError, match="its first run was not completed"):
                dataset.open(vault, fresh())
        with dataset.encrypt(raw, vault, fresh(), "lake", threads=threads) as again:
            report = again.report
            assert report is not None
            assert report.done + report.resumed + report.unchanged == len(MANY)
        assert_whole(vault, MANY)
        shutil.rmtree(vault)
    assert killed >= 30


@pytest.mark.timeout(300)
def test_what_was_encrypted_before_a_kill_is_not_encrypted_again(tmp_path: Path) -> None:
    raw = write_tree(tmp_path / "raw", MANY)
    total = killed_at(NEVER, encrypting(raw, tmp_path / "counted", 1))
    assert total is not None
    assert killed_at(total - 30, encrypting(raw, tmp_path / "vault", 1)) is None
    before = {path: data for path, data in read_tree(tmp_path / "vault").items() if not path.startswith("_ags1")}
    with dataset.encrypt(raw, tmp_path / "vault", fresh(), "lake") as vault:
        assert vault.report is not None
        assert vault.report.resumed > 100
        assert vault.report.resumed + vault.report.done == len(MANY)
    after = read_tree(tmp_path / "vault")
    kept = sum(after[path] == data for path, data in before.items())
    assert kept >= len(before) - 1


@pytest.mark.timeout(300)
@pytest.mark.parametrize("threads", [1, None])
def test_a_killed_add_leaves_the_old_version_or_the_new_one_and_each_is_whole(
    tmp_path: Path, threads: int | None
) -> None:
    raw, origin = write_tree(tmp_path / "raw", MANY), tmp_path / "origin"
    encrypting(raw, origin, None)()
    more = write_tree(tmp_path / "more", CHANGED)
    new = {**MANY, **CHANGED}
    shutil.copytree(origin, tmp_path / "counted")
    total = killed_at(NEVER, adding(more, tmp_path / "counted", threads))
    assert total is not None
    assert_whole(tmp_path / "counted", new)
    killed = versions = 0
    for step in range(1, total + 1):
        vault = tmp_path / f"vault-{step}"
        shutil.copytree(origin, vault)
        killed += killed_at(step, adding(more, vault, threads)) is None
        with dataset.open(vault, fresh()) as opened:
            # Not only what the manifest says: every file that it names can be read.
            assert plain_of(opened) == (MANY if opened.version == 1 else new)
            versions |= opened.version
        adding(more, vault, threads)()
        assert_whole(vault, new)
        shutil.rmtree(vault)
    assert killed >= 30
    assert versions == 3


@pytest.mark.timeout(300)
def test_runs_that_are_killed_again_and_again_come_to_their_end(tmp_path: Path) -> None:
    raw, vault = write_tree(tmp_path / "raw", MANY), tmp_path / "vault"
    generator = random.Random(3)
    for runs in itertools.count(1):
        if killed_at(generator.randrange(20, 90), encrypting(raw, vault, None)) is not None:
            break
        assert runs < 200
    assert runs > 5
    assert_whole(vault, MANY)


def test_a_killed_run_over_one_source_is_completed_by_a_run_over_another(tmp_path: Path) -> None:
    raw, vault = write_tree(tmp_path / "raw", MANY), tmp_path / "vault"
    more = write_tree(tmp_path / "more", CHANGED)
    encrypting(raw, vault, None)()
    total = killed_at(NEVER, encrypting(raw, tmp_path / "counted", 1))
    assert total is not None
    other = write_tree(tmp_path / "other", {"other": b"something else"})
    shutil.copytree(vault, tmp_path / "trial")
    steps = killed_at(NEVER, adding(more, tmp_path / "trial", 1))
    assert steps is not None
    assert killed_at(steps - 20, adding(more, vault, 1)) is None
    with dataset.open(vault, fresh()) as opened:
        report = opened.add(other)
        taken = plain_of(opened)
        assert taken["other"] == b"something else"
        # Each file is as the one run or the other left it, and none is lost.
        assert set(MANY) <= set(taken)
        assert all(
            data in (MANY.get(path), {**CHANGED, "other": taken["other"]}.get(path)) for path, data in taken.items()
        )
        assert report.resumed == sum(taken.get(path) == data != MANY.get(path) for path, data in CHANGED.items())
        assert opened.verify().ok
    assert_clean(vault)


@pytest.mark.timeout(300)
def test_a_killed_rewrap_leaves_the_dataset_under_one_of_the_two_keys(tmp_path: Path) -> None:
    raw, origin = write_tree(tmp_path / "raw"), tmp_path / "origin"
    encrypting(raw, origin, None)()
    shutil.copytree(origin, tmp_path / "counted")
    total = killed_at(NEVER, rewrapping(tmp_path / "counted"))
    assert total is not None
    seen = set()
    for step in range(1, total + 1):
        vault = tmp_path / f"vault-{step}"
        shutil.copytree(origin, vault)
        killed_at(step, rewrapping(vault))
        with dataset.open(vault, fresh()) as opened:
            seen.add(opened.key_id)
            assert plain_of(opened) == CONTENTS
        rewrapping(vault)()
        with dataset.open(vault, fresh(), key_id="new"):
            pass
        assert_whole(vault, CONTENTS)
    assert seen == {"lake", "new"}


@pytest.mark.timeout(300)
def test_an_unfinished_run_survives_a_rewrap_that_is_killed_too(tmp_path: Path) -> None:
    raw, origin = write_tree(tmp_path / "raw", MANY), tmp_path / "origin"
    encrypting(raw, origin, None)()
    more = write_tree(tmp_path / "more", CHANGED)
    shutil.copytree(origin, tmp_path / "trial")
    steps = killed_at(NEVER, adding(more, tmp_path / "trial", 1))
    assert steps is not None
    assert killed_at(steps - 20, adding(more, origin, 1)) is None
    assert any(path.name.startswith("journal-") for path in (origin / "_ags1").iterdir())
    shutil.copytree(origin, tmp_path / "counted")
    total = killed_at(NEVER, rewrapping(tmp_path / "counted"))
    assert total is not None
    for step in range(1, total + 1):
        vault = tmp_path / f"vault-{step}"
        shutil.copytree(origin, vault)
        killed_at(step, rewrapping(vault))
        rewrapping(vault)()
        with dataset.open(vault, fresh(), key_id="new") as opened:
            report = opened.add(more)
            assert report.resumed + report.done == len(CHANGED)
            assert report.resumed > 0
        assert_whole(vault, {**MANY, **CHANGED})
        shutil.rmtree(vault)
