"""The parquet-java peer does what it says: it is the witness of the tests of Parquet encryption."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from pyarrow.fs import LocalFileSystem

from tests.interop import jvm
from tests.interop.parquet_peer import (
    SAMPLE_LEAVES,
    SPARK_VERSION,
    ParquetJavaError,
    ParquetPeer,
    canonical_rows,
    digest_of,
    sample_rows,
)

# The first test waits for Maven, which may have to fetch everything.
pytestmark = pytest.mark.timeout(900)

FIXTURES = Path(__file__).parents[3] / "shared" / "fixtures" / "parquet-testing"
FOOTER_KEY = b"0123456789012345"
COLUMN_KEYS = {"kc1": b"1234567890123450", "kc2": b"1234567890123451"}
MASTER_KEYS = {"kf": FOOTER_KEY, **COLUMN_KEYS}
RETRIEVER = {name.encode(): key for name, key in MASTER_KEYS.items()}
KEYS = {"key_retriever": RETRIEVER}

COLUMN_KEYED = {
    "footer_key": FOOTER_KEY,
    "footer_key_metadata": b"kf",
    "column_keys": {
        "token": {"key": COLUMN_KEYS["kc1"], "metadata": b"kc1"},
        "numbers.list.element": {"key": COLUMN_KEYS["kc2"], "metadata": b"kc2"},
        "id": {},
    },
}
ENCRYPTED_COLUMNS = set(COLUMN_KEYED["column_keys"])
UNIFORM = {"footer_key": FOOTER_KEY, "footer_key_metadata": b"kf"}
WAYS_TO_ENCRYPT: dict[str, dict[str, Any]] = {
    "uniform": UNIFORM,
    "column-keys": COLUMN_KEYED,
    "complete": {**COLUMN_KEYED, "complete_columns": True},
    "plaintext-footer": {**COLUMN_KEYED, "plaintext_footer": True},
    "ctr": {**UNIFORM, "algorithm": "AES_GCM_CTR_V1"},
    "ctr-plaintext-footer": {**COLUMN_KEYED, "algorithm": "AES_GCM_CTR_V1", "plaintext_footer": True},
}


class ServerWrapKms(pe.KmsClient):
    """The server-side wrapping of the peer's KMS, in Python."""

    def __init__(self, _: pe.KmsConnectionConfig) -> None:
        super().__init__()

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
        nonce, name = os.urandom(12), master_key_identifier
        return base64.b64encode(nonce + AESGCM(MASTER_KEYS[name]).encrypt(nonce, key_bytes, name.encode()))

    def unwrap_key(self, wrapped_key: bytes, master_key_identifier: str) -> bytes:
        wrapped, name = base64.b64decode(wrapped_key), master_key_identifier
        return AESGCM(MASTER_KEYS[name]).decrypt(wrapped[:12], wrapped[12:], name.encode())


def fixture(name: str) -> Path:
    path = FIXTURES / name
    if not path.is_file():
        refuse = pytest.fail if os.environ.get("AGS1_NO_SKIP") else pytest.skip
        refuse(f"the parquet-testing file {name} is not beside the checkout")
    return path


def columns_of(metadata: dict[str, Any], row_group: int = 0) -> dict[str, dict[str, Any]]:
    return {column["path"]: column for column in metadata["row_groups"][row_group]["columns"]}


# -- plaintext: rows, layout, indexes ------------------------------------------------------------------------


@pytest.mark.parametrize("page_version", [1, 2])
@pytest.mark.parametrize("int96", [False, True])
@pytest.mark.parametrize("codec", ["UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD"])
def test_written_rows_are_those_that_python_computes_and_that_arrow_reads(
    parquet_peer: ParquetPeer, tmp_path: Path, codec: str, int96: bool, page_version: int
) -> None:
    path = tmp_path / "sample.parquet"
    options = {"codec": codec, "int96": int96, "page_version": page_version, "page_rows": 70, "row_group_rows": 200}
    wrote = parquet_peer.write(path, rows=500, seed=3, **options)
    expected = sample_rows(500, 3, int96=int96)
    read = parquet_peer.read(path, limit=500)

    assert (wrote["rows"], wrote["bytes"]) == (500, path.stat().st_size)
    assert read["rows"] == expected
    assert (read["count"], read["sha256"]) == (500, digest_of(expected))
    assert canonical_rows(pq.read_table(path)) == expected


def test_answers_hold_as_many_rows_as_asked_for_while_the_digest_covers_all(
    parquet_peer: ParquetPeer, tmp_path: Path
) -> None:
    path = tmp_path / "sample.parquet"
    parquet_peer.write(path, rows=50)
    expected = sample_rows(50)
    read = parquet_peer.read(path, limit=3)
    assert read["rows"] == expected[:3]
    assert read["sha256"] == digest_of(expected)
    assert "sha256" not in parquet_peer.read(path, limit=0, digest=False)


def test_canonical_text_covers_the_types_that_the_sample_has_not(parquet_peer: ParquetPeer, tmp_path: Path) -> None:
    path = tmp_path / "types.parquet"
    numbers = [0, 255, None]
    table = pa.table(
        {
            "unsigned": pa.array([2**64 - 1, 0, None], pa.uint64()),
            "byte": pa.array(numbers, pa.uint8()),
            "real": pa.array([float("nan"), -0.0, 1.1], pa.float32()),
            "bytes": pa.array([b"\x00\xff", b"", None]),
            "fixed": pa.array([b"abc", None, b"def"], pa.binary(3)),
            "text": pa.array(['a "quoted"\\\n\t\x01 text', "Zürich", None]),
            "date": pa.array([-1, 19_000, None], pa.date32()),
            "time": pa.array([1, None, 86_399_999_999], pa.time64("us")),
            "millis": pa.array([-1, None, 1], pa.timestamp("ms")),
            "nanos": pa.array([-1, None, 1], pa.timestamp("ns", "UTC")),
            "small_decimal": pa.array([None, "-0.01", "12.30"], pa.string()).cast(pa.decimal128(7, 2)),
            "deep": pa.array([[[1], None, []], [], None], pa.list_(pa.list_(pa.int8()))),
            "coded": pa.array(["x", "y", None]).dictionary_encode(),
        }
    )
    pq.write_table(table, path)
    assert parquet_peer.read(path)["rows"] == canonical_rows(pq.read_table(path)) == canonical_rows(table)


def test_the_layout_is_the_one_asked_for(parquet_peer: ParquetPeer, tmp_path: Path) -> None:
    path = tmp_path / "sample.parquet"
    options = {"page_rows": 100, "row_group_rows": 300, "codec": "GZIP", "bloom": ["id", "token"], "bloom_values": 300}
    parquet_peer.write(path, rows=1000, page_version=2, **options)
    metadata = parquet_peer.metadata(path, bloom_probe={"id": [5, -5]})
    columns = columns_of(metadata)

    assert metadata["rows"] == 1000
    assert [group["rows"] for group in metadata["row_groups"]] == [300, 300, 300, 100]
    assert tuple(columns) == SAMPLE_LEAVES
    assert {column["codec"] for column in columns.values()} == {"GZIP"}
    assert all(column["encoding_stats"]["v2_pages"] for column in columns.values())
    assert [page["first_row"] for page in columns["id"]["offset_index"]["pages"]] == [0, 100, 200]
    assert columns["id"]["column_index"]["min"] == [number.to_bytes(8, "little").hex() for number in (0, 100, 200)]
    assert columns["id"]["statistics"]["max_text"] == "299"
    assert columns["city"]["dictionary_page_offset"] > 0
    assert columns["token"]["bloom_filter"]["bytes"] > 0
    assert columns["id"]["bloom_filter"]["found"] == [True, False]
    assert columns["city"]["bloom_filter"] is None
    assert not any(column["encrypted"] or column["separate_metadata"] for column in columns.values())


def test_dictionaries_can_be_left_out(parquet_peer: ParquetPeer, tmp_path: Path) -> None:
    path = tmp_path / "sample.parquet"
    parquet_peer.write(path, rows=100, dictionary=False)
    columns = columns_of(parquet_peer.metadata(path))
    assert not any(column["encoding_stats"]["dictionary_pages"] for column in columns.values())


def test_no_checksum_files_are_left_beside_a_file(parquet_peer: ParquetPeer, tmp_path: Path) -> None:
    parquet_peer.write(tmp_path / "sample.parquet", rows=10)
    assert [path.name for path in tmp_path.iterdir()] == ["sample.parquet"]


# -- projection and filters ----------------------------------------------------------------------------------


def test_projection_takes_leaves_and_whole_groups(parquet_peer: ParquetPeer, tmp_path: Path) -> None:
    path = tmp_path / "sample.parquet"
    parquet_peer.write(path, rows=40)
    rows = [json.loads(row) for row in parquet_peer.read(path, columns=["id", "numbers", "point.b"])["rows"]]
    for row, whole in zip(rows, map(json.loads, sample_rows(40)), strict=True):
        assert row["id"] == whole["id"]
        assert row["numbers"] == whole["numbers"]
        assert row["point"] == (whole["point"] and {"b": whole["point"]["b"]})
        assert len(row) == 3
    with pytest.raises(ParquetJavaError, match=r"no column point\.c"):
        parquet_peer.read(path, columns=["point.c"])


def test_a_filter_on_the_id_reads_the_pages_that_the_column_index_leaves(
    parquet_peer: ParquetPeer, tmp_path: Path
) -> None:
    path = tmp_path / "sample.parquet"
    parquet_peer.write(path, rows=1000, page_rows=100, row_group_rows=500, encryption=UNIFORM)
    wanted = [{"column": "id", "op": "ge", "value": 250}, {"column": "id", "op": "lt", "value": 320}]
    read = parquet_peer.read(path, decryption=KEYS, filter=wanted)
    assert read["rows"] == sample_rows(1000)[250:320]
    assert (read["kept_row_groups"], read["kept_rows"]) == (1, 200)

    without = parquet_peer.read(path, decryption=KEYS, filter=wanted, use_column_index=False)
    assert without["sha256"] == read["sha256"]
    assert without["kept_rows"] == 500


def test_a_filter_on_an_absent_value_is_answered_by_the_bloom_filter(parquet_peer: ParquetPeer, tmp_path: Path) -> None:
    path = tmp_path / "sample.parquet"
    parquet_peer.write(path, rows=400, row_group_rows=200, dictionary=False, bloom=["token"], encryption=UNIFORM)
    wanted = [{"column": "token", "op": "eq", "value": "8" * 32}]
    read = parquet_peer.read(path, decryption=KEYS, filter=wanted)
    assert (read["count"], read["kept_row_groups"]) == (0, 0)
    without = parquet_peer.read(path, decryption=KEYS, filter=wanted, use_bloom=False)
    assert (without["count"], without["kept_row_groups"]) == (0, 2)


def test_pages_can_be_read_without_rows(parquet_peer: ParquetPeer, tmp_path: Path) -> None:
    path = tmp_path / "sample.parquet"
    parquet_peer.write(path, rows=1000, page_rows=100, row_group_rows=500, encryption=UNIFORM)
    read = parquet_peer.read(path, decryption=KEYS, columns=["id", "active"], pages_only=True)
    assert (read["pages"], read["values"]) == (20, 2000)
    assert read["uncompressed_bytes"] >= 8000
    assert read["seconds"] > 0


# -- explicit keys -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page_version", [1, 2])
@pytest.mark.parametrize("way", WAYS_TO_ENCRYPT)
def test_encrypted_files_read_back_and_show_what_was_asked_for(
    parquet_peer: ParquetPeer, tmp_path: Path, way: str, page_version: int
) -> None:
    path = tmp_path / "sample.parquet"
    encryption = WAYS_TO_ENCRYPT[way]
    options = {"page_rows": 100, "row_group_rows": 300, "page_version": page_version, "bloom": ["id"]}
    parquet_peer.write(path, rows=500, encryption=encryption, **options)
    metadata = parquet_peer.metadata(path, decryption=KEYS, bloom_probe={"id": [5, -5]})
    columns = columns_of(metadata)

    stored = path.read_bytes()
    plaintext_footer = encryption.get("plaintext_footer", False)
    assert stored[:4] == stored[-4:] == (b"PAR1" if plaintext_footer else b"PARE")
    assert metadata["encryption"] == ("PLAINTEXT_FOOTER" if plaintext_footer else "ENCRYPTED_FOOTER")
    all_columns = way in {"uniform", "complete", "ctr"}
    encrypted = set(SAMPLE_LEAVES) if all_columns else ENCRYPTED_COLUMNS
    assert {name for name, column in columns.items() if column["encrypted"]} == encrypted
    assert ("København".encode() in stored) == ("city" not in encrypted)
    assert columns["id"]["bloom_filter"]["found"] == [True, False]
    assert len(columns["id"]["offset_index"]["pages"]) == len(columns["id"]["column_index"]["min"]) == 3
    assert parquet_peer.read(path, decryption=KEYS)["sha256"] == digest_of(sample_rows(500))


@pytest.mark.parametrize("length", [16, 24, 32])
def test_keys_have_the_lengths_of_aes(parquet_peer: ParquetPeer, tmp_path: Path, length: int) -> None:
    path, key = tmp_path / "sample.parquet", bytes(range(1, length + 1))
    parquet_peer.write(path, rows=20, encryption={"footer_key": key})
    assert parquet_peer.read(path, decryption={"footer_key": key})["sha256"] == digest_of(sample_rows(20))


def test_explicit_column_keys_open_only_their_columns(parquet_peer: ParquetPeer, tmp_path: Path) -> None:
    path = tmp_path / "sample.parquet"
    parquet_peer.write(path, rows=100, encryption=COLUMN_KEYED)
    decryption = {"footer_key": FOOTER_KEY, "column_keys": {"token": COLUMN_KEYS["kc1"]}}
    rows = parquet_peer.read(path, decryption=decryption, columns=["token", "id"])["rows"]
    assert [json.loads(row)["token"] for row in rows] == [json.loads(row)["token"] for row in sample_rows(100)]
    with pytest.raises(ParquetJavaError, match="numbers"):
        parquet_peer.read(path, decryption=decryption)

    columns = columns_of(parquet_peer.metadata(path, decryption=decryption))
    assert [name for name, column in columns.items() if "unreadable" in column] == ["numbers.list.element"]
    assert "the provided column key is NULL" in columns["numbers.list.element"]["unreadable"]


def test_a_key_that_the_retriever_lacks_is_denied(parquet_peer: ParquetPeer, tmp_path: Path) -> None:
    path = tmp_path / "sample.parquet"
    parquet_peer.write(path, rows=10, encryption=UNIFORM)
    with pytest.raises(ParquetJavaError, match="no key for the key metadata 6b66") as caught:
        parquet_peer.read(path, decryption={"key_retriever": {b"other": FOOTER_KEY}})
    assert caught.value.java_class == "KeyAccessDeniedException"


@pytest.mark.parametrize("stored", [True, False])
def test_an_aad_prefix_is_stored_or_has_to_be_supplied(parquet_peer: ParquetPeer, tmp_path: Path, stored: bool) -> None:
    path = tmp_path / "sample.parquet"
    encryption = {**UNIFORM, "aad_prefix": b"tester", "store_aad_prefix": stored}
    parquet_peer.write(path, rows=10, encryption=encryption)
    assert parquet_peer.read(path, decryption={**KEYS, "aad_prefix": b"tester"})["count"] == 10
    if stored:
        assert parquet_peer.read(path, decryption=KEYS)["count"] == 10
    else:
        with pytest.raises(ParquetJavaError, match="not supplied"):
            parquet_peer.read(path, decryption=KEYS)
        with pytest.raises(ParquetJavaError) as caught:
            parquet_peer.read(path, decryption={**KEYS, "aad_prefix": b"other"})
        assert caught.value.java_class == "TagVerificationException"


def test_a_changed_plaintext_footer_is_read_only_without_its_signature(
    parquet_peer: ParquetPeer, tmp_path: Path
) -> None:
    path = tmp_path / "sample.parquet"
    parquet_peer.write(path, rows=10, encryption={**COLUMN_KEYED, "plaintext_footer": True})
    stored = path.read_bytes()
    path.write_bytes(stored.replace(b"parquet-mr version", b"parquet-mr Version"))
    with pytest.raises(ParquetJavaError, match=r"[Ss]ignature"):
        parquet_peer.read(path, decryption=KEYS)
    # Without the check, Java asks no retriever for the footer key.
    unchecked = {**KEYS, "footer_key": FOOTER_KEY, "check_signature": False}
    assert parquet_peer.read(path, decryption=unchecked)["count"] == 10


def test_plaintext_files_are_read_with_keys_only_if_allowed(parquet_peer: ParquetPeer, tmp_path: Path) -> None:
    path = tmp_path / "sample.parquet"
    parquet_peer.write(path, rows=10)
    with pytest.raises(ParquetJavaError, match="plaintext"):
        parquet_peer.read(path, decryption=KEYS)
    assert parquet_peer.read(path, decryption={**KEYS, "plaintext_files_allowed": True})["count"] == 10


# -- files of others -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "mode",
    [
        "columns_and_footer",
        "columns_and_footer_aad",
        "columns_and_footer_ctr",
        "columns_and_footer_disable_aad_storage",
        "columns_plaintext_footer",
    ],
)
def test_public_files_hold_the_rows_that_arrow_reads(parquet_peer: ParquetPeer, mode: str) -> None:
    uniform = fixture("uniform_encryption.parquet.encrypted")
    keys = pe.create_decryption_properties(FOOTER_KEY)
    expected = canonical_rows(pq.ParquetFile(uniform, decryption_properties=keys).read())
    assert parquet_peer.read(uniform, decryption={"footer_key": FOOTER_KEY})["rows"] == expected

    decryption = {**KEYS, "aad_prefix": b"tester"} if mode.endswith("disable_aad_storage") else KEYS
    assert parquet_peer.read(fixture(f"encrypt_{mode}.parquet.encrypted"), decryption=decryption)["rows"] == expected


def test_bloom_filters_of_a_public_file_are_readable(parquet_peer: ParquetPeer) -> None:
    path = fixture("encrypt_columns_and_footer_bloom_filter.parquet.encrypted")
    metadata = parquet_peer.metadata(path, decryption=KEYS, bloom_probe={"double_field": [0.5, -3.5]})
    columns = columns_of(metadata)
    assert columns["double_field"]["bloom_filter"]["found"] == [True, False]
    assert columns["float_field"]["bloom_filter"]["bytes"] > 0
    assert parquet_peer.read(path, decryption=KEYS)["count"] == 2000


def test_external_key_material_of_a_public_file_is_found(parquet_peer: ParquetPeer) -> None:
    path = fixture("external_key_material_java.parquet.encrypted")
    opened = pe.CryptoFactory(ServerWrapKms).file_decryption_properties(
        pe.KmsConnectionConfig(), pe.DecryptionConfiguration(), path, LocalFileSystem()
    )
    read = parquet_peer.keytools_read(path, master_keys=MASTER_KEYS)
    assert read["rows"] == canonical_rows(pq.ParquetFile(path, decryption_properties=opened).read())
    assert (read["count"], read["unwraps"]) == (100, 3)


# -- rewriting -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page_version", [1, 2])
def test_a_rewritten_file_has_the_same_rows_under_encryption(
    parquet_peer: ParquetPeer, tmp_path: Path, page_version: int
) -> None:
    source, target = tmp_path / "plain.parquet", tmp_path / "encrypted.parquet"
    options = {"page_rows": 100, "row_group_rows": 300, "codec": "ZSTD", "bloom": ["id"]}
    parquet_peer.write(source, rows=500, page_version=page_version, **options)
    wrote = parquet_peer.rewrite(source, target, columns=sorted(ENCRYPTED_COLUMNS), encryption=COLUMN_KEYED, rounds=2)
    assert wrote["bytes"] == target.stat().st_size
    assert len(wrote["seconds"]) == 2
    assert all(seconds > 0 for seconds in wrote["seconds"])
    metadata = parquet_peer.metadata(target, decryption=KEYS, bloom_probe={"id": [5, -5]})
    columns = columns_of(metadata)
    assert {name for name, column in columns.items() if column["encrypted"]} == ENCRYPTED_COLUMNS
    assert columns["id"]["bloom_filter"]["found"] == [True, False]
    assert parquet_peer.read(target, decryption=KEYS)["sha256"] == digest_of(sample_rows(500))


# -- key tools -----------------------------------------------------------------------------------------------


def key_properties(*, internal: bool = True, double: bool = True) -> dict[str, Any]:
    return {
        "parquet.encryption.footer.key": "kf",
        "parquet.encryption.column.keys": "kc1:price,token;kc2:numbers.list.element",
        "parquet.encryption.key.material.store.internally": internal,
        "parquet.encryption.double.wrapping": double,
    }


@pytest.mark.parametrize("internal", [True, False], ids=["internal", "external"])
@pytest.mark.parametrize("double", [True, False], ids=["double", "single"])
@pytest.mark.parametrize("kms", ["server", "local"])
def test_key_tools_write_and_read(
    parquet_peer: ParquetPeer, tmp_path: Path, kms: str, double: bool, internal: bool
) -> None:
    path = tmp_path / "sample.parquet"
    keys = {"master_keys": MASTER_KEYS, "kms": kms}
    properties = key_properties(internal=internal, double=double)
    wrote = parquet_peer.keytools_write(path, rows=50, properties=properties, **keys)
    read = parquet_peer.keytools_read(path, **keys)

    # A key for each master key when doubly wrapped, one for the footer and each of three columns otherwise.
    assert wrote["wraps"] == (3 if double else 4)
    assert read["unwraps"] >= 3
    assert read["sha256"] == digest_of(sample_rows(50))
    columns = columns_of(parquet_peer.keytools_metadata(path, **keys))
    encrypted = {name for name, column in columns.items() if column["encrypted"]}
    assert encrypted == {"price", "token", "numbers.list.element"}
    material = tmp_path / "_KEY_MATERIAL_FOR_sample.parquet.json"
    assert material.exists() == (not internal)
    if not internal:
        # LocalWrapKmsClient puts JSON around what a server would answer.
        assert ("masterKeyVersion" in material.read_text()) == (kms == "local")
    with pytest.raises(ParquetJavaError, match="no master key kf"):
        parquet_peer.keytools_read(path, master_keys=COLUMN_KEYS, kms=kms)


@pytest.mark.parametrize("double", [True, False], ids=["double", "single"])
def test_key_tools_and_arrow_read_each_other(parquet_peer: ParquetPeer, tmp_path: Path, double: bool) -> None:
    factory, connection = pe.CryptoFactory(ServerWrapKms), pe.KmsConnectionConfig()
    by_java, by_arrow = tmp_path / "java.parquet", tmp_path / "arrow.parquet"
    parquet_peer.keytools_write(by_java, rows=50, master_keys=MASTER_KEYS, properties=key_properties(double=double))
    opened = factory.file_decryption_properties(connection)
    table = pq.ParquetFile(by_java, decryption_properties=opened).read()
    assert canonical_rows(table) == sample_rows(50)

    config = pe.EncryptionConfiguration(
        footer_key="kf", column_keys={"kc1": ["price", "token"]}, double_wrapping=double, data_key_length_bits=128
    )
    sealed = factory.file_encryption_properties(connection, config)
    with pq.ParquetWriter(by_arrow, table.schema, encryption_properties=sealed) as writer:
        writer.write_table(table)
    assert parquet_peer.keytools_read(by_arrow, master_keys=MASTER_KEYS)["sha256"] == digest_of(sample_rows(50))


def test_rotation_moves_external_material_to_new_master_keys(parquet_peer: ParquetPeer, tmp_path: Path) -> None:
    path = tmp_path / "sample.parquet"
    parquet_peer.keytools_write(path, rows=50, master_keys=MASTER_KEYS, properties=key_properties(internal=False))
    before = path.read_bytes()
    new_keys = {name: bytes(reversed(key)) for name, key in MASTER_KEYS.items()}
    rotated = parquet_peer.rotate(tmp_path, master_keys=MASTER_KEYS, new_master_keys=new_keys)

    assert (rotated["wraps"], rotated["unwraps"]) == (3, 3)
    assert path.read_bytes() == before
    assert parquet_peer.keytools_read(path, master_keys=new_keys)["sha256"] == digest_of(sample_rows(50))
    with pytest.raises(ParquetJavaError, match="GCM tag check failed"):
        parquet_peer.keytools_read(path, master_keys=MASTER_KEYS)


def test_rotation_wraps_as_its_own_properties_say(parquet_peer: ParquetPeer, tmp_path: Path) -> None:
    path, material = tmp_path / "sample.parquet", tmp_path / "_KEY_MATERIAL_FOR_sample.parquet.json"
    single = key_properties(internal=False, double=False)
    parquet_peer.keytools_write(path, rows=5, master_keys=MASTER_KEYS, properties=single)
    assert "wrappedKEK" not in material.read_text()
    parquet_peer.rotate(tmp_path, master_keys=MASTER_KEYS, properties=single)
    assert "wrappedKEK" not in material.read_text()
    parquet_peer.rotate(tmp_path, master_keys=MASTER_KEYS)
    assert "wrappedKEK" in material.read_text()


# -- the peer itself -----------------------------------------------------------------------------------------


def test_errors_carry_the_java_class_and_leave_the_peer_alive(parquet_peer: ParquetPeer, tmp_path: Path) -> None:
    with pytest.raises(ParquetJavaError) as caught:
        parquet_peer.read(tmp_path / "absent.parquet")
    assert caught.value.java_class == "FileNotFoundException"
    assert "absent.parquet" in caught.value.java_message

    with pytest.raises(ParquetJavaError, match="unknown command: dance"):
        parquet_peer.ask("dance")
    with pytest.raises(ParquetJavaError, match="the member path is missing"):
        parquet_peer.ask("write", rows=1)
    with pytest.raises(ParquetJavaError, match="All key bytes are zero") as caught:
        parquet_peer.write(tmp_path / "zero.parquet", rows=1, encryption={"footer_key": bytes(16)})
    assert caught.value.causes == []
    assert parquet_peer.version()["parquet"]


def test_a_built_peer_starts_without_maven(parquet_peer: ParquetPeer, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a subprocess was started")

    monkeypatch.setattr(subprocess, "run", refuse)
    built = jvm.build("parquet")
    assert (built / "classes").is_dir()
    assert any(path.name.startswith("parquet-hadoop-") for path in (built / "lib").iterdir())


def test_the_peer_runs_the_release_of_spark_too(
    parquet_peer: ParquetPeer, spark_parquet_peer: ParquetPeer, tmp_path: Path
) -> None:
    path = tmp_path / "sample.parquet"
    assert spark_parquet_peer.version()["parquet"] == SPARK_VERSION
    assert parquet_peer.version()["parquet"] != SPARK_VERSION
    spark_parquet_peer.write(path, rows=50, page_version=2, encryption=COLUMN_KEYED)
    assert parquet_peer.read(path, decryption=KEYS)["sha256"] == digest_of(sample_rows(50))
    assert SPARK_VERSION in parquet_peer.metadata(path, decryption=KEYS)["created_by"]
