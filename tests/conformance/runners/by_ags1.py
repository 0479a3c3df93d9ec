"""The cases through ags1."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator, Mapping

import ags1
from ags1 import parquet
from ags1.iceberg import EncryptionKeys, load_table
from ags1.kms import MemoryKms
from tests.conformance import loader
from tests.conformance.outcomes import Fields, Implementation, Reader
from tests.conformance.runners.parquet_files import content, octets, optional, placed, unwrapped
from tests.conformance.table_cases import Placed


def _stream(case: Fields) -> bytes:
    vector = loader.StreamVector(case["name"], case)
    return ags1.decrypt(vector.stream(), vector.key, aad_prefix=vector.aad_prefix or b"", length=vector.length)


def _key_metadata(case: Fields) -> tuple[bytes, bytes | None, int | None]:
    decoded = ags1.KeyMetadata.decode(octets(case["encoded"]))
    return bytes(decoded.encryption_key), decoded.aad_prefix, decoded.file_length


def _wrapped_keys(case: Fields) -> bytes:
    vector = loader.WrappedKeyVector(case["name"], case)
    keys = EncryptionKeys.from_table_metadata({"format-version": 3, "encryption-keys": vector.entries()})
    opened = keys.unwrap("list", MemoryKms({"master": octets(case["master_key"])}))
    # It always writes three fields; the case may have two.
    return opened.encode()[: len(octets(case.get("key_metadata", "")))]


class _Kms:
    """The KMS of the Parquet cases' master keys."""

    def __init__(self, case: Fields) -> None:
        self._case = case

    def wrap_key(self, key: bytes, wrapping_key_id: str) -> bytes:
        raise NotImplementedError

    def unwrap_key(self, wrapped_key: bytes, wrapping_key_id: str) -> bytes:
        return unwrapped(self._case, wrapped_key, wrapping_key_id)


def _parquet(case: Fields) -> object:
    if "key_material" in case:
        with placed(case) as path:
            return parquet.read_table(path, parquet.DecryptionConfig.from_kms(_Kms(case))).to_pylist()
    config = parquet.DecryptionConfig(
        octets(case["footer_key"]),
        column_keys={name: octets(key) for name, key in case["column_keys"].items()},
        aad_prefix=optional(case["aad_prefix"]),
        algorithm=case["algorithm"],
    )
    data = content(case)
    if case.get("part", "rows") != "rows":
        report = parquet.verify_file(io.BytesIO(data), config)
        if not report.ok:
            raise ags1.AuthenticationError(str(report))
        return None
    return parquet.read_table(io.BytesIO(data), config).to_pylist()


def _table(case: Fields) -> object:
    kms = MemoryKms({name: octets(key) for name, key in case["master_keys"].items()})
    with Placed(case) as metadata:
        return load_table(None, str(metadata), kms=kms).scan().to_arrow().sort_by("id").to_pylist()


@contextlib.contextmanager
def _readers() -> Iterator[Mapping[str, Reader]]:
    yield {
        "streams": _stream,
        "key_metadata": _key_metadata,
        "wrapped_keys": _wrapped_keys,
        "parquet": _parquet,
        "tables": _table,
    }


AGS1 = Implementation(lambda: f"ags1 {ags1.__version__}", _readers)
