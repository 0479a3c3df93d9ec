"""Files get their names where a file system lacks hard links or unnamed files; a lack of both is found first."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

import ags1
from ags1 import dataset
from ags1.core import descriptors
from ags1.kms import MemoryKms
from ags1.storage import Location, atomic, can_create, create, creation

KEY = bytes(range(32))
REFUSALS = [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS]


@pytest.fixture(autouse=True)
def another_file_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known of the file system yet."""
    monkeypatch.setattr(atomic, "_nameable", {})
    monkeypatch.setattr(creation, "_local", {})


def refuse(monkeypatch: pytest.MonkeyPatch, code: int, *, renames: bool = False, unnamed: bool = False) -> None:
    """A stand-in for exFAT, CIFS or FUSE, which a test cannot mount: what they answer to a hard link, and to more."""

    def refused(*args: Any, **options: Any) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", refused)
    if renames:
        monkeypatch.setattr(atomic.native_descriptors, "rename_new", refused)
    if unnamed:
        monkeypatch.delattr(os, "O_TMPFILE")


def test_the_first_file_of_a_file_system_gets_its_name_too(tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(b"plain")
    ags1.encrypt_file(tmp_path / "plain", tmp_path / "sealed", KEY)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["plain", "sealed"]


@pytest.mark.parametrize("unnamed", [False, True])
@pytest.mark.parametrize("code", REFUSALS)
def test_without_hard_links_files_appear_whole_and_are_created_once(
    code: int, unnamed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch, code, unnamed=unnamed)
    (tmp_path / "plain").write_bytes(b"plain")
    for _ in range(2):
        ags1.encrypt_file(tmp_path / "plain", tmp_path / "sealed", KEY)
    assert ags1.decrypt((tmp_path / "sealed").read_bytes(), KEY) == b"plain"
    location = Location(tmp_path / "new")
    assert can_create(location)
    create(location, b"first")
    with pytest.raises(FileExistsError):
        create(location, b"second")
    assert (tmp_path / "new").read_bytes() == b"first"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["new", "plain", "sealed"]


def test_a_file_system_that_cannot_create_once_is_refused_before_anything_is_encrypted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch, errno.EINVAL, renames=True)
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "x").write_bytes(b"x")
    assert not can_create(Location(tmp_path / "vault" / "deep" / "name"))
    with pytest.raises(ags1.UnsupportedError, match="single_writer=True"):
        dataset.encrypt(tmp_path / "tree", tmp_path / "vault", MemoryKms({"lake": KEY}), "lake")
    assert [each.name for each in tmp_path.iterdir()] == ["tree"]


def test_a_rename_that_replaces_nothing_says_so(tmp_path: Path) -> None:
    for name in ("old", "taken"):
        (tmp_path / name).write_bytes(name.encode())
    directory = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(FileExistsError):
            descriptors.rename_new(b"old", b"taken", directory)
        descriptors.rename_new(b"old", b"new", directory)
        with pytest.raises(FileNotFoundError):
            descriptors.rename_new(b"old", b"newer", directory)
    finally:
        os.close(directory)
    assert (tmp_path / "taken").read_bytes() == b"taken"
    assert (tmp_path / "new").read_bytes() == b"old"
