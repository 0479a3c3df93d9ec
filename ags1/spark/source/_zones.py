"""Time zones by the names that Spark takes in settings and in texts, and local times as moments."""

from __future__ import annotations

import datetime
import functools
import re
from typing import Any
from zoneinfo import ZoneInfo

# Java's ZoneId.SHORT_IDS, which Spark gives to ZoneId.of.
_SHORT = {
    "ACT": "Australia/Darwin", "AET": "Australia/Sydney", "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo", "AST": "America/Anchorage", "BET": "America/Sao_Paulo", "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare", "CNT": "America/St_Johns", "CST": "America/Chicago", "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa", "ECT": "Europe/Paris", "EST": "-05:00", "HST": "-10:00",
    "IET": "America/Indiana/Indianapolis", "IST": "Asia/Kolkata", "JST": "Asia/Tokyo", "MIT": "Pacific/Apia",
    "MST": "-07:00", "NET": "Asia/Yerevan", "NST": "Pacific/Auckland", "PLT": "Asia/Karachi", "PNT": "America/Phoenix",
    "PRT": "America/Puerto_Rico", "PST": "America/Los_Angeles", "SST": "Pacific/Guadalcanal",
    "VST": "Asia/Ho_Chi_Minh",
}  # fmt: skip
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d\d?)(?::?(\d\d)(?::?(\d\d))?)?", re.ASCII)
_MOST = 18 * 3600
_EPOCH = datetime.datetime(1970, 1, 1)
_FIRST, _LAST = -62135596800, 253402300800
_CYCLE = 146097 * 86400
_LISTED = datetime.datetime(2037, 1, 1)


@functools.lru_cache(1024)
def zone_of(name: str) -> datetime.tzinfo:
    """The zone of a name: a region, Z, an offset such as +1:00 or UTC+0100, or one of Java's short names.

    Raise ValueError if there is none.
    """
    text = re.sub(r"([+-])(\d):", r"\g<1>0\2:", name.strip("".join(map(chr, range(33)))), count=1, flags=re.ASCII)
    text = re.sub(r"([+-]\d\d):(\d)$", r"\1:0\2", text, flags=re.ASCII)
    text = _SHORT.get(text, text)
    if text in ("Z", "UTC", "GMT", "UT"):
        return datetime.timezone.utc
    found = _OFFSET.fullmatch(text)
    if found is not None:
        minutes, seconds = int(found[3] or 0), int(found[4] or 0)
        total = int(found[2]) * 3600 + minutes * 60 + seconds
        if minutes > 59 or seconds > 59 or total > _MOST:
            raise ValueError("no such offset")
        return datetime.timezone(datetime.timedelta(seconds=total if found[1] == "+" else -total))
    try:
        return ZoneInfo(text)
    except (KeyError, ValueError, OSError):
        raise ValueError("no such time zone") from None


def offset_at(zone: datetime.tzinfo, local: int) -> int:
    """Microseconds from UTC to the local time of a zone, which is in seconds since 1970.

    In a gap it is the offset before it, in an overlap the first one. Times outside of Python's years have that of its
    first year, or of a year in the same cycle of the calendar.
    """
    cycles = max(0, (local - _LAST) // _CYCLE + 1)
    moment = _EPOCH + datetime.timedelta(seconds=max(local - cycles * _CYCLE, _FIRST))
    offset = zone.utcoffset(moment.replace(tzinfo=zone))
    return 0 if offset is None else int(offset / datetime.timedelta(microseconds=1))


def in_zone(naive: Any, name: str) -> Any:
    """Local times, an Arrow array, as moments, as Java does it.

    The first of two moments with the same local time is taken; a local time in a gap moves by the gap's length.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    instant = pa.timestamp("us", "UTC")
    naive = naive.cast(pa.timestamp("us"), safe=False)
    zone = zone_of(name)
    if not isinstance(zone, ZoneInfo):
        offset = offset_at(zone, 0)
        return pc.subtract(naive.cast(pa.int64()), offset).cast(instant) if offset else naive.cast(instant)
    # Arrow does not know the rules after the last change that a zone's file lists.
    late = pc.fill_null(pc.greater(naive, pa.scalar(_LISTED, naive.type)), False)
    if pc.any(late).as_py():
        late_ones = naive.filter(late).cast(pa.int64())
        different = late_ones.unique()
        moments = [each - offset_at(zone, each // 1_000_000) for each in different.to_pylist()]
        made = pa.array(moments, pa.int64()).take(pc.index_in(late_ones, different)).cast(instant)
        rest = in_zone(pc.if_else(late, pa.scalar(None, naive.type), naive), name)
        return pc.replace_with_mask(rest, late, made)
    try:
        return pc.assume_timezone(naive, zone.key, ambiguous="earliest", nonexistent="raise").cast(instant)
    except pa.ArrowInvalid:
        made = pc.assume_timezone(naive, zone.key, ambiguous="earliest", nonexistent="earliest")
        return pc.add(made, pc.subtract(naive, pc.local_timestamp(made))).cast(instant)
