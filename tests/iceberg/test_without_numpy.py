"""Tables where NumPy is missing: no extra brings it, and PyArrow does without."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys
sys.modules["numpy"] = None
import pyarrow as pa
from ags1 import iceberg
from ags1.kms import MemoryKms

rows = pa.table({"id": pa.array(range(10), pa.int64()), "name": [str(each) for each in range(10)]})
table = iceberg.create_table(
    None, "t", rows.schema, ["bucket(2, id)"], kms=MemoryKms({"lake": bytes(16)}), key_id="lake"
)
table.append(rows)
table.delete("id = 3")
table.delete("id in (4, 5)")
table.overwrite(rows.slice(0, 1), "id < 2")
table.upsert(rows.slice(8, 2), on=["id"])
assert sorted(table.scan(row_filter="id > 0").to_arrow()["id"].to_pylist()) == [2, 6, 7, 8, 9]
table.compact(rewrite_all=True, sort_by=["id"])
table.maintain()
iceberg.rekey_table(table, data_keys=True, expire=True)
table.refresh()
assert table.verify().ok and table.audit().ok
assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [0, 2, 6, 7, 8, 9]
"""


def test_every_change_of_a_table_works_without_numpy(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
