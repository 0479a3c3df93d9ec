"""The cases through Iceberg Java, its tables by way of Spark, and through parquet-java."""

from __future__ import annotations

import contextlib
import json
import struct
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.conformance import loader
from tests.conformance.outcomes import Fields, Implementation, NotRead, Reader
from tests.conformance.runners.parquet_files import content, placed
from tests.conformance.table_cases import Placed
from tests.iceberg.keys import MASTER_KEYS
from tests.iceberg.warehouse import SparkReader
from tests.interop.java_peer import JavaPeer
from tests.interop.parquet_peer import ParquetPeer

ICEBERG_VERSION, PARQUET_VERSION = "1.12.0", "1.18.1"


# -- Iceberg -------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _iceberg_readers() -> Iterator[Mapping[str, Reader]]:
    with JavaPeer() as peer, SparkReader() as spark, tempfile.TemporaryDirectory(prefix="ags1-") as folder:

        def stream(case: Fields) -> bytes:
            vector = loader.StreamVector(case["name"], case)
            source, target = Path(folder, "stream"), Path(folder, "plaintext")
            source.write_bytes(vector.stream())
            # It reads nothing without a length: a case without one gets the size of the file.
            length = vector.stream_length if vector.length is None else vector.length
            peer.decrypt(vector.key, vector.aad_prefix, length, source, target)
            return target.read_bytes()

        def key_metadata(case: Fields) -> tuple[bytes, bytes | None, int | None]:
            decoded = peer.decode(bytes.fromhex(case["encoded"]))
            return decoded.encryption_key, decoded.aad_prefix, decoded.file_length

        def wrapped_keys(case: Fields) -> bytes:
            vector = loader.WrappedKeyVector(case["name"], case)
            entries = [json.dumps(entry) for entry in vector.entries()]
            masters = {"master": vector.octets("master_key")}
            (opened,), _ = peer.open_keys(entries, "master", ["list"], master_keys=masters)
            return opened

        def table(case: Fields) -> list[dict[str, Any]]:
            if any(MASTER_KEYS[name].hex() != key for name, key in case["master_keys"].items()):
                raise NotRead("the running Spark has the right master keys")
            with Placed(case) as metadata:
                names, rows = spark.read(metadata)
            found = [dict(zip(names, map(_plain, row), strict=True)) for row in rows]
            return sorted(found, key=lambda row: row["id"])

        yield {"streams": stream, "key_metadata": key_metadata, "wrapped_keys": wrapped_keys, "tables": table}


def _rows(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{name: _plain(value) for name, value in json.loads(row).items()} for row in answer["rows"]]


def _plain(value: Any) -> Any:
    """A value of the canonical form of rows as it stands in the cases."""
    if isinstance(value, dict) and "double" in value:
        return struct.unpack(">d", bytes.fromhex(value["double"]))[0]
    return value


ICEBERG_JAVA = Implementation(lambda: f"Iceberg Java {ICEBERG_VERSION}", _iceberg_readers)


# -- parquet-java --------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _parquet_readers() -> Iterator[Mapping[str, Reader]]:
    with ParquetPeer() as peer, tempfile.TemporaryDirectory(prefix="ags1-") as folder:

        def read(case: Fields) -> list[dict[str, Any]]:
            if "key_material" in case:
                masters = {name: bytes.fromhex(key) for name, key in case["master_keys"].items()}
                with placed(case) as placed_at:
                    return _rows(peer.keytools_read(placed_at, master_keys=masters, limit=1000))
            path = Path(folder, f"{case['name']}.parquet")
            path.write_bytes(content(case))
            leaves = {name: bytes.fromhex(key) for name, key in case["column_keys"].items()}
            decryption = {"footer_key": bytes.fromhex(case["footer_key"]), "check_signature": True}
            if leaves:
                decryption["column_keys"] = leaves
            if case["aad_prefix"] is not None:
                decryption["aad_prefix"] = bytes.fromhex(case["aad_prefix"])
            if case.get("part", "rows") == "rows":
                return _rows(peer.read(path, decryption=decryption, limit=1000))
            # Of a column with a fault, it says what it was, and goes on.
            found = json.dumps(peer.metadata(path, decryption=decryption))
            if "unreadable" in found:
                raise ValueError(found.partition("unreadable")[2][:160])
            return []

        yield {"parquet": read}


PARQUET_JAVA = Implementation(lambda: f"parquet-java {PARQUET_VERSION}", _parquet_readers)
