"""Modes: what is decrypted is open to nobody to whom the source was not, whatever the umask, and after a kill too."""

from __future__ import annotations

import errno
import os
import random
import stat
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ags1 import dataset
from tests import modes
from tests.dataset.conftest import CountingKms, fresh, killed_at, read_tree, write_tree


@pytest.mark.parametrize("mask", modes.UMASKS)
def test_a_tree_comes_back_with_the_modes_of_its_directories_and_files(mask: int, tmp_path: Path) -> None:
    for seed in range(4):
        rng = random.Random(f"{mask} {seed}")
        raw, place = tmp_path / f"raw-{seed}", tmp_path / f"{seed}"
        modes.make_tree(raw, rng, partial(rng.randbytes, rng.randrange(99)))
        place.mkdir()
        with modes.umask(mask), dataset.encrypt(raw, place / "vault", fresh(), "lake", durable=False) as vault:
            assert vault.report is not None
            assert sorted(vault.report.links) == modes.links_in(raw)
            vault.decrypt(place / "plain", threads=rng.choice([1, 3]))
            assert modes.different(raw, place / "plain", mask) == {}
            # Again, over what is there: the directories in which nobody may write are no obstacle.
            vault.decrypt(place / "plain")
            assert modes.different(raw, place / "plain", mask) == {}
            again = dataset.encrypt(raw, place / "vault", fresh(), "lake")
            assert again.report is not None
            assert (again.version, again.report.changed) == (1, False)
            again.close()
        assert read_tree(place / "plain") == read_tree_of_files(raw)


def read_tree_of_files(root: Path) -> dict[str, bytes]:
    return {name: data for name, data in read_tree(root).items() if not (root / name).is_symlink()}


def test_a_directory_that_was_narrowed_is_narrow_after_the_next_run_alone(tmp_path: Path, client: CountingKms) -> None:
    raw = write_tree(tmp_path / "raw", {"secret/x": b"x", "y": b"y"})
    with modes.umask(0o022), dataset.encrypt(raw, tmp_path / "vault", client, "lake") as vault:
        (raw / "secret").chmod(0o700)
        raw.chmod(0o710)
        made = dataset.encrypt(raw, tmp_path / "vault", fresh(), "lake")
        assert made.report is not None
        assert (made.version, made.report.done, made.mode) == (2, 0, 0o710)
        made.decrypt(tmp_path / "new")
        vault.decrypt(tmp_path / "old")
        assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("new", "new/secret")] == [0o710, 0o700]
        assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("old", "old/secret")] == [0o755, 0o755]
        made.restore(1)
        made.decrypt(tmp_path / "restored")
        assert modes.different(tmp_path / "old", tmp_path / "restored", 0) == {}
        # What else changes the dataset keeps the modes.
        made.restore(2)
        made.rm("y")
        made.rewrap("lake")
        made.add(write_tree(tmp_path / "more", {"z": b"z"}))
        made.decrypt(tmp_path / "last")
        assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("last", "last/secret")] == [0o710, 0o700]


def test_a_repair_keeps_the_modes(tmp_path: Path, client: CountingKms) -> None:
    raw = write_tree(tmp_path / "raw", {"secret/x": b"x"})
    (raw / "secret").chmod(0o700)
    with modes.umask(0o022), dataset.encrypt(raw, tmp_path / "vault", client, "lake") as vault:
        (tmp_path / "vault" / vault.files["secret/x"].parts[0].name).unlink()
        (raw / "secret").chmod(0o755)
        assert vault.repair(raw).repaired == 1
        vault.decrypt(tmp_path / "plain")
    assert stat.S_IMODE((tmp_path / "plain/secret").stat().st_mode) == 0o700


def test_a_part_of_a_tree_comes_back_with_the_directories_above_it(tmp_path: Path, client: CountingKms) -> None:
    raw = write_tree(tmp_path / "raw", {"a/b/x.csv": b"x", "a/c/y": b"y", "d/z": b"z"})
    for name, mode in {"a": 0o711, "a/b": 0o500, "d": 0o700}.items():
        (raw / name).chmod(mode)
    with modes.umask(0o022), dataset.encrypt(raw, tmp_path / "vault", client, "lake") as vault:
        vault.decrypt(tmp_path / "plain", include="*.csv")
    with modes.umask(0o022), dataset.encrypt(raw, tmp_path / "some", fresh(), "lake", include="*.csv") as some:
        some.decrypt(tmp_path / "again")
    for place in (tmp_path / "plain", tmp_path / "again"):
        found = {str(path.relative_to(place)): stat.S_IMODE(path.stat().st_mode) for path in place.rglob("*")}
        assert found == {"a": 0o711, "a/b": 0o500, "a/b/x.csv": 0o644}


def test_what_is_added_to_a_directory_brings_its_mode(tmp_path: Path, client: CountingKms) -> None:
    raw = write_tree(tmp_path / "raw", {"x": b"x", "sub/y": b"y"})
    raw.chmod(0o700)
    with (
        modes.umask(0o022),
        dataset.encrypt(write_tree(tmp_path / "first"), tmp_path / "vault", client, "lake") as vault,
    ):
        vault.add(raw, prefix="day=1")
        vault.decrypt(tmp_path / "plain")
    assert [(tmp_path / "plain" / each).stat().st_mode & 0o777 for each in ("", "day=1", "day=1/sub")] == [
        0o755, 0o700, 0o755,
    ]  # fmt: skip


def test_a_directory_that_is_there_keeps_its_mode(tmp_path: Path, client: CountingKms) -> None:
    raw = write_tree(tmp_path / "raw", {"open/x": b"x", "closed/y": b"y"})
    (raw / "closed").chmod(0o500)
    raw.chmod(0o700)
    with modes.umask(0), dataset.encrypt(raw, tmp_path / "vault", client, "lake") as vault:
        for name, mode in {"": 0o755, "open": 0o700, "closed": 0o775}.items():
            (tmp_path / "plain" / name).mkdir()
            (tmp_path / "plain" / name).chmod(mode)
        vault.decrypt(tmp_path / "plain")
    found = [stat.S_IMODE((tmp_path / "plain" / name).stat().st_mode) for name in ("", "open", "closed")]
    assert found == [0o755, 0o700, 0o775]


def test_a_run_that_is_killed_leaves_nothing_wider_and_the_next_one_finishes_it(tmp_path: Path) -> None:
    rng = random.Random(5)
    raw = modes.make_tree(tmp_path / "raw", rng, lambda: b"some data")
    with modes.umask(0o027), dataset.encrypt(raw, tmp_path / "vault", fresh(), "lake") as vault:
        step, count = 1, None
        while count is None:
            target = tmp_path / f"plain-{step}"
            count = killed_at(step, lambda target=target: vault.decrypt(target, threads=1))  # type: ignore[misc]
            for name, found in modes.below(target).items() if target.exists() else ():
                wanted = modes.expected((raw / name).lstat(), 0o027)
                assert not stat.S_IMODE(found.st_mode) & ~(wanted | 0o700), (step, name)
            for overwrite in (False, True):
                vault.decrypt(target, overwrite=overwrite)
                assert modes.different(raw, target, 0o027) == {}, step
            step += 7


def test_a_file_system_without_modes_is_no_reason_to_fail(
    tmp_path: Path, client: CountingKms, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FAT refuses a mode that it cannot store."""
    raw = write_tree(tmp_path / "raw", {"sub/x": b"x", "sub/big": bytes(2 << 20)})
    for name in ("sub", "sub/x", "sub/big"):
        (raw / name).chmod(0o500)

    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    with dataset.encrypt(raw, tmp_path / "vault", client, "lake") as vault:
        monkeypatch.setattr(os, "chmod", refuse)
        for _ in range(2):
            assert vault.decrypt(tmp_path / "plain").ok
        assert read_tree(tmp_path / "plain") == read_tree(raw)
