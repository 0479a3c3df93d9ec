"""What a file has as what a scan asks for."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import ListType, LongType, MapType, StringType, StructType

from tests.iceberg.avro_lake import Lake, optional


def test_null_lists_and_maps_of_structs_stay_null_in_row_groups_of_several_batches(tmp_path: Path) -> None:
    # Arrow reads 131,072 rows at a time; what comes after them are slices.
    count = 140_000
    lake = Lake(tmp_path)
    schema = Schema(
        optional(1, "li", ListType(2, StructType(optional(3, "x", LongType())), False)),
        optional(4, "ma", MapType(5, StringType(), 6, StructType(optional(7, "y", LongType())), False)),
    )
    numbers = pa.array(range(count), pa.int64())
    null = pa.array([number % 3 == 0 for number in range(count)])
    offsets = pa.array(range(count + 1), pa.int32())
    arrow = schema_to_pyarrow(schema)
    lists = pa.LargeListArray.from_arrays(
        offsets.cast(pa.int64()),
        pa.StructArray.from_arrays([numbers], fields=list(arrow.field("li").type.value_type)),
        type=arrow.field("li").type,
        mask=null,
    )
    maps = pa.MapArray.from_arrays(
        offsets,
        numbers.cast(pa.string()).cast(pa.large_string()),
        pa.StructArray.from_arrays([numbers], fields=list(arrow.field("ma").type.item_type)),
        type=arrow.field("ma").type,
        mask=null,
    )
    written = pa.table([lists, maps], schema=arrow)
    pq.write_table(written, lake.parquet, row_group_size=count)
    found = lake.read(schema, path=lake.parquet)
    found.validate(full=True)
    assert found["li"].null_count == found["ma"].null_count == (count + 2) // 3
    for start in (0, 131_060, count - 20):
        assert found.slice(start, 20).to_pylist() == written.slice(start, 20).to_pylist()
