"""Numbers, sizes and names as every report, page and command shows them to a person."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def counted(count: int, what: str, plural: str | None = None) -> str:
    """A number of things: "1 version", "2,000 versions"."""
    return f"{count:,} {what if count == 1 else plural or what + 's'}"


def with_name(name: str, text: str) -> str:
    """A message that names a file, once."""
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
    """Text on one line that shows what is in it: names of files can have control and direction characters.

    With `undecodable`, bytes of a name that are no Unicode stay as they are, for a stream that writes them back.
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or (undecodable and "\ud800" <= each <= "\udfff") else ascii(each)[1:-1]
        for each in text
    )


def table_lines(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a table, its cells below one another; columns without anything in their cells are left out."""
    cells = [list(row) for row in rows]
    kept = [index for index in range(len(heads)) if any(row[index] for row in cells)]
    cells = [[row[index] for index in kept] for row in [list(heads), *cells]]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
