"""Parquet files of tables whose few bytes become gigabytes: no key is needed to put them there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import ListType, LongType, NestedField, StringType

from ags1.errors import FormatError, LimitError
from ags1.iceberg import EncryptedFileIO, EncryptedTable, open_table
from ags1.parquet.native.thrift import I64, Struct
from ags1.parquet.structure.fields import ColumnChunk, ColumnMetaData, FileMetaData, RowGroup
from tests import peak_memory
from tests.checks import every, in_child, run_python
from tests.iceberg.delete_lake import DeleteLake

MIB = 1 << 20
LONG = "x" * MIB
LIMIT = "ags1.row-group-limit"


def lake_of(directory: Path, rows: pa.Table, **options: Any) -> DeleteLake:
    """A table with one file, of one row group."""
    kinds = {"s": StringType(), "z": LongType(), "l": ListType(9, StringType(), element_required=False)}
    schema = Schema(*(NestedField(place, name, kinds[name]) for place, name in enumerate(rows.column_names, 1)))
    element = {"PARQUET:field_id": "9"}
    fields = [
        pa.field(
            each.name,
            pa.list_(pa.field("element", each.type.value_type, metadata=element)) if each.name == "l" else each.type,
            metadata={"PARQUET:field_id": str(place)},
        )
        for place, each in enumerate(rows.schema, 1)
    ]
    path = directory / "bomb.parquet"
    options = {"compression": "zstd", "store_schema": False, "dictionary_pagesize_limit": 1 << 30, **options}
    pq.write_table(rows.cast(pa.schema(fields)), path, row_group_size=1 << 30, **options)
    lake = DeleteLake(directory, schema)
    lake.add_file(
        DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=str(path),
            file_format=FileFormat.PARQUET,
            partition=Record(),
            record_count=rows.num_rows,
            file_size_in_bytes=path.stat().st_size,
        ),
        1,
    )
    return lake


def table_of(directory: Path, rows: pa.Table, limit: int | None = None, **options: Any) -> EncryptedTable:
    made = lake_of(directory, rows, **options).open()
    properties = None if limit is None else {LIMIT: str(limit)}
    return open_table(made.metadata_location, None, properties=properties, allow_plaintext=True)


def repeated(count: int, value: str = LONG) -> pa.Array:
    """A value that is there many times, in little memory."""
    return pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int32()), [value])


def lying(path: Path) -> None:
    """Make the footer say that the pages are small."""
    data = path.read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    footer = Struct.parse(data[-8 - length : -8])
    for group in footer.get(FileMetaData.ROW_GROUPS):
        group.set(RowGroup.TOTAL_BYTE_SIZE, I64, 1)
        for chunk in group.get(RowGroup.COLUMNS):
            chunk.get(ColumnChunk.META_DATA).set(ColumnMetaData.TOTAL_UNCOMPRESSED_SIZE, I64, 1)
    encoded = footer.encode()
    path.write_bytes(data[: -8 - length] + encoded + len(encoded).to_bytes(4, "little") + b"PAR1")


READS: dict[str, Callable[[Any], Any]] = {
    "to_arrow": lambda scan: scan.to_arrow(),
    "to_record_batches": lambda scan: scan.to_record_batches().read_all(),
    "stream": lambda scan: pa.table(scan),
    "to_pandas": lambda scan: scan.to_pandas(),
    "by_file": lambda scan: [list(file.batches) for file in scan.by_file(scan.plan_files())],
}


@every(
    "rows",
    [
        (lambda: {"s": repeated(3000)}, True, 3000),
        (lambda: {"z": pa.repeat(pa.scalar(0, pa.int64()), 64 * MIB)}, False, 64 * MIB),
    ],
    lambda case: "dictionary" if case[1] else "zeros",
)
def test_a_row_group_within_the_limit_is_streamed_in_a_part_of_its_size(rows: Any, tmp_path: Path) -> None:
    columns, use_dictionary, count = rows
    directory = tmp_path / str(use_dictionary)
    directory.mkdir()
    table = table_of(directory, pa.table(columns()), use_dictionary=use_dictionary)
    assert (directory / "bomb.parquet").stat().st_size < MIB

    def read() -> bytes:
        before = peak_memory.begin()
        found = sum(batch.num_rows for batch in table.scan().to_record_batches())
        return f"{found} {peak_memory.grown(before)}".encode()

    found, grown = map(int, in_child(read).split())
    assert found == count
    decoded = 3000 * MIB if use_dictionary else 8 * count
    assert grown < (decoded // 3 if use_dictionary else 400 * MIB)


REFUSED = """
import sys
from ags1.iceberg import open_table
from tests import peak_memory
from tests.threats.test_row_group_bombs import READS

scan = open_table(sys.argv[1], None, allow_plaintext=True).scan()
scan.plan_files()
before = peak_memory.begin()
try:
    READS[sys.argv[2]](scan)
except Exception as error:
    print(peak_memory.grown(before), type(error).__name__, error)
else:
    print("0 nothing")
"""


@every("read", READS)
def test_a_row_group_above_the_limit_is_refused_before_it_is_decoded(read: str, tmp_path: Path) -> None:
    directory = tmp_path / read
    directory.mkdir()
    table = table_of(directory, pa.table({"s": repeated(100_000)}))

    grown, kind, text = run_python(REFUSED, table.metadata_location, read).split(" ", 2)
    assert int(grown) < 256 * MIB
    # An error of Arrow's stream has the text of ours.
    assert kind == "LimitError" or read == "stream", (kind, text)
    for part in ("bomb.parquet", "row group 0", "104,858,000,000", "4,294,967,296", LIMIT):
        assert part in text


def test_what_the_footer_states_is_refused_before_a_page_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ags1.iceberg.scan.row_groups import RowGroups

    table = table_of(tmp_path, pa.table({"s": [LONG] * 3}), limit=2 * MIB, use_dictionary=False)
    monkeypatch.setattr(RowGroups, "_fetch", None)
    with pytest.raises(LimitError, match=r"row group 0 has 3,1.* at most 2,097,152"):
        table.scan().to_arrow()


def test_a_limit_concerns_the_columns_that_are_read(tmp_path: Path) -> None:
    rows = pa.table({"z": [1, 2, 3], "s": [LONG] * 3})
    table = table_of(tmp_path, rows, limit=2 * MIB, use_dictionary=False)
    assert table.scan(columns=["z"]).to_arrow()["z"].to_pylist() == [1, 2, 3]
    with pytest.raises(LimitError):
        table.scan(columns=["z"], row_filter="s like 'x%'").to_arrow()


@every("use_dictionary", [False, True])
def test_a_footer_that_lies_about_its_pages_is_not_believed(use_dictionary: bool, tmp_path: Path) -> None:
    directory = tmp_path / str(use_dictionary)
    directory.mkdir()
    table = table_of(directory, pa.table({"s": ["x" * (512 * MIB)]}), 32 * MIB, use_dictionary=use_dictionary)
    lying(directory / "bomb.parquet")

    def refused() -> bytes:
        table.scan().plan_files()
        before = peak_memory.begin()
        with pytest.raises(LimitError, match="row group 0"):
            table.scan().to_arrow()
        return str(peak_memory.grown(before)).encode()

    assert int(in_child(refused)) < 256 * MIB


def test_values_that_repeat_those_before_them_are_counted_while_they_are_read(tmp_path: Path) -> None:
    """The threat: in DELTA_BYTE_ARRAY, neither pages nor a dictionary tell how long all values are together."""
    rows = pa.table({"s": pa.array(["x" * 65536] * 4000)})
    options = {"use_dictionary": False, "column_encoding": {"s": "DELTA_BYTE_ARRAY"}}
    found = table_of(tmp_path, rows, **options).scan().to_arrow()
    assert found["s"].to_pylist() == rows["s"].to_pylist()
    table = table_of(tmp_path, rows, limit=64 * MIB, **options)

    def refused() -> bytes:
        table.scan().plan_files()
        before = peak_memory.begin()
        with pytest.raises(LimitError, match=r"row group 0 has .* at most 67,108,864"):
            table.scan().to_arrow()
        return str(peak_memory.grown(before)).encode()

    assert int(in_child(refused)) < 192 * MIB


def test_a_long_entry_of_a_dictionary_that_few_rows_have_is_not_refused(tmp_path: Path) -> None:
    names = pa.array([LONG, "a", "b"])
    flat = pa.DictionaryArray.from_arrays(pa.array([0, *[1, 2] * 5000], pa.int32()), names)
    lists = pa.ListArray.from_arrays([0, *range(1, 10_002)], flat)
    rows = pa.table({"s": flat, "l": lists})
    found = table_of(tmp_path, rows, limit=64 * MIB).scan().to_arrow()
    assert found["s"].to_pylist() == flat.to_pylist()
    assert found["l"].to_pylist() == lists.to_pylist()
    with pytest.raises(LimitError, match="row group 0 has 2,"):
        table_of(tmp_path, rows, limit=2 * MIB).scan().to_arrow()


def test_lists_of_one_row_are_bounded_too(tmp_path: Path) -> None:
    flat = repeated(1000)
    rows = pa.table({"l": pa.ListArray.from_arrays([0, 1000], flat)})
    with pytest.raises(LimitError, match="row group 0 has 1,048,"):
        table_of(tmp_path, rows, limit=512 * MIB).scan().to_arrow()


def test_the_table_itself_cannot_raise_the_limit(tmp_path: Path) -> None:
    location = table_of(tmp_path, pa.table({"s": ["x"]})).metadata_location
    text = Path(location).read_text()
    Path(location).write_text(text.replace('"properties": {', f'"properties": {{"{LIMIT}": "1000000000000", ', 1))
    if LIMIT not in Path(location).read_text():
        Path(location).write_text(text[:-1] + f', "properties": {{"{LIMIT}": "1000000000000"}}}}')
    with pytest.raises(FormatError, match=LIMIT):
        open_table(location, None)


@every("wrong", ["0", "-1", "1e9", "4 GiB", "", "1.5", "²"])
def test_a_limit_that_is_no_positive_number_of_bytes_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match=f"{LIMIT} must be a positive number of bytes"):
        EncryptedFileIO({LIMIT: wrong})
