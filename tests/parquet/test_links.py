"""Links and pipes at every place of a target: trees of Parquet files are written into it, and nowhere else."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ags1 import kms, parquet
from ags1.errors import Ags1Error
from tests.checks import every

CLIENT = kms.MemoryKms({"footer": bytes(16), "new": bytes(range(16))})
TABLE = pa.table({"a": [1, 2, 3]})


def beside(name: str = "footer") -> parquet.EncryptionConfig:
    return parquet.EncryptionConfig.from_kms(CLIENT, name, internal_key_material=False)


def reading() -> parquet.DecryptionConfig:
    return parquet.DecryptionConfig.from_kms(CLIENT)


OPERATIONS: dict[str, Callable[[Path, Path], Any]] = {
    "encrypt": lambda source, target: parquet.encrypt_tree(source / "plain", target, beside(), others="copy"),
    "resume": lambda source, target: parquet.encrypt_tree(
        source / "plain", target, beside(), others="copy", resume=True
    ),
    "decrypt": lambda source, target: parquet.decrypt_tree(source / "sealed", target, reading(), others="copy"),
    "rekey": lambda source, target: parquet.rekey_tree(
        source / "sealed", target, reading(), beside("new"), others="copy"
    ),
}
MATERIAL = "d/_KEY_MATERIAL_FOR_x.parquet.json"
PLACES = ("d", "d/x.parquet", MATERIAL, "d/e", "d/e/y.parquet", "d/notes.txt", "_SUCCESS")


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plaintext tree, and the same encrypted with key material beside the files."""
    made = tmp_path_factory.mktemp("trees")
    for name in ("d/x.parquet", "d/e/y.parquet"):
        (made / "plain" / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(TABLE, made / "plain" / name)
    (made / "plain/d/notes.txt").write_text("notes")
    (made / "plain/_SUCCESS").touch()
    parquet.encrypt_tree(made / "plain", made / "sealed", beside(), others="copy")
    return made


def files_of(directory: Path) -> dict[str, bytes]:
    return {str(each.relative_to(directory)): each.read_bytes() for each in directory.rglob("*") if each.is_file()}


def to_directory(path: Path, outside: Path) -> None:
    path.symlink_to(outside)


def to_file(path: Path, outside: Path) -> None:
    path.symlink_to(outside / "precious")


def to_nothing(path: Path, outside: Path) -> None:
    path.symlink_to(outside / "nothing")


@every("case", list(itertools.product((to_directory, to_file, to_nothing, os.mkfifo), PLACES, OPERATIONS)))
def test_nothing_is_written_outside_of_the_target(case: tuple[Any, str, str], trees: Path, tmp_path: Path) -> None:
    put, where, name = case
    target, outside = tmp_path / "target", tmp_path / "outside"
    try:
        outside.mkdir()
        (outside / "precious").write_bytes(b"precious")
        (target / where).parent.mkdir(parents=True)
        put(target / where) if put is os.mkfifo else put(target / where, outside)
        with suppress(Ags1Error, OSError):
            OPERATIONS[name](trees, target)
        assert files_of(outside) == {"precious": b"precious"}
        assert not (target / "d/x.parquet").is_symlink() or where == "d/x.parquet"
    finally:
        shutil.rmtree(target)
        shutil.rmtree(outside)


def test_a_link_in_the_place_of_a_file_is_replaced(trees: Path, tmp_path: Path) -> None:
    target, precious = tmp_path / "target", tmp_path / "precious"
    precious.write_bytes(b"precious")
    (target / "d").mkdir(parents=True)
    (target / "d/x.parquet").symlink_to(precious)
    assert parquet.decrypt_tree(trees / "sealed", target, reading(), others="copy").ok
    assert not (target / "d/x.parquet").is_symlink()
    assert pq.read_table(target / "d/x.parquet").equals(TABLE)
    assert precious.read_bytes() == b"precious"


def test_the_target_itself_may_be_a_link(trees: Path, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "target").symlink_to("disk")
    parquet.encrypt_tree(trees / "plain", tmp_path / "target", beside(), others="copy")
    assert parquet.verify_tree(tmp_path / "disk", reading()).ok
    assert (tmp_path / "disk" / MATERIAL).is_file()
    assert parquet.rotate_master_keys(CLIENT, tmp_path / "target")


def test_key_material_is_not_rotated_through_a_link(trees: Path, tmp_path: Path) -> None:
    sealed, outside = Path(shutil.copytree(trees / "sealed", tmp_path / "sealed")), tmp_path / "outside.json"
    shutil.move(sealed / MATERIAL, outside)
    (sealed / MATERIAL).symlink_to(outside)
    before = outside.read_bytes()
    with pytest.raises(OSError, match="link"):
        parquet.rotate_master_keys(CLIENT, sealed)
    assert outside.read_bytes() == before


@pytest.mark.parametrize("put", [to_directory, to_file, to_nothing])
def test_a_link_is_left_out_and_said(put: Callable[[Path, Path], None], trees: Path, tmp_path: Path) -> None:
    """Else a part of the tree would be missing, or keep its old master key, without a word."""
    outside = tmp_path / "outside"
    outside.mkdir()
    shutil.copy(trees / "plain/d/x.parquet", outside / "precious")
    plain = Path(shutil.copytree(trees / "plain", tmp_path / "plain-again"))
    put(plain / "moved", outside)
    said = ("moved", "it is a link, which is not followed")
    sealed = tmp_path / "sealed"
    assert said in parquet.encrypt_tree(plain, sealed, beside(), others="skip").left_out
    put(sealed / "moved", outside)
    assert said in parquet.verify_tree(sealed, reading()).facts["left_out"]
    if put is to_directory:
        with pytest.raises(NotADirectoryError, match="so its keys would stay as they are"):
            parquet.rotate_master_keys(CLIENT, sealed)
