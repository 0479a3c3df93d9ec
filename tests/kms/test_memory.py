"""MemoryKms: Iceberg's test format, both ways."""

from __future__ import annotations

from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

import ags1
from ags1.kms import MemoryKms
from tests.checks import KEYS, in_threads

# The master keys of Iceberg's UnitestKMS.
ICEBERG = {"keyA": b"0123456789012345", "keyB": b"1123456789012345"}


@pytest.mark.parametrize("master", KEYS.values())
@pytest.mark.parametrize("key", KEYS.values())
def test_what_it_wraps_is_nonce_ciphertext_and_tag_without_aad(master: bytes, key: bytes) -> None:
    wrapped = MemoryKms({"lake": master}).wrap_key(key, "lake")
    assert len(wrapped) == 12 + len(key) + 16
    assert AESGCM(master).decrypt(wrapped[:12], wrapped[12:], None) == key


@pytest.mark.parametrize("key_id", ICEBERG)
def test_it_unwraps_what_icebergs_test_kms_wraps(key_id: str) -> None:
    nonce = bytes(range(12))
    wrapped = nonce + AESGCM(ICEBERG[key_id]).encrypt(nonce, KEYS[16], None)
    assert MemoryKms(ICEBERG).unwrap_key(wrapped, key_id) == KEYS[16]


def test_the_same_key_is_never_wrapped_to_the_same_bytes() -> None:
    client = MemoryKms(ICEBERG)
    assert len({client.wrap_key(KEYS[16], "keyA")[:12] for _ in range(100)}) == 100


def test_a_wrong_master_key_is_told_from_an_unknown_one() -> None:
    client = MemoryKms(ICEBERG)
    wrapped = client.wrap_key(KEYS[32], "keyA")
    with pytest.raises(ags1.KeyAccessError) as wrong:
        client.unwrap_key(wrapped, "keyB")
    assert str(wrong.value) == (
        "MemoryKms could not unwrap a key with 'keyB': it was wrapped with another key, or it is damaged"
    )
    with pytest.raises(ags1.KeyAccessError, match="'keyC': there is no key with this id; the ids are keyA, keyB"):
        client.unwrap_key(wrapped, "keyC")
    with pytest.raises(ags1.KeyAccessError, match="there are no keys"):
        MemoryKms({}).wrap_key(KEYS[32], "keyA")


@pytest.mark.parametrize("position", [0, 11, 12, 20, -16, -1])
def test_a_flipped_bit_is_noticed(position: int) -> None:
    client = MemoryKms(ICEBERG)
    wrapped = bytearray(client.wrap_key(KEYS[32], "keyA"))
    wrapped[position] ^= 1
    with pytest.raises(ags1.KeyAccessError, match="it was wrapped with another key, or it is damaged"):
        client.unwrap_key(wrapped, "keyA")


@pytest.mark.parametrize("length", [1, 12, 27, 28])
def test_what_is_too_short_to_be_a_wrapped_key_is_called_so(length: int) -> None:
    with pytest.raises(ags1.KeyAccessError, match=f"the wrapped key has {length} bytes; the minimum is 29"):
        MemoryKms(ICEBERG).unwrap_key(bytes(length), "keyA")


@pytest.mark.parametrize("keys", [{"lake": bytes(15)}, {"lake": b""}])
def test_a_master_key_of_another_size_is_refused(keys: Any) -> None:
    with pytest.raises(ValueError, match="16, 24 or 32"):
        MemoryKms(keys)


def test_a_long_list_of_keys_is_not_shown_whole() -> None:
    with pytest.raises(ags1.KeyAccessError) as caught:
        MemoryKms({f"key{number:03}": KEYS[16] for number in range(500)}).wrap_key(KEYS[16], "lake")
    assert str(caught.value).endswith("key008, key009, ...")


def test_threads_share_one() -> None:
    client = MemoryKms(ICEBERG, cache_seconds=0)

    def work() -> bool:
        return all(client.unwrap_key(client.wrap_key(key, "keyB"), "keyB") == key for key in [*KEYS.values()] * 50)

    assert all(in_threads([work] * 8))


def test_close_forgets_the_master_keys() -> None:
    client = MemoryKms(ICEBERG)
    client.close()
    assert not client._keys
