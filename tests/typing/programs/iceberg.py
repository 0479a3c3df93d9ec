"""ags1.iceberg: a type checker accepts every line but those marked as refused."""

import datetime
from typing import Any

from ags1 import iceberg
from ags1.kms import MemoryKms

KMS = MemoryKms({"lake": bytes(16)})


def load_table() -> None:
    table: iceberg.EncryptedTable = iceberg.load_table(None, ("db", "people"), kms=KMS)
    iceberg.load_table(None, "db.people")  # refused
    iceberg.load_table(None, 5, kms=KMS)  # refused
    _wrong: str = table  # refused


def open_table() -> None:
    table: iceberg.EncryptedTable = iceberg.open_table("s3://bucket/v1.metadata.json", "aws:")
    iceberg.open_table(table, KMS)  # refused


def create_table(schema: Any) -> None:
    table: iceberg.EncryptedTable = iceberg.create_table(None, "t", schema, ["day(ts)"], kms=KMS, key_id="lake")
    iceberg.create_table(None, "t", schema, kms=KMS)  # refused
    iceberg.create_table(None, table, schema, kms=KMS, key_id="lake")  # refused


def encrypt_table() -> None:
    report: iceberg.ConversionReport = iceberg.encrypt_table(None, key_id="lake", steps=["enable"])
    iceberg.encrypt_table(None, key_id=report)  # refused
    iceberg.encrypt_table(None)  # refused


def decrypt_table() -> None:
    report: iceberg.ConversionReport = iceberg.decrypt_table(None, expire=True)
    iceberg.decrypt_table(None, threads=report)  # refused


def rekey_table() -> None:
    report: iceberg.ConversionReport = iceberg.rekey_table(None, key_id="new", data_keys=True)
    iceberg.rekey_table(None, key_id=report)  # refused


def relocate_table() -> None:
    report: iceberg.ConversionReport = iceberg.relocate_table(None, "s3://bucket/new")
    iceberg.relocate_table(None, report)  # refused


def plan_conversion() -> None:
    plan: iceberg.ConversionPlan = iceberg.plan_conversion(None, key_id="lake")
    iceberg.plan_conversion(None, key_id=plan)  # refused


def expire_snapshots() -> None:
    report: iceberg.ExpiryReport = iceberg.expire_snapshots(None, dry_run=True)
    iceberg.expire_snapshots(None, statistics=report)  # refused


def clean() -> None:
    report: iceberg.CleanReport = iceberg.clean(None, older_than=datetime.timedelta(days=7))
    iceberg.clean(None, older_than=7)  # refused
    _wrong: iceberg.ExpiryReport = report  # refused
