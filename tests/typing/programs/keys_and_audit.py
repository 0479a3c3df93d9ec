"""ags1.kms and ags1.audit: a type checker accepts every line but those marked as refused."""

from collections.abc import Hashable

from ags1 import audit as audits
from ags1 import kms

CLIENT = kms.MemoryKms({"lake": bytes(16)})


def load() -> None:
    client: kms.KeyManagementClient = kms.load("aws:?region=eu-central-1")
    wrapped: bytes = client.wrap_key(bytes(16), "lake")
    kms.load(5)  # refused
    client.wrap_key("key", "lake")  # refused
    client.unwrap_key(wrapped, 5)  # refused


def key_cache_of() -> None:
    cache: kms.KeyCache = kms.key_cache_of(CLIENT)
    _wrong: kms.MemoryKms = kms.key_cache_of(cache)  # refused


def name_of_key() -> None:
    name: Hashable = kms.name_of_key("lake", b"wrapped")
    kms.name_of_key(b"lake", b"wrapped")  # refused
    _wrong: str = name  # refused


def faces() -> None:
    client: kms.PyIcebergKms = kms.PyIcebergKms(client=CLIENT)
    kms.PyIcebergKms(client=5)  # refused
    client.wrap_key(bytes(16), 5)  # refused


def audit() -> None:
    report: audits.AuditReport = audits.audit("s3://bucket", kms="aws:")
    audits.audit("s3://bucket", threads="2")  # refused
    _wrong: str = report  # refused
