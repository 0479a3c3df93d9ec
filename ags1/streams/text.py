"""Text modes of :func:`ags1.open`: as in the builtin, with a writer that never completes a stream by accident."""

from __future__ import annotations

import codecs
import io

from ags1.support.typing import Any

_NEWLINES = (None, "", "\n", "\r", "\r\n")


def check_text_options(encoding: str | None, errors: str | None, newline: str | None) -> str:
    """Return the encoding to use, or raise what the builtin ``open`` raises for options that it does not know."""
    encoding = io.text_encoding(encoding)
    if encoding != "locale":
        codecs.lookup(encoding)
    codecs.lookup_error(errors or "strict")
    if newline not in _NEWLINES:
        raise ValueError(f"illegal newline value: {newline!r}")
    return encoding


class TextWriter(io.TextIOWrapper):
    """Text output to a Writer. Only :meth:`close` completes the stream; an exception or a dropped object does not."""

    def __init__(self, writer: Any, encoding: str | None, errors: str | None, newline: str | None) -> None:
        super().__init__(writer, encoding=encoding, errors=errors, newline=newline)
        self._writer = writer
        # TextIOWrapper writes a byte order mark to seekable files only (utf-8-sig: to all files).
        self._unmarked = codecs.lookup(self.encoding).name in ("utf-16", "utf-32")

    def write(self, text: str, /) -> int:
        """Write text; return its length in characters."""
        if self._unmarked:
            self._unmarked = False
            super().write("\ufeff")
        return super().write(text)

    def abort(self) -> None:
        """Discard the output: no file appears under the path."""
        self._writer.abort()

    def __exit__(self, kind: object, *exception: object) -> None:
        """Close after a body that succeeded, abort after one that raised."""
        if kind is None:
            self.close()
        else:
            self.abort()

    def __del__(self) -> None:
        # TextIOWrapper.__del__ would close the Writer, and so complete an unfinished stream.
        writer = getattr(self, "_writer", None)
        if writer is not None:
            writer.__del__()
