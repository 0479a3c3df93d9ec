"""Row filters and what is left out by them: no partition, file or row group in which a row passes."""

from __future__ import annotations

import datetime
import decimal
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.expressions import And, GreaterThan, In, IsNull, LessThan, Not, NotIn, NotNull, Or, StartsWith
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
)

from ags1.iceberg.scan.row_filter import RowFilter, of_file, of_partition, of_summaries
from ags1.iceberg.writing.partitioning import raw_of
from tests.iceberg.avro_lake import optional, required
from tests.iceberg.delete_lake import DeleteLake

NAN = math.nan


def partitioned(tmp_path: Path, kind: Any, transform: Any, partitions: dict[Any, list[Any]]) -> DeleteLake:
    schema = Schema(required(1, "id", LongType()), optional(2, "c", kind))
    spec = PartitionSpec(PartitionField(2, 1000, transform, "c_part"), spec_id=0)
    lake = DeleteLake(tmp_path, schema, specs=[spec])
    number = 0
    for partition, values in partitions.items():
        lake.add([{"id": number + index, "c": value} for index, value in enumerate(values)], 1, partition=[partition])
        number += len(values)
    return lake


def test_partitions_of_null_are_filtered_like_others(tmp_path: Path) -> None:
    table = partitioned(tmp_path, LongType(), IdentityTransform(), {None: [None, None], 1: [1], 5: [5]}).open()
    for row_filter, wanted, files in (
        ("c < 3 or c > 4", [2, 3], 2),
        ("c < 3 or c is null", [0, 1, 2], 2),
        ("c is null or id = 3", [0, 1, 3], 3),
        ("not c = 1", [3], 1),
        ("c not in (1, 2)", [0, 1, 3], 2),
        ("c is null", [0, 1], 1),
    ):
        scan = table.scan(row_filter=row_filter)
        assert sorted(scan.to_arrow()["id"].to_pylist()) == wanted, row_filter
        assert scan.count() == len(wanted)
        assert len(scan.plan_files()) == files, row_filter


@pytest.mark.parametrize(("kind", "bits"), [(IntegerType(), 32), (LongType(), 32), (LongType(), 64)])
def test_the_smallest_numbers_are_found_though_their_truncation_wraps_around(
    tmp_path: Path, kind: Any, bits: int
) -> None:
    smallest, largest = -(1 << bits - 1), (1 << bits - 1) - 1
    # As Java has it: no multiple of 10 is as small as the smallest number.
    wrapped = smallest - smallest % 10 + (1 << bits)
    assert wrapped > largest - 10
    table = partitioned(tmp_path, kind, TruncateTransform(10), {wrapped: [smallest], 0: [5]}).open()
    for row_filter, wanted in ((f"c = {smallest}", [0]), ("c <= 1", [0]), ("c < 0 or c = 7", [0]), ("c >= 5", [1])):
        assert table.scan(row_filter=row_filter).to_arrow()["id"].to_pylist() == wanted, row_filter


def test_partitions_of_nan_are_unequal_to_any_number(tmp_path: Path) -> None:
    table = partitioned(tmp_path, DoubleType(), IdentityTransform(), {NAN: [NAN], 1.0: [1.0], None: [None]}).open()
    for row_filter, wanted in (("c > 0.0", [1]), ("c < 5.0", [1]), ("c != 1.0", [0]), ("c is nan", [0])):
        scan = table.scan(row_filter=row_filter)
        assert scan.to_arrow()["id"].to_pylist() == wanted
        assert len(scan.plan_files()) == 1


def test_a_file_whose_numbers_are_small_but_for_nan_is_read(tmp_path: Path) -> None:
    schema = Schema(required(1, "id", LongType()), optional(2, "c", DoubleType()))
    lake = DeleteLake(tmp_path, schema)
    lake.add([{"id": 0, "c": NAN}, {"id": 1, "c": 1.0}], 1, bounds={2: (1.0, 1.0)})
    assert lake.open().scan(row_filter="c != 1.0").to_arrow()["id"].to_pylist() == [0]


def test_row_groups_in_which_nothing_can_pass_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import ags1.iceberg.scan.table_scan as scanning

    schema = Schema(required(1, "id", LongType()), optional(2, "s", StringType()), optional(3, "d", DoubleType()))
    lake = DeleteLake(tmp_path, schema)
    lake.add([{"id": number, "s": f"{number:03}", "d": NAN if number == 80 else 1.0} for number in range(90)], 1)
    table = lake.open()
    kept: list[int] = []
    original = scanning._hopeful_groups

    def counting(*arguments: Any) -> Any:
        found = original(*arguments)
        kept.append(len(found))
        return found

    monkeypatch.setattr(scanning, "_hopeful_groups", counting)
    for row_filter, count, groups in (
        ("id < 30", 30, 1),
        ("id >= 30 and s < '060'", 30, 1),
        ("id = 29 or s like '08%'", 11, 2),
        ("s is null", 0, 0),
        ("d != 1.0", 1, 3),
    ):
        kept.clear()
        assert table.scan(row_filter=row_filter).to_arrow().num_rows == count
        assert kept == [groups], row_filter


def test_rows_of_whole_partitions_are_counted_without_reading_them(tmp_path: Path) -> None:
    lake = partitioned(tmp_path, StringType(), IdentityTransform(), {"eu": ["eu"] * 5, "us": ["us"] * 3, None: [None]})
    table = lake.open()
    for path in tmp_path.glob("*.parquet"):
        path.unlink()
    assert table.scan(row_filter="c = 'eu'").count() == 5
    assert table.scan(row_filter="c like 'e%' or c is null").count() == 6
    assert table.scan(row_filter="not c in ('eu', 'asia')").count() == 4


_VALUES: dict[Any, Any] = {
    LongType(): st.integers(-50, 50),
    StringType(): st.text("ab\u00e9\U0001f511", max_size=4),
    DoubleType(): st.sampled_from([NAN, -0.0, 0.0, 1.5, -2.0, math.inf, -math.inf]),
    DecimalType(6, 2): st.integers(-500, 500).map(lambda units: decimal.Decimal(units).scaleb(-2)),
    DateType(): st.integers(-800, 800).map(lambda days: datetime.date(1970, 1, 1) + datetime.timedelta(days)),
    TimestampType(): st.integers(-(10**14), 10**14).map(
        lambda count: datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=count)
    ),
}
_TRANSFORMS: dict[Any, list[Any]] = {
    LongType(): [TruncateTransform(10), BucketTransform(4)],
    StringType(): [TruncateTransform(2), BucketTransform(4)],
    DoubleType(): [],
    DecimalType(6, 2): [TruncateTransform(50), BucketTransform(4)],
    DateType(): [YearTransform(), MonthTransform(), DayTransform()],
    TimestampType(): [YearTransform(), MonthTransform(), DayTransform(), HourTransform()],
}


def _expressions(values: Any, text: bool) -> Any:
    from pyiceberg import expressions as written

    # PyIceberg has no literal of NaN.
    literal = values.filter(lambda value: value == value)
    one = st.builds(
        lambda made, value: made("c", value),
        st.sampled_from(
            [written.EqualTo, written.NotEqualTo, GreaterThan, LessThan, written.LessThanOrEqual]
            + [written.GreaterThanOrEqual]
            + [StartsWith, written.NotStartsWith] * text
        ),
        literal,
    )
    several = st.builds(
        lambda made, found: made("c", found), st.sampled_from([In, NotIn]), st.lists(literal, min_size=2)
    )
    null = st.sampled_from([IsNull("c"), NotNull("c"), written.IsNaN("c"), written.NotNaN("c")])
    return st.recursive(
        one | several | null,
        lambda below: st.builds(And, below, below) | st.builds(Or, below, below) | st.builds(Not, below),
        max_leaves=4,
    )


@given(data=st.data())
@settings(deadline=None, max_examples=250)
def test_no_range_excludes_a_value_that_is_there(data: Any) -> None:
    """Whatever is true of a row is possible by the metrics and the partition of its file, and by the manifest's."""
    from pyiceberg.conversions import to_bytes
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    kind = data.draw(st.sampled_from(list(_VALUES)))
    transform = data.draw(st.sampled_from([IdentityTransform(), *_TRANSFORMS[kind]]))
    schema = Schema(optional(2, "c", kind))
    row_filter = RowFilter(data.draw(_expressions(_VALUES[kind], isinstance(kind, StringType))), schema)
    rows = data.draw(st.lists(st.none() | _VALUES[kind], min_size=1, max_size=6))
    arrow = schema_to_pyarrow(schema, include_field_ids=False).field("c").type
    array = pa.array(rows, arrow)
    truths = row_filter.passing(lambda _: array, len(array)).to_pylist()

    def possible(ranges: Any) -> set[bool]:
        # What is null does not pass.
        return {bool(each) for each in row_filter.possible(ranges)}

    # As manifests have them.
    stored = [None if each is None else _stored(each) for each in rows]
    known = [each for each in stored if each is not None and each == each]
    nans = sum(each is not None and each != each for each in stored)
    metrics = {
        "value_counts": len(rows),
        "null_value_counts": rows.count(None),
        "nan_value_counts": nans if data.draw(st.booleans()) else None,
        "lower_bounds": to_bytes(kind, min(known)) if known else None,
        "upper_bounds": to_bytes(kind, max(known)) if known else None,
    }
    file = {name: [{"key": 1, "value": 5}, {"key": 2, "value": each}] for name, each in metrics.items()}
    file["record_count"] = len(rows)
    assert set(truths) <= possible(lambda column: [of_file(column, file)])
    field = PartitionField(2, 1000, transform, "part")
    made = [transform.transform(kind)(each) for each in stored]
    result = transform.result_type(kind)
    for truth, partition in zip(truths, made, strict=True):
        raw = {1000: raw_of(partition, result)}
        assert truth in possible(lambda column, of=raw: of_partition(column, [field], of))
    among = [each for each in made if each is not None and each == each]
    summary = {"contains_null": None in made, "contains_nan": nans > 0 and isinstance(transform, IdentityTransform)}
    if among:
        summary |= {"lower_bound": to_bytes(result, min(among)), "upper_bound": to_bytes(result, max(among))}
    assert set(truths) <= possible(lambda column: of_summaries(column, [field], [summary], [result]))


def _stored(value: Any) -> Any:
    if isinstance(value, datetime.datetime):
        return int(Fraction((value - datetime.datetime(1970, 1, 1)) // datetime.timedelta(microseconds=1)))
    if isinstance(value, datetime.date):
        return (value - datetime.date(1970, 1, 1)).days
    return value
