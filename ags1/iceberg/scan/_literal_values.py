"""Literals of row filters as values for exact comparison with columns, as Spark compares them.

Whole numbers, decimals, dates and times are counted in the column's own unit: days, microseconds, or units of the
decimal's last digit. A literal between two of them is a fraction. Floats are compared in 64 bits, which hold every
32-bit number exactly: so 0.1 does not equal 0.1 in a 32-bit column. Text, binary and UUIDs are compared byte by byte.
"""

from __future__ import annotations

import datetime
import math
import re
import struct
import uuid
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

from pyiceberg import types
from pyiceberg.expressions import literals as written

Value = Fraction | float | str | bytes
"""A fraction counts units. A float may also be compared with whole numbers and decimals, as floats."""

_DAY = 86_400_000_000
ZONED = (types.TimestamptzType, types.TimestamptzNanoType)
_NANOSECONDS = (types.TimestampNanoType, types.TimestamptzNanoType)
_MOMENT = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?(Z|[+-]\d\d:\d\d)?)?", re.ASCII
)
_CLOCK = re.compile(r"(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?", re.ASCII)
_EPOCH = datetime.date(1970, 1, 1).toordinal()
# No column has this many digits, and a fraction of such a number would have as many digits as its exponent says.
_MOST_DIGITS = 400


def value_of(literal: Any, kind: Any) -> Value:
    """Return a literal's value for a column of a type; a ValueError if no such column can be compared with it."""
    convert = _CONVERSIONS.get(type(kind))
    made = None
    if convert is not None:
        try:
            made = convert(literal, kind)
        except (ArithmeticError, ValueError):
            made = None
    if made is None:
        raise ValueError(f"Could not convert {literal.value!s} into a {kind}")
    return made


def decimal_bound(value: float, scale: int, *, inclusive: bool) -> tuple[Fraction, bool]:
    """Return the bound of the decimals that are less than a float when converted (with `inclusive`: or equal).

    The result is the bound of their units at this scale, and whether they may be equal to it.
    """
    most = Fraction(10**_MOST_DIGITS)
    if math.isnan(value):
        return most, True
    below = value if inclusive else math.nextafter(value, -math.inf)
    above = math.nextafter(below, math.inf)
    if math.isinf(below) or math.isinf(above):
        return (most, True) if below > 0 else (-most, True)
    # Decimals are rounded to the nearest float, ties to the one whose last bit is zero.
    even = struct.unpack("<q", struct.pack("<d", below))[0] & 1 == 0
    return (Fraction(below) + Fraction(above)) / 2 * 10**scale, even


def _number(literal: Any, kind: Any) -> Value | None:
    """For columns of whole numbers and decimals."""
    if isinstance(literal, (written.DoubleLiteral, written.FloatLiteral)):
        return float(literal.value)
    if isinstance(literal, written.LongLiteral):
        return _fraction(Decimal(literal.value), kind)
    if isinstance(literal, (written.DecimalLiteral, written.StringLiteral)):
        return _fraction(Decimal(literal.value), kind)
    return None


def _fraction(number: Decimal, kind: Any) -> Value:
    if not number.is_finite() or (number and abs(number.adjusted()) > _MOST_DIGITS):
        # Nearly nothing, or more than every number of the column.
        if number.is_finite() and number.adjusted() < 0:
            return Fraction(1 if number > 0 else -1, 10**_MOST_DIGITS)
        return float("inf" if number > 0 else "-inf") if not number.is_nan() else math.nan
    units: int = 10**kind.scale if isinstance(kind, types.DecimalType) else 1
    return Fraction(number) * units


def _float(literal: Any, _: Any) -> Value | None:
    if isinstance(literal, (written.LongLiteral, written.DecimalLiteral, written.DoubleLiteral, written.FloatLiteral)):
        return _double(literal.value)
    return float(literal.value) if isinstance(literal, written.StringLiteral) else None


def _double(number: Any) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def _date(literal: Any, _: Any) -> Value | None:
    if isinstance(literal, (written.DateLiteral, written.LongLiteral)):
        return Fraction(literal.value)
    if isinstance(literal, written.TimestampLiteral):
        return Fraction(literal.value, _DAY)
    if isinstance(literal, written.StringLiteral):
        found = _MOMENT.fullmatch(literal.value.strip())
        if found is not None and found[4] is None:
            return Fraction(_days(found))
    return None


def _time(literal: Any, _: Any) -> Value | None:
    if isinstance(literal, (written.TimeLiteral, written.LongLiteral)):
        return Fraction(literal.value)
    if isinstance(literal, written.StringLiteral):
        found = _CLOCK.fullmatch(literal.value.strip())
        return None if found is None else _microseconds(*found.groups())
    return None


def _timestamp(literal: Any, kind: Any) -> Value | None:
    made: Fraction | None = None
    if isinstance(literal, (written.TimestampLiteral, written.LongLiteral)):
        # Iceberg reads whole numbers as microseconds here, whatever the unit of the column.
        made = Fraction(literal.value)
    elif isinstance(literal, written.DateLiteral):
        made = Fraction(literal.value * _DAY)
    elif isinstance(literal, written.StringLiteral):
        made = _moment(literal.value.strip(), zoned=isinstance(kind, ZONED))
    return made if made is None or not isinstance(kind, _NANOSECONDS) else made * 1000


def _moment(text: str, *, zoned: bool) -> Fraction | None:
    found = _MOMENT.fullmatch(text)
    # A timestamp without a zone is a local time and no fixed moment; one with a zone is no local time.
    if found is None or (found[8] is not None) != zoned:
        return None
    made = Fraction(_days(found) * _DAY)
    if found[4] is None:
        return made
    made += _microseconds(*found.group(4, 5, 6, 7))
    zone = found[8]
    if zone in (None, "Z"):
        return made
    shift = (int(zone[1:3]) * 60 + int(zone[4:6])) * 60_000_000
    return made + (shift if zone[0] == "-" else -shift)


def _days(found: re.Match[str]) -> int:
    return datetime.date(int(found[1]), int(found[2]), int(found[3])).toordinal() - _EPOCH


def _microseconds(hours: str, minutes: str, seconds: str | None, fraction: str | None) -> Fraction:
    clock = datetime.time(int(hours), int(minutes), int(seconds or 0))
    whole = (clock.hour * 60 + clock.minute) * 60 + clock.second
    return whole * 1_000_000 + Fraction(int((fraction or "").ljust(9, "0")), 1000)


def _boolean(literal: Any, _: Any) -> Value | None:
    if isinstance(literal, written.BooleanLiteral):
        return Fraction(literal.value)
    if isinstance(literal, written.StringLiteral):
        return {"true": Fraction(1), "false": Fraction(0)}.get(literal.value.lower())
    return None


def _text(literal: Any, _: Any) -> Value | None:
    return literal.value if isinstance(literal, written.StringLiteral) else None


def _bytes(literal: Any, kind: Any) -> Value | None:
    if isinstance(literal, (written.BinaryLiteral, written.FixedLiteral, written.UUIDLiteral)):
        made = bytes(literal.value)
    elif isinstance(literal, written.StringLiteral) and isinstance(kind, types.UUIDType):
        made = uuid.UUID(literal.value).bytes
    else:
        return None
    wanted = 16 if isinstance(kind, types.UUIDType) else len(kind) if isinstance(kind, types.FixedType) else len(made)
    return made if len(made) == wanted else None


_CONVERSIONS: dict[type, Callable[[Any, Any], Value | None]] = {
    types.IntegerType: _number,
    types.LongType: _number,
    types.DecimalType: _number,
    types.FloatType: _float,
    types.DoubleType: _float,
    types.DateType: _date,
    types.TimeType: _time,
    types.TimestampType: _timestamp,
    types.TimestamptzType: _timestamp,
    types.TimestampNanoType: _timestamp,
    types.TimestamptzNanoType: _timestamp,
    types.BooleanType: _boolean,
    types.StringType: _text,
    types.BinaryType: _bytes,
    types.FixedType: _bytes,
    types.UUIDType: _bytes,
}
