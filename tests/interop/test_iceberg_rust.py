"""Tables that ags1 wrote, read by the crates iceberg and parquet: keys, manifest lists, manifests and data files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ags1.iceberg import EncryptedTable, create_table, decrypt_table, encrypt_table, load_table, rekey_table
from ags1.iceberg.metadata.locations import local_path
from ags1.kms import MemoryKms
from tests.checks import HANG_SECONDS
from tests.interop import rust_peer
from tests.servers._install import INSTALL_SECONDS, MissingServerError

# The first test waits for cargo, which may have to fetch and build everything.
pytestmark = pytest.mark.timeout(INSTALL_SECONDS + HANG_SECONDS)

KEYS = {"lake": bytes(range(16)), "lake-2027": bytes(range(32))}
KMS = MemoryKms(KEYS)


@pytest.fixture(scope="module")
def reader() -> Path:
    """The command. Who has no cargo, or cannot reach the registry of crates, goes without, also in CI."""
    try:
        return rust_peer.install()
    except MissingServerError as error:
        pytest.skip(str(error))


@pytest.fixture(params=[16, 32])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> EncryptedTable:
    """Three commits, one of which replaced a partition."""
    made = create_table(
        None, str(tmp_path / "t"), rows(0).schema, ["part"], kms=KMS, key_id="lake", data_key_length=request.param
    )
    made.append(rows(0))
    made.append(rows(1000))
    made.overwrite_partitions(rows(2000).slice(0, 1))
    return made


def rows(start: int) -> pa.Table:
    numbers = range(start, start + 1000)
    columns: dict[str, Any] = {
        "id": numbers,
        "part": pa.array([each % 3 for each in numbers], pa.int32()),
        "text": [None if each % 7 == 0 else "ä" * (each % 50) for each in numbers],
        "amount": [each / 4 for each in numbers],
        "when": pa.array([each * 10**6 for each in numbers], pa.timestamp("us", "UTC")),
        "many": [[each] * (each % 4) for each in numbers],
    }
    return pa.table(columns)


def read(reader: Path, table: EncryptedTable, mode: str = "files", **changed: bytes) -> list[dict[str, Any]]:
    path = local_path(table.metadata_location)
    assert path is not None
    return ordered(rust_peer.rows(reader, mode, Path(path), {**KEYS, **changed}))


def ordered(rows: pa.Table) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = rows.sort_by("id").to_pylist()
    return found


def test_every_row_of_an_encrypted_table_and_of_its_conversions_is_read(reader: Path, table: EncryptedTable) -> None:
    expected = ordered(table.scan().to_arrow())
    assert len(expected) == 2000 - 666 + 1
    assert read(reader, table) == expected
    rekey_table(table, key_id="lake-2027", data_keys=True, expire=True)
    assert read(reader, table.refresh(), lake=bytes(16)) == expected
    decrypt_table(table, expire=True)
    table = load_table(None, table.metadata_location, kms=KMS)
    assert read(reader, table, "scan") == read(reader, table) == expected
    encrypt_table(table, key_id="lake", steps=["enable", "convert", "expire"])
    assert read(reader, table.refresh()) == expected


def test_another_master_key_opens_nothing(reader: Path, table: EncryptedTable) -> None:
    with pytest.raises(rust_peer.RustFailure, match="decrypt"):
        read(reader, table, lake=bytes(16))


def test_the_crates_own_scan_refuses_an_encrypted_table(reader: Path, table: EncryptedTable) -> None:
    # Version 0.10.1 opens the manifests, and gives no key to its reader of Parquet.
    with pytest.raises(rust_peer.RustFailure, match=r"(?i)parquet|encrypt"):
        read(reader, table, "scan")


def test_the_crates_own_scan_refuses_deletion_vectors(reader: Path, table: EncryptedTable) -> None:
    table.delete("id < 1010 and id >= 1000")
    decrypt_table(table, expire=True)
    with pytest.raises(rust_peer.RustFailure, match=r"(?i)parquet|puffin|delete"):
        read(reader, load_table(None, table.metadata_location, kms=KMS), "scan")
