"""Directories of a tree that is written: with the modes that they are to have, and no wider meanwhile."""

from __future__ import annotations

import shutil
import stat
from pathlib import Path

import pytest

from ags1.storage import Location, TreeDirectories, make_parent_like
from tests import modes


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_a_link_that_comes_in_the_place_of_a_directory_changes_nothing_outside(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o700)
    with modes.umask(0o022), TreeDirectories(Location(tmp_path / "plain")) as made:
        made.make("sub", 0o500)
        made.make("sub/deep", 0o400)
        shutil.rmtree(tmp_path / "plain/sub")
        (tmp_path / "plain/sub").symlink_to(outside)
        made.finish()
        with pytest.raises(NotADirectoryError):
            made.make("sub", 0o500)
    assert mode_of(outside) == 0o700


def test_new_directories_above_a_file_have_the_mode_of_the_directory_of_its_source(tmp_path: Path) -> None:
    source, root = tmp_path / "source/p=1/file", tmp_path / "root"
    source.parent.mkdir(parents=True)
    source.parent.chmod(0o710)
    (root / "there").mkdir(parents=True)
    (root / "there").chmod(0o755)
    with modes.umask(0o022):
        for _ in range(2):
            make_parent_like(Location(root).as_root().join("there/p=1/q=2/file"), Location(source))
        make_parent_like(Location(tmp_path / "new").as_root().join("p=1/file"), Location(source))
        # What is missing has no mode.
        make_parent_like(Location(root).as_root().join("gone/file"), Location(tmp_path / "gone/file"))
    assert [mode_of(root / each) for each in ("there", "there/p=1", "there/p=1/q=2", "gone")] == [
        0o755, 0o710, 0o710, 0o755,
    ]  # fmt: skip
    assert [mode_of(tmp_path / each) for each in ("new", "new/p=1")] == [0o710, 0o710]
