"""ags1.dataset: a type checker accepts every line but those marked as refused."""

from pathlib import Path

from ags1 import dataset
from ags1.kms import MemoryKms

KMS = MemoryKms({"lake": bytes(16)})


def encrypt() -> None:
    made: dataset.Dataset = dataset.encrypt(Path("raw"), "s3://bucket/vault", KMS, "lake", exclude=["*.tmp"])
    dataset.encrypt("raw", "vault", KMS, 5)  # refused
    dataset.encrypt("raw", "vault", KMS, "lake", delete="yes")  # refused
    _wrong: dataset.RunReport = made  # refused


def open_() -> None:
    opened: dataset.Dataset = dataset.open("vault", "aws:", version=3)
    dataset.open("vault", KMS, version="3")  # refused
    _wrong: str = opened  # refused


def preview() -> None:
    dataset.preview("raw", "vault", KMS, "lake")
    dataset.preview("raw", "vault", KMS, "lake", again=5)  # refused
