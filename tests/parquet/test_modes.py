"""Modes of trees of Parquet files: what is written again is open to nobody to whom the source was not."""

from __future__ import annotations

import io
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ags1 import kms, parquet
from tests import modes

CLIENT = kms.MemoryKms({"footer": bytes(16), "new": bytes(range(16))})


def config(name: str = "footer") -> parquet.EncryptionConfig:
    return parquet.EncryptionConfig.from_kms(CLIENT, name)


def table() -> bytes:
    into = io.BytesIO()
    pq.write_table(pa.table({"a": [1, 2, 3]}), into)
    return into.getvalue()


@pytest.mark.parametrize("mask", modes.UMASKS)
def test_a_tree_is_encrypted_rekeyed_and_decrypted_with_its_modes(mask: int, tmp_path: Path) -> None:
    content, reading = table(), parquet.DecryptionConfig.from_kms(CLIENT)
    source = modes.make_tree(tmp_path / "source", random.Random(mask), lambda: content)
    with modes.umask(mask):
        for again in (False, True):
            found = parquet.encrypt_tree(source, tmp_path / "sealed", config(), resume=again)
            assert sorted(name for name, _ in found.left_out) == modes.links_in(source)
            assert {reason for _, reason in found.left_out} == {"it is a link, which is not followed"}
            parquet.rekey_tree(source.parent / "sealed", tmp_path / "rekeyed", reading, config("new"), overwrite=again)
            parquet.decrypt_tree(tmp_path / "rekeyed", tmp_path / "plain", reading, overwrite=again)
            for target in ("sealed", "rekeyed", "plain"):
                assert modes.different(source, tmp_path / target, mask, empty=False) == {}, target


def test_a_target_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "source/closed").mkdir(parents=True)
    (tmp_path / "source/closed/x").write_bytes(table())
    (tmp_path / "source/closed").chmod(0o700)
    (tmp_path / "target").mkdir(mode=0o711)
    (tmp_path / "target").chmod(0o711)
    with modes.umask(0o022):
        parquet.encrypt_tree(tmp_path / "source", tmp_path / "target", config())
    assert [(tmp_path / each).stat().st_mode & 0o777 for each in ("target", "target/closed")] == [0o711, 0o700]
