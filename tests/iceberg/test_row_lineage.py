"""Rows keep their numbers, and branches and tags are what Spark reads of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import ags1
from ags1.iceberg import load_table, open_table
from ags1.kms import MemoryKms
from tests.iceberg.canonical import arrow_rows
from tests.iceberg.rebuilt import RebuiltTable
from tests.iceberg.spark_process import LINEAGE
from tests.iceberg.spark_tables import DEFINITIONS
from tests.iceberg.warehouse import HiveLake, SparkReader, SparkTables

ENCRYPTED = [each.name for each in DEFINITIONS if "encrypted" in each.features]
ROW_ID, LAST_UPDATED = "_row_id", "_last_updated_sequence_number"


@pytest.mark.parametrize("name", ENCRYPTED)
def test_every_row_has_the_numbers_that_spark_has(name: str, spark_tables: SparkTables, table_kms: MemoryKms) -> None:
    made = spark_tables[name]
    table = open_table(made.metadata, table_kms, allow_plaintext=True)
    columns = [*(field.name for field in table.schema.fields), ROW_ID, LAST_UPDATED]
    assert columns == made.lineage.columns
    assert arrow_rows(table.scan(columns=columns).to_arrow()) == made.lineage.rows
    streamed = table.scan(columns=columns).to_record_batches().read_all()
    assert arrow_rows(streamed) == made.lineage.rows


@pytest.mark.parametrize("name", ["lineage", "lineage_avro", "events", "bulk"])
def test_numbers_do_not_depend_on_what_else_is_read(name: str, spark_tables: SparkTables, table_kms: MemoryKms) -> None:
    made = spark_tables[name]
    assert ENCRYPTED
    table = open_table(made.metadata, table_kms)
    place = made.lineage.columns.index("id")
    expected = sorted(row[-2] for row in made.lineage.rows)
    alone = table.scan(columns=[ROW_ID]).to_arrow()
    assert alone.column_names == [ROW_ID]
    assert sorted(alone[ROW_ID].to_pylist()) == expected
    assert table.scan(columns=[ROW_ID]).count() == len(expected)
    swapped = table.scan(columns=[LAST_UPDATED, "id", ROW_ID], row_filter="id >= 40").to_arrow()
    assert swapped.column_names == [LAST_UPDATED, "id", ROW_ID]
    wanted = [[row[-1], row[place], row[-2]] for row in made.lineage.rows if row[place] >= 40]
    assert arrow_rows(swapped) == sorted(wanted, key=json.dumps)


def test_tables_of_older_versions_have_no_numbers(spark_tables: SparkTables, table_kms: MemoryKms) -> None:
    table = open_table(spark_tables["events_plain"].metadata, table_kms, allow_plaintext=True)
    rows = table.scan(columns=[ROW_ID, LAST_UPDATED]).to_arrow()
    assert rows.num_rows == 47
    assert [column.null_count for column in rows.columns] == [47, 47]


@pytest.mark.parametrize("name", ["lineage", "lineage_avro"])
def test_rows_below_a_manifest_without_numbers_have_none(
    name: str, spark_tables: SparkTables, table_kms: MemoryKms, spark_reader: SparkReader, tmp_path: Path
) -> None:
    table = RebuiltTable(spark_tables[name], tmp_path, table_kms)
    table.listed.records[0]["first_row_id"] = None
    location = table.write()
    opened = open_table(location, table_kms)
    columns = [*(field.name for field in opened.schema.fields), ROW_ID, LAST_UPDATED]
    rows = arrow_rows(opened.scan(columns=columns).to_arrow())
    assert any(row[-2] is None for row in rows)
    assert rows == spark_reader.read(Path(location), columns=LINEAGE)[1]


def test_rows_that_were_rewritten_before_they_had_numbers_have_those_of_spark(
    hive_lake: HiveLake, table_kms: MemoryKms
) -> None:
    hive_lake.create("rewritten", "id BIGINT", key_id=None)
    try:
        for row in range(3):
            hive_lake.sql(f"INSERT INTO rewritten VALUES ({row})")
        hive_lake.sql(
            "CALL lake.system.rewrite_data_files(table => 'tables.rewritten', options => map('rewrite-all', 'true'))"
        )
        hive_lake.sql("ALTER TABLE rewritten SET TBLPROPERTIES ('format-version' = '3')")
        hive_lake.sql("INSERT INTO rewritten VALUES (3)")
        columns = ["id", ROW_ID, LAST_UPDATED]
        table = load_table(hive_lake.catalog(), "tables.rewritten", kms=table_kms, allow_plaintext=True)
        found = arrow_rows(table.scan(columns=columns).to_arrow())
        # The files' own numbers are those of the rewriting and after it, 4 and 5.
        assert {row[-1] for row in found} == {3, 5}
        assert found == hive_lake.rows("rewritten", ", ".join(columns))
    finally:
        hive_lake.sql("DROP TABLE rewritten")


def test_no_other_column_begins_to_exist(spark_tables: SparkTables, table_kms: MemoryKms) -> None:
    table = open_table(spark_tables["lineage"].metadata, table_kms)
    with pytest.raises(ValueError, match="_file"):
        table.scan(columns=["_file"])
    assert ROW_ID not in table.scan().to_arrow().column_names


# -- branches and tags --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["branches", "maintained"])
def test_branches_and_tags_are_what_spark_reads_of_them(
    name: str, spark_tables: SparkTables, table_kms: MemoryKms
) -> None:
    made = spark_tables[name]
    table = open_table(made.metadata, table_kms)
    assert set(table.refs) == {"main", *made.refs}
    for ref, expected in made.refs.items():
        found = table.scan(ref=ref)
        assert found.to_arrow().column_names == expected.columns
        assert arrow_rows(found.to_arrow()) == expected.rows
        assert table.files(ref=ref).equals(table.files(table.refs[ref]))
    assert made.current is not None
    assert arrow_rows(table.scan(ref="main").to_arrow()) == made.current.rows


def test_a_branch_that_nothing_was_written_to_has_the_columns_of_now(
    spark_tables: SparkTables, table_kms: MemoryKms, spark_reader: SparkReader, tmp_path: Path
) -> None:
    document = json.loads(json.dumps(spark_tables["branches"].document))
    first = document["refs"]["early"]["snapshot-id"]
    document["refs"]["stale"] = {"snapshot-id": first, "type": "branch"}
    path = tmp_path / "00099-stale.metadata.json"
    path.write_text(json.dumps(document))
    table = open_table(str(path), table_kms)
    for ref in ("stale", "early"):
        columns, rows = spark_reader.read(path, ref)
        found = table.scan(ref=ref).to_arrow()
        assert found.column_names == columns
        assert arrow_rows(found) == rows
    assert table.scan(ref="stale", row_filter="amount is null").count() == 10


def test_what_names_no_snapshot_is_refused(spark_tables: SparkTables, table_kms: MemoryKms, tmp_path: Path) -> None:
    made = spark_tables["branches"]
    table = open_table(made.metadata, table_kms)
    for call in (table.scan, table.files):
        with pytest.raises(ValueError, match=r"no branch or tag 'none'; it has .*'side'"):
            call(ref="none")
        with pytest.raises(ValueError, match="give "):
            call(ref="side", snapshot_id=made.current_id)
    with pytest.raises(ValueError, match="give one of"):
        table.scan(ref="side", as_of=0)
    document = json.loads(json.dumps(made.document))
    document["refs"]["lost"] = {"snapshot-id": 17, "type": "branch"}
    path = tmp_path / "00099-lost.metadata.json"
    path.write_text(json.dumps(document))
    with pytest.raises(ags1.FormatError, match="'lost' is of snapshot 17, which the metadata does not list"):
        open_table(str(path), table_kms).scan(ref="lost")
