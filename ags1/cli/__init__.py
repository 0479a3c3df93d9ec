"""The `ags1` command.

What a command shows (progress bars, tables, JSON) is imported when it shows it: of the time that `cp` takes for a
gigabyte, the start of a Python program is a large share.
"""

from __future__ import annotations

import io
import sys

from ags1.errors import Ags1Error, KeyAccessError

__all__ = ["main"]

EXIT_OK = 0
EXIT_DATA = 1
EXIT_USAGE = 2
EXIT_KEY = 3
EXIT_IO = 4
EXIT_INTERRUPTED = 130


def main(arguments: list[str] | None = None) -> int:
    """Run one command.

    Parameters
    ----------
    arguments : list of str, optional
        As in ``sys.argv[1:]``, the default.

    Returns
    -------
    int
        0 success; 1 data that is not authentic, not AGS1, or truncated; 2 wrong usage; 3 a key that could not be had;
        4 an I/O error, such as a missing file or a full disk; 130 interrupted.
    """
    from ags1.cli._parser import UsageError, parse

    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        # A file name that is no text must not stop the work on the files after it.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        options = parse(sys.argv[1:] if arguments is None else arguments)
        return int(options.run(options))
    except SystemExit as exit_:
        return int(exit_.code or 0)
    except UsageError as error:
        return _fail(str(error), EXIT_USAGE)
    except KeyboardInterrupt:
        return _fail("interrupted; nothing half-written was left behind", EXIT_INTERRUPTED)
    except BrokenPipeError:
        # The reader of our output went away, as `head` does. Python would complain again when it flushes.
        sys.stdout = None  # type: ignore[assignment]
        return EXIT_OK
    except (Ags1Error, OSError, ValueError, MemoryError, ImportError) as error:
        return _fail(describe(error), exit_code(error))


def exit_code(error: BaseException) -> int:
    """The exit code that stands for an error."""
    if isinstance(error, KeyAccessError):
        return EXIT_KEY
    if isinstance(error, OSError):
        return EXIT_IO
    if isinstance(error, Ags1Error):
        return EXIT_DATA
    return EXIT_USAGE


def describe(error: BaseException) -> str:
    """One line for a person: what, where, and no traceback."""
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        name = error.filename if isinstance(error.filename, str) else str(error.filename)
        return f"{name}: {error.strerror}"
    return str(error) or type(error).__name__


def _fail(message: str, code: int) -> int:
    print(f"ags1: {message}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
