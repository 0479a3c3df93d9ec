"""Single values as manifests have them: in the partition of a file, and in bounds.

    type             partition (Avro)      bound (bytes)
    int, date        number                4 bytes, little-endian
    long, timestamp  number                8 bytes, little-endian
    float, double    number                4 or 8 bytes
    decimal          bytes of the type     as few bytes as it takes, big-endian
    string           text                  UTF-8
    binary, fixed    bytes                 bytes

Source: Iceberg table spec, "Appendix A: Avro", "Appendix D: Single-value serialization".
"""

from __future__ import annotations

import datetime
import uuid
from typing import Any

from pyiceberg import types as iceberg
from pyiceberg.conversions import to_bytes
from pyiceberg.utils.datetime import date_to_days
from pyiceberg.utils.decimal import bytes_required, decimal_required_bytes, decimal_to_bytes

# What Parquet and Avro have in the bytes of a bound already.
_BYTES = (iceberg.StringType, iceberg.BinaryType, iceberg.FixedType, iceberg.UUIDType)
_UNBOUNDED = (iceberg.UnknownType, iceberg.GeometryType, iceberg.GeographyType)


def raw_of(value: Any, kind: Any) -> Any:
    """A partition value as Avro has it; dates and times come as numbers of days, microseconds or nanoseconds."""
    if value is None:
        return None
    if isinstance(kind, iceberg.DecimalType):
        return decimal_to_bytes(value, decimal_required_bytes(kind.precision))
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, datetime.date):
        return date_to_days(value)
    return value


def bound_of(raw: Any, kind: Any) -> bytes | None:
    """A value, as Avro or Parquet has it, as the bytes of a bound; None for a type without bounds."""
    if isinstance(kind, iceberg.DecimalType):
        number = raw if isinstance(raw, int) else int.from_bytes(raw, "big", signed=True)
        return number.to_bytes(bytes_required(number), "big", signed=True)
    if isinstance(kind, _UNBOUNDED):
        return None
    return bytes(raw) if isinstance(kind, _BYTES) and not isinstance(raw, str) else to_bytes(kind, raw)
