"""Thrift structures in the files of other writers: read as they are meant, written back byte for byte."""

from __future__ import annotations

import io
import random
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ags1
from ags1.parquet.native.thrift import BINARY, I64, LIST, STRUCT, List, Struct
from ags1.parquet.structure import fields
from ags1.parquet.structure.fields import ColumnChunk, ColumnMetaData, FileMetaData, KeyValue, PageHeader, RowGroup
from tests.parquet import public_files
from tests.parquet.thrift_trees import plain


def footer_of(data: bytes) -> bytes:
    length = int.from_bytes(data[-8:-4], "little")
    return data[-8 - length : -8]


def tables() -> dict[str, pa.Table]:
    chance = random.Random(5)
    numbers = [None if number % 11 == 0 else number - 500 for number in range(1000)]
    few = range(40)
    return {
        "flat": pa.table({"n": numbers, "s": [str(chance.random()) for _ in numbers], "b": [bool(n) for n in numbers]}),
        "nested": pa.table({"l": [[n, n] for n in numbers], "m": [[{"a": n, "é": {"b": str(n)}}] for n in numbers]}),
        "decimal": pa.table({"d": pa.array(few).cast(pa.decimal128(30, 2)), "t": pa.array(few, pa.time64("us"))}),
        "empty": pa.table({"n": pa.array([], pa.int8())}),
        "wide": pa.table({f"column {number}": [number, number] for number in range(200)}),
    }


def by_pyarrow(table: pa.Table, **options: Any) -> bytes:
    file = io.BytesIO()
    pq.write_table(table, file, row_group_size=300, **options)
    return file.getvalue()


def by_duckdb(table: pa.Table, directory: Path) -> bytes:
    import duckdb

    path = directory / "duckdb.parquet"
    with duckdb.connect() as connection:
        connection.register("source", table)
        connection.execute(f"COPY source TO '{path}' (FORMAT parquet, ROW_GROUP_SIZE 400)")
    return path.read_bytes()


def by_polars(table: pa.Table) -> bytes:
    import polars

    file = io.BytesIO()
    polars.from_arrow(table).write_parquet(file, row_group_size=300)  # type: ignore[union-attr]
    return file.getvalue()


WRITERS: dict[str, Callable[[pa.Table, Path], bytes]] = {
    "pyarrow": lambda table, _: by_pyarrow(table),
    "pyarrow-index": lambda table, _: by_pyarrow(
        table, write_page_index=True, data_page_size=500, data_page_version="2.0", write_page_checksum=True
    ),
    "pyarrow-1.0": lambda table, _: by_pyarrow(table, version="1.0", use_dictionary=False, compression="none"),
    "duckdb": by_duckdb,
    "polars": lambda table, _: by_polars(table),
}


@pytest.mark.parametrize("shape", ["flat", "nested", "decimal", "empty", "wide"])
@pytest.mark.parametrize("writer", WRITERS)
def test_footers_and_pages_of_other_writers(writer: str, shape: str, tmp_path: Path) -> None:
    data = WRITERS[writer](tables()[shape], tmp_path)
    footer = footer_of(data)
    parsed = Struct.parse(footer, trailing=False)
    plain(parsed, STRUCT)
    assert parsed.encode() == footer
    expected = pq.read_metadata(io.BytesIO(data))
    assert parsed.get(FileMetaData.NUM_ROWS) == expected.num_rows
    headers = 0
    for group_number, group in enumerate(parsed.get(FileMetaData.ROW_GROUPS).structs()):
        for number, chunk in enumerate(group.get(RowGroup.COLUMNS).structs()):
            metadata = chunk.get(ColumnChunk.META_DATA)
            column = expected.row_group(group_number).column(number)
            assert metadata.integer(ColumnMetaData.NUM_VALUES) == column.num_values
            assert metadata.integer(ColumnMetaData.DATA_PAGE_OFFSET) == column.data_page_offset
            assert metadata.integer(ColumnMetaData.TOTAL_COMPRESSED_SIZE) == column.total_compressed_size
            path = [part.decode() for part in metadata.get(ColumnMetaData.PATH_IN_SCHEMA)]
            assert ".".join(path) == column.path_in_schema
            # An empty chunk of pyarrow has a dictionary page and no data page, at 0.
            position = column.dictionary_page_offset or column.data_page_offset
            end = position + column.total_compressed_size
            while position < end:
                header = Struct.parse(data, position, what="page header")
                assert header.encode() == data[position : position + header.nbytes]
                position += header.nbytes + header.get(PageHeader.COMPRESSED_PAGE_SIZE)
                headers += 1
            assert position == end
            for offset_id, length_id in (
                (ColumnChunk.OFFSET_INDEX_OFFSET, ColumnChunk.OFFSET_INDEX_LENGTH),
                (ColumnChunk.COLUMN_INDEX_OFFSET, ColumnChunk.COLUMN_INDEX_LENGTH),
            ):
                if offset_id in chunk:
                    offset, length = chunk.integer(offset_id, 0), chunk.integer(length_id, 0)
                    index = data[offset : offset + length]
                    assert Struct.parse(index, trailing=False).encode() == index
    assert headers >= expected.num_row_groups * expected.num_columns * (expected.num_rows > 0)


def test_a_changed_footer_is_read_by_pyarrow() -> None:
    data = by_pyarrow(tables()["flat"])
    footer = footer_of(data)
    parsed = Struct.parse(footer, trailing=False)
    # Moved by as much as is put in front of the pages.
    for group in parsed.get(FileMetaData.ROW_GROUPS).structs():
        for chunk in group.get(RowGroup.COLUMNS).structs():
            metadata = chunk.get(ColumnChunk.META_DATA)
            for field_id in (ColumnMetaData.DATA_PAGE_OFFSET, ColumnMetaData.DICTIONARY_PAGE_OFFSET):
                if field_id in metadata:
                    metadata.set(field_id, I64, metadata.integer(field_id) + 1_000_000)
    key_value = Struct()
    key_value.set(KeyValue.KEY, BINARY, b"moved")
    key_value.set(KeyValue.VALUE, BINARY, b"yes")
    if FileMetaData.KEY_VALUE_METADATA not in parsed:
        parsed.set(FileMetaData.KEY_VALUE_METADATA, LIST, List(STRUCT))
    parsed.get(FileMetaData.KEY_VALUE_METADATA).append(key_value)
    new = parsed.encode()
    body = data[:4] + bytes(1_000_000) + data[4 : -8 - len(footer)]
    moved = io.BytesIO(body + new + struct.pack("<I", len(new)) + b"PAR1")
    assert pq.read_metadata(moved).metadata[b"moved"] == b"yes"
    assert pq.read_table(moved).replace_schema_metadata().equals(tables()["flat"])


@pytest.mark.parametrize("name", sorted(public_files.PUBLIC_FILES))
def test_footers_of_the_encrypted_files_of_parquet_testing(name: str) -> None:
    footer = footer_of(public_files.PUBLIC_FILES[name].read())
    # FileCryptoMetaData before a sealed footer, or a footer before its signature.
    parsed = Struct.parse(footer)
    plain(parsed, STRUCT)
    assert parsed.encode() == footer[: parsed.nbytes]
    assert len(footer) - parsed.nbytes >= 28


def test_native_code_has_the_numbers_of_fields_that_python_has() -> None:
    text = (Path(ags1.get_include()) / "ags1" / "parquet" / "structure" / "fields.pxd").read_text()
    found = re.findall(r"cdef enum:  # (\w+) ?(\w*)\n((?:    .+\n)+)", text)
    assert len(found) == text.count("cdef enum")
    for struct_name, prefix, lines in found:
        for line in lines.splitlines():
            name, number = line.split(" = ")
            assert getattr(getattr(fields, struct_name), name.strip().removeprefix(prefix)) == int(number), name
