"""Row groups that are moved: not decoded, with their filters and indexes, and with the numbers of their rows."""

from __future__ import annotations

import datetime
import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from ags1.errors import AuthenticationError, FormatError, UnsupportedError
from ags1.iceberg import EncryptedTable, MaintenancePolicy, create_table, load_table
from ags1.iceberg.catalogs import catalog_table
from ags1.iceberg.files.file_io import SnapshotFiles
from ags1.iceberg.maintenance import rewriting
from ags1.iceberg.metadata.locations import location_of
from ags1.iceberg.metadata.manifests import ADDED, DATA, ManifestEntry
from ags1.iceberg.writing.commit import TableFiles, commit
from ags1.iceberg.writing.metadata import TableMetadata
from ags1.iceberg.writing.partitioning import Partitioning
from ags1.iceberg.writing.snapshot import SnapshotSummary, SnapshotWriter
from ags1.kms import MemoryKms
from ags1.parquet import EncryptionConfig, encrypt_file
from ags1.parquet.native.thrift import I64, Struct
from ags1.parquet.structure.fields import FileMetaData, RowGroup
from tests.iceberg.arrow_tables import RandomRows, further_types
from tests.iceberg.canonical import arrow_rows, sorted_rows
from tests.iceberg.test_store_requests import options
from tests.servers.s3 import S3Server

KMS = MemoryKms({"lake": bytes(16)})
NOW = datetime.timedelta(0)
LINEAGE = ["_row_id", "_last_updated_sequence_number"]


@pytest.fixture(autouse=True)
def _small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row groups of more than 2,000 bytes are large."""
    monkeypatch.setattr(rewriting, "_LEAST_MOVED", 2000)


def new_table(place: Path, schema: Any, *arguments: Any, **properties: str) -> EncryptedTable:
    properties.setdefault("write.parquet.row-group-limit", "40")
    return create_table(None, str(place), schema, *arguments, kms=KMS, key_id="lake", properties=properties)


def content(table: EncryptedTable) -> list[Any]:
    return sorted_rows(arrow_rows(table.scan(columns=["*", *LINEAGE]).to_arrow()))


def ids(table: EncryptedTable, row_filter: str) -> list[int]:
    return sorted(table.scan(columns=["id"], row_filter=row_filter).to_arrow()["id"].to_pylist())


def groups(table: EncryptedTable) -> Iterator[Any]:
    """PyArrow's metadata of all row groups."""
    for task in table.scan().plan_files():
        with table.io.new_input(task.file.file_path).open() as view:
            metadata = pyarrow.parquet.read_metadata(view)
            yield from (metadata.row_group(index) for index in range(metadata.num_row_groups))


def set_properties(table: EncryptedTable, **properties: str) -> None:
    table.table.transaction().set_properties(properties).commit_transaction()
    table.refresh()


def add_file(table: EncryptedTable, place: Path, content: bytes, **fields: Any) -> None:
    """Commit a data file as another writer with the keys does."""

    def attempt(_state: Any, metadata: TableMetadata, files: TableFiles) -> bool:
        path, location, key = files.new_data_file()
        assert key is not None
        encrypt_file(content, location.path, EncryptionConfig.for_iceberg(key))
        size = Path(location.path).stat().st_size
        file = {
            "content": 0, "file_path": path, "file_format": "PARQUET", "partition": {},
            "file_size_in_bytes": size, "key_metadata": key.with_length(size).encode(), **fields,
        }  # fmt: skip
        writer, summary = SnapshotWriter(metadata, files, KMS), SnapshotSummary()
        summary.add(file, 0)
        parent = metadata.snapshot_of("main")
        assert parent is not None
        for each in SnapshotFiles(load_table(None, str(place), kms=KMS).io).manifests(parent):
            writer.keep(each)
        made = Partitioning(table.table.spec(), table.schema).manifest(
            DATA, [ManifestEntry(ADDED, 0, None, None, file)]
        )
        writer.add(made, None)
        writer.finish("append", summary.fields(parent, writer.manifests))
        return True

    commit(catalog_table(None, str(place)), location_of, attempt)


@pytest.mark.parametrize("seed", [2, 3])
def test_rows_of_every_type_keep_their_values_numbers_and_order_of_groups(seed: int, tmp_path: Path) -> None:
    made = RandomRows(seed)
    table = new_table(tmp_path / "t", made.schema, made.partition_by)
    for count in (90, 50, 7):
        table.append(made.rows(count))
    table.upsert(made.rows(3).set_column(0, made.schema.field("id"), pyarrow.array([5, 91, 1000])), on=["id"])
    before = content(table)
    filters = made.filters(seed)
    chosen = [filters.filter().ours for _ in range(3)]
    passing = [ids(table, each) for each in chosen]
    # A second time, when the columns of numbers are there.
    for _ in range(2):
        report = table.compact(rewrite_all=True, target_bytes=1 << 40)
        assert content(table) == before
        assert table.verify().ok
        # By bounds of the new files.
        assert passing == [ids(table, each) for each in chosen]
    assert report.moved_bytes or made.partition_by


def test_moved_row_groups_are_not_decoded_and_small_ones_are_merged(tmp_path: Path) -> None:
    schema = pyarrow.schema([("id", pyarrow.int64()), ("text", pyarrow.string())])
    table = new_table(tmp_path / "t", schema, **{"write.parquet.bloom-filter-enabled.column.text": "true"})
    chance = random.Random(5)
    for number in range(5):
        # 100 rows in three groups, of which the last is small; then one small file.
        ids = range(100 * number, 100 * number + (100 if number < 4 else 5))
        table.append(pyarrow.table([ids, [chance.randbytes(100).hex() for _ in ids]], schema=schema))
    set_properties(table, **{"write.parquet.compression-codec": "snappy", "write.parquet.row-group-limit": "1000"})
    before = content(table)
    sizes = sorted(sum(g.column(i).total_compressed_size for i in range(2)) for g in groups(table))
    large = [each for each in sizes if each >= 2000]
    assert 0 < len(large) < len(sizes)
    report = table.compact()
    assert (report.added_files, report.moved_bytes) == (1, sum(large))
    found = list(groups(table))
    moved = [each for each in found if each.column(0).compression == "ZSTD"]
    merged = [each for each in found if each.column(0).compression == "SNAPPY"]
    assert len(moved) == len(large)
    assert [each.num_rows for each in merged] == [405 - sum(each.num_rows for each in moved)]
    assert content(table) == before
    assert table.verify().ok
    # Filters and positions of row groups were moved too.
    (task,) = table.scan().plan_files()
    assert len(task.file.split_offsets or ()) == len(found)
    assert list(task.file.split_offsets) == sorted(task.file.split_offsets)
    with table.io.new_input(task.file.file_path).open() as view:
        filters = [
            chunk.bloom_filter() is not None
            for group in view.source_file.row_groups()
            for chunk in group.chunks()
            if chunk.leaf.name == "text"
        ]
    assert filters == [True] * len(found)


def test_what_is_a_little_over_the_target_is_no_file_of_its_own(tmp_path: Path) -> None:
    schema = pyarrow.schema([("id", pyarrow.int64()), ("text", pyarrow.string())])
    table = new_table(tmp_path / "t", schema)
    chance = random.Random(6)
    for number in range(8):
        ids = range(100 * number, 100 * number + 100)
        table.append(pyarrow.table([ids, [chance.randbytes(60).hex() for _ in ids]], schema=schema))
    sizes = [task.file.file_size_in_bytes for task in table.scan().plan_files()]
    report = table.compact(target_bytes=sum(sizes))
    assert report.moved_bytes
    assert report.added_files == 1
    assert table.compact(target_bytes=sum(sizes)).files == 0
    # One that is much too large is divided.
    assert table.compact(target_bytes=sum(sizes) // 3).added_files in (3, 4)
    again = table.compact(target_bytes=3000)
    assert (again.moved_bytes > 0, again.added_files > 8) == (True, True)
    # Not even a row group is that small.
    assert table.compact(target_bytes=500).moved_bytes == 0
    assert table.scan().count() == 800


def test_numbers_of_rows_that_are_moved_twice_are_counted_once(tmp_path: Path) -> None:
    """A count of values that is more than the rows is one that readers prune by."""
    schema = pyarrow.schema([("id", pyarrow.int64()), ("text", pyarrow.string())])
    table = new_table(tmp_path / "t", schema)
    chance = random.Random(7)
    for _ in range(5):
        table.append(pyarrow.table([range(40), [chance.randbytes(100).hex() for _ in range(40)]], schema=schema))
    for _ in range(2):
        assert table.compact(rewrite_all=True).moved_bytes
    (file,) = table.table.inspect.files().to_pylist()
    counts = dict(file["value_counts"])
    assert len(counts) == len(schema) + len(LINEAGE)
    assert set(counts.values()) == {file["record_count"]}


def test_columns_that_were_dropped_are_gone_and_renamed_ones_stay(tmp_path: Path) -> None:
    schema = pyarrow.schema([("id", pyarrow.int64()), ("secret", pyarrow.string()), ("a", pyarrow.string())])
    table = new_table(tmp_path / "t", schema)
    for number in range(5):
        texts = [f"{each}" * 60 for each in range(80)]
        table.append(pyarrow.table([range(80 * number, 80 * number + 80), texts, texts], schema=schema))
    with table.table.update_schema() as update:
        update.delete_column("secret")
    before = content(table.refresh())
    report = table.compact()
    assert report.moved_bytes == 0
    assert content(table) == before
    assert all(
        "secret" not in group.column(i).path_in_schema for group in groups(table) for i in range(group.num_columns)
    )
    with table.table.update_schema() as update:
        update.rename_column("a", "b")
    before = content(table.refresh())
    table.compact(rewrite_all=True)
    assert content(table) == before


def test_types_that_sql_has_no_word_for_are_moved(tmp_path: Path) -> None:
    rows = further_types(60)
    table = new_table(tmp_path / "t", rows.schema, **{"write.parquet.row-group-limit": "60"})
    for _ in range(5):
        table.append(rows)
    before = content(table)
    assert table.compact(target_bytes=1 << 40).moved_bytes
    assert content(table) == before


def test_an_unknown_codec_is_told_of_and_no_file_is_blamed(tmp_path: Path) -> None:
    schema = pyarrow.schema([("id", pyarrow.int64()), ("text", pyarrow.string())])
    table = new_table(tmp_path / "t", schema)
    for _ in range(5):
        table.append(pyarrow.table([range(40), [random.randbytes(100).hex() for _ in range(40)]], schema=schema))
    for codec in ("lzo", "none at all"):
        set_properties(table, **{"write.parquet.compression-codec": codec})
        for change in (table.compact, lambda: table.append(table.scan().to_arrow())):
            with pytest.raises(UnsupportedError, match=f"compression-codec is '{codec}'"):
                change()


@pytest.mark.parametrize("what", ["page", "footer", "length"])
def test_a_damaged_file_is_not_moved(what: str, tmp_path: Path) -> None:
    schema = pyarrow.schema([("id", pyarrow.int64()), ("text", pyarrow.string())])
    table = new_table(tmp_path / "t", schema)
    for number in range(5):
        table.append(pyarrow.table([range(100), [f"{number} {each}" * 30 for each in range(100)]], schema=schema))
    files = {path: path.read_bytes() for path in (tmp_path / "t" / "data").rglob("*.parquet")}
    victim = min(files)
    damaged = bytearray(files[victim])
    if what == "length":
        damaged += b"more"
    else:
        damaged[50 if what == "page" else -40] ^= 1
    victim.write_bytes(damaged)
    with pytest.raises((AuthenticationError, FormatError), match=victim.name):
        load_table(None, str(tmp_path / "t"), kms=KMS).compact()
    assert {path for path in (tmp_path / "t" / "data").rglob("*") if path.is_file()} == set(files)


@pytest.mark.parametrize("stated", [1 << 40, 101])
def test_a_file_that_lies_about_its_rows_is_not_moved(stated: int, tmp_path: Path) -> None:
    schema = pyarrow.schema([("id", pyarrow.int64()), ("text", pyarrow.string())])
    table = new_table(tmp_path / "t", schema, **{"write.parquet.row-group-limit": "1000"})
    chance = random.Random(8)
    for _ in range(2):
        table.append(pyarrow.table([range(100), [chance.randbytes(60).hex() for _ in range(100)]], schema=schema))
    # Somebody with the keys has written one of the files.
    with table.io.new_input(next(iter(table.scan().plan_files())).file.file_path).open() as view:
        plain = view.read()
    footer = 8 + int.from_bytes(plain[-8:-4], "little")
    metadata = Struct.parse(plain[-footer:])
    groups = metadata.list(FileMetaData.ROW_GROUPS)
    assert groups is not None
    groups[0].set(RowGroup.NUM_ROWS, I64, stated)
    metadata.set(FileMetaData.NUM_ROWS, I64, stated)
    forged = metadata.encode()
    hostile = plain[:-footer] + forged + len(forged).to_bytes(4, "little") + b"PAR1"

    add_file(table, tmp_path / "t", hostile, record_count=100)
    table = load_table(None, str(tmp_path / "t"), kms=KMS)
    moved = [task.file.file_size_in_bytes for task in table.scan().plan_files()]
    report = table.compact(min_input_files=2)
    assert 0 < report.moved_bytes < sum(moved) * 2 // 3
    found = table.scan(columns=["id", *LINEAGE]).to_arrow()
    assert sorted(found["id"].to_pylist()) == sorted([*range(100)] * 3)
    assert len(set(found["_row_id"].to_pylist())) == found.num_rows
    assert load_table(None, str(tmp_path / "t"), kms=KMS).verify(None).ok


@pytest.mark.parametrize("nan_first", [True, False])
def test_bounds_that_are_not_numbers_hide_no_row(nan_first: bool, tmp_path: Path) -> None:
    """Other writers have left NaN as the bounds of a column that has it, and other values."""
    schema = pyarrow.schema([("id", pyarrow.int64()), ("f", pyarrow.float64()), ("text", pyarrow.string())])
    place, chance = tmp_path / "t", random.Random(9)
    table = new_table(place, schema)
    own = pyarrow.schema(
        [each.with_metadata({"PARQUET:field_id": str(number)}) for number, each in enumerate(schema, 1)]
    )

    def rows(*values: float) -> pyarrow.Table:
        return pyarrow.table([range(40), [*values] * 20, [chance.randbytes(100).hex() for _ in range(40)]], schema=own)

    def add_nan() -> None:
        sink = pyarrow.BufferOutputStream()
        pyarrow.parquet.write_table(rows(float("nan"), 100.0), sink)
        nan = [{"key": 2, "value": struct.pack("<d", float("nan"))}]
        add_file(table, place, sink.getvalue(), record_count=40, lower_bounds=nan, upper_bounds=nan)

    def add_numbers() -> None:
        load_table(None, str(place), kms=KMS).append(rows(1.0, 2.0).cast(schema))

    # One that is read, and not moved.
    table.append(rows(3.0, 4.0).slice(0, 2).cast(schema))
    for add in (add_nan, add_numbers) if nan_first else (add_numbers, add_nan):
        add()
    table = load_table(None, str(place), kms=KMS)
    assert len(ids(table, "f = 100.0")) == 20
    report = table.compact(rewrite_all=True)
    assert (report.added_files, report.moved_bytes > 0) == (1, True)
    assert len(ids(table, "f = 100.0")) == 20


def test_a_table_in_a_store_is_compacted(s3_server: S3Server, s3_bucket: str) -> None:
    store = options(s3_server)
    place, schema = f"s3://{s3_bucket}/t", pyarrow.schema([("id", pyarrow.int64()), ("text", pyarrow.string())])
    properties = {"write.parquet.row-group-limit": "400"}
    table = create_table(None, place, schema, kms=KMS, key_id="lake", properties=properties, storage_options=store)
    chance = random.Random(7)
    for number in range(3):
        # The second row group of each is small.
        ids = range(1000 * number, 1000 * number + 401)
        table.append(pyarrow.table([ids, [chance.randbytes(100).hex() for _ in ids]], schema=schema))
    table.delete("id = 2000")
    before = content(table)
    report = table.compact(min_input_files=2)
    assert report.moved_bytes
    assert (report.files, report.added_files) == (3, 1)
    assert content(load_table(None, place, kms=KMS, properties=store)) == before
    assert table.verify().ok
    done = table.maintain(MaintenancePolicy(expire_older_than=NOW, clean_older_than=NOW))
    assert done.expired is not None
    assert done.expired.files["data"] == 3
    assert content(table) == before
