"""The Parquet cases through PyArrow: with keys given where one key opens all, else by its key tools."""

from __future__ import annotations

import base64
import contextlib
import datetime
import io
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe

from tests.conformance.outcomes import Fields, Implementation, NotRead, Reader
from tests.conformance.runners.parquet_files import content, octets, optional, placed, unwrapped


class _Kms(pe.KmsClient):  # type: ignore[misc]
    def __init__(self, case: Fields) -> None:
        super().__init__()
        self._case = case

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        raise NotImplementedError

    def unwrap_key(self, wrapped_key: str | bytes, master_key_identifier: str) -> bytes:
        return unwrapped(self._case, base64.b64decode(wrapped_key), master_key_identifier)


def _read(case: Fields) -> object:
    if case.get("part", "rows") != "rows":
        raise NotRead("its Python interface reads no page index and no Bloom filter")
    if "key_material" in case:
        with placed(case) as path:
            return pq.read_table(path, decryption_properties=_by_key_tools(case, path), use_threads=False).to_pylist()
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


def _by_key_tools(case: Fields, path: Path | None = None) -> object:
    if case["aad_prefix"] is not None:
        raise NotRead("its key tools take no AAD prefix, and its direct keys no columns")
    if case.get("threat") == "the wrong key":
        raise NotRead("its key tools take the keys from the file")
    factory = pe.CryptoFactory(lambda _: _Kms(case))
    return factory.file_decryption_properties(
        pe.KmsConnectionConfig(),
        pe.DecryptionConfiguration(cache_lifetime=datetime.timedelta(seconds=1)),
        path,
    )


@contextlib.contextmanager
def _readers() -> Iterator[Mapping[str, Reader]]:
    yield {"parquet": _read}


PYARROW = Implementation(lambda: f"PyArrow {pa.__version__}", _readers)
