"""ags1.spark: a type checker accepts every line but those marked as refused."""

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import ags1
from ags1 import dataset, iceberg, spark

KMS = "aws:?region=eu-central-1"
KEYS = Path("keys")


def encrypt_files(session: SparkSession) -> None:
    result: spark.Result = spark.encrypt_files(session, Path("raw"), "s3a://vault", kms=KMS, key_id="lake")
    spark.encrypt_files(session, "raw", "vault", kms=KMS, keys={"a/**": 5})  # refused
    spark.encrypt_files(session, "raw", "vault", KMS)  # refused
    _wrong: dataset.RunReport = result  # refused


def decrypt_files(session: SparkSession) -> None:
    result: spark.Result = spark.decrypt_files(session, "vault", "plain", kms=KMS, include=["*.csv"])
    spark.decrypt_files(session, "vault", "plain", kms=KMS, part_bytes="1M")  # refused
    spark.decrypt_files(session, "vault", kms=KMS)  # refused
    _wrong: str = result  # refused


def verify_files(session: SparkSession) -> None:
    result: spark.Result = spark.verify_files(session, "vault", kms=KMS, expected_version=3)
    spark.verify_files(session, "vault", kms=KMS, expected_version="3")  # refused
    _wrong: ags1.VerifyReport = result  # refused


def encrypt_parquet(session: SparkSession) -> None:
    result: spark.Result = spark.encrypt_parquet(
        session, "raw", "vault", kms=KMS, footer_key_id="lake", column_key_ids={"pii": ["ssn", "salary"]}
    )
    spark.encrypt_parquet(session, "raw", "vault", kms=KMS, footer_key_id="lake", column_key_ids=["pii"])  # refused
    spark.encrypt_parquet(session, "raw", "vault", kms=KMS)  # refused
    _wrong: str = result  # refused


def decrypt_parquet(session: SparkSession) -> None:
    spark.decrypt_parquet(session, "vault", "plain", kms=KMS, aad_prefix=b"lake")
    spark.decrypt_parquet(session, "vault", "plain", kms=KMS, threads="2")  # refused


def rekey_parquet(session: SparkSession) -> None:
    spark.rekey_parquet(session, "vault", "again", kms=KMS, footer_key_id="next", new_kms=KMS)
    spark.rekey_parquet(session, "vault", "again", kms=KMS, footer_key_id=5)  # refused


def verify_parquet(session: SparkSession) -> None:
    result: spark.Result = spark.verify_parquet(session, "vault", kms=KMS, require_encrypted=["ssn"])
    spark.verify_parquet(session, "vault", kms=KMS, require_encrypted=5)  # refused
    _wrong: bool = result  # refused


def encrypt_table(session: SparkSession) -> None:
    made: iceberg.ConversionReport | iceberg.ConversionPlan = spark.encrypt_table(
        session, "lake.db.events", kms=KMS, key_id="lake", steps=["enable"]
    )
    spark.encrypt_table(session, "lake.db.events", kms=KMS)  # refused
    spark.encrypt_table(session, "lake.db.events", kms=KMS, key_id="lake", threads="2")  # refused
    _wrong: spark.Result = made  # refused


def decrypt_table(session: SparkSession) -> None:
    spark.decrypt_table(session, "lake.db.events", kms=KMS, expire=True)
    spark.decrypt_table(session, "lake.db.events", kms=KMS, expire=5)  # refused


def rekey_table(session: SparkSession) -> None:
    spark.rekey_table(session, "lake.db.events", kms=KMS, dry_run=True)
    spark.rekey_table(session, "lake.db.events", kms=KMS, key_id=5)  # refused


def compact_table(session: SparkSession) -> None:
    report: iceberg.CompactionReport = spark.compact_table(session, "lake.db.events", kms=KMS, sort_by=["id"])
    spark.compact_table(session, "lake.db.events", kms=KMS, target_bytes="1 GiB")  # refused
    _wrong: spark.Result = report  # refused


def verify_table(session: SparkSession) -> None:
    result: spark.Result = spark.verify_table(session, "s3a://t/metadata.json", kms=KMS, table_key_id="lake")
    spark.verify_table(session, 5, kms=KMS)  # refused
    spark.verify_table(session, "s3a://t/metadata.json", kms=KMS, allowed_locations=5)  # refused
    _wrong: str = result  # refused


def columns(session: SparkSession, rows: DataFrame) -> None:
    sealed: DataFrame = spark.encrypt_columns(rows, {"ssn": "pii"}, kms=KMS, keys=KEYS, form="gcm")
    spark.encrypt_columns(rows, {"ssn": "pii"}, kms=KMS, keys=KEYS, form="ctr")  # refused
    _: DataFrame = spark.decrypt_columns(sealed, {"ssn": "pii"}, kms=KMS, keys="keys", on_error="null")
    spark.decrypt_columns(sealed, {"ssn": 5}, kms=KMS, keys=KEYS)  # refused
    spark.register_columns(session, kms=KMS, keys=KEYS, key_ids=["pii"], decrypt=True)
    spark.register_columns(session, kms=KMS, keys=KEYS)  # refused


def register(session: SparkSession) -> None:
    spark.register(session, kms=KMS, key_id="lake")
    spark.register(session, kms=5)  # refused


def result(found: spark.Result, session: Any) -> None:
    whole: bool = found.ok
    fields: dict[str, Any] = found.to_dict()
    _wrong: int = fields  # refused
    _also: str = whole  # refused
