"""Partition transforms over Arrow arrays.

    identity  void  year  month  day  hour  truncate[W]  bucket[N]

What Arrow has no function for is done once for each different value, by PyIceberg's own transforms. Source: Iceberg
table spec, "Partition Transforms" and "Appendix B: 32-bit Hash Requirements".
"""

from __future__ import annotations

from typing import Any

import pyarrow
import pyarrow.compute as compute
from pyiceberg import types as iceberg
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)

from ags1.errors import UnsupportedError

_EPOCH_YEAR, _MONTHS = 1970, 12
_NANOSECONDS = (iceberg.TimestampNanoType, iceberg.TimestamptzNanoType)
_WHOLE = (iceberg.IntegerType, iceberg.LongType)
# Hashed as 64-bit integers.
_HASHED_AS_LONG = (
    *_WHOLE,
    iceberg.DateType,
    iceberg.TimeType,
    iceberg.TimestampType,
    iceberg.TimestamptzType,
    *_NANOSECONDS,
)


def check_transform(transform: Any, kind: Any, name: str) -> None:
    """Refuse a transform that is not known, or not for this type; an UnsupportedError names the field."""
    if not isinstance(transform, VoidTransform) and not transform.can_transform(kind):
        raise UnsupportedError(
            f"the field {name} has the transform {transform} of {kind}, which is not known here: write this table with "
            "Spark"
        )


def transformed(transform: Any, kind: Any, array: pyarrow.Array) -> pyarrow.Array:
    """What a transform makes of a column of a type: null where the column is; of extension types, of their storage."""
    if isinstance(array.type, pyarrow.BaseExtensionType):
        array = array.storage
    if isinstance(transform, IdentityTransform):
        return array
    if isinstance(transform, VoidTransform):
        return pyarrow.nulls(len(array), array.type)
    if isinstance(transform, YearTransform):
        return compute.subtract(compute.year(array), _EPOCH_YEAR).cast(pyarrow.int32())
    if isinstance(transform, MonthTransform):
        years = compute.multiply(compute.subtract(compute.year(array), _EPOCH_YEAR), _MONTHS)
        return compute.add(years, compute.subtract(compute.month(array), 1)).cast(pyarrow.int32())
    if isinstance(transform, DayTransform):
        if isinstance(kind, iceberg.DateType):
            return array.cast(pyarrow.int32())
        return _per(array, kind, 86_400)
    if isinstance(transform, HourTransform):
        return _per(array, kind, 3_600)
    if isinstance(transform, TruncateTransform):
        return _truncated(array, kind, transform)
    assert isinstance(transform, BucketTransform)
    if isinstance(kind, _HASHED_AS_LONG):
        return _bucket(array, kind, transform.num_buckets)
    return _of_each_value(array, transform.transform(kind), pyarrow.int32())


def _per(array: pyarrow.Array, kind: Any, seconds: int) -> pyarrow.Array:
    """Whole days or hours since 1970, rounded down."""
    unit = seconds * (1_000_000_000 if isinstance(kind, _NANOSECONDS) else 1_000_000)
    return _floor_divided(array.cast(pyarrow.int64()), unit).cast(pyarrow.int32())


def _floor_divided(array: pyarrow.Array, divisor: int) -> pyarrow.Array:
    # Arrow's own rounds towards zero.
    quotient = compute.divide(array, divisor)
    rest = compute.subtract(array, compute.multiply(quotient, divisor))
    return compute.if_else(compute.less(rest, 0), compute.subtract(quotient, 1), quotient)


def _truncated(array: pyarrow.Array, kind: Any, transform: TruncateTransform[Any]) -> pyarrow.Array:
    width = transform.width
    if isinstance(kind, iceberg.StringType):
        return compute.utf8_slice_codeunits(array, 0, width)
    if isinstance(kind, iceberg.BinaryType):
        return compute.binary_slice(array, 0, width)
    if isinstance(kind, _WHOLE):
        # Unchecked, because the smallest numbers wrap around, as in Java.
        scalar = pyarrow.scalar(width, pyarrow.int64())
        long = array.cast(pyarrow.int64())
        made = compute.multiply(_floor_divided(long, width), scalar)
        return made.cast(array.type, safe=False)
    return _of_each_value(array, transform.transform(kind), array.type)


def _of_each_value(array: pyarrow.Array, transform: Any, kind: pyarrow.DataType) -> pyarrow.Array:
    encoded = array.dictionary_encode()
    return pyarrow.array([transform(each) for each in encoded.dictionary.to_pylist()], kind).take(encoded.indices)


# -- Murmur3 of 64-bit integers --------------------------------------------------------------------------------------


def _bucket(array: pyarrow.Array, kind: Any, count: int) -> pyarrow.Array:
    value = array
    if value.type != pyarrow.int64():
        value = value.cast(pyarrow.int32() if isinstance(kind, iceberg.DateType) else pyarrow.int64())
        value = value.cast(pyarrow.int64())
    if isinstance(kind, _NANOSECONDS):
        value = _floor_divided(value, 1000)
    halves = value.view(pyarrow.uint64())
    low = compute.bit_wise_and(halves, _wide(0xFFFFFFFF)).cast(pyarrow.uint32())
    high = compute.shift_right(halves, _wide(32)).cast(pyarrow.uint32())
    hashed = pyarrow.repeat(pyarrow.scalar(0, pyarrow.uint32()), len(array))
    for block in (low, high):
        block = compute.multiply(_rotated(compute.multiply(block, _word(0xCC9E2D51)), 15), _word(0x1B873593))
        mixed = _rotated(compute.bit_wise_xor(hashed, block), 13)
        hashed = compute.add(compute.multiply(mixed, _word(5)), _word(0xE6546B64))
    hashed = compute.bit_wise_xor(hashed, _word(8))
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        hashed = compute.bit_wise_xor(hashed, compute.shift_right(hashed, _word(shift)))
        hashed = compute.multiply(hashed, _word(factor))
    positive = compute.bit_wise_and(hashed, _word(0x7FFFFFFF)).cast(pyarrow.int32())
    quotient = compute.divide(positive, count)
    return compute.subtract(positive, compute.multiply(quotient, count)).cast(pyarrow.int32())


def _rotated(array: pyarrow.Array, bits: int) -> pyarrow.Array:
    left, right = compute.shift_left(array, _word(bits)), compute.shift_right(array, _word(32 - bits))
    return compute.bit_wise_or(left, right)


def _word(value: int) -> pyarrow.Scalar:
    return pyarrow.scalar(value, pyarrow.uint32())


def _wide(value: int) -> pyarrow.Scalar:
    return pyarrow.scalar(value, pyarrow.uint64())
