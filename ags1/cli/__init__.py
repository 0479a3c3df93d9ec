"""The `ags1` command.

What a command shows (progress bars, tables, JSON) is imported when it shows it: of the time that `cp` takes
for a gigabyte, the start of a Python program is a large share.
"""

from __future__ import annotations

import io
import os
import sys

from ags1.errors import Ags1Error, ConflictError, KeyAccessError, UnsupportedError

__all__ = ["main"]

EXIT_OK = 0
EXIT_DATA = 1
EXIT_USAGE = 2
EXIT_KEY = 3
EXIT_IO = 4
EXIT_UNPROTECTED = 5
EXIT_CONFLICT = 6
EXIT_INTERRUPTED = 130
EXIT_OUTPUT_CLOSED = 141

# What a message of the library says to do, and what that is on the command line.
_PHRASES = (
    ("give one (password, password_file, or the variable", "give one (--password-file, or the variable"),
    (
        "(password, password_file, or AGS1_KMS_PASSWORD) or a key_file",
        "(--password-file, or AGS1_KMS_PASSWORD) or a --key-file",
    ),
    ("a key file: give it as key_file", "a key file: give it as --key-file"),
    ("give one of password, password_file and key_file", "give one of --password-file and --key-file"),
)
# C0, DEL and C1: a file name must not move a terminal's cursor, nor make two lines of one.
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))}


class OutputClosed(Exception):
    """The reader of standard output went away, as `head` does."""


def main(arguments: list[str] | None = None) -> int:
    """Run one command.

    Parameters
    ----------
    arguments : list of str, optional
        As in ``sys.argv[1:]``, the default.

    Returns
    -------
    int
        0 success; 1 data that is not authentic, not AGS1, or truncated; 2 wrong usage, or data of a kind that is not
        read; 3 a key that could not be had; 4 an I/O error, such as a missing file, a full disk or no memory; 5 data
        that verification finds not protected; 6 a dataset that somebody else has changed meanwhile: nothing was
        committed, run it again; 130 interrupted; 141 the reader of standard output went away before it had everything,
        as `head` does.
    """
    from ags1._command_line import UsageError
    from ags1.cli._parser import parse

    _prepare_streams()
    try:
        try:
            options = parse(sys.argv[1:] if arguments is None else arguments)
            code = int(options.run(options))
        except SystemExit as exit_:
            code = int(exit_.code or 0)
        _flush()
        return code
    except UsageError as error:
        return _fail(str(error), EXIT_USAGE)
    except KeyboardInterrupt:
        return _fail("interrupted; no file was left half-written", EXIT_INTERRUPTED)
    except OutputClosed:
        forget_output()
        return EXIT_OUTPUT_CLOSED
    except (Ags1Error, OSError, ValueError, MemoryError, ImportError) as error:
        return _fail(describe(error), exit_code(error))
    except Exception as error:
        # Such as what PyIceberg's own way to an object store raises.
        from ags1.storage import as_os_error

        fault = as_os_error(error)
        if fault is None:
            raise
        return _fail(describe(fault), EXIT_IO)


class NotProtected(Ags1Error):
    """What was verified is not damaged as far as anybody can tell, which nobody can."""


def worst_code(codes: list[int]) -> int:
    """The exit code of several files: damage wins, and what is not protected comes last."""
    if EXIT_DATA in codes:
        return EXIT_DATA
    return next((code for code in codes if code not in (EXIT_OK, EXIT_UNPROTECTED)), max(codes, default=EXIT_OK))


def exit_code(error: BaseException) -> int:
    """The exit code that stands for an error."""
    if isinstance(error, NotProtected):
        return EXIT_UNPROTECTED
    if isinstance(error, KeyAccessError):
        return EXIT_KEY
    if isinstance(error, OSError):
        return EXIT_IO
    if isinstance(error, UnsupportedError):
        return EXIT_USAGE
    if isinstance(error, ConflictError):
        return EXIT_CONFLICT
    if isinstance(error, Ags1Error):
        return EXIT_DATA
    # Anything else comes from what is below us: a store's client, or the lack of memory.
    return EXIT_USAGE if isinstance(error, (ValueError, TypeError, ImportError)) else EXIT_IO


def refuses_everything(error: BaseException) -> bool:
    """Whether it is a key management service that refuses whoever asks, or cannot be reached."""
    if not isinstance(error, KeyAccessError):
        return False
    from ags1.kms import ServiceRefusal

    return isinstance(error, ServiceRefusal)


def describe(error: BaseException) -> str:
    """One line for a person: what, where, and no traceback."""
    if isinstance(error, OSError) and error.strerror:
        if error.filename is None:
            return error.strerror
        name = os.fsdecode(error.filename) if isinstance(error.filename, (str, bytes)) else str(error.filename)
        directory = os.path.dirname(name)
        if isinstance(error, FileNotFoundError) and directory and "://" not in name and not os.path.isdir(directory):
            return f"{name}: there is no directory {directory}: make it first, or correct the name"
        return f"{name}: {error.strerror}"
    if isinstance(error, MemoryError):
        return "there is not enough memory for this"
    text = str(error) or type(error).__name__
    for said, meant in _PHRASES:
        text = text.replace(said, meant)
    return text


def printable(text: str) -> str:
    """The text without control characters, so that it stays on its line."""
    return text.translate(_CONTROLS)


def say(line: str, *, flush: bool = False) -> None:
    """Print a line of results to standard output.

    Raises
    ------
    OutputClosed
        Its reader went away.
    OSError
        It could not be written; names standard output.
    """
    try:
        print(line, flush=flush)
    except BrokenPipeError:
        raise OutputClosed from None
    except OSError as error:
        forget_output()
        raise OSError(error.errno, error.strerror, "standard output") from None


def warn(text: str) -> None:
    """Print a remark to standard error."""
    print(printable(text), file=sys.stderr)


def forget_output() -> None:
    """Write no more to standard output: Python would complain again when it flushes at its end."""
    if sys.stdout is sys.__stdout__:
        sys.stdout = None


def _flush() -> None:
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise OutputClosed from None
    except OSError as error:
        forget_output()
        raise OSError(error.errno, error.strerror, "standard output") from None


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


def _fail(message: str, code: int) -> int:
    warn(f"ags1: {message}")
    return code


if __name__ == "__main__":
    sys.exit(main())
