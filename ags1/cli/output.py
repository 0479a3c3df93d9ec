"""What commands say: results and bytes to standard output, remarks and questions to standard error."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable

from ags1.errors import without_secrets
from ags1.support.exit_codes import UsageError
from ags1.support.typing import Any
from ags1.support.words import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


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


def agreed(said: Namespace, question: str, plan: dict[str, Any] | None = None) -> bool:
    """Ask, unless --yes is given. After another answer than yes, say that nothing was changed.

    UsageError: there is nobody to ask. With --json, the object `plan` is printed then, with the error.
    """
    if said.yes:
        return True
    if said.json or sys.stdin is None or not sys.stdin.isatty():
        refusal = f"{question} Nobody can be asked here: say --yes to have it done"
        if said.json and plan is not None:
            say_json({**plan, "error": refusal})
        raise UsageError(refusal)
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        return True
    warn("ags1: nothing was changed")
    return False


_COPY_BYTES = 8 << 20


class StandardOutput:
    """Standard output for bytes, whose failures say that it was the one."""

    name = "standard output"

    def __init__(self, file: Any) -> None:
        self._file = file

    def fileno(self) -> int:
        return int(self._file.fileno())

    def write(self, data: Any) -> int:
        with OutputFaults():
            view = memoryview(data)
            while view:
                # Unbuffered (PYTHONUNBUFFERED), a full disk shows only at the write after the one that it cut short.
                view = view[self._file.write(view) :]
        return len(data)

    def flush(self) -> None:
        with OutputFaults():
            self._file.flush()


def standard_output() -> StandardOutput:
    """Standard output for bytes; an OSError if the caller has closed it."""
    return StandardOutput(_bytes_of(sys.stdout, "standard output"))


def standard_input() -> Any:
    """Standard input for bytes; an OSError if the caller has closed it."""
    return _bytes_of(sys.stdin, "standard input")


def _bytes_of(stream: Any, name: str) -> Any:
    if stream is None:
        raise OSError(9, "it is closed", name)
    return stream.buffer


def write_out(data: bytes) -> None:
    output = standard_output()
    output.write(data)
    output.flush()


def copy_out(reader: Any, output: StandardOutput, left: int | None, progress: Callable[..., None]) -> None:
    """Write what is wanted of a reader (None: all)."""
    done = 0
    while left is None or left > 0:
        data = reader.read(_COPY_BYTES if left is None else min(left, _COPY_BYTES))
        if not data:
            return
        output.write(data)
        done += len(data)
        progress(done, None)
        left = None if left is None else left - len(data)


def refuse_terminal(what: str, instead: str = "give a file as the TARGET, or redirect the output") -> None:
    """Raise a UsageError if standard output is a terminal, which bytes are not for."""
    if sys.stdout is not None and sys.stdout.isatty():
        raise UsageError(f"{what} would garble the terminal: {instead}")


def ask_password(name: str, *, new: bool) -> str:
    """The password that a person types, twice if it is a new one. UsageError: none was typed, or two."""
    import getpass

    try:
        password = getpass.getpass(f"{'New password' if new else 'Password'} of {name}: ")
        again = getpass.getpass("The same again: ") if new else password
    except EOFError:
        raise UsageError("no password was given") from None
    if password != again:
        raise UsageError("these were two different passwords: nothing was made")
    if not password:
        raise UsageError("an empty password protects nothing: nothing was done")
    return password
