"""The `ags1` command.

What a command shows (progress bars, tables, JSON) is imported when it shows it: of the time that `cp` takes
for a gigabyte, the start of a Python program is a large share.
"""

from __future__ import annotations

import io
import os
import sys
from functools import partial

from ags1.cli.output import OutputClosed, OutputFaults, forget_output, say_json, warn
from ags1.cli.spelling import option_of
from ags1.errors import Ags1Error, without_secrets
from ags1.support.arguments import spell_by
from ags1.support.exit_codes import EXIT_OUTPUT_CLOSED, EXIT_USAGE, UsageError, describe, exit_code
from ags1.support.interrupts import (
    INTERRUPTED,
    end_from_now_on,
    interrupted_code,
    raise_from_now_on,
    was_interrupted,
)
from ags1.support.typing import Any


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
    before = spell_by(option_of)
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
    finally:
        spell_by(before)


def _run(arguments: list[str] | None) -> int:
    from ags1.cli.parser import parse

    options = None
    try:
        _prepare_streams()
        try:
            options = parse(sys.argv[1:] if arguments is None else arguments)
            old, properties = hasattr(options, "old_footer_key"), hasattr(options, "property")
            makes = hasattr(options, "single_writer")
            spell_by(partial(option_of, old=old, properties=properties, makes=makes))
            code = int(options.run(options))
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
    message = describe(error)
    subject = None if options is None else options.called.subject_of(options)
    if subject is None or not getattr(options, "json", False):
        return _fail(message, exit_code(error))
    say_json({name: without_secrets(each) for name, each in subject.items()} | {"error": message})
    return exit_code(error)


def _fail(message: str, code: int) -> int:
    warn(f"ags1: {message}")
    return code


if __name__ == "__main__":
    sys.exit(main())
