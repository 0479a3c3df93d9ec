"""Tables that Spark made, read by ags1: every snapshot row for row, by every way of asking."""

from __future__ import annotations

import datetime
import itertools
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ags1 import FormatError, KeyAccessError
from ags1.core.blocks import usable_cpus
from ags1.iceberg import EncryptedTable, EncryptionKeys, open_table
from ags1.iceberg.scan import table_scan
from ags1.iceberg.scan.table_scan import EncryptedArrowScan
from ags1.kms import MemoryKms
from tests.iceberg.canonical import arrow_rows, sorted_rows
from tests.iceberg.spark_tables import DEFINITIONS
from tests.iceberg.warehouse import SparkReader, SparkSnapshot, SparkTable, SparkTables

NAMES = [each.name for each in DEFINITIONS if "no snapshot" not in each.features]
PLAINTEXT_INSIDE = [each.name for each in DEFINITIONS if "plaintext files" in each.features]
ENCRYPTED = [
    each.name for each in DEFINITIONS if "encrypted" in each.features and each.name not in (*PLAINTEXT_INSIDE, "empty")
]
DELETES = ["deletes", "deletes_avro"]


def opened(table: SparkTable, kms: MemoryKms, **options: Any) -> EncryptedTable:
    options.setdefault("allow_plaintext", "plaintext files" in table.features or "encrypted" not in table.features)
    return open_table(table.metadata, kms, **options)


def column(snapshot: SparkSnapshot, name: str) -> list[Any]:
    index = snapshot.columns.index(name)
    return [row[index] for row in snapshot.rows]


def current(table: SparkTable) -> SparkSnapshot:
    assert table.current is not None
    return table.current


# -- all rows -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_every_snapshot_has_the_rows_that_spark_read(
    spark_tables: SparkTables, table_kms: MemoryKms, name: str
) -> None:
    table = spark_tables[name]
    found = opened(table, table_kms)
    assert {each.snapshot_id for each in found.snapshots()} == {each.id for each in table.snapshots}
    for snapshot in table.snapshots:
        scan = found.scan(snapshot_id=snapshot.id)
        rows = scan.to_arrow()
        rows.validate(full=True)
        assert rows.column_names == snapshot.columns
        assert arrow_rows(rows) == snapshot.rows
        assert scan.count() == len(snapshot.rows)


@pytest.mark.parametrize("name", NAMES)
def test_without_a_snapshot_it_is_the_current_one(spark_tables: SparkTables, table_kms: MemoryKms, name: str) -> None:
    table = spark_tables[name]
    assert arrow_rows(opened(table, table_kms).scan().to_arrow()) == current(table).rows


@pytest.mark.parametrize("name", NAMES)
def test_record_batches_have_the_same_rows_in_one_schema(
    spark_tables: SparkTables, table_kms: MemoryKms, name: str
) -> None:
    table = spark_tables[name]
    scan = opened(table, table_kms).scan()
    reader = scan.to_record_batches()
    promised = reader.schema
    batches = list(reader)
    assert all(batch.schema.equals(promised) for batch in batches)
    whole = scan.to_arrow()
    assert whole.schema.equals(promised)
    assert whole.to_batches() == batches or arrow_rows(whole) == current(table).rows
    assert sum(batch.num_rows for batch in batches) == len(current(table).rows)


def test_a_table_without_snapshots_is_empty(spark_tables: SparkTables, table_kms: MemoryKms) -> None:
    scan = opened(spark_tables["empty"], table_kms).scan()
    assert scan.to_arrow().column_names == ["id", "text"]
    assert scan.to_arrow().num_rows == scan.count() == scan.to_record_batches().read_all().num_rows == 0
    assert scan.plan_files() == []


# -- columns, filters, limits ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["events", "events_avro", "types", "types_avro", "evolution", "evolution_avro"])
def test_each_column_alone(spark_tables: SparkTables, table_kms: MemoryKms, name: str) -> None:
    table = spark_tables[name]
    found = opened(table, table_kms)
    for each in current(table).columns:
        rows = found.scan(columns=[each]).to_arrow()
        assert rows.column_names == [each]
        assert arrow_rows(rows) == sorted_rows([value] for value in column(current(table), each))


def test_columns_are_in_the_order_in_which_they_were_asked_for(spark_tables: SparkTables, table_kms: MemoryKms) -> None:
    table = spark_tables["events"]
    for asked in (["day", "id"], ["id", "day"], ["region", "id", "region", "at"]):
        names = list(dict.fromkeys(asked))
        scan = opened(table, table_kms).scan(columns=asked, row_filter="id > 50")
        assert scan.to_arrow().column_names == scan.to_record_batches().schema.names == names
        indices = [current(table).columns.index(name) for name in names]
        wanted = [[row[index] for index in indices] for row in current(table).rows if row[0] > 50]
        assert arrow_rows(scan.to_arrow()) == sorted_rows(wanted)
    parts = opened(spark_tables["types"], table_kms).scan(columns=["place.spot.x", "id", "place.city"])
    assert parts.to_arrow().column_names == ["place", "id"]


_EVENT_FILTERS: list[tuple[str, Callable[[dict[str, Any]], bool]]] = [
    ("id > 50", lambda row: row["id"] > 50),
    ("id = 51", lambda row: row["id"] == 51),
    ("region = 'us'", lambda row: row["region"] == "us"),
    ("region is null", lambda row: row["region"] is None),
    ("region = 'us' and id < 40", lambda row: row["region"] == "us" and row["id"] < 40),
    ("region = 'eu' or amount is null", lambda row: row["region"] == "eu" or row["amount"] is None),
    ("amount >= 20.50", lambda row: row["amount"] is not None and float(row["amount"]) >= 20.5),
    ("day = '1970-01-20'", lambda row: row["day"] == "1970-01-20"),
    ("at < '2026-02-28T00:00:00+00:00'", lambda row: row["at"] < "2026-02-28"),
    ("id in (1, 2, 3, 7, 11, 101)", lambda row: row["id"] in (1, 2, 3, 7, 11, 101)),
    ("id not in (1, 2, 3, 7, 11, 101)", lambda row: row["id"] not in (1, 2, 3, 7, 11, 101)),
    ("id > 1000", lambda row: False),
]


# On one table each: rows are filtered as Arrow's, whatever they were read from.
@pytest.mark.parametrize(
    ("case", "name"),
    [*zip(_EVENT_FILTERS, itertools.cycle(["events", "events_avro", "events_plain"]))],
    ids=[each for each, _ in _EVENT_FILTERS],
)
def test_a_filter_gives_the_rows_that_pass_it(
    spark_tables: SparkTables, table_kms: MemoryKms, name: str, case: tuple[str, Callable[[dict[str, Any]], bool]]
) -> None:
    row_filter, passes = case
    table = spark_tables[name]
    found = opened(table, table_kms)
    for snapshot in table.snapshots[::3] + table.snapshots[-1:]:
        wanted = [row for row in snapshot.rows if passes(dict(zip(snapshot.columns, row, strict=True)))]
        scan = found.scan(row_filter=row_filter, snapshot_id=snapshot.id)
        assert arrow_rows(scan.to_arrow()) == wanted
        assert scan.count() == len(wanted)
        days = found.scan(row_filter=row_filter, snapshot_id=snapshot.id, columns=["day"]).to_arrow()
        assert arrow_rows(days) == sorted_rows([row[snapshot.columns.index("day")]] for row in wanted)


def test_a_filter_is_for_files_of_every_format(spark_tables: SparkTables, table_kms: MemoryKms) -> None:
    for name in ("orc", "mixed", "added"):
        table = spark_tables[name]
        wanted = [row for row in current(table).rows if 3 <= row[0] < 7]
        found = opened(table, table_kms).scan(row_filter="id >= 3 and id < 7").to_arrow()
        assert arrow_rows(found) == sorted_rows(wanted)


def test_a_partition_that_a_filter_excludes_is_not_read(spark_tables: SparkTables, table_kms: MemoryKms) -> None:
    found = opened(spark_tables["events"], table_kms)
    planned = found.scan(row_filter="region = 'eu'").plan_files()
    assert planned
    assert {task.file.partition[0] for task in planned} == {"eu"}
    assert len(planned) < len(found.scan().plan_files())


_DELETE_FILTERS: list[tuple[str, Callable[[Any, Any], bool]]] = [
    ("id < 5", lambda number, _: number < 5),
    ("id = 4", lambda number, _: number == 4),
    ("id >= 17", lambda number, _: number >= 17),
    ("text = 'row 4'", lambda _, text: text == "row 4"),
    ("text = 'row 25' or id = 33", lambda number, text: text == "row 25" or number == 33),
    ("text like 'again%'", lambda _, text: text.startswith("again")),
    ("text > 'row 2'", lambda _, text: text > "row 2"),
]


@pytest.mark.parametrize(("row_filter", "passes"), _DELETE_FILTERS, ids=[each for each, _ in _DELETE_FILTERS])
@pytest.mark.parametrize("name", DELETES)
def test_a_filter_brings_no_deleted_row_back(
    spark_tables: SparkTables,
    table_kms: MemoryKms,
    name: str,
    row_filter: str,
    passes: Callable[[Any, Any], bool],
) -> None:
    table = spark_tables[name]
    found = opened(table, table_kms)
    for snapshot in table.snapshots:
        texts = sorted_rows([text] for number, text in snapshot.rows if passes(number, text))
        scan = found.scan(row_filter=row_filter, snapshot_id=snapshot.id, columns=["text"])
        assert arrow_rows(scan.to_arrow()) == texts
        assert scan.count() == len(texts)


def test_a_filter_has_the_names_that_the_snapshot_had(spark_tables: SparkTables, table_kms: MemoryKms) -> None:
    table = spark_tables["events"]
    found = opened(table, table_kms)
    first = found.scan(snapshot_id=table.snapshots[0].id, row_filter="note = 'note 1'")
    assert first.to_arrow().column("id").to_pylist() == [1]
    assert (
        found.scan(row_filter="comment = 'note 102'").count()
        == column(current(table), "comment").count("note 102")
        == 1
    )
    with pytest.raises(ValueError, match="Could not find field with name note"):
        found.scan(row_filter="note = 'note 1'")
    with pytest.raises(ValueError, match="Could not find field with name comment"):
        found.scan(snapshot_id=table.snapshots[0].id, row_filter="comment = 'note 1'")


@pytest.mark.parametrize("name", ["events", "events_avro", *DELETES])
@pytest.mark.parametrize("limit", [0, 1, 9, 10, 36, 37, 1000])
def test_a_limit_is_kept(spark_tables: SparkTables, table_kms: MemoryKms, name: str, limit: int) -> None:
    table = spark_tables[name]
    scan = opened(table, table_kms).scan(limit=limit)
    rows = arrow_rows(scan.to_arrow())
    assert len(rows) == scan.count() == scan.to_record_batches().read_all().num_rows
    assert len(rows) == min(limit, len(current(table).rows))
    assert all(row in current(table).rows for row in rows)


def test_names_are_case_sensitive_unless_told_otherwise(spark_tables: SparkTables, table_kms: MemoryKms) -> None:
    found = opened(spark_tables["events"], table_kms)
    with pytest.raises(ValueError, match="Could not find column: 'ID'"):
        found.scan(columns=["ID"])
    with pytest.raises(ValueError, match="Could not find field with name ID"):
        found.scan(row_filter="ID > 5")
    wanted = found.scan(columns=["id"], row_filter="id > 50").to_arrow()
    assert found.scan(columns=["ID"], row_filter="Id > 50", case_sensitive=False).to_arrow() == wanted


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": ["nothing"]}, "Could not find column: 'nothing'"),
        ({"columns": []}, "columns must be a sequence of at least one name"),
        ({"columns": "id"}, "columns must be a sequence of at least one name"),
        ({"row_filter": "nothing = 1"}, "Could not find field with name nothing"),
        ({"row_filter": "id >"}, "the filter 'id >' is refused: PyIceberg's parser does not understand it"),
        ({"row_filter": "id > 'x'"}, "cannot be compared with 'x': Could not convert x into a long"),
        ({"limit": -1}, "limit must not be negative, got -1"),
        ({"snapshot_id": 5}, "the table has no snapshot 5; it has [0-9]+, [0-9]+"),
        ({"as_of": 5}, "the table had no snapshot at 5"),
        ({"as_of": 5, "snapshot_id": 5}, "give one of `snapshot_id`, `as_of`, `ref`"),
    ],
)
def test_arguments_that_do_not_fit_the_table_are_refused_at_once(
    spark_tables: SparkTables, table_kms: MemoryKms, options: dict[str, Any], message: str
) -> None:
    found = opened(spark_tables["events"], table_kms)
    with pytest.raises(ValueError, match=message) as caught:
        found.scan(**options)
    assert not isinstance(caught.value, FormatError)


def test_as_of_is_the_snapshot_of_that_moment(spark_tables: SparkTables, table_kms: MemoryKms) -> None:
    table = spark_tables["events"]
    found = opened(table, table_kms)
    rows = {each.id: each.rows for each in table.snapshots}
    for entry in table.document["snapshot-log"]:
        milliseconds, wanted = entry["timestamp-ms"], rows[entry["snapshot-id"]]
        assert arrow_rows(found.scan(as_of=milliseconds).to_arrow()) == wanted
        moment = datetime.datetime.fromtimestamp(milliseconds / 1000, datetime.timezone.utc)
        for form in (moment, moment.replace(tzinfo=None)):
            later = form + datetime.timedelta(microseconds=900)
            assert arrow_rows(found.scan(as_of=later).to_arrow()) == wanted
    assert arrow_rows(found.scan(as_of=milliseconds + 10**9).to_arrow()) == current(table).rows


# -- ways out -------------------------------------------------------------------------------------------------


def test_pandas_and_duckdb_have_the_rows(spark_tables: SparkTables, table_kms: MemoryKms) -> None:
    duckdb, _ = pytest.importorskip("duckdb"), pytest.importorskip("pandas")
    table = spark_tables["events"]
    scan = opened(table, table_kms).scan(columns=["id", "region"])
    frame = scan.to_pandas()
    assert list(frame.columns) == ["id", "region"]
    assert sorted(frame["id"]) == sorted(column(current(table), "id"))
    query = "select count(*), sum(id), count(region) from events"
    wanted = (len(frame), int(frame["id"].sum()), len(current(table).rows))
    with duckdb.connect() as connection:
        connection.register("events", scan)
        assert connection.execute(query).fetchone() == wanted


@pytest.mark.parametrize("at_once", [usable_cpus(), 8])
def test_batches_come_from_a_window_of_files(
    at_once: int, spark_tables: SparkTables, table_kms: MemoryKms, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of local files as many are open as there are CPUs; of files in a store, more."""
    monkeypatch.setattr(table_scan, "files_at_once", lambda *_: at_once)
    found = opened(spark_tables["events"], table_kms)
    scan = found.scan(snapshot_id=spark_tables["events"].snapshots[1].id)
    tasks = scan.plan_files() * 50
    lock, started, inside, most = threading.Lock(), 0, 0, 0
    read = EncryptedArrowScan.batches

    def counting(self: Any, task: Any, positions: Any) -> Any:
        nonlocal started, inside, most
        with lock:
            started += 1
            inside += 1
            most = max(most, inside)
        try:
            return read(self, task, positions)
        finally:
            with lock:
                inside -= 1

    monkeypatch.setattr(EncryptedArrowScan, "batches", counting)
    window = 2 * at_once
    assert len(tasks) > 5 + window
    batches = scan._arrow_scan().to_record_batches(tasks)
    for taken in range(1, 6):
        next(batches)
        assert started <= taken + window
    batches.close()
    assert started <= 5 + window
    assert most <= at_once


def test_scans_of_one_table_in_several_threads(spark_tables: SparkTables, table_kms: MemoryKms) -> None:
    table = spark_tables["deletes"]
    found = opened(table, table_kms)
    wrong: list[Any] = []

    def read(snapshot: SparkSnapshot) -> None:
        rows = arrow_rows(found.scan(snapshot_id=snapshot.id).to_arrow())
        if rows != snapshot.rows:
            wrong.append(snapshot.id)

    threads = [threading.Thread(target=read, args=(each,)) for each in table.snapshots * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_nothing_stays_open(spark_tables: SparkTables, table_kms: MemoryKms) -> None:
    descriptors = Path("/proc/self/fd")
    if not descriptors.is_dir():
        pytest.skip("there is no /proc")
    table = spark_tables["deletes_avro"]

    def of_the_table() -> list[str]:
        names = []
        for each in descriptors.iterdir():
            try:
                names.append(str(each.readlink()))
            except OSError:
                continue
        return [name for name in names if name.startswith(str(table.location))]

    scan = opened(table, table_kms).scan()
    scan.to_arrow()
    batches = scan._arrow_scan().to_record_batches(scan.plan_files())
    next(batches)
    batches.close()
    assert of_the_table() == []


# -- what is promised of keys ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PLAINTEXT_INSIDE)
def test_plaintext_files_need_permission(spark_tables: SparkTables, table_kms: MemoryKms, name: str) -> None:
    table = spark_tables[name]
    found = opened(table, table_kms, allow_plaintext=False)
    message = "is not encrypted, although its table is.*open the table with `allow_plaintext=True`"
    for read in ("plan_files", "to_arrow", "count", "to_record_batches"):
        with pytest.raises(KeyAccessError, match=message) as caught:
            getattr(found.scan(), read)()
        named = ".avro" if name == "added" else f"added/{name}/part-"
        assert named in str(caught.value)
    first = found.scan(snapshot_id=table.snapshots[0].id)
    assert arrow_rows(first.to_arrow()) == table.snapshots[0].rows


def test_the_master_key_may_be_named(spark_tables: SparkTables, table_kms: MemoryKms) -> None:
    table = spark_tables["types"]
    assert opened(table, table_kms, table_key_id="key256").scan().count() == len(current(table).rows)
    with pytest.raises(KeyAccessError, match="is under the master key 'key256', and 'keyA' is expected"):
        opened(table, table_kms, table_key_id="keyA")


def test_a_kms_without_the_master_key_is_named(spark_tables: SparkTables) -> None:
    found = opened(spark_tables["types"], MemoryKms({"keyA": bytes(16)}))
    with pytest.raises(KeyAccessError, match=r"snapshot [0-9]+ \(key-id .*key256"):
        found.scan().to_arrow()


def test_without_a_kms_an_encrypted_table_says_what_it_needs(spark_tables: SparkTables) -> None:
    found = open_table(spark_tables["events"].metadata, None)
    with pytest.raises(KeyAccessError, match=r"snapshot [0-9]+ is encrypted with key .*: give `kms`"):
        found.scan().to_arrow()
    plain = open_table(spark_tables["events_plain"].metadata, None, allow_plaintext=True)
    assert arrow_rows(plain.scan().to_arrow()) == current(spark_tables["events_plain"]).rows


# -- keys that ags1 changed -----------------------------------------------------------------------------------


def rewrapped(table: SparkTable, directory: Path) -> Path:
    """Metadata whose keys are under another master key, without those that nothing needs."""
    keys = EncryptionKeys.from_table_metadata(table.document)
    changed = keys.prune(table.document).rewrap(MemoryKms({**_masters()}), "keyB").to_table_metadata(table.document)
    # Java unwraps all keys with the one that the property names.
    changed["properties"] = {**changed["properties"], "encryption.key-id": "keyB"}
    path = directory / "00099-changed.metadata.json"
    path.write_text(json.dumps(changed))
    return path


def _masters() -> dict[str, bytes]:
    from tests.iceberg.keys import MASTER_KEYS

    return dict(MASTER_KEYS)


@pytest.mark.parametrize("name", ENCRYPTED)
def test_a_table_opens_after_its_keys_were_rewrapped_and_pruned(
    spark_tables: SparkTables, tmp_path: Path, name: str
) -> None:
    table = spark_tables[name]
    path = rewrapped(table, tmp_path)
    only_new = MemoryKms({"keyB": _masters()["keyB"]})
    found = open_table(str(path), only_new, table_key_id="keyB")
    for snapshot in table.snapshots:
        assert arrow_rows(found.scan(snapshot_id=snapshot.id).to_arrow()) == snapshot.rows
    old = open_table(table.metadata, only_new)
    with pytest.raises(KeyAccessError):
        old.scan().to_arrow()


@pytest.mark.parametrize("name", ["events", "deletes", "types_avro"])
def test_spark_and_ags1_read_the_same_after_a_rewrap(
    spark_tables: SparkTables, spark_reader: SparkReader, table_kms: MemoryKms, tmp_path: Path, name: str
) -> None:
    table = spark_tables[name]
    path = rewrapped(table, tmp_path)
    columns, rows = spark_reader.read(path)
    found = open_table(str(path), table_kms).scan().to_arrow()
    assert found.column_names == columns
    assert arrow_rows(found) == rows == current(table).rows
