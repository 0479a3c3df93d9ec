"""What commands say: results to standard output, remarks to standard error."""

from __future__ import annotations

import sys

from ags1.errors import without_secrets
from ags1.support.words import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


class OutputClosed(Exception):
    """The reader of standard output went away, as `head` does."""


class OutputFaults:
    """A block that writes to standard output: a fault in it names that, and nothing is written after it."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, BrokenPipeError):
            raise OutputClosed from None
        if isinstance(error, OSError):
            forget_output()
            raise OSError(error.errno, error.strerror, "standard output") from None


def say(line: str, *, flush: bool = False, raw: bool = False, end: str = "\n") -> None:
    """Print a line of results to standard output; `raw` leaves control characters as they are, as in CSV.

    OutputClosed: its reader went away. OSError: it could not be written; names standard output.
    """
    with OutputFaults():
        print(line if raw else printable(line, undecodable=True), flush=flush, end=end)


def say_json(record: dict[str, Any]) -> None:
    """Print an object of JSON on a line of its own."""
    import json

    say(json.dumps(record))


def warn(text: str) -> None:
    """Print a remark to standard error, without secrets of URLs and arguments."""
    print(printable(without_secrets(text)), file=sys.stderr)


def warn_some(remarks: Sequence[str], more: str, most: int | None = 20, count: int | None = None) -> None:
    """Print the first of many remarks, and by `more` how many others there are; `count` is that of all."""
    for remark in remarks[:most]:
        warn(f"ags1: {remark}")
    left = 0 if most is None else (len(remarks) if count is None else count) - most
    if left > 0:
        warn(f"ags1: {more.format(left)}")


def forget_output() -> None:
    """Write no more to standard output: Python would complain again when it flushes at its end."""
    if sys.stdout is sys.__stdout__:
        sys.stdout = None
