"""Modules: known answers, every AAD, ordinals, lengths, counting, and what OpenSSL may fail at."""

from __future__ import annotations

import itertools
import random
import struct

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

import ags1
from ags1 import Key
from ags1.parquet.native import modules as native_modules
from tests.checks import BUFFER_KINDS, KEYS, OTHER_KEY, BufferKind, count_of_messages, flip, pattern
from tests.parquet import reference_model

KEY, AAD = KEYS[16], b"prefix and file unique" + b"\x02\x01\x00\x02\x00\x03\x00"
LENGTHS = (0, 1, 15, 16, 17, 255, 4096, 100_003)
NUMBERS = (0, 1, 255, 256, 32_767)


def sealed_by_reference(plain: bytes, key: bytes, aad: bytes, ctr: bool, nonce: bytes = b"nonce of 12.") -> bytes:
    if ctr:
        encryptor = Cipher(AES(key), CTR(nonce + b"\x00\x00\x00\x01")).encryptor()
        body = encryptor.update(plain) + encryptor.finalize()
    else:
        body = AESGCM(key).encrypt(nonce, plain, aad)
    return struct.pack("<I", 12 + len(body)) + nonce + body


def opened_by_reference(module: bytes, key: bytes, aad: bytes, ctr: bool) -> bytes:
    assert int.from_bytes(module[:4], "little") == len(module) - 4
    if not ctr:
        return AESGCM(key).decrypt(module[4:16], module[16:], aad)
    decryptor = Cipher(AES(key), CTR(module[4:16] + b"\x00\x00\x00\x01")).decryptor()
    return decryptor.update(module[16:]) + decryptor.finalize()


# -- bytes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ctr", [False, True], ids=["GCM", "CTR"])
@pytest.mark.parametrize("bits", KEYS)
@pytest.mark.parametrize("length", LENGTHS)
def test_modules_are_those_of_another_implementation(length: int, bits: int, ctr: bool) -> None:
    plain, key = pattern(length), KEYS[bits]
    made = native_modules.seal_module(plain, key, AAD, ctr)
    assert len(made) == length + (16 if ctr else 32)
    assert opened_by_reference(made, key, AAD, ctr) == plain
    assert native_modules.open_module(sealed_by_reference(plain, key, AAD, ctr), key, AAD, ctr) == plain


def test_known_answers_of_counter_mode() -> None:
    # NIST SP 800-38A, F.5.1, shifted: its counter block is a nonce and a counter that starts elsewhere, so the
    # vector of RFC 3686 (test vector 1) is used, whose counter starts at 1 as this one does.
    key = bytes.fromhex("ae6852f8121067cc4bf7a5765577f39e")
    nonce = bytes.fromhex("00000030") + bytes(8)
    module = struct.pack("<I", 28) + nonce + bytes.fromhex("e4095d4fb7a7b3792d6175a3261311b8")
    assert native_modules.open_module(module, key, b"", True) == b"Single block msg"


def test_the_counter_carries_into_its_four_bytes() -> None:
    # Block 256 and later: a counter of one byte would repeat the key stream.
    plain = bytes(16 * 70_000)
    made = native_modules.seal_module(plain, KEY, b"", True)
    assert opened_by_reference(made, KEY, b"", True) == plain
    blocks = [made[at : at + 16] for at in range(16, len(made), 16)]
    assert len(set(blocks)) == len(blocks)


def test_counter_mode_takes_no_notice_of_the_aad() -> None:
    made = native_modules.seal_module(b"page", KEY, b"one AAD", True)
    assert native_modules.open_module(made, KEY, b"another", True) == b"page"


def test_no_two_modules_have_one_nonce() -> None:
    made = [native_modules.seal_module(b"x", KEY, AAD) for _ in range(10_000)]
    assert len({module[4:16] for module in made}) == 10_000


def test_modules_that_are_sealed_at_once_are_those_of_their_places() -> None:
    chooser = random.Random(7)
    kinds = [kind for kind in range(1, 10) if kind not in (native_modules.DATA_PAGE, native_modules.DATA_PAGE_HEADER)]
    places = [(chooser.choice(kinds), chooser.randrange(32768), chooser.randrange(32768)) for _ in range(60)]
    keys = [chooser.choice([None, Key(KEY), Key(OTHER_KEY)]) for _ in places]
    plain = [chooser.randbytes(chooser.choice([0, 1, 100, 5000])) for _ in places]
    wanted = [(data, key, *place) for data, key, place in zip(plain, keys, places, strict=True)]
    sealed = native_modules.seal_modules(b"file", wanted)
    for data, (given, key, *place) in zip(sealed, wanted, strict=True):
        aad = native_modules.module_aad(b"file", *place)
        assert given == (data if key is None else native_modules.open_module(data, key, aad))
    assert len({data[4:16] for data, key in zip(sealed, keys, strict=True) if key}) == sum(
        key is not None for key in keys
    )
    assert native_modules.seal_modules(b"file", []) == []
    for row_group, column in ((-1, 0), (32768, 0), (0, -1), (0, 32768)):
        with pytest.raises(ags1.LimitError, match="outside 0 to 32767"):
            native_modules.seal_modules(b"file", [(b"data", Key(KEY), 1, row_group, column)])


@pytest.mark.parametrize("kind", BUFFER_KINDS, ids=str)
def test_any_buffer_is_data(kind: BufferKind) -> None:
    plain = pattern(kind.rounded(96))
    assert native_modules.open_module(native_modules.seal_module(kind.make(plain), KEY, AAD), KEY, AAD) == plain
    made = native_modules.seal_module(pattern(kind.rounded(64)), KEY, AAD)
    assert native_modules.open_module(kind.make(made), KEY, AAD) == pattern(kind.rounded(64))


# -- what is refused -----------------------------------------------------------------------------------------


def test_a_module_that_fails_is_named() -> None:
    made = native_modules.seal_module(b"two", KEY, AAD)
    with pytest.raises(ags1.AuthenticationError, match=r"^column index: wrong key, wrong AAD prefix, or damaged data$"):
        native_modules.open_module(flip(made, 20), KEY, AAD, name="column index")


def test_every_bit_of_a_module_counts() -> None:
    made = native_modules.seal_module(b"short", KEY, AAD)
    for position, bit in itertools.product(range(len(made)), range(8)):
        with pytest.raises((ags1.AuthenticationError, ags1.FormatError)):
            native_modules.open_module(flip(made, position, bit), KEY, AAD)
    for position in range(len(AAD)):
        with pytest.raises(ags1.AuthenticationError):
            native_modules.open_module(made, KEY, flip(AAD, position))
    for key in (OTHER_KEY, flip(KEY, 3), KEY + bytes(8)):
        with pytest.raises(ags1.AuthenticationError):
            native_modules.open_module(made, key, AAD)


@pytest.mark.parametrize("ctr", [False, True], ids=["GCM", "CTR"])
def test_length_words_that_contradict_the_bytes(ctr: bool) -> None:
    made = native_modules.seal_module(b"12345", KEY, AAD, ctr)
    least = 16 if ctr else 32
    for cut in range(least):
        with pytest.raises(ags1.TruncatedError, match=f"^page: {cut} bytes are too few for an encrypted module"):
            native_modules.open_module(made[:cut], KEY, AAD, ctr, "page")
    with pytest.raises(ags1.TruncatedError, match=r"says \d+ bytes, but there are \d+"):
        native_modules.open_module(made[:-1], KEY, AAD, ctr)
    with pytest.raises(ags1.FormatError, match=r"says \d+ bytes, but \d+ belong to it"):
        native_modules.open_module(made + b"\0", KEY, AAD, ctr)
    for stated in (0, 1, least - 5, (1 << 31) - 1, 1 << 31, (1 << 32) - 4, (1 << 32) - 1):
        with pytest.raises(ags1.FormatError, match=f"its length word says {stated} bytes"):
            native_modules.open_module(struct.pack("<I", stated) + made[4:], KEY, AAD, ctr)


def test_a_module_without_plaintext_is_authenticated_too() -> None:
    made = native_modules.seal_module(b"", KEY, AAD)
    assert native_modules.open_module(made, KEY, AAD) == b""
    with pytest.raises(ags1.AuthenticationError):
        native_modules.open_module(flip(made, 31), KEY, AAD)


def test_wrong_arguments() -> None:
    with pytest.raises(ValueError, match="key must be 16, 24 or 32 bytes"):
        native_modules.seal_module(b"", bytes(15), AAD)
    with pytest.raises(TypeError, match="data must be a bytes-like object"):
        native_modules.seal_module("text", KEY, AAD)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="aad must be a bytes-like object"):
        native_modules.open_module(bytes(40), KEY, None)  # type: ignore[arg-type]


# -- AADs ----------------------------------------------------------------------------------------------------

WITH_PAGES = {"data page", "data page header"}
KINDS = [kind for kind in reference_model.MODULE_TYPES if kind != "footer signature"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("file_aad", [b"", b"unique", bytes(300)])
def test_aads_are_the_references(kind: str, file_aad: bytes) -> None:
    number = reference_model.MODULE_TYPES[kind]
    seen = set()
    for row_group, column, page in itertools.product(NUMBERS, repeat=3):
        ordinals: tuple[int, ...] = (row_group, column, page)
        ordinals = ordinals[: 0 if kind == "footer" else 3 if kind in WITH_PAGES else 2]
        made = native_modules.module_aad(file_aad, number, *ordinals)
        assert made == reference_model.module_aad(file_aad, kind, *ordinals)
        seen.add(made)
    assert len(seen) == len(NUMBERS) ** len(ordinals), "two modules have one AAD"


@pytest.mark.parametrize("bad", [-1, 32_768, 65_535, 65_536, 1 << 31, 1 << 32, 1 << 70, -(1 << 70)])
def test_ordinals_never_wrap(bad: int) -> None:
    for at, what in enumerate(("row group", "column", "page")):
        ordinals = [0, 0, 0]
        ordinals[at] = bad
        with pytest.raises(ags1.LimitError, match=f"{what} {bad} is outside 0 to 32767"):
            native_modules.module_aad(b"", native_modules.DATA_PAGE, *ordinals)
    with pytest.raises(ags1.LimitError, match=f"^lake.parquet: row group {bad} is outside"):
        native_modules.check_ordinal(bad, "row group", "lake.parquet")


def test_ordinals_that_a_type_needs_or_has_not() -> None:
    with pytest.raises(ValueError, match="a data page needs the ordinal of its page"):
        native_modules.module_aad(b"", native_modules.DATA_PAGE, 0, 0)
    with pytest.raises(ValueError, match="a column index needs the ordinal of its column"):
        native_modules.module_aad(b"", native_modules.COLUMN_INDEX, 0)
    with pytest.raises(ValueError, match="a dictionary page has no page ordinal"):
        native_modules.module_aad(b"", native_modules.DICTIONARY_PAGE, 0, 0, 0)
    for wrong in (-1, 10, 255):
        with pytest.raises(ValueError, match=f"module type {wrong} is not one of 0 to 9"):
            native_modules.module_aad(b"", wrong, 0, 0)


def test_names_for_messages() -> None:
    assert native_modules.module_name(native_modules.FOOTER) == "footer"
    assert (
        native_modules.module_name(native_modules.DATA_PAGE, 1, "a.b", 3)
        == "data page 3 of column 'a.b' in row group 1"
    )
    assert (
        native_modules.module_name(native_modules.BLOOM_FILTER_BITSET, 0, "c")
        == "Bloom filter bitset of column 'c' in row group 0"
    )


# -- signatures ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", KEYS)
def test_signatures_are_the_tags_of_another_implementation(bits: int) -> None:
    footer, aad = pattern(1000), b"file aad\0"
    signature = native_modules.sign_footer(footer, KEYS[bits], aad)
    assert len(signature) == native_modules.SIGNATURE_LENGTH
    assert AESGCM(KEYS[bits]).encrypt(signature[:12], footer, aad)[-16:] == signature[12:]
    native_modules.verify_footer(footer, signature, KEYS[bits], aad)


def test_every_bit_of_a_signed_footer_counts() -> None:
    footer, aad = pattern(40), b"aad"
    signature = native_modules.sign_footer(footer, KEY, aad)
    attempts = [(flip(footer, at), signature) for at in range(len(footer))]
    attempts += [(footer, flip(signature, at, 7)) for at in range(28)]
    attempts += [(footer + b"\0", signature), (footer[:-1], signature), (b"", signature)]
    for changed, given in attempts:
        with pytest.raises(ags1.AuthenticationError, match=r"^lake: its signature does not verify: wrong footer key"):
            native_modules.verify_footer(changed, given, KEY, aad, "lake")
    for wrong in (b"", signature[:-1], signature + b"\0"):
        with pytest.raises(ags1.TruncatedError, match=f"has 28 bytes, not {len(wrong)}"):
            native_modules.verify_footer(footer, wrong, KEY, aad)


# -- how many ------------------------------------------------------------------------------------------------


def test_a_key_seals_no_more_than_two_to_the_32_modules() -> None:
    key = ags1.Key(KEY)
    count = count_of_messages(key)
    count.value = (1 << 32) - 2
    native_modules.seal_module(b"", key, b"")
    native_modules.sign_footer(b"footer", key, b"")
    for call in (native_modules.seal_module, native_modules.sign_footer):
        with pytest.raises(ags1.LimitError, match=r"one key may seal 4294967296 messages.*use a fresh key"):
            call(b"", key, b"")
    assert count.value == 1 << 32, "what was refused was counted"
    # Opening takes no nonces.
    assert native_modules.open_module(native_modules.seal_module(b"x", KEY, b""), key, b"") == b"x"


# -- failures of the backend ---------------------------------------------------------------------------------


def test_keys_of_all_sizes_in_turn() -> None:
    # Contexts are keyed by the address of a key: one that comes to lie where another was is another all the same.
    for number in range(200):
        raw = pattern((16, 24, 32)[number % 3], number)
        key = ags1.Key(raw)
        assert opened_by_reference(native_modules.seal_module(b"x", key, AAD), raw, AAD, False) == b"x"
        del key
