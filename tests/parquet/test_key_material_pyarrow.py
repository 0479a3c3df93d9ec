"""The key material layer against PyArrow's key tools, both ways: it finds our keys, and we find its keys."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.parquet import encryption

from ags1 import Key
from ags1.core.gcm import open_message, random_bytes, seal_message
from ags1.kms import MemoryKms
from ags1.parquet.keys.key_material import (
    KeyMaterial,
    key_material_path,
    parse_key_metadata,
    parse_store,
    rewrap_key_metadata,
    rotate_master_keys,
)
from ags1.parquet.keys.material import encode_reference, encode_store
from ags1.parquet.keys.properties import DecryptionConfig, EncryptionConfig

MASTERS = {"kf": b"0123456789012345", "kc1": b"1234567890123450", "kc2": bytes(range(1, 33))}
TABLE = pa.table({"id": [1, 2, 3], "ssn": ["a", "b", "c"], "salary": [1.5, 2.5, 3.5]})
START = '{"keyMaterialType"'


class LocalWrap(encryption.KmsClient):  # type: ignore[misc]
    """A client whose wrapped keys are JSON, not base64, like that of parquet-java's LocalWrapKmsClient."""

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        nonce = random_bytes(12)
        sealed = nonce + seal_message(key_bytes, MASTERS[master_key_identifier], nonce, master_key_identifier.encode())
        return json.dumps({"masterKeyVersion": "NO_VERSION", "encryptedKey": base64.b64encode(sealed).decode()})

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        sealed = base64.b64decode(json.loads(wrapped_key)["encryptedKey"])
        master = MASTERS[master_key_identifier]
        key = open_message(sealed[12:], master, sealed[:12], master_key_identifier.encode())
        assert key is not None
        return key


def clients(kind: str) -> tuple[Any, Any]:
    """A KMS for us, and the same for PyArrow."""
    if kind == "text":
        return LocalWrap(), LocalWrap()
    return MemoryKms(MASTERS), MemoryKms(MASTERS).as_pyarrow()


def write(path: Path, client: Any, **options: Any) -> None:
    factory = encryption.CryptoFactory(lambda _: client)
    columns = {"kc1": ["ssn"], "kc2": ["salary"]}
    config = encryption.EncryptionConfiguration("kf", column_keys=columns, **options)
    properties = factory.file_encryption_properties(encryption.KmsConnectionConfig(), config, str(path))
    with pq.ParquetWriter(path, TABLE.schema, encryption_properties=properties, use_dictionary=False) as writer:
        writer.write_table(TABLE)


def read(path: Path, client: Any) -> Any:
    factory = encryption.CryptoFactory(lambda _: client)
    properties = factory.file_decryption_properties(encryption.KmsConnectionConfig(), None, str(path))
    with pq.ParquetFile(path, decryption_properties=properties) as file:
        return file.read()


def key_metadata_in(data: bytes) -> list[bytes]:
    """All key metadata in a piece of a file, in their order."""
    found = []
    for rest in data.decode("latin-1").split(START)[1:]:
        # Wrapped keys can be JSON themselves, so that the first brace need not be the last.
        _, end = json.JSONDecoder().raw_decode(START + rest)
        found.append((START + rest)[:end].encode("latin-1"))
    return found


def footer_of(data: bytes) -> tuple[bytes, bytes, bytes]:
    """The unique part of a file's AAD, its footer's key metadata, and the footer's module."""
    crypto_metadata = data[-8 - int.from_bytes(data[-8:-4], "little") : -8]
    [metadata] = key_metadata_in(crypto_metadata)
    unique = crypto_metadata[crypto_metadata.index(b"\x08") + 1 :][:8]
    # The struct's end stands between.
    return unique, metadata, crypto_metadata.partition(metadata)[2][1:]


@pytest.mark.parametrize("kind", ["bytes", "text"])
@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("internal", [True, False])
@pytest.mark.parametrize("bits", [128, 256])
def test_we_find_the_keys_of_a_file_of_pyarrow(
    tmp_path: Path, kind: str, double: bool, internal: bool, bits: int
) -> None:
    ours, theirs = clients(kind)
    path = tmp_path / "x.parquet"
    write(path, theirs, double_wrapping=double, internal_key_material=internal, data_key_length_bits=bits)
    data = path.read_bytes()
    unique, metadata, module = footer_of(data)
    reading = DecryptionConfig.from_kms(ours).for_file(path)
    key = reading.footer_key(metadata)
    assert key.bits == bits
    footer = open_message(module[16:], key, module[4:16], unique + b"\x00")
    assert footer is not None
    ssn, salary = key_metadata_in(footer)
    # One page each: its header, the first module of the column, opens with the column's own key only.
    keys = [reading.column_key(("ssn",), ssn), reading.column_key(("salary",), salary)]
    found = set()
    for position in range(4, len(data) - len(module)):
        length = int.from_bytes(data[position : position + 4], "little")
        if not 28 < length < 200:
            continue
        nonce, sealed = data[position + 4 : position + 16], data[position + 16 : position + 4 + length]
        for column in (1, 2):
            aad = unique + b"\x04" + bytes(2) + column.to_bytes(2, "little") + bytes(2)
            found |= {
                (column, number) for number in (0, 1) if open_message(sealed, keys[number], nonce, aad) is not None
            }
    assert found == {(1, 0), (2, 1)}


@pytest.mark.parametrize("double", [True, False])
def test_key_material_of_pyarrow_is_what_we_would_write_byte_for_byte(tmp_path: Path, double: bool) -> None:
    client = MemoryKms(MASTERS).as_pyarrow()
    write(tmp_path / "in.parquet", client, double_wrapping=double)
    _, metadata, _ = footer_of((tmp_path / "in.parquet").read_bytes())
    material = parse_key_metadata(metadata)
    assert isinstance(material, KeyMaterial)
    assert material.encode(internal=True) == metadata
    write(tmp_path / "out.parquet", client, double_wrapping=double, internal_key_material=False)
    _, metadata, _ = footer_of((tmp_path / "out.parquet").read_bytes())
    assert encode_reference("footerKey") == metadata
    stored = Path(key_material_path(tmp_path / "out.parquet")).read_bytes()
    # Its members have no order; each of them has, and we keep both.
    assert encode_store(parse_store(stored)) == stored
    assert sorted(parse_store(stored)) == ["columnKey0", "columnKey1", "footerKey"]


@pytest.mark.parametrize("kind", ["bytes", "text"])
@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("kek_bits", [128, 192, 256])
def test_pyarrow_finds_the_keys_in_material_of_ours(tmp_path: Path, kind: str, double: bool, kek_bits: int) -> None:
    ours, theirs = clients(kind)
    path = tmp_path / "x.parquet"
    write(path, theirs, internal_key_material=False)
    rotate_master_keys(
        ours, path, master_key_ids={"kf": "kc1", "kc1": "kc2"}, double_wrapping=double, kek_bits=kek_bits
    )
    store = parse_store(Path(key_material_path(path)).read_bytes())
    assert store["footerKey"].master_key_id == "kc1"
    assert {material.double_wrapping for material in store.values()} == {double}
    assert read(path, theirs).equals(TABLE)


@pytest.mark.parametrize("double", [True, False])
def test_pyarrow_finds_a_footer_key_that_we_wrapped_anew_in_the_file(tmp_path: Path, double: bool) -> None:
    ours, theirs = clients("bytes")
    path = tmp_path / "x.parquet"
    write(path, theirs, double_wrapping=double)
    data = path.read_bytes()
    _, metadata, _ = footer_of(data)
    anew = rewrap_key_metadata(metadata, ours)
    # Ids and keys have their lengths, so that the new text fits in the place of the old one.
    assert len(anew) == len(metadata)
    assert anew != metadata
    path.write_bytes(data.replace(metadata, anew))
    assert read(path, theirs).equals(TABLE)


def test_pyarrow_rotates_our_key_material(tmp_path: Path) -> None:
    ours, theirs = clients("bytes")
    config = EncryptionConfig.from_kms(ours, "kf", {"kc1": ["ssn"]}, internal_key_material=False)
    path = tmp_path / "x.parquet"
    file = config.for_file()
    [column] = file.columns([("ssn",)])
    stored = file.external_key_material()
    assert stored is not None
    assert column is not None
    Path(key_material_path(path)).write_bytes(stored)
    # It looks for the Parquet file too.
    path.write_bytes(b"")
    factory = encryption.CryptoFactory(lambda _: theirs)
    factory.rotate_master_keys(encryption.KmsConnectionConfig(), str(path))
    new = Path(key_material_path(path)).read_bytes()
    assert parse_store(new)["footerKey"].wrapped_dek != parse_store(stored)["footerKey"].wrapped_dek
    reading = DecryptionConfig.from_kms(ours).for_file(path)
    assert reading.footer_key(file.footer_key_metadata) == file.footer_key
    assert reading.column_key(("ssn",), column.key_metadata) == column.key
    assert isinstance(column.key, Key)
