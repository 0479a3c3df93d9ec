"""Words that the report and its page share."""

from __future__ import annotations

__all__ = ["counted", "printable", "size_text"]


def printable(text: str) -> str:
    """Text on one line that shows what is in it: names of files can have control and direction characters."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def counted(count: int, what: str) -> str:
    """A number of things."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def size_text(size: float) -> str:
    """Bytes for a person, in powers of 1000."""
    if size < 1000:
        return f"{size:.0f} B"
    for unit in ("kB", "MB", "GB", "TB"):
        size /= 1000
        if size < 999.95 or unit == "TB":
            break
    return f"{size:.1f} {unit}"
