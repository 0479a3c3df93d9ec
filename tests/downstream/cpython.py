"""CPython's own tests of files over `ags1.open`, `Reader` and `Writer`: those of the interpreter that runs this.

``python -m tests.downstream.cpython`` is a program of pytest's kind for unittest: its classes are CPython's, with the
functions that open files replaced. What `ags1.open` does not offer by design (appending, updating, unbuffered files,
descriptors) skips with the reason, so that what fails is worth a look.
"""

from __future__ import annotations

import io
import os
import unittest
from typing import Any

from test import test_bufio, test_file, test_io, test_memoryio, test_univnewlines

import ags1

KEY = bytes(range(32))


def open_encrypted(
    file: Any,
    mode: str = "r",
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    closefd: bool = True,
    opener: Any = None,
) -> Any:
    """Open an encrypted file as the builtin opens a plain one."""
    if isinstance(file, int) or not closefd or opener is not None:
        raise unittest.SkipTest("ags1.open takes no descriptors and openers")
    if isinstance(mode, str) and set(mode) & set("+ax") and set(mode) <= set("rwaxbt+"):
        raise unittest.SkipTest("an encrypted file is not appended to, updated or created exclusively")
    if buffering == 0:
        raise unittest.SkipTest("an encrypted file is never unbuffered: blocks are encrypted whole")
    text = {name: value for name, value in (("encoding", encoding), ("errors", errors)) if value is not None}
    if "b" not in mode and newline is not None:
        text["newline"] = newline
    if text and "b" in mode:
        open(os.devnull, mode, -1, encoding, errors, newline).close()  # which raises what the builtin raises
    return ags1.open(file, mode, key=KEY, **text)  # type: ignore[arg-type, call-overload]


class BufferSize(test_bufio.BufferSizeTest, unittest.TestCase):  # type: ignore[misc]
    """Lines of every length are written and read back."""

    open = staticmethod(open_encrypted)


class AutoFile(test_file.AutoFileTests, unittest.TestCase):  # type: ignore[misc]
    """Attributes, errors and methods of a file that is being written, and of one that is read."""

    open = staticmethod(open_encrypted)


class OtherFile(test_file.OtherFileTests, unittest.TestCase):  # type: ignore[misc]
    """Modes, buffer sizes, iteration mixed with reads."""

    open = staticmethod(open_encrypted)


class IO(test_io.CIOTest):  # type: ignore[misc]
    """The general tests of files."""

    open = staticmethod(open_encrypted)


def _newlines(theirs: type) -> type:
    return type(theirs.__name__, (theirs, unittest.TestCase), {"open": staticmethod(open_encrypted)})


CRNewlines = _newlines(test_univnewlines.TestCRNewlines)
LFNewlines = _newlines(test_univnewlines.TestLFNewlines)
CRLFNewlines = _newlines(test_univnewlines.TestCRLFNewlines)
MixedNewlines = _newlines(test_univnewlines.TestMixedNewlines)


class Memory(test_memoryio.PyBytesIOTest):  # type: ignore[misc]
    """A Reader of a stream in memory, where CPython tests BytesIO."""

    @staticmethod
    def ioclass(initial_bytes: Any = b"") -> ags1.Reader:
        """Encrypt some bytes and open them."""
        return ags1.Reader(ags1.encrypt(initial_bytes, KEY), KEY)

    UnsupportedOperation = io.UnsupportedOperation


def setUpModule() -> None:
    """Give test_io's classes the names that it gives them itself, and test_bufio what it opens files again with."""
    test_bufio.open = open_encrypted
    for name in (*io.__all__, "IncrementalNewlineDecoder"):
        setattr(IO, name, getattr(io, name))
    for name in dir(test_io):
        if name.startswith("CMock") or name in ("CMisbehavedRawIO", "CSlowFlushRawIO", "CCloseFailureIO"):
            setattr(IO, name[1:], getattr(test_io, name))
    IO.open = staticmethod(open_encrypted)
