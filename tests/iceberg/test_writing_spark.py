"""Tables that ags1 makes and writes, in a Hive metastore that Spark shares: what Iceberg Java makes of them.

Spark is the oracle: what ags1 wrote, Spark reads with the same row ids; what Spark then does to it, ags1 reads; and the
same change by ags1 and by a statement of Spark's, on two tables of the same rows, leaves the same rows.
"""

from __future__ import annotations

import random
from typing import Any

import pyarrow
import pytest

from ags1.iceberg import EncryptedTable, create_table, load_table
from ags1.kms import MemoryKms
from tests.iceberg.arrow_tables import RandomRows
from tests.iceberg.canonical import arrow_rows, sorted_rows
from tests.iceberg.keys import MASTER_KEYS
from tests.iceberg.warehouse import HiveLake, local_path
from tests.pages import ROOT, blocks

LINEAGE = ["_row_id", "_last_updated_sequence_number"]
PLAINTEXT_MAGICS = (b"Obj\x01", b"PAR1", b"PFA1")
MERGE_ON_READ = {f"write.{change}.mode": "merge-on-read" for change in ("delete", "update", "merge")}
UPSERT = " WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
EXPIRE = "CALL lake.system.expire_snapshots(table => 'tables.{}', older_than => TIMESTAMP '2100-01-01')"


class Written:
    """A table that ags1 makes in the metastore, and that both read."""

    def __init__(self, lake: HiveLake, name: str, schema: Any, *arguments: Any) -> None:
        self.lake, self.name = lake, name
        kms = MemoryKms(MASTER_KEYS)
        self.table: EncryptedTable = create_table(
            lake.catalog(), ("tables", name), schema, *arguments, kms=kms, key_id="keyA", properties=MERGE_ON_READ
        )

    def check(self, **options: Any) -> list[Any]:
        """Both read the same rows, with the same row ids."""
        self.table.refresh()
        columns = [*(field.name for field in self.table.schema.fields), *LINEAGE]
        ours = sorted_rows(arrow_rows(self.table.scan(columns=columns, **options).to_arrow()))
        assert ours == self.lake.rows(self.name, columns=", ".join(columns))
        return ours

    def sql(self, statement: str) -> list[Any]:
        """Run a statement about the table, whose name stands for {}."""
        return self.lake.sql(statement.format(self.name))

    def check_nothing_is_plaintext(self) -> None:
        directory = local_path(self.table.document.fields["location"])
        found = [path for path in directory.rglob("*") if path.is_file()]
        assert len(found) > 3
        assert not [path for path in found if path.read_bytes().startswith(PLAINTEXT_MAGICS)]
        assert self.table.audit().ok
        assert self.table.verify().ok


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.nightly)])
def test_spark_reads_what_was_appended_and_prunes_as_ags1_does(seed: int, hive_lake: HiveLake) -> None:
    made = RandomRows(seed)
    written = Written(hive_lake, f"appended_{seed}", made.schema, made.partition_by, made.sort_by)
    for count in (80, 30):
        written.table.append(made.rows(count))
    written.check()
    filters = made.filters(seed)
    for _ in range(6):
        chosen = filters.filter()
        ours = sorted(written.table.scan(columns=["id"], row_filter=chosen.ours).to_arrow().column(0).to_pylist())
        assert ours == sorted(row[0] for row in written.sql(f"SELECT id FROM {{}} WHERE {chosen.sql}")), chosen
    counted = "SELECT sum(record_count), count(*) FROM tables.{}.files"
    assert written.sql(counted) == [[110, len(written.table.scan().plan_files())]]
    for name in ("manifests", "snapshots", "partitions", "entries", "all_data_files", "refs"):
        assert written.sql(f"SELECT * FROM tables.{{}}.{name}")
    written.check_nothing_is_plaintext()


def test_java_changes_what_ags1_made_and_ags1_what_java_made(hive_lake: HiveLake) -> None:
    rows = pyarrow.table(
        {
            "id": pyarrow.array(range(60), pyarrow.int64()),
            "c": [None if each % 7 == 0 else f"c{each % 3}" for each in range(60)],
            "x": [float("nan") if each % 5 == 0 else each / 4 for each in range(60)],
        }
    )
    written = Written(hive_lake, "both", rows.schema, ["c"], ["id desc"])
    table = written.table
    table.append(rows)
    table.delete("id in (1, 2, 3)")
    table.upsert(pyarrow.table({"id": [4, 5, 100], "c": ["c2", "new", None], "x": [0.5, None, 1.5]}), on=["id"])
    before = written.check()
    assert len(before) == 58
    for statement in (
        "INSERT INTO {} VALUES (200, 'c0', 2.5), (201, NULL, NULL)",
        # Of a file that has a vector of ours.
        "DELETE FROM {} WHERE id IN (7, 8, 10, 13)",
        "UPDATE {} SET x = -1 WHERE id % 10 = 4",
        "MERGE INTO {} t USING (SELECT 9 id, 'merged' c, 1D x UNION SELECT 300, 'c1', 2D) s ON t.id = s.id" + UPSERT,
    ):
        written.sql(statement)
        written.check()
    table.delete("id >= 200 or x is nan")
    table.append(rows.slice(0, 5))
    written.check()
    written.sql("CALL lake.system.rewrite_data_files(table => 'tables.{}', options => map('rewrite-all', 'true'))")
    written.check()
    table.delete("id = 0")
    table.overwrite(rows.slice(10, 5), "c = 'c1'")
    written.sql("CALL lake.system.rewrite_manifests(table => 'tables.{}')")
    written.check()
    written.sql(
        "CALL lake.system.rewrite_position_delete_files(table => 'tables.{}', options => map('rewrite-all', 'true'))"
    )
    written.sql(EXPIRE)
    written.check()
    assert len(written.table.snapshots()) == 1
    written.check_nothing_is_plaintext()
    assert table.append(rows).added_rows == 60
    written.check()


def test_manifests_that_ags1_merged_keep_their_rows_for_spark_which_goes_on_with_them(hive_lake: HiveLake) -> None:
    rows = pyarrow.table({"id": pyarrow.array(range(30), pyarrow.int64()), "c": [f"c{each % 3}" for each in range(30)]})
    written = Written(hive_lake, "merged", rows.schema, ["c"])
    written.sql("ALTER TABLE {} SET TBLPROPERTIES ('commit.manifest.min-count-to-merge'='3')")
    manifests = "SELECT count(*) FROM tables.{}.manifests"
    table = written.table.refresh()

    def append(number: int) -> None:
        before = written.check()
        table.append(rows.set_column(0, "id", pyarrow.array(range(30 * number, 30 * number + 30), pyarrow.int64())))
        after = written.check()
        assert len(after) == len(before) + 30
        assert {tuple(row) for row in before} <= {tuple(row) for row in after}
        assert written.sql(manifests)[0][0] < 4

    for number in range(5):
        append(number)
    written.sql("DELETE FROM {} WHERE id IN (1, 31, 61)")
    written.sql("INSERT INTO {} VALUES (1000, 'c1'), (1001, NULL)")
    append(5)
    append(6)
    before = written.check()
    written.sql(EXPIRE)
    assert written.check() == before
    append(7)
    written.check_nothing_is_plaintext()


@pytest.mark.parametrize("seed", [11])
def test_the_same_change_by_spark_leaves_the_same_rows(seed: int, hive_lake: HiveLake) -> None:
    made = RandomRows(seed)
    ours = Written(hive_lake, f"ours_{seed}", made.schema, made.partition_by)
    twin = Written(hive_lake, f"twin_{seed}", made.schema, made.partition_by)
    chance = random.Random(seed)
    rows = made.rows(90)
    for written in (ours, twin):
        written.table.append(rows)
    filters = made.filters(seed)
    for _ in range(3):
        chosen = filters.filter()
        ours.table.delete(chosen.ours)
        twin.sql(f"DELETE FROM {{}} WHERE {chosen.sql}")
        # The numbers of rows too: nobody has renumbered them.
        assert ours.check() == twin.check(), chosen
    new = made.rows(20)
    keys = pyarrow.array(chance.sample(range(120), 20), pyarrow.int64())
    new = new.set_column(0, made.schema.field("id"), keys)
    source = f"source_{seed}"
    Written(hive_lake, source, made.schema).table.append(new)
    ours.table.upsert(new, on=["id"])
    twin.sql(f"MERGE INTO {{}} t USING {source} s ON t.id = s.id{UPSERT}")
    mine, theirs = ours.check(), twin.check()
    assert [row[:-2] for row in mine] == [row[:-2] for row in theirs]
    # New rows have new numbers, in whatever order; those that were there before keep theirs.
    old = {row[0]: row[-2] for row in theirs if row[-2] < 90}
    assert {row[0]: row[-2] for row in mine if row[-2] < 90} == old
    assert {row[0] for row in mine if row[-2] >= 90} == {row[0] for row in theirs if row[-2] >= 90}
    ours.table.overwrite_partitions(new.slice(0, 7))
    twin.sql(f"INSERT OVERWRITE {{}} SELECT * FROM {source} WHERE id IN ({', '.join(map(str, keys.to_pylist()[:7]))})")
    mine, theirs = ours.check(), twin.check()
    assert [row[:-2] for row in mine] == [row[:-2] for row in theirs]


def test_a_table_of_sparks_is_written_by_ags1(hive_lake: HiveLake) -> None:
    hive_lake.create(
        "of_spark", "id BIGINT NOT NULL, s STRUCT<a: INT, b: ARRAY<STRING>>", partitioned_by="bucket(3, id)"
    )
    hive_lake.sql("INSERT INTO of_spark VALUES (1, named_struct('a', 1, 'b', array('x', NULL))), (2, NULL)")
    table = load_table(hive_lake.catalog(), ("tables", "of_spark"), kms=MemoryKms(MASTER_KEYS))
    table.append(pyarrow.table({"id": [3, 4], "s": [{"b": [], "a": None}, {"a": 5}]}))
    table.upsert(pyarrow.table({"id": [1], "s": [{"a": 9, "b": ["y"]}]}), on=["id"])
    assert sorted_rows(arrow_rows(table.scan(columns=["*", *LINEAGE]).to_arrow())) == hive_lake.rows(
        "of_spark", columns="*, _row_id, _last_updated_sequence_number"
    )
    with pytest.raises(ValueError, match=r"s\.c is no column of the table"):
        table.append(pyarrow.table({"id": [3], "s": [{"c": 1}]}))


def test_what_the_page_has_for_partitioned_tables_makes_an_encrypted_one(hive_lake: HiveLake) -> None:
    (page,) = blocks(ROOT / "docs" / "left-out.md", 'sql title="Spark with Iceberg"')
    counted = [hive_lake.sql(statement) for statement in page.split(";") if statement.strip()][-1]
    table = load_table(hive_lake.catalog(), ("tables", "sales"), kms=MemoryKms(MASTER_KEYS))
    assert table.verify().ok
    assert table.audit().ok
    rows = table.scan().to_arrow().to_pylist()
    assert counted == [[len(rows)]] == [[61]]
    # The partition was replaced, and what came into it was changed.
    assert [row for row in rows if row["id"] == 100] == [{"id": 100, "day": 2}]
    assert not [row for row in rows if row["day"] == 1]
