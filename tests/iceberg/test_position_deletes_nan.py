"""Position deletes of several files in the partition of NaN, which is equal to nothing."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet

from ags1 import iceberg
from ags1.iceberg import create_table, load_table
from ags1.iceberg.catalogs import catalog_table
from ags1.iceberg.files.file_io import SnapshotFiles
from ags1.iceberg.metadata.locations import location_of
from ags1.iceberg.metadata.manifests import ADDED, DELETES, POSITION_DELETES, ManifestEntry
from ags1.iceberg.writing.commit import commit
from ags1.iceberg.writing.snapshot import SnapshotWriter
from ags1.kms import MemoryKms
from tests.iceberg.keys import MASTER_KEYS


def test_position_deletes_of_a_partition_of_nan_are_converted_too(tmp_path: Path) -> None:
    kms = MemoryKms(MASTER_KEYS)
    rows = pyarrow.table({"id": [0, 1, 2], "x": [math.nan] * 3})
    table = create_table(None, str(tmp_path / "t"), rows.schema, ["x"], kms=kms, key_id="keyA")
    table.append(rows)
    table.append(rows)
    iceberg.decrypt_table(table)
    table = load_table(None, str(tmp_path / "t"), kms=kms, allow_plaintext=True)
    paths = [task.file.file_path for task in table.scan().plan_files()]
    deletes = tmp_path / "t" / "data" / "deletes.parquet"
    schema = pyarrow.schema(
        [
            pyarrow.field("file_path", pyarrow.string(), False, {"PARQUET:field_id": "2147483546"}),
            pyarrow.field("pos", pyarrow.int64(), False, {"PARQUET:field_id": "2147483545"}),
        ]
    )
    pyarrow.parquet.write_table(pyarrow.table([sorted(paths), [1, 1]], schema=schema), deletes)

    def attempt(_state: Any, metadata: Any, files: Any) -> bool:
        writer = SnapshotWriter(metadata, files, kms)
        source = SnapshotFiles(table.io)
        for listed in source.manifests(metadata.snapshot_of("main")):
            writer.keep(listed)
            manifest = source.manifest(listed)
        file = {
            "content": POSITION_DELETES, "file_path": f"file://{deletes}", "file_format": "PARQUET",
            "partition": dict(manifest.entries[0].file["partition"]), "record_count": 2,
            "file_size_in_bytes": deletes.stat().st_size,
        }  # fmt: skip
        entry = ManifestEntry(ADDED, 0, None, None, file)
        writer.add(manifest.like([entry], DELETES), listed.get("partitions"))
        writer.finish("delete", {"total-records": "6", "total-data-files": "2"})
        return True

    commit(catalog_table(None, table.metadata_location), location_of, attempt)
    table.refresh()
    before = sorted(table.scan(columns=["id"]).to_arrow().column("id").to_pylist())
    assert before == [0, 0, 2, 2]
    iceberg.encrypt_table(table, key_id="keyA")
    table.refresh()
    assert sorted(table.scan(columns=["id"]).to_arrow().column("id").to_pylist()) == before
