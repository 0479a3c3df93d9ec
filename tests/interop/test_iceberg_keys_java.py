"""ags1 and Iceberg's own Java classes open each other's encryption-keys, before and after ags1 changes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

import ags1
from ags1.iceberg import EncryptedKey, EncryptionKeys
from ags1.iceberg.catalogs.successor import NewMetadata, java_text
from ags1.kms import MemoryKms
from tests.checks import every
from tests.conformance import loader
from tests.interop.java_peer import JavaError, JavaPeer

# The first test waits for Maven, which may have to fetch everything.
pytestmark = pytest.mark.timeout(900)

MASTERS = {"keyA": b"0123456789012345", "keyB": b"1123456789012345", "keyC": bytes(range(32))}
DAY = 86_400_000
SIZES = [16, 24, 32]


def key_metadata(size: int, number: int = 0) -> ags1.KeyMetadata:
    """What a writer has after it closed a manifest list."""
    return ags1.KeyMetadata.generate(8 * size).with_length(1000 + number)


def from_entries(entries: list[str], **more: Any) -> EncryptionKeys:
    """The list of these entries."""
    return EncryptionKeys.from_table_metadata('{"encryption-keys":[' + ",".join(entries) + "]}", **more)


def to_entries(keys: EncryptionKeys) -> list[str]:
    """The JSON of each entry."""
    return [java_text(entry.to_dict()) for entry in keys]


def java_opens(peer: JavaPeer, keys: EncryptionKeys, table_key_id: str, *key_ids: str) -> list[ags1.KeyMetadata]:
    """Open entries with Iceberg."""
    opened, _ = peer.open_keys(to_entries(keys), table_key_id, key_ids, master_keys=MASTERS)
    return [ags1.KeyMetadata.decode(each) for each in opened]


# -- each opens the other's ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kek_size", SIZES)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("master", MASTERS)
def test_java_opens_what_ags1_wrote(java_peer: JavaPeer, size: int, kek_size: int, master: str) -> None:
    keys, wanted = EncryptionKeys(), [key_metadata(size, number) for number in range(3)]
    kms = MemoryKms(MASTERS)
    ids = [keys.add_manifest_list_key(each, kms, master, data_key_length=kek_size) for each in wanted]
    assert len(keys) == 4
    opened, unwraps = java_peer.open_keys(to_entries(keys), master, ids, master_keys=MASTERS)
    assert opened == [each.encode() for each in wanted]
    assert unwraps == 1


@pytest.mark.parametrize("kek_size", SIZES)
@pytest.mark.parametrize("size", SIZES)
def test_ags1_opens_what_java_wrote(java_peer: JavaPeer, size: int, kek_size: int) -> None:
    wanted = [key_metadata(size, number) for number in range(3)]
    made = java_peer.add_keys(
        [], "keyA", [each.encode() for each in wanted], master_keys=MASTERS, data_key_length=kek_size
    )
    assert (made.wraps, made.unwraps, len(made.entries)) == (1, 0, 4)
    keys = from_entries(made.entries)
    assert [keys.unwrap(each, MemoryKms(MASTERS)) for each in made.key_ids] == wanted
    assert [keys.unwrap(each, MemoryKms(MASTERS), table_key_id="keyA") for each in made.key_ids] == wanted
    kek = next(entry for entry in keys if entry.encrypted_by_id == "keyA")
    assert len(kek.encrypted_key_metadata) == kek_size + 28


def test_each_goes_on_with_the_key_encryption_key_of_the_other(java_peer: JavaPeer) -> None:
    first, second, third = (key_metadata(16, number) for number in range(3))
    kms, keys = MemoryKms(MASTERS), EncryptionKeys()
    by_us = keys.add_manifest_list_key(first, kms, "keyA")
    made = java_peer.add_keys(to_entries(keys), "keyA", [second.encode()], master_keys=MASTERS)
    assert (made.wraps, made.unwraps, len(made.entries)) == (0, 1, 3)
    keys = from_entries(made.entries)
    again = keys.add_manifest_list_key(third, kms, "keyA")
    assert len(keys) == 4
    assert java_opens(java_peer, keys, "keyA", by_us, made.key_ids[0], again) == [first, second, third]


def test_key_metadata_without_a_prefix_or_length_opens_in_java(java_peer: JavaPeer) -> None:
    keys, kms = EncryptionKeys(), MemoryKms(MASTERS)
    wanted = [ags1.KeyMetadata(bytes(16)), ags1.KeyMetadata(bytes(16), b""), ags1.KeyMetadata(bytes(16), bytes(40))]
    ids = [keys.add_manifest_list_key(each, kms, "keyA") for each in wanted]
    assert java_opens(java_peer, keys, "keyA", *ids) == wanted


@pytest.mark.parametrize("timestamp", [" 0123 ", "007", "soon", "h\u00e9llo \U0001f511"])
def test_java_too_authenticates_the_timestamps_exact_text(java_peer: JavaPeer, timestamp: str) -> None:
    # Java cannot choose such a key for new entries, and so cannot make this list; it opens it.
    kms, keys = MemoryKms(MASTERS), EncryptionKeys(clock=lambda: 1.0)
    added = keys.add_manifest_list_key(wanted := key_metadata(16), kms, "keyA")
    kek, new = keys
    changed = EncryptedKey(kek.key_id, kek.encrypted_key_metadata, "keyA", {"KEY_TIMESTAMP": timestamp})
    keys = EncryptionKeys([changed, new])
    with pytest.raises(ags1.AuthenticationError):
        keys.unwrap(added, kms)
    with pytest.raises(JavaError, match="GCM tag check failed"):
        java_opens(java_peer, keys, "keyA", added)
    sealed = _sealed(wanted, bytes(kms.unwrap_key(kek.encrypted_key_metadata, "keyA")), timestamp)
    keys = EncryptionKeys([changed, EncryptedKey(added, sealed, kek.key_id)])
    assert keys.unwrap(added, kms) == wanted
    assert java_opens(java_peer, keys, "keyA", added) == [wanted]


def _sealed(metadata: ags1.KeyMetadata, kek: bytes, timestamp: str) -> bytes:
    return bytes(12) + AESGCM(kek).encrypt(bytes(12), metadata.encode(), timestamp.encode())


# -- the published vectors -------------------------------------------------------------------------------------


@every("vector", loader.load_wrapped_keys(), ids=lambda vector: vector.name)
def test_java_does_what_the_wrapped_key_vector_says(java_peer: JavaPeer, vector: loader.WrappedKeyVector) -> None:
    entries = [json.dumps(entry) for entry in vector.entries()]
    masters = {"master": vector.octets("master_key")}
    try:
        opened, _ = java_peer.open_keys(entries, "master", ["list"], master_keys=masters)
    except JavaError as error:
        did = ["refuses", error.java_class]
    else:
        did = ["returns", opened[0].hex() or "empty"]
        if vector.expect == "success" and opened == [vector.octets("key_metadata")]:
            did = ["accepts"]
    assert did == vector.java


# -- the life of a key encryption key --------------------------------------------------------------------------


@pytest.mark.parametrize(("age_days", "is_new"), [(0, False), (729, False), (731, True)])
def test_both_retire_a_key_encryption_key_after_730_days(java_peer: JavaPeer, age_days: int, is_new: bool) -> None:
    first, second, third = (key_metadata(16, number) for number in range(3))
    made = java_peer.add_keys([], "keyA", [first.encode()], master_keys=MASTERS, time_shift=-age_days * DAY)
    later = java_peer.add_keys(made.entries, "keyA", [second.encode()], master_keys=MASTERS)
    assert len(later.entries) == (4 if is_new else 3)
    keys, kms = from_entries(made.entries), MemoryKms(MASTERS)
    added = keys.add_manifest_list_key(third, kms, "keyA")
    assert len(keys) == (4 if is_new else 3)
    assert keys.unwrap(made.key_ids[0], kms) == first
    assert java_opens(java_peer, keys, "keyA", made.key_ids[0], added) == [first, third]


# -- JSON ------------------------------------------------------------------------------------------------------


def test_java_writes_our_entries_with_our_bytes(java_peer: JavaPeer) -> None:
    keys = EncryptionKeys()
    for number in range(5):
        keys.add_manifest_list_key(key_metadata(16, number), MemoryKms(MASTERS), "keyB")
    assert java_peer.rewrite_keys(to_entries(keys)) == to_entries(keys)


def test_we_write_javas_entries_with_its_bytes(java_peer: JavaPeer) -> None:
    made = java_peer.add_keys([], "keyA", [key_metadata(16).encode()] * 5, master_keys=MASTERS)
    assert to_entries(from_entries(made.entries)) == made.entries
    as_dict = EncryptionKeys.from_table_metadata({"encryption-keys": [json.loads(each) for each in made.entries]})
    assert to_entries(as_dict) == made.entries


@pytest.mark.parametrize(
    "entry",
    [
        EncryptedKey("", b""),
        EncryptedKey("a", b"\xfb\xff\xfe", "b/+="),
        EncryptedKey("a", bytes(1), "b", {"x": ""}),
        EncryptedKey("\u00e9\u2028\U0001f511", bytes(2), '"\\/', {"\x00\x1f\x7f": "\b\f\n\r\t"}),
        EncryptedKey("\\u001f", bytes(3), "<&'>"),
    ],
    ids=["empty", "base64", "empty-property", "control-characters", "backslashes"],
)
def test_odd_texts_are_spelled_as_java_spells_them(java_peer: JavaPeer, entry: EncryptedKey) -> None:
    ours = java_text(entry.to_dict())
    assert java_peer.rewrite_keys([ours]) == [ours]
    # Also where they arrive in another spelling.
    assert java_peer.rewrite_keys([json.dumps(entry.to_dict())]) == [ours]


def test_java_reads_no_null_properties_and_ags1_never_writes_them(java_peer: JavaPeer) -> None:
    odd = '{"key-id":"a","encrypted-key-metadata":"AAAA","encrypted-by-id":null,"properties":%s}'
    ours = '{"key-id":"a","encrypted-key-metadata":"AAAA"}'
    assert java_peer.rewrite_keys([odd % "{}"]) == [ours]
    with pytest.raises(JavaError, match="Cannot parse string map from non-object value: properties: null"):
        java_peer.rewrite_keys([odd % "null"])
    assert to_entries(from_entries([odd % "{}"])) == to_entries(from_entries([odd % "null"])) == [ours]


# -- whole tables ----------------------------------------------------------------------------------------------

SCHEMA = {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "x", "required": False, "type": "long"}]}


def table(keys: EncryptionKeys, key_ids: list[str | None], table_key_id: str) -> dict[str, Any]:
    """A table of format 3 with one snapshot for each key id."""
    snapshots: list[dict[str, Any]] = []
    for number, key_id in enumerate(key_ids, 1):
        snapshot: dict[str, Any] = {"sequence-number": number, "snapshot-id": number, "timestamp-ms": 1000 * number}
        snapshot["summary"] = {"operation": "append"}
        snapshot["manifest-list"] = f"s3://lake/t/metadata/snap-{number}.avro"
        snapshot |= {"schema-id": 0, "first-row-id": 0, "added-rows": 0}
        snapshots.append(snapshot if key_id is None else {**snapshot, "key-id": key_id})
    return {
        "format-version": 3,
        "table-uuid": "7d3ff2b8-6c2c-4d6e-8a8b-1f0a6d4a3b10",
        "location": "s3://lake/t",
        "last-sequence-number": len(key_ids),
        "last-updated-ms": 1000 * len(key_ids),
        "last-column-id": 1,
        "current-schema-id": 0,
        "schemas": [SCHEMA],
        "default-spec-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "last-partition-id": 999,
        "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "properties": {"encryption.key-id": table_key_id},
        "current-snapshot-id": len(key_ids),
        "next-row-id": 0,
        "encryption-keys": keys.to_list(),
        "refs": {"main": {"snapshot-id": len(key_ids), "type": "branch"}},
        "snapshots": snapshots,
        "snapshot-log": [{"timestamp-ms": 1000 * n, "snapshot-id": n} for n in range(1, len(key_ids) + 1)],
        "metadata-log": [],
    }


def encrypted_table(java_peer: JavaPeer, at: Path) -> tuple[Path, list[ags1.KeyMetadata]]:
    """Metadata as Java writes it, with four snapshots and the keys of six; also what the four have."""
    keys = EncryptionKeys()
    wanted = [key_metadata(16, number) for number in range(6)]
    ids = [keys.add_manifest_list_key(each, MemoryKms(MASTERS), "keyA") for each in wanted]
    path = at / "v1.metadata.json"
    path.write_text(json.dumps(table(keys, [*ids[:4]], "keyA")))
    path.write_text(java_peer.rewrite_table(path))
    return path, wanted[:4]


def java_reads_snapshots(peer: JavaPeer, path: Path, count: int, masters: dict[str, bytes]) -> list[ags1.KeyMetadata]:
    """What each snapshot has, opened by Iceberg from the metadata file."""
    opened = (peer.open_snapshot(path, number, master_keys=masters) for number in range(1, count + 1))
    return [ags1.KeyMetadata.decode(each) for each in opened]


def test_both_open_every_snapshot_of_a_table_of_javas_writing(java_peer: JavaPeer, tmp_path: Path) -> None:
    path, wanted = encrypted_table(java_peer, tmp_path)
    assert java_reads_snapshots(java_peer, path, 4, MASTERS) == wanted
    keys, kms = EncryptionKeys.from_table_metadata(path), MemoryKms(MASTERS)
    assert [keys.for_snapshot(path, number, kms) for number in range(1, 5)] == wanted
    assert keys.for_snapshot(path, None, kms) == wanted[-1]


def test_a_table_that_java_wrote_comes_back_with_javas_bytes(java_peer: JavaPeer, tmp_path: Path) -> None:
    path, _ = encrypted_table(java_peer, tmp_path)
    keys = EncryptionKeys.from_table_metadata(path)
    assert java_text(keys.to_table_metadata(path)).encode() == path.read_bytes()


def test_a_list_is_added_where_java_writes_it(java_peer: JavaPeer, tmp_path: Path) -> None:
    path = tmp_path / "v1.metadata.json"
    path.write_text(json.dumps(table(EncryptionKeys(), [None], "keyA")))
    path.write_text(java_peer.rewrite_table(path))
    assert "encryption-keys" not in path.read_text()
    keys = EncryptionKeys()
    keys.add_manifest_list_key(key_metadata(16), MemoryKms(MASTERS), "keyA")
    ours = NewMetadata(keys.to_table_metadata(path), path.name).data
    path.write_bytes(ours)
    assert java_peer.rewrite_table(path).encode() == ours


def test_java_opens_a_table_that_ags1_rewrapped_and_pruned(java_peer: JavaPeer, tmp_path: Path) -> None:
    path, wanted = encrypted_table(java_peer, tmp_path)
    keys = EncryptionKeys.from_table_metadata(path)
    old = MemoryKms({"keyA": MASTERS["keyA"]})
    changed = keys.prune(path).rewrap(old, "keyC", MemoryKms({"keyC": MASTERS["keyC"]}))
    assert len(keys) == 7
    assert len(changed) == 5
    written = java_text(changed.to_table_metadata(path))
    path.write_text(written.replace('"encryption.key-id":"keyA"', '"encryption.key-id":"keyC"'))
    assert java_reads_snapshots(java_peer, path, 4, {"keyC": MASTERS["keyC"]}) == wanted
    assert java_peer.rewrite_table(path).encode() == path.read_bytes()
    # The same list goes on: Java adds under the key encryption key that we re-wrapped.
    made = java_peer.add_keys(to_entries(changed), "keyC", [wanted[0].encode()], master_keys={"keyC": MASTERS["keyC"]})
    assert (made.wraps, made.unwraps) == (0, 1)
    assert from_entries(made.entries).unwrap(made.key_ids[0], MemoryKms(MASTERS)) == wanted[0]


def test_java_needs_the_property_that_says_which_master_key_it_is(java_peer: JavaPeer, tmp_path: Path) -> None:
    # It unwraps every key encryption key with encryption.key-id, and not with what the entry names.
    path, _ = encrypted_table(java_peer, tmp_path)
    changed = EncryptionKeys.from_table_metadata(path).rewrap(MemoryKms(MASTERS), "keyC")
    path.write_text(java_text(changed.to_table_metadata(path)))
    with pytest.raises(JavaError, match="GCM tag check failed"):
        java_reads_snapshots(java_peer, path, 1, MASTERS)


# -- what Java refuses -----------------------------------------------------------------------------------------


def test_java_falls_over_what_ags1_names(java_peer: JavaPeer) -> None:
    keys = EncryptionKeys()
    added = keys.add_manifest_list_key(key_metadata(16), MemoryKms(MASTERS), "keyA")
    kek, new = keys
    with pytest.raises(JavaError, match="NullPointerException"):
        java_opens(java_peer, keys, "keyA", "lost")
    with pytest.raises(ags1.KeyAccessError, match="no entry 'lost'"):
        keys.unwrap("lost", MemoryKms(MASTERS))
    with pytest.raises(JavaError, match="NullPointerException"):
        java_opens(java_peer, EncryptionKeys([new]), "keyA", added)
    with pytest.raises(ags1.KeyAccessError, match="is missing from encryption-keys"):
        EncryptionKeys([new]).unwrap(added, MemoryKms(MASTERS))
    timeless = EncryptedKey(kek.key_id, kek.encrypted_key_metadata, "keyA", {"key-timestamp": "1"})
    with pytest.raises(JavaError, match="Key encryption key must be timestamped"):
        java_opens(java_peer, EncryptionKeys([timeless, new]), "keyA", added)
    with pytest.raises(JavaError, match="is a key encryption key, not manifest list key metadata"):
        java_opens(java_peer, keys, "keyA", kek.key_id)
    with pytest.raises(ags1.FormatError, match="is a key encryption key, not key metadata of a manifest list"):
        keys.unwrap(kek.key_id, MemoryKms(MASTERS))
