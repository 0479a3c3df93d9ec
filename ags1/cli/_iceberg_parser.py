"""The arguments of ``ags1 iceberg``, and its help."""

from __future__ import annotations

import argparse

from ags1._command_line import CommandParser, Formatter, UsageError, option_name, refuse_option
from ags1.cli._iceberg_convert_parser import add_actions
from ags1.cli._iceberg_write_parser import add_write_actions
from ags1.cli._parser import _add_kms, _count, _json_fields, _lazily

TYPE_CHECKING = False
if TYPE_CHECKING:
    import datetime

__all__ = ["command_parser", "parse"]

_TABLE_HELP = """\
table:
  TABLE is the location of the table's current metadata file, which its
  catalog knows: a path or a URL such as s3://lake/db/t/metadata/00007-....
  metadata.json. A directory stands for the metadata file with the highest
  number in it, or in metadata/ below it, which may be older or newer than
  what the catalog has; which one that is, is said.
"""

_SCAN_EXAMPLES = """
forms:
  table   aligned columns for a person
  csv     lines with commas, and the names of the columns first
  json    one object a line
  parquet a Parquet file; needs --output
  Every form is plaintext: `ags1 parquet encrypt` encrypts a Parquet file.
  Rows go out as they are decrypted, in bounded memory, and --output appears
  whole or not at all.

examples:
  ags1 iceberg scan s3://lake/db/t/metadata/00007-ab.metadata.json \\
      --kms aws:?region=eu-central-1 --columns id,amount \\
      --filter "amount > 10 and country = 'CH'"
  ags1 iceberg scan t/ --kms local:keys.json --as-of 2026-11-01 --limit 20
  ags1 iceberg scan t/ --kms local:keys.json --format parquet -o t.parquet
"""

_CAT_HELP = """
Manifest lists and manifests contain the keys of what they name: their
plaintext is as secret as the table. --json shows their entries without keys.
"""

_NEW_METADATA_HELP = """
the new metadata:
  The old one, except for encryption-keys{and_property},
  last-updated-ms (now), and metadata-log (the old file is added, and the
  oldest dropped beyond write.metadata.previous-versions-max). No other file
  changes, and none is deleted.
  With --catalog the change is committed, unless somebody else has committed
  meanwhile. Without, the new file stands beside the old one under the next
  number, and the table changes when its catalog is told: this command says
  how. Stop writers until then: what they commit meanwhile is not in it. A
  table without a catalog is its newest file: then that is the commit.
"""

_FILES_FIELDS = (
    "path, kind, file_format, encryption, key_bits, stored_length (trusted),\n"
    "  file_size, physical_size (with --sizes), record_count, key_id, kek_id,\n"
    "  snapshot_ids"
)


def parse(arguments: list[str]) -> argparse.Namespace:
    """Parse what stands behind ``ags1 iceberg``; `run` of the result is the function to call with it.

    Raises
    ------
    UsageError
        They make no sense. The message names options, but shows no value that might be a key.
    SystemExit
        Help was asked for, and shown.
    """
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:2], "--help"]
    parser = command_parser()
    options, rest = parser.parse_known_args(arguments)
    see = f"(see `ags1 iceberg {options.action} --help`)"
    for argument in rest:
        if argument.startswith("-") and argument != "-":
            option = option_name(argument)
            if option in ("--key", "--key-env", "--key-metadata"):
                raise UsageError(f"there is no {option}: a table's keys come from its KMS, --kms URL {see}")
            refuse_option(parser, options.action, argument)
    if rest:
        raise UsageError(f"too many arguments {see}")
    return options


def command_parser() -> CommandParser:
    parser = CommandParser(prog="ags1 iceberg", formatter_class=Formatter, allow_abbrev=False)
    actions = parser.add_subparsers(metavar="ACTION", dest="action", prog="ags1 iceberg", required=True)

    def action(
        name: str, run: str, summary: str, usage: str, more: str = "", epilog: str = ""
    ) -> argparse.ArgumentParser:
        sub = actions.add_parser(
            name,
            help=summary,
            usage=f"ags1 iceberg {name} TABLE {usage}",
            description=f"{summary[0].upper()}{summary[1:]}. {more}".strip(),
            epilog=_TABLE_HELP + epilog,
            formatter_class=Formatter,
            allow_abbrev=False,
        )
        sub.set_defaults(run=_lazily(run))
        sub.add_argument("table", metavar="TABLE", help="metadata.json, or directory of the table; a path or URL")
        return sub

    sub = action(
        "inspect",
        "_iceberg_show:inspect",
        "draw a table: its encryption, keys, snapshots, manifests and files",
        "[--kms URL] [options]",
        "Without --kms, what the metadata file says. No key is shown. Data files are not opened: that takes "
        "`ags1 iceberg verify`.",
        _json_fields(
            "metadata_location, format_version, table_uuid, location,\n"
            "  last_updated_ms, encrypted, master_key_id, properties, keys, snapshots,\n"
            "  manifests, files (by kind; each one with -vv), errors, error"
        ),
    )
    _add_open(sub)
    _add_snapshots(sub, "the current one")
    group = sub.add_argument_group("output")
    group.add_argument(
        "-v", "--verbose", action="count", default=0, help="all keys, snapshots and manifests; -vv: all files"
    )
    group.add_argument("--json", action="store_true", help="one JSON object, for machines")

    sub = action(
        "files",
        "_iceberg:files",
        "list the files of a table, and how each is encrypted",
        "--kms URL [options]",
        "Manifest lists, manifests, data files, delete files and deletion vectors, each once.",
        _json_fields(_FILES_FIELDS),
    )
    _add_open(sub)
    _add_snapshots(sub, "the current one")
    group = sub.add_argument_group("output")
    group.add_argument("--sizes", action="store_true", help="ask for the size of each file as it is now")
    group.add_argument("--format", choices=("table", "csv", "json"), default="table", help="form of rows (table)")

    sub = action(
        "scan",
        "_iceberg_scan:scan",
        "show rows of a table, or write them to a file",
        "--kms URL [options]",
        "PyIceberg plans: files that the filter excludes are not opened.",
        _SCAN_EXAMPLES,
    )
    _add_open(sub)
    group = sub.add_argument_group("rows")
    group.add_argument("--columns", metavar="NAMES", help="only these columns, with commas")
    group.add_argument("--filter", metavar="EXPRESSION", help="only these rows: amount > 10 and country = 'CH'")
    chosen = group.add_mutually_exclusive_group()
    chosen.add_argument("--snapshot", type=_snapshot_id, metavar="ID", help="of this snapshot (the current one)")
    chosen.add_argument("--ref", metavar="NAME", help="of this branch or tag")
    chosen.add_argument(
        "--as-of", type=_moment, metavar="TIME", help="as it was then: 2026-11-01, 2026-11-01T12:30 (UTC without zone)"
    )
    group.add_argument("--limit", type=_rows, metavar="N", help="no more than N rows")
    group = sub.add_argument_group("output")
    group.add_argument(
        "--format", choices=("table", "csv", "json", "parquet"), help="form of rows (that of --output's name, or table)"
    )
    group.add_argument("-o", "--output", metavar="FILE", help="write to this file instead of standard output")
    group.add_argument("-q", "--quiet", action="store_true", help="say nothing but errors")

    sub = action(
        "audit",
        "_iceberg:audit",
        "say what is wrong with the encryption of a table",
        "--kms URL [options]",
        "Plaintext files, missing trusted lengths, keys that do not open, orphaned and expired keys, sizes that "
        "disagree. Data files are not read. Exit code 1 if there are errors; warnings and notes are told.",
        _json_fields(
            "what ags1.iceberg's AuditReport has (findings: severity, code, subject,\n  message), seconds, error"
        ),
    )
    _add_open(sub)
    _add_snapshots(sub, "all of them", default_all=True)
    group = sub.add_argument_group("output")
    group.add_argument("--json", action="store_true", help="one JSON object, for machines")
    group.add_argument("-q", "--quiet", action="store_true", help="say nothing but errors")

    sub = action(
        "verify",
        "_iceberg:verify",
        "authenticate every block and module of the files of a table, and name those that fail",
        "--kms URL [options]",
        "Exit code 1 if a file fails; 3 if only keys are missing.",
        _json_fields(
            "what ags1.iceberg's TableVerifyReport has (failures: path, kind, error,\n"
            "  message, failed, snapshot_ids), seconds, error"
        ),
    )
    _add_open(sub)
    _add_snapshots(sub, "all of them", default_all=True)
    group = sub.add_argument_group("work")
    group.add_argument("--threads", type=_count, default=None, metavar="N", help="files at once (every CPU)")
    group.add_argument("--json", action="store_true", help="one JSON object, for machines")
    group.add_argument("-q", "--quiet", action="store_true", help="say nothing but errors")
    group.add_argument(
        "--progress",
        choices=("auto", "always", "never"),
        default="auto",
        help="a progress bar: auto shows it on a terminal",
    )
    sub.set_defaults(verbose=False)

    sub = action(
        "cat",
        "_iceberg:cat",
        "decrypt one file of a table to standard output",
        "FILE --kms URL [options]",
        "A Parquet file comes out as a plaintext Parquet file.",
        _CAT_HELP,
    )
    sub.add_argument(
        "file", metavar="FILE", help="location of the file, as `ags1 iceberg files` has it, or an end of it"
    )
    _add_open(sub)
    sub.add_argument("--json", action="store_true", help="Avro files: one JSON object for each record, without keys")
    sub.add_argument("-q", "--quiet", action="store_true", help="say nothing but errors")

    fields = "old_metadata, new_metadata (null if nothing was written),\n  "
    sub = action(
        "rewrap",
        "_iceberg_keys:rewrap",
        "put a table under another master key, or the newest version of it; no file of it changes",
        "--new-key-id ID --kms URL [options]",
        "Key encryption keys are wrapped anew, and the table's property encryption.key-id names the new master key. "
        "Keep the old one as long as somebody needs older metadata files.",
        _NEW_METADATA_HELP.format(and_property=", encryption.key-id")
        + _json_fields(fields + "old_key_ids, new_key_id, keys, unopened, untouched, dry_run, error"),
    )
    sub.add_argument("--new-key-id", metavar="ID", required=True, help="the new master key")
    sub.add_argument("--new-kms", metavar="URL", help="the service that has it, if it is another one")
    _add_change(sub)

    sub = action(
        "prune",
        "_iceberg_keys:prune",
        "drop the keys that nothing in a table uses any more, such as those of expired snapshots",
        "[options]",
        "Needs no KMS. Entries that this version cannot judge stay.",
        _NEW_METADATA_HELP.format(and_property="")
        + _json_fields(fields + "dropped, kept, unjudged, missing, dry_run, error"),
    )
    sub.add_argument(
        "--keep", action="append", default=[], metavar="ID", help="a key to keep in any case (may be repeated)"
    )
    _add_change(sub, with_kms=False)
    add_actions(action, _add_store)
    add_write_actions(action, _add_open, _add_new)
    return parser


def _add_store(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("storage")
    group.add_argument(
        "--property",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="for PyIceberg's FileIO and catalog: s3.endpoint=https://...; of secrets, the name of a variable: "
        "s3.secret-access-key=env:NAME (may be repeated)",
    )


def _add_open(parser: argparse.ArgumentParser) -> None:
    _add_kms(parser)
    group = parser.add_argument_group("trust")
    group.add_argument("--table-key-id", metavar="ID", help="refuse a table that is under another master key")
    group.add_argument(
        "--metadata-hash",
        metavar="BASE64",
        help="refuse a metadata file whose JSON text has another SHA-256; Hive's table parameter metadata_hash has it",
    )
    group.add_argument("--allow-plaintext", action="store_true", help="take files that are not encrypted, too")
    group.add_argument(
        "--length-policy",
        choices=("trusted", "metadata-hint", "file"),
        default="trusted",
        help="AGS1 files without a length in their key metadata, as iceberg-rust writes them: refuse them (trusted), "
        "take the length that the file above says, or the file's own",
    )
    _add_store(parser)


def _add_new(parser: argparse.ArgumentParser) -> None:
    _add_kms(parser)
    _add_store(parser)


def _add_snapshots(parser: argparse.ArgumentParser, usual: str, *, default_all: bool = False) -> None:
    group = parser.add_argument_group("snapshots")
    chosen = group.add_mutually_exclusive_group()
    chosen.add_argument("--snapshot", type=_snapshot_id, metavar="ID", help=f"the files of this snapshot ({usual})")
    chosen.add_argument("--ref", metavar="NAME", help="the files of this branch or tag")
    if default_all:
        chosen.add_argument("--current", action="store_true", help="the files of the current snapshot only")
        parser.set_defaults(all=False)
    else:
        chosen.add_argument("--all", action="store_true", help="the files of all snapshots")
        parser.set_defaults(current=True)


def _add_change(parser: argparse.ArgumentParser, *, with_kms: bool = True) -> None:
    parser.add_argument(
        "--catalog",
        metavar="NAME",
        help="TABLE is the table's name, such as db.events, in this catalog of PyIceberg's configuration "
        "(.pyiceberg.yaml, PYICEBERG_CATALOG__NAME__URI): commit there",
    )
    parser.add_argument("--dry-run", action="store_true", help="make every check, and write nothing")
    parser.add_argument("--json", action="store_true", help="one JSON object, for machines")
    parser.add_argument("-q", "--quiet", action="store_true", help="say nothing but the new location, and errors")
    if with_kms:
        _add_kms(parser)
    _add_store(parser)


def _snapshot_id(text: str) -> int:
    if not (text.isascii() and text.removeprefix("-").isdigit()) or len(text) > 20:
        raise argparse.ArgumentTypeError(f"{text!r} is not the id of a snapshot (`ags1 iceberg inspect` shows them)")
    return int(text)


def _rows(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of rows")
    return int(text)


def _moment(text: str) -> datetime.datetime | int:
    """A time, or milliseconds since 1970."""
    import datetime

    if text.isascii() and text.isdigit() and 11 <= len(text) <= 15:
        return int(text)
    try:
        # Python 3.10 reads neither a Z nor a fraction of other than 3 or 6 digits.
        return datetime.datetime.fromisoformat(text[:-1] + "+00:00" if text[-1:] in "Zz" else text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time such as 2026-11-01, 2026-11-01T12:30:00Z, or milliseconds since 1970"
        ) from None
