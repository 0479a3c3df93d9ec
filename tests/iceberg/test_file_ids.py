"""Imported files and old ones: columns without ids, columns that the table does not have, and types of before."""

from __future__ import annotations

import datetime
import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.expressions import AlwaysTrue, LessThan
from pyiceberg.io.pyarrow import ArrowScan, PyArrowFileIO, schema_to_pyarrow
from pyiceberg.manifest import FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask
from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.table.name_mapping import create_mapping_from_schema
from pyiceberg.types import (
    DateType,
    DoubleType,
    ListType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from ags1.errors import FormatError
from tests import checks
from tests.iceberg.avro_lake import Lake, data_file, optional

MAPPING = "schema.name-mapping.default"
NOON = datetime.datetime(2023, 1, 2, 12, 0, 0, 7)


def without_ids(field: pa.Field, draw: random.Random) -> pa.Field:
    """A field without ids, with further fields in its structs, in another order, and timestamps of nanoseconds."""
    kind = field.type
    if pa.types.is_struct(kind):
        below = [without_ids(each, draw) for each in kind]
        further = pa.list_(pa.int8()) if draw.random() < 0.5 else pa.decimal256(50, 2)
        below.insert(draw.randrange(len(below) + 1), pa.field(f"x{draw.random()}", further))
        draw.shuffle(below)
        kind = pa.struct(below)
    elif pa.types.is_map(kind):
        kind = pa.map_(without_ids(kind.key_field, draw), without_ids(kind.item_field, draw))
    elif pa.types.is_large_list(kind) or pa.types.is_list(kind):
        kind = pa.list_(without_ids(kind.value_field, draw))
    elif pa.types.is_timestamp(kind) and draw.random() < 0.5:
        kind = pa.timestamp("ns", kind.tz)
    return pa.field(field.name, kind, field.nullable)


class Rows:
    """A random schema, and values for it."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.last = 0
        self.schema = Schema(*self.fields(3))

    def id(self) -> int:
        self.last += 1
        return self.last

    def fields(self, depth: int) -> list[Any]:
        return [optional(self.id(), f"c{self.last}", self.type(depth)) for _ in range(self.draw.randrange(1, 4))]

    def type(self, depth: int) -> Any:
        kind = self.draw.randrange(8 if depth else 5)
        if kind < 5:
            return (LongType(), StringType(), DoubleType(), TimestampType(), TimestamptzType())[kind]
        if kind == 5:
            return ListType(self.id(), self.type(depth - 1), False)
        if kind == 6:
            return MapType(self.id(), StringType(), self.id(), self.type(depth - 1), False)
        return StructType(*self.fields(depth - 1))

    def value(self, kind: Any) -> Any:
        draw = self.draw
        # PyIceberg makes empty lists of null ones.
        if draw.random() < 0.2 and not isinstance(kind, (ListType, MapType)):
            return None
        if isinstance(kind, StructType):
            return {each.name: self.value(each.field_type) for each in kind.fields}
        if isinstance(kind, ListType):
            return [self.value(kind.element_type) for _ in range(draw.randrange(3))]
        if isinstance(kind, MapType):
            return [(f"k{each}", self.value(kind.value_type)) for each in range(draw.randrange(3))]
        if isinstance(kind, (TimestampType, TimestamptzType)):
            moment = NOON + datetime.timedelta(microseconds=draw.randrange(1 << 50))
            return moment.replace(tzinfo=datetime.timezone.utc) if isinstance(kind, TimestamptzType) else moment
        return {LongType: draw.randrange(1 << 60), StringType: str(draw.random()), DoubleType: draw.random()}[
            type(kind)
        ]

    def rows(self) -> list[Any]:
        kinds = {each.name: each.field_type for each in self.schema.fields}
        return [{name: self.value(kind) for name, kind in kinds.items()} for _ in range(20)]


def by_pyiceberg(path: str, schema: Schema) -> Any:
    metadata = TableMetadataV2(
        location="file:///table", last_column_id=1000, schemas=[schema], partition_specs=[{"spec-id": 0, "fields": []}]
    )
    file = data_file(path, FileFormat.PARQUET)
    file.spec_id = 0
    return ArrowScan(metadata, PyArrowFileIO(), schema, AlwaysTrue()).to_table([FileScanTask(file)])


def pruned(mapping: Any, draw: random.Random) -> Any:
    """A mapping with entries that have no id."""
    return [*mapping, {"names": [f"n{draw.random()}"]}]


@checks.every("seed", range(25))
def test_imported_files_have_the_rows_that_pyiceberg_reads_from_files_with_ids(tmp_path: Path, seed: int) -> None:
    found = Rows(seed)
    rows = found.rows()
    lake = Lake(tmp_path)
    lake.write_parquet(found.schema, rows)
    expected = by_pyiceberg(lake.parquet, found.schema).to_pylist()
    plain = without_ids(pa.field("all", pa.struct(list(schema_to_pyarrow(found.schema)))), found.draw).type
    pq.write_table(pa.Table.from_pylist(rows, schema=pa.schema(list(plain))), lake.parquet)
    mapping = json.loads(create_mapping_from_schema(found.schema).model_dump_json())
    properties = {MAPPING: json.dumps(pruned(mapping, found.draw))}
    assert lake.read(found.schema, path=lake.parquet, properties=properties).to_pylist() == expected


def test_without_ids_and_a_mapping_columns_are_found_by_position(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    pq.write_table(pa.table({"b": [1], "a": ["x"], "more": [2]}), lake.parquet)
    schema = Schema(optional(1, "a", LongType()), optional(2, "b", StringType()), optional(9, "late", LongType()))
    assert lake.read(schema, path=lake.parquet).to_pylist() == [{"a": 1, "b": "x", "late": None}]
    pq.write_table(pa.table({"b": ["x"], "a": [1]}), lake.parquet)
    with pytest.raises(FormatError, match=r"column 'a' is (large_)?string in the file and long in the table"):
        lake.read(schema, path=lake.parquet)


def test_what_is_in_a_list_without_ids_and_a_mapping_is_refused(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    pq.write_table(pa.table({"a": [[1]]}), lake.parquet)
    schema = Schema(optional(1, "a", ListType(2, LongType(), False)))
    with pytest.raises(FormatError, match=r"column 'a' has no field ids.*schema\.name-mapping\.default"):
        lake.read(schema, path=lake.parquet)


def test_columns_without_ids_beside_others_with_ids_are_left_out(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    own = pa.field("a", pa.int64(), metadata={"PARQUET:field_id": "1"})
    pq.write_table(pa.table([[1], [2]], schema=pa.schema([pa.field("b", pa.int64()), own])), lake.parquet)
    schema = Schema(optional(1, "a", LongType()), optional(2, "b", LongType()))
    for properties in ({}, {MAPPING: create_mapping_from_schema(schema).model_dump_json()}):
        assert lake.read(schema, path=lake.parquet, properties=properties).to_pylist() == [{"a": 2, "b": None}]


def test_a_date_becomes_a_timestamp(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    days = [datetime.date(1, 1, 1), datetime.date(1969, 12, 31), None, datetime.date(9999, 12, 31)]
    nested = StructType(optional(3, "e", DateType()))
    old = Schema(optional(1, "d", DateType()), optional(2, "s", nested))
    lake.write_parquet(old, [{"d": each, "s": {"e": each}} for each in days])
    nested = StructType(optional(3, "e", TimestampType()))
    new = Schema(optional(1, "d", TimestampType()), optional(2, "s", nested))
    moments = [None if each is None else datetime.datetime.combine(each, datetime.time()) for each in days]
    expected = [{"d": each, "s": {"e": each}} for each in moments]
    assert lake.read(new, path=lake.parquet).to_pylist() == expected
    assert lake.read(new, path=lake.parquet, row_filter=LessThan("d", "1970-01-01T00:00:00")).num_rows == 2


@checks.every("kind", [pa.string(), pa.int64(), pa.binary()])
def test_a_type_that_does_not_fit_is_named_with_the_column(tmp_path: Path, kind: Any) -> None:
    lake = Lake(tmp_path)
    field = pa.field("d", kind, metadata={"PARQUET:field_id": "1"})
    pq.write_table(pa.table([pa.array([None], kind)], schema=pa.schema([field])), lake.parquet)
    with pytest.raises(
        FormatError, match=r"data\.parquet: the column 'd' is .* in the file and timestamp in the table"
    ):
        lake.read(Schema(optional(1, "d", TimestampType())), path=lake.parquet)
