"""The arguments of the actions of ``ags1 iceberg`` that convert a table, or remove what is left over."""

from __future__ import annotations

import argparse

from ags1.cli._dataset_parser import _duration
from ags1.cli._parser import _add_kms, _count, _json_fields

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["add_actions"]

_MORE = """
what happens:
  Pages of Parquet files are moved, not decoded. Every file goes to a new path,
  and one commit makes the new files the table's: until then the table is as it
  was. A run that was killed is resumed by the next one. Old snapshots keep
  their files until they are expired.
"""
_DAYS = 3 * 86_400.0


def add_actions(
    action: Callable[..., argparse.ArgumentParser], add_store: Callable[[argparse.ArgumentParser], None]
) -> None:
    """Add encrypt, decrypt, rekey, relocate, expire and clean."""
    fields = _json_fields("location, plan, report (null if nothing was done), error")

    sub = action(
        "encrypt",
        "_iceberg_convert:encrypt",
        "encrypt a table in place, or what others added to it as plaintext",
        "--key-id ID --kms URL [options]",
        "Format version 2 becomes 3.",
        _MORE + fields,
    )
    sub.add_argument("--key-id", metavar="ID", required=True, help="the master key")
    _add_length(sub)
    sub.add_argument(
        "--enable-only",
        action="store_true",
        help="encrypt what is written from now on, and leave all files as they are",
    )
    _add_expire(sub, "plaintext")
    _add_work(sub, add_store)

    sub = action(
        "decrypt",
        "_iceberg_convert:decrypt",
        "make a plaintext table of an encrypted one, in place",
        "--kms URL [options]",
        "",
        _MORE + fields,
    )
    _add_expire(sub, "encrypted")
    _add_work(sub, add_store)

    sub = action(
        "rekey",
        "_iceberg_convert:rekey",
        "give every file of a table a new key, in place",
        "--kms URL [options]",
        "For keys that leaked. `ags1 iceberg rewrap` changes the master key alone, and no file.",
        _MORE + fields,
    )
    sub.add_argument("--key-id", metavar="ID", help="another master key (the same)")
    _add_length(sub)
    _add_expire(sub, "old")
    _add_work(sub, add_store)

    sub = action(
        "relocate",
        "_iceberg_convert:relocate",
        "copy a table to another place, encrypted files byte for byte",
        "TARGET --kms URL [options]",
        "The source stays as it is. Branches and tags come along, history does not.",
        fields,
    )
    sub.add_argument("target", metavar="TARGET", help="directory of the new table; a path or URL")
    sub.add_argument("--key-id", metavar="ID", help="the new table's master key (that of the old one)")
    sub.add_argument(
        "--to-catalog", metavar="NAME", help="create the new table in this catalog (none: a metadata file)"
    )
    sub.add_argument("--to-name", metavar="TABLE", help="its name there, such as db.events")
    _add_work(sub, add_store)

    sub = action(
        "expire",
        "_iceberg_convert:expire",
        "remove the snapshots that no branch or tag has, with the files and keys that only they need",
        "--kms URL [options]",
        "Time travel to before the newest snapshot ends.",
        fields,
    )
    _add_work(sub, add_store, threads=False)

    sub = action(
        "clean",
        "_iceberg_convert:clean",
        "remove files below a table that nothing names, such as those of a conversion that was given up",
        "--kms URL [options]",
        "",
        fields,
    )
    sub.add_argument(
        "--older-than", type=_duration, default=_DAYS, metavar="TIME",
        help="leave younger files alone, which somebody may be about to commit: 12h or 30d (3d)",
    )  # fmt: skip
    _add_work(sub, add_store, threads=False)


def _add_length(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data-key-length", type=int, choices=(16, 24, 32), help="bytes of the keys of files (the table's, or 16)"
    )


def _add_expire(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument(
        "--expire", action="store_true", help=f"remove the {what} snapshots and files afterwards, as `expire` does"
    )


def _add_work(
    parser: argparse.ArgumentParser, add_store: Callable[[argparse.ArgumentParser], None], *, threads: bool = True
) -> None:
    parser.add_argument(
        "--catalog",
        metavar="NAME",
        help="TABLE is the table's name, such as db.events, in this catalog of PyIceberg's configuration",
    )
    group = parser.add_argument_group("work")
    group.add_argument("--dry-run", action="store_true", help="say what would be done, and write nothing")
    group.add_argument("-y", "--yes", action="store_true", help="do it without asking")
    if threads:
        group.add_argument("--threads", type=_count, default=None, metavar="N", help="files at once (two a CPU)")
    group.add_argument("--json", action="store_true", help="one JSON object, for machines")
    group.add_argument("-q", "--quiet", action="store_true", help="say nothing but errors")
    group.add_argument(
        "--progress", choices=("auto", "always", "never"), default="auto", help="a progress bar: auto on a terminal"
    )
    parser.set_defaults(verbose=False)
    _add_kms(parser)
    add_store(parser)
