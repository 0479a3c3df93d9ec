"""Rows that ags1 writes to tables of its own: what a scan shows afterwards, and what is refused."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.compute as compute
import pytest
from pyarrow import parquet

from ags1.errors import ConflictError, KeyAccessError, UnsupportedError
from ags1.iceberg import EncryptedTable, create_table, load_table, open_table
from ags1.kms import MemoryKms
from tests.iceberg.arrow_tables import RandomRows, further_types
from tests.iceberg.canonical import arrow_rows, sorted_rows
from tests.iceberg.keys import MASTER_KEYS

PLAINTEXT_MAGICS = (b"Obj\x01", b"PAR1", b"PFA1")


def make(directory: Path, schema: Any, *arguments: Any, **options: Any) -> EncryptedTable:
    return create_table(None, str(directory), schema, *arguments, kms=MemoryKms(MASTER_KEYS), key_id="keyA", **options)


def shown(table: EncryptedTable, **options: Any) -> list[Any]:
    return sorted_rows(arrow_rows(table.scan(**options).to_arrow()))


def rows_of(data: pyarrow.Table) -> list[Any]:
    return sorted_rows(arrow_rows(data))


def stored(directory: Path) -> set[Path]:
    return {path for path in directory.rglob("*") if path.is_file()}


@pytest.fixture
def simple(tmp_path: Path) -> EncryptedTable:
    """A table with ten rows."""
    table = make(tmp_path / "t", SIMPLE.schema, ["c"])
    table.append(SIMPLE)
    return table


SIMPLE = pyarrow.table(
    {
        "id": pyarrow.array(range(10), pyarrow.int64()),
        "x": [float("nan"), None, *(each / 4 for each in range(8))],
        "c": [f"c{each % 3}" for each in range(10)],
    }
)


# -- what is written is read -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_what_was_appended_is_read_whatever_the_schema_and_the_partitions(seed: int, tmp_path: Path) -> None:
    made = RandomRows(seed)
    table = make(
        tmp_path / "t",
        made.schema,
        made.partition_by,
        made.sort_by,
        data_key_length=random.Random(seed).choice((16, 32)),
    )
    parts = [made.rows(count) for count in (40, 3)]
    for part in parts:
        report = table.append(part)
        assert report.added_rows == part.num_rows
    assert shown(table) == rows_of(pyarrow.concat_tables(parts))
    assert table.verify().ok
    assert table.audit().ok
    for path in stored(tmp_path):
        assert not path.read_bytes().startswith(PLAINTEXT_MAGICS)
        assert "=" not in str(path.relative_to(tmp_path))


def test_types_that_sql_has_no_word_for(tmp_path: Path) -> None:
    data = further_types(50)
    table = make(tmp_path / "t", data.schema, ["u", "bucket(3, f)", "t"])
    table.append(data)
    assert shown(table) == rows_of(data)
    found = data.column("u")[7].as_py()
    assert table.scan(row_filter=f"u = '{found}'").count() == 1


def test_only_columns_with_repeated_values_have_dictionaries(tmp_path: Path) -> None:
    count, chooser = 50_000, random.Random(1)
    few = [chooser.randrange(1000) for _ in range(count)]
    repeated = {
        "number": pyarrow.array(few),
        "a.b": pyarrow.array([f"name {each}" for each in few]),
        "sorted": pyarrow.array([each // 4 for each in range(count)]),
        "list": pyarrow.array([[each, None] for each in few]),
        "null": pyarrow.nulls(count, pyarrow.string()),
    }
    unique = {
        "id": pyarrow.array(range(count)),
        "text": pyarrow.array([None if each % 9 == 0 else chooser.randbytes(4).hex() for each in range(count)]),
        "amount": pyarrow.array([chooser.random() for _ in range(count)]),
    }
    data = pyarrow.table(repeated | unique)
    table = make(tmp_path / "t", data.schema)
    table.append(data)
    (task,) = table.scan().plan_files()
    with table.io.new_input(task.file.file_path).open() as file:
        group = parquet.read_metadata(file).row_group(0)
    columns = [group.column(place) for place in range(group.num_columns)]
    assert [each.path_in_schema.partition(".list.")[0] for each in columns if each.has_dictionary_page] == [*repeated]
    assert shown(table) == rows_of(data)


def test_files_are_in_the_order_of_the_table(tmp_path: Path) -> None:
    made = RandomRows(3)
    table = make(tmp_path / "t", made.schema, None, ["c0 desc nulls last", "id"])
    table.append(made.rows(200))
    kept = table.scan(columns=["c0", "id"]).to_arrow()
    order = [("c0", "descending", "at_end"), ("id", "ascending", "at_end")]
    assert kept.take(compute.sort_indices(kept, sort_keys=order)).equals(kept)
    (task,) = table.scan().plan_files()
    assert task.file.sort_order_id == 1


@pytest.mark.parametrize("source", ["batch", "reader", "pandas", "polars", "lists"])
def test_rows_come_from_whatever_has_arrows_interface(source: str, simple: EncryptedTable) -> None:
    if source == "lists":
        with pytest.raises(TypeError, match=r"pyarrow\.Table"):
            simple.append(SIMPLE.to_pylist())
        return
    data: Any = SIMPLE.to_batches()[0]
    if source == "reader":
        data = SIMPLE.to_reader(3)
    elif source == "pandas":
        pytest.importorskip("pandas")
        data = SIMPLE.to_pandas()
    elif source == "polars":
        polars = pytest.importorskip("polars")
        data = polars.from_arrow(SIMPLE).with_columns(polars.col("c").cast(polars.Categorical))
    simple.append(data)
    assert simple.scan().count() == 20
    assert sum(simple.scan(columns=["id"]).to_arrow().column("id").to_pylist()) == 90


def test_columns_are_found_by_name_and_those_that_are_missing_are_null(simple: EncryptedTable) -> None:
    simple.append(pyarrow.table({"c": ["new"], "id": pyarrow.array([77], pyarrow.int32())}))
    (row,) = simple.scan(row_filter="c = 'new'").to_arrow().to_pylist()
    assert row == {"id": 77, "x": None, "c": "new"}


def test_a_reader_is_written_in_bounded_memory(tmp_path: Path) -> None:
    schema = pyarrow.schema([("id", pyarrow.int64()), ("x", pyarrow.float64())])
    properties = {"write.parquet.row-group-size-bytes": str(1 << 20), "write.target-file-size-bytes": str(1 << 20)}
    table = make(tmp_path / "t", schema, ["bucket(4, id)"], properties=properties)
    most = 0

    def batches() -> Iterator[pyarrow.RecordBatch]:
        nonlocal most
        for start in range(0, 1_000_000, 50_000):
            columns = [pyarrow.array(range(start, start + 50_000)), compute.random(50_000, initializer=start)]
            yield pyarrow.record_batch(columns, schema=schema)
            most = max(most, pyarrow.total_allocated_bytes())

    before = pyarrow.total_allocated_bytes()
    report = table.append(pyarrow.RecordBatchReader.from_batches(schema, batches()))
    assert report.added_rows == 1_000_000
    assert report.added_files > 4
    assert most - before < 64 << 20
    assert table.scan().count() == 1_000_000


def test_rows_of_a_small_partition_hold_no_others_in_memory(tmp_path: Path) -> None:
    """They wait for their row group while the rows beside them are written."""
    schema = pyarrow.schema([("p", pyarrow.int64()), ("x", pyarrow.int64())])
    properties = {"write.parquet.row-group-size-bytes": str(1 << 20)}
    table = make(tmp_path / "t", schema, ["p"], properties=properties)
    before = pyarrow.total_allocated_bytes()
    most = 0

    def batches() -> Iterator[pyarrow.RecordBatch]:
        nonlocal most
        for _ in range(100):
            parts = pyarrow.array([1] + [0] * 19_999, pyarrow.int64())
            yield pyarrow.RecordBatch.from_arrays([parts, parts], schema=schema)
            most = max(most, pyarrow.total_allocated_bytes() - before)

    table.append(pyarrow.RecordBatchReader.from_batches(schema, batches()))
    assert table.scan().count() == 2_000_000
    # All rows are 32 MB.
    assert most < 12 << 20


def test_many_partitions_in_every_batch_are_one_file_each(tmp_path: Path) -> None:
    schema = pyarrow.schema([("p", pyarrow.int64())])
    table = make(tmp_path / "t", schema, ["p"])
    batch = pyarrow.RecordBatch.from_arrays([pyarrow.array(range(80), pyarrow.int64())], schema=schema)
    report = table.append(pyarrow.RecordBatchReader.from_batches(schema, [batch] * 3))
    assert (report.added_files, report.added_rows) == (80, 240)


# -- deletes, overwrites ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_a_delete_removes_exactly_what_a_scan_shows(seed: int, tmp_path: Path) -> None:
    made = RandomRows(seed)
    table = make(tmp_path / "t", made.schema, made.partition_by, made.sort_by)
    for count in (60, 60):
        table.append(made.rows(count))
    filters = made.filters(seed)
    left = table.scan().to_arrow()
    for _ in range(6):
        chosen = filters.filter().ours
        gone = set(table.scan(columns=["id"], row_filter=chosen).to_arrow().column("id").to_pylist())
        report = table.delete(chosen)
        assert report.deleted_rows == len(gone)
        assert (report.snapshot_id is None) == (not gone)
        left = left.filter(pyarrow.array([each not in gone for each in left.column("id").to_pylist()], pyarrow.bool_()))
        assert shown(table) == rows_of(left)
    assert table.verify().ok


def test_a_delete_of_whole_partitions_reads_no_data(simple: EncryptedTable) -> None:
    for task in simple.scan().plan_files():
        Path(task.file.file_path.removeprefix("file://")).write_bytes(b"damaged")
    report = simple.delete("c = 'c1'")
    assert (report.operation, report.deleted_rows, report.removed_files) == ("delete", 3, 1)


def test_deletes_of_one_file_are_one_vector(simple: EncryptedTable) -> None:
    simple.delete("id = 0")
    simple.delete("id = 3")
    (task,) = simple.scan(row_filter="c = 'c0'").plan_files()
    assert task.deletes.vector is not None
    assert task.deletes.vector.cardinality == 2
    assert len([each for each in simple.files().to_pylist() if each["kind"] == "deletion vectors"]) == 1
    simple.delete("c = 'c0'")
    assert "deletion vectors" not in simple.files().column("kind").to_pylist()


def test_an_overwrite_is_one_snapshot(simple: EncryptedTable) -> None:
    new = SIMPLE.slice(0, 2)
    report = simple.overwrite(new, "id >= 4")
    assert (report.operation, report.added_rows, report.deleted_rows) == ("overwrite", 2, 6)
    assert shown(simple) == rows_of(pyarrow.concat_tables([SIMPLE.slice(0, 4), new]))
    assert len(simple.snapshots()) == 2
    simple.overwrite(new)
    assert shown(simple) == rows_of(new)


def test_dynamic_overwrite_replaces_the_partitions_of_the_new_rows(simple: EncryptedTable) -> None:
    new = SIMPLE.slice(1, 1)
    report = simple.overwrite_partitions(new)
    assert report.deleted_rows == 3
    kept = SIMPLE.filter(compute.not_equal(SIMPLE.column("c"), "c1"))
    assert shown(simple) == rows_of(pyarrow.concat_tables([kept, new]))


def test_what_finds_nothing_to_do_makes_no_snapshot(simple: EncryptedTable, tmp_path: Path) -> None:
    before = stored(tmp_path)
    assert simple.delete("id > 1000").snapshot_id is None
    assert simple.append(SIMPLE.slice(0, 0)).snapshot_id is None
    assert simple.upsert(SIMPLE.slice(0, 0), on=["id"]).snapshot_id is None
    assert stored(tmp_path) == before


# -- upsert ----------------------------------------------------------------------------------------------------------


def test_an_upsert_replaces_what_has_its_key_and_keeps_row_ids(simple: EncryptedTable) -> None:
    columns = ["id", "c", "_row_id", "_last_updated_sequence_number"]
    before = {row["id"]: row for row in simple.scan(columns=columns).to_arrow().to_pylist()}
    new = pyarrow.table({"id": [3, 50], "x": [9.5, 9.5], "c": ["other", "c1"]})
    report = simple.upsert(new, on=["id"])
    assert (report.added_rows, report.deleted_rows) == (2, 1)
    after = {row["id"]: row for row in simple.scan(columns=columns).to_arrow().to_pylist()}
    assert after[3] == {"id": 3, "c": "other", "_row_id": before[3]["_row_id"], "_last_updated_sequence_number": 2}
    assert after[50]["_row_id"] >= 10
    assert {key: row for key, row in after.items() if key not in (3, 50)} == {
        key: row for key, row in before.items() if key != 3
    }


def test_keys_are_compared_as_sql_compares_them(tmp_path: Path) -> None:
    old = pyarrow.table({"k": [float("nan"), 0.0, None, 1.0], "v": [1, 2, 3, 4]})
    table = make(tmp_path / "t", old.schema)
    table.append(old)
    table.upsert(pyarrow.table({"k": [float("nan"), -0.0, None], "v": [10, 20, 30]}), on=["k"])
    assert sorted(table.scan().to_arrow().column("v").to_pylist()) == [3, 4, 10, 20, 30]


@pytest.mark.parametrize("seed", range(2))
def test_an_upsert_is_a_dictionarys_update(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    table = make(
        tmp_path / "t", pyarrow.schema([("a", pyarrow.int64()), ("b", pyarrow.string()), ("v", pyarrow.int64())])
    )
    known: dict[tuple[int, str], int] = {}
    for number in range(4):
        size = 400 if number == 2 else 30
        new = {(chance.randrange(300), chance.choice("xy")): chance.randrange(10**6) for _ in range(size)}
        known |= new
        table.upsert(
            pyarrow.table({"a": [a for a, _ in new], "b": [b for _, b in new], "v": list(new.values())}), on=["a", "b"]
        )
        found = {(row["a"], row["b"]): row["v"] for row in table.scan().to_arrow().to_pylist()}
        assert found == known
    assert table.scan().count() == len(known)


def test_a_key_that_is_there_twice_is_refused(simple: EncryptedTable, tmp_path: Path) -> None:
    before = stored(tmp_path)
    with pytest.raises(ValueError, match="each key must be there once"):
        simple.upsert(pyarrow.concat_tables([SIMPLE, SIMPLE]), on=["id"])
    for on in (["nothing"], [], "id"):
        with pytest.raises(ValueError, match=r"no column nothing|list of columns"):
            simple.upsert(SIMPLE, on=on)
    assert stored(tmp_path) == before


# -- others at the same time -----------------------------------------------------------------------------------------


def test_two_appenders_at_once_both_commit(simple: EncryptedTable, tmp_path: Path) -> None:
    tables = [load_table(None, str(tmp_path / "t"), kms=MemoryKms(MASTER_KEYS)) for _ in range(2)]
    ready = threading.Barrier(2)

    def rows(number: int) -> Iterator[pyarrow.RecordBatch]:
        ready.wait()
        yield from SIMPLE.slice(number, 1).to_batches()

    def work(number: int) -> None:
        tables[number].append(pyarrow.RecordBatchReader.from_batches(SIMPLE.schema, rows(number)))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    simple.refresh()
    assert simple.scan().count() == 12
    ids = simple.scan(columns=["_row_id"]).to_arrow().column(0).to_pylist()
    assert len(set(ids)) == 12
    assert simple.audit().ok


class _Racing:
    """A catalog's table with somebody else, who is faster a few times."""

    def __init__(self, inner: Any, others: list[Any]) -> None:
        self._inner, self._others = inner, others

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def commit(self, base: Any, fields: Any) -> Any:
        if self._others:
            self._others.pop(0)()
        return self._inner.commit(base, fields)


def test_a_delete_that_lost_a_race_deletes_the_new_rows_too(simple: EncryptedTable, tmp_path: Path) -> None:
    other = load_table(None, str(tmp_path / "t"), kms=MemoryKms(MASTER_KEYS))
    race = [lambda: other.append(SIMPLE), lambda: other.delete("id = 9")]
    simple.catalog_table = _Racing(simple.catalog_table, race)  # type: ignore[assignment]
    assert simple.delete("id >= 5").deleted_rows == 8
    assert simple.scan().count() == 10
    assert max(simple.scan(columns=["id"]).to_arrow().column(0).to_pylist()) == 4


def test_a_change_that_lost_every_race_leaves_nothing(simple: EncryptedTable, tmp_path: Path) -> None:
    other = load_table(None, str(tmp_path / "t"), kms=MemoryKms(MASTER_KEYS))
    race = [lambda: other.append(SIMPLE)] * 10
    simple.catalog_table = _Racing(simple.catalog_table, race)  # type: ignore[assignment]
    with pytest.raises(ConflictError, match="other writers committed during each of"):
        simple.append(SIMPLE)
    other.refresh()
    named = {Path(each.removeprefix("file://")) for each in other.files("all").column("path").to_pylist()}
    left = {path for path in stored(tmp_path) if not path.name.endswith((".json", ".text"))}
    assert left == named


def test_a_kms_that_fails_leaves_nothing(simple: EncryptedTable, tmp_path: Path) -> None:
    before = stored(tmp_path)
    table = load_table(None, str(tmp_path / "t"), kms=MemoryKms({"other": bytes(16)}))
    with pytest.raises(KeyAccessError):
        table.append(SIMPLE)
    with pytest.raises(KeyAccessError):
        table.delete("id = 1")
    assert stored(tmp_path) == before


# -- branches --------------------------------------------------------------------------------------------------------


def test_changes_of_a_branch_are_its_own(simple: EncryptedTable, tmp_path: Path) -> None:
    catalog_table = simple.catalog_table
    assert catalog_table is not None
    state = catalog_table.load()
    fields = dict(state.document.fields)
    snapshot = fields["current-snapshot-id"]
    fields["refs"] = fields["refs"] | {
        "work": {"snapshot-id": snapshot, "type": "branch"},
        "v1": {"snapshot-id": snapshot, "type": "tag"},
    }
    catalog_table.commit(state, fields)
    simple.refresh()
    simple.append(SIMPLE, ref="work")
    simple.delete("id < 5", ref="work")
    assert simple.scan(ref="work").count() == 10
    assert simple.scan().count() == 10
    assert min(simple.scan().to_arrow().column("id").to_pylist()) == 0
    with pytest.raises(ValueError, match="'v1' is a tag"):
        simple.append(SIMPLE, ref="v1")
    with pytest.raises(ValueError, match=r"no branch 'other'; it has main, work"):
        simple.append(SIMPLE, ref="other")


# -- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.append_column("more", [[1] * 10]), "more is no column of the table"),
        (lambda t: t.drop_columns(["id"]), "id is required, and missing"),
        (lambda t: t.set_column(0, "id", [["a"] * 10]), "id is long in the table and string in the rows"),
        (lambda t: t.set_column(0, "id", pyarrow.array([None] * 10, pyarrow.int64())), "id is required, and 10 of"),
        (lambda t: t.append_column("x", t.column("x")), "x is there twice"),
        (lambda t: t.set_column(2, "c", pyarrow.array([1.5] * 10)), "c is string in the table and double"),
    ],
)
def test_rows_that_do_not_fit_are_refused_before_anything_is_written(change: Any, message: str, tmp_path: Path) -> None:
    schema = pyarrow.schema(
        [pyarrow.field("id", pyarrow.int64(), nullable=False), ("x", pyarrow.float64()), ("c", pyarrow.string())]
    )
    table = make(tmp_path / "t", schema)
    before = stored(tmp_path)
    for method in (
        table.append,
        table.overwrite,
        table.overwrite_partitions,
        lambda data: table.upsert(data, on=["c"]),
    ):
        with pytest.raises(ValueError, match=message):
            method(change(SIMPLE))
    assert stored(tmp_path) == before


def test_numbers_that_are_too_large_for_their_column_are_refused(tmp_path: Path) -> None:
    table = make(tmp_path / "t", pyarrow.schema([("i", pyarrow.int32()), ("d", pyarrow.decimal128(4, 2))]))
    table.append(pyarrow.table({"i": [1, None]}))
    before = stored(tmp_path)
    with pytest.raises(ValueError, match="column i: a value does not fit into int"):
        table.append(pyarrow.table({"i": [2**31]}))
    assert stored(tmp_path) == before


def test_nulls_in_required_fields_are_found_wherever_they_are(tmp_path: Path) -> None:
    inner = pyarrow.struct([pyarrow.field("a", pyarrow.int64(), nullable=False)])
    schema = pyarrow.schema([("s", inner), ("l", pyarrow.list_(pyarrow.field("element", inner, nullable=False)))])
    table = make(tmp_path / "t", schema)
    loose = pyarrow.struct([("a", pyarrow.int64())])
    good = pyarrow.table(
        {"s": pyarrow.array([{"a": 1}, None], loose), "l": pyarrow.array([None, [{"a": 2}]], pyarrow.list_(loose))}
    )
    table.append(good)
    assert table.scan().to_arrow().to_pylist() == good.to_pylist()
    for bad in (
        {"s": pyarrow.array([{"a": None}], loose)},
        {"l": pyarrow.array([[{"a": None}]], pyarrow.list_(loose))},
        {"l": pyarrow.array([[None]], pyarrow.list_(loose))},
    ):
        with pytest.raises(ValueError, match=r"column (s|l)"):
            table.append(pyarrow.table(bad))


def test_a_table_opened_by_its_metadata_file_is_not_changed(simple: EncryptedTable) -> None:
    table = open_table(simple.metadata_location, MemoryKms(MASTER_KEYS))
    with pytest.raises(ValueError, match="load_table"):
        table.append(SIMPLE)


def test_a_table_that_is_not_encrypted_is_not_changed(simple: EncryptedTable, tmp_path: Path) -> None:
    catalog_table = simple.catalog_table
    assert catalog_table is not None
    state = catalog_table.load()
    fields = dict(state.document.fields)
    fields["properties"] = {name: text for name, text in fields["properties"].items() if "encryption" not in name}
    catalog_table.commit(state, fields)
    table = load_table(None, str(tmp_path / "t"), kms=MemoryKms(MASTER_KEYS), allow_plaintext=True)
    with pytest.raises(UnsupportedError, match="not encrypted"):
        table.append(SIMPLE)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"partition_spec": ["nothing"]}, ValueError, "no column nothing"),
        ({"partition_spec": ["bucket(c)"]}, ValueError, "only bucket and truncate take a number"),
        ({"partition_spec": ["half(c)"]}, ValueError, "no transform half"),
        ({"partition_spec": ["day(c)"]}, Exception, "c"),
        ({"sort_order": ["nothing desc"]}, ValueError, "no column nothing"),
        ({"data_key_length": 20}, ValueError, "16, 24 or 32"),
        ({"properties": {"format-version": "2"}}, ValueError, "format version 3"),
        ({"properties": {"encryption.key-id": "x"}}, ValueError, "use the arguments key_id"),
        ({"properties": {"a": None}}, ValueError, "None type is not a supported value in properties: a"),
        ({"properties": {"write.format.default": "avro"}}, UnsupportedError, "Parquet alone"),
        ({"properties": {"write.target-file-size-bytes": "much"}}, ValueError, "must be a number of 1 or more"),
        ({"key_id": "unknown"}, KeyAccessError, "unknown"),
        ({"key_id": ""}, ValueError, "master key"),
    ],
)
def test_tables_that_could_not_be_written_are_not_made(
    arguments: dict[str, Any], error: type[Exception], message: str, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"kms": MemoryKms(MASTER_KEYS), "key_id": "keyA", **arguments}
    with pytest.raises(error, match=message):
        create_table(None, str(tmp_path / "t"), SIMPLE.schema, **options)
    assert not stored(tmp_path)


def test_a_name_that_is_taken_is_refused(simple: EncryptedTable, tmp_path: Path) -> None:
    with pytest.raises(FileExistsError, match="there is a table already"):
        make(tmp_path / "t", SIMPLE.schema)
    assert simple.scan().count() == 10
