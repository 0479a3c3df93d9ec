"""What an encrypted table still shows: statistics files, partition values in paths, plaintext that is allowed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from ags1 import iceberg
from ags1.iceberg import EncryptedTable, create_table, encrypt_table, expire_snapshots, load_table
from ags1.iceberg.catalogs import catalog_table
from ags1.kms import MemoryKms
from tests.checks import every

KMS = MemoryKms({"lake": bytes(range(16)), "next": bytes(range(16, 32))})
SCHEMA = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "süß", StringType(), required=False))
SPEC = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "süß"))
ROWS = pyarrow.table({"id": [1, 2, 3], "süß": ["é", "SECRET", None]})
SHOWN = ("%C3%A9", "SECRET", "__HIVE", "null")


def plaintext_table(place: Path, properties: dict[str, str] | None = None) -> str:
    """Let PyIceberg make a partitioned table; return its directory."""
    catalog = SqlCatalog("sql", uri=f"sqlite:///{place}/catalog.db", warehouse=str(place))
    catalog.create_namespace("db")
    made = catalog.create_table("db.t", SCHEMA, str(place / "t"), SPEC, properties=properties or {})
    made.append(ROWS)
    made.append(ROWS)
    catalog.engine.dispose()
    return str(place / "t")


def edited(table: str, change: Callable[[dict[str, Any]], None]) -> EncryptedTable:
    """The table after an engine changed its metadata."""
    found = catalog_table(None, table)
    state = found.load()
    fields = json.loads(json.dumps(dict(state.document.fields)))
    change(fields)
    found.commit(state, fields)
    return load_table(None, table, kms=KMS, allow_plaintext=True)


def with_statistics(table: str, **further: Any) -> EncryptedTable:
    """The table after an engine wrote both kinds of statistics of its current snapshot."""
    directory = Path(table) / "metadata"

    def add(fields: dict[str, Any]) -> None:
        usual = {"snapshot-id": fields["current-snapshot-id"], "file-size-in-bytes": 4, **further}
        puffin = {"file-footer-size-in-bytes": 4, "blob-metadata": []}
        for name, more in (("statistics", puffin), ("partition-statistics", {})):
            (directory / f"{name}.stats").write_bytes(b"PFA1")
            fields[name] = [{**usual, "statistics-path": str(directory / f"{name}.stats"), **more}]

    return edited(table, add)


def statistics_of(table: EncryptedTable) -> list[str]:
    fields = table.refresh().document.fields
    return [each["statistics-path"] for name in ("statistics", "partition-statistics") for each in fields[name]]


def stats_files(table: str) -> int:
    return len(list(Path(table).rglob("*.stats")))


def shown_in(table: EncryptedTable) -> list[str]:
    """Current data files whose paths show a partition value."""
    paths = table.files().column("path").to_pylist()
    return [each for each in paths if any(value in each for value in SHOWN)]


# -- statistics ------------------------------------------------------------------------------------------------------


def test_no_statistics_file_outlives_what_makes_a_table_secret(tmp_path: Path) -> None:
    place = plaintext_table(tmp_path)
    changes = {
        "encrypt": lambda table, **what: encrypt_table(table, key_id="lake", **what),
        "rekey": lambda table, **what: iceberg.rekey_table(table, data_keys=True, **what),
        "expire": expire_snapshots,
    }
    for name, change in changes.items():
        for what, left in ("keep", 2), ("drop", 0):
            table = with_statistics(place)
            if name == "encrypt" and what == "drop":
                iceberg.decrypt_table(table)
            report = change(table, statistics=what)
            assert (len(statistics_of(table)), stats_files(place)) == (left, left), (name, what)
            assert str(report).count(".stats") >= left
            assert table.audit().counts.get("statistics-plaintext", 0) == left
    assert table.scan().count() == 6
    with pytest.raises(ValueError, match="statistics must be 'drop' or 'keep'"):
        expire_snapshots(table, statistics="burn")


def test_a_table_that_was_only_enabled_is_not_said_to_be_encrypted(tmp_path: Path) -> None:
    place = plaintext_table(tmp_path)
    table = load_table(None, place, kms=KMS, allow_plaintext=True)
    for steps in (["enable"], ["enable", "expire"]):
        assert "NOT all encrypted yet: only new files are" in str(encrypt_table(table, key_id="lake", steps=steps))
    assert not table.refresh().verify().ok
    assert "only new files" not in str(encrypt_table(table, key_id="lake"))
    assert load_table(None, place, kms=KMS).verify(None).ok


def test_plans_name_the_statistics_that_go(tmp_path: Path) -> None:
    table = with_statistics(plaintext_table(tmp_path))
    plan = iceberg.plan_conversion(table, key_id="lake")
    assert len(plan.dropped_statistics) == 2
    assert "is removed (it is not encrypted" in str(plan)
    assert len(iceberg.plan_conversion(table, key_id="lake", statistics="keep").statistics) == 2


def test_statistics_of_a_plaintext_table_and_of_one_whose_files_others_need_stay(tmp_path: Path) -> None:
    place = plaintext_table(tmp_path)
    table = with_statistics(place)
    expire_snapshots(table)
    assert (len(statistics_of(table)), stats_files(place)) == (2, 2)
    table = edited(place, lambda fields: fields["properties"].update({"gc.enabled": "false"}))
    encrypt_table(table, key_id="lake")
    assert (len(statistics_of(table)), stats_files(place)) == (2, 2)


def test_a_statistics_path_that_names_a_file_of_the_table_removes_nothing(tmp_path: Path) -> None:
    place = plaintext_table(tmp_path)
    table = with_statistics(place)
    needed = [table.files("all").column("path").to_pylist(), [table.metadata_location]]
    usual = table.document.fields["statistics"][0]

    def name(fields: dict[str, Any]) -> None:
        fields["statistics"] = [{**usual, "statistics-path": path} for paths in needed for path in paths]

    table = edited(place, name)
    encrypt_table(table, key_id="lake")
    assert table.refresh().scan().count() == 6
    assert all(Path(path.removeprefix("file://")).exists() for paths in needed for path in paths)


def test_a_key_of_statistics_in_the_metadata_is_a_leaked_key(tmp_path: Path) -> None:
    place = plaintext_table(tmp_path)
    encrypt_table(load_table(None, place, kms=KMS), key_id="lake", steps=("enable", "convert", "expire"))
    table = with_statistics(place, **{"key-metadata": "AQID"})
    report = table.audit()
    assert report.counts["statistics-key-leaked"] == 2
    assert not report.ok
    expire_snapshots(table)
    assert table.refresh().audit().ok
    assert "AQID" not in table.document.text


# -- paths -----------------------------------------------------------------------------------------------------------


def test_no_path_of_an_encrypted_file_shows_a_partition_value(tmp_path: Path) -> None:
    place = plaintext_table(tmp_path)
    table = load_table(None, place, kms=KMS, allow_plaintext=True)
    assert len(shown_in(table)) == 6
    encrypt_table(table, key_id="lake", partition_paths=True)
    table.refresh()
    assert len(shown_in(table)) == 6
    (found,) = table.audit(None).having("partition-in-path")
    assert "6 encrypted files with partition values in the path, such as" in found.message
    assert table.verify(None).counts["partition-in-path"] == 6
    assert "partition-in-path: ... and 3 more" in str(table.verify(None))
    assert iceberg.plan_conversion(table, data_keys=True, partition_paths=True).partition_paths == 6
    copied = load_table(None, _location(iceberg.relocate_table(table, str(tmp_path / "copy"))), kms=KMS)
    iceberg.rekey_table(table, data_keys=True)
    for hidden in (copied, table.refresh()):
        assert shown_in(hidden) == []
        assert "partition-in-path" not in hidden.audit(None).counts
        assert "partition-in-path" not in hidden.verify(None).counts
        assert sorted(hidden.scan().to_arrow()["id"].to_pylist()) == [1, 1, 2, 2, 3, 3]
    iceberg.decrypt_table(table)
    encrypt_table(table, key_id="lake")
    assert shown_in(table.refresh()) == []


def _location(report: Any) -> str:
    return str(report.metadata_location)


# -- plaintext that is allowed ---------------------------------------------------------------------------------------


def test_a_table_with_plaintext_files_is_not_ok_though_they_are_allowed(tmp_path: Path) -> None:
    place = plaintext_table(tmp_path)
    encrypt_table(load_table(None, place, kms=KMS), key_id="lake", steps=["enable"])
    report = load_table(None, place, kms=KMS, allow_plaintext=True).verify()
    assert (report.ok, report.outcome, report.counts.keys()) == (False, "not protected", {"plaintext"})
    assert "which was allowed: only its size was checked" in str(report)
    assert report.to_dict()["ok"] is False


# -- snapshots that wait ---------------------------------------------------------------------------------------------


@every("published", [True, False])
def test_expiry_says_which_staged_snapshots_it_takes(published: bool, tmp_path: Path) -> None:
    table = create_table(None, str(tmp_path / str(published)), ROWS.schema, kms=KMS, key_id="lake")
    for _ in range(2):
        table.append(ROWS)
    staged, current = (each["snapshot-id"] for each in table.document.fields["snapshots"])

    def stage(fields: dict[str, Any]) -> None:
        one, two = fields["snapshots"]
        one["summary"]["wap.id"] = "audit-7"
        del two["parent-snapshot-id"]
        if published:
            two["summary"]["published-wap-id"] = "audit-7"

    table = edited(str(tmp_path / str(published)), stage)
    expected = {} if published else {staged: "audit-7"}
    assert iceberg.plan_conversion(table, data_keys=True).staged == expected
    report = expire_snapshots(table, dry_run=True)
    assert report.staged == expected
    assert ("publish_changes" in str(report)) is not published
    assert ("audit-7" in str(report)) is not published
    assert expire_snapshots(table).staged == expected
    assert [each.snapshot_id for each in table.refresh().snapshots()] == [current]


def test_verification_says_that_the_levels_of_version_2_pages_carry_no_tag(tmp_path: Path) -> None:
    # Iceberg's Java readers can read no other form of them, so a conversion writes it.
    catalog = SqlCatalog("sql", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path))
    catalog.create_namespace("db")
    made = catalog.create_table("db.t", SCHEMA, location=str(tmp_path / "t"))
    for version in ("1.0", "2.0"):
        written = str(tmp_path / "t" / f"version-{version}.parquet")
        pyarrow.parquet.write_table(ROWS, written, data_page_version=version, use_dictionary=False)
        made.add_files([written])
    catalog.engine.dispose()
    table = load_table(None, str(tmp_path / "t"), kms=KMS, allow_plaintext=True)
    encrypt_table(table, key_id="lake", steps=["enable", "convert", "expire"])
    report = load_table(None, str(tmp_path / "t"), kms=KMS).verify()
    # A page for each of the two columns.
    assert (report.ok, report.outcome) == (True, "authentic")
    assert [each.details["pages"] for each in report.having("levels-without-tags")] == [2]
    assert "the levels of 2 version 2 pages (which rows are null) carry no tag" in str(report)


# -- summaries -------------------------------------------------------------------------------------------------------


def test_partition_values_in_summaries_are_reported_until_no_metadata_file_has_them(tmp_path: Path) -> None:
    """Engines put them into metadata files, in plaintext. Files that nothing of the table names any more count too."""
    place = plaintext_table(tmp_path, {"write.summary.partition-limit": "10"})
    table = load_table(None, place, kms=KMS, allow_plaintext=True)
    assert "partitions.s" in table.document.text
    encrypt_table(table, key_id="lake")
    for remedy in (lambda: None, lambda: expire_snapshots(table.refresh())):
        remedy()
        (found,) = table.refresh().audit().having("partition-in-summary")
        assert (found.severity, found.subject) == ("warning", table.metadata_location)
        assert "write.summary.partition-limit" in found.message
    assert "partitions." not in table.document.text
    for each in (tmp_path / "t/metadata").glob("*.metadata.json"):
        if "partitions." in each.read_text():
            each.unlink()
    assert not table.audit().having("partition-in-summary")
    assert table.verify().ok
