"""What a table is made of, listed and drawn, and what is wrong with it: on tables that Spark made."""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ags1.errors import AuthenticationError, FormatError, KeyAccessError
from ags1.iceberg import EncryptedTable, EncryptionKeys, open_table
from ags1.iceberg.walk.table_audit import audit
from ags1.iceberg.walk.table_walk import walk
from ags1.kms import MemoryKms
from ags1.support.reports import FindingsReport
from tests.checks import flip
from tests.iceberg.forged import changed_metadata, forged, without_length
from tests.iceberg.keys import MASTER_KEYS
from tests.iceberg.spark_tables import DEFINITIONS
from tests.iceberg.warehouse import SparkTables, local_path

ALL = [each.name for each in DEFINITIONS]
ENCRYPTED = [each.name for each in DEFINITIONS if "encrypted" in each.features]
WHOLE = [
    each.name for each in DEFINITIONS if {"encrypted"} <= {*each.features} - {"plaintext files"} == {*each.features}
]
CONTENTS = {"data": 0, "position deletes": 1, "deletion vectors": 1, "equality deletes": 2}
DAY = 86_400


def _open(location: str, kms: Any = None, **options: Any) -> EncryptedTable:
    return open_table(location, MemoryKms(MASTER_KEYS) if kms is None else kms, **options)


def _rows(table: EncryptedTable, *arguments: Any, **options: Any) -> list[dict[str, Any]]:
    return table.files(*arguments, **options).to_pylist()


def _current(document: dict[str, Any]) -> dict[str, Any]:
    (found,) = (each for each in document["snapshots"] if each["snapshot-id"] == document["current-snapshot-id"])
    return found


def _kek(document: dict[str, Any]) -> dict[str, Any]:
    (found,) = (each for each in document["encryption-keys"] if "properties" in each)
    return found


def _codes(report: FindingsReport, *severities: str) -> Counter[str]:
    found = (each.code for each in report.findings if not severities or each.severity in severities)
    # Spark names directories after partitions.
    return Counter(code for code in found if code != "partition-in-path")


# -- files ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
def test_files_are_those_that_spark_lists(spark_tables: SparkTables, name: str) -> None:
    table = spark_tables[name]
    expected: dict[str, list[Any]] = {}
    for each in table.files:
        row = expected.setdefault(each.location, [each.content, each.format.lower(), each.size, 0])
        row[3] += each.records
    found = {
        each["path"]: [CONTENTS[each["kind"]], each["file_format"], each["file_size"], each["record_count"]]
        for each in _rows(_open(table.metadata))
        if each["kind"] in CONTENTS
    }
    assert found == expected


@pytest.mark.parametrize("name", WHOLE)
def test_every_file_of_an_encrypted_table_has_a_key_and_the_length_that_it_has(
    spark_tables: SparkTables, name: str
) -> None:
    table = spark_tables[name]
    rows = _rows(_open(table.metadata), "all", sizes=True)
    bits = 8 * int(table.document["properties"].get("encryption.data-key-length", 16))
    for each in rows:
        assert each["encryption"] == ("Parquet AES_GCM_V1 uniform" if each["file_format"] == "parquet" else "AGS1")
        assert each["key_bits"] == bits
        assert each["stored_length"] == each["physical_size"] == local_path(each["path"]).stat().st_size
        assert each["kind"] == "manifest list" or each["file_size"] == each["stored_length"]
        assert (each["key_id"] is None) == (each["kek_id"] is None) == (each["kind"] != "manifest list")
    assert len({each["path"] for each in rows}) == len(rows)


@pytest.mark.parametrize("name", ["events", "maintained", "deletes_avro", "events_plain"])
def test_all_files_are_those_of_the_snapshots_and_say_of_which(spark_tables: SparkTables, name: str) -> None:
    opened = _open(spark_tables[name].metadata)
    rows = _rows(opened, "all")
    in_order = [each["snapshot-id"] for each in spark_tables[name].document["snapshots"]]
    for number in in_order:
        own = _rows(opened, number)
        assert {each["path"] for each in own} == {each["path"] for each in rows if number in each["snapshot_ids"]}
        assert all(each["snapshot_ids"] == [number] for each in own)
    for each in rows:
        assert each["snapshot_ids"] == [number for number in in_order if number in each["snapshot_ids"]]


def test_a_manifest_list_has_the_ids_of_its_key_and_of_the_key_above_it(spark_tables: SparkTables) -> None:
    table = spark_tables["types"]
    lists = {each["path"]: each for each in _rows(_open(table.metadata), "all") if each["kind"] == "manifest list"}
    for snapshot in table.document["snapshots"]:
        row = lists[snapshot["manifest-list"]]
        assert row["key_id"] == snapshot["key-id"]
        assert row["kek_id"] == _kek(table.document)["key-id"]


def test_plaintext_files_of_an_encrypted_table_are_listed_as_such(spark_tables: SparkTables) -> None:
    found = {name: _rows(_open(spark_tables[name].metadata)) for name in ("mixed", "added", "orc")}
    plain = {name: [each for each in rows if each["encryption"] == "plaintext"] for name, rows in found.items()}
    assert [[each["kind"] for each in rows] for rows in plain.values()] == [["data"], ["manifest", "data"], ["data"]]
    for each in (row for rows in plain.values() for row in rows):
        assert each["key_bits"] is each["stored_length"] is None
        assert each["file_size"] == local_path(each["path"]).stat().st_size


def test_a_table_without_snapshots_has_no_files(spark_tables: SparkTables) -> None:
    opened = _open(spark_tables["empty"].metadata)
    assert opened.files().num_rows == opened.files("all").num_rows == 0
    assert opened.files().column_names == opened.files("all").column_names
    assert opened.audit().ok


def test_files_refuses_a_snapshot_that_is_not_there(spark_tables: SparkTables) -> None:
    opened = _open(spark_tables["types"].metadata)
    with pytest.raises(ValueError, match=r"the table has no snapshot 17; it has \d+, \d+"):
        opened.files(17)
    for wrong in (True, "current", 1.5):
        with pytest.raises(TypeError, match="snapshot_id must be an integer, 'all' or None"):
            opened.files(wrong)  # type: ignore[arg-type]


def test_files_leaves_nothing_out_silently(spark_tables: SparkTables) -> None:
    table = spark_tables["types"]
    opened = _open(table.metadata)
    manifest = next(each["path"] for each in _rows(opened) if each["kind"] == "manifest")
    path = local_path(manifest)
    with table.damaged(manifest, flip(path.read_bytes(), 100)), pytest.raises(AuthenticationError, match=path.name):
        opened.files()
    with table.damaged(manifest, b""):
        path.unlink()
        with pytest.raises(FileNotFoundError, match=path.name):
            opened.files()


def test_a_missing_data_file_has_no_physical_size(spark_tables: SparkTables) -> None:
    table = spark_tables["types"]
    path = table.files[0].path
    with table.damaged(path, b""):
        path.unlink()
        sizes = {each["path"]: each["physical_size"] for each in _rows(_open(table.metadata), sizes=True)}
    assert [each for each, size in sizes.items() if size is None] == [table.files[0].location]


def test_no_report_shows_a_key(spark_tables: SparkTables, table_kms: MemoryKms) -> None:
    opened = _open(spark_tables["deletes"].metadata)
    keys = []
    for each in walk(opened.metadata_location, opened.io):
        assert each.known.key_metadata is not None
        keys.append(bytes(each.known.key_metadata.encryption_key))
        assert repr(each).endswith((": AGS1>", ": Parquet AES_GCM_V1 uniform>"))
    reports = (opened.audit(), opened.verify(), opened.tree())
    text = "\n".join([str(_rows(opened, "all")), *map(str, reports), *(json.dumps(each.to_dict()) for each in reports)])
    assert len(keys) > 20
    for key in keys:
        assert key.hex() not in text
        assert base64.b64encode(key).decode().rstrip("=") not in text
        assert str(key)[2:-1] not in text


def test_two_tables_with_the_same_files_do_not_mix_their_keys(spark_tables: SparkTables, tmp_path: Path) -> None:
    table = spark_tables["types"]
    opened = _open(table.metadata)
    other = _open(changed_metadata(table, tmp_path, lambda document: document.update({"encryption-keys": []})))
    assert opened.audit().ok
    with pytest.raises(KeyAccessError, match="has no entry"):
        other.files()
    assert opened.files().num_rows


# -- the tree ------------------------------------------------------------------------------------------------


def test_the_tree_shows_keys_snapshots_and_each_manifest_once(spark_tables: SparkTables) -> None:
    table = spark_tables["maintained"]
    opened = _open(table.metadata)
    text = str(opened.tree())
    for each in table.document["encryption-keys"]:
        assert text.count(f"key {each['key-id']!r}  ") == 1
    for each in table.document["snapshots"]:
        assert text.count(f"── snapshot {each['snapshot-id']}  ") == 1
    for each in _rows(opened, "all"):
        name = each["path"].removeprefix(f"{table.document['location']}/")
        drawn = [line for line in text.splitlines() if name in line]
        assert len(drawn) == (len(each["snapshot_ids"]) if each["kind"] == "manifest" else 1)
        assert sum("as in snapshot" in line for line in drawn) == len(drawn) - 1
    assert "PROBLEM" not in text
    assert "tag 'kept'" in text
    assert text.splitlines()[0] == f"{table.metadata}  format version 3, master key 'keyA', encrypted"


def test_the_tree_says_what_is_plaintext_and_what_could_not_be_read(spark_tables: SparkTables, tmp_path: Path) -> None:
    table = spark_tables["added"]
    lines = str(_open(table.metadata).tree(None)).splitlines()
    assert [line.rpartition("  ")[2] for line in lines if "  plaintext" in line] == ["PROBLEM: is not encrypted"] * 2
    without = _open(changed_metadata(table, tmp_path, lambda document: document["encryption-keys"].pop()))
    node = without.tree().to_dict()["children"][1]["children"][-1]
    assert "has no entry" in node["children"][0]["problem"]


def test_the_tree_is_safe_to_print(spark_tables: SparkTables, tmp_path: Path) -> None:
    def change(document: dict[str, Any]) -> None:
        _current(document)["manifest-list"] = "no\x1b[31m\nfile.avro"

    opened = _open(changed_metadata(spark_tables["types"], tmp_path, change))
    for text in (
        *opened.tree().lines(),
        *str(opened.audit()).splitlines(),
        *str(opened.verify()).splitlines(),
    ):
        assert "\x1b" not in text
    assert r"no\x1b[31m\nfile.avro" in str(opened.tree())


# -- audit: sound tables -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WHOLE)
def test_nothing_is_wrong_with_what_spark_wrote(spark_tables: SparkTables, name: str) -> None:
    opened = _open(spark_tables[name].metadata)
    report = opened.audit()
    assert report.ok
    assert not _codes(report, "error", "warning")
    assert report.checked["files"] == opened.files("all").num_rows
    assert report.checked["snapshots"] == len(spark_tables[name].document["snapshots"])
    assert str(report).splitlines()[0].startswith(f"{spark_tables[name].metadata}: ok")
    assert json.loads(json.dumps(report.to_dict()))["ok"] is True


def test_keys_that_prune_would_drop_are_noted(spark_tables: SparkTables) -> None:
    table = spark_tables["maintained"]
    dropped = EncryptionKeys.from_table_metadata(table.document).prune(table.document).report.dropped  # type: ignore[union-attr]
    report = _open(table.metadata).audit()
    assert {each.subject for each in report.having("key-unused")} == set(dropped) != set()
    assert _codes(report) == {"key-unused": len(dropped)}


def test_only_the_files_of_the_snapshot_asked_for_are_looked_at(spark_tables: SparkTables) -> None:
    opened = _open(spark_tables["events"].metadata)
    first = spark_tables["events"].snapshots[0].id
    assert opened.audit(first).checked["files"] == opened.files(first).num_rows < opened.audit().checked["files"]
    assert opened.audit(None).checked["snapshots"] == 1


# -- audit: files --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "kinds"), [("mixed", ["data file"]), ("added", ["manifest", "data file"])])
def test_plaintext_files_are_errors_unless_they_are_allowed(
    spark_tables: SparkTables, name: str, kinds: list[str]
) -> None:
    report = _open(spark_tables[name].metadata).audit()
    assert not report.ok
    assert [each.message.partition(": this ")[2] for each in report.having("file-plaintext")] == [
        f"{kind} is not encrypted, although its table is" for kind in kinds
    ]
    allowed = _open(spark_tables[name].metadata, allow_plaintext=True).audit()
    assert allowed.ok
    assert _codes(allowed, "warning") == {"file-plaintext": len(kinds)}


def test_a_table_that_is_not_encrypted_is_an_error(spark_tables: SparkTables) -> None:
    report = _open(spark_tables["events_plain"].metadata).audit()
    assert _codes(report) == {"table-not-encrypted": 1}
    assert not report.ok


@pytest.mark.parametrize("kind", ["manifest list", "manifest", "data", "deletion vectors"])
@pytest.mark.parametrize("damage", ["missing", "cut off", "longer"])
def test_a_file_of_another_size_is_named(spark_tables: SparkTables, kind: str, damage: str) -> None:
    table = spark_tables["evolution"]
    opened = _open(table.metadata)
    location = next(each["path"] for each in _rows(opened) if each["kind"] == kind)
    path = local_path(location)
    intact = path.read_bytes()
    with table.damaged(location, intact[:-1] if damage == "cut off" else intact + b"\0"):
        if damage == "missing":
            path.unlink()
        report = opened.audit()
    assert not report.ok
    (finding,) = report.having("file-missing" if damage == "missing" else "file-size")
    assert finding.subject == location
    if damage != "missing":
        size = len(intact) - 1 if damage == "cut off" else len(intact) + 1
        assert f"has {size} bytes, but its key metadata says {len(intact)}" in finding.message
    assert report.checked["unread_manifests"] == (kind in ("manifest list", "manifest"))
    # What does not hang on it was looked at all the same.
    assert report.checked["files"] > 4
    if report.checked["unread_manifests"]:
        assert "files, 1 unread manifest" in str(report)


def test_a_swapped_manifest_cannot_be_read_and_the_rest_is_looked_at(spark_tables: SparkTables) -> None:
    table = spark_tables["events"]
    opened = _open(table.metadata)
    ours, other = [each["path"] for each in _rows(opened) if each["kind"] == "manifest"][:2]
    with table.damaged(ours, local_path(other).read_bytes()):
        report = opened.audit()
    (finding,) = report.having("file-unreadable")
    assert finding.subject == ours
    assert set(_codes(report)) <= {"file-unreadable", "file-size"}
    assert report.checked["unread_manifests"] == 1


def test_files_without_a_trusted_length_are_named(spark_tables: SparkTables, tmp_path: Path) -> None:
    def forget(fields: dict[str, Any]) -> None:
        fields["key_metadata"] = without_length(fields["key_metadata"])

    avro = _open(forged(spark_tables["types_avro"], tmp_path, entry=forget)).audit()
    (finding,) = avro.findings
    assert (finding.severity, finding.code) == ("error", "file-without-length")
    assert finding.message.endswith("this data file has no file length: a cut at its end could not be noticed")
    parquet = _open(forged(spark_tables["evolution"], tmp_path, entry=forget)).audit()
    assert _codes(parquet, "warning") == _codes(parquet)
    assert set(_codes(parquet)) == {"file-without-length"}


def test_a_manifest_without_a_trusted_length_is_not_read_unless_the_policy_allows(
    spark_tables: SparkTables, tmp_path: Path
) -> None:
    def forget(fields: dict[str, Any]) -> None:
        fields["key_metadata"] = without_length(fields["key_metadata"])

    location = forged(spark_tables["types_avro"], tmp_path, manifest=forget)
    strict = _open(location).audit()
    (finding,) = strict.having("file-unreadable")
    assert "give `length_policy='metadata-hint'`" in finding.message
    assert strict.checked["unread_manifests"] == 1
    hinted = _open(location, length_policy="metadata-hint").audit()
    assert _codes(hinted) == {"file-without-length": 1}


@pytest.mark.parametrize(
    ("changes", "severity", "code", "message"),
    [
        ({"file_format": "ORC"}, "error", "file-format", "in the format orc, which Iceberg does not encrypt"),
        ({"file_size_in_bytes": 7}, "warning", "file-size-in-manifest", "the file above it says 7 bytes, and its key"),
        ({"key_metadata": b"\x01\x20short"}, "error", "file-unreadable", "the key metadata of "),
        ({"content": 9}, "error", "file-unreadable", "has a file with content 9, which this version does not know"),
    ],
)
def test_a_manifest_that_says_something_wrong_is_an_error(
    spark_tables: SparkTables, tmp_path: Path, changes: dict[str, Any], severity: str, code: str, message: str
) -> None:
    location = forged(spark_tables["types_avro"], tmp_path, entry=lambda fields: fields.update(changes))
    (finding,) = _open(location).audit().findings
    assert (finding.severity, finding.code) == (severity, code)
    assert message in finding.message
    assert "short" not in finding.message


def test_two_manifests_that_contradict_each_other_are_an_error(spark_tables: SparkTables, tmp_path: Path) -> None:
    seen = []

    def change(fields: dict[str, Any]) -> None:
        if seen:
            fields["key_metadata"] = without_length(fields["key_metadata"])
        seen.append(fields["file_path"])

    opened = _open(forged(spark_tables["types_avro"], tmp_path, entry=change, copies=2))
    (finding,) = opened.audit().having("file-conflict")
    assert finding.subject == seen[0]
    assert "have it with different key metadata" in finding.message
    with pytest.raises(FormatError, match="have it with different key metadata"):
        opened.files()


def test_statistics_that_iceberg_does_not_encrypt_are_noted(spark_tables: SparkTables, tmp_path: Path) -> None:
    def change(document: dict[str, Any]) -> None:
        document["statistics"] = [
            {
                "snapshot-id": document["current-snapshot-id"],
                "statistics-path": "s3://lake/stats.puffin",
                "file-size-in-bytes": 1,
                "file-footer-size-in-bytes": 1,
                "blob-metadata": [],
            }
        ]

    report = _open(changed_metadata(spark_tables["types"], tmp_path, change)).audit()
    assert report.ok
    assert _codes(report) == {"statistics-plaintext": 1}


# -- audit: keys ---------------------------------------------------------------------------------------------


def test_a_snapshot_whose_key_was_lost_is_named_with_its_key(spark_tables: SparkTables, tmp_path: Path) -> None:
    table = spark_tables["events"]
    snapshot = _current(table.document)

    def change(document: dict[str, Any]) -> None:
        document["encryption-keys"] = [
            each for each in document["encryption-keys"] if each["key-id"] != snapshot["key-id"]
        ]

    report = _open(changed_metadata(table, tmp_path, change)).audit()
    assert set(_codes(report)) == {"key-missing"}
    (finding,) = report.having("key-missing")
    assert (finding.code, finding.subject) == ("key-missing", snapshot["key-id"])
    assert f"snapshot {snapshot['snapshot-id']} names key {snapshot['key-id']!r}" in finding.message
    assert report.checked["unread_manifests"] == 1


def test_a_snapshot_without_a_key_is_an_error(spark_tables: SparkTables, tmp_path: Path) -> None:
    table = spark_tables["types"]
    opened = _open(changed_metadata(table, tmp_path, lambda document: _current(document).pop("key-id")))
    report = opened.audit()
    assert _codes(report) == {"snapshot-without-key": 1, "file-unreadable": 1, "key-unused": 1}
    assert "is an AGS1 stream, and the file above names no key for it" in report.having("file-unreadable")[0].message


def test_a_removed_key_encryption_key_is_named_for_every_key_under_it(
    spark_tables: SparkTables, tmp_path: Path
) -> None:
    table = spark_tables["types"]

    def change(document: dict[str, Any]) -> None:
        document["encryption-keys"].remove(_kek(document))

    report = _open(changed_metadata(table, tmp_path, change)).audit()
    assert _codes(report) == {"kek-missing": 2}
    assert report.checked["unread_manifests"] == 2
    kek_id = _kek(table.document)["key-id"]
    assert all(f"encrypted by key encryption key {kek_id!r}" in each.message for each in report.findings)


def test_a_kms_that_refuses_is_told_of_once(spark_tables: SparkTables) -> None:
    report = _open(spark_tables["events"].metadata, MemoryKms({"keyB": MASTER_KEYS["keyB"]})).audit()
    (finding,) = report.findings
    assert finding.code == "kek-does-not-open"
    assert "MemoryKms did not unwrap" in finding.message
    assert "8 entries under it cannot be opened" in finding.message
    assert report.checked["unread_manifests"] == 8


def test_without_a_kms_an_audit_says_that_it_could_open_nothing(spark_tables: SparkTables) -> None:
    report = open_table(spark_tables["types"].metadata, None).audit()
    assert _codes(report) == {"kek-does-not-open": 1}
    assert "no KMS was given; 2 entries under it cannot be opened" in report.findings[0].message


def test_a_master_key_that_is_not_the_tables_is_an_error(spark_tables: SparkTables, tmp_path: Path) -> None:
    location = changed_metadata(
        spark_tables["events"], tmp_path, lambda document: document["properties"].update({"encryption.key-id": "keyB"})
    )
    report = _open(location).audit()
    assert set(_codes(report)) == {"kek-other-master-key"}
    (finding,) = report.having("kek-other-master-key")
    assert "under master key 'keyA', not under the table's encryption.key-id 'keyB'" in finding.message


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, {"kek-without-timestamp": 1}),
        ({"KEY_TIMESTAMP": ""}, {"kek-without-timestamp": 1}),
        ({"KEY_TIMESTAMP": "1795245374984"}, {"key-does-not-open": 2}),
        ({"KEY_TIMESTAMP": "yesterday"}, {"key-does-not-open": 2, "kek-timestamp": 1}),
        ({"KEY_TIMESTAMP": "1000"}, {"key-does-not-open": 2, "kek-expired": 1}),
    ],
)
def test_a_timestamp_that_was_changed_is_told_of(
    spark_tables: SparkTables, tmp_path: Path, properties: dict[str, str], expected: dict[str, int]
) -> None:
    def change(document: dict[str, Any]) -> None:
        _kek(document)["properties"] = properties

    report = _open(changed_metadata(spark_tables["types"], tmp_path, change)).audit()
    assert _codes(report) == expected
    assert not report.ok


def test_a_timestamp_where_java_does_not_look_is_a_warning(spark_tables: SparkTables, tmp_path: Path) -> None:
    def change(document: dict[str, Any]) -> None:
        properties = _kek(document)["properties"]
        properties["key-timestamp"] = properties.pop("KEY_TIMESTAMP")

    report = _open(changed_metadata(spark_tables["types"], tmp_path, change)).audit()
    assert report.ok
    assert _codes(report) == {"kek-timestamp": 1}


def test_an_old_key_encryption_key_is_a_warning_after_730_days(spark_tables: SparkTables) -> None:
    table = spark_tables["types"]
    made = int(_kek(table.document)["properties"]["KEY_TIMESTAMP"]) / 1000
    opened = _open(table.metadata)

    def at(seconds: float) -> FindingsReport:
        return audit(walk(opened.metadata_location, opened.io), opened.io, clock=lambda: made + seconds)

    assert not at(729.9 * DAY).findings
    old = at(731 * DAY)
    assert old.ok
    assert _codes(old) == {"kek-expired": 1}
    assert "is 731 days old, more than 730" in old.findings[0].message
    assert not at(-0.9 * DAY).findings
    assert _codes(at(-2 * DAY)) == {"kek-from-the-future": 1}


def test_a_key_encryption_key_with_nothing_under_it_is_noted(spark_tables: SparkTables, tmp_path: Path) -> None:
    def change(document: dict[str, Any]) -> None:
        document["encryption-keys"].append({**_kek(document), "key-id": "lonely"})

    report = _open(changed_metadata(spark_tables["types"], tmp_path, change)).audit()
    (finding,) = report.findings
    assert (finding.severity, finding.code, finding.subject) == ("note", "kek-orphaned", "lonely")
    assert finding.message.endswith("has no entries under it; prune would drop it")


def test_a_damaged_entry_is_named(spark_tables: SparkTables, tmp_path: Path) -> None:
    table = spark_tables["types"]

    def change(document: dict[str, Any]) -> None:
        entry = document["encryption-keys"][-1]
        entry["encrypted-key-metadata"] = base64.b64encode(
            flip(base64.b64decode(entry["encrypted-key-metadata"]), 20)
        ).decode()

    report = _open(changed_metadata(table, tmp_path, change)).audit()
    (finding,) = report.findings
    assert (finding.code, finding.subject) == ("key-does-not-open", table.document["encryption-keys"][-1]["key-id"])
    assert report.checked["unread_manifests"] == 1


def test_a_snapshot_that_names_a_key_encryption_key_is_an_error(spark_tables: SparkTables, tmp_path: Path) -> None:
    def change(document: dict[str, Any]) -> None:
        _current(document)["key-id"] = _kek(document)["key-id"]

    report = _open(changed_metadata(spark_tables["types"], tmp_path, change)).audit()
    assert _codes(report, "error") == {"file-unreadable": 1}
    assert "is a key encryption key, not key metadata" in report.having("file-unreadable")[0].message


def test_metadata_that_does_not_list_its_snapshots_is_not_judged(spark_tables: SparkTables, tmp_path: Path) -> None:
    def change(document: dict[str, Any]) -> None:
        document["snapshots"] = [_current(document)]
        document["refs"] = {}

    report = _open(changed_metadata(spark_tables["types"], tmp_path, change)).audit()
    assert _codes(report) == {"keys-not-judged": 1}
    assert report.ok


# -- audit: properties ---------------------------------------------------------------------------------------


def test_keys_shorter_than_the_table_asks_for_are_warnings(spark_tables: SparkTables, tmp_path: Path) -> None:
    location = changed_metadata(
        spark_tables["types_avro"],
        tmp_path,
        lambda document: document["properties"].update({"encryption.data-key-length": "32"}),
    )
    opened = _open(location)
    report = opened.audit()
    assert report.ok
    # Every file, and the key encryption key.
    assert _codes(report) == {"key-length": opened.files("all").num_rows + 1}
    assert "its key has 128 bits, fewer than the 256 that the table's encryption.data-key-length asks for" in str(
        report
    )


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        ({"encryption.data-key-length": "17"}, "data-key-length", "is '17', and AES keys have 16, 24 or 32 bytes"),
        ({"encryption.data-key-length": "many"}, "data-key-length", "is 'many', and AES keys"),
        ({"encryption.key-id": ""}, "no-master-key-property", "has encryption-keys and no property encryption.key-id"),
    ],
)
def test_properties_that_no_engine_can_follow_are_errors(
    spark_tables: SparkTables, tmp_path: Path, change: dict[str, str], code: str, message: str
) -> None:
    location = changed_metadata(
        spark_tables["types_avro"], tmp_path, lambda document: document["properties"].update(change)
    )
    (finding,) = _open(location).audit().findings
    assert (finding.severity, finding.code) == ("error", code)
    assert message in finding.message


def test_encryption_in_a_table_of_format_version_2_is_an_error(spark_tables: SparkTables, tmp_path: Path) -> None:
    location = changed_metadata(
        spark_tables["types_avro"], tmp_path, lambda document: document.update({"format-version": 2})
    )
    (finding,) = _open(location).audit().findings
    assert finding.code == "format-version"
    assert "has format version 2, and encryption needs version 3" in finding.message


def test_the_tree_shows_how_much_of_a_snapshot_is_plaintext(spark_tables: SparkTables, table_kms: MemoryKms) -> None:
    mixed = str(open_table(spark_tables["mixed"].metadata, table_kms, allow_plaintext=True).tree())
    assert re.search(r"snapshot \d+ .*plaintext \[#+\.+\] 1 of 2 files, [\d,]+ of [\d,]+ bytes", mixed)
    whole = spark_tables.having("encrypted", "vectors")[0]
    text = str(open_table(whole.metadata, table_kms).tree())
    assert "all files encrypted" in text
    assert "plaintext [" not in text
