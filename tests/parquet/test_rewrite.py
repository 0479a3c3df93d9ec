"""Files that are encrypted, decrypted and re-keyed hold what they held before: every kind of file, module by module."""

from __future__ import annotations

import io
import itertools
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ags1 import Ags1Error, AuthenticationError, FormatError, KeyAccessError
from ags1.parquet import (
    DecryptionConfig,
    EncryptionConfig,
    PlaintextColumnsError,
    decrypt_file,
    encrypt_file,
    rekey_file,
)
from tests.checks import covering, every
from tests.parquet import corpus
from tests.parquet.compare import differences
from tests.parquet.reference import open_encrypted, open_plain
from tests.parquet.reference_model import CTR_PAGES, DATA_PAGE_V2, GCM, Chunk, File
from tests.parquet.reference_writer import Encryption, encrypt_reference

FOOTER_KEY = b"footer key, 24 bytes ..."
OTHER_FOOTER_KEY = b"another footer key, 32 bytes ..."
PREFIX = b"table/part-7"
# Those of them that a file has get their keys.
COLUMN_KEYS = {
    ("name",): b"column key, 32 bytes ...........",
    ("list", "list", "element"): b"another, 16 byte",
    ("struct", "y"): b"one more, 24 bytes .....",
    ("a.b",): b"of a dotted name",
}
# Pages of types that have no module type, so that they cannot be encrypted.
WITH_STRANGE_PAGES = ("index-pages", "unknown-pages")
# Readers disagree on what the first page of these is, unless the encodings in the metadata say the same to all.
WITH_UNCLEAR_DICTIONARIES = ("unused-dictionary", "unknown-encodings")
ENCRYPTABLE = [name for name in corpus.CORPUS if name not in WITH_STRANGE_PAGES]
# PyArrow reads the rows of the last, but cannot say what its column is called.
READABLE = [name for name in ENCRYPTABLE if name not in {*corpus.UNREADABLE, "path-that-is-no-text"}]
# What handmade.unknown_fields puts beside the metadata of a column chunk.
_UNKNOWN_OF_A_CHUNK = re.compile(r"row group \d+, column \d+ \([\w.]+\), field 20[01]: ")
_UNCLEAR = re.compile(r"row group \d+, column \d+ \(\w+\), metadata, field (2|13): ")


def column_keys(plain: File) -> dict[tuple[str, ...], bytes]:
    paths = {chunk.path for chunk in plain.chunks}
    return {path: key for path, key in COLUMN_KEYS.items() if path in paths}


def encrypted(data: bytes, config: EncryptionConfig) -> bytes:
    target = io.BytesIO()
    encrypt_file(data, target, config)
    return target.getvalue()


def decrypted(data: bytes, config: DecryptionConfig) -> bytes:
    target = io.BytesIO()
    decrypt_file(data, target, config)
    return target.getvalue()


def rekeyed(data: bytes, decryption: DecryptionConfig, encryption: EncryptionConfig) -> bytes:
    """Re-keyed; columns may become plaintext."""
    target = io.BytesIO()
    try:
        rekey_file(data, target, decryption, encryption)
    except PlaintextColumnsError as error:
        rekey_file(data, target, decryption, encryption, plaintext_columns=error.columns)
    return target.getvalue()


def stored(file: File, chunk: Chunk) -> bytes:
    """The bytes of a chunk's pages as they lie in the file."""
    start = chunk.pages[0].offset
    return file.data[start : start + chunk.metadata[7]]


def unexpected(name: str, found: list[str]) -> list[str]:
    if name in WITH_UNCLEAR_DICTIONARIES:
        return [each for each in found if not _UNCLEAR.match(each)]
    return found


# -- every file of the corpus --------------------------------------------------------------------------------


@every("name", ENCRYPTABLE)
@pytest.mark.parametrize(("algorithm", "form"), [(GCM, "java"), (CTR_PAGES, "arrow")])
def test_a_file_holds_the_same_after_encryption_and_after_decryption(name: str, algorithm: str, form: str) -> None:
    data = corpus.build(name)
    plain = open_plain(data, strict=False)
    secret = encrypted(data, EncryptionConfig(FOOTER_KEY, algorithm=algorithm, data_page_v2=form))
    opened = open_encrypted(secret, FOOTER_KEY)
    assert unexpected(name, differences(plain, opened)) == []
    assert opened.gaps() == []
    assert opened.algorithm == algorithm
    assert {page.v2_form for chunk in opened.chunks for page in chunk.pages} <= {None, form}
    back = open_plain(decrypted(secret, DecryptionConfig(FOOTER_KEY)))
    assert unexpected(name, differences(plain, back)) == []
    assert back.gaps() == []
    # Nothing is lost by the way, only made clear.
    assert differences(opened, back) == []


@pytest.mark.parametrize("plaintext_footer", [False, True])
@every("corpus_name", corpus.CORPUS)
def test_a_file_holds_the_same_with_keys_for_some_columns(corpus_name: str, plaintext_footer: bool) -> None:
    data = corpus.build(corpus_name)
    plain = open_plain(data, strict=False)
    keys = column_keys(plain)
    if corpus_name in WITH_STRANGE_PAGES:
        del keys["name",]
    config = EncryptionConfig(FOOTER_KEY, column_keys=keys, plaintext_footer=plaintext_footer)
    secret = encrypted(data, config)
    # Columns that stay plaintext are what they were before, with all that contradicts itself in them.
    strict = corpus_name not in corpus.INCONSISTENT
    opened = open_encrypted(secret, FOOTER_KEY, keys, strict=strict)
    found = unexpected(corpus_name, differences(plain, opened))
    if plaintext_footer:
        # There is no place in such a file where they would be hidden.
        found = [each for each in found if not _UNKNOWN_OF_A_CHUNK.match(each)]
    assert found == []
    assert {chunk.path for chunk in opened.chunks if chunk.encryption == "column key"} == set(keys)
    assert {chunk.encryption for chunk in opened.chunks} <= {"column key", "plaintext"}
    back = open_plain(decrypted(secret, DecryptionConfig(FOOTER_KEY, column_keys=keys)), strict=strict)
    assert differences(opened, back) == []


@every("name", ENCRYPTABLE)
def test_a_file_holds_the_same_after_any_chain_of_re_keying(name: str) -> None:
    data = corpus.build(name)
    plain = open_plain(data, strict=False)
    keys = column_keys(plain)
    other_keys = {path: key[::-1] for path, key in keys.items()}
    steps: list[tuple[dict[str, Any], dict[tuple[str, ...], bytes]]] = [
        ({}, {}),
        ({"column_keys": keys, "encrypt_all": True, "data_page_v2": "arrow"}, keys),
        ({"column_keys": keys, "plaintext_footer": True, "algorithm": CTR_PAGES}, keys),
        (
            {"column_keys": other_keys, "encrypt_all": True, "plaintext_footer": True, "algorithm": CTR_PAGES},
            other_keys,
        ),
        ({"column_keys": {}, "aad_prefix": PREFIX, "store_aad_prefix": False}, {}),
        ({"aad_prefix": PREFIX, "data_page_v2": "arrow"}, {}),
    ]
    # Half of them for each file, one further on for the next file.
    first = ENCRYPTABLE.index(name) % len(steps)
    current, reading = data, DecryptionConfig(allow_plaintext=True)
    for options, known in [*steps, *steps][first : first + len(steps) // 2]:
        current = rekeyed(current, reading, EncryptionConfig(FOOTER_KEY, **options))
        reading = DecryptionConfig(FOOTER_KEY, column_keys=known, aad_prefix=options.get("aad_prefix"))
        supplied = None if options.get("store_aad_prefix", True) else PREFIX
        opened = open_encrypted(current, FOOTER_KEY, known, supplied)
        found = [each for each in unexpected(name, differences(plain, opened)) if not _UNKNOWN_OF_A_CHUNK.match(each)]
        assert found == [], options
        assert opened.gaps() == [], options
    assert differences(opened, open_plain(decrypted(current, reading))) == []


@every("name", READABLE)
def test_pyarrow_reads_the_same_rows_from_what_was_decrypted(name: str) -> None:
    data = corpus.build(name)
    secret = encrypted(data, EncryptionConfig(FOOTER_KEY))
    options: dict[str, Any] = {"use_threads": False, "page_checksum_verification": True}
    back = decrypted(secret, DecryptionConfig(FOOTER_KEY))
    expected = pq.read_table(io.BytesIO(data), use_threads=False)
    assert pq.read_table(io.BytesIO(back), **options).equals(expected, check_metadata=True)


@pytest.mark.parametrize("name", sorted(corpus.INCONSISTENT))
def test_what_contradicts_itself_in_a_file_is_right_once_it_was_encrypted(name: str) -> None:
    data = corpus.build(name)
    plain = open_plain(data, strict=False)
    assert plain.complaints
    secret = encrypted(data, EncryptionConfig(FOOTER_KEY))
    assert open_encrypted(secret, FOOTER_KEY, strict=False).complaints == []
    assert open_plain(decrypted(secret, DecryptionConfig(FOOTER_KEY)), strict=False).complaints == []


@pytest.mark.parametrize(("name", "number"), [("index-pages", 1), ("unknown-pages", 77)])
def test_a_page_without_a_module_type_is_refused_by_name_and_kept_in_plaintext_columns(name: str, number: int) -> None:
    data = corpus.build(name)
    with pytest.raises(
        FormatError, match=rf"column 'number' in row group 0: has page type {number}, for which Parquet Mod"
    ):
        encrypted(data, EncryptionConfig(FOOTER_KEY))
    kept = open_encrypted(encrypted(data, EncryptionConfig(FOOTER_KEY, column_keys={})), FOOTER_KEY)
    types = [[page.type for page in chunk.pages] for chunk in open_plain(data).chunks]
    assert [[page.type for page in chunk.pages] for chunk in kept.chunks] == types
    assert any(number in each for each in types)


@pytest.mark.parametrize("name", WITH_UNCLEAR_DICTIONARIES)
def test_readers_agree_whether_the_first_page_is_a_dictionary(name: str) -> None:
    """parquet-java without encoding statistics looks at the encodings, Arrow at the page's offset."""
    opened = open_encrypted(encrypted(corpus.build(name), EncryptionConfig(FOOTER_KEY)), FOOTER_KEY)
    unclear = [chunk for chunk in opened.chunks if 13 not in chunk.metadata]
    assert unclear
    for chunk in unclear:
        assert (11 in chunk.metadata) == any(encoding in (2, 8) for encoding in chunk.metadata[2])


# -- files of others -----------------------------------------------------------------------------------------


WRITERS: dict[str, dict[str, Any]] = {
    "like-java": {"pad_thrift": True},
    "like-arrow-rs": {"omit_supply_aad_prefix": True, "hidden_fields": tuple(range(12, 18)), "data_page_v2": "arrow"},
    "without-ordinals": {"write_ordinals": False, "column_keys": COLUMN_KEYS, "data_page_v2": "arrow"},
    "padded-keys": {"pad_thrift": True, "column_keys": COLUMN_KEYS, "encrypt_all": True, "plaintext_footer": True},
    "ctr-padded": {"pad_thrift": True, "algorithm": CTR_PAGES, "aad_prefix": PREFIX, "store_aad_prefix": False},
    "long-unique": {"aad_file_unique": bytes(range(100)), "column_keys": COLUMN_KEYS, "encrypt_all": True},
}


def assert_decrypted_and_rekeyed(name: str, writer: str) -> None:
    plain = open_plain(corpus.build(name), strict=False)
    encryption = Encryption(FOOTER_KEY, **WRITERS[writer])
    secret = encrypt_reference(plain, encryption)
    supplied = None if encryption.store_aad_prefix else encryption.aad_prefix
    reading = DecryptionConfig(FOOTER_KEY, column_keys=encryption.column_keys, aad_prefix=supplied)
    back = open_plain(decrypted(secret, reading))
    assert unexpected(name, differences(plain, back)) == []
    # With the same prefix and algorithm, so that what can be copied is.
    keys = column_keys(plain)
    config = EncryptionConfig(
        FOOTER_KEY, column_keys=keys, encrypt_all=True, algorithm=encryption.algorithm, aad_prefix=encryption.aad_prefix
    )
    opened = open_encrypted(rekeyed(secret, reading, config), FOOTER_KEY, keys, encryption.aad_prefix)
    assert unexpected(name, differences(plain, opened)) == []
    assert opened.gaps() == []


# Each file from one of the writers, and one file from all; soak_rewrites.py has each from all.
OF_WRITERS = [*zip(ENCRYPTABLE, itertools.cycle(WRITERS)), *(("everything-v2", writer) for writer in WRITERS)]


@every("file", OF_WRITERS)
def test_files_of_the_reference_writer_are_decrypted_and_re_keyed(file: tuple[str, str]) -> None:
    assert_decrypted_and_rekeyed(*file)


def test_a_file_of_an_old_arrow_that_names_the_wrong_algorithm_is_refused_or_read_right() -> None:
    """Arrow C++ before 26 wrote GCM into the plaintext footer of files whose pages are CTR."""
    plain = open_plain(corpus.build("snappy-v1"))
    footer = plain.footer
    footer.put(6, footer.fields[6][0], b"parquet-cpp-arrow version 21.0.0")
    secret = encrypt_reference(
        plain, Encryption(FOOTER_KEY, algorithm=CTR_PAGES, plaintext_footer=True, declared_algorithm=GCM)
    )
    assert open_encrypted(secret, FOOTER_KEY, strict=False).says_gcm_for_ctr
    target = io.BytesIO()
    try:
        decrypt_file(secret, target, DecryptionConfig(FOOTER_KEY))
    except AuthenticationError as error:
        assert "data page" in str(error) or "dictionary page" in str(error)  # noqa: PT017
        return
    assert differences(plain, open_plain(target.getvalue())) == []


# -- what re-keying leaves alone -----------------------------------------------------------------------------


def table() -> pa.Table:
    rows = 500
    schema = pa.schema([pa.field(name, kind, False) for name, kind in (("a", pa.int64()), ("b", pa.string()))])
    schema = schema.append(pa.field("d", pa.string(), False)).append(pa.field("c", pa.float64()))
    columns = {
        "a": range(rows),
        "b": [f"b{n}" for n in range(rows)],
        "d": [f"d{n % 9}" for n in range(rows)],
        "c": [n / 3 for n in range(rows)],
    }
    return pa.table({name: list(values) for name, values in columns.items()}, schema=schema)


def several(**options: Any) -> bytes:
    """Two row groups, V1 pages, indexes, checksums and a Bloom filter."""
    blooms: dict[str, Any] = {"bloom_filter_options": {"b": {"ndv": 500, "fpp": 0.05}}}
    return corpus.written(
        table(), row_group_size=300, write_page_index=True, write_page_checksum=True, **{**blooms, **options}
    )


KEY_A, KEY_B, KEY_D = b"key of a, 16 ...", b"key of b, 16 ...", b"key of d, 16 ..."
KEYS: dict[str, bytes] = {"a": KEY_A, "b": KEY_B, "d": KEY_D}


def open_with(data: bytes, keys: dict[str, bytes], **options: Any) -> File:
    return open_encrypted(data, FOOTER_KEY, keys, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("algorithm", [GCM, CTR_PAGES])
@pytest.mark.parametrize("plaintext_footer", [False, True])
def test_chunks_whose_key_stays_are_copied_byte_for_byte_and_no_others(algorithm: str, plaintext_footer: bool) -> None:
    """Also when they come to lie elsewhere because chunks before them changed their size."""
    data = several()
    old = EncryptionConfig(FOOTER_KEY, column_keys=KEYS, algorithm=algorithm)
    secret = encrypted(data, old)
    # "a" becomes plaintext, "b" gets another key, "c" is encrypted now, and "d" stays.
    new_keys = {"b": KEY_A, "c": KEY_B, "d": KEY_D}
    new = EncryptionConfig(FOOTER_KEY, column_keys=new_keys, algorithm=algorithm, plaintext_footer=plaintext_footer)
    changed = rekeyed(secret, DecryptionConfig(FOOTER_KEY, column_keys=KEYS), new)
    before, after = open_with(secret, KEYS), open_with(changed, new_keys)
    assert differences(before, after) == []
    assert after.gaps() == []
    for chunk, other in zip(before.chunks, after.chunks, strict=True):
        assert (stored(before, chunk) == stored(after, other)) == (chunk.path == ("d",)), chunk.path
    assert before.chunks[2].pages[0].offset > after.chunks[2].pages[0].offset
    # What is sealed anew has new nonces: the AAD is the same, so that nothing else keeps it apart.
    assert before.aad_file_unique == after.aad_file_unique
    copied = {before.data[m.offset :][: m.length] for m in before.modules}
    anew = [m for m in after.modules if changed[m.offset :][: m.length] not in copied]
    assert {m.column for m in anew if m.kind == "data page"} == {1, 3}
    nonces = {(m.key, secret[m.offset + 4 :][:12]) for m in before.modules}
    assert not any((m.key, changed[m.offset + 4 :][:12]) in nonces for m in anew)


def test_another_footer_key_leaves_the_pages_of_columns_with_their_own_keys() -> None:
    keys = {**KEYS, "c": KEY_A}
    secret = encrypted(several(use_dictionary=False), EncryptionConfig(FOOTER_KEY, column_keys=keys))
    new = EncryptionConfig(OTHER_FOOTER_KEY, column_keys=keys)
    changed = rekeyed(secret, DecryptionConfig(FOOTER_KEY, column_keys=keys), new)
    before = open_with(secret, keys)
    after = open_encrypted(changed, OTHER_FOOTER_KEY, keys)  # type: ignore[arg-type]
    assert differences(before, after) == []
    for chunk, other in zip(before.chunks, after.chunks, strict=True):
        assert stored(before, chunk) == stored(after, other)
    with pytest.raises(AuthenticationError, match="footer"):
        decrypted(changed, DecryptionConfig(FOOTER_KEY, column_keys=keys))


@pytest.mark.parametrize(
    "options",
    [{"algorithm": CTR_PAGES}, {"aad_prefix": PREFIX}, {"aad_prefix": PREFIX, "store_aad_prefix": False}],
    ids=str,
)
def test_another_algorithm_or_prefix_seals_everything_anew(options: dict[str, Any]) -> None:
    secret = encrypted(several(), EncryptionConfig(FOOTER_KEY))
    changed = rekeyed(secret, DecryptionConfig(FOOTER_KEY), EncryptionConfig(FOOTER_KEY, **options))
    before = open_encrypted(secret, FOOTER_KEY)
    after = open_encrypted(changed, FOOTER_KEY, None, options.get("aad_prefix"))
    assert differences(before, after) == []
    assert before.aad_file_unique != after.aad_file_unique
    for chunk, other in zip(before.chunks, after.chunks, strict=True):
        assert stored(before, chunk) != stored(after, other)


def test_a_prefix_that_is_stored_from_now_on_leaves_the_pages_alone() -> None:
    given: dict[str, Any] = {"aad_prefix": PREFIX}
    secret = encrypted(several(), EncryptionConfig(FOOTER_KEY, store_aad_prefix=False, **given))
    changed = rekeyed(secret, DecryptionConfig(FOOTER_KEY, **given), EncryptionConfig(FOOTER_KEY, **given))
    before, after = open_encrypted(secret, FOOTER_KEY, None, PREFIX), open_encrypted(changed, FOOTER_KEY)
    assert (before.is_prefix_stored, after.is_prefix_stored) == (False, True)
    # Among them is a column that may be null, whose V1 pages have one form only.
    assert [stored(before, each) for each in before.chunks] == [stored(after, each) for each in after.chunks]


@pytest.mark.parametrize("forms", [("java", "arrow"), ("arrow", "java")])
def test_re_keying_changes_the_form_of_v2_pages_even_where_the_key_stays(forms: tuple[str, str]) -> None:
    secret = encrypted(corpus.build("everything-v2"), EncryptionConfig(FOOTER_KEY, data_page_v2=forms[0]))
    new = EncryptionConfig(FOOTER_KEY, data_page_v2=forms[1])
    before = open_encrypted(secret, FOOTER_KEY)
    after = open_encrypted(rekeyed(secret, DecryptionConfig(FOOTER_KEY), new), FOOTER_KEY)
    assert differences(before, after) == []
    for file, form in ((before, forms[0]), (after, forms[1])):
        pages = [page for chunk in file.chunks for page in chunk.pages if page.type == DATA_PAGE_V2]
        assert {page.v2_form for page in pages} == {form}


def test_encryption_copies_the_columns_that_stay_plaintext() -> None:
    data = several()
    before = open_plain(data)
    after = open_with(encrypted(data, EncryptionConfig(FOOTER_KEY, column_keys={"b": KEY_B})), {"b": KEY_B})
    for chunk, other in zip(before.chunks, after.chunks, strict=True):
        assert (stored(before, chunk) == stored(after, other)) == (chunk.path != ("b",))


def test_no_two_files_share_a_unique_aad_or_a_nonce() -> None:
    data, config = several(), EncryptionConfig(FOOTER_KEY)
    files = [open_encrypted(encrypted(data, config), FOOTER_KEY) for _ in range(3)]
    assert len({file.aad_file_unique for file in files}) == 3
    nonces = [file.data[m.offset + 4 :][:12] for file in files for m in file.modules]
    assert len(set(nonces)) == len(nonces) > 100


# -- what may not show ---------------------------------------------------------------------------------------


def _secrets() -> tuple[bytes, list[bytes]]:
    """A file in which a column has values that occur nowhere else, and what of them must not be found."""
    rows = 600
    texts = [f"very secret text {n * n:07}" for n in range(rows)]
    numbers = [0x5EC2_E700_0000_0000 + n * 0x1_0001_0001 for n in range(rows)]
    columns = {"open": [n % 7 for n in range(rows)], "text": texts, "number": numbers, "late": [None, *texts[1:]]}
    data = corpus.written(
        pa.table(columns),
        row_group_size=250,
        data_page_size=600,
        write_batch_size=50,
        write_page_index=True,
        compression="none",
        use_dictionary=["text"],
        bloom_filter_options={"text": {"ndv": rows, "fpp": 0.05}},
    )
    secrets = [text.encode() for text in texts] + [number.to_bytes(8, "little") for number in numbers]
    return data, secrets


@every("case", covering([True, False], [GCM, CTR_PAGES], [False, True], ["java", "arrow"], ["1.0", "2.0"]))
def test_no_value_of_an_encrypted_column_shows_anywhere(case: tuple[bool, str, bool, str, str]) -> None:
    keys, algorithm, plaintext_footer, form, version = case
    data, secrets = _secrets()
    if version == "2.0":
        data = _as_v2(data)
    assert all(secret in data for secret in secrets)
    own: Any = {"text": KEY_A, "number": KEY_B, "late": KEY_D} if keys else None
    config = EncryptionConfig(
        FOOTER_KEY, column_keys=own, algorithm=algorithm, plaintext_footer=plaintext_footer, data_page_v2=form
    )
    secret = encrypted(data, config)
    assert [each for each in secrets if each in secret] == []
    assert b"secret text" not in secret
    opened = open_encrypted(secret, FOOTER_KEY, own)
    bitsets = [chunk.bloom_bitset for chunk in opened.chunks if chunk.bloom_bitset]
    assert len(bitsets) == 3
    assert not any(bitset[:64] in secret or bitset[-64:] in secret for bitset in bitsets)


def _as_v2(data: bytes) -> bytes:
    return corpus.written(
        pq.read_table(io.BytesIO(data)),
        data_page_version="2.0",
        row_group_size=250,
        write_page_index=True,
        compression="none",
        use_dictionary=["text"],
        bloom_filter_options={"text": {"ndv": 600, "fpp": 0.05}},
    )


@pytest.mark.parametrize("keys", [None, {}, {"text": KEY_A}], ids=["uniform", "footer-only", "one-column"])
def test_a_plaintext_footer_shows_no_statistics_of_encrypted_columns_and_all_of_others(
    keys: dict[str, bytes] | None,
) -> None:
    data, _ = _secrets()
    secret = encrypted(data, EncryptionConfig(FOOTER_KEY, column_keys=keys, plaintext_footer=True))
    opened = open_encrypted(secret, FOOTER_KEY, keys)  # type: ignore[arg-type]
    for chunk in opened.chunks:
        assert {12, 13, 16} <= set(chunk.metadata.fields)
        assert (chunk.redacted is not None) == (keys is None or ".".join(chunk.path) in keys)
        # Statistics, encoding statistics, size statistics, geospatial statistics.
        assert chunk.redacted is None or not {12, 13, 16, 17} & set(chunk.redacted.fields)


def test_re_keying_to_a_plaintext_footer_shows_no_more_than_encrypting_to_one() -> None:
    data, secrets = _secrets()
    keys = {"text": KEY_A, "number": KEY_B, "late": KEY_D}
    first = encrypted(data, EncryptionConfig(FOOTER_KEY, column_keys=keys))
    changed = rekeyed(
        first,
        DecryptionConfig(FOOTER_KEY, column_keys=keys),
        EncryptionConfig(FOOTER_KEY, column_keys=keys, plaintext_footer=True),
    )
    assert [each for each in secrets if each in changed] == []
    opened = open_encrypted(changed, FOOTER_KEY, keys)  # type: ignore[arg-type]
    assert differences(open_plain(data), opened) == []


# -- keys that are missing, files that are not what they should be -------------------------------------------


def test_a_column_whose_key_is_missing_can_neither_be_decrypted_nor_re_keyed() -> None:
    secret = encrypted(several(), EncryptionConfig(FOOTER_KEY, column_keys=KEYS))
    reading = DecryptionConfig(FOOTER_KEY, column_keys={"a": KEY_A, "d": KEY_D})
    with pytest.raises(KeyAccessError, match=r"column b is encrypted with a key that was not given"):
        decrypted(secret, reading)
    with pytest.raises(KeyAccessError, match=r"column b is encrypted with a key that was not given"):
        rekeyed(secret, reading, EncryptionConfig(FOOTER_KEY, encrypt_all=True))


def test_encrypting_what_is_encrypted_and_decrypting_what_is_not_are_refused() -> None:
    data = several()
    for plaintext_footer in (False, True):
        secret = encrypted(data, EncryptionConfig(FOOTER_KEY, plaintext_footer=plaintext_footer))
        with pytest.raises(FormatError, match="is encrypted already: use `rekey_file`"):
            encrypted(secret, EncryptionConfig(FOOTER_KEY))
    with pytest.raises(FormatError, match=r"not encrypted"):
        decrypted(data, DecryptionConfig(FOOTER_KEY))
    with pytest.raises(FormatError, match=r"not encrypted"):
        rekeyed(data, DecryptionConfig(FOOTER_KEY), EncryptionConfig(FOOTER_KEY))


def test_a_plaintext_file_is_decrypted_to_itself_if_that_is_allowed() -> None:
    plain = open_plain(corpus.build("everything-v1"))
    back = open_plain(decrypted(plain.data, DecryptionConfig(FOOTER_KEY, allow_plaintext=True)))
    assert differences(plain, back) == []


def test_a_name_that_means_no_column_is_refused_with_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"there is no column 'nmae'; did you mean 'name'"):
        encrypted(corpus.build("snappy-v1"), EncryptionConfig(FOOTER_KEY, column_keys={"nmae": KEY_A}))


@pytest.mark.parametrize("name", ["everything-v2", "bloom-filters-v1"])
def test_files_cut_anywhere_are_refused(name: str) -> None:
    secret = encrypted(corpus.build(name), EncryptionConfig(FOOTER_KEY))
    for length in {0, 1, 4, 8, 11, 12, len(secret) // 2, len(secret) - 9, len(secret) - 1}:
        with pytest.raises(Ags1Error):
            decrypted(secret[:length], DecryptionConfig(FOOTER_KEY))


def test_all_of_an_unused_configuration_is_independent_of_the_file(tmp_path: Path) -> None:
    """One configuration serves many files."""
    config = EncryptionConfig(FOOTER_KEY, column_keys={"name": KEY_A}, encrypt_all=True)
    for name in ("snappy-v1", "zstd-v2", "everything-v2"):
        encrypt_file(corpus.build(name), tmp_path / name, config)
    for name in ("snappy-v1", "zstd-v2", "everything-v2"):
        opened = open_encrypted((tmp_path / name).read_bytes(), FOOTER_KEY, {"name": KEY_A})
        assert differences(open_plain(corpus.build(name)), opened) == []


def test_the_reference_lays_pages_out_in_the_same_size() -> None:
    plain = open_plain(corpus.build("nested-v2"))
    ours = open_encrypted(encrypted(plain.data, EncryptionConfig(FOOTER_KEY)), FOOTER_KEY)
    theirs = open_encrypted(encrypt_reference(plain, Encryption(FOOTER_KEY)), FOOTER_KEY)
    for chunk, other in zip(ours.chunks, theirs.chunks, strict=True):
        assert [page.stored_size for page in chunk.pages] == [page.stored_size for page in other.pages]
        assert [chunk.metadata[number] for number in (6, 7)] == [other.metadata[number] for number in (6, 7)]
