"""Which key each file has: learned from the files above it, and from nothing else."""

from __future__ import annotations

import io
import json
import pickle
import random
from typing import Any

import fastavro
import pytest

from ags1 import Ags1Error, FormatError, KeyAccessError, KeyMetadata
from ags1.expected import Expected
from ags1.iceberg import EncryptionKeys
from ags1.iceberg.files import file_io as module
from ags1.iceberg.files.file_io import KnownFile, TableFileKeys
from ags1.iceberg.metadata.metadata_document import claims_encryption
from ags1.kms import MemoryKms

KMS = MemoryKms({"lake": bytes(16)})
KEY = KeyMetadata(bytes(range(16)), b"0123456789abcdef", 1000)
LIST = "s3://lake/snap-1.avro"


def metadata(**changes: Any) -> tuple[bytes, KeyMetadata]:
    """Metadata of one snapshot, and the key of its manifest list."""
    keys, list_key = EncryptionKeys(), KeyMetadata.generate(128).with_length(500)
    key_id = keys.add_manifest_list_key(list_key, KMS, "lake")
    document = {
        "format-version": 3,
        "properties": {"encryption.key-id": "lake"},
        "encryption-keys": keys.to_list(),
        "snapshots": [{"snapshot-id": 1, "manifest-list": LIST, "key-id": key_id}],
    }
    return json.dumps(document | changes).encode(), list_key


def field(field_id: int, name: str, kind: Any, optional: bool = False) -> dict[str, Any]:
    return {"name": name, "type": ["null", kind] if optional else kind, "field-id": field_id}


def avro(fields: list[dict[str, Any]], records: list[dict[str, Any]]) -> bytes:
    out = io.BytesIO()
    fastavro.writer(out, {"type": "record", "name": "row", "fields": fields}, records)
    return out.getvalue()


def manifest_list(*records: dict[str, Any]) -> bytes:
    fields = [field(500, "where", "string"), field(501, "size", "long"), field(519, "key", "bytes", optional=True)]
    return avro([field(503, "unused", "long"), *fields], [{"unused": 5, **each} for each in records])


DATA_FILE = [
    field(134, "content", "int"),
    field(100, "path", "string"),
    field(101, "format", "string"),
    field(103, "rows", "long"),
    field(104, "size", "long"),
    field(131, "key", "bytes", optional=True),
]


def manifest(*files: dict[str, Any], fields: list[dict[str, Any]] | None = None) -> bytes:
    inner = {"type": "record", "name": "file", "fields": DATA_FILE if fields is None else fields}
    defaults = {"content": 0, "path": "a.parquet", "format": "PARQUET", "rows": 7, "size": 70, "key": None}
    entries = [{"status": 1, "file": defaults | each} for each in files]
    return avro([field(0, "status", "int"), field(2, "file", inner)], entries)


def known(kind: str = "manifest") -> KnownFile:
    return KnownFile(f"{kind}.avro", kind, "avro", KEY, None)


@pytest.fixture(autouse=True)
def no_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_tables", type(module._tables)(module._KEPT_TABLES))


# -- from the metadata ----------------------------------------------------------------------------------------


def test_a_manifest_lists_key_comes_from_the_metadata() -> None:
    data, list_key = metadata()
    keys = TableFileKeys(KMS)
    assert keys.find(LIST) is None
    keys.learn_metadata("t.metadata.json", data)
    found = keys.find(LIST)
    assert found is not None
    assert (found.kind, found.file_format, found.key_metadata) == ("manifest list", "avro", list_key)
    assert keys.find(LIST) is found
    assert keys.find("s3://lake/other.avro") is None


def test_another_object_finds_it_too_and_needs_a_kms_of_its_own() -> None:
    # PyIceberg makes a second FileIO for the same table.
    data, list_key = metadata()
    TableFileKeys(None).learn_metadata("t.metadata.json", data)
    found = TableFileKeys(KMS).find(LIST)
    assert found is not None
    assert found.key_metadata == list_key
    with pytest.raises(KeyAccessError, match=r"snapshot 1 is encrypted with key '.*': give `kms`"):
        TableFileKeys(None).find(LIST)
    with pytest.raises(KeyAccessError, match=r"snapshot 1 \(key-id .*lake"):
        TableFileKeys(KMS, Expected("another")).find(LIST)


def test_metadata_that_is_read_again_counts() -> None:
    first, _ = metadata()
    second, list_key = metadata()
    TableFileKeys(KMS).learn_metadata("t.metadata.json", first)
    TableFileKeys(KMS).learn_metadata("t.metadata.json", second)
    found = TableFileKeys(KMS).find(LIST)
    assert found is not None
    assert found.key_metadata == list_key


def test_the_metadata_of_few_tables_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_tables", type(module._tables)(3))
    for index in range(5):
        snapshots = [{"snapshot-id": 1, "manifest-list": f"{index}.avro"}]
        data, _ = metadata(snapshots=snapshots)
        TableFileKeys(None).learn_metadata(f"{index}.metadata.json", data)
    assert [TableFileKeys(None).find(f"{index}.avro") is not None for index in range(5)] == [
        False,
        False,
        True,
        True,
        True,
    ]


@pytest.mark.parametrize(
    ("changes", "encrypted"),
    [
        ({}, True),
        ({"properties": {}}, True),
        ({"encryption-keys": []}, True),
        ({"encryption-keys": [], "properties": {}}, False),
        ({"encryption-keys": [], "properties": {"encryption.key-id": ""}}, False),
    ],
)
def test_a_table_is_encrypted_if_anything_says_so(changes: dict[str, Any], encrypted: bool) -> None:
    data, _ = metadata(**changes, snapshots=[{"snapshot-id": 1, "manifest-list": LIST}])
    assert claims_encryption(json.loads(data)) is encrypted


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"snapshots": [5]}, "a snapshot must be a JSON object, not int"),
        (
            {"snapshots": [{"snapshot-id": 9, "manifest-list": LIST, "key-id": 5}]},
            "snapshot 9: key-id must be text",
        ),
        ({"encryption-keys": {}}, "encryption-keys"),
    ],
)
def test_metadata_that_makes_no_sense_is_refused_by_name(changes: dict[str, Any], message: str) -> None:
    data, _ = metadata(**changes)
    with pytest.raises(FormatError, match=message) as caught:
        TableFileKeys(KMS).learn_metadata("t.metadata.json", data)
    assert str(caught.value).startswith("t.metadata.json: ")


@pytest.mark.parametrize(
    "own",
    [
        {"ags1.allow-plaintext": "true"},
        {"ags1.kms": "module:somewhere.Kms"},
        {"ags1.length-policy": "file", "encryption.key-id": "lake"},
        {"py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO"},
    ],
)
def test_a_table_does_not_say_how_it_is_to_be_read(own: dict[str, str]) -> None:
    data, _ = metadata(properties=own)
    with pytest.raises(FormatError, match=rf"^t\.metadata\.json: the table's own properties set '{next(iter(own))}'"):
        TableFileKeys(KMS).learn_metadata("t.metadata.json", data)
    assert TableFileKeys(KMS).find(LIST) is None


def test_a_table_may_name_this_file_io() -> None:
    data, _ = metadata(properties={"py-io-impl": "ags1.iceberg.EncryptedFileIO"})
    TableFileKeys(KMS).learn_metadata("t.metadata.json", data)
    assert TableFileKeys(KMS).find(LIST) is not None


# -- from manifest lists and manifests ------------------------------------------------------------------------


def test_fields_are_found_by_their_ids() -> None:
    keys = TableFileKeys(None)
    data = manifest_list(
        {"where": "m1.avro", "size": 50, "key": KEY.encode()}, {"where": "m2.avro", "size": 60, "key": None}
    )
    keys.learn_manifest_list(known("manifest list"), data)
    first, second = keys.find("m1.avro"), keys.find("m2.avro")
    assert first is not None
    assert second is not None
    assert (first.path, first.kind, first.length_hint, first.key_metadata) == ("m1.avro", "manifest", 50, KEY)
    assert (second.path, second.length_hint, second.key_metadata) == ("m2.avro", 60, None)


@pytest.mark.parametrize(
    ("content", "file_format", "kind"),
    [
        (0, "PARQUET", "data"),
        (0, "avro", "data"),
        (1, "parquet", "position deletes"),
        (1, "PUFFIN", "deletion vectors"),
        (2, "AVRO", "equality deletes"),
    ],
)
def test_files_are_what_the_manifest_says(content: int, file_format: str, kind: str) -> None:
    keys = TableFileKeys(None)
    data = manifest({"content": content, "format": file_format, "key": KEY.encode()})
    (found,) = keys.learn_manifest(known(), data)
    assert (found.kind, found.file_format, found.key_metadata) == (kind, file_format.lower(), KEY)
    assert (found.length_hint, found.record_count) == (70, 7)
    assert keys.find("a.parquet") is found


def test_a_manifest_of_version_1_has_data_only() -> None:
    (found,) = TableFileKeys(None).learn_manifest(known(), manifest({}, fields=DATA_FILE[1:]))
    assert found.kind == "data"


def test_what_was_learned_first_stays() -> None:
    keys = TableFileKeys(None)
    keys.learn_manifest(known(), manifest({"key": KEY.encode()}))
    other = KnownFile("other.avro", "manifest", "avro", None, None)
    keys.learn_manifest(other, manifest({"key": None}))
    found = keys.find("a.parquet")
    assert found is not None
    assert found.key_metadata == KEY


# -- what is no manifest --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "Avro"),
        (b"rubbish", "Avro"),
        (avro([field(1, "x", "int")], [{"x": 1}]), "is no manifest: an entry has no data file"),
        (manifest({}, fields=DATA_FILE[2:]), "is no manifest: an entry has no data file with path"),
        (manifest({})[:-20], "Avro"),
        (
            manifest({"path": 5}, fields=[field(100, "path", "int"), *DATA_FILE[2:]]),
            "field file_path is int instead of string",
        ),
        (manifest({"content": 3}), "has a file with content 3, which this version does not know"),
        (manifest({"content": -1}), "has a file with content -1"),
    ],
)
def test_what_is_no_manifest_is_refused_by_name(data: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=rf"manifest\.avro: .*{message}|manifest\.avro: {message}"):
        TableFileKeys(None).learn_manifest(known(), data)


def test_key_metadata_that_is_none_is_refused_with_the_files_name() -> None:
    keys = TableFileKeys(None)
    with pytest.raises(FormatError, match=r"the key metadata of a\.parquet cannot be read"):
        keys.learn_manifest(known(), manifest({"key": b"\x09"}))
    with pytest.raises(FormatError, match=r"the key metadata of m\.avro cannot be read"):
        keys.learn_manifest_list(known("manifest list"), manifest_list({"where": "m.avro", "size": 1, "key": b""}))
    assert keys.find("a.parquet") is None


def test_damage_is_never_another_error() -> None:
    generator = random.Random(3)
    intact = manifest({"key": KEY.encode()}, {"path": "b.avro", "format": "avro", "key": KEY.encode()})
    refused = 0
    for _ in range(800):
        data = bytearray(intact)
        for _ in range(generator.randrange(1, 4)):
            start = generator.randrange(len(data))
            data[start : start + generator.randrange(4)] = generator.randbytes(generator.randrange(1, 4))
        try:
            TableFileKeys(None).learn_manifest(known(), bytes(data))
        except Ags1Error:
            refused += 1
    assert refused > 400


def test_records_without_content_do_not_go_on_for_ever() -> None:
    text = avro([field(2, "nothing", "null")], [])
    endless = text[:-16] + text[-16:] + b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f\x00" + text[-16:]
    with pytest.raises(FormatError, match=r"manifest list\.avro: "):
        TableFileKeys(None).learn_manifest_list(known("manifest list"), endless)


# -- secrets --------------------------------------------------------------------------------------------------


def test_keys_are_neither_shown_nor_pickled() -> None:
    keys = TableFileKeys(KMS)
    (found,) = keys.learn_manifest(known(), manifest({"key": KEY.encode()}))
    assert repr(found) == "<data a.parquet: encrypted, key redacted>"
    assert repr(KnownFile("b", "data", "avro", None, None)) == "<data b: plaintext>"
    with pytest.raises(TypeError, match="cannot be pickled: open the table where it is read"):
        pickle.dumps(keys)
