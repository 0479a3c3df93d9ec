"""The arguments of the `ags1` command, and its help."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

__all__ = ["UsageError", "parse"]

_EPILOG = """\
exit codes:
  0  success
  1  the data is not authentic, not AGS1, or truncated
  2  wrong usage
  3  a key could not be had
  4  an I/O error: a missing file, a full disk, ...

examples:
  ags1 keygen my.key
  ags1 encrypt sales.avro sales.avro.ags1 --key-file my.key
  ags1 verify sales.avro.ags1 --key-file my.key
  ags1 cat sales.avro.ags1 --key-file my.key --offset 1000 --bytes 64
  ags1 decrypt 'vault/*.ags1' plain/ --key-file my.key --jobs 4
  tar c data | ags1 encrypt - data.tar.ags1 --key-env LAKE_KEY

`ags1 COMMAND --help` explains each command.
"""

_KEY_HELP = """\
keys:
  A key is never taken from the command line, where every user of the machine could read it. A key file holds 16, 24
  or 32 raw bytes (what `ags1 keygen` writes), or the same as hexadecimal or base64 text; an environment variable
  holds text. A key metadata file holds Iceberg's StandardKeyMetadata: key, AAD prefix and trusted length in one.
"""


class UsageError(Exception):
    """The arguments make no sense together."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        # People try --key=HEX. The message goes to logs that outlive the process list.
        message = re.sub(r"(--key[^\s=]*=)\S+", r"\1...", message)
        raise UsageError(f"{message}\n(see `{self.prog} --help`)")


def parse(arguments: list[str]) -> argparse.Namespace:
    """Parse the arguments; `run` of the result is the function to call with it."""
    parser = _Parser(
        prog="ags1",
        description="Encrypt, decrypt and examine AES GCM Stream (AGS1) files, the format of encrypted Iceberg tables.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="store_true", help="show the version and exit")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command")

    def command(name: str, run: str, summary: str, more: str = "", epilog: str | None = None) -> argparse.ArgumentParser:
        sub = commands.add_parser(
            name,
            help=summary,
            description=f"{summary[0].upper()}{summary[1:]}. {more}".strip(),
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        sub.set_defaults(run=_lazily(run))
        return sub

    sub = command("keygen", "_keys:keygen", "write a fresh random key to a file that only you can read")
    sub.add_argument("keyfile", metavar="KEYFILE", help="file to write; `-` writes to standard output")
    sub.add_argument("--bits", type=int, choices=(128, 192, 256), default=256, help="size of the key (256)")
    sub.add_argument("--format", choices=("raw", "hex", "base64"), default="raw", help="how to write it (raw)")
    sub.add_argument("--force", action="store_true", help="replace an existing file: what it encrypted is then lost")

    sub = command("encrypt", "_transfer:encrypt", "encrypt files into AGS1 files", epilog=_KEY_HELP)
    _add_files(sub, "files, globs ('*.avro'), directories, or `-` for standard input; then where to put the result")
    _add_key(sub)
    sub.add_argument(
        "--key-metadata-out",
        metavar="PATH",
        help="write the key metadata (key, AAD prefix, length) here: a file for one source, a directory for many. "
        "Without a key, each file then gets a fresh one",
    )
    sub.add_argument("--block-length", type=_size, default=1 << 20, metavar="SIZE", help="bytes of plaintext in a block (1M, the only length that Iceberg reads)")  # fmt: skip
    _add_work(sub)

    sub = command("decrypt", "_transfer:decrypt", "decrypt AGS1 files", epilog=_KEY_HELP)
    _add_files(sub, "AGS1 files, globs ('*.ags1'), directories, or `-` for standard input; then where to put the result")
    _add_key(sub)
    _add_length(sub)
    _add_work(sub)

    sub = command(
        "cat", "_transfer:cat", "decrypt to standard output, all of a file or a range of it", epilog=_KEY_HELP
    )
    sub.add_argument("files", nargs="+", metavar="FILE", help="AGS1 files, or `-` for standard input")
    sub.add_argument("--offset", type=_size, default=0, metavar="SIZE", help="plaintext offset to start at (0)")
    sub.add_argument("--bytes", type=_size, default=None, metavar="SIZE", help="bytes of plaintext to write (to the end)")  # fmt: skip
    _add_key(sub)
    _add_length(sub)
    sub.add_argument("--threads", type=int, default=None, metavar="N", help="threads to use (every CPU)")

    sub = command(
        "inspect",
        "_examine:inspect",
        "show what can be known without a key",
        "Header, block length, blocks, plaintext length, and what is wrong with the file.",
    )
    sub.add_argument("files", nargs="+", metavar="FILE", help="files, globs, directories, or `-` for standard input")
    sub.add_argument("--json", action="store_true", help="one JSON object a line")

    sub = command(
        "verify", "_examine:verify", "authenticate every block, and name those that fail", epilog=_KEY_HELP
    )
    sub.add_argument("files", nargs="+", metavar="FILE", help="AGS1 files, globs or directories")
    _add_key(sub)
    _add_length(sub)
    _add_show(sub)

    sub = command("info", "_machine:info", "show the version, the OpenSSL and what AES-GCM runs on")
    sub.add_argument("--json", action="store_true", help="one JSON object")

    sub = command("bench", "_machine:bench", "measure encryption and decryption in memory on this machine")
    sub.add_argument("--bytes", type=_size, default=256 << 20, metavar="SIZE", help="bytes of plaintext (256M)")
    sub.add_argument("--json", action="store_true", help="one JSON object a line")

    options = parser.parse_args(arguments)
    if options.version:
        from ags1._version import version

        print(f"ags1 {version}")
        raise SystemExit(0)
    if options.command is None:
        parser.print_help()
        raise SystemExit(2)
    return options


def _add_files(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("sources", nargs="*", metavar="SOURCE", help=text)
    parser.add_argument(
        "target",
        metavar="TARGET",
        help="a file, `-` for standard output, or for many sources a directory (also any existing one)",
    )
    parser.add_argument("--files-from", metavar="LIST", help="read more sources from a file, one a line; `-` is standard input")  # fmt: skip
    parser.add_argument("--no-clobber", action="store_true", help="refuse to replace an existing target")
    parser.add_argument("--fsync", action="store_true", help="wait until each result is on the disk")


def _add_key(parser: argparse.ArgumentParser) -> None:
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--key-file", metavar="FILE", help="read the key from a file")
    group.add_argument("--key-env", metavar="NAME", help="read the key from an environment variable, as hexadecimal or base64 text")  # fmt: skip
    group.add_argument("--key-metadata", metavar="FILE", help="read key, AAD prefix and trusted length from a file; for many sources, a directory of SOURCE.key-metadata")  # fmt: skip
    prefix = parser.add_mutually_exclusive_group()
    prefix.add_argument("--aad-prefix", metavar="TEXT", help="identity of the file, as text; {name} stands for its base name (without .ags1)")  # fmt: skip
    prefix.add_argument("--aad-prefix-hex", metavar="HEX", help="identity of the file, as hexadecimal bytes")


def _add_length(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--length", type=int, default=None, metavar="BYTES", help="trusted length of the encrypted file: shows a truncation that nothing else can")  # fmt: skip


def _add_work(parser: argparse.ArgumentParser) -> None:
    _add_show(parser)
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="files to work on at once (1)")


def _add_show(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--threads", type=int, default=None, metavar="N", help="threads for each file (every CPU)")
    parser.add_argument("--json", action="store_true", help="one JSON object a line, for machines")
    parser.add_argument("--quiet", action="store_true", help="say nothing but errors")
    parser.add_argument("--progress", choices=("auto", "always", "never"), default="auto", help="a progress bar: auto shows it on a terminal")  # fmt: skip


def _lazily(where: str) -> Callable[[argparse.Namespace], int]:
    module, _, name = where.partition(":")

    def run(options: argparse.Namespace) -> int:
        import importlib

        function: Any = getattr(importlib.import_module(f"ags1.cli.{module}"), name)
        return int(function(options))

    return run


def _size(text: str) -> int:
    """A number of bytes: 4096, 64K, 16M, 2G (powers of 1024)."""
    units = {"K": 10, "M": 20, "G": 30, "T": 40}
    digits, unit = (text[:-1], text[-1].upper()) if text[-1:].upper() in units else (text, "")
    if not digits.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of bytes such as 4096, 64K, 16M or 2G")
    return int(digits) << units.get(unit, 0)
