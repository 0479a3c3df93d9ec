"""Tables of other writers: never another row, before and after every conversion."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.expressions import EqualTo, LessThan
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType, TimestampType, TimeType

from ags1 import iceberg
from ags1.errors import UnsupportedError
from ags1.iceberg import EncryptedTable, create_table, load_table
from ags1.kms import MemoryKms
from tests.iceberg.delete_lake import DeleteLake
from tests.iceberg.foreign_tables import ForeignTable, edit_manifest, file_fields, rows_of

KMS = MemoryKms({"lake": bytes(range(16)), "other": bytes(16)})
ALL = ("enable", "convert", "expire")
LONGS = Schema(NestedField(1, "id", LongType()), NestedField(2, "n", LongType()))


def opened(directory: Path, *, plaintext: bool = False) -> EncryptedTable:
    return load_table(None, str(directory), kms=KMS, allow_plaintext=plaintext)


def committed(lake: DeleteLake, change: Any = lambda fields: None) -> EncryptedTable:
    """The table of a directory, whose metadata file was changed."""
    lake.open()
    at = lake.directory / "00001.metadata.json"
    fields = json.loads(at.read_text())
    change(fields)
    at.unlink()
    (lake.directory / "metadata").mkdir()
    (lake.directory / "metadata" / "v1.metadata.json").write_text(json.dumps(fields))
    return opened(lake.directory, plaintext=True)


@pytest.mark.parametrize("seed", range(50))
def test_random_foreign_tables_have_the_same_rows_after_every_conversion(tmp_path: Path, seed: int) -> None:
    made = ForeignTable(tmp_path / "t", seed)
    table = opened(made.directory, plaintext=True)
    assert rows_of(table.scan().to_arrow()) == made.rows
    threes = [each for each in made.rows if each[0] == "3"]
    nulls = [each for each in made.rows if each[0] == "None"]

    def check(table: EncryptedTable) -> None:
        assert rows_of(table.scan().to_arrow()) == made.rows
        assert rows_of(table.scan(row_filter="id = 3").to_arrow()) == threes
        assert rows_of(table.scan(row_filter="id is null").to_arrow()) == nulls
        for filter_text, part in (("part = 1.5", struct.pack(">d", 1.5).hex()), ("part is null", "null")):
            expected = [each for each in made.rows if each[1] == part]
            assert rows_of(table.scan(row_filter=filter_text).to_arrow()) == expected

    check(table)
    iceberg.encrypt_table(table, key_id="lake", steps=ALL)
    check(opened(made.directory))
    assert opened(made.directory).verify().ok
    if seed % 5 == 0:
        iceberg.rekey_table(opened(made.directory), key_id="other", data_keys=True, expire=True)
        opened(made.directory).compact(rewrite_all=True)
        check(opened(made.directory))
    if seed % 5 == 1:
        assert opened(made.directory).delete("id = 3").deleted_rows == len(threes)
        assert rows_of(opened(made.directory).scan().to_arrow()) == [each for each in made.rows if each[0] != "3"]
    if seed % 5 == 2:
        iceberg.decrypt_table(opened(made.directory), expire=True)
        check(opened(made.directory, plaintext=True))


# -- reserved names ------------------------------------------------------------------------------------------------

RESERVED = ("_pos", "_file", "_row_id", "_last_updated_sequence_number", "_deleted", "_spec_id", "_partition", "_POS")


@pytest.mark.parametrize("name", RESERVED)
def test_reserved_names_are_refused_when_a_table_is_created_changed_or_upgraded(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnsupportedError, match=f"column {name}: Iceberg reserves"):
        create_table(None, str(tmp_path / "new"), pa.schema([(name, pa.int64())]), kms=KMS, key_id="lake")
    table = create_table(None, str(tmp_path / "changed"), pa.schema([("id", pa.int64())]), kms=KMS, key_id="lake")
    with pytest.raises(UnsupportedError, match=f"column {name}"):
        table.table.update_schema().add_column(name, LongType()).commit()
    (tmp_path / "old").mkdir()
    lake = DeleteLake(tmp_path / "old", Schema(NestedField(1, "id", LongType()), NestedField(2, name, LongType())))
    lake.add([{"id": 1, name: 5}], 1)
    old = committed(lake)
    before = sorted(tmp_path.rglob("*"))
    assert [each for each in iceberg.plan_conversion(old, key_id="lake").problems if f"column {name}" in each]
    for steps in (("enable",), ("enable", "convert")):
        with pytest.raises(UnsupportedError, match=f"column {name}.*rename the column"):
            iceberg.encrypt_table(old, key_id="lake", steps=steps)
    assert sorted(tmp_path.rglob("*")) == before
    assert old.scan(columns=["id", name]).to_arrow().to_pylist() == [{"id": 1, name: 5}]


@pytest.mark.parametrize("name", ["_pos", "_file", "_row_id", "_last_updated_sequence_number"])
@pytest.mark.parametrize("values", [(2, 0, 1), (10**9, 10**9 + 1, 10**9 + 2), (-1, -2, -3)])
def test_a_column_with_a_reserved_name_is_no_position(tmp_path: Path, name: str, values: tuple[int, ...]) -> None:
    # Another engine has made it in version 3.
    lake = DeleteLake(
        tmp_path, Schema(NestedField(1, "id", LongType()), NestedField(2, name, LongType())), format_version=3
    )
    lake.add([{"id": place + 1, name: each} for place, each in enumerate(values)], 1)
    iceberg.encrypt_table(committed(lake), key_id="lake", steps=ALL)
    left = {place + 1: each for place, each in enumerate(values)}

    def rows() -> dict[int, int]:
        return {each["id"]: each[name] for each in opened(tmp_path).scan(columns=["id", name]).to_arrow().to_pylist()}

    assert opened(tmp_path).delete("id = 1").deleted_rows == 1
    del left[1]
    assert rows() == left
    opened(tmp_path).overwrite(pa.table({"id": [9], name: [77]}), "id = 2")
    del left[2]
    left[9] = 77
    assert rows() == left
    new = pa.table({"id": [3, 10], name: [78, 79]})
    if name in ("_row_id", "_last_updated_sequence_number"):
        with pytest.raises(UnsupportedError, match=f"column {name}" if name == "_row_id" else ".*"):
            opened(tmp_path).upsert(new, on=["id"]) if name == "_row_id" else opened(tmp_path).compact(rewrite_all=True)
    else:
        opened(tmp_path).upsert(new, on=["id"])
        left |= {3: 78, 10: 79}
    assert rows() == left


# -- metrics that contradict themselves ----------------------------------------------------------------------------


def pairs(**counts: int) -> list[dict[str, int]]:
    return [{"key": int(name.removeprefix("c")), "value": value} for name, value in counts.items()]


LOW, HIGH = struct.pack("<q", 1), struct.pack("<q", 9)
METRICS: dict[str, dict[str, Any]] = {
    "values without nulls": {"value_counts": pairs(c1=1), "null_value_counts": pairs(c1=3)},
    "as many values as nulls": {"value_counts": pairs(c1=3), "null_value_counts": pairs(c1=3)},
    "more nulls than rows": {"value_counts": pairs(c1=4), "null_value_counts": pairs(c1=7)},
    "only nulls, and bounds": {
        "value_counts": pairs(c1=4),
        "null_value_counts": pairs(c1=4),
        "lower_bounds": [{"key": 1, "value": LOW}],
        "upper_bounds": [{"key": 1, "value": LOW}],
    },
    "no nulls of fewer values": {
        "value_counts": pairs(c1=1),
        "null_value_counts": pairs(c1=0),
        "lower_bounds": [{"key": 1, "value": LOW}],
        "upper_bounds": [{"key": 1, "value": LOW}],
    },
    "bounds the wrong way round": {
        "lower_bounds": [{"key": 1, "value": HIGH}],
        "upper_bounds": [{"key": 1, "value": LOW}],
    },
}


@pytest.mark.parametrize("metrics", METRICS.values(), ids=METRICS.keys())
def test_metrics_that_contradict_themselves_hide_no_row_and_delete_none(
    tmp_path: Path, metrics: dict[str, Any]
) -> None:
    lake = DeleteLake(tmp_path, LONGS)
    lake.add([{"id": each, "n": 5} for each in (1, None, None, None)], 1)
    edit_manifest(lake, lambda entry: entry["data_file"].update(metrics))
    table = committed(lake)
    for text, count in (("id = 1", 1), ("id > 0", 1), ("id is not null", 1), ("id is null", 3), ("n = 5", 4)):
        assert table.scan(row_filter=text).count() == count, text
    iceberg.encrypt_table(table, key_id="lake", steps=ALL)
    table = opened(tmp_path)
    assert table.delete("id = 1").deleted_rows == 1
    assert table.scan().to_arrow()["id"].to_pylist() == [None] * 3


# -- logical types of partition values -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "arrow", "avro"),
    [
        (TimestampType(), pa.timestamp("us"), {"type": "long", "logicalType": "timestamp-millis"}),
        (TimestampType(), pa.timestamp("us"), {"type": "long", "logicalType": "local-timestamp-millis"}),
        (TimeType(), pa.time64("us"), {"type": "int", "logicalType": "time-millis"}),
    ],
)
def test_partition_values_in_milliseconds_are_scaled(tmp_path: Path, kind: Any, arrow: Any, avro: Any) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "at", kind))
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "at"), spec_id=0)
    lake = DeleteLake(tmp_path, schema, specs=[spec])
    moment = pa.scalar(7_200_000_000, pa.int64()).cast(arrow).as_py()

    def declare(schema: Any) -> None:
        (partition,) = (each["type"]["fields"] for each in file_fields(schema) if each["name"] == "partition")
        partition[0]["type"] = ["null", avro]

    for rows, options in (
        ([{"id": 1, "at": moment}, {"id": 2, "at": moment}], {}),
        ([{"id": 1}], {"schema": schema.select("id"), "equality_ids": [1]}),
    ):
        # The deletes are in microseconds.
        lake.add(rows, len(lake._manifests) + 1, partition=(7_200_000_000,), **options)
        if not options:
            edit_manifest(lake, lambda entry: entry["data_file"].update(partition={"at": 7_200_000}), declare)
    table = committed(lake)
    literal = "1970-01-01T02:00:00"

    def check(table: EncryptedTable) -> None:
        assert table.scan().to_arrow()["id"].to_pylist() == [2]
        if isinstance(kind, TimestampType):
            assert table.scan(row_filter=EqualTo("at", literal)).count() == 1
            assert table.scan(row_filter=LessThan("at", literal)).count() == 0

    check(table)
    iceberg.encrypt_table(table, key_id="lake", steps=ALL)
    check(opened(tmp_path))


# -- transforms of later versions ------------------------------------------------------------------------------------

FIELDS: list[dict[str, Any]] = [
    {"source-ids": [1, 2], "transform": "zorder"},
    {"source-ids": [1, 2], "transform": "bucket[4]"},
    {"source-id": 1, "source-ids": [1, 2], "transform": "identity"},
    {"source-id": 2, "transform": "bucketv2[4]"},
    {"source-id": 2, "transform": "truncatex"},
]


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field["transform"])
def test_transforms_of_later_versions_prune_nothing_and_are_written_back(tmp_path: Path, field: dict[str, Any]) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "s", StringType()))
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p"), spec_id=0)
    lake = DeleteLake(tmp_path, schema, specs=[spec], format_version=3)
    lake.add([{"id": 1, "s": "a"}, {"id": 2, "s": "b"}], 1, partition=("x",))
    specs = [{"spec-id": 0, "fields": [{**field, "field-id": 1000, "name": "p"}]}]
    order = {"order-id": 1, "fields": [{**field, "direction": "asc", "null-order": "nulls-first"}]}

    def later(fields: dict[str, Any]) -> None:
        fields["partition-specs"] = specs
        fields["sort-orders"].append(order)
        fields["default-sort-order-id"] = 1

    table = committed(lake, later)
    for text in ("s = 'a'", "id = 1", "s < 'b'"):
        assert table.scan(row_filter=text).to_arrow()["id"].to_pylist() == [1], text
    iceberg.encrypt_table(table, key_id="lake", steps=ALL)
    table = opened(tmp_path)
    assert table.delete("id = 2").deleted_rows == 1
    table = opened(tmp_path)
    assert table.scan(row_filter="s = 'a'").to_arrow()["id"].to_pylist() == [1]
    assert table.document.fields["partition-specs"] == specs
    assert table.document.fields["sort-orders"][1] == order
    with pytest.raises(UnsupportedError, match="write this table with Spark"):
        table.append(pa.table({"id": [3], "s": ["c"]}))
