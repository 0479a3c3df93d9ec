"""Standard input and output for bytes."""

from __future__ import annotations

import sys
from collections.abc import Callable

from ags1.cli.output import OutputFaults
from ags1.support.exit_codes import UsageError
from ags1.support.typing import Any

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
