"""Partition transforms of Arrow columns, against PyIceberg's transforms of single values."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

import pyarrow
import pytest
from pyiceberg import transforms, types

from ags1.iceberg.writing.partitioning import transformed

KINDS: dict[Any, pyarrow.DataType] = {
    types.IntegerType(): pyarrow.int32(),
    types.LongType(): pyarrow.int64(),
    types.DateType(): pyarrow.date32(),
    types.TimestampType(): pyarrow.timestamp("us"),
    types.TimestamptzType(): pyarrow.timestamp("us", "UTC"),
    types.TimestampNanoType(): pyarrow.timestamp("ns"),
    types.TimestamptzNanoType(): pyarrow.timestamp("ns", "UTC"),
    types.StringType(): pyarrow.large_string(),
    types.BinaryType(): pyarrow.large_binary(),
    types.FixedType(7): pyarrow.binary(7),
    types.DecimalType(9, 2): pyarrow.decimal128(9, 2),
    types.DecimalType(38, 10): pyarrow.decimal128(38, 10),
}
TRANSFORMS: list[Any] = [
    transforms.YearTransform(), transforms.MonthTransform(), transforms.DayTransform(), transforms.HourTransform(),
    transforms.TruncateTransform(1), transforms.TruncateTransform(10), transforms.BucketTransform(97),
]  # fmt: skip


def some(kind: Any, rng: random.Random) -> list[Any]:
    """Values as PyIceberg's transforms take them: whole numbers for dates and timestamps."""
    found: list[Any] = [None]
    for _ in range(300):
        if isinstance(kind, types.StringType):
            found.append("".join(rng.choices("az\u00e9\U0001f511", k=rng.randrange(12))))
        elif isinstance(kind, (types.BinaryType, types.FixedType)):
            found.append(rng.randbytes(7 if isinstance(kind, types.FixedType) else rng.randrange(12)))
        elif isinstance(kind, types.DecimalType):
            # A negative one of the most digits has one more once it is truncated.
            number = rng.choice((0, 1, rng.randrange(100), 10**kind.precision - 1, rng.randrange(10**kind.precision)))
            found.append(Decimal((rng.randrange(2), tuple(map(int, str(number))), -kind.scale)))
        else:
            per_day = {"us": 86_400_000_000, "ns": 86_400_000_000_000}.get(getattr(KINDS[kind], "unit", ""), 1)
            found.append(rng.choice((0, -1, 1, rng.randrange(-30_000, 30_000))) * per_day + rng.choice((0, -1, 1)))
    return found


@pytest.mark.parametrize("transform", TRANSFORMS, ids=str)
def test_columns_are_transformed_as_single_values_are(transform: Any) -> None:
    rng = random.Random(str(transform))
    for kind, arrow in KINDS.items():
        if transform.can_transform(kind):
            values, function = some(kind, rng), transform.transform(kind)
            made = transformed(transform, kind, pyarrow.array(values, arrow))
            found = (made.cast(pyarrow.int64()) if made.type == arrow == pyarrow.date32() else made).to_pylist()
            assert found == [None if each is None else function(each) for each in values], kind
