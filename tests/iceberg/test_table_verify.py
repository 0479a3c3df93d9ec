"""Every byte of a table is authenticated, and what fails is named: on tables that Spark made, sound and damaged."""

from __future__ import annotations

import json
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ags1.iceberg import EncryptedTable, UntrustedLengthWarning, open_table
from ags1.iceberg.files.file_io import EncryptedFileIO
from ags1.kms import MemoryKms
from ags1.support.reports import Finding, VerifyReport
from tests.checks import block_start, flip
from tests.iceberg.forged import changed_metadata, forged, without_length
from tests.iceberg.keys import MASTER_KEYS
from tests.iceberg.spark_tables import DEFINITIONS
from tests.iceberg.warehouse import SparkTable, SparkTables, local_path

WHOLE = [each.name for each in DEFINITIONS if "encrypted" in each.features and "plaintext files" not in each.features]
BLOCK = 1 << 20
MANIFESTS = ("manifest list", "manifest")


def _open(location: str, kms: Any = None, **options: Any) -> EncryptedTable:
    return open_table(location, MemoryKms(MASTER_KEYS) if kms is None else kms, **options)


def _rows(table: EncryptedTable, snapshot_id: Any = "all") -> list[dict[str, Any]]:
    return table.files(snapshot_id).to_pylist()


def _one_of(table: SparkTable, kind: str) -> str:
    return next(each["path"] for each in _rows(_open(table.metadata)) if each["kind"] == kind)


def _faults(report: VerifyReport) -> list[Finding]:
    """What makes the report not ok."""
    return [each for each in report.findings if each.severity in ("error", "violation")]


def _only(report: VerifyReport) -> Finding:
    assert not report.ok
    (found,) = _faults(report)
    return found


# -- sound tables --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WHOLE)
def test_every_file_that_spark_wrote_authenticates(spark_tables: SparkTables, name: str) -> None:
    opened = _open(spark_tables[name].metadata)
    rows = _rows(opened)
    report = opened.verify()
    assert report.ok
    assert report.counts.keys() <= {"partition-in-path", "levels-without-tags"}
    assert (report.outcome, report.checked["files"], report.facts["files"]) == ("authentic", len(rows), len(rows))
    assert report.facts["by_kind"] == Counter(each["kind"] for each in rows)
    assert report.checked["bytes"] == sum(each["stored_length"] for each in rows)
    assert (report.checked["modules"] > 0) == any(each["file_format"] == "parquet" for each in rows)
    assert str(report).splitlines()[0] == f"{spark_tables[name].metadata}: all authentic"
    assert json.loads(json.dumps(report.to_dict()))["checked"]["files"] == len(rows)


def test_blocks_of_large_files_are_counted(spark_tables: SparkTables) -> None:
    rows = _rows(_open(spark_tables["bulk_avro"].metadata))
    blocks = sum(-(-each["stored_length"] // (BLOCK + 28)) for each in rows)
    assert _open(spark_tables["bulk_avro"].metadata).verify().checked["blocks"] == blocks > 3


def test_one_snapshot_or_the_current_one_can_be_verified(spark_tables: SparkTables) -> None:
    table = spark_tables["events"]
    opened = _open(table.metadata)
    for wanted in (table.snapshots[0].id, None):
        report = opened.verify(wanted)
        assert report.facts["snapshots"] == 1
        assert report.checked["files"] == len(_rows(opened, wanted)) < len(_rows(opened))
    with pytest.raises(ValueError, match="the table has no snapshot 17"):
        opened.verify(17)


def test_each_file_is_opened_once_however_many_snapshots_have_it(
    spark_tables: SparkTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = _open(spark_tables["deletes"].metadata)
    seen: Counter[str] = Counter()
    read = EncryptedFileIO.source

    def counted(self: EncryptedFileIO, location: str, expected: int | None = None, **options: Any) -> Any:
        seen[location] += 1
        return read(self, location, expected, **options)

    rows = _rows(opened)
    assert max(len(each["snapshot_ids"]) for each in rows) > 5
    monkeypatch.setattr(EncryptedFileIO, "source", counted)
    assert opened.verify().ok
    assert seen == dict.fromkeys((opened.metadata_location, *(each["path"] for each in rows)), 1)


# -- threads and progress ------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 3, None])
def test_progress_grows_to_the_size_of_the_table(spark_tables: SparkTables, threads: int | None) -> None:
    opened = _open(spark_tables["events_avro"].metadata)
    told: list[tuple[int, int]] = []
    report = opened.verify(progress=lambda done, total: told.append((done, total or 0)), threads=threads)
    assert told == sorted(told)
    assert told[-1] == (report.checked["bytes"], report.checked["bytes"])
    assert {total for _, total in told} == {report.checked["bytes"]}


def test_no_more_files_are_checked_at_once_than_there_are_threads(spark_tables: SparkTables) -> None:
    names = set()
    _open(spark_tables["events"].metadata).verify(
        progress=lambda done, total: names.add(threading.current_thread().name), threads=2
    )
    assert names <= {threading.current_thread().name, "ags1-parallel_0", "ags1-parallel_1"}
    with pytest.raises(ValueError, match="threads must be at least 1, got 0"):
        _open(spark_tables["events"].metadata).verify(threads=0)


@pytest.mark.parametrize("error", [RuntimeError, OSError, ValueError, KeyboardInterrupt])
def test_an_exception_from_progress_stops_the_work_and_is_no_failure_of_a_file(
    spark_tables: SparkTables, error: type[BaseException]
) -> None:
    opened = _open(spark_tables["events"].metadata)
    told = []

    def progress(done: int, total: int | None) -> None:
        told.append(done)
        if len(told) == 3:
            raise error("enough")

    with pytest.raises(error, match="enough"):
        opened.verify(progress=progress)
    assert len(told) == 3
    assert opened.verify().ok


# -- damaged files -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("deletes", "manifest list"),
        ("deletes", "manifest"),
        ("deletes", "data"),
        ("deletes", "position deletes"),
        ("deletes", "equality deletes"),
        ("deletes", "deletion vectors"),
        ("deletes_avro", "data"),
        ("deletes_avro", "equality deletes"),
    ],
)
@pytest.mark.parametrize("place", ["first", "middle", "last"])
def test_a_flipped_bit_fails_its_file_and_no_other(spark_tables: SparkTables, name: str, kind: str, place: str) -> None:
    table = spark_tables[name]
    opened = _open(table.metadata)
    location = _one_of(table, kind)
    intact = local_path(location).read_bytes()
    whole = opened.verify()
    # Behind the magic of either format, so in the block length of AGS1, and in the end of Parquet's footer.
    position = {"first": 4, "middle": len(intact) // 2, "last": len(intact) - 10}[place]
    with table.damaged(location, flip(intact, position)):
        report = opened.verify()
    failure = _only(report)
    assert (failure.subject, failure.details["kind"]) == (location, kind)
    assert location in failure.message or str(local_path(location)) in failure.message
    assert location.rpartition("/")[2] in str(failure)
    # What only a damaged manifest names is not known; a header with another block length is no hindrance.
    assert (report.facts["files"] < whole.facts["files"]) == (kind == "manifest" and place != "first")
    assert report.checked["files"] == report.facts["files"] - 1
    assert opened.verify() == whole


@pytest.mark.parametrize("kind", ["manifest list", "manifest", "data", "deletion vectors"])
@pytest.mark.parametrize("position", range(8))
def test_every_byte_of_a_header_is_checked(spark_tables: SparkTables, kind: str, position: int) -> None:
    table = spark_tables["evolution_avro"]
    location = _one_of(table, kind)
    with table.damaged(location, flip(local_path(location).read_bytes(), position)):
        failure = _only(_open(table.metadata).verify())
        codes = set(_open(table.metadata).audit().counts)
    assert failure.subject == location
    assert failure.details["error"] in ("FormatError", "LimitError", "TruncatedError")
    # Spark wrote the partition values into the paths.
    codes.discard("partition-in-path")
    assert codes == (set() if kind not in MANIFESTS else {"file-block-length"} if position > 3 else {"file-unreadable"})


def test_blocks_that_fail_are_named(spark_tables: SparkTables) -> None:
    table = spark_tables["bulk_avro"]
    location = _one_of(table, "data")
    content = local_path(location).read_bytes()
    for block in (0, 2):
        content = flip(content, block_start(block, BLOCK) + 100)
    with table.damaged(location, content):
        failure = _only(_open(table.metadata).verify())
    assert failure.details["failed"] == 2
    assert (
        "2 of 3 blocks failed authentication (damaged, swapped, repeated or missing data): block 0, 2"
        in failure.message
    )


def test_modules_of_parquet_that_fail_are_counted(spark_tables: SparkTables) -> None:
    table = spark_tables["bulk"]
    location = _one_of(table, "data")
    content = local_path(location).read_bytes()
    with table.damaged(location, flip(flip(content, 5000), len(content) // 2)):
        failure = _only(_open(table.metadata).verify())
    assert failure.details["failed"] == 2
    assert failure.message.endswith(", and 1 more")


@pytest.mark.parametrize("kind", ["manifest list", "manifest", "data", "deletion vectors"])
@pytest.mark.parametrize("name", ["evolution", "evolution_avro"])
@pytest.mark.parametrize(
    ("damage", "errors"),
    [
        ("missing", {"FileNotFoundError"}),
        ("empty", {"TruncatedError", "FormatError"}),
        ("cut off", {"TruncatedError"}),
        ("longer", {"TruncatedError", "FormatError"}),
    ],
)
def test_a_file_of_another_length_fails(
    spark_tables: SparkTables, name: str, kind: str, damage: str, errors: set[str]
) -> None:
    table = spark_tables[name]
    location = _one_of(table, kind)
    path = local_path(location)
    intact = path.read_bytes()
    content = {"missing": b"", "empty": b"", "cut off": intact[:-29], "longer": intact + intact[8:]}[damage]
    with table.damaged(location, content):
        if damage == "missing":
            path.unlink()
        failure = _only(_open(table.metadata).verify())
    assert failure.subject == location
    assert failure.details["error"] in errors
    assert path.name in failure.message


@pytest.mark.parametrize(("name", "kind"), [("events", "data"), ("events_avro", "data"), ("events", "manifest")])
def test_a_file_in_the_place_of_another_fails(spark_tables: SparkTables, name: str, kind: str) -> None:
    table = spark_tables[name]
    rows = [each for each in _rows(_open(table.metadata)) if each["kind"] == kind]
    by_size: dict[int, list[str]] = {}
    for each in rows:
        by_size.setdefault(each["stored_length"], []).append(each["path"])
    # Two of one size if there are, so that only what is inside can tell.
    location, *others = max(by_size.values(), key=len)
    other = next(each for each in [*others, *(each["path"] for each in rows)] if each != location)
    with table.damaged(location, local_path(other).read_bytes()):
        failure = _only(_open(table.metadata).verify())
    assert failure.subject == location
    assert failure.code in ("damaged", "truncated")


def test_a_plaintext_file_in_the_place_of_an_encrypted_one_fails(spark_tables: SparkTables) -> None:
    table = spark_tables["evolution_avro"]
    location = _one_of(table, "data")
    size = local_path(location).stat().st_size
    with table.damaged(location, b"Obj\x01".ljust(size, b"\0")):
        failure = _only(_open(table.metadata, allow_plaintext=True).verify())
    assert (failure.subject, failure.details["error"]) == (location, "FormatError")


def test_several_files_that_fail_are_all_named_in_order(spark_tables: SparkTables) -> None:
    table = spark_tables["events"]
    opened = _open(table.metadata)
    rows = _rows(opened, None)
    vector = next(each["path"] for each in rows if each["kind"] == "deletion vectors")
    data = next(each["path"] for each in rows if each["kind"] == "data")
    kept = local_path(vector).read_bytes()
    with table.damaged(data, flip(local_path(data).read_bytes(), 50)):
        try:
            local_path(vector).write_bytes(flip(kept, 50))
            report = opened.verify()
        finally:
            local_path(vector).write_bytes(kept)
    assert [each.subject for each in _faults(report)] == [data, vector]
    assert report.checked["files"] == report.facts["files"] - 2
    assert str(report).count("\nerror: damaged: ") == 2
    assert "DAMAGED (2 errors)" in str(report)


# -- keys ----------------------------------------------------------------------------------------------------


def test_a_removed_key_encryption_key_fails_every_manifest_list(spark_tables: SparkTables, tmp_path: Path) -> None:
    table = spark_tables["types"]

    def change(document: dict[str, Any]) -> None:
        document["encryption-keys"] = [each for each in document["encryption-keys"] if "properties" not in each]

    report = _open(changed_metadata(table, tmp_path, change)).verify()
    assert [each.details["kind"] for each in report.findings] == ["manifest list"] * 2
    assert report.facts["files"] == 2
    for snapshot in table.document["snapshots"]:
        (failure,) = (each for each in report.findings if each.subject == snapshot["manifest-list"])
        assert f"snapshot {snapshot['snapshot-id']} (key-id {snapshot['key-id']!r})" in failure.message
        assert "is missing from encryption-keys" in failure.message
        assert failure.details["snapshot_ids"] == [snapshot["snapshot-id"]]


def test_a_lost_key_fails_its_snapshot_and_the_others_are_verified(spark_tables: SparkTables, tmp_path: Path) -> None:
    table = spark_tables["deletes"]
    last = table.document["snapshots"][-1]

    def change(document: dict[str, Any]) -> None:
        document["encryption-keys"] = [each for each in document["encryption-keys"] if each["key-id"] != last["key-id"]]

    report = _open(changed_metadata(table, tmp_path, change)).verify()
    assert _only(report).details["snapshot_ids"] == [last["snapshot-id"]]
    assert report.checked["files"] == report.facts["files"] - 1 > 15


@pytest.mark.parametrize("kms", [MemoryKms({"keyB": MASTER_KEYS["keyB"]}), None])
def test_without_the_master_key_nothing_is_verified(spark_tables: SparkTables, kms: MemoryKms | None) -> None:
    report = open_table(spark_tables["types_avro"].metadata, kms).verify()
    assert not report.ok
    assert report.checked["files"] == 0
    assert (report.outcome, report.exit_code, report.counts.keys()) == ("not checked", 3, {"key-missing"})


def test_metadata_without_key_ids_does_not_pass_for_a_plaintext_table(
    spark_tables: SparkTables, tmp_path: Path
) -> None:
    def change(document: dict[str, Any]) -> None:
        del document["encryption-keys"], document["properties"]["encryption.key-id"]
        for each in document["snapshots"]:
            del each["key-id"]

    location = changed_metadata(spark_tables["events"], tmp_path, change)
    assert (
        "the table is not encrypted, so nothing in it can be authenticated" in _only(_open(location).verify()).message
    )
    allowed = _open(location, allow_plaintext=True).verify()
    assert len(_faults(allowed)) == allowed.facts["files"] == 8


# -- plaintext, lengths, contradictions ----------------------------------------------------------------------


@pytest.mark.parametrize(("name", "count"), [("mixed", 1), ("added", 2), ("orc", 1)])
def test_plaintext_files_fail_unless_they_are_allowed(spark_tables: SparkTables, name: str, count: int) -> None:
    table = spark_tables[name]
    report = _open(table.metadata).verify()
    assert (report.outcome, report.exit_code, report.counts["plaintext"]) == ("not protected", 5, count)
    for each in report.having("plaintext"):
        assert "is not encrypted, although its table is: nothing in it can be authenticated" in each.message
    allowed = _open(table.metadata, allow_plaintext=True).verify()
    assert (allowed.ok, allowed.outcome, allowed.exit_code) == (False, "not protected", 5)
    assert (allowed.counts["plaintext"], allowed.checked["files"]) == (count, allowed.facts["files"] - count)
    assert "is not encrypted, which was allowed: only its size was checked" in str(allowed)


def test_an_allowed_plaintext_file_of_another_size_fails(spark_tables: SparkTables) -> None:
    table = spark_tables["events_plain"]
    path = table.files[0].path
    with table.damaged(path, path.read_bytes() + b"\0"):
        (failure,) = _open(table.metadata, allow_plaintext=True).verify().having("truncated")
    assert failure.subject.endswith(path.name)
    assert "but the file above it says" in failure.message


def test_a_plaintext_table_fails_as_a_whole(spark_tables: SparkTables) -> None:
    table = spark_tables["events_plain"]
    failure = _only(_open(table.metadata).verify())
    assert (failure.code, failure.subject) == ("table-not-encrypted", table.metadata)
    assert _open(table.metadata, allow_plaintext=True).verify().counts.keys() == {"plaintext"}


def test_files_without_a_trusted_length_are_verified_as_the_length_policy_says(
    spark_tables: SparkTables, tmp_path: Path
) -> None:
    def forget(fields: dict[str, Any]) -> None:
        fields["key_metadata"] = without_length(fields["key_metadata"])

    location = forged(spark_tables["types_avro"], tmp_path, entry=forget)
    assert "give `length_policy='metadata-hint'`" in _only(_open(location).verify()).message
    hinted = _open(location, length_policy="metadata-hint").verify()
    assert hinted.ok
    assert "untrusted-length" not in hinted.counts
    blind = _open(location, length_policy="file").verify()
    assert blind.ok
    assert (blind.outcome, blind.exit_code, blind.counts["untrusted-length"]) == ("not protected", 5, 1)
    assert "there is no trusted length, so blocks missing at the end are not detected" in str(blind)


def test_manifests_without_a_trusted_length_are_counted_too(spark_tables: SparkTables, tmp_path: Path) -> None:
    def forget(fields: dict[str, Any]) -> None:
        fields["key_metadata"] = without_length(fields["key_metadata"])

    location = forged(spark_tables["types_avro"], tmp_path, manifest=forget)
    with pytest.warns(UntrustedLengthWarning, match="opened without a trusted length"):
        report = _open(location, length_policy="file").verify()
    assert report.ok
    assert report.counts["untrusted-length"] == 1


def test_an_encrypted_file_of_a_format_without_encryption_fails(spark_tables: SparkTables, tmp_path: Path) -> None:
    location = forged(spark_tables["types_avro"], tmp_path, entry=lambda fields: fields.update(file_format="ORC"))
    assert "encrypted files of the format orc are not supported" in _only(_open(location).verify()).message


def test_two_manifests_that_contradict_each_other_fail_the_file(spark_tables: SparkTables, tmp_path: Path) -> None:
    seen = []

    def change(fields: dict[str, Any]) -> None:
        if seen:
            fields["key_metadata"] = without_length(fields["key_metadata"])
        seen.append(fields["file_path"])

    report = _open(forged(spark_tables["types_avro"], tmp_path, entry=change, copies=2)).verify()
    assert _only(report).subject == seen[0]
    assert "have it with different key metadata" in _only(report).message
