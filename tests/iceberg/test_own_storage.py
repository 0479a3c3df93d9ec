"""Files of tables are read, written and removed by ags1.storage alone, on disk and in a store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.io import fsspec as fsspec_files
from pyiceberg.io import pyarrow as pyarrow_files

from ags1.iceberg import create_table, load_table, plan_conversion, rekey_table
from ags1.kms import MemoryKms
from tests.servers.s3 import S3Server

KMS = MemoryKms({"lake": bytes(16), "next": bytes(range(16))})


@pytest.fixture(autouse=True)
def no_other_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any, **options: Any) -> Any:
        raise AssertionError("PyIceberg's FileIO was asked")

    for module in (pyarrow_files.PyArrowFileIO, fsspec_files.FsspecFileIO):
        for name in ("new_input", "new_output", "delete"):
            monkeypatch.setattr(module, name, refuse)


@pytest.mark.parametrize("place", ["disk", "store"])
def test_a_table_is_made_changed_planned_converted_and_verified(
    place: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    where, options = str(tmp_path / "t"), None
    if place == "store":
        server: S3Server = request.getfixturevalue("s3_server")
        where = f"s3://{request.getfixturevalue('s3_bucket')}/t"
        options = {
            "s3.endpoint": server.endpoint,
            "s3.region": server.region,
            "s3.access-key-id": server.access_key,
            "s3.secret-access-key": server.secret_key,
        }
    rows = pa.table({"id": range(1000), "s": ["x", "y"] * 500})
    table = create_table(None, where, rows.schema, kms=KMS, key_id="lake", storage_options=options)
    table.append(rows)
    table.append(rows)
    table.delete("id < 10")
    table.upsert(pa.table({"id": [10, 2000], "s": ["z", "z"]}), on=["id"])
    assert plan_conversion(table, key_id="next", data_keys=True).ok
    rekey_table(table, key_id="next", data_keys=True)
    again = load_table(None, where, kms=KMS, properties=options)
    found = again.scan(row_filter="s = 'z'").to_arrow()
    assert sorted(set(found["id"].to_pylist())) == [10, 2000]
    assert len(list(again.scan().plan_files())) > 1
    assert again.verify().ok
    assert again.audit().ok
