"""The `ags1` command.

What a command shows (progress bars, tables, JSON) is imported when it shows it: of the time that `cp` takes
for a gigabyte, the start of a Python program is a large share.
"""

from __future__ import annotations

import io
import os
import sys

from ags1.errors import Ags1Error, KeyAccessError
from ags1.support.exit_codes import EXIT_OUTPUT_CLOSED, EXIT_UNPROTECTED, EXIT_USAGE, exit_code, worst_code
from ags1.support.exit_codes import describe as _describe
from ags1.support.interrupts import (
    INTERRUPTED,
    end_from_now_on,
    interrupted_code,
    raise_from_now_on,
    was_interrupted,
)
from ags1.support.secrets import without_secrets
from ags1.support.words import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

__all__ = [
    "OutputClosed",
    "OutputFaults",
    "describe",
    "forget_output",
    "main",
    "refuses_everything",
    "say",
    "say_json",
    "warn",
    "warn_some",
]


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


def main(arguments: list[str] | None = None) -> int:
    """Run one command.

    Parameters
    ----------
    arguments : list of str, optional
        As in ``sys.argv[1:]``, the default.

    Returns
    -------
    int
        The exit code, as :mod:`ags1.support.exit_codes` has them.
    """
    try:
        raise_from_now_on()
        code = _run(arguments)
        end_from_now_on()
        if was_interrupted() and code != interrupted_code():
            # Other code caught what the signal raised.
            raise KeyboardInterrupt
        return code
    except BaseException as error:
        if not (was_interrupted() or isinstance(error, KeyboardInterrupt)):
            raise
        end_from_now_on()
        return _fail(INTERRUPTED, interrupted_code())


def _run(arguments: list[str] | None) -> int:
    from ags1.cli.grammar.parser import parse
    from ags1.support.exit_codes import UsageError

    options = None
    try:
        _prepare_streams()
        try:
            options = parse(sys.argv[1:] if arguments is None else arguments)
            code = int(options.run(options))
            if getattr(options, "links", False):
                code = worst_code([code, EXIT_UNPROTECTED])
        except SystemExit as exit_:
            code = int(exit_.code or 0)
        _flush()
        return code
    except UsageError as error:
        return _fail(str(error), EXIT_USAGE)
    except OutputClosed:
        forget_output()
        return EXIT_OUTPUT_CLOSED
    except (Ags1Error, OSError, ValueError, MemoryError, ImportError) as error:
        return _failed(options, error)
    except Exception as error:
        # Such as what PyIceberg's own way to an object store raises, or its import, which reads its configuration.
        from ags1.iceberg.configuration import configuration_fault
        from ags1.storage import as_os_error

        fault = as_os_error(error) or configuration_fault()
        if fault is None:
            raise
        return _failed(options, fault)


def refuses_everything(error: BaseException) -> bool:
    """Whether it is a key management service that refuses whoever asks, or cannot be reached."""
    if not isinstance(error, KeyAccessError):
        return False
    from ags1.kms import ServiceRefusal

    return isinstance(error, ServiceRefusal)


def describe(error: BaseException, options: Any = None) -> str:
    """One line for a person, with the options of this command: what, where, and no traceback."""
    from ags1.support.remedies import in_options

    old, properties = hasattr(options, "old_footer_key"), hasattr(options, "property")
    return in_options(_describe(error), old=old, properties=properties)


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


def _flush() -> None:
    if sys.stdout is not None:
        with OutputFaults():
            sys.stdout.flush()


def _prepare_streams() -> None:
    """Make the standard streams fit for any file name, and for having been closed by the caller."""
    if sys.stdin is None or sys.stdout is None or sys.stderr is None:
        # Else a file of ours could become descriptor 1 or 2, and a library's message end up in it.
        while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
            pass
        os.close(descriptor)
        if sys.stderr is None:
            sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  for as long as the process
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        import codecs

        codecs.register_error("ags1-names", _names)
        sys.stdout.reconfigure(errors="ags1-names")


def _names(error: UnicodeError) -> tuple[str | bytes, int]:
    """Write undecodable bytes of a file name as they are, and characters that the terminal lacks escaped."""
    import codecs

    try:
        return codecs.lookup_error("surrogateescape")(error)
    except UnicodeError:
        return codecs.lookup_error("backslashreplace")(error)


def _failed(options: Any, error: BaseException) -> int:
    """Say why a command failed: to a machine that waits for one object on standard output there."""
    subject = getattr(options, "subject", None)
    if subject is None or not getattr(options, "json", False):
        return _fail(describe(error, options), exit_code(error))
    say_json({subject[0]: getattr(options, subject[1]), "error": describe(error, options)})
    return exit_code(error)


def _fail(message: str, code: int) -> int:
    warn(f"ags1: {message}")
    return code


if __name__ == "__main__":
    sys.exit(main())
