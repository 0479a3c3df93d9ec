"""What was appended between two snapshots, and filters on row lineage, beside Spark's own on the same table."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest

from ags1.iceberg import EncryptedTable, load_table
from ags1.kms import MemoryKms
from tests.iceberg.canonical import arrow_rows
from tests.iceberg.warehouse import HiveLake

NEWER = "_last_updated_sequence_number"


def history(table: EncryptedTable) -> list[tuple[int, str]]:
    """Ids and operations of the snapshots, oldest first."""
    return [(each.snapshot_id, each.summary.operation.value) for each in table.refresh().snapshots()]


@pytest.mark.parametrize("mode", ["merge-on-read", pytest.param("copy-on-write", marks=pytest.mark.nightly)])
def test_changes_are_those_that_spark_finds(hive_lake: HiveLake, table_kms: MemoryKms, mode: str) -> None:
    name = f"changed_{mode[:4]}"
    modes = {f"write.{each}.mode": mode for each in ("delete", "update", "merge")}
    hive_lake.create(name, "id BIGINT, s STRING", properties=modes)
    try:
        table = load_table(hive_lake.catalog(), f"tables.{name}", kms=table_kms)
        hive_lake.sql(f"INSERT INTO {name} VALUES (1, 'a'), (2, 'b'), (3, 'c')")
        hive_lake.sql(f"INSERT INTO {name} VALUES (4, 'd'), (5, 'e')")
        table.refresh().append(pa.table({"id": pa.array([6, 7], pa.int64()), "s": ["f", "g"]}))
        hive_lake.sql(
            f"CALL lake.system.rewrite_data_files(table => 'tables.{name}', options => map('rewrite-all', 'true'))"
        )
        hive_lake.sql(f"INSERT INTO {name} VALUES (8, 'h')")
        found = history(table)
        assert [operation for _, operation in found] == ["append", "append", "append", "replace", "append"]
        for (start, _), (end, _) in itertools.combinations(found, 2):
            ours = arrow_rows(table.scan(from_snapshot=start, to_snapshot=end).to_arrow())
            assert ours == hive_lake.appended(name, start, end)
        hive_lake.sql(f"UPDATE {name} SET s = 'new' WHERE id IN (2, 6)")
        hive_lake.sql(f"DELETE FROM {name} WHERE id = 4")
        hive_lake.sql(f"INSERT INTO {name} VALUES (9, 'i')")
        found = history(table)
        # Spark leaves the changed rows out and says nothing.
        assert hive_lake.appended(name, found[4][0], found[-1][0]) == [[9, "i"]]
        with pytest.raises(ValueError, match="changed or deleted by"):
            table.scan(from_snapshot=found[4][0])
        columns = ["id", "s", "_row_id", NEWER]
        for condition in (
            *(f"{NEWER} {operator} {number}" for number in (2, 5, 7) for operator in (">", "=")),
            *(f"_row_id {operator} 3" for operator in (">", "=")),
            f"{NEWER} > 5 AND s = 'new'",
        ):
            ours = arrow_rows(table.scan(columns=columns, row_filter=condition).to_arrow())
            theirs = hive_lake.sql(f"SELECT {', '.join(columns)} FROM {name} WHERE {condition}")
            assert ours == theirs, condition
    finally:
        hive_lake.sql(f"DROP TABLE {name}")
