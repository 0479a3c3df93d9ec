"""Equality deletes: which rows they delete, and that nothing brings one back."""

from __future__ import annotations

import decimal
import itertools
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask
from pyiceberg.transforms import IdentityTransform, VoidTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from ags1 import FormatError, iceberg
from ags1.iceberg import EncryptedTable, load_table
from ags1.kms import MemoryKms
from tests.iceberg.delete_lake import DeleteLake

NAN = float("nan")


def column(field_id: int, name: str, kind: Any) -> NestedField:
    return NestedField(field_id, name, kind, required=False)


ID, TEXT = column(1, "id", LongType()), column(2, "text", StringType())
SCHEMA = Schema(ID, TEXT)


def rows(*ids: int | None) -> list[dict[str, Any]]:
    return [{"id": each, "text": f"row {each}"} for each in ids]


def ids(table: EncryptedTable, **options: Any) -> list[Any]:
    """The ids that a scan gives, which must be as many as it counts."""
    found = table.scan(columns=["id"], **options)
    answer = found.to_arrow().column("id").to_pylist()
    assert found.count() == len(answer)
    assert found.to_record_batches().read_all().num_rows == len(answer)
    return sorted(answer, key=repr)


# -- age ------------------------------------------------------------------------------------------------------


def test_a_delete_applies_to_strictly_older_files_only(tmp_path: Path) -> None:
    lake = DeleteLake(tmp_path, SCHEMA)
    for number in (1, 2, 3):
        lake.add([{"id": 7, "text": f"from {number}"}, {"id": number, "text": "kept"}], number)
    lake.add([{"id": 7}], 2, schema=Schema(ID), equality_ids=[1])
    table = lake.open()
    assert table.scan(row_filter="id = 7").to_arrow().column("text").to_pylist() == ["from 2", "from 3"]
    assert ids(table) == [1, 2, 3, 7, 7]


def test_of_several_deletes_of_a_row_the_newest_counts(tmp_path: Path) -> None:
    lake = DeleteLake(tmp_path, SCHEMA)
    for number in (1, 3, 4, 5):
        lake.add([{"id": 7, "text": f"from {number}"}], number)
    for number in (6, 2, 4):
        lake.add([{"id": 7 if number != 6 else 8}], number, schema=Schema(ID), equality_ids=[1])
    assert lake.open().scan().to_arrow().column("text").to_pylist() == ["from 4", "from 5"]


def test_the_plan_names_the_deletes_that_apply(tmp_path: Path) -> None:
    lake = DeleteLake(tmp_path, SCHEMA)
    lake.add(rows(1), 1)
    lake.add(rows(2), 3)
    old = lake.add([{"id": 1}], 2, schema=Schema(ID), equality_ids=[1])
    new = lake.add([{"id": 1}], 4, schema=Schema(ID), equality_ids=[1])
    first, second = lake.open().scan().plan_files()
    assert {each.file_path for each in first.delete_files} == {old, new}
    assert {each.file_path for each in second.delete_files} == {new}


# -- filters, projections, limits -----------------------------------------------------------------------------


@pytest.mark.parametrize("row_filter", ["text = 'row 3'", "id > 2", "id = 3", "text like 'row%'", "id is not null"])
def test_a_filter_brings_no_row_back(tmp_path: Path, row_filter: str) -> None:
    # The delete file has a further column, as some writers leave it, and no row in it passes a filter on that.
    lake = DeleteLake(tmp_path, SCHEMA)
    lake.add(rows(1, 2, 3, 4), 1)
    deleted = [{"id": 3, "text": "another"}]
    bounds = {1: (3, 3), 2: ("another", "another")}
    lake.add(deleted, 2, equality_ids=[1], bounds=bounds)
    assert 3 not in ids(lake.open(), row_filter=row_filter)


def test_columns_of_deletes_need_not_be_asked_for(tmp_path: Path) -> None:
    lake = DeleteLake(tmp_path, SCHEMA)
    lake.add(rows(1, 2, 3), 1)
    lake.add([{"id": 2}], 2, schema=Schema(ID), equality_ids=[1])
    table = lake.open()
    found = table.scan(columns=["text"]).to_arrow()
    assert found.column_names == ["text"]
    assert found.column("text").to_pylist() == ["row 1", "row 3"]
    both = table.scan(columns=["text", "id"]).to_arrow()
    assert both.to_pylist() == [{"id": 1, "text": "row 1"}, {"id": 3, "text": "row 3"}]


@pytest.mark.parametrize("limit", range(6))
def test_a_limit_counts_rows_that_are_left(tmp_path: Path, limit: int) -> None:
    lake = DeleteLake(tmp_path, SCHEMA)
    lake.add(rows(1, 2, 3), 1)
    lake.add(rows(4, 5, 6), 1)
    lake.add([{"id": each} for each in (1, 2, 4)], 2, schema=Schema(ID), equality_ids=[1])
    table = lake.open()
    found = table.scan(limit=limit)
    assert found.to_arrow().column("id").to_pylist() == [3, 5, 6][:limit]
    assert found.count() == min(limit, 3)


# -- places ---------------------------------------------------------------------------------------------------


SPECS = [
    PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "text"), spec_id=1),
    PartitionSpec(PartitionField(1, 1001, IdentityTransform(), "id"), spec_id=2),
    PartitionSpec(PartitionField(2, 1000, VoidTransform(), "text"), spec_id=3),
    PartitionSpec(spec_id=4),
]


def partitioned(directory: Path) -> DeleteLake:
    lake = DeleteLake(directory, SCHEMA, specs=SPECS)
    for text in ("a", "b"):
        lake.add([{"id": 1, "text": text}, {"id": 2, "text": text}], 1, spec_id=1, partition=[text])
    lake.add([{"id": 1, "text": "a"}], 1, spec_id=2, partition=[1])
    lake.add([{"id": 1, "text": "a"}], 1, spec_id=4)
    return lake


@pytest.mark.parametrize(
    ("spec_id", "partition", "left"),
    [(1, ["a"], 3), (1, ["b"], 3), (1, ["c"], 4), (1, [None], 4), (2, [1], 3), (3, [None], 0), (4, [], 0)],
)
def test_a_delete_applies_to_its_own_partition_or_everywhere(
    tmp_path: Path, spec_id: int, partition: list[Any], left: int
) -> None:
    lake = partitioned(tmp_path)
    lake.add([{"id": 1}], 2, schema=Schema(ID), equality_ids=[1], spec_id=spec_id, partition=partition)
    table = lake.open()
    found = table.scan().to_arrow()
    assert found.num_rows == 2 + left
    assert found.column("id").to_pylist().count(1) == left
    assert ids(table, row_filter="id = 1") == [1] * left
    assert table.scan(row_filter="text = 'b' and id = 1").count() == (
        0 if (spec_id, partition) in ((1, ["b"]), (3, [None]), (4, [])) else 1
    )


def test_deletes_of_a_partition_of_nan_apply(tmp_path: Path) -> None:
    ratio = column(3, "ratio", DoubleType())
    spec = PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "ratio"), spec_id=0)
    lake = DeleteLake(tmp_path, Schema(ID, ratio), specs=[spec])
    path = lake.add([{"id": 1, "ratio": NAN}, {"id": 2, "ratio": NAN}, {"id": 3, "ratio": NAN}], 1, partition=[NAN])
    lake.add([{"id": 1}], 2, schema=Schema(ID), equality_ids=[1], partition=[NAN])
    positions = Schema(
        NestedField(2147483546, "file_path", StringType(), required=True),
        NestedField(2147483545, "pos", LongType(), required=True),
    )
    lake.add(
        [{"file_path": path, "pos": 2}],
        2,
        schema=positions,
        content=DataFileContent.POSITION_DELETES,
        partition=[NAN],
    )
    assert ids(lake.open()) == [2]


# -- equality -------------------------------------------------------------------------------------------------


def test_null_equals_null_and_nothing_else(tmp_path: Path) -> None:
    lake = DeleteLake(tmp_path, SCHEMA)
    lake.add(rows(None, 0, 1), 1)
    assert ids(lake.open()) == [0, 1, None]
    lake.add([{"id": None}], 2, schema=Schema(ID), equality_ids=[1])
    assert ids(lake.open()) == [0, 1]


def test_all_columns_of_a_delete_must_be_equal(tmp_path: Path) -> None:
    third = column(3, "third", LongType())
    schema = Schema(ID, TEXT, third)
    values: tuple[list[Any], ...] = ([None, 1, 2], [None, "a", "b"], [None, 1, 2])
    everything = [dict(zip(("id", "text", "third"), each, strict=True)) for each in itertools.product(*values)]
    deleted = everything[::4]
    lake = DeleteLake(tmp_path, schema)
    lake.add(everything, 1)
    lake.add(deleted, 2, equality_ids=[3, 1, 2])
    found = lake.open().scan().to_arrow().to_pylist()
    assert found == [each for each in everything if each not in deleted]


def test_deletes_by_different_columns_apply_together(tmp_path: Path) -> None:
    lake = DeleteLake(tmp_path, SCHEMA)
    lake.add(rows(1, 2, 3, 4), 1)
    lake.add([{"id": 1}], 2, schema=Schema(ID), equality_ids=[1])
    lake.add([{"text": "row 2"}], 2, schema=Schema(TEXT), equality_ids=[2])
    lake.add([{"id": 3, "text": "row 4"}, {"id": 4, "text": "row 4"}], 3, equality_ids=[1, 2])
    assert ids(lake.open()) == [3]


_VALUES: list[tuple[Any, list[Any]]] = [
    (BooleanType(), [True, False]),
    (IntegerType(), [-(2**31), 0]),
    (LongType(), [2**63 - 1, 0]),
    (FloatType(), [NAN, 0.0, -0.0, float("inf")]),
    (DoubleType(), [NAN, 0.0, -0.0, 1e-320]),
    (DecimalType(38, 10), [decimal.Decimal("1234567890123456789012345678.0123456789"), decimal.Decimal(0)]),
    (DateType(), [-1, 0]),
    (TimeType(), [0, 86_399_999_999]),
    (TimestampType(), [-1, 0]),
    (TimestamptzType(), [-1, 0]),
    (StringType(), ["", "\U0001f511", "a" * 300]),
    (UUIDType(), [bytes(16), b"\xff" * 16]),
    (FixedType(4), [bytes(4), b"\x00\xff\x7f\x80"]),
    (BinaryType(), [b"", b"\x00"]),
]


@pytest.mark.parametrize(("kind", "values"), _VALUES, ids=[str(kind) for kind, _ in _VALUES])
def test_each_value_deletes_itself_and_no_other(tmp_path: Path, kind: Any, values: list[Any]) -> None:
    target = schema_to_pyarrow(kind)
    storage = target.storage_type if isinstance(target, pa.BaseExtensionType) else target
    plain = [pa.scalar(each, storage) for each in values] + [pa.scalar(None, storage)]
    python = [each.as_py() for each in plain]
    schema = Schema(ID, column(5, "value", kind))
    for index in range(len(python)):
        directory = tmp_path / str(index)
        directory.mkdir()
        lake = DeleteLake(directory, schema)
        lake.add([{"id": number, "value": each} for number, each in enumerate(python)], 1)
        lake.add([{"value": python[index]}], 2, schema=Schema(schema.fields[1]), equality_ids=[5])
        assert ids(lake.open()) == [each for each in range(len(python)) if each != index]


# -- schemas --------------------------------------------------------------------------------------------------


def test_columns_are_found_by_id_in_files_of_every_schema(tmp_path: Path) -> None:
    narrow = Schema(column(1, "number", IntegerType()), column(4, "price", DecimalType(5, 2)))
    wide = Schema(column(4, "id", DecimalType(12, 2)), column(1, "number", LongType()))
    for field_id, value, name in ((1, 2, "number"), (4, 1, "price")):
        directory = tmp_path / name
        directory.mkdir()
        lake = DeleteLake(directory, narrow, wide)
        lake.add([{"number": each, "price": each} for each in (1, 2)], 1, schema=narrow)
        lake.add([{"number": each, "id": each} for each in (1, 2)], 1, schema=wide)
        lake.add([{name: value}], 2, schema=narrow.select(name), equality_ids=[field_id])
        assert lake.open().scan().to_arrow().column("number").to_pylist() == [3 - value if field_id == 1 else 2] * 2


def test_a_dropped_column_still_deletes(tmp_path: Path) -> None:
    other = column(9, "text", LongType())
    lake = DeleteLake(tmp_path, SCHEMA, Schema(ID, other))
    lake.add(rows(1, 2), 1, schema=SCHEMA)
    lake.add([{"id": 3, "text": 3}], 1)
    lake.add([{"text": "row 2"}], 2, schema=Schema(TEXT), equality_ids=[2])
    table = lake.open()
    assert table.scan().to_arrow().to_pylist() == [{"id": 1, "text": None}, {"id": 3, "text": 3}]


def test_a_column_that_older_files_lack_is_null_in_them(tmp_path: Path) -> None:
    lake = DeleteLake(tmp_path, Schema(ID), SCHEMA)
    lake.add([{"id": 1}], 1, schema=Schema(ID))
    lake.add(rows(2), 1)
    lake.add([{"text": None}], 2, schema=Schema(TEXT), equality_ids=[2])
    assert ids(lake.open()) == [2]


def test_a_column_with_a_default_has_it_in_older_files(tmp_path: Path) -> None:
    text = NestedField(2, "text", StringType(), required=False, initial_default="from the start")
    lake = DeleteLake(tmp_path, Schema(ID), Schema(ID, text))
    lake.add([{"id": 1}], 1, schema=Schema(ID))
    lake.add(rows(2), 1)
    lake.add([{"text": "from the start"}], 2, schema=Schema(TEXT), equality_ids=[2])
    assert ids(lake.open()) == [2]


def test_fields_of_structs_delete(tmp_path: Path) -> None:
    spot = column(11, "spot", StructType(column(12, "x", LongType()), column(13, "y", LongType())))
    place = column(10, "place", StructType(spot, column(14, "city", StringType())))
    schema = Schema(ID, place)
    values = [
        {"spot": {"x": 1, "y": 1}, "city": "a"},
        {"spot": {"x": 1, "y": 2}, "city": "a"},
        {"spot": None, "city": "c"},
        None,
    ]
    lake = DeleteLake(tmp_path, schema)
    lake.add([{"id": number, "place": each} for number, each in enumerate(values)], 1)
    lake.add([{"place": {"spot": {"x": 1, "y": 2}}}], 2, schema=schema.select("place.spot"), equality_ids=[12, 13])
    table = lake.open()
    assert ids(table) == [0, 2, 3]
    assert table.scan(columns=["place.city"]).to_arrow().to_pylist() == [
        {"place": {"city": "a"}},
        {"place": {"city": "c"}},
        {"place": None},
    ]
    lake.add([{"place": None}], 3, schema=schema.select("place.spot.x"), equality_ids=[12])
    assert ids(lake.open()) == [0]


@pytest.mark.parametrize("deletes", [FileFormat.PARQUET, FileFormat.AVRO])
@pytest.mark.parametrize("data", [FileFormat.PARQUET, FileFormat.AVRO])
def test_formats_of_data_and_deletes_may_differ(tmp_path: Path, data: FileFormat, deletes: FileFormat) -> None:
    lake = DeleteLake(tmp_path, SCHEMA)
    lake.add(rows(1, None, 3), 1, file_format=data)
    lake.add([{"id": None}, {"id": 3}], 2, schema=Schema(ID), equality_ids=[1], file_format=deletes)
    table = lake.open()
    assert ids(table) == [1]
    assert table.scan(columns=["text"], row_filter="id > 1 or text like 'row%'").to_arrow().to_pylist() == [
        {"text": "row 1"}
    ]


def test_many_deletes_and_an_empty_delete_file(tmp_path: Path) -> None:
    lake = DeleteLake(tmp_path, SCHEMA)
    lake.add(rows(*range(3000)), 1)
    lake.add(rows(*range(3000, 3010)), 1)
    for start in range(3):
        deleted = [{"id": each} for each in range(start, 3000, 4)]
        lake.add(deleted, 2 + start, schema=Schema(ID), equality_ids=[1])
    lake.add([], 9, schema=Schema(ID), equality_ids=[1])
    assert ids(lake.open()) == sorted([*range(3, 3000, 4), *range(3000, 3010)], key=repr)


def test_only_an_empty_delete_file_deletes_nothing(tmp_path: Path) -> None:
    lake = DeleteLake(tmp_path, SCHEMA)
    lake.add(rows(1, 2), 1)
    lake.add([], 2, equality_ids=[1, 2])
    assert ids(lake.open()) == [1, 2]


# -- what cannot be applied -----------------------------------------------------------------------------------


def refused(lake: DeleteLake, message: str) -> None:
    scan = lake.open().scan()
    for read in (scan.to_arrow, scan.count, lambda: scan.to_record_batches().read_all()):
        with pytest.raises(FormatError, match=message):
            read()


def test_a_delete_without_columns_is_refused(tmp_path: Path) -> None:
    for field_ids in ([],):
        lake = DeleteLake(tmp_path, SCHEMA)
        lake.add(rows(1), 1)
        lake.add([{"id": 1}], 2, schema=Schema(ID), equality_ids=field_ids)
        refused(lake, r"1-equality_deletes\.parquet: this equality delete file does not say which columns it compares")


def test_a_column_that_the_table_never_had_is_refused(tmp_path: Path) -> None:
    lake = DeleteLake(tmp_path, SCHEMA)
    lake.add(rows(1), 1)
    lake.add([{"id": 1}], 2, schema=Schema(ID), equality_ids=[99])
    refused(lake, r"1-equality_deletes\.parquet: .*a column with the id 99 is needed, which the table never had")


def test_a_delete_file_without_its_column_is_refused(tmp_path: Path) -> None:
    lake = DeleteLake(tmp_path, SCHEMA)
    lake.add(rows(1), 1)
    lake.add([{"id": 1}], 2, schema=Schema(ID), equality_ids=[2])
    refused(lake, r"1-equality_deletes\.parquet: cannot be read: .*could not be found in the file")


@pytest.mark.parametrize("field_id", [20, 21, 30])
def test_columns_that_are_no_single_value_are_refused(tmp_path: Path, field_id: int) -> None:
    items = column(20, "items", ListType(21, StringType(), element_required=False))
    pairs = column(30, "pairs", MapType(31, StringType(), 32, StringType(), value_required=False))
    lake = DeleteLake(tmp_path, Schema(ID, items, pairs))
    lake.add([{"id": 1, "items": ["a"]}], 1)
    lake.add([{"id": 1, "items": ["a"]}], 2, equality_ids=[field_id])
    refused(lake, r"1-equality_deletes\.parquet: .*which is no single value")


def test_tasks_of_pyiceberg_with_equality_deletes_are_refused(tmp_path: Path) -> None:
    lake = DeleteLake(tmp_path, SCHEMA)
    lake.add(rows(1), 1)
    lake.add([{"id": 1}], 2, schema=Schema(ID), equality_ids=[1])
    scan = lake.open().scan()
    (task,) = scan.plan_files()
    foreign = FileScanTask(task.file, task.delete_files)
    with pytest.raises(TypeError, match=r"tasks must be those of EncryptedTableScan.plan_files\(\)"):
        scan._arrow_scan().to_table([foreign])
    plan = scan.plan
    with pytest.raises(Exception, match="file_path"):
        ArrowScan(plan.table_metadata, plan.io, plan.projection(), plan.row_filter).to_table([task])


# -- conversions and changes --------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [("enable",), ("enable", "convert"), ("enable", "convert", "expire")])
def test_deletes_by_a_dropped_column_stay_true_through_conversions_and_changes(
    tmp_path: Path, steps: tuple[str, ...]
) -> None:
    other = column(9, "other", LongType())
    lake = DeleteLake(tmp_path, SCHEMA, Schema(ID, other))
    lake.add(rows(1, 2, 3, 4), 1, schema=SCHEMA)
    lake.add([{"text": "row 2"}, {"text": "row 3"}], 2, schema=Schema(TEXT), equality_ids=[2])
    lake.add(rows(2, 5), 3, schema=SCHEMA)
    lake.open()
    (tmp_path / "metadata").mkdir()
    (tmp_path / "00001.metadata.json").rename(tmp_path / "metadata" / "00001-a.metadata.json")
    kms = MemoryKms({"a": bytes(16), "b": bytes(32)})
    table = load_table(None, str(tmp_path), kms=kms, allow_plaintext=True)
    expected: dict[int, int | None] = dict.fromkeys((1, 2, 4, 5))

    def check() -> None:
        found = table.refresh().scan().to_arrow()
        assert sorted(zip(found["id"].to_pylist(), found["other"].to_pylist(), strict=True)) == sorted(expected.items())

    check()
    iceberg.encrypt_table(table, key_id="a", steps=steps)
    check()
    # Rows that are new are younger than any delete, and so are those that are moved.
    table.upsert(new_rows({3: 30, 4: 40, 6: 60}), on=["id"])
    expected |= {3: 30, 4: 40, 6: 60}
    check()
    table.delete("id = 1 or other = 60")
    del expected[1], expected[6]
    check()
    table.overwrite(new_rows({7: 70}), "id = 5")
    del expected[5]
    expected[7] = 70
    check()
    iceberg.rekey_table(table, key_id="b", data_keys=True, expire=True)
    check()
    assert table.verify().ok
    table.delete("id = 2")
    del expected[2]
    iceberg.decrypt_table(table, expire=True)
    check()


def new_rows(values: dict[int, int]) -> pa.Table:
    return pa.table({"id": list(values), "other": list(values.values())})
