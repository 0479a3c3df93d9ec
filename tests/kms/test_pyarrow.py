"""The PyArrow face: real encrypted Parquet files over a client of ours."""

from __future__ import annotations

import base64
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.parquet import encryption

import ags1
from ags1 import kms
from ags1.kms import MemoryKms
from tests.checks import KEY, KEYS, OTHER_KEY, run_python

TABLE = pa.table({"name": ["a", "b", "c"], "salary": [1, 2, 3]})
MASTERS = {"footer": KEYS[16], "column": KEYS[32]}


class CountingMemory(MemoryKms):
    """Counts the calls that reach the service."""

    def __init__(self, *arguments: Any, **common: Any) -> None:
        super().__init__(*arguments, **common)
        self.unwraps = 0

    def _unwrap(self, wrapped: bytes, key_id: str) -> bytes:
        self.unwraps += 1
        return super()._unwrap(wrapped, key_id)


def write(path: Path, client: Any, **options: Any) -> None:
    factory = encryption.CryptoFactory(lambda _: client.as_pyarrow())
    config = encryption.EncryptionConfiguration(footer_key="footer", column_keys={"column": ["salary"]}, **options)
    properties = factory.file_encryption_properties(encryption.KmsConnectionConfig(), config)
    with pq.ParquetWriter(path, TABLE.schema, encryption_properties=properties) as writer:
        writer.write_table(TABLE)


def read(path: Path, client: Any) -> pa.Table:
    factory = encryption.CryptoFactory(lambda _: client.as_pyarrow())
    config = encryption.DecryptionConfiguration(cache_lifetime=timedelta(minutes=5))
    properties = factory.file_decryption_properties(encryption.KmsConnectionConfig(), config)
    with pq.ParquetFile(path, decryption_properties=properties) as file:
        return file.read()


@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("bits", [128, 192, 256])
def test_a_parquet_file_is_written_and_read_over_a_client(tmp_path: Path, double: bool, bits: int) -> None:
    client = MemoryKms(MASTERS)
    write(tmp_path / "t.parquet", client, double_wrapping=double, data_key_length_bits=bits)
    assert (tmp_path / "t.parquet").read_bytes()[:4] == b"PARE"
    assert read(tmp_path / "t.parquet", client).equals(TABLE)


def test_the_file_holds_standard_base64_of_the_wrapped_keys(tmp_path: Path) -> None:
    client = MemoryKms(MASTERS)
    write(tmp_path / "t.parquet", client, double_wrapping=False, data_key_length_bits=128)
    data = (tmp_path / "t.parquet").read_bytes()
    start = data.rindex(b'{"')
    material = json.loads(data[start : data.index(b"}", start) + 1])
    wrapped = base64.b64decode(material["wrappedDEK"], validate=True)
    assert len(wrapped) == 12 + 16 + 16
    assert len(client.unwrap_key(wrapped, material["masterKeyID"])) == 16


def test_many_files_under_one_wrapped_key_cost_few_calls(tmp_path: Path) -> None:
    client = CountingMemory(MASTERS)
    write(tmp_path / "t.parquet", client)
    for _ in range(5):
        assert read(tmp_path / "t.parquet", client).equals(TABLE)
    assert client.unwraps == 2


def test_the_reason_of_a_refusal_comes_through_pyarrow(tmp_path: Path) -> None:
    write(tmp_path / "t.parquet", MemoryKms(MASTERS))
    with pytest.raises(Exception, match="MemoryKms could not unwrap a key with 'footer': it was wrapped with another"):
        read(tmp_path / "t.parquet", MemoryKms({**MASTERS, "footer": OTHER_KEY}))


def test_key_material_that_is_no_base64_is_called_so() -> None:
    with pytest.raises(ags1.KeyAccessError, match="'footer': the key material of the Parquet file is not base64"):
        MemoryKms(MASTERS).as_pyarrow().unwrap_key("!", "footer")


def test_both_faces_are_one_service() -> None:
    client = MemoryKms(MASTERS)
    text = client.as_pyarrow().wrap_key(KEY, "column")
    assert client.unwrap_key(base64.b64decode(text), "column") == KEY
    assert client.as_pyarrow().unwrap_key(text.decode(), "column") == KEY


@pytest.mark.timeout(60)
def test_missing_pyarrow_is_named_with_its_extra() -> None:
    shown = run_python(
        """
        import sys
        sys.modules["pyarrow"] = None
        from ags1 import kms
        try:
            kms.MemoryKms({"lake": bytes(16)}).as_pyarrow()
        except ImportError as error:
            print(error)
        """
    )
    assert shown.strip() == "as_pyarrow() needs PyArrow: pip install 'ags1[arrow]'"


def test_pyarrow_knows_it_as_a_client() -> None:
    assert isinstance(kms.MemoryKms(MASTERS).as_pyarrow(), encryption.KmsClient)
