"""Make the tables of ``tests/vectors`` anew, with new keys and nonces: ``python -m tests.conformance.make_tables``.

Spark and Iceberg Java write those with position and equality deletes and with Avro files, ags1 the others: name tables
to make those alone. An encrypted table has absolute locations inside encrypted files, so it is read where it was made:
at ``LOCATION``.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import ags1
from ags1.iceberg import EncryptedTable, EncryptionKeys, create_table, load_table
from ags1.iceberg.metadata.locations import local_path
from ags1.kms import MemoryKms
from tests.conformance.loader import DIRECTORY

LOCATION = Path("/tmp/iceberg-vectors")
ROOT = Path(__file__).resolve().parents[2]
MASTER_KEYS = {"keyA": b"0123456789012345", "keyB": b"1123456789012345"}
KINDS = ("manifest list", "manifest", "data", "deletion vectors", "position deletes", "equality deletes")


def rows(start: int, count: int = 20) -> pa.Table:
    """Rows whose `id` begins at `start`."""
    numbers = range(start, start + count)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "part": pa.array([n % 2 for n in numbers], pa.int32()),
            "name": [None if n % 7 == 0 else f"name {n}" for n in numbers],
            "amount": [n / 4 for n in numbers],
            "tags": pa.array([list(range(n % 3)) for n in numbers], pa.list_(pa.int32())),
        }
    )


def _appended(table: EncryptedTable) -> None:
    table.append(rows(0))
    table.append(rows(100))


def _deleted(table: EncryptedTable) -> None:
    _appended(table)
    table.delete("id < 5 or id = 107")


TABLES: dict[str, tuple[str, int, str, Callable[[EncryptedTable], None]]] = {
    "appended": ("two appends, partitioned", 16, "keyA", _appended),
    "key-24": ("data keys of 24 bytes", 24, "keyA", _appended),
    "key-32": ("data keys of 32 bytes, another master key", 32, "keyB", _appended),
    "deleted": ("two appends, and rows deleted by a deletion vector", 16, "keyA", _deleted),
}


# What each is, and the definition of ``iceberg/spark_tables.py`` that makes it.
SPARK_TABLES = {
    "deletes-parquet": ("equality deletes, position deletes and deletion vectors over one another", "deletes"),
    "deletes-avro": ("the same, with data files and delete files in Avro", "deletes_avro"),
}


def make(name: str) -> dict[str, Any]:
    """Make a table; return its description."""
    comment, key_length, key_id, change = TABLES[name]
    place = LOCATION / name
    shutil.rmtree(place, ignore_errors=True)
    kms = MemoryKms(MASTER_KEYS)
    table = create_table(None, str(place), rows(0).schema, ["part"], kms=kms, key_id=key_id, data_key_length=key_length)
    change(table)
    return _described(name, comment, key_id, table.refresh())


def make_by_spark() -> dict[str, dict[str, Any]]:
    """Make the tables of Spark; return their descriptions."""
    from tests.iceberg.warehouse import build_classes

    for name in SPARK_TABLES:
        shutil.rmtree(LOCATION / name, ignore_errors=True)
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-m", "tests.conformance.spark_tables", directory, build_classes()]
        # Without the address, Spark looks for one of the machine's and listens there.
        environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "TZ": "UTC", "PYSPARK_PYTHON": sys.executable}
        subprocess.run(command, check=True, cwd=ROOT, env=environment)
    found = {}
    for name, (comment, _) in SPARK_TABLES.items():
        table = load_table(None, str(LOCATION / name), kms=MemoryKms(MASTER_KEYS))
        found[name] = _described(name, comment, "keyA", table)
    return found


def _described(name: str, comment: str, key_id: str, table: EncryptedTable) -> dict[str, Any]:
    """Store a table's files; return its description."""
    place = LOCATION / name
    files: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for file in table.files("all").to_pylist():
        files[file["kind"]].append(_relative(file["path"], place))
    # From the oldest snapshot to the newest.
    files["manifest list"] = [_relative(snapshot.manifest_list, place) for snapshot in table.snapshots()]
    stored = DIRECTORY / "tables" / name
    shutil.rmtree(stored, ignore_errors=True)
    shutil.copytree(place, stored)
    found = table.scan().to_arrow().sort_by("id")
    return {
        "comment": comment,
        "location": place.as_uri(),
        "metadata": _relative(table.metadata_location, place),
        "key_id": key_id,
        "master_keys": {each: key.hex() for each, key in MASTER_KEYS.items()},
        "files": {kind: paths for kind, paths in files.items() if paths},
        "rows": found.to_pylist(),
    }


def _write_plain() -> None:
    """Write what an attacker without keys puts in place of encrypted files: the same and other content in plaintext."""
    folder, place = DIRECTORY / "tables" / "plain", LOCATION / "appended"
    folder.mkdir(exist_ok=True)
    table = load_table(None, str(place), kms=MemoryKms(MASTER_KEYS))
    keys = EncryptionKeys.from_table_metadata(local_path(table.metadata_location))
    metadata = keys.for_snapshot(local_path(table.metadata_location), None, MemoryKms(MASTER_KEYS))
    newest = table.snapshots()[-1].manifest_list
    ags1.decrypt_file(local_path(newest), folder / "manifest-list.avro", key_metadata=metadata)
    pq.write_table(rows(1000), folder / "data.parquet")


def _relative(location: str, place: Path) -> str:
    return location.removeprefix("file:").removeprefix("//").removeprefix(f"{place}/")


def main() -> None:
    """Make every table, or those that the command line names."""
    wanted = sys.argv[1:] or [*TABLES, *SPARK_TABLES]
    found = {name: make(name) for name in wanted if name in TABLES}
    if not SPARK_TABLES.keys().isdisjoint(wanted):
        found |= make_by_spark()
    for name, description in found.items():
        (DIRECTORY / "tables" / f"{name}.json").write_text(json.dumps(description, indent=1) + "\n")
    if "appended" in found:
        _write_plain()
    shutil.rmtree(LOCATION)


if __name__ == "__main__":
    main()
