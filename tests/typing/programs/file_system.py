"""ags1.fs: a type checker accepts every line but those marked as refused."""

from pathlib import Path
from typing import Any

from ags1 import dataset, fs
from ags1.kms import MemoryKms

KMS = MemoryKms({"lake": bytes(16)})


def register() -> None:
    fs.register()
    fs.register("ags1")  # refused


def file_system(opened: dataset.Dataset) -> None:
    files: fs.Ags1FileSystem = fs.Ags1FileSystem(Path("vault"), KMS, version=3, key_id="lake")
    fs.Ags1FileSystem(opened)
    fs.Ags1FileSystem("vault", KMS, version="3")  # refused
    fs.Ags1FileSystem(5, KMS)  # refused
    data: bytes = files.cat_file("a.csv", 0, 10)
    fields: dict[str, Any] = files.info("a.csv")
    there: bool = files.exists("a.csv")
    files.exists(5)  # refused
    files.cat_file("a.csv", "0")  # refused
    _wrong: str = data  # refused
    _also: bytes = fields  # refused
    _third: str = there  # refused
