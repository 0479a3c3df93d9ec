"""Partition transforms over Arrow arrays, by PyIceberg's own functions for them."""

from __future__ import annotations

from typing import Any

import pyarrow
import pyarrow.compute as compute
from pyiceberg import types as iceberg
from pyiceberg.transforms import BucketTransform, HourTransform, TruncateTransform, VoidTransform

from ags1.errors import UnsupportedError

_NANOSECONDS = (iceberg.TimestampNanoType, iceberg.TimestamptzNanoType)


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
    if isinstance(kind, _NANOSECONDS) and isinstance(transform, (BucketTransform, HourTransform)):
        # PyIceberg's core knows no hours of nanoseconds, and rounds those before 1970 up.
        array = _floor_divided(array.cast(pyarrow.int64()), 1000).cast(pyarrow.timestamp("us"))
    if isinstance(kind, iceberg.BinaryType) and isinstance(transform, TruncateTransform):
        # The core knows none of Arrow's large binaries.
        return compute.binary_slice(array, 0, transform.width)
    return transform.pyarrow_transform(kind)(array)


def _floor_divided(array: pyarrow.Array, divisor: int) -> pyarrow.Array:
    # Arrow's own rounds towards zero.
    quotient = compute.divide(array, divisor)
    rest = compute.subtract(array, compute.multiply(quotient, divisor))
    return compute.if_else(compute.less(rest, 0), compute.subtract(quotient, 1), quotient)
