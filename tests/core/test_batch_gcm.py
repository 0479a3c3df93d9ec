"""Values of the plain GCM form: what other libraries make and read, byte for byte, and nothing that was changed."""

from __future__ import annotations

import os
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

import ags1
from ags1.core import batch as native_batch
from tests.checks import KEY, MIB, OTHER_KEY, PREFIX, count_of_messages, flip, in_child, pattern

LENGTHS = (0, 1, 15, 16, 17, 100, 2047, 2048, 64 << 10, MIB + 1, 3 * MIB)


def opened(message: bytes, aad: bytes = b"", key: bytes = KEY) -> bytes:
    return AESGCM(key).decrypt(message[:12], message[12:], aad)


def made(plain: bytes, aad: bytes = b"", key: bytes = KEY) -> bytes:
    nonce = os.urandom(12)
    return nonce + AESGCM(key).encrypt(nonce, plain, aad)


@pytest.mark.parametrize("threads", [None, 1, 3])
def test_another_library_reads_what_is_made_and_the_other_way_round(threads: int | None) -> None:
    plain = [pattern(length, seed) for seed, length in enumerate(LENGTHS)]
    for aad in (b"", PREFIX, bytes(600)):
        sealed = ags1.encrypt_many(plain, KEY, aad_prefixes=aad, form="gcm", threads=threads)
        assert [len(each) for each in sealed] == [28 + length for length in LENGTHS]
        assert [opened(bytes(each), aad) for each in sealed] == plain
        theirs = [made(each, aad) for each in plain]
        assert ags1.decrypt_many(theirs, KEY, aad_prefixes=aad, form="gcm", threads=threads) == plain


@given(
    values=st.lists(st.tuples(st.binary(max_size=300), st.binary(max_size=40), st.sampled_from([16, 24, 32]))),
    lead=st.binary(max_size=30),
    form=st.sampled_from(["ags1", "gcm"]),
    block_length=st.integers(1, 100),
)
def test_values_of_any_key_prefix_and_lead_come_back(
    values: list[tuple[bytes, bytes, int]], lead: bytes, form: Any, block_length: int
) -> None:
    plain, aads, keys = (
        [each[0] for each in values],
        [each[1] for each in values],
        [KEY[: each[2]] for each in values],
    )
    length = block_length if form == "ags1" else 1 << 20
    sealed = native_batch.encrypt_batch(plain, keys, aads, length, 1, None, form, lead)
    assert all(bytes(each).startswith(lead) for each in sealed)
    behind = [bytes(each)[len(lead) :] for each in sealed]
    for value, aad, key, data in zip(behind, aads, keys, plain, strict=True):
        assert (opened(value, aad, key) if form == "gcm" else ags1.decrypt(value, key, aad_prefix=aad)) == data
    assert native_batch.decrypt_batch(sealed, keys, aads, None, 1, None, "raise", form, len(lead)) == plain


def test_a_lead_stands_in_front_of_one_buffer_of_more_blocks_than_nonces_are_drawn_for_at_once() -> None:
    data = pattern(70_000)
    sealed = native_batch.encrypt_batch([b"x", data], KEY, None, 1, 1, None, "ags1", b"lead")
    assert [bytes(each[:8]) for each in sealed] == [b"leadAGS1"] * 2
    assert ags1.decrypt(sealed[1][4:], KEY) == data


def test_each_flipped_bit_of_a_value_is_noticed() -> None:
    value = bytes(ags1.encrypt_many([b"12345"], KEY, aad_prefixes=PREFIX, form="gcm")[0])
    for bit in range(8 * len(value)):
        damaged = flip(value, bit // 8, bit % 8)
        with pytest.raises(ags1.AuthenticationError) as caught:
            ags1.decrypt_many([value, damaged], KEY, aad_prefixes=PREFIX, form="gcm")
        assert caught.value.item_index == 1


def test_a_value_that_ends_early_is_no_value() -> None:
    value = bytes(ags1.encrypt_many([b"12345"], KEY, form="gcm")[0])
    for length in range(28):
        with pytest.raises(ags1.TruncatedError, match=f"buffer 1: has {length} bytes"):
            ags1.decrypt_many([value, value[:length]], KEY, form="gcm", on_error="null")
    for length in range(28, len(value)):
        with pytest.raises(ags1.AuthenticationError):
            ags1.decrypt_many([value, value[:length]], KEY, form="gcm")
    with pytest.raises(ags1.AuthenticationError):
        ags1.decrypt_many([value + b"\0"], KEY, form="gcm")
    with pytest.raises(ags1.TruncatedError, match="trusted length"):
        ags1.decrypt_many([value], KEY, lengths=[len(value) + 1], form="gcm")


def test_values_that_changed_places_are_refused_under_their_aads() -> None:
    aads = [b"row 1", b"row 2"]
    sealed = ags1.encrypt_many([b"one", b"two"], KEY, aad_prefixes=aads, form="gcm")
    for swapped in ([sealed[1], sealed[0]], [sealed[0], sealed[0]]):
        with pytest.raises(ags1.AuthenticationError):
            ags1.decrypt_many(swapped, KEY, aad_prefixes=aads, form="gcm")
    with pytest.raises(ags1.AuthenticationError):
        ags1.decrypt_many(sealed, KEY, aad_prefixes=aads[::-1], form="gcm")


def test_the_form_is_told_and_never_guessed() -> None:
    streams = ags1.encrypt_many([b"one"], KEY)
    messages = ags1.encrypt_many([b"one"], KEY, form="gcm")
    with pytest.raises(ags1.AuthenticationError):
        ags1.decrypt_many(streams, KEY, form="gcm")
    with pytest.raises(ags1.FormatError):
        ags1.decrypt_many(messages, KEY)
    # The number of a block is part of a stream's AAD, so the inside of one is no message under the same prefix.
    with pytest.raises(ags1.AuthenticationError):
        ags1.decrypt_many([streams[0][8:]], KEY, form="gcm")
    assert ags1.decrypt_many([streams[0][8:]], KEY, aad_prefixes=bytes(4), form="gcm") == [b"one"]
    for call in (ags1.encrypt_many, ags1.decrypt_many):
        for wrong in ("GCM", "", None):
            with pytest.raises(ValueError, match="form must be 'ags1' or 'gcm'"):
                call([b""], KEY, form=wrong)  # type: ignore[operator]
    with pytest.raises(ValueError, match="block_length is for the form 'ags1'"):
        ags1.encrypt_many([b""], KEY, form="gcm", block_length=100)


def test_one_damaged_value_is_null_and_a_wrong_key_is_an_error() -> None:
    sealed = [bytes(each) for each in ags1.encrypt_many([b"one", b"two", b"three"], KEY, form="gcm")]
    sealed[1] = flip(sealed[1], 20)
    plain = ags1.decrypt_many(sealed, KEY, form="gcm", on_error="null")
    assert plain == [b"one", None, b"three"]
    assert plain.failed == (1,)
    with pytest.raises(ags1.AuthenticationError):
        ags1.decrypt_many(sealed, OTHER_KEY, form="gcm", on_error="null")
    alone = native_batch.decrypt_batch(sealed[1:2], KEY, None, None, 1, None, "null", "gcm", 0, True)
    assert (list(alone), alone.failed) == ([None], (0,))


def test_a_key_seals_no_more_values_than_it_may() -> None:
    key = ags1.Key(KEY)
    count_of_messages(key).value = (1 << 32) - 2
    assert len(ags1.encrypt_many([b"a", b"b"], key, form="gcm")) == 2
    with pytest.raises(ags1.LimitError, match="use a fresh key"):
        ags1.encrypt_many([b"c"], key, form="gcm")


def test_no_nonce_repeats_between_batches_and_across_forks() -> None:
    def nonces() -> bytes:
        return b"".join(each[:12] for each in ags1.encrypt_many([b""] * 1000, KEY, form="gcm"))

    found = nonces() + nonces() + in_child(nonces) + in_child(nonces)
    assert len({found[place : place + 12] for place in range(0, len(found), 12)}) == 4000
