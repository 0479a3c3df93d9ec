"""The arguments of ``ags1 iceberg create``, ``append`` and ``delete``."""

from __future__ import annotations

from ags1.cli._parser import _json_fields

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

__all__ = ["add_write_actions"]

_CREATE_HELP = """
the new table:
  TABLE is its directory, or with --catalog its name. It is empty, encrypted,
  and of format version 3. Fields of --partition-by and --sort-by are
    country, day(ts), bucket(16, id), truncate(name, 3)
  and for sorting with asc or desc, nulls first or nulls last.

examples:
  ags1 iceberg create lake/events --schema first.parquet \\
      --partition-by "day(ts)" --key-id lake --kms local:keys.json
  ags1 iceberg create db.events --catalog prod --schema schema.json \\
      --key-id alias/lake --kms aws:?region=eu-central-1
"""
_APPEND_HELP = """
files:
  Parquet, CSV with the names of the columns first, or Arrow (IPC), all of one
  format. Their columns are found by their names. They are read as they are
  written, in bounded memory, and become one snapshot, or nothing.

example:
  ags1 iceberg append lake/events may.parquet june.parquet
"""
_DELETE_HELP = """
What is deleted is what `ags1 iceberg scan` shows with the same --filter.
Older snapshots have the rows until they are expired.
"""
_REPORT = (
    "table, operation, snapshot_id (null: nothing to do), added_files,\n"
    "  added_rows, added_bytes, removed_files, deleted_rows, metadata_location,\n"
    "  error"
)


def add_write_actions(
    action: Callable[..., argparse.ArgumentParser],
    add_open: Callable[[argparse.ArgumentParser], None],
    add_new: Callable[[argparse.ArgumentParser], None],
) -> None:
    """Add the actions; the functions add what others have, too."""
    sub = action(
        "create",
        "_iceberg_write:create",
        "make an empty encrypted table",
        "--schema FILE --key-id ID --kms URL [options]",
        "",
        _CREATE_HELP + _json_fields("table, metadata_location, error"),
    )
    sub.add_argument(
        "--schema", metavar="FILE", required=True, help="columns of this Parquet, CSV or Arrow file, or Iceberg's JSON"
    )
    sub.add_argument("--key-id", metavar="ID", required=True, help="the master key")
    sub.add_argument(
        "--data-key-length", type=int, choices=(16, 24, 32), metavar="BYTES", help="of the keys of its files (16)"
    )
    sub.add_argument("--partition-by", action="append", metavar="FIELD", help="may be repeated")
    sub.add_argument("--sort-by", action="append", metavar="FIELD", help="may be repeated")
    sub.add_argument("--location", metavar="URL", help="directory of the table (where the catalog puts it)")
    sub.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a property of the table")
    _add_common(sub)
    add_new(sub)

    sub = action(
        "append",
        "_iceberg_write:append",
        "add the rows of files to a table",
        "FILE... --kms URL [options]",
        "",
        _APPEND_HELP + _json_fields(_REPORT),
    )
    sub.add_argument("files", metavar="FILE", nargs="+", help="rows")
    sub.add_argument("--ref", metavar="BRANCH", help="add them to this branch (main)")
    _add_common(sub)
    add_open(sub)

    sub = action(
        "delete",
        "_iceberg_write:delete",
        "delete the rows of a table that pass a filter",
        "--filter EXPRESSION --kms URL [options]",
        "It asks first.",
        _DELETE_HELP + _json_fields(_REPORT + ";\n  with --dry-run would_delete"),
    )
    sub.add_argument("--filter", metavar="EXPRESSION", required=True, help="amount < 0 or country = 'CH'")
    sub.add_argument("--ref", metavar="BRANCH", help="delete from this branch (main)")
    sub.add_argument("--yes", action="store_true", help="do not ask")
    sub.add_argument("--dry-run", action="store_true", help="only count the rows")
    _add_common(sub)
    add_open(sub)


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--catalog",
        metavar="NAME",
        help="TABLE is the table's name, such as db.events, in this catalog of PyIceberg's configuration",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object, for machines")
    parser.add_argument("-q", "--quiet", action="store_true", help="say nothing but errors")
