"""Encrypted Iceberg tables verified on Spark: as much as one process verifies, and no key on the way."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyiceberg")

from ags1 import AuthenticationError, KeyAccessError
from ags1.expected import Expected
from ags1.iceberg import open_table
from ags1.iceberg.walk.table_walk import walk
from ags1.kms import LocalKms, MemoryKms
from ags1.spark.engine import runner
from ags1.spark.engine.iceberg_work import TableVerifying
from ags1.spark.iceberg import verify_table
from tests.checks import flip
from tests.iceberg.conftest import MAKING_SECONDS, spark_tables
from tests.iceberg.forged import changed_metadata, forged, without_length
from tests.iceberg.keys import MASTER_KEYS, keystore
from tests.iceberg.warehouse import SparkTable, SparkTables, local_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["spark_tables"]

pytestmark = pytest.mark.timeout(MAKING_SECONDS)

QUIET: dict[str, Any] = {"progress": False}


@pytest.fixture(scope="module")
def kms(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A keystore with the tables' master keys."""
    return keystore(tmp_path_factory.mktemp("keystore"))


def rows_of(result: Any) -> dict[str, dict[str, Any]]:
    return {row["path"]: row for row in result.table().to_pylist()}


def one_of(table: SparkTable, kind: str) -> str:
    rows = open_table(table.metadata, MemoryKms(MASTER_KEYS)).files("all").to_pylist()
    return str(next(each["path"] for each in rows if each["kind"] == kind))


@pytest.mark.parametrize("name", ["events", "bulk_avro", "deletes"])
def test_every_file_of_a_table_is_verified(spark: SparkSession, spark_tables: SparkTables, kms: str, name: str) -> None:
    table = spark_tables[name]
    opened = open_table(table.metadata, MemoryKms(MASTER_KEYS))
    result = verify_table(spark, table.metadata, kms=kms, **QUIET)
    assert result.ok
    expected = {each["path"]: each["stored_length"] for each in opened.files("all").to_pylist()}
    assert {path: row["file_length"] for path, row in rows_of(result).items()} == expected
    assert result.counts == {"ok": opened.verify().checked["files"]}


def test_one_snapshot_can_be_verified(
    spark: SparkSession,
    spark_tables: SparkTables,
    kms: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ags1.spark.engine.progress._is_watched", lambda: True)
    table = spark_tables["events"]
    first = table.snapshots[0].id
    expected = {each["path"] for each in open_table(table.metadata, MemoryKms(MASTER_KEYS)).files(first).to_pylist()}
    assert set(rows_of(verify_table(spark, table.metadata, kms=kms, snapshot_id=first, **QUIET))) == expected
    with pytest.raises(ValueError, match="the table has no snapshot 17"):
        verify_table(spark, table.metadata, kms=kms, snapshot_id=17)
    assert capsys.readouterr().err == "ags1 verify: reading the manifests\n"


@pytest.mark.parametrize("kind", ["manifest list", "manifest", "data", "deletion vectors"])
def test_a_damaged_file_is_named_and_the_others_are_checked(
    spark: SparkSession, spark_tables: SparkTables, kms: str, kind: str
) -> None:
    table = spark_tables["bulk"]
    location = one_of(table, kind)
    content = local_path(location).read_bytes()
    with table.damaged(location, flip(content, len(content) // 2)):
        result = verify_table(spark, table.metadata, kms=kms, **QUIET)
        assert [path for path, _ in result.errors] == [location]
        assert str(local_path(location)) in result.errors[0][1]
        assert result.counts["ok"] >= 1
        with pytest.raises(AuthenticationError, match="verify: "):
            verify_table(spark, table.metadata, kms=kms, on_error="fail", **QUIET)


def test_a_file_that_is_cut_off_missing_or_another_is_named(
    spark: SparkSession, spark_tables: SparkTables, kms: str
) -> None:
    table = spark_tables["bulk"]
    location = one_of(table, "data")
    content = local_path(location).read_bytes()
    for changed in (content[:-1], b""):
        with table.damaged(location, changed):
            (error,) = verify_table(spark, table.metadata, kms=kms, **QUIET).errors
            assert error[0] == location
            assert "cut off" in error[1]


def test_the_master_key_must_be_the_expected_one(spark: SparkSession, spark_tables: SparkTables, kms: str) -> None:
    table = spark_tables["bulk"]
    with pytest.raises(KeyAccessError, match="is under the master key 'keyA', and 'keyB' is expected"):
        verify_table(spark, table.metadata, kms=kms, table_key_id="keyB", **QUIET)


def test_plaintext_is_an_error_unless_it_is_allowed(
    spark: SparkSession, spark_tables: SparkTables, kms: str, tmp_path: Path
) -> None:
    def in_plaintext(fields: dict[str, Any]) -> None:
        fields["key_metadata"] = None

    location = forged(spark_tables["bulk"], tmp_path, entry=in_plaintext)
    allowed_locations = [str(spark_tables["bulk"].metadata_path.parent.parent)]
    (error,) = verify_table(spark, location, kms=kms, allowed_locations=allowed_locations, **QUIET).errors
    assert "this data file is not encrypted" in error[1]
    allowed = verify_table(spark, location, kms=kms, allow_plaintext=True, allowed_locations=allowed_locations, **QUIET)
    assert not allowed.ok
    assert (allowed.counts["not protected"], allowed.kinds) == (1, {None})
    plain = changed_metadata(spark_tables["bulk"], tmp_path, _without_encryption)
    (error,) = verify_table(spark, plain, kms=kms, allowed_locations=allowed_locations, **QUIET).errors
    assert error[0] == plain
    assert "nothing in it can be authenticated" in error[1]


def _without_encryption(document: dict[str, Any]) -> None:
    document["properties"].pop("encryption.key-id")
    document["encryption-keys"] = []
    for each in document["snapshots"]:
        each.pop("key-id", None)


def test_lengths_are_trusted_as_far_as_the_policy_says(
    spark: SparkSession, spark_tables: SparkTables, kms: str, tmp_path: Path
) -> None:
    def entry(fields: dict[str, Any]) -> None:
        fields["key_metadata"] = without_length(fields["key_metadata"])

    location = forged(spark_tables["bulk_avro"], tmp_path, entry=entry)
    where: dict[str, Any] = {"allowed_locations": [str(spark_tables["bulk_avro"].metadata_path.parent.parent)], **QUIET}
    (error,) = verify_table(spark, location, kms=kms, **where).errors
    assert "has no file length" in error[1]
    assert verify_table(spark, location, kms=kms, length_policy="metadata-hint", **where).ok
    with pytest.raises(ValueError, match="length_policy must be 'trusted'"):
        verify_table(spark, location, kms=kms, length_policy="none", **where)


# -- keys ----------------------------------------------------------------------------------------------------


def test_no_key_of_a_file_travels_or_is_written_down(
    spark: SparkSession, spark_tables: SparkTables, spark_directory: Path, kms: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[bytes] = []
    original = runner._Task

    def recorded(work: Any, label: Any, payloads: list[bytes], *more: Any) -> Any:
        sent.extend(payloads)
        return original(work, label, payloads, *more)

    monkeypatch.setattr(runner, "_Task", recorded)
    table = spark_tables["events"]
    assert verify_table(spark, table.metadata, kms=kms, **QUIET).ok
    assert sent
    found = walk(table.metadata, open_table(table.metadata, MemoryKms(MASTER_KEYS)).io, "all")
    metadata = [file.known.key_metadata for file in found.files.values()]
    secrets = [bytes(each.encryption_key) for each in metadata if each is not None]
    assert len(secrets) == len(metadata) > 3
    forms = [form for each in secrets for form in (each, base64.b64encode(each)[:20], each.hex().encode())]
    written = [path.read_bytes() for path in spark_directory.rglob("*") if path.is_file()]
    for data in [*sent, *written]:
        assert not any(form in data for form in forms)


def test_who_may_only_unwrap_can_verify(
    spark: SparkSession, spark_tables: SparkTables, kms: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: Any) -> bytes:
        raise AssertionError("the KMS was asked to wrap")

    monkeypatch.setattr(LocalKms, "_wrap", refuse)
    assert verify_table(spark, spark_tables["bulk"].metadata, kms=kms, **QUIET).ok
    monkeypatch.undo()
    assert verify_table(spark, spark_tables["bulk"].metadata, kms=kms, transfer_key_id="keyB", **QUIET).ok
    with pytest.raises(KeyAccessError, match="nobody"):
        verify_table(spark, spark_tables["bulk"].metadata, kms=kms, transfer_key_id="nobody", **QUIET)


def test_a_client_is_no_reference(spark: SparkSession, spark_tables: SparkTables) -> None:
    with pytest.raises(TypeError, match="every worker makes its own client"):
        verify_table(spark, spark_tables["bulk"].metadata, kms=MemoryKms(MASTER_KEYS))  # type: ignore[arg-type]


# -- places --------------------------------------------------------------------------------------------------


def test_a_table_is_found_by_its_directory(spark: SparkSession, spark_tables: SparkTables, kms: str) -> None:
    table = spark_tables["bulk"]
    directory = str(local_path(table.metadata).parent.parent)
    assert verify_table(spark, directory, kms=kms, **QUIET).counts == {"ok": 6}


def test_properties_are_not_shown() -> None:
    assert "hidden" not in repr(TableVerifying({"s3.secret-access-key": "hidden"}, "t", Expected()))
