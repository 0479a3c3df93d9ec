"""The exit codes of every command, and the message of an error in one line."""

from __future__ import annotations

import errno
import os
import re

from ags1.errors import (
    Ags1Error,
    AlreadyEncryptedError,
    ConflictError,
    KeyAccessError,
    UnsupportedError,
    without_secrets,
)

EXIT_OK = 0
EXIT_DATA = 1
EXIT_USAGE = 2
EXIT_KEY = 3
EXIT_IO = 4
EXIT_UNPROTECTED = 5
EXIT_CONFLICT = 6
EXIT_SLOWER = 7
EXIT_UNDECIDED = 8
EXIT_EXISTS = 9
EXIT_OUTPUT_CLOSED = 141

EXIT_CODES = """\
exit codes:
  0    success
  1    the data is not authentic, not AGS1, or truncated
  2    wrong usage, or data of a kind that is not read
  3    a key is not available, or is another one than expected
  4    an I/O error: a missing file, a full disk, a store or Spark that failed
  5    not protected: a signed footer, pages without tags, a stream verified
       with --any-length or --length-policy file, a file that an audit does not
       allow to be plaintext, old snapshots of a table that a conversion left
       in plaintext or under old keys, a column that --missing-keys drop leaves
       unchecked, or a link that was left out
  6    another writer changed the same files of a dataset, or the same table:
       run it again
  7    a benchmark is slower than its baseline
  8    a benchmark is undecided: the machine is too busy to tell
  9    it is there already: a table or file of that name, or data that is
       encrypted
  130  interrupted by Ctrl-C; 143 by SIGTERM, 129 by SIGHUP
  141  the reader of the output went away, as `head` does
"""


class UsageError(Exception):
    """The arguments are invalid, or contradict each other."""


class NotProtected(Ags1Error):
    """The data was verified, but is not protected: damage to it cannot be detected."""


def worst_code(codes: list[int]) -> int:
    """The exit code for several files: damage wins, and data that is not protected comes last."""
    if EXIT_DATA in codes:
        return EXIT_DATA
    return next((code for code in codes if code not in (EXIT_OK, EXIT_UNPROTECTED)), max(codes, default=EXIT_OK))


def exit_code(error: BaseException) -> int:
    """The exit code that stands for an error."""
    if isinstance(error, NotProtected):
        return EXIT_UNPROTECTED
    if isinstance(error, KeyAccessError):
        return EXIT_KEY
    if isinstance(error, (FileExistsError, AlreadyEncryptedError)):
        return EXIT_EXISTS
    if isinstance(error, OSError):
        return EXIT_IO
    if isinstance(error, UnsupportedError):
        return EXIT_USAGE
    if isinstance(error, ConflictError):
        return EXIT_CONFLICT
    if isinstance(error, Ags1Error):
        return EXIT_DATA
    # Any other error is from a library below, such as a store's client, or from a lack of memory.
    return EXIT_USAGE if isinstance(error, (UsageError, ValueError, TypeError, ImportError)) else EXIT_IO


def describe(error: BaseException) -> str:
    """The error in one line for a person, without a traceback, and without secrets of URLs and arguments."""
    return without_secrets(_described(error))


def _described(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        if error.filename is None:
            return error.strerror
        name = os.fsdecode(error.filename) if isinstance(error.filename, (str, bytes)) else str(error.filename)
        directory = os.path.dirname(name)
        if isinstance(error, FileNotFoundError) and re.match("[a-z][a-z0-9]+:/[^/]", name):
            return f"{name}: {error.strerror}: a URL has two slashes behind its colon"
        # Other messages are about a path in a dataset or an archive, not on this machine.
        of_system = isinstance(error, FileNotFoundError) and error.strerror == os.strerror(errno.ENOENT)
        if of_system and directory and "://" not in name and not os.path.isdir(directory):
            return f"{name}: there is no directory {directory}: correct the name, or make it to write there"
        return f"{name}: {error.strerror}"
    if isinstance(error, MemoryError):
        return "there is not enough memory for this"
    text = str(error) or type(error).__name__
    # PyArrow's message is the name alone.
    return f"{text}: {os.strerror(errno.ENOENT)}" if isinstance(error, FileNotFoundError) and " " not in text else text
