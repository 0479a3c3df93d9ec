"""An output that is open on the source file is refused before the first byte, in every room."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ags1
from ags1 import parquet
from ags1.parquet import DecryptionConfig, EncryptionConfig

KEY = bytes(range(32))


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("plain").write_bytes(os.urandom(3000))
    Path("key").write_bytes(KEY)
    ags1.encrypt_file("plain", "sealed", KEY)
    pq.write_table(pa.table({"id": range(100)}), "plain.parquet")
    parquet.encrypt_file("plain.parquet", "sealed.parquet", EncryptionConfig(KEY))
    return tmp_path


def test_no_function_writes_into_the_file_that_it_reads(files: Path) -> None:
    encryption, decryption = EncryptionConfig(KEY), DecryptionConfig(KEY)
    works: list[tuple[str, Any]] = [
        ("plain", lambda source, target: ags1.encrypt_file(source, target, KEY)),
        ("sealed", lambda source, target: ags1.decrypt_file(source, target, KEY)),
        ("plain.parquet", lambda source, target: parquet.encrypt_file(source, target, encryption)),
        ("sealed.parquet", lambda source, target: parquet.decrypt_file(source, target, decryption)),
        ("sealed.parquet", lambda source, target: parquet.rekey_file(source, target, decryption, encryption)),
    ]
    for name, work in works:
        before = Path(name).read_bytes()
        os.link(name, "link")
        for mode in ("ab", "r+b"):
            for source in (name, "link", Path(name)):
                with open(name, mode) as target, pytest.raises(ValueError, match="is open on the source file"):
                    work(source, target)
                with (
                    open(name, mode) as target,
                    open(source, "rb") as opened,
                    pytest.raises(ValueError, match="is open on the source file"),
                ):
                    work(opened, target)
        assert Path(name).read_bytes() == before
        os.unlink("link")
        # Another file and memory are written to.
        work(name, io.BytesIO())
        with open("other", "w+b") as target:
            work(name, target)


@pytest.mark.parametrize(
    "command",
    [
        "encrypt plain - --key-file key >> plain",
        "encrypt - - --key-file key < plain >> plain",
        "decrypt sealed - --key-file key --any-length 1<> sealed",
        "cat sealed --key-file key --any-length >> sealed",
        "parquet cat plain.parquet --allow-plaintext >> plain.parquet",
    ],
)
def test_no_command_writes_into_the_file_that_it_reads(files: Path, command: str) -> None:
    before = {each.name: each.read_bytes() for each in files.iterdir()}
    done = subprocess.run(["sh", "-c", f"{sys.executable} -m ags1 {command}"], stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert "is open on the source file" in done.stderr
    assert {each.name: each.read_bytes() for each in files.iterdir()} == before
