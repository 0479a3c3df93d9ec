"""The `ags1` command.

What a command shows (progress bars, tables, JSON) is imported when it shows it: of the time that `cp` takes
for a gigabyte, the start of a Python program is a large share.
"""

from __future__ import annotations

import io
import os
import re
import sys

from ags1.errors import Ags1Error, KeyAccessError
from ags1.support.exit_codes import EXIT_OUTPUT_CLOSED, EXIT_USAGE, exit_code
from ags1.support.exit_codes import describe as _describe
from ags1.support.interrupts import INTERRUPTED, interrupted_code, raise_from_now_on
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
    "in_options",
    "main",
    "refuses_everything",
    "say",
    "say_json",
    "warn",
    "warn_some",
]

# What a message of the library says to do, and what that is on the command line.
_PHRASES = (
    ("give one (password, password_file, or the variable", "give one (--password-file, or the variable"),
    (
        "(password, password_file, or AGS1_KMS_PASSWORD) or a key_file",
        "(--password-file, or AGS1_KMS_PASSWORD) or a --key-file",
    ),
    ("a key file: give it as key_file", "a key file: give it as --key-file"),
    ("if it is a key, give it as one", "if it is a key, give it as --key-file"),
    ("give one of password, password_file and key_file", "give one of --password-file and --key-file"),
    ("give it in footer_key, or a key_retriever", "give it with --footer-key or --key-for"),
    ("give it in column_keys, or a key_retriever", "give it with --column-key or --key-for"),
    ("a key retriever cannot find it; give footer_key", "give it with --footer-key"),
    ("a key retriever cannot find it; give column_keys", "give it with --column-key"),
    ("the key retriever has no key", "--key-for gives no key"),
    ("give a DecryptionConfig with the footer key", "give --footer-key, --kms or --key-metadata"),
    ("give a DecryptionConfig with its keys", "give --footer-key, --kms or --key-metadata"),
    ("use rekey_file to encrypt it in another way", "`ags1 parquet rekey` encrypts it in another way"),
    ("read it without a decryption configuration or with allow_plaintext=True", "say --allow-plaintext"),
    ("although column_keys has a key for it", "although --column-key has a key for it"),
    ("(allow_plaintext=True accepts it)", "(--allow-plaintext accepts it)"),
    ("rewrite the file with drop_bloom_filters=True, which leaves", "--drop-bloom-filters of decrypt and rekey leaves"),
    ("in plaintext_columns", "in --plaintext-columns"),
    ("require_encrypted has", "--require-encrypted has"),
    ("give aad_prefix (", "give --aad-prefix ("),
    ("or aad_prefix is wrong", "or --aad-prefix is wrong"),
    ("without a prefix, leave aad_prefix out", "without a prefix, leave --aad-prefix out"),
    ("give a tuple of the parts of its path instead", "write dots inside a name as \\. instead"),
    (": give a KMS", ": say --kms URL"),
    ("with allowed_locations", "with --allow-location"),
    ("open the table with allow_plaintext=True to read it", "say --allow-plaintext to take it"),
    ("open the table with allow_plaintext=True if that is meant to be", "say --allow-plaintext if that is meant to be"),
    (
        "if you accept that, set the length policy to 'metadata-hint', or to 'file'",
        "if you accept that, say --length-policy metadata-hint, or file",
    ),
    ("only the length policy 'file' opens it", "only --length-policy file opens it"),
    (" (in Python also storage_options=)", ""),
)
# Of these, the options for reading: where a file is re-keyed, those begin with --old-.
_READING = re.compile("--(?=footer|column|key-for|key-metadata|aad)")


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
    from ags1.cli.grammar.parser import parse
    from ags1.support.command_line import UsageError

    options = None
    try:
        raise_from_now_on()
        _prepare_streams()
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
        return _fail(INTERRUPTED, interrupted_code())
    except OutputClosed:
        forget_output()
        return EXIT_OUTPUT_CLOSED
    except (Ags1Error, OSError, ValueError, MemoryError, ImportError) as error:
        return _failed(options, error)
    except Exception as error:
        # Such as what PyIceberg's own way to an object store raises.
        from ags1.storage import as_os_error

        fault = as_os_error(error)
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
    return in_options(_describe(error), old=hasattr(options, "old_footer_key"))


def in_options(text: str, *, old: bool = False) -> str:
    """A message of the library that names options of this command; `old` is whether those for reading are old ones."""
    for said, meant in _PHRASES:
        text = text.replace(said, _READING.sub("--old-", meant) if old else meant)
    return text


def say(line: str, *, flush: bool = False, raw: bool = False) -> None:
    """Print a line of results to standard output; `raw` leaves control characters as they are, as in CSV.

    OutputClosed: its reader went away. OSError: it could not be written; names standard output.
    """
    with OutputFaults():
        print(line if raw else printable(line, undecodable=True), flush=flush)


def say_json(record: dict[str, Any]) -> None:
    """Print an object of JSON on a line of its own."""
    import json

    say(json.dumps(record))


def warn(text: str) -> None:
    """Print a remark to standard error."""
    print(printable(text), file=sys.stderr)


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
