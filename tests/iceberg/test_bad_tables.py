"""Damaged, forged and foreign tables: each is refused by name, and nothing in them is skipped silently."""

from __future__ import annotations

import base64
import json
import random
import warnings
from pathlib import Path
from typing import Any

import pytest

import ags1
from ags1 import Ags1Error, AuthenticationError, FormatError, KeyAccessError, TruncatedError
from ags1.iceberg import EncryptedTable, UntrustedLengthWarning, open_table
from ags1.kms import MemoryKms
from tests.iceberg.canonical import arrow_rows
from tests.iceberg.rebuilt import RebuiltTable
from tests.iceberg.warehouse import SparkTables, local_path

KINDS = ["types", "types_avro"]


@pytest.fixture
def rebuilt(spark_tables: SparkTables, table_kms: MemoryKms, tmp_path: Path) -> RebuiltTable:
    return RebuiltTable(spark_tables["deletes"], tmp_path, table_kms)


@pytest.fixture(params=KINDS)
def copied(request: Any, spark_tables: SparkTables, table_kms: MemoryKms, tmp_path: Path) -> RebuiltTable:
    """A table of a few data files, in Parquet or Avro."""
    return RebuiltTable(spark_tables[request.param], tmp_path, table_kms)


def refuses(table: EncryptedTable, kind: type[Exception], message: str, *, count: bool = True) -> str:
    """Every way to rows ends in that error; return what it says."""
    ways = {"to_arrow": table.scan().to_arrow, "batches": lambda: table.scan().to_record_batches().read_all()}
    if count:
        ways["count"] = table.scan().count  # type: ignore[assignment]
    said = ""
    for read in ways.values():
        with pytest.raises(kind, match=message) as caught:
            read()
        said = str(caught.value)
    return said


def flipped(data: bytes, offset: int) -> bytes:
    damaged = bytearray(data)
    damaged[offset] ^= 1
    return bytes(damaged)


# -- keys -----------------------------------------------------------------------------------------------------


def test_a_snapshots_key_that_is_not_in_the_list_is_named(rebuilt: RebuiltTable, table_kms: MemoryKms) -> None:
    rebuilt.write()
    rebuilt.snapshot["key-id"] = "lost key"
    table = open_table(rebuilt.write_metadata(), table_kms)
    said = refuses(table, KeyAccessError, "encryption-keys has no entry 'lost key'")
    assert f"snapshot {rebuilt.snapshot['snapshot-id']} (key-id 'lost key')" in said


def test_a_key_that_no_longer_unwraps_is_named(rebuilt: RebuiltTable, table_kms: MemoryKms) -> None:
    rebuilt.write()
    damaged = []
    for entry in rebuilt.document["encryption-keys"]:
        if entry["encrypted-by-id"] == "keyA":
            wrapped = base64.b64decode(entry["encrypted-key-metadata"])
            entry["encrypted-key-metadata"] = base64.b64encode(flipped(wrapped, 20)).decode()
            damaged.append(entry["key-id"])
    assert damaged
    said = refuses(open_table(rebuilt.write_metadata(), table_kms), KeyAccessError, "did not unwrap key encryption key")
    assert f"snapshot {rebuilt.snapshot['snapshot-id']}" in said
    assert any(f"{key_id!r} under master key 'keyA'" in said for key_id in damaged)


def test_a_key_of_the_list_that_was_changed_is_named(rebuilt: RebuiltTable, table_kms: MemoryKms) -> None:
    rebuilt.write()
    for entry in rebuilt.document["encryption-keys"]:
        if entry["key-id"] == rebuilt.snapshot["key-id"]:
            wrapped = base64.b64decode(entry["encrypted-key-metadata"])
            entry["encrypted-key-metadata"] = base64.b64encode(flipped(wrapped, 20)).decode()
    table = open_table(rebuilt.write_metadata(), table_kms)
    said = refuses(table, AuthenticationError, f"snapshot {rebuilt.snapshot['snapshot-id']}")
    assert repr(rebuilt.snapshot["key-id"]) in said


# -- manifest lists and manifests -----------------------------------------------------------------------------


def test_a_manifest_in_the_place_of_another_is_refused(rebuilt: RebuiltTable, table_kms: MemoryKms) -> None:
    table = open_table(rebuilt.write(), table_kms)
    first, second = rebuilt.manifest_path(0), rebuilt.manifest_path(1)
    first.write_bytes(second.read_bytes())
    refuses(table, Ags1Error, r"manifest-0\.avro: ")


def test_a_manifest_of_the_same_length_in_the_place_of_another_is_refused(
    rebuilt: RebuiltTable, table_kms: MemoryKms
) -> None:
    table = open_table(rebuilt.write(), table_kms)
    path = rebuilt.manifest_path(0)
    other = ags1.encrypt(bytes(path.stat().st_size - 36), bytes(16))
    assert len(other) == path.stat().st_size
    path.write_bytes(other)
    refuses(table, AuthenticationError, r"manifest-0\.avro: block 0 failed authentication")


def test_a_manifest_list_of_another_snapshot_is_refused(spark_tables: SparkTables, table_kms: MemoryKms) -> None:
    table = spark_tables["events"]
    snapshots = {each["snapshot-id"]: each["manifest-list"] for each in table.document["snapshots"]}
    path = snapshots.pop(table.document["current-snapshot-id"])
    for other in snapshots.values():
        with table.damaged(path, local_path(other).read_bytes()):
            refuses(open_table(table.metadata, table_kms), Ags1Error, local_path(path).name)


@pytest.mark.parametrize("left", [0, 4, 8, 35, 36, -1, -28])
@pytest.mark.parametrize("which", ["list", "manifest"])
def test_a_manifest_that_was_cut_off_is_refused(
    rebuilt: RebuiltTable, table_kms: MemoryKms, which: str, left: int
) -> None:
    table = open_table(rebuilt.write(), table_kms)
    path = rebuilt.list_path if which == "list" else rebuilt.manifest_path(0)
    path.write_bytes(path.read_bytes()[:left])
    refuses(table, TruncatedError, path.name)


def test_a_manifest_with_more_at_its_end_is_refused(rebuilt: RebuiltTable, table_kms: MemoryKms) -> None:
    table = open_table(rebuilt.write(), table_kms)
    path = rebuilt.manifest_path(0)
    path.write_bytes(path.read_bytes() + bytes(40))
    refuses(table, Ags1Error, r"manifest-0\.avro")


def test_a_manifest_that_is_not_there_is_an_error_of_the_file_system(
    rebuilt: RebuiltTable, table_kms: MemoryKms
) -> None:
    table = open_table(rebuilt.write(), table_kms)
    rebuilt.manifest_path(0).unlink()
    refuses(table, FileNotFoundError, r"manifest-0\.avro")


@pytest.mark.parametrize("which", ["list", "manifest"])
def test_plaintext_where_encryption_is_promised_is_refused(
    rebuilt: RebuiltTable, table_kms: MemoryKms, which: str
) -> None:
    table = open_table(rebuilt.write(), table_kms)
    path, content = (
        (rebuilt.list_path, rebuilt.listed) if which == "list" else (rebuilt.manifest_path(0), rebuilt.manifests[0])
    )
    path.write_bytes(content.encode())
    refuses(table, Ags1Error, path.name)


def test_metadata_that_takes_the_promise_back_for_a_snapshot_is_refused(
    rebuilt: RebuiltTable, table_kms: MemoryKms, spark_tables: SparkTables
) -> None:
    location = rebuilt.write(encrypted=False)
    said = refuses(open_table(location, table_kms), KeyAccessError, r"list\.avro: this manifest list file is not encr")
    assert "allow_plaintext=True" in said
    allowed = open_table(location, table_kms, allow_plaintext=True).scan().to_arrow()
    assert spark_tables["deletes"].current is not None
    assert arrow_rows(allowed) == spark_tables["deletes"].current.rows


def test_a_file_that_a_manifest_calls_plaintext_is_refused(rebuilt: RebuiltTable, table_kms: MemoryKms) -> None:
    file = rebuilt.data_files[0]
    file["key_metadata"] = None
    location = rebuilt.write()
    said = refuses(open_table(location, table_kms), KeyAccessError, "this data file is not encrypted")
    assert file["file_path"] in said
    refuses(open_table(location, table_kms, allow_plaintext=True), FormatError, local_path(file["file_path"]).name)


# -- hostile manifests ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"", b"Obj\x01", b"rubbish", b"Obj\x01\x02\x16avro.schema\x04{}\x00" + bytes(16)])
def test_a_manifest_that_is_no_avro_is_refused(rebuilt: RebuiltTable, table_kms: MemoryKms, content: bytes) -> None:
    table = open_table(rebuilt.write(contents={0: content}), table_kms)
    refuses(table, FormatError, r"manifest-0\.avro: .*Avro")


def test_garbage_in_a_manifest_is_never_another_error(
    spark_tables: SparkTables, table_kms: MemoryKms, tmp_path: Path
) -> None:
    rebuilt = RebuiltTable(spark_tables["types"], tmp_path, table_kms)
    intact = rebuilt.manifests[0].encode()
    generator, refused = random.Random(11), 0
    for _ in range(60):
        content = bytearray(intact)
        for _ in range(generator.randrange(1, 5)):
            content[generator.randrange(len(content))] = generator.randrange(256)
        table = open_table(rebuilt.write(contents={0: bytes(content)}), table_kms)
        try:
            table.scan().plan_files()
        except Ags1Error:
            refused += 1
        except FileNotFoundError:
            continue
    assert refused > 20


def test_records_without_content_have_an_end(rebuilt: RebuiltTable, table_kms: MemoryKms) -> None:
    schema = b'{"type":"record","name":"r","fields":[{"name":"n","type":"null","field-id":2}]}'
    head = b"Obj\x01\x02\x16avro.schema" + b"\x9e\x01" + schema + b"\x00" + bytes(16)
    assert len(schema) == 79
    many = head + b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f" + b"\x00" + bytes(16)
    refuses(open_table(rebuilt.write(contents={0: many}), table_kms), FormatError, r"manifest-0\.avro: ")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"file_format": "LANCE"}, "data files of the format 'lance' are not read"),
        ({"file_format": "PUFFIN"}, "data files of the format 'puffin' are not read"),
        ({"file_format": "ORC"}, "encrypted files of the format orc are not supported"),
        ({"content": 7}, r"manifest-0\.avro: has a file with content 7, which this version does not know"),
        ({"key_metadata": b"\x05abc"}, "the key metadata of .* cannot be read: .*only version 1 is known"),
        ({"key_metadata": b""}, "the key metadata of .* cannot be read"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(
    spark_tables: SparkTables, table_kms: MemoryKms, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    rebuilt = RebuiltTable(spark_tables["types"], tmp_path, table_kms)
    rebuilt.data_files[0].update(change)
    path = rebuilt.data_files[0]["file_path"]
    said = refuses(
        open_table(rebuilt.write(), table_kms), FormatError, message, count=change.get("file_format") != "ORC"
    )
    assert path in said or "content" in change


@pytest.mark.parametrize(
    ("field", "kind", "value"),
    [
        ("file_path", "bytes", b"file:/x"),
        ("record_count", "string", "7"),
        ("file_size_in_bytes", "double", 7.0),
        ("key_metadata", ["null", "string"], "key"),
        ("split_offsets", {"type": "array", "items": "string"}, ["4"]),
        ("value_counts", {"type": "map", "values": "long"}, {"1": 7}),
        ("partition", "string", "eu"),
    ],
)
def test_a_manifest_whose_fields_have_other_types_is_refused(
    rebuilt: RebuiltTable, table_kms: MemoryKms, field: str, kind: Any, value: Any
) -> None:
    (file,) = (each["type"] for each in rebuilt.manifests[0].schema["fields"] if each["name"] == "data_file")
    (found,) = (each for each in file["fields"] if each["name"] == field)
    found["type"] = kind
    found.pop("default", None)
    for entry in rebuilt.manifests[0].records:
        entry["data_file"][field] = value
    table = open_table(rebuilt.write(), table_kms)
    message = rf"manifest-0\.avro: its field {field} is "
    if field == "value_counts":
        # Without a filter nobody reads it.
        with pytest.raises(FormatError, match=message):
            table.scan(row_filter=f"{table.schema.fields[0].name} is not null").plan_files()
        return
    refuses(table, FormatError, message)
    assert not table.verify().ok


def test_a_delete_file_among_data_files_is_refused(rebuilt: RebuiltTable, table_kms: MemoryKms) -> None:
    rebuilt.manifests[0].records[0]["data_file"]["content"] = 1
    table = open_table(rebuilt.write(), table_kms)
    path = rebuilt.data_files[0]["file_path"]
    assert path in refuses(table, FormatError, r"manifest-0\.avro: has .* as position deletes, and is not for these")


def test_a_file_without_an_age_is_refused(rebuilt: RebuiltTable, table_kms: MemoryKms) -> None:
    entry = rebuilt.manifests[0].records[0]
    # Only files that were added inherit their manifest's number.
    entry.update(status=0, sequence_number=None)
    said = refuses(open_table(rebuilt.write(), table_kms), FormatError, "its manifest has no sequence number for it")
    assert entry["data_file"]["file_path"] in said


def test_a_data_file_that_is_not_there_is_an_error_of_the_file_system(
    copied: RebuiltTable, table_kms: MemoryKms
) -> None:
    path = copied.copy_files()[0]
    table = open_table(copied.write(), table_kms)
    path.unlink()
    refuses(table, FileNotFoundError, path.name, count=False)


# -- data files -----------------------------------------------------------------------------------------------


def test_copied_files_are_read(copied: RebuiltTable, table_kms: MemoryKms) -> None:
    assert len(copied.copy_files()) > 1
    assert open_table(copied.write(), table_kms).scan().to_arrow().num_rows == 8


def test_a_data_file_in_the_place_of_another_is_refused(copied: RebuiltTable, table_kms: MemoryKms) -> None:
    first, second = copied.copy_files()[:2]
    table = open_table(copied.write(), table_kms)
    first.write_bytes(second.read_bytes())
    refuses(table, Ags1Error, first.name, count=False)


@pytest.mark.parametrize("left", [0, 3, 8, 40, -1, -4, -8, -60])
def test_a_data_file_that_was_cut_off_is_refused(copied: RebuiltTable, table_kms: MemoryKms, left: int) -> None:
    path = copied.copy_files()[0]
    table = open_table(copied.write(), table_kms)
    path.write_bytes(path.read_bytes()[:left])
    refuses(table, FormatError, path.name, count=False)


def test_a_changed_bit_of_a_data_file_is_refused(copied: RebuiltTable, table_kms: MemoryKms) -> None:
    path = copied.copy_files()[0]
    table = open_table(copied.write(), table_kms)
    intact = path.read_bytes()
    for offset in (4, 60, 300, len(intact) - 30):
        path.write_bytes(flipped(intact, offset))
        refuses(table, Ags1Error, path.name, count=False)
    path.write_bytes(intact)
    assert table.scan().to_arrow().num_rows == 8


def test_a_plaintext_data_file_where_encryption_is_promised_is_refused(
    copied: RebuiltTable, table_kms: MemoryKms
) -> None:
    path = copied.copy_files()[0]
    table = open_table(copied.write(), table_kms)
    path.write_bytes(b"PAR1" + bytes(path.stat().st_size - 8) + b"PAR1")
    refuses(table, Ags1Error, path.name, count=False)


# -- metadata -------------------------------------------------------------------------------------------------


def test_tables_of_version_1_and_2_open(spark_tables: SparkTables, tmp_path: Path) -> None:
    plain = spark_tables["events_plain"]
    assert plain.document["format-version"] == 2
    assert plain.current is not None
    assert arrow_rows(open_table(plain.metadata, None, allow_plaintext=True).scan().to_arrow()) == plain.current.rows
    schema = {"type": "struct", "fields": [{"id": 1, "name": "id", "required": False, "type": "long"}]}
    first = {
        "format-version": 1,
        "location": str(tmp_path),
        "last-updated-ms": 0,
        "last-column-id": 1,
        "schema": schema,
        "partition-spec": [],
    }
    path = tmp_path / "v1.metadata.json"
    path.write_text(json.dumps(first))
    assert open_table(str(path), None).scan().to_arrow().column_names == ["id"]


def test_a_snapshot_without_a_manifest_list_is_refused(rebuilt: RebuiltTable, table_kms: MemoryKms) -> None:
    rebuilt.write()
    del rebuilt.snapshot["manifest-list"]
    rebuilt.snapshot["manifests"] = ["file:/somewhere.avro"]
    table = open_table(rebuilt.write_metadata(), table_kms)
    with pytest.raises(FormatError, match="has no manifest list: tables that name manifests in the metadata itself"):
        table.scan().to_arrow()


@pytest.mark.parametrize("version", [0, 4, 99, "3x", None])
def test_a_format_version_that_is_not_known_is_refused(
    rebuilt: RebuiltTable, table_kms: MemoryKms, version: Any
) -> None:
    rebuilt.write()
    rebuilt.document["format-version"] = version
    message = rf"\.metadata\.json: PyIceberg cannot read .*: format version {version} is not one that it reads, which "
    with pytest.raises(FormatError, match=message) as caught:
        open_table(rebuilt.write_metadata(), table_kms)
    assert "encryption-keys" not in str(caught.value)


def test_fields_of_metadata_that_are_not_known_do_no_harm(rebuilt: RebuiltTable, table_kms: MemoryKms) -> None:
    rebuilt.write()
    rebuilt.document["a-new-field"] = {"deep": [1]}
    rebuilt.snapshot["another"] = True
    rebuilt.document["encryption-keys"][0]["third"] = "x"
    table = open_table(rebuilt.write_metadata(), table_kms)
    assert table.scan().count() == 37


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not a JSON object"),
        (b"{", "is not JSON"),
        (b"[]", "is not a JSON object"),
        (b"\xff", "is not UTF-8"),
        (b"{}", "PyIceberg cannot read this table's metadata: format-version"),
        (b'{"format-version": 3}', r"PyIceberg cannot read .*: 3\.location: Field required \(and 1 more\)"),
        (b'{"format-version": 3, "encryption-keys": 5}', "encryption-keys"),
        (b'{"format-version": 3, "snapshots": [1]}', "a snapshot must be a JSON object"),
        (b"AGS1" + bytes(40), "is not"),
    ],
)
def test_a_file_that_is_no_metadata_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "00000.metadata.json"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=message) as caught:
        open_table(str(path), None)
    assert str(path) in str(caught.value)


def test_metadata_that_is_not_there_is_an_error_of_the_file_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nothing\.metadata\.json"):
        open_table(str(tmp_path / "nothing.metadata.json"), None)


# -- lengths --------------------------------------------------------------------------------------------------


@pytest.fixture(params=["deletes", "deletes_avro"])
def without_lengths(
    request: Any, spark_tables: SparkTables, table_kms: MemoryKms, tmp_path: Path
) -> tuple[RebuiltTable, str, list[Any]]:
    """A table as iceberg-rust would write it, its metadata, and its rows."""
    table = spark_tables[request.param]
    rebuilt = RebuiltTable(table, tmp_path, table_kms)
    assert table.current is not None
    return rebuilt, rebuilt.write(with_lengths=False), table.current.rows


def test_files_without_a_trusted_length_are_refused(
    without_lengths: tuple[RebuiltTable, str, list[Any]], table_kms: MemoryKms
) -> None:
    _, location, _ = without_lengths
    message = r"list\.avro: the key metadata of this manifest list has no file length.*give `length_policy="
    refuses(open_table(location, table_kms), FormatError, message)


def test_nothing_says_how_long_a_manifest_list_is(
    without_lengths: tuple[RebuiltTable, str, list[Any]], table_kms: MemoryKms
) -> None:
    _, location, _ = without_lengths
    table = open_table(location, table_kms, length_policy="metadata-hint")
    refuses(table, FormatError, r"list\.avro: nothing authenticated says how long .* only `length_policy='file'`")


def test_the_length_of_the_file_is_taken_with_a_warning(
    without_lengths: tuple[RebuiltTable, str, list[Any]], table_kms: MemoryKms
) -> None:
    rebuilt, location, rows = without_lengths
    table = open_table(location, table_kms, length_policy="file")
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        found = table.scan().to_arrow()
    assert arrow_rows(found) == rows
    said = {str(each.message) for each in warned if each.category is UntrustedLengthWarning}
    for path in (rebuilt.list_path, *map(rebuilt.manifest_path, range(len(rebuilt.manifests)))):
        assert any(each.startswith(f"{path.as_uri()}: opened without a trusted length") for each in said)


def test_a_hint_is_enough_below_a_manifest_list_with_a_length(
    spark_tables: SparkTables, table_kms: MemoryKms, tmp_path: Path
) -> None:
    rebuilt = RebuiltTable(spark_tables["deletes_avro"], tmp_path, table_kms)
    for file in rebuilt.data_files:
        key = ags1.KeyMetadata.decode(file["key_metadata"])
        file["key_metadata"] = key.with_length(None).encode()
    location = rebuilt.write()
    refuses(open_table(location, table_kms), FormatError, "the key metadata of this .* has no file length")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert open_table(location, table_kms, length_policy="metadata-hint").scan().to_arrow().num_rows == 37


@pytest.mark.filterwarnings("ignore::ags1.iceberg.UntrustedLengthWarning")
@pytest.mark.parametrize("policy", ["metadata-hint", "file"])
def test_a_file_that_is_shorter_than_its_hint_is_refused(
    spark_tables: SparkTables, table_kms: MemoryKms, tmp_path: Path, policy: str
) -> None:
    rebuilt = RebuiltTable(spark_tables["types_avro"], tmp_path, table_kms)
    path = rebuilt.copy_files()[0]
    for file in rebuilt.data_files:
        key = ags1.KeyMetadata.decode(file["key_metadata"])
        file["key_metadata"] = key.with_length(None).encode()
    table = open_table(rebuilt.write(), table_kms, length_policy=policy)
    assert table.scan().to_arrow().num_rows == 8
    path.write_bytes(path.read_bytes()[:-1])
    refuses(table, TruncatedError, rf"{path.name}: has [0-9]+ bytes, but the file above it says", count=False)


def test_a_policy_that_is_not_known_is_refused() -> None:
    with pytest.raises(ValueError, match="length_policy must be 'trusted', 'metadata-hint' or 'file', not 'none'"):
        open_table("nowhere.metadata.json", None, length_policy="none")
