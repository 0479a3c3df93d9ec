"""What a dataset refuses, and what it has lost by then: nothing."""

from __future__ import annotations

import copy
import errno
import os
from pathlib import Path
from typing import Any

import pytest

from ags1 import AlreadyEncryptedError, dataset
from tests.checks import pattern
from tests.dataset.conftest import CONTENTS, CountingKms, fresh, plain_of, write_tree


def test_a_full_disk_ends_the_run_and_loses_nothing(
    raw: Path, vault: Path, client: CountingKms, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tree(raw, {f"new/{i}": pattern(100) for i in range(100)})
    (raw / "a.txt").write_bytes(b"changed")
    write = os.write
    left = 40

    def full(descriptor: int, data: Any) -> int:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", full)
    with (
        dataset.open(vault, client) as opened,
        pytest.raises(OSError, match=r"No space left on device: '.*vault") as caught,
    ):
        opened.add(raw, on_error="collect", threads=1)
    assert caught.value.errno == errno.ENOSPC
    monkeypatch.undo()
    with dataset.open(vault, client) as opened:
        assert plain_of(opened) == CONTENTS
        assert opened.add(raw).resumed
        assert opened.verify().ok


def test_a_read_only_dataset_is_read_and_refuses_to_be_changed(
    raw: Path, vault: Path, client: CountingKms, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open

    def read_only(path: Any, flags: int, *arguments: Any, **named: Any) -> int:
        above = os.readlink(f"/proc/self/fd/{named['dir_fd']}") if "dir_fd" in named else ""
        where = os.path.join(above, os.fsdecode(path))
        if flags & (os.O_CREAT | os.O_WRONLY | os.O_RDWR) and where.startswith(str(vault)):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        return real(path, flags, *arguments, **named)

    (raw / "a.txt").write_bytes(b"changed")
    monkeypatch.setattr(os, "open", read_only)
    with dataset.open(vault, client) as opened:
        assert plain_of(opened) == CONTENTS
        assert opened.verify().ok
        for change in (lambda: opened.add(raw), lambda: opened.rewrap("lake")):
            with pytest.raises(OSError, match=r"Read-only file system: .*vault"):
                change()


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("raw", "raw", "lies in the dataset"),
        ("vault/sub", "vault", "lies in the dataset"),
    ],
)
def test_a_source_in_its_target_is_refused(raw: Path, vault: Path, source: str, target: str, message: str) -> None:
    root = raw.parent
    with pytest.raises(ValueError, match=message):
        dataset.encrypt(root / source, root / target, fresh(), "lake")


def test_a_target_in_its_source_is_no_part_of_it(raw: Path, client: CountingKms) -> None:
    for _ in range(2):
        with dataset.encrypt(raw, raw / "vault", client, "lake") as vault:
            assert plain_of(vault) == CONTENTS


def test_decrypting_into_the_dataset_is_refused(vault: Path) -> None:
    with dataset.open(vault, fresh()) as opened, pytest.raises(ValueError, match="lies in the dataset"):
        opened.decrypt(vault / "plain")


def test_the_reserved_name_is_refused_and_may_be_excluded(vault: Path, tmp_path: Path, client: CountingKms) -> None:
    with pytest.raises(AlreadyEncryptedError, match="is a dataset, so its files are encrypted already"):
        dataset.encrypt(vault, tmp_path / "twice", client, "lake")
    with pytest.raises(ValueError, match="_ags1 is reserved"):
        dataset.encrypt(vault, tmp_path / "twice", client, "lake", again=True)
    with dataset.encrypt(vault, tmp_path / "twice", client, "lake", exclude="_ags1", again=True) as twice:
        assert len(twice.files) == len(CONTENTS)


def test_wrong_arguments_and_wrong_places_are_told_apart(raw: Path, vault: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no ags1 dataset here"):
        dataset.open(tmp_path / "nowhere", fresh())
    with pytest.raises(FileNotFoundError, match="nowhere"):
        dataset.encrypt(tmp_path / "nowhere", tmp_path / "x", fresh(), "lake")
    assert not (tmp_path / "x").exists()
    with pytest.raises(ValueError, match="is under the master key 'lake', not 'new'"):
        dataset.encrypt(raw, vault, fresh(), "new")
    with pytest.raises(ValueError, match="threads must be at least 1"):
        dataset.encrypt(raw, vault, fresh(), "lake", threads=0)
    with pytest.raises(ValueError, match="on_error must be"):
        dataset.encrypt(raw, vault, fresh(), "lake", on_error="ignore")
    with pytest.raises(TypeError, match="kms must be a client"):
        dataset.open(vault, 17)
    with pytest.raises(TypeError):
        dataset.open(17, fresh())
    with dataset.open(vault, fresh()) as opened:
        with pytest.raises(FileNotFoundError, match="the dataset has no such file"):
            opened.open("nothing")
        with pytest.raises(IsADirectoryError, match="is a directory of the dataset"):
            opened.open("sub")
        for outside in ("../raw/a.txt", "/etc/passwd", "_ags1/v-1.json", ""):
            with pytest.raises((FileNotFoundError, IsADirectoryError)):
                opened.open(outside)
        with pytest.raises(TypeError, match="cannot be pickled or copied"):
            copy.copy(opened)
        assert opened.open("./sub//a.txt").read() == b"second"
    with pytest.raises(ValueError, match="closed"):
        opened.open("a.txt")
    with pytest.raises(ValueError, match="closed"):
        len(opened.files)
