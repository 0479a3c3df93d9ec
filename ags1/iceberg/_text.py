"""Words that reports about tables share."""

from __future__ import annotations

__all__ = ["counted", "printable"]


def counted(count: int, what: str, plural: str | None = None) -> str:
    """A number of things."""
    return f"{count} {what}" if count == 1 else f"{count} {plural or what + 's'}"


def printable(text: str) -> str:
    """Text out of a document, fit for a terminal: a path can hold line ends and control sequences."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)
