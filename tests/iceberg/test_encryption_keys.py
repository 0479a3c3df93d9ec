"""Entries of a table's encryption-keys are opened, and new ones are added, as Iceberg does it."""

from __future__ import annotations

import base64
import pickle
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

import ags1
from ags1.iceberg import EncryptedKey, EncryptionKeys
from ags1.kms import GeneratedKey, MemoryKms
from tests import reference
from tests.iceberg.key_lists import (
    DATA_KEY,
    DAY,
    KEK,
    MASTERS,
    NOW,
    NOW_MS,
    OTHER_KEK,
    PREFIX,
    TIMESTAMP,
    CountingKms,
    entry,
    kek_entry,
    key_metadata,
    keys_of,
    list_entry,
    metadata_of,
    seal,
    table,
)

pytestmark = pytest.mark.timeout(60)

# FORMATS C.4: this key encryption key, timestamp and nonce, over the key metadata of two ASCII keys and a length.
WRAPPED_VECTOR = bytes.fromhex(
    "000102030405060708090a0b924c97ff5428c3617de559b30692423b871318c662dfcec2d317c6152d74935eb690eec1f640afbcf112"
    "e7d2fef1508c10c49b416fadae"
)


# -- opening ---------------------------------------------------------------------------------------------------


def test_the_published_wrapping_opens() -> None:
    keys = keys_of(kek_entry(timestamp="1781172301703"), entry("list", WRAPPED_VECTOR, "kek"))
    opened = keys.unwrap("list", MemoryKms(MASTERS))
    assert opened == ags1.KeyMetadata(b"0123456789012345", b"1234567890123456", 1568)


@pytest.mark.parametrize("spelling", ["KEY_TIMESTAMP", "key-timestamp"])
def test_both_spellings_of_the_timestamp_are_read(spelling: str) -> None:
    assert keys_of(kek_entry(spelling=spelling), list_entry()).unwrap("list", CountingKms()) == key_metadata()


def test_the_spelling_of_iceberg_goes_before_that_of_the_mailing_list() -> None:
    both = kek_entry()
    both["properties"] = {"key-timestamp": "1", "KEY_TIMESTAMP": TIMESTAMP}
    assert keys_of(both, list_entry()).unwrap("list", CountingKms()) == key_metadata()


@pytest.mark.parametrize("timestamp", [" 0123 ", "000123", "+5", "1781172301703\n", "héllo", "١٢٣", "-1", "1e3", "0"])
def test_the_timestamp_authenticates_as_the_exact_text_that_is_stored(timestamp: str) -> None:
    keys = keys_of(kek_entry(timestamp=timestamp), list_entry(timestamp=timestamp))
    assert keys.unwrap("list", CountingKms()) == key_metadata()
    assert keys.to_list()[0]["properties"] == {"KEY_TIMESTAMP": timestamp}


@pytest.mark.parametrize("timestamp", ["1781172301704", " 1781172301703", "01781172301703", "1781172301703 "])
def test_a_changed_timestamp_is_noticed(timestamp: str) -> None:
    keys = keys_of(kek_entry(timestamp=timestamp), list_entry(timestamp=TIMESTAMP))
    with pytest.raises(ags1.AuthenticationError, match=r"'list' does not open .* 'kek': .*changed timestamp"):
        keys.unwrap("list", CountingKms())


@pytest.mark.parametrize("size", [16, 24, 32])
def test_keys_of_every_size_open(size: int) -> None:
    kek, data_key = bytes(range(size)), bytes(range(50, 50 + size))
    keys = keys_of(kek_entry(kek=kek), list_entry(kek=kek, plain=metadata_of(data_key=data_key)))
    assert bytes(keys.unwrap("list", CountingKms()).encryption_key) == data_key


def test_key_metadata_of_two_fields_opens() -> None:
    keys = keys_of(kek_entry(), list_entry(plain=metadata_of(fields=2)))
    assert keys.unwrap("list", CountingKms()) == ags1.KeyMetadata(DATA_KEY, PREFIX, None)


def test_an_expired_key_encryption_key_still_opens_its_entries() -> None:
    keys = keys_of(kek_entry(), list_entry(), now=NOW + 100 * 365 * 86400)
    assert keys.unwrap("list", CountingKms()) == key_metadata()


def test_each_key_encryption_key_is_unwrapped_by_the_master_key_that_its_entry_names() -> None:
    keys = keys_of(
        kek_entry("kek-1", master="lake"),
        kek_entry("kek-2", OTHER_KEK, master="lake-2"),
        list_entry("list-1", 1, by="kek-1"),
        list_entry("list-2", 2, by="kek-2", kek=OTHER_KEK),
    )
    kms = CountingKms()
    assert keys.unwrap("list-1", kms) == key_metadata(1)
    assert keys.unwrap("list-2", kms) == key_metadata(2)


def test_a_hierarchy_under_another_master_key_is_refused_if_the_caller_names_one() -> None:
    keys = keys_of(kek_entry(master="lake-2"), list_entry())
    assert keys.unwrap("list", CountingKms(), table_key_id="lake-2") == key_metadata()
    with pytest.raises(ags1.KeyAccessError, match=r"'list' is under master key 'lake-2', not 'lake'"):
        keys.unwrap("list", CountingKms(), table_key_id="lake")


def test_any_object_with_the_two_methods_is_a_kms() -> None:
    class Minimal:
        __slots__ = ()

        def wrap_key(self, key: bytes, wrapping_key_id: str) -> bytes:
            return seal(key, MASTERS[wrapping_key_id])

        def unwrap_key(self, wrapped_key: bytes, wrapping_key_id: str) -> bytearray:
            return bytearray(AESGCM(MASTERS[wrapping_key_id]).decrypt(wrapped_key[:12], wrapped_key[12:], None))

    keys = keys_of(kek_entry(), list_entry())
    assert keys.unwrap("list", Minimal()) == key_metadata()
    added = keys.add_manifest_list_key(key_metadata(7), Minimal(), "lake-2")
    assert keys.unwrap(added, Minimal()) == key_metadata(7)


@pytest.mark.parametrize("kms", [None, "lake", object(), {"lake": b""}])
def test_what_is_no_kms_is_a_wrong_argument(kms: Any) -> None:
    with pytest.raises(TypeError, match="kms must have wrap_key and unwrap_key"):
        keys_of(kek_entry(), list_entry()).unwrap("list", kms)


# -- snapshots -------------------------------------------------------------------------------------------------


def test_a_snapshot_opens_by_its_id_and_the_current_one_without() -> None:
    entries = [kek_entry(), list_entry("list-1", 1), list_entry("list-2", 2)]
    metadata = table(entries, {11: "list-1", 12: "list-2"})
    keys = keys_of(*entries)
    assert keys.for_snapshot(metadata, 11, CountingKms()) == key_metadata(1)
    assert keys.for_snapshot(metadata, None, CountingKms()) == key_metadata(2)
    assert keys.for_snapshot(metadata, 11, CountingKms(), table_key_id="lake") == key_metadata(1)


def test_a_snapshot_without_a_key_has_none() -> None:
    assert keys_of(kek_entry()).for_snapshot(table([], {11: None}), 11, CountingKms()) is None


# -- adding ----------------------------------------------------------------------------------------------------


def test_a_new_entry_is_what_the_format_says() -> None:
    keys, kms = keys_of(), CountingKms()
    key_id = keys.add_manifest_list_key(key_metadata(3), kms, "lake")
    kek, new = keys.to_list()
    assert list(kek) == ["key-id", "encrypted-key-metadata", "encrypted-by-id", "properties"]
    assert list(new) == ["key-id", "encrypted-key-metadata", "encrypted-by-id"]
    assert kek["properties"] == {"KEY_TIMESTAMP": TIMESTAMP}
    assert (kek["encrypted-by-id"], new["encrypted-by-id"], new["key-id"]) == ("lake", kek["key-id"], key_id)
    assert all(len(base64.b64decode(each["key-id"], validate=True)) == 16 for each in (kek, new))
    wrapped_kek = base64.b64decode(kek["encrypted-key-metadata"])
    plain_kek = AESGCM(MASTERS["lake"]).decrypt(wrapped_kek[:12], wrapped_kek[12:], None)
    assert len(plain_kek) == 16
    wrapped = base64.b64decode(new["encrypted-key-metadata"])
    plain = AESGCM(plain_kek).decrypt(wrapped[:12], wrapped[12:], TIMESTAMP.encode())
    assert reference.decode_key_metadata(plain) == reference.KeyMetadata(DATA_KEY, PREFIX, 1003)
    assert kms.calls == {"wrap": 1, "unwrap": 1}


def test_a_second_entry_shares_the_key_encryption_key_and_costs_no_call() -> None:
    keys, kms = keys_of(), CountingKms()
    ids = [keys.add_manifest_list_key(key_metadata(number), kms, "lake") for number in range(20)]
    assert len(set(ids)) == 20
    assert len(keys) == 21
    assert [keys.unwrap(each, kms) for each in ids] == [key_metadata(number) for number in range(20)]
    assert kms.calls == {"wrap": 1, "unwrap": 1}
    assert len({each.encrypted_key_metadata[:12] for each in keys}) == 21


def test_each_master_key_has_a_key_encryption_key_of_its_own() -> None:
    keys = keys_of(kek_entry(), list_entry())
    added = keys.add_manifest_list_key(key_metadata(), CountingKms(), "lake-2")
    assert keys[keys[added].encrypted_by_id or ""].encrypted_by_id == "lake-2"
    assert len(keys) == 4


@pytest.mark.parametrize(("size", "given"), [(16, None), (24, None), (32, None), (16, 32), (32, 16)])
def test_a_new_key_encryption_key_is_as_long_as_the_data_keys(size: int, given: int | None) -> None:
    keys = keys_of()
    keys.add_manifest_list_key(ags1.KeyMetadata(bytes(size)), CountingKms(), "lake", data_key_length=given)
    assert len(next(iter(keys)).encrypted_key_metadata) == (given or size) + 28


def test_a_kms_that_makes_keys_is_asked_for_one() -> None:
    class Generating(CountingKms):
        def supports_key_generation(self) -> bool:
            return True

        def generate_key(self, wrapping_key_id: str) -> GeneratedKey:
            self.calls["generate"] += 1
            return GeneratedKey(OTHER_KEK, seal(OTHER_KEK, MASTERS[wrapping_key_id]))

    keys, kms = keys_of(), Generating()
    added = keys.add_manifest_list_key(key_metadata(), kms, "lake")
    assert kms.calls == {"generate": 1, "unwrap": 1}
    assert keys_of(*keys.to_list()).unwrap(added, CountingKms()) == key_metadata()


# -- which key encryption key wraps new entries ----------------------------------------------------------------


def chosen(*entries: dict[str, Any], now_ms: int = NOW_MS) -> str:
    """Id of the key encryption key that a new entry is under; "new" for one that was made."""
    keys = EncryptionKeys.from_table_metadata(table(list(entries)), clock=lambda: now_ms / 1000)
    by = keys[keys.add_manifest_list_key(key_metadata(), CountingKms(), "lake")].encrypted_by_id
    return by if by in {each["key-id"] for each in entries} else "new"


def kek_made(at: int, key_id: str = "kek", **more: Any) -> dict[str, Any]:
    """A key encryption key of this time."""
    return kek_entry(key_id, timestamp=str(at), **more)


def test_the_newest_is_chosen_wherever_it_stands() -> None:
    old, new = kek_made(NOW_MS - 9 * DAY, "old"), kek_made(NOW_MS - DAY, "young")
    assert chosen(old, new) == chosen(new, old) == "young"


def test_it_lives_for_730_days() -> None:
    assert chosen(kek_made(NOW_MS - 730 * DAY + 1)) == "kek"
    assert chosen(kek_made(NOW_MS - 730 * DAY)) == "new"


def test_a_clock_that_is_a_day_behind_the_writers_is_tolerated_and_the_far_future_is_not() -> None:
    assert chosen(kek_made(NOW_MS + DAY)) == "kek"
    assert chosen(kek_made(NOW_MS + DAY + 1)) == "new"
    keys = keys_of(kek_made(NOW_MS + 5000 * DAY), list_entry(timestamp=str(NOW_MS + 5000 * DAY)))
    assert keys.unwrap("list", CountingKms()) == key_metadata()


@pytest.mark.parametrize("timestamp", ["", "soon", " 1781172301703", "1781172301703.0", "١٧٨١١٧٢٣٠١٧٠٣", "9" * 30])
def test_a_timestamp_that_iceberg_java_could_not_read_wraps_nothing_new(timestamp: str) -> None:
    assert chosen(kek_entry(timestamp=timestamp)) == "new"


def test_one_that_iceberg_java_would_not_find_the_timestamp_of_wraps_nothing_new() -> None:
    assert chosen(kek_entry(spelling="key-timestamp")) == "new"
    assert chosen(kek_entry(timestamp=None)) == "new"


def test_one_of_another_master_key_is_not_chosen() -> None:
    assert chosen(kek_made(NOW_MS, master="lake-2")) == "new"


@pytest.mark.parametrize("victim", ["timestamp", "kek"])
def test_a_key_encryption_key_that_opens_none_of_its_entries_wraps_nothing_new(victim: str) -> None:
    # A timestamp set to today would bring an expired, perhaps disclosed, key back into use.
    timestamp = str(NOW_MS - 1000 * DAY) if victim == "timestamp" else TIMESTAMP
    kek = OTHER_KEK if victim == "kek" else KEK
    keys = keys_of(kek_entry(), list_entry("list-1", kek=kek, timestamp=timestamp), list_entry("list-2", kek=kek))
    if victim == "timestamp":
        keys = keys_of(kek_entry(), list_entry("list-1", timestamp=timestamp))
    with pytest.raises(ags1.AuthenticationError, match=r"'kek' opens none of its . entries: .*changed timestamp"):
        keys.add_manifest_list_key(key_metadata(), CountingKms(), "lake")
    assert len(keys) == len(keys.to_list()) <= 3


def test_one_damaged_entry_does_not_stop_writing() -> None:
    damaged = list_entry("damaged", kek=OTHER_KEK)
    assert chosen(kek_entry(), damaged, list_entry()) == "kek"


# -- wrong arguments -------------------------------------------------------------------------------------------


def test_wrong_arguments_are_named() -> None:
    keys, kms = keys_of(kek_entry()), CountingKms()
    with pytest.raises(TypeError, match=r"key_metadata must be an ags1\.KeyMetadata, not bytes"):
        keys.add_manifest_list_key(metadata_of(), kms, "lake")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="table_key_id must be a str, not NoneType"):
        keys.add_manifest_list_key(key_metadata(), kms, None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="table_key_id must be the id of a master key, got 0 characters"):
        keys.add_manifest_list_key(key_metadata(), kms, "")
    with pytest.raises(ValueError, match="data_key_length must be 16, 24 or 32 bytes, got 17"):
        keys.add_manifest_list_key(key_metadata(), kms, "lake", data_key_length=17)
    with pytest.raises(ValueError, match="'kek' is the id of an entry, not of a master key"):
        keys.add_manifest_list_key(key_metadata(), kms, "kek")
    with pytest.raises(TypeError, match=r"entries must be ags1\.iceberg\.EncryptedKey objects, not dict"):
        EncryptionKeys([kek_entry()])  # type: ignore[list-item]
    assert kms.calls == {}
    assert len(keys) == 1


# -- the object ------------------------------------------------------------------------------------------------


def test_it_is_a_container_of_its_entries() -> None:
    keys = keys_of(kek_entry(), list_entry())
    assert keys.key_ids == ("kek", "list")
    assert "kek" in keys
    assert "other" not in keys
    assert [each.key_id for each in keys] == ["kek", "list"]
    assert keys["list"].encrypted_by_id == "kek"
    assert keys == EncryptionKeys(keys)
    assert keys != keys_of(kek_entry())
    assert keys != [*keys]
    assert keys.report is None


def test_it_is_pickled_without_keys_cache_or_clock() -> None:
    keys, kms = keys_of(kek_entry(), list_entry()), CountingKms()
    keys.unwrap("list", kms)
    pickled = pickle.dumps(keys)
    assert KEK not in pickled
    restored = pickle.loads(pickled)
    assert restored == keys
    assert restored.unwrap("list", CountingKms()) == key_metadata()


def test_an_entry_cannot_be_changed() -> None:
    one = EncryptedKey("id", b"wrapped", "by", {"KEY_TIMESTAMP": "1"})
    with pytest.raises(AttributeError):
        one.key_id = "other"  # type: ignore[misc]
    with pytest.raises(TypeError):
        one.properties["KEY_TIMESTAMP"] = "2"  # type: ignore[index]
    assert hash(one) == hash(EncryptedKey("id", b"wrapped"))
    assert one != EncryptedKey("id", b"wrapped")
    assert one != "id"
