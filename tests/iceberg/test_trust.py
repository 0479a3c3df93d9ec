"""Nothing of a table that is encrypted, or must be, is read as plaintext or as another snapshot's without a word."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import StaticTable

import ags1
from ags1.cli import main
from ags1.iceberg import EncryptedFileIO, open_table
from ags1.iceberg.metadata.metadata_document import PYTHON_NAMES
from ags1.kms import MemoryKms
from tests.iceberg.canonical import arrow_rows
from tests.iceberg.keys import keystore
from tests.iceberg.rebuilt import RebuiltTable
from tests.iceberg.warehouse import SparkTable, SparkTables, local_path

LIST_FIELD = "manifest-list"


@pytest.fixture
def keys_url(tmp_path: Path) -> str:
    """A KMS for the command line, with the tables' keys."""
    return keystore(tmp_path)


def plaintext(table: SparkTable, directory: Path, kms: Any) -> RebuiltTable:
    """The table with plaintext manifests and rows, as somebody forges it who has no key."""
    rebuilt = RebuiltTable(table, directory, kms)
    source = directory / "forged.parquet"
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"}),
            pa.field("text", pa.string(), metadata={"PARQUET:field_id": "2"}),
        ]
    )
    pq.write_table(pa.table({"id": [666], "text": ["forged"]}, schema=schema), source)
    for manifest in rebuilt.manifests:
        for entry in manifest.records:
            entry["data_file"].update(
                file_path=source.as_uri(),
                file_size_in_bytes=source.stat().st_size,
                key_metadata=None,
                record_count=1,
                split_offsets=None,
                lower_bounds=None,
                upper_bounds=None,
            )
    rebuilt.write(encrypted=False)
    return rebuilt


def spelled_otherwise(table: RebuiltTable) -> None:
    """The field of the snapshot that PyIceberg takes under another name."""
    table.snapshot["manifest_list"] = table.snapshot.pop(LIST_FIELD)


def nothing(table: RebuiltTable) -> None:
    """Leave it."""


def without_claims(table: RebuiltTable) -> None:
    """Nothing is left that says that the table is encrypted."""
    table.document["properties"].pop("encryption.key-id")
    table.document["encryption-keys"] = []


def only_old_key(table: RebuiltTable) -> None:
    """Only another snapshot has a key."""
    without_claims(table)
    other = {"snapshot-id": 5, "sequence-number": 0, "timestamp-ms": 1, "summary": {"operation": "append"}}
    table.document["snapshots"].append({**other, LIST_FIELD: "file:/no/such.avro", "key-id": "gone", "schema-id": 0})


@pytest.mark.parametrize("name", ["t.metadata.json", "t.json", "t", "t.gz.metadata.json", "t.metadata.json.gz"])
@pytest.mark.parametrize("spell", [nothing, spelled_otherwise])
@pytest.mark.parametrize(
    ("forget", "pinned"), [(nothing, False), (nothing, True), (without_claims, True), (only_old_key, False)]
)
def test_forged_plaintext_is_refused(
    name: str,
    spell: Callable[[RebuiltTable], None],
    forget: Callable[[RebuiltTable], None],
    pinned: bool,
    spark_tables: SparkTables,
    table_kms: MemoryKms,
    tmp_path: Path,
    keys_url: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    table = plaintext(spark_tables["emptied"], tmp_path, table_kms)
    forget(table)
    spell(table)
    text = json.dumps(table.document).encode()
    path = tmp_path / name
    path.write_bytes(gzip.compress(text) if "gz" in name else text)
    options: dict[str, Any] = {"table_key_id": "keyA"} if pinned else {}
    refused = (ags1.KeyAccessError, ags1.FormatError)
    with pytest.raises(refused):
        open_table(str(path), table_kms, **options).scan().to_arrow()
    properties = {"py-io-impl": "ags1.iceberg.EncryptedFileIO", "ags1.kms": keys_url}
    if pinned:
        properties["ags1.table-key-id"] = "keyA"
    # PyIceberg takes other names for those of directories.
    with pytest.raises((*refused, OSError)):
        StaticTable.from_metadata(str(path), properties).scan().to_arrow()
    arguments = ["iceberg", "scan", str(path), "--kms", keys_url, *(["--expected-key-id", "keyA"] if pinned else [])]
    assert main(arguments) != 0
    assert "forged" not in capsys.readouterr().out


def test_plaintext_that_was_allowed_is_read(spark_tables: SparkTables, table_kms: MemoryKms, tmp_path: Path) -> None:
    table = plaintext(spark_tables["maintained"], tmp_path, table_kms)
    location = table.write_metadata()
    opened = open_table(location, table_kms, allow_plaintext=True, table_key_id="keyA")
    assert {row[1] for row in arrow_rows(opened.scan().to_arrow())} == {"forged"}


@pytest.mark.parametrize("content", [b"Obj\x01", b"PAR1", b"anything", b""])
def test_a_file_that_nothing_names_is_refused(
    content: bytes, spark_tables: SparkTables, table_kms: MemoryKms, tmp_path: Path
) -> None:
    path = tmp_path / "unnamed"
    path.write_bytes(content)
    pinned = EncryptedFileIO({"ags1.table-key-id": "keyA"}, kms=table_kms)
    read = open_table(spark_tables["maintained"].metadata, table_kms, allowed_locations=[str(tmp_path)]).io
    for file_io in (pinned, read, EncryptedFileIO({})):
        for seekable in (True, False):
            with pytest.raises(ags1.KeyAccessError, match="unnamed: nothing that was read of the table names this"):
                file_io.new_input(str(path)).open(seekable)
    allowed = EncryptedFileIO({"ags1.table-key-id": "keyA", "ags1.allow-plaintext": "true"}, kms=table_kms)
    with allowed.new_input(str(path)).open() as file:
        assert file.read() == content


def test_every_name_that_pyiceberg_takes_besides_is_known() -> None:
    import pyiceberg.table.metadata  # noqa: F401  makes the classes
    from pyiceberg.typedef import IcebergBaseModel

    modules = ("table.metadata", "types", "schema", "partitioning", "sorting", "snapshots", "refs", "statistics")
    waiting, named = [IcebergBaseModel], set()
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        if kind.__module__.removeprefix("pyiceberg.").removeprefix("table.") in {
            each.removeprefix("table.") for each in modules
        }:
            named |= {name for name, field in kind.model_fields.items() if field.alias not in (None, name)}
    assert named - PYTHON_NAMES == set()
    assert not {name for name in PYTHON_NAMES if "_" not in name}


@pytest.mark.parametrize("swapped", [(LIST_FIELD, "key-id"), (LIST_FIELD,), ("key-id",), ("sequence-number",)])
def test_manifest_lists_that_were_exchanged_are_noticed(
    swapped: tuple[str, ...], spark_tables: SparkTables, table_kms: MemoryKms, tmp_path: Path
) -> None:
    document = json.loads(json.dumps(spark_tables["events"].document))
    one, other = document["snapshots"][1], document["snapshots"][4]
    for field in swapped:
        one[field], other[field] = other[field], one[field]
    path = tmp_path / "00099-swapped.metadata.json"
    path.write_text(json.dumps(document))
    table = open_table(str(path), table_kms)
    for snapshot in (one, other):
        number = snapshot["snapshot-id"]
        # Of one field alone the keys or the lengths do not fit either.
        fault = ags1.Ags1Error if swapped in ((LIST_FIELD,), ("key-id",)) else ags1.AuthenticationError
        with pytest.raises(fault):
            table.scan(snapshot_id=number).to_arrow()
        with pytest.raises(fault):
            table.files(number)
        report = table.verify(number)
        assert not report.ok
        assert [each.details["kind"] for each in report.findings] == ["manifest list"]
        assert "file-unreadable" in {each.code for each in table.audit(number).findings if each.severity == "error"}


def test_a_snapshot_that_has_the_manifest_list_of_another_is_noticed(
    spark_tables: SparkTables, table_kms: MemoryKms, tmp_path: Path
) -> None:
    document = json.loads(json.dumps(spark_tables["events"].document))
    one, other = document["snapshots"][1], document["snapshots"][4]
    one.update({name: other[name] for name in (LIST_FIELD, "key-id", "sequence-number")})
    path = tmp_path / "00099-twice.metadata.json"
    path.write_text(json.dumps(document))
    table = open_table(str(path), table_kms)
    with pytest.raises(ags1.AuthenticationError, match="somebody exchanged them"):
        table.scan(snapshot_id=one["snapshot-id"]).to_arrow()
    assert not table.verify(one["snapshot-id"]).ok
    assert not table.audit(one["snapshot-id"]).ok


def test_a_manifest_list_that_does_not_say_of_which_snapshot_it_is_is_read_and_told_of(
    spark_tables: SparkTables, table_kms: MemoryKms, tmp_path: Path
) -> None:
    table = RebuiltTable(spark_tables["maintained"], tmp_path, table_kms)
    del table.listed.metadata["snapshot-id"]
    opened = open_table(table.write(), table_kms)
    current = spark_tables["maintained"].current
    assert current is not None
    assert arrow_rows(opened.scan().to_arrow()) == current.rows
    assert len(opened.audit().having("list-without-snapshot")) == 1


def test_a_hash_authenticates_the_metadata(
    spark_tables: SparkTables,
    table_kms: MemoryKms,
    tmp_path: Path,
    keys_url: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    table = spark_tables["maintained"]
    assert table.current is not None
    text = table.metadata_path.read_bytes()
    digest = base64.b64encode(hashlib.sha256(text).digest()).decode()
    compressed = tmp_path / "00009-x.gz.metadata.json"
    compressed.write_bytes(gzip.compress(text))
    changed = tmp_path / "00009-y.metadata.json"
    changed.write_bytes(text.replace(b'"timestamp-ms"', b'"timestamp-ms" ', 1))
    for location in (table.metadata, str(compressed)):
        opened = open_table(location, table_kms, metadata_hash=digest)
        assert arrow_rows(opened.scan().to_arrow()) == table.current.rows
        assert opened.verify().ok
    with pytest.raises(ags1.AuthenticationError, match=r"has the hash .* is expected: another writer"):
        open_table(str(changed), table_kms, metadata_hash=digest)
    options = ["--kms", keys_url, "--expected-metadata-hash", digest]
    assert main(["iceberg", "scan", str(compressed), *options]) == 0
    capsys.readouterr()
    for action in ("inspect", "files", "scan", "audit", "verify"):
        assert main(["iceberg", action, str(changed), *options]) == 1, action
        assert "has the hash" in capsys.readouterr().err
    for wrong in ("", "abc", base64.b64encode(bytes(31)).decode(), digest.replace("=", "")):
        with pytest.raises(ValueError, match="base64 of 32 bytes"):
            open_table(table.metadata, table_kms, metadata_hash=wrong)


def test_metadata_that_changes_after_it_was_opened_is_noticed_by_its_hash(
    spark_tables: SparkTables, table_kms: MemoryKms, tmp_path: Path
) -> None:
    path = spark_tables["maintained"].copy_metadata(tmp_path)
    digest = base64.b64encode(hashlib.sha256(path.read_bytes()).digest()).decode()
    table = open_table(str(path), table_kms, metadata_hash=digest)
    path.write_bytes(path.read_bytes() + b" ")
    for look in (table.verify, table.audit, table.files, table.tree):
        with pytest.raises(ags1.AuthenticationError):
            look()


# -- manifests as others write them -------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["null", "deflate", "zstandard", "snappy", "bzip2", "xz"])
def test_manifests_of_every_codec_are_read(
    codec: str, spark_tables: SparkTables, table_kms: MemoryKms, tmp_path: Path
) -> None:
    table = RebuiltTable(spark_tables["events"], tmp_path, table_kms)
    for content in (table.listed, *table.manifests):
        content.codec = codec
    location = table.write()
    opened = open_table(location, table_kms)
    current = spark_tables["events"].current
    assert current is not None
    assert arrow_rows(opened.scan().to_arrow()) == current.rows
    assert opened.verify().ok
    assert opened.audit().ok
    path = table.manifest_path(0)
    assert EncryptedFileIO.new_input(opened.io, path.as_uri()).open().read(4) == b"Obj\x01"


def test_a_codec_that_nobody_knows_is_no_damage(
    spark_tables: SparkTables, table_kms: MemoryKms, tmp_path: Path
) -> None:
    table = RebuiltTable(spark_tables["maintained"], tmp_path, table_kms)
    out = io.BytesIO()
    fastavro.writer(out, table.manifests[0].schema, table.manifests[0].records, metadata=table.manifests[0].metadata)
    content = out.getvalue().replace(b"\x14avro.codec\x08null", b"\x14avro.codec\x08lz99")
    assert b"lz99" in content
    opened = open_table(table.write(contents={0: content}), table_kms)
    with pytest.raises(ags1.UnsupportedError, match=r"manifest-0\.avro: the Avro codec 'lz99' is not supported"):
        opened.scan().to_arrow()
    with pytest.raises(ags1.UnsupportedError):
        opened.files()


def test_partitions_of_a_fixed_type_are_read_as_java_and_as_others_write_them(
    spark_tables: SparkTables, table_kms: MemoryKms, tmp_path: Path
) -> None:
    made = spark_tables["fixed_partitions"]
    assert made.current is not None
    opened = open_table(made.metadata, table_kms)
    assert arrow_rows(opened.scan().to_arrow()) == made.current.rows
    assert opened.verify().ok
    assert opened.audit().ok
    # fastavro writes what the schema declares.
    table = RebuiltTable(made, tmp_path, table_kms)
    for manifest in table.manifests:
        for field in manifest.schema["fields"]:
            if field["name"] == "data_file":
                (partition,) = (each for each in field["type"]["fields"] if each["name"] == "partition")
                partition["type"]["fields"][0]["type"] = ["null", {"type": "fixed", "name": "fixed_4", "size": 4}]
    assert arrow_rows(open_table(table.write(), table_kms).scan().to_arrow()) == made.current.rows
    assert local_path(table.snapshot[LIST_FIELD]).exists()


def test_a_format_version_and_types_of_the_future_are_no_damage(
    spark_tables: SparkTables, table_kms: MemoryKms, tmp_path: Path
) -> None:
    document = json.loads(json.dumps(spark_tables["maintained"].document))
    path = tmp_path / "00099-future.metadata.json"
    path.write_text(json.dumps({**document, "format-version": 9}))
    with pytest.raises(ags1.UnsupportedError, match="format version 9"):
        open_table(str(path), table_kms)
    document["schemas"][-1]["fields"][-1]["type"] = "hologram"
    path.write_text(json.dumps(document))
    with pytest.raises(ags1.UnsupportedError, match="hologram"):
        open_table(str(path), table_kms)
