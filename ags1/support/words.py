"""The form of numbers, sizes and names in reports, pages and commands."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence

from ags1.errors import without_secrets
from ags1.version import version

LINK = "is a link, which is not followed"
"""Why a link in a tree is left out."""


def counted(count: int, what: str, plural: str | None = None) -> str:
    """A number of things: "1 version", "2,000 versions"."""
    return f"{count:,} {what if count == 1 else plural or what + 's'}"


def listed(names: Sequence[str], most: int) -> str:
    """The first of some names, and how many more there are: "a, b and 5 more"."""
    return ", ".join(names[:most]) + (f" and {len(names) - most:,} more" if len(names) > most else "")


def made_by() -> dict[str, str]:
    """What every report says of itself: the time in UTC, and the version of ags1."""
    now = datetime.datetime.now(datetime.timezone.utc)
    return {"created": now.isoformat(timespec="seconds"), "ags1": version}


def with_name(name: str, text: str) -> str:
    """A message that names a file exactly once."""
    name = without_secrets(name)
    return text if name in text else f"{name}: {text}"


def size_text(size: float) -> str:
    """Bytes in powers of 1000: 999 B, 1.0 kB, 1.1 GB."""
    if size < 1000:
        return f"{size:.0f} B"
    for unit in ("kB", "MB", "GB", "TB"):
        size /= 1000
        if size < 999.95 or unit == "TB":
            break
    return f"{size:.1f} {unit}"


def duration_text(seconds: float) -> str:
    """A time for people: "12 s", "3 min", "1.5 h"."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def share_text(part: int, whole: int) -> str:
    """A share in percent, rounded down: only all of it is "100.0 %", and only nothing is "0.0 %"."""
    tenths = 1000 * part // whole if whole else 0
    return "< 0.1 %" if part and not tenths else f"{tenths // 10}.{tenths % 10} %"


def printable(text: str, *, undecodable: bool = False) -> str:
    """Text on one line with all characters visible: names of files can have control and direction characters.

    With `undecodable`, bytes of a name that are not Unicode stay unchanged, for a stream that can write them.
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or (undecodable and "\ud800" <= each <= "\udfff") else ascii(each)[1:-1]
        for each in text
    )


def table_lines(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a table with aligned columns; columns whose cells are all empty are left out."""
    cells = [list(row) for row in rows]
    kept = [index for index in range(len(heads)) if any(row[index] for row in cells)]
    cells = [[row[index] for index in kept] for row in [list(heads), *cells]]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
