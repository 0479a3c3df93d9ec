"""Texts as values: what Spark's readers of CSV and JSON take for a number, a date or a time, and nothing else.

Arrow converts a whole column where it is sure to agree with Spark. The other texts are converted one by one. No
message shows a text: errors of tasks get into Spark's event log.
"""

from __future__ import annotations

import datetime
import decimal
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ags1.errors import FormatError
from ags1.spark.source._zones import in_zone, offset_at, zone_of

NUMBERS: Mapping[str, float] = {"NaN": math.nan, "Inf": math.inf, "-Inf": -math.inf}
"""What is a number besides Java's own texts."""

_FEW = 64
_DIGITS = 38
_MOST_HOURS = 18
_BLANKS = "".join(map(chr, range(33)))
_BOOLEANS = pa.array(["true", "false", None])
_INT32 = 1 << 31
_CYCLE_YEARS, _CYCLE_DAYS = 400, 146097
_EPOCH = datetime.date(1970, 1, 1).toordinal()

_INTEGER = re.compile(r"[+-]?\d+")
_DOUBLE = re.compile(
    r"[+-]?(NaN|Infinity|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[fFdD]?"
    r"|0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?\d+[fFdD]?)",
    re.ASCII,
)
_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_DAY = re.compile(r"([+-]?)(\d{4,7})(?:-(\d\d?)(?:-(\d\d?)(?:[ T].*)?)?)?", re.ASCII | re.DOTALL)
_TIME = r"(\d\d?)(?::(\d\d?)(?::(\d\d?)(?:\.(\d*))?(\D.*)?)?)?"
_MOMENT = re.compile(
    rf"([+-]?)(\d{{4,6}})(?:-(\d\d?)(?:-(\d\d?)(?:[ T]{_TIME})?)?)?", re.ASCII | re.DOTALL
)  # fmt: skip
_TODAY = re.compile(rf"(?:T|(?=\d\d?:)){_TIME}", re.ASCII | re.DOTALL)

# Texts that Arrow reads as Spark does, if it reads them.
_PLAIN = {
    "integer": r"^-?[0-9]+$",
    "float": r"^-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?$",
    "decimal": r"^-?[0-9]+(\.[0-9]+)?$",
    "boolean": r"^(?i:true|false)$",
    "day": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$",
    "moment": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?$",
}


def parsed(texts: pa.Array, target: pa.DataType, time_zone: str) -> pa.Array:
    """Texts as values of a type. Raise ValueError if not all of them are."""
    made, bad = parsed_or_null(texts, target, time_zone)
    if bad is not None:
        raise ValueError("a text is no such value")
    return made


def parsed_or_null(
    texts: pa.Array, target: pa.DataType, time_zone: str, numbers: Mapping[str, float] = NUMBERS
) -> tuple[pa.Array, Any]:
    """As :func:`parsed`, but null for an invalid text. Returns which were invalid, or None."""
    if pa.types.is_string(target):
        return texts, None
    if pa.types.is_binary(target):
        return texts.cast(target), None
    kind = _kind_of(target)
    if numbers is not NUMBERS and kind == "float":
        return _with_numbers(texts, target, time_zone, numbers)
    return _parsed(texts, target, kind, _converter(kind, target, time_zone, numbers), time_zone)


def _with_numbers(
    texts: pa.Array, target: pa.DataType, time_zone: str, numbers: Mapping[str, float]
) -> tuple[pa.Array, Any]:
    """A column in which further texts are numbers, which others may not be."""
    found = pc.index_in(texts, pa.array(list(numbers), pa.string()))
    rest = pc.if_else(pc.is_null(found), texts, pa.scalar(None, pa.string()))
    made, bad = _parsed(rest, target, "float", _converter("float", target, time_zone, {}), time_zone)
    return pc.coalesce(pa.array(list(numbers.values()), target).take(found), made), bad


def _kind_of(target: pa.DataType) -> str:
    types = pa.types
    if types.is_integer(target):
        return "integer"
    if types.is_floating(target):
        return "float"
    if types.is_decimal(target):
        return "decimal"
    if types.is_boolean(target):
        return "boolean"
    if types.is_date32(target):
        return "day"
    if types.is_timestamp(target):
        return "moment"
    raise FormatError(f"text cannot be read as a column of the type {target}")


def _parsed(texts: pa.Array, target: Any, kind: str, convert: Callable[[str], Any], zone: str) -> tuple[pa.Array, Any]:
    try:
        return _quickly(texts, target, kind, zone), None
    except ValueError:
        # pyarrow's errors have the text in them.
        pass
    if len(texts) <= _FEW:
        return _slowly(texts, target, convert)
    plain = pc.fill_null(pc.match_substring_regex(texts, _PLAIN[kind]), True)
    if not pc.all(plain).as_py():
        others = pc.invert(plain)
        made, bad = _parsed(pc.if_else(plain, texts, pa.scalar(None, pa.string())), target, kind, convert, zone)
        slow, wrong = _slowly(texts.filter(others), target, convert)
        if wrong is not None:
            bad = np.zeros(len(texts), bool) if bad is None else bad
            bad[others.to_numpy(zero_copy_only=False)] = wrong
        return pc.replace_with_mask(made, others, slow), bad
    # Halves: what Arrow can convert stays fast if few texts are invalid.
    half = len(texts) // 2
    left, bad_left = _parsed(texts.slice(0, half), target, kind, convert, zone)
    right, bad_right = _parsed(texts.slice(half), target, kind, convert, zone)
    bad = np.zeros(len(texts), bool)
    for some, where in ((bad_left, slice(0, half)), (bad_right, slice(half, None))):
        if some is not None:
            bad[where] = some
    return pa.concat_arrays([left, right]), (bad if bad.any() else None)


def _quickly(texts: pa.Array, target: pa.DataType, kind: str, zone: str) -> pa.Array:
    """A whole column by Arrow. Raise ValueError if it has a text that Arrow may understand otherwise than Spark."""
    if kind == "integer" and pc.any(pc.match_substring(texts, "x", ignore_case=True)).as_py():
        # Arrow would take 0x1F for a number.
        raise ValueError("a hexadecimal number")
    if kind == "boolean" and not pc.all(pc.is_in(pc.utf8_lower(texts), _BOOLEANS)).as_py():
        raise ValueError("neither true nor false")
    if kind == "decimal":
        _check_decimals(texts, target)
    if kind == "moment":
        _check_moments(texts)
        if target.tz is not None:
            try:
                # Each has a zone of its own,
                made = texts.cast(target)
            except pa.ArrowInvalid:
                # or none has one.
                return in_zone(texts.cast(pa.timestamp("us")), zone)
            _check_offsets(texts)
            return made
    made = texts.cast(target)
    if kind == "float" and not pc.all(pc.is_finite(made)).as_py():
        # Arrow knows more names of infinities than Java.
        raise ValueError("a number that is not finite")
    return made


def _check_decimals(texts: pa.Array, target: Any) -> None:
    """Arrow does not notice a number that is too large for 128 bits."""
    longest = pc.max(pc.binary_length(texts)).as_py() or 0
    if longest + target.scale <= _DIGITS and not pc.any(pc.match_substring(texts, "e", ignore_case=True)).as_py():
        return
    if not pc.all(pc.less(pc.abs(texts.cast(pa.float64())), 10.0 ** (_DIGITS - target.scale))).as_py():
        raise ValueError("too large a number")


def _check_moments(texts: pa.Array) -> None:
    """Arrow takes a zone behind minutes, and Spark only behind seconds."""
    texts = texts.drop_null() if texts.null_count else texts
    if len(texts) == 0:
        return
    offsets = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1]
    lengths = np.diff(offsets)
    long = offsets[:-1][lengths >= 19]
    octets = np.frombuffer(texts.buffers()[2], np.uint8)
    if (
        len(long) + np.count_nonzero(lengths == 10) != len(texts)
        or (octets[np.add.outer(long, (13, 16))] != ord(":")).any()
    ):
        raise ValueError("another form of a time")


def _check_offsets(texts: pa.Array) -> None:
    """Arrow takes offsets of 18 hours and more, Java up to 18 hours."""
    texts = texts.drop_null() if texts.null_count else texts
    if len(texts) == 0:
        return
    ends = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset + 1 : texts.offset + len(texts) + 1]
    octets = np.frombuffer(texts.buffers()[2], np.uint8)
    for back in (3, 5, 6):
        signs = ends[np.isin(octets[ends - back], (ord("+"), ord("-")))] - back
        if (octets[signs + 1].astype(np.int64) * 10 + octets[signs + 2] - ord("0") * 11 >= _MOST_HOURS).any():
            raise ValueError("a large offset")


def _slowly(texts: pa.Array, target: pa.DataType, convert: Callable[[str], Any]) -> tuple[pa.Array, Any]:
    values: list[Any] = []
    bad = np.zeros(len(texts), bool)
    for index, text in enumerate(texts.to_pylist()):
        try:
            values.append(None if text is None else convert(text))
        except (ValueError, ArithmeticError):
            values.append(None)
            bad[index] = True
    integers = {"day": pa.int32(), "moment": pa.int64()}.get(_kind_of(target), target)
    return pa.array(values, integers).cast(target), (bad if bad.any() else None)


def _converter(kind: str, target: Any, time_zone: str, numbers: Mapping[str, float]) -> Callable[[str], Any]:
    """A function that converts a text; days and moments become integers. It raises ValueError or ArithmeticError."""
    if kind == "integer":
        limit = 1 << (target.bit_width - 1)
        return lambda text: _integer(text, limit)
    if kind == "float":
        return lambda text: numbers[text] if text in numbers else number_of(text)
    if kind == "decimal":
        return lambda text: rounded(decimal_of(text.replace(",", "")), target)
    if kind == "boolean":
        return _flag
    if kind == "day":
        return day_of
    zoned = target.tz is not None
    return lambda text: moment_of(text, time_zone if zoned else None)


def _integer(text: str, limit: int) -> int:
    if _INTEGER.fullmatch(text) is None or not -limit <= (number := int(text)) < limit:
        raise ValueError("no such integer")
    return number


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("neither true nor false")
    return text.lower() == "true"


def number_of(text: str) -> float:
    """A floating-point number as Java writes it. Raise ValueError if it is none."""
    text = text.strip(_BLANKS)
    found = _DOUBLE.fullmatch(text)
    if found is None:
        raise ValueError("no number")
    if found[1][:2].lower() == "0x":
        return float.fromhex(text.rstrip("fFdD") if text[-1] in "fFdD" and "p" in text.lower() else text)
    return float(text.rstrip("fFdD") if found[1] not in ("NaN", "Infinity") else text)


def decimal_of(text: str) -> decimal.Decimal:
    """A decimal as Java writes it. Raise ValueError if it is none."""
    if _DECIMAL.fullmatch(text) is None:
        raise ValueError("no decimal")
    return decimal.Decimal(text)


def rounded(value: decimal.Decimal, kind: Any) -> decimal.Decimal:
    """A decimal with the digits of a type, rounded half up. Raise ArithmeticError if it has too many."""
    with decimal.localcontext() as context:
        context.prec = 2 * kind.precision + 40
        made = value.quantize(decimal.Decimal(1).scaleb(-kind.scale), decimal.ROUND_HALF_UP)
    if len(made.as_tuple().digits) > kind.precision:
        raise OverflowError("too many digits")
    return made


def day_of(text: str) -> int:
    """Days since 1970 of a date, as Spark's cast reads it. Raise ValueError if it is none."""
    found = _DAY.fullmatch(_trimmed(text)) or _DAY.fullmatch(_trimmed(text.replace("GMT", "")))
    if found is None:
        raise ValueError("no date")
    days = _days(int(found[1] + found[2]), int(found[3] or 1), int(found[4] or 1))
    if not -_INT32 <= days < _INT32:
        raise ValueError("no such date")
    return days


def moment_of(text: str, time_zone: str | None) -> int:
    """Microseconds since 1970 of a time, as Spark's cast reads it: in UTC, or in local time if there is no zone.

    Raise ValueError if it is none. Without a zone, a text that has one or that is only a time of day is none.
    """
    try:
        return _moment(text, time_zone)
    except ValueError:
        if time_zone is None or "GMT" not in text:
            raise
        return _moment(text.replace("GMT", ""), time_zone)


def _moment(text: str, time_zone: str | None) -> int:
    text = _trimmed(text)
    found = _MOMENT.fullmatch(text)
    today = None if found is not None or time_zone is None else _TODAY.fullmatch(text)
    if found is not None:
        sign, years, month, day, *clock = found.groups()
    elif today is not None:
        clock = list(today.groups())
    else:
        raise ValueError("no time")
    hour, minute, second = (int(part or 0) for part in clock[:3])
    if clock[4] and time_zone is None:
        raise ValueError("a zone where there is none")
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError("no such time")
    zone = zone_of(clock[4] or time_zone or "UTC")
    if found is not None:
        days = _days(int(sign + years), int(month or 1), int(day or 1))
    else:
        days = datetime.datetime.now(zone).date().toordinal() - _EPOCH
    local = ((days * 24 + hour) * 60 + minute) * 60 + second
    made = local * 1_000_000 + int((clock[3] or "")[:6].ljust(6, "0"))
    if time_zone is not None:
        made -= offset_at(zone, local)
    if not -(1 << 63) <= made < 1 << 63:
        raise ValueError("no such time")
    return made


def _trimmed(text: str) -> str:
    return text.strip(_BLANKS + "\x7f")


def _days(year: int, month: int, day: int) -> int:
    """Days since 1970 in the Gregorian calendar, in any year. Raise ValueError if there is no such day."""
    cycles = (year - 2000) // _CYCLE_YEARS
    return datetime.date(year - cycles * _CYCLE_YEARS, month, day).toordinal() - _EPOCH + cycles * _CYCLE_DAYS
