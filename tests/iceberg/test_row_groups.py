"""Row groups read in batches: the same rows as from Arrow's own reader, whatever their size, and few at once."""

from __future__ import annotations

import datetime
import decimal
import io
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from ags1.errors import FormatError
from ags1.iceberg.scan import row_groups, table_scan
from ags1.iceberg.scan.row_groups import RowGroups
from ags1.parquet.structure.page_sizes import longest_value, page_sizes
from tests.checks import every
from tests.iceberg.delete_lake import DeleteLake

LIMIT = 1 << 30


def sample(count: int, seed: int = 0) -> pa.Table:
    chance = random.Random(seed)

    def some(made: Any) -> list[Any]:
        return [None if chance.random() < 0.1 else made() for _ in range(count)]

    def text() -> str:
        return "".join(chance.choices("aé🔑", k=chance.randrange(12)))

    return pa.table(
        {
            "id": range(count),
            "few": some(lambda: chance.choice(["CH", "DE", ""])),
            "text": some(text),
            "bytes": pa.array(some(lambda: chance.randbytes(chance.randrange(30))), pa.binary()),
            "flag": some(lambda: chance.random() < 0.5),
            "x": pa.array(some(chance.random), pa.float32()),
            "fixed": pa.array(some(lambda: chance.randbytes(16)), pa.binary(16)),
            "money": pa.array(some(lambda: decimal.Decimal(chance.randrange(10**9)).scaleb(-2)), pa.decimal128(30, 2)),
            "day": pa.array(some(lambda: datetime.date(2026, 1, 1)), pa.date32()),
            "tags": pa.array(some(lambda: [text() for _ in range(chance.randrange(4))]), pa.list_(pa.string())),
            "map": pa.array(some(lambda: [(text(), 1)]), pa.map_(pa.string(), pa.int64())),
            "deep": pa.array(some(lambda: {"a.b": text(), "c": [{"d": 1}]})),
            "a.b": some(lambda: 7),
            "nothing": pa.nulls(count, pa.string()),
        }
    )


OPTIONS: list[dict[str, Any]] = [
    {"compression": "zstd"},
    {"compression": "snappy", "data_page_version": "2.0", "data_page_size": 200},
    {"compression": "none", "use_dictionary": False},
    {"compression": "gzip", "dictionary_pagesize_limit": 100, "data_page_size": 300},
    {"compression": "lz4", "use_dictionary": ["few"], "column_encoding": {"text": "DELTA_BYTE_ARRAY"}},
    {"compression": "brotli", "use_dictionary": False, "column_encoding": {"bytes": "DELTA_LENGTH_BYTE_ARRAY"}},
]


class Plain(io.BytesIO):
    """A file without any further method."""


class Remote(io.BytesIO):
    def pread(self, offset: int, size: int) -> bytes:
        return self.getvalue()[offset : offset + size]


@every("in_memory", [True, False])
@every("options", OPTIONS)
def test_rows_are_those_of_arrows_own_reader(
    options: dict[str, Any], in_memory: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_groups, "_IN_MEMORY", 1 << 20 if in_memory else 0)
    # A footer that is longer than what is read first.
    monkeypatch.setattr(row_groups, "_TAIL", 100)
    rows, file = sample(500), Plain()
    pq.write_table(rows, file, row_group_size=180, **options)
    for at_once, remote, opened in (
        (1, False, file),
        (3, False, pa.BufferReader(file.getvalue())),
        (2, True, Remote(file.getvalue())),
    ):
        source = RowGroups(opened, LIMIT, is_remote=remote, at_once=at_once)
        found = pa.Table.from_batches(source.batches(rows.column_names))
        assert found.equals(pq.read_table(pa.BufferReader(file.getvalue())))
        assert found.schema == source.schema
        few = pa.Table.from_batches(source.batches(["text", "a.b", "id"], [2, 0]))
        assert few.equals(pa.concat_tables([rows[360:], rows[:180]]).select(["text", "a.b", "id"]))
        assert sum(batch.num_rows for batch in source.batches([])) == 500


@every("in_memory", [True, False])
@every("options", OPTIONS)
def test_rows_are_the_same_when_a_batch_has_few_of_them(
    options: dict[str, Any], in_memory: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_groups, "_IN_MEMORY", 1 << 20 if in_memory else 0)
    rows, file = sample(200), io.BytesIO()
    pq.write_table(rows, file, row_group_size=90, **options)
    monkeypatch.setattr(row_groups, "_MOST_ROWS", 7)
    batches = list(RowGroups(file, LIMIT).batches(rows.column_names))
    assert pa.Table.from_batches(batches).equals(rows.cast(batches[0].schema))
    assert max(batch.num_rows for batch in batches) == 7
    # As large row groups are read.
    monkeypatch.setattr(row_groups, "_SMALL_GROUPS", 0)
    batches = list(RowGroups(file, LIMIT).batches(rows.column_names))
    assert pa.Table.from_batches(batches).equals(rows.cast(batches[0].schema))
    assert [batch.num_rows for batch in batches] == [7] * 12 + [6] + [7] * 12 + [6] + [7, 7, 6]
    # The longest values leave a row at once: these are joined again.
    monkeypatch.setattr(row_groups, "_MOST_ROWS", 1 << 17)
    monkeypatch.setattr(row_groups, "_WORST_PART", LIMIT)
    assert [batch.num_rows for batch in RowGroups(file, LIMIT).batches(rows.column_names)] == [90, 90, 20]


@every("codec", ["none", "snappy", "gzip", "lz4", "zstd", "brotli"])
def test_the_longest_value_of_a_dictionary_is_found(codec: str) -> None:
    values = ["é" * (each % 40) + str(each) for each in range(500)]
    file = io.BytesIO()
    pq.write_table(pa.table({"s": values}), file, compression=codec)
    column = pq.read_metadata(file).row_group(0).column(0)
    start = column.dictionary_page_offset
    chunk = file.getvalue()[start : start + column.total_compressed_size]
    sizes = page_sizes(chunk, start, column.num_values, "s", 0)
    assert (sizes.count, sizes.indexed, sizes.dictionary_values, sizes.values) == (500, 500, 500, 0)
    assert sizes.dictionary == sum(4 + len(each.encode()) for each in values)
    offset, length = sizes.dictionary_place
    stored = chunk[offset - start :][:length]
    longest = longest_value(stored, column.compression, sizes.dictionary)
    assert longest == max(len(each.encode()) for each in values)


def test_pages_outside_of_the_file_are_refused() -> None:
    file = io.BytesIO()
    pq.write_table(pa.table({"s": ["x"] * 100}), file)
    for cut in (4, 30):
        # The footer is whole; the pages before it are not.
        data = b"PAR1" + file.getvalue()[4 + cut :]
        with pytest.raises((FormatError, pa.ArrowException, OSError)):
            list(RowGroups(io.BytesIO(data), LIMIT).batches(["s"]))


def test_deletes_positions_and_filters_count_the_rows_of_all_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "s", StringType(), required=False))
    paths = Schema(
        NestedField(2147483546, "file_path", StringType(), required=True),
        NestedField(2147483545, "pos", LongType(), required=True),
    )
    from pyiceberg.manifest import DataFileContent

    lake = DeleteLake(tmp_path, schema)
    path = lake.add([{"id": each, "s": str(each % 10)} for each in range(1000)], 1)
    gone = list(range(0, 1000, 7))
    lake.add(
        [{"file_path": path, "pos": each} for each in gone], 2, schema=paths, content=DataFileContent.POSITION_DELETES
    )
    lake.add([{"s": "3"}], 3, schema=Schema(schema.fields[1]), equality_ids=[2])
    table = lake.open()
    monkeypatch.setattr(row_groups, "_MOST_ROWS", 13)
    wanted = [each for each in range(1000) if each % 7 and each % 10 != 3 and each >= 100]
    found = table.scan(columns=["_pos", "id"], row_filter="id >= 100").to_arrow()
    assert found["id"].to_pylist() == found["_pos"].to_pylist() == wanted
    assert table.scan(row_filter="id >= 100").count() == len(wanted)
    assert table.scan(columns=["id"], row_filter="id >= 100", limit=50).to_arrow()["id"].to_pylist() == wanted[:50]


def test_batches_are_yielded_before_the_file_was_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = Schema(NestedField(1, "id", LongType(), required=True))
    lake = DeleteLake(tmp_path, schema)
    lake.add([{"id": each} for each in range(9000)], 1)
    read = 0
    decode = RowGroups._decode

    def counting(*arguments: Any) -> Any:
        nonlocal read
        for batch in decode(*arguments):
            read += batch.num_rows
            yield batch

    monkeypatch.setattr(RowGroups, "_decode", counting)
    monkeypatch.setattr(row_groups, "_MOST_ROWS", 10)
    monkeypatch.setattr(row_groups, "_BATCH_BYTES", 800)
    monkeypatch.setattr(table_scan, "WAITING", 4000)
    scan = lake.open().scan()
    with scan.to_record_batches() as reader:
        assert reader.read_next_batch().num_rows == 10
        assert read < 4000
    assert read < 4000
    assert scan.to_arrow()["id"].to_pylist() == list(range(9000))
