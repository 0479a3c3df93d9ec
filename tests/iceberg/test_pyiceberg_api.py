"""PyIceberg's own API reads encrypted tables by nothing but the name of a FileIO, and does not write to them."""

from __future__ import annotations

import json
import pickle
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import EqualTo
from pyiceberg.table import StaticTable

from ags1 import FormatError, KeyAccessError
from ags1.iceberg import EncryptedFileIO, open_table
from ags1.kms import MemoryKms
from tests.iceberg.canonical import arrow_rows
from tests.iceberg.keys import MASTER_KEYS
from tests.iceberg.warehouse import SparkTable, SparkTables

PARQUET = ["events", "events_plain", "maintained", "bulk", "emptied"]


class TableKms(MemoryKms):
    """What a URL can name."""

    def __init__(self) -> None:
        super().__init__(MASTER_KEYS)


PROPERTIES = {"py-io-impl": "ags1.iceberg.EncryptedFileIO", "ags1.kms": f"module:{__name__}.TableKms"}


def static(table: SparkTable, **more: str) -> StaticTable:
    return StaticTable.from_metadata(table.metadata, PROPERTIES | more)


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    """A catalog in a file, with no more than names and locations of tables."""
    made = SqlCatalog("lake", uri=f"sqlite:///{tmp_path / 'catalog.db'}", warehouse=tmp_path.as_uri(), **PROPERTIES)
    made.create_namespace("tables")
    yield made
    made.close()


# -- reading --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PARQUET)
def test_a_static_table_has_every_snapshot(spark_tables: SparkTables, name: str) -> None:
    table = spark_tables[name]
    found = static(table, **{"ags1.allow-plaintext": "true"} if name == "events_plain" else {})
    for snapshot in table.snapshots:
        rows = found.scan(snapshot_id=snapshot.id).to_arrow()
        assert rows.column_names == snapshot.columns
        assert arrow_rows(rows) == snapshot.rows


@pytest.mark.parametrize("name", PARQUET)
def test_a_scan_has_the_arrow_schema_of_pyicebergs_own(name: str, spark_tables: SparkTables) -> None:
    table = spark_tables[name]
    plain = name == "events_plain"
    theirs = static(table, **{"ags1.allow-plaintext": "true"} if plain else {}).scan().to_arrow_batch_reader().schema
    ours = open_table(table.metadata, TableKms(), allow_plaintext=plain).scan()
    assert ours.to_arrow().schema.equals(theirs)
    assert ours.to_record_batches().schema.equals(theirs)


def test_a_static_table_filters_and_projects(spark_tables: SparkTables) -> None:
    table = spark_tables["events"]
    assert table.current is not None
    names, rows = table.current.columns, table.current.rows
    wanted = sorted(row[names.index("id")] for row in rows if row[names.index("region")] == "eu")
    scan = static(table).scan(row_filter=EqualTo("region", "eu"), selected_fields=("id",))
    assert sorted(scan.to_arrow().column("id").to_pylist()) == wanted
    assert sorted(scan.to_arrow_batch_reader().read_all().column("id").to_pylist()) == wanted
    assert scan.count() == len(wanted)


def test_a_catalog_opens_a_registered_table(spark_tables: SparkTables, catalog: SqlCatalog) -> None:
    for name in ("events", "maintained"):
        table = spark_tables[name]
        assert table.current is not None
        catalog.register_table(f"tables.{name}", table.metadata)
        found = catalog.load_table(f"tables.{name}")
        assert isinstance(found.io, EncryptedFileIO)
        assert arrow_rows(found.scan().to_arrow()) == table.current.rows


def test_two_tables_at_once_in_threads(spark_tables: SparkTables) -> None:
    tables = [spark_tables[name] for name in ("events", "maintained")]
    opened = [static(table) for table in tables]
    wrong: list[str] = []

    def read(table: SparkTable, found: StaticTable) -> None:
        wrong.extend(
            table.name
            for snapshot in table.snapshots
            if arrow_rows(found.scan(snapshot_id=snapshot.id).to_arrow()) != snapshot.rows
        )

    threads = [
        threading.Thread(target=read, args=pair)
        for pair in zip(tables * 2, [*opened, *map(static, tables)], strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_what_can_be_inspected(spark_tables: SparkTables) -> None:
    table = spark_tables["events"]
    inspect = static(table).inspect
    files = inspect.files()
    assert sorted(files.column("file_path").to_pylist()) == sorted(each.location for each in table.files)
    assert set(inspect.snapshots().column("snapshot_id").to_pylist()) == {each.id for each in table.snapshots}
    assert inspect.manifests().num_rows > 0
    assert inspect.partitions().num_rows > 0
    assert inspect.history().num_rows == len(table.snapshots)


@pytest.mark.parametrize("name", ["events", "events_avro", "deletes", "maintained"])
def test_entries_of_vectors_and_avro_files_are_inspected_too(
    name: str, spark_tables: SparkTables, table_kms: MemoryKms
) -> None:
    table = spark_tables[name]
    entries = open_table(table.metadata, table_kms, allow_plaintext=True).table.inspect.entries().to_pylist()
    live = [each["data_file"] for each in entries if each["status"] != 2]
    found = {(each["file_path"], each["record_count"]) for each in live}
    assert found == {(each.location, each.records) for each in table.files}


def test_equality_deletes_are_refused_by_pyiceberg_itself(spark_tables: SparkTables) -> None:
    with pytest.raises(ValueError, match="does not yet support equality deletes"):
        static(spark_tables["deletes"]).scan().to_arrow()


# -- keys -----------------------------------------------------------------------------------------------------


def test_a_pickled_file_io_reads_the_table_from_its_start(spark_tables: SparkTables) -> None:
    table = spark_tables["events"]
    assert table.current is not None
    found = static(table)
    found.scan().to_arrow()
    copy = pickle.loads(pickle.dumps(found.io))
    path = table.files[0].location
    with pytest.raises(KeyAccessError, match="its key is not known: read the table's metadata file, manifest list and"):
        copy.new_input(path).open()
    again = StaticTable(
        identifier=("again",),
        metadata=found.metadata,
        metadata_location=found.metadata_location,
        io=copy,
        catalog=found.catalog,
    )
    assert arrow_rows(again.scan().to_arrow()) == table.current.rows
    copy.new_input(path).open().close()


def test_without_a_kms_the_table_opens_and_its_rows_do_not(spark_tables: SparkTables) -> None:
    properties = {"py-io-impl": PROPERTIES["py-io-impl"]}
    found = StaticTable.from_metadata(spark_tables["events"].metadata, properties)
    assert len(found.snapshots()) == 8
    with pytest.raises(KeyAccessError, match=r"snapshot [0-9]+ is encrypted with key .*: give `kms`"):
        found.scan().to_arrow()


def test_properties_are_the_arguments_of_open_table(spark_tables: SparkTables) -> None:
    mixed = spark_tables["mixed"]
    assert mixed.current is not None
    with pytest.raises(KeyAccessError, match="this data file is not encrypted; open the table"):
        static(mixed).scan().to_arrow()
    allowed = static(mixed, **{"ags1.allow-plaintext": "true"})
    assert arrow_rows(allowed.scan().to_arrow()) == mixed.current.rows
    with pytest.raises(KeyAccessError, match="keyA"):
        static(spark_tables["types"], **{"ags1.table-key-id": "keyA"}).scan().to_arrow()


@pytest.mark.parametrize(
    "own", [{"ags1.allow-plaintext": "true"}, {"py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO"}]
)
def test_a_table_cannot_change_how_it_is_read(spark_tables: SparkTables, tmp_path: Path, own: dict[str, str]) -> None:
    document: dict[str, Any] = json.loads(json.dumps(spark_tables["mixed"].document))
    document["properties"].update(own)
    path = tmp_path / "00099-forged.metadata.json"
    path.write_text(json.dumps(document))
    with pytest.raises(FormatError, match=r"00099-forged\.metadata\.json: the table's own properties set"):
        StaticTable.from_metadata(str(path), PROPERTIES)


# -- writing --------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:Merge on read is not yet supported")
def test_writes_are_refused_and_leave_nothing(spark_tables: SparkTables, catalog: SqlCatalog) -> None:
    table = spark_tables["maintained"]
    catalog.register_table("tables.maintained", table.metadata)
    before = sorted(table.location.rglob("*"))
    found = catalog.load_table("tables.maintained")
    rows = pa.table({"id": pa.array([1], pa.int64()), "text": ["x"]})
    message = "PyIceberg cannot write to encrypted tables, because it has nowhere to put the keys of new files"
    for write in (
        lambda: found.append(rows),
        lambda: found.overwrite(rows),
        lambda: found.delete("id = 61"),
        lambda: found.transaction().set_properties(owner="me").commit_transaction(),
    ):
        with pytest.raises(PermissionError, match=message):
            write()
    assert sorted(table.location.rglob("*")) == before
    assert catalog.load_table("tables.maintained").metadata_location == table.metadata
    assert table.current is not None
    assert arrow_rows(catalog.load_table("tables.maintained").scan().to_arrow()) == table.current.rows
