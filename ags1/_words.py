"""The form of numbers, sizes and names in reports, pages and commands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def counted(count: int, what: str, plural: str | None = None) -> str:
    """A number of things: "1 version", "2,000 versions"."""
    return f"{count:,} {what if count == 1 else plural or what + 's'}"


def with_name(name: str, text: str) -> str:
    """A message that names a file exactly once."""
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
