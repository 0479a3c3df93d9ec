"""What an earlier release wrote is read: a dataset, a keystore and key metadata of November 2026, kept as they were.

Nothing in ``kept`` is ever written again. A change of a format adds a directory beside it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ags1
from ags1 import dataset
from ags1.kms import LocalKms

KEPT = Path(__file__).parent / "kept"


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A copy of it; a checkout does not keep who may read a file."""
    shutil.copytree(KEPT, tmp_path / "kept")
    for name in ("keystore.key", "keys.json", "readme.key-metadata"):
        (tmp_path / "kept" / name).chmod(0o600)
    return tmp_path / "kept"


def keys(kept: Path) -> LocalKms:
    return LocalKms(kept / "keys.json", key_file=kept / "keystore.key")


def test_every_version_of_the_dataset_is_read_and_another_is_added(kept: Path) -> None:
    with dataset.open(kept / "vault", keys(kept), version=1) as before:
        assert before.open("readme.txt").read() == b"hello\n"
    with dataset.open(kept / "vault", keys(kept)) as vault:
        assert vault.open("day=1/sales.csv").read() == b"id,amount\n1,10.50\n"
        assert vault.open("readme.txt").read() == b"hello again\n"
        assert vault.verify().ok
        vault.rm("readme.txt")
        assert vault.version == 3


def test_the_key_metadata_of_a_single_file_is_read(kept: Path) -> None:
    metadata = ags1.KeyMetadata.load(kept / "readme.key-metadata")
    assert ags1.open(kept / "readme.ags1", key_metadata=metadata).read() == b"hello again\n"


def _later(path: Path, name: str) -> None:
    content: dict[str, Any] = json.loads(path.read_text())
    content[name] += 10
    path.write_text(json.dumps(content, indent=2) + "\n")


def _add(kept: Path) -> None:
    dataset.encrypt(kept / "raw", kept / "vault", keys(kept), "lake").close()


def _read(kept: Path) -> None:
    ags1.open(kept / "readme.ags1", key_metadata=ags1.KeyMetadata.load(kept / "readme.key-metadata")).read()


@pytest.mark.parametrize(
    ("change", "use", "said"),
    [
        (lambda kept: _later(kept / "vault" / "_ags1" / "v-2.json", "format-version"), _add, "format-version 11"),
        (lambda kept: _later(kept / "keys.json", "version"), _add, "version is unknown: 11"),
        (lambda kept: (kept / "readme.key-metadata").write_bytes(b"\x02more"), _read, "version"),
        (lambda kept: (kept / "readme.ags1").write_bytes(b"AGS2" + bytes(44)), _read, "not an AGS1 stream"),
    ],
    ids=["dataset", "keystore", "key metadata", "stream"],
)
def test_what_a_later_release_wrote_is_named_and_left_as_it_is(
    kept: Path, change: Callable[[Path], object], use: Callable[[Path], None], said: str
) -> None:
    change(kept)
    before = {path: path.read_bytes() for path in kept.rglob("*") if path.is_file()}
    with pytest.raises(ags1.Ags1Error, match=said):
        use(kept)
    assert {path: path.read_bytes() for path in kept.rglob("*") if path.is_file()} == before
