"""The Parquet cases through PyArrow: with keys given where one key opens all, else by its key tools."""

from __future__ import annotations

import base64
import contextlib
import datetime
import io
from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.conformance.outcomes import Fields, Implementation, NotRead, Reader
from tests.conformance.runners.parquet_files import content, octets, optional


class _Kms(pe.KmsClient):  # type: ignore[misc]
    def __init__(self, masters: Mapping[str, bytes]) -> None:
        super().__init__()
        self._masters = masters

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        raise NotImplementedError

    def unwrap_key(self, wrapped_key: str | bytes, master_key_identifier: str) -> bytes:
        wrapped = base64.b64decode(wrapped_key)
        key = AESGCM(self._masters[master_key_identifier])
        return key.decrypt(wrapped[:12], wrapped[12:], master_key_identifier.encode())


def _read(case: Fields) -> object:
    if case.get("part", "rows") != "rows":
        raise NotRead("its Python interface reads no page index and no Bloom filter")
    data = content(case)
    if not case["column_keys"]:
        prefix = optional(case["aad_prefix"])
        properties = pe.create_decryption_properties(octets(case["footer_key"]), aad_prefix=prefix)
    else:
        properties = _by_key_tools(case)
    table = pq.read_table(
        io.BytesIO(data), decryption_properties=properties, page_checksum_verification=True, use_threads=False
    )
    return table.to_pylist()


def _by_key_tools(case: Fields) -> object:
    if case["aad_prefix"] is not None:
        raise NotRead("its key tools take no AAD prefix, and its direct keys no columns")
    if case.get("threat") == "the wrong key":
        raise NotRead("its key tools take the keys from the file")
    masters = {name: octets(key) for name, key in case["master_keys"].items()}
    factory = pe.CryptoFactory(lambda _: _Kms(masters))
    return factory.file_decryption_properties(
        pe.KmsConnectionConfig(),
        pe.DecryptionConfiguration(cache_lifetime=datetime.timedelta(seconds=1)),
    )


@contextlib.contextmanager
def _readers() -> Iterator[Mapping[str, Reader]]:
    yield {"parquet": _read}


PYARROW = Implementation(lambda: f"PyArrow {pa.__version__}", _readers)
