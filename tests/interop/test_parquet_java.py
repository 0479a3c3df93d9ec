"""Parquet encryption between ags1.parquet and parquet-java, both ways: rows, filters, metadata, key tools."""

from __future__ import annotations

import base64
import io
import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

from ags1 import AuthenticationError, KeyAccessError
from ags1.core.gcm import open_message, random_bytes, seal_message
from ags1.parquet import DecryptionConfig, EncryptionConfig, decrypt_file, encrypt_file, rekey_file, rotate_master_keys
from tests.checks import covering, every
from tests.interop.parquet_peer import ParquetJavaError, ParquetPeer, canonical_rows, digest_of, sample_rows
from tests.parquet import corpus
from tests.parquet.compare import differences
from tests.parquet.key_tools import rekey_freely
from tests.parquet.reference import open_encrypted, open_plain
from tests.parquet.reference_model import CTR_PAGES, DATA_PAGE_V2, GCM

# The first test waits for Maven, which may have to fetch everything.
pytestmark = pytest.mark.timeout(900)

FOOTER_KEY = b"0123456789012345"
COLUMN_KEYS: dict[str, bytes] = {
    "token": b"key of the column token.",
    "numbers.list.element": b"key of the column numbers ......",
    "city": b"key of city ....",
}
PREFIX = b"warehouse/table/part-3"
ROWS = 700
# Several row groups and pages, a Bloom filter, dictionaries, checksums; the same rows in every file.
LAYOUT: dict[str, Any] = {"page_rows": 100, "row_group_rows": 250, "bloom": ["token", "id"], "bloom_values": 400}

WAYS: dict[str, dict[str, Any]] = {
    "uniform": {},
    "columns": {"column_keys": COLUMN_KEYS},
    "all": {"column_keys": COLUMN_KEYS, "encrypt_all": True},
    "footer": {"column_keys": {}},
    "stored-prefix": {"column_keys": COLUMN_KEYS, "aad_prefix": PREFIX},
    "prefix": {"aad_prefix": PREFIX, "store_aad_prefix": False},
    "all-prefix": {
        "column_keys": COLUMN_KEYS,
        "encrypt_all": True,
        "aad_prefix": PREFIX,
        "store_aad_prefix": False,
    },
}
# Every two of these together, once at least.
CASES = covering(tuple(WAYS), (GCM, CTR_PAGES), (False, True), (1, 2))
cases = pytest.mark.parametrize(("way", "algorithm", "plaintext_footer", "page_version"), CASES)
# parquet-java cannot encrypt the footer only.
javas_cases = pytest.mark.parametrize(
    ("way", "algorithm", "plaintext_footer", "page_version"), [case for case in CASES if case[0] != "footer"]
)


def configuration(way: str, algorithm: str, plaintext_footer: bool, **more: Any) -> EncryptionConfig:
    options = {"data_page_v2": "java", **WAYS[way], **more}
    return EncryptionConfig(FOOTER_KEY, algorithm=algorithm, plaintext_footer=plaintext_footer, **options)


def reading(way: str) -> DecryptionConfig:
    options = WAYS[way]
    prefix = None if options.get("store_aad_prefix", True) else PREFIX
    return DecryptionConfig(FOOTER_KEY, column_keys=options.get("column_keys"), aad_prefix=prefix)


def java_reading(way: str) -> dict[str, Any]:
    options = WAYS[way]
    found: dict[str, Any] = {"footer_key": FOOTER_KEY, "column_keys": options.get("column_keys") or None}
    if not options.get("store_aad_prefix", True):
        found["aad_prefix"] = PREFIX
    return {name: value for name, value in found.items() if value is not None}


def java_writing(way: str, algorithm: str, plaintext_footer: bool) -> dict[str, Any]:
    options = WAYS[way]
    keys: Mapping[str, bytes] | None = options.get("column_keys")
    found: dict[str, Any] = {
        "footer_key": FOOTER_KEY,
        "algorithm": algorithm,
        "plaintext_footer": plaintext_footer,
        "complete_columns": options.get("encrypt_all", False),
    }
    if keys:
        found["column_keys"] = {name: {"key": key, "metadata": name.encode()} for name, key in keys.items()}
    if "aad_prefix" in options:
        found |= {"aad_prefix": PREFIX, "store_aad_prefix": options.get("store_aad_prefix", True)}
    return found


def content(metadata: Any) -> Any:
    """What Java says of a file, without what encryption and new positions change."""
    changing = {
        "offset", "length", "size", "total_size", "total_uncompressed_size", "total_byte_size", "starting_position",
        "first_data_page_offset", "encryption", "encrypted", "separate_metadata", "ordinal",
    }  # fmt: skip
    if isinstance(metadata, list):
        return [content(each) for each in metadata]
    if not isinstance(metadata, dict):
        return metadata
    found = {name: content(value) for name, value in metadata.items() if name not in changing}
    if "dictionary_page_offset" in found:
        found["dictionary_page_offset"] = found["dictionary_page_offset"] > 0
    return found


# -- what we encrypt, Java reads -----------------------------------------------------------------------------


FILTERS: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "column index": (
        [{"column": "id", "op": "ge", "value": 333}, {"column": "id", "op": "lt", "value": 352}],
        {"use_bloom": False, "use_dictionary": False},
    ),
    "statistics": ([{"column": "id", "op": "gt", "value": 10**6}], {}),
    "bloom, absent": ([{"column": "token", "op": "eq", "value": "8" * 32}], {"use_dictionary": False}),
    "dictionary, absent": ([{"column": "city", "op": "eq", "value": "Paris"}], {"use_statistics": False}),
    "dictionary, present": ([{"column": "city", "op": "eq", "value": "Oslo"}], {}),
    "several columns": (
        [{"column": "city", "op": "eq", "value": "Nuuk"}, {"column": "id", "op": "le", "value": 120}],
        {},
    ),
}


def check_like_plaintext(peer: ParquetPeer, plain: Path, secret: Path, decryption: dict[str, Any]) -> None:
    """Java reads the same rows from both, by every filter, and finds the same metadata, indexes and Bloom filters."""
    expected = peer.read(plain, limit=0)
    found = peer.read(secret, decryption=decryption, limit=0)
    assert (found["count"], found["sha256"]) == (expected["count"], expected["sha256"])
    probe = {"id": [5, -5], "token": ["absent"]}
    metadata = peer.metadata(secret, decryption=decryption, bloom_probe=probe)
    assert "unreadable" not in json.dumps(metadata)
    assert content(metadata) == content(peer.metadata(plain, bloom_probe=probe))


def check_filters(peer: ParquetPeer, plain: Path, secret: Path, decryption: dict[str, Any]) -> None:
    for name, (terms, options) in FILTERS.items():
        expected = peer.read(plain, limit=0, filter=terms, **options)
        found = peer.read(secret, limit=0, filter=terms, decryption=decryption, **options)
        for what in ("count", "sha256", "kept_row_groups", "kept_rows"):
            assert found[what] == expected[what], (name, what)


def test_the_filters_of_these_tests_leave_rows_out(parquet_peer: ParquetPeer, tmp_path: Path) -> None:
    """Otherwise, they would not show that an index was read."""
    plain = tmp_path / "plain.parquet"
    parquet_peer.write(plain, rows=ROWS, **LAYOUT)
    kept = {
        name: parquet_peer.read(plain, limit=0, filter=terms, **options)["kept_rows"]
        for name, (terms, options) in FILTERS.items()
    }
    assert kept["statistics"] == kept["bloom, absent"] == kept["dictionary, absent"] == 0
    assert kept["column index"] == 200
    assert kept["several columns"] < ROWS


@cases
def test_java_reads_its_own_files_after_we_encrypted_them(
    parquet_peer: ParquetPeer, tmp_path: Path, way: str, algorithm: str, plaintext_footer: bool, page_version: int
) -> None:
    plain, secret = tmp_path / "plain.parquet", tmp_path / "secret.parquet"
    parquet_peer.write(plain, rows=ROWS, page_version=page_version, codec="ZSTD", **LAYOUT)
    encrypt_file(plain, secret, configuration(way, algorithm, plaintext_footer))
    check_like_plaintext(parquet_peer, plain, secret, java_reading(way))
    check_filters(parquet_peer, plain, secret, java_reading(way))
    assert parquet_peer.read(secret, decryption=java_reading(way))["sha256"] == digest_of(sample_rows(ROWS))


# Not "odd-names", "wide" and the like: what is different in them is not seen by Java's row reader.
BY_OTHERS = [
    "everything-v1", "everything-v2", "nested-pages-v1", "nested-pages-v2", "bloom-filters-v1", "bloom-filters-v2",
    "dictionary-fallback-v1", "dictionary-fallback-v2", "encodings-v1", "encodings-v2", "types-v1", "all-null-v2",
    "no-compression-v2", "snappy-v1", "gzip-v2", "several-row-groups", "no-rows", "checksums", "polars",
    "polars-uncompressed", "duckdb", "duckdb-v2", "padding", "backwards", "some-checksums", "some-indexes",
    "mixed-page-versions", "unused-dictionary", "no-encoding-stats", "large-page-headers", "sorting-columns",
    "some-v2-uncompressed", "unknown-fields", "unknown-fields-v2", "bare-row-groups", "no-dictionary-v2",
]  # fmt: skip


@every("case", zip(BY_OTHERS, itertools.cycle(itertools.product((GCM, CTR_PAGES), (False, True)))))
def test_java_reads_files_of_others_after_we_encrypted_them(
    parquet_peer: ParquetPeer, tmp_path: Path, case: tuple[str, tuple[str, bool]]
) -> None:
    name, (algorithm, plaintext_footer) = case
    plain, secret = tmp_path / "plain.parquet", tmp_path / "secret.parquet"
    plain.write_bytes(corpus.build(name))
    paths = {chunk.path for chunk in open_plain(plain.read_bytes(), strict=False).chunks}
    keys = dict.fromkeys(sorted(paths)[::2], COLUMN_KEYS["city"])
    config = EncryptionConfig(
        FOOTER_KEY,
        column_keys=keys,
        encrypt_all=True,
        algorithm=algorithm,
        plaintext_footer=plaintext_footer,
        data_page_v2="java",
    )
    encrypt_file(plain, secret, config)
    dotted = {".".join(path): key for path, key in keys.items()}
    decryption = {"footer_key": FOOTER_KEY, "column_keys": dotted or None}
    expected = parquet_peer.read(plain, limit=0)
    found = parquet_peer.read(secret, decryption=decryption, limit=0)
    assert (found["count"], found["sha256"]) == (expected["count"], expected["sha256"])


def test_java_refuses_the_form_of_v2_pages_that_arrow_has(parquet_peer: ParquetPeer, tmp_path: Path) -> None:
    """So the form is a choice; the same file re-keyed to the other form is readable."""
    plain, secret, changed = (tmp_path / f"{name}.parquet" for name in ("plain", "secret", "changed"))
    parquet_peer.write(plain, rows=50, page_version=2)
    encrypt_file(plain, secret, EncryptionConfig(FOOTER_KEY, data_page_v2="arrow"))
    with pytest.raises(ParquetJavaError):
        parquet_peer.read(secret, decryption={"footer_key": FOOTER_KEY})
    rekey_file(secret, changed, DecryptionConfig(FOOTER_KEY), EncryptionConfig(FOOTER_KEY, data_page_v2="java"))
    read = parquet_peer.read(changed, decryption={"footer_key": FOOTER_KEY})
    assert read["sha256"] == digest_of(sample_rows(50))


@pytest.mark.parametrize("length", [16, 24, 32])
def test_java_reads_keys_of_every_length(parquet_peer: ParquetPeer, tmp_path: Path, length: int) -> None:
    plain, secret, key = tmp_path / "plain.parquet", tmp_path / "secret.parquet", bytes(range(1, length + 1))
    parquet_peer.write(plain, rows=50)
    encrypt_file(plain, secret, EncryptionConfig(key, column_keys={"token": key[::-1]}, encrypt_all=True))
    decryption = {"footer_key": key, "column_keys": {"token": key[::-1]}}
    assert parquet_peer.read(secret, decryption=decryption)["sha256"] == digest_of(sample_rows(50))


def test_java_finds_our_keys_by_their_metadata(parquet_peer: ParquetPeer, tmp_path: Path) -> None:
    plain, secret = tmp_path / "plain.parquet", tmp_path / "secret.parquet"
    parquet_peer.write(plain, rows=50)
    config = EncryptionConfig(
        FOOTER_KEY,
        column_keys=COLUMN_KEYS,
        footer_key_metadata=b"\x00\xfffooter",
        column_key_metadata={name: name.encode() for name in COLUMN_KEYS},
    )
    encrypt_file(plain, secret, config)
    keys = {b"\x00\xfffooter": FOOTER_KEY, **{name.encode(): key for name, key in COLUMN_KEYS.items()}}
    read = parquet_peer.read(secret, decryption={"key_retriever": keys})
    assert read["sha256"] == digest_of(sample_rows(50))
    del keys[b"city"]
    rest = ["id", "token", "numbers"]
    assert parquet_peer.read(secret, decryption={"key_retriever": keys}, columns=rest)["count"] == 50
    with pytest.raises(ParquetJavaError, match="city"):
        parquet_peer.read(secret, decryption={"key_retriever": keys})


def test_java_verifies_our_signature_and_our_prefix(parquet_peer: ParquetPeer, tmp_path: Path) -> None:
    plain, secret = tmp_path / "plain.parquet", tmp_path / "secret.parquet"
    parquet_peer.write(plain, rows=20)
    encrypt_file(plain, secret, EncryptionConfig(FOOTER_KEY, plaintext_footer=True))
    data = secret.read_bytes()
    secret.write_bytes(data.replace(b"parquet-mr version", b"parquet-mr Version"))
    with pytest.raises(ParquetJavaError, match=r"[Ss]ignature"):
        parquet_peer.read(secret, decryption={"footer_key": FOOTER_KEY})
    encrypt_file(plain, secret, EncryptionConfig(FOOTER_KEY, aad_prefix=PREFIX, store_aad_prefix=False))
    with pytest.raises(ParquetJavaError, match="AAD"):
        parquet_peer.read(secret, decryption={"footer_key": FOOTER_KEY})
    with pytest.raises(ParquetJavaError) as caught:
        parquet_peer.read(secret, decryption={"footer_key": FOOTER_KEY, "aad_prefix": b"other"})
    assert caught.value.java_class == "TagVerificationException"


# -- what Java encrypts, we read -----------------------------------------------------------------------------


@javas_cases
def test_files_that_java_encrypted_decrypt_to_what_it_writes_in_plaintext(
    parquet_peer: ParquetPeer, tmp_path: Path, way: str, algorithm: str, plaintext_footer: bool, page_version: int
) -> None:
    plain, secret, back = (tmp_path / f"{name}.parquet" for name in ("plain", "secret", "back"))
    options = {"rows": ROWS, "page_version": page_version, "codec": "SNAPPY", **LAYOUT}
    parquet_peer.write(plain, **options)
    parquet_peer.write(secret, encryption=java_writing(way, algorithm, plaintext_footer), **options)
    decrypt_file(secret, back, reading(way))
    assert differences(open_plain(plain.read_bytes()), open_plain(back.read_bytes())) == []
    table = pq.read_table(back, page_checksum_verification=True)
    assert canonical_rows(table) == sample_rows(ROWS)
    check_like_plaintext(parquet_peer, plain, back, {"footer_key": FOOTER_KEY, "plaintext_files_allowed": True})


@javas_cases
def test_files_that_java_encrypted_are_re_keyed_for_java(
    parquet_peer: ParquetPeer, tmp_path: Path, way: str, algorithm: str, plaintext_footer: bool, page_version: int
) -> None:
    """To another footer key, and columns to another key or none; with the same algorithm, so that some are copied."""
    plain, secret, changed = (tmp_path / f"{name}.parquet" for name in ("plain", "secret", "changed"))
    options = {"rows": ROWS, "page_version": page_version, **LAYOUT}
    parquet_peer.write(plain, **options)
    parquet_peer.write(secret, encryption=java_writing(way, algorithm, plaintext_footer), **options)
    keys = {"token": COLUMN_KEYS["token"], "numbers": FOOTER_KEY, "point.a": COLUMN_KEYS["city"]}
    config = EncryptionConfig(
        FOOTER_KEY[::-1],
        column_keys=keys,
        algorithm=algorithm,
        plaintext_footer=not plaintext_footer,
        aad_prefix=WAYS[way].get("aad_prefix"),
        data_page_v2="java",
    )
    rekey_freely(secret, changed, reading(way), config)
    leaves = {"token": keys["token"], "numbers.list.element": FOOTER_KEY, "point.a": keys["point.a"]}
    check_like_plaintext(parquet_peer, plain, changed, {"footer_key": FOOTER_KEY[::-1], "column_keys": leaves})
    check_filters(parquet_peer, plain, changed, {"footer_key": FOOTER_KEY[::-1], "column_keys": leaves})


@pytest.mark.parametrize("page_version", [1, 2])
@pytest.mark.parametrize("algorithm", [GCM, CTR_PAGES])
def test_files_of_javas_rewriter_are_read(
    parquet_peer: ParquetPeer, tmp_path: Path, algorithm: str, page_version: int
) -> None:
    plain, secret, back = (tmp_path / f"{name}.parquet" for name in ("plain", "secret", "back"))
    parquet_peer.write(plain, rows=ROWS, page_version=page_version, **LAYOUT)
    parquet_peer.rewrite(
        plain, secret, columns=sorted(COLUMN_KEYS), encryption=java_writing("columns", algorithm, False)
    )
    decrypt_file(secret, back, reading("columns"))
    assert canonical_rows(pq.read_table(back, page_checksum_verification=True)) == sample_rows(ROWS)
    assert parquet_peer.read(back)["sha256"] == digest_of(sample_rows(ROWS))
    check_filters(parquet_peer, plain, back, {"footer_key": FOOTER_KEY, "plaintext_files_allowed": True})
    pages = [page for chunk in open_plain(back.read_bytes(), strict=False).chunks for page in chunk.pages]
    assert any(page.type == DATA_PAGE_V2 for page in pages) == (page_version == 2)


def test_damage_in_files_of_java_is_refused(parquet_peer: ParquetPeer, tmp_path: Path) -> None:
    secret = tmp_path / "secret.parquet"
    parquet_peer.write(secret, rows=20, checksum=False, encryption=java_writing("columns", GCM, True))
    data = secret.read_bytes()
    opened = open_encrypted(data, FOOTER_KEY, COLUMN_KEYS)  # type: ignore[arg-type]
    assert len({module.kind for module in opened.modules}) >= 7
    for module in opened.modules:
        at = module.offset + module.length - 1
        secret.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(AuthenticationError, match=r"secret\.parquet"):
            decrypt_file(secret, io.BytesIO(), reading("columns"))


# -- Spark's version -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("page_version", [1, 2])
@pytest.mark.parametrize(
    ("way", "algorithm", "plaintext_footer"),
    [("all", GCM, False), ("columns", GCM, True), ("prefix", CTR_PAGES, False), ("all", CTR_PAGES, True)],
)
def test_the_version_of_spark_reads_ours_and_we_its(
    spark_parquet_peer: ParquetPeer,
    tmp_path: Path,
    way: str,
    algorithm: str,
    plaintext_footer: bool,
    page_version: int,
) -> None:
    plain, ours, theirs, back = (tmp_path / f"{name}.parquet" for name in ("plain", "ours", "theirs", "back"))
    options = {"rows": ROWS, "page_version": page_version, **LAYOUT}
    spark_parquet_peer.write(plain, **options)
    encrypt_file(plain, ours, configuration(way, algorithm, plaintext_footer))
    check_like_plaintext(spark_parquet_peer, plain, ours, java_reading(way))
    check_filters(spark_parquet_peer, plain, ours, java_reading(way))
    spark_parquet_peer.write(theirs, encryption=java_writing(way, algorithm, plaintext_footer), **options)
    decrypt_file(theirs, back, reading(way))
    assert differences(open_plain(plain.read_bytes()), open_plain(back.read_bytes())) == []


# -- key tools -----------------------------------------------------------------------------------------------


MASTER_KEYS = {"kf": FOOTER_KEY, "kc1": b"1234567890123450", "kc2": b"1234567890123451"}
NEW_MASTER_KEYS = {name: bytes(reversed(key)) for name, key in MASTER_KEYS.items()}
MASTER_COLUMNS = {"kc1": ["price", "token"], "kc2": ["numbers.list.element"]}
MATERIAL = "_KEY_MATERIAL_FOR_{}.json"


class ServerWrap(pe.KmsClient):  # type: ignore[misc]
    """The KMS of Java's tests: wrapped keys are base64, and bound to the id of their master key."""

    def __init__(self, masters: Mapping[str, bytes] = MASTER_KEYS) -> None:
        super().__init__()
        self.masters = masters

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        nonce = random_bytes(12)
        sealed = seal_message(key_bytes, self.masters[master_key_identifier], nonce, master_key_identifier.encode())
        return base64.b64encode(nonce + sealed).decode()

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        sealed = base64.b64decode(wrapped_key)
        key = open_message(
            sealed[12:], self.masters[master_key_identifier], sealed[:12], master_key_identifier.encode()
        )
        if key is None:
            raise ValueError("wrong master key")
        return key


class LocalWrap(ServerWrap):
    """The form of Java's LocalWrapKmsClient: JSON around the same."""

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        wrapped = super().wrap_key(key_bytes, master_key_identifier)
        return json.dumps({"masterKeyVersion": "NO_VERSION", "encryptedKey": wrapped})

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        return super().unwrap_key(json.loads(wrapped_key)["encryptedKey"], master_key_identifier)


KMS = {"server": ServerWrap, "local": LocalWrap}


def properties(*, internal: bool, double: bool) -> dict[str, Any]:
    return {
        "parquet.encryption.footer.key": "kf",
        "parquet.encryption.column.keys": "kc1:price,token;kc2:numbers.list.element",
        "parquet.encryption.key.material.store.internally": internal,
        "parquet.encryption.double.wrapping": double,
    }


@pytest.mark.parametrize("internal", [True, False], ids=["internal", "external"])
@pytest.mark.parametrize("double", [True, False], ids=["double", "single"])
@pytest.mark.parametrize("kind", KMS)
@pytest.mark.parametrize("bits", [128, 256])
def test_javas_key_tools_find_our_keys(
    parquet_peer: ParquetPeer, tmp_path: Path, kind: str, double: bool, internal: bool, bits: int
) -> None:
    plain, secret = tmp_path / "plain.parquet", tmp_path / "secret.parquet"
    parquet_peer.write(plain, rows=50)
    config = EncryptionConfig.from_kms(
        KMS[kind](),
        "kf",
        MASTER_COLUMNS,
        double_wrapping=double,
        internal_key_material=internal,
        data_key_bits=bits,
        kek_bits=bits,
        plaintext_footer=bits == 256,
    )
    # The keys of a file that replaces another have other names in the key material file.
    for _ in range(1 if internal else 2):
        encrypt_file(plain, secret, config)
    assert (tmp_path / MATERIAL.format("secret.parquet")).exists() == (not internal)
    read = parquet_peer.keytools_read(secret, master_keys=MASTER_KEYS, kms=kind)
    assert read["sha256"] == digest_of(sample_rows(50))
    columns = parquet_peer.keytools_metadata(secret, master_keys=MASTER_KEYS, kms=kind)["row_groups"][0]["columns"]
    assert {column["path"] for column in columns if column["encrypted"]} == {*itertools.chain(*MASTER_COLUMNS.values())}
    with pytest.raises(ParquetJavaError, match="GCM tag check failed"):
        parquet_peer.keytools_read(secret, master_keys=NEW_MASTER_KEYS, kms=kind)


@pytest.mark.parametrize("internal", [True, False], ids=["internal", "external"])
@pytest.mark.parametrize("double", [True, False], ids=["double", "single"])
@pytest.mark.parametrize("kind", KMS)
def test_we_find_the_keys_of_javas_key_tools(
    parquet_peer: ParquetPeer, tmp_path: Path, kind: str, double: bool, internal: bool
) -> None:
    secret, back, changed = (tmp_path / f"{name}.parquet" for name in ("secret", "back", "changed"))
    parquet_peer.keytools_write(
        secret, rows=50, master_keys=MASTER_KEYS, kms=kind, properties=properties(internal=internal, double=double)
    )
    opener = DecryptionConfig.from_kms(KMS[kind]())
    decrypt_file(secret, back, opener)
    assert canonical_rows(pq.read_table(back)) == sample_rows(50)
    # And for Java again, with fresh keys under other master keys and the key material in the other place.
    config = EncryptionConfig.from_kms(
        KMS[kind](NEW_MASTER_KEYS),
        "kc1",
        {"kf": ["city", "numbers"]},
        internal_key_material=not internal,
        double_wrapping=not double,
    )
    rekey_freely(secret, changed, opener, config)
    read = parquet_peer.keytools_read(changed, master_keys=NEW_MASTER_KEYS, kms=kind)
    assert read["sha256"] == digest_of(sample_rows(50))
    with pytest.raises(KeyAccessError, match=r"secret\.parquet"):
        decrypt_file(secret, back, DecryptionConfig.from_kms(KMS[kind]({"kf": FOOTER_KEY})))


@pytest.mark.parametrize("double", [True, False], ids=["double", "single"])
def test_java_rotates_our_key_material_and_we_read_on(parquet_peer: ParquetPeer, tmp_path: Path, double: bool) -> None:
    plain, lake = tmp_path / "plain.parquet", tmp_path / "lake"
    lake.mkdir()
    parquet_peer.write(plain, rows=50)
    config = EncryptionConfig.from_kms(
        ServerWrap(), "kf", MASTER_COLUMNS, internal_key_material=False, double_wrapping=double
    )
    for name in ("one.parquet", "two.parquet"):
        encrypt_file(plain, lake / name, config)
    before = (lake / "one.parquet").read_bytes()
    parquet_peer.rotate(lake, master_keys=MASTER_KEYS, new_master_keys=NEW_MASTER_KEYS)
    assert (lake / "one.parquet").read_bytes() == before
    for name in ("one.parquet", "two.parquet"):
        decrypt_file(lake / name, tmp_path / "back.parquet", DecryptionConfig.from_kms(ServerWrap(NEW_MASTER_KEYS)))
        assert canonical_rows(pq.read_table(tmp_path / "back.parquet")) == sample_rows(50)
        with pytest.raises(KeyAccessError):
            decrypt_file(lake / name, tmp_path / "back.parquet", DecryptionConfig.from_kms(ServerWrap()))


class Rotating(ServerWrap):
    """Unwraps with the old master keys and wraps with the new ones, as a service does between two versions."""

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        try:
            return super().unwrap_key(wrapped_key, master_key_identifier)
        except ValueError:
            return ServerWrap(NEW_MASTER_KEYS).unwrap_key(wrapped_key, master_key_identifier)

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        return ServerWrap(NEW_MASTER_KEYS).wrap_key(key_bytes, master_key_identifier)


@pytest.mark.parametrize("double", [True, False], ids=["double", "single"])
def test_we_rotate_javas_key_material_and_it_reads_on(parquet_peer: ParquetPeer, tmp_path: Path, double: bool) -> None:
    path = tmp_path / "theirs.parquet"
    parquet_peer.keytools_write(
        path, rows=50, master_keys=MASTER_KEYS, properties=properties(internal=False, double=True)
    )
    before = path.read_bytes()
    report = rotate_master_keys(Rotating(), tmp_path, double_wrapping=double)
    assert report.ok
    assert [count for _, count in report.rotated] == [4]
    assert path.read_bytes() == before
    read = parquet_peer.keytools_read(path, master_keys=NEW_MASTER_KEYS)
    assert read["sha256"] == digest_of(sample_rows(50))
    with pytest.raises(ParquetJavaError, match="GCM tag check failed"):
        parquet_peer.keytools_read(path, master_keys=MASTER_KEYS)
    # And Java rotates what we rotated.
    parquet_peer.rotate(tmp_path, master_keys=NEW_MASTER_KEYS, new_master_keys=MASTER_KEYS)
    decrypt_file(path, tmp_path / "back.parquet", DecryptionConfig.from_kms(ServerWrap()))
    assert canonical_rows(pq.read_table(tmp_path / "back.parquet")) == sample_rows(50)
