"""The actions of ``ags1 iceberg``: what each takes, and its help."""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Callable

from ags1.cli.grammar.parser import lazily
from ags1.support.command_line import CommandParser, OnSpark
from ags1.support.option_values import directory
from ags1.support.typing import Any

_TABLE_HELP = """\
table:
  With --catalog, TABLE is the table's name there, such as db.events. Without,
  it is the location of a metadata file: a path or a URL such as
  s3://lake/db/t/metadata/00007-....metadata.json. A directory stands for the
  metadata file with the highest number in it, or in metadata/ below it, which
  may be older or newer than what a catalog has; the command names it.
"""

_HELP = f"""\
{_TABLE_HELP}
examples:
  ags1 iceberg inspect t/metadata/00007-ab.metadata.json --kms local:keys.json
  ags1 iceberg scan s3://lake/db/t/metadata/00007-ab.metadata.json \\
      --kms 'aws:?region=eu-central-1' --filter 'amount > 10' --limit 20
  ags1 iceberg verify db.events --catalog prod --kms local:keys.json
  ags1 iceberg rewrap db.events --catalog prod \\
      --kms local:keys.json --new-key-id lake-2027 --dry-run

`ags1 iceberg ACTION --help` explains each action; `ags1 kms --help`, the URLs.
The variable AGS1_KMS stands for --kms. Needs the extra: ags1[iceberg].
"""

_SCAN_HELP = """
forms:
  table   aligned columns for a person
  csv     lines with commas, and the names of the columns first
  json    one object a line
  parquet a Parquet file; needs --output
  Every form is plaintext: `ags1 parquet encrypt` encrypts a Parquet file.
  Rows go out as they are decrypted, in bounded memory, and --output appears
  whole or not at all. A file that exists is refused, unless --overwrite is
  given.
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
  With --catalog the change is committed, unless another writer has committed
  meanwhile. Without, the new file stands beside the old one under the next
  number, and the table changes when its catalog is told: this command says
  how. Stop writers until then: what they commit meanwhile is not in it. A
  table without a catalog is its newest file: then that is the commit.
"""

_CONVERSION_HELP = """
what happens:
  Pages of Parquet files are moved, not decoded. Every file goes to a new path,
  and one commit makes the new files the table's: until then the table is as it
  was. A run that was killed is resumed by the next one. Old snapshots keep
  their files until they are expired.
"""

_CREATE_HELP = """
the new table:
  TABLE is its directory, or with --catalog its name. It is empty, encrypted,
  and of format version 3. Fields of --partition-by and --sort-by are
    country, day(ts), bucket(16, id), truncate(name, 3)
  and for sorting with asc or desc, nulls first or nulls last.
"""

_APPEND_HELP = """
files:
  Parquet, CSV with the names of the columns first, or Arrow (IPC), all of one
  format. Their columns are found by their names. They are read as they are
  written, in bounded memory, and become one snapshot, or nothing.
"""

_DELETE_HELP = """
What is deleted is what `ags1 iceberg scan` shows with the same --filter.
Older snapshots have the rows until they are expired.
"""

_COMPACT_HELP = """
what happens:
  Row groups of 32 MiB or more, in files without deletes, are moved and not
  decoded. All other rows are read and written again. Deleted rows are left
  out, and every other row keeps its row id. Other writers go on: a file that
  they change meanwhile is left as it is, and named. The old files stay until
  `ags1 iceberg expire`; a killed run is just run again, and `ags1 iceberg
  clean` removes what it left.
"""

_MAINTAIN_HELP = """
what happens:
  1. compact: as `ags1 iceberg compact`
  2. manifests: few instead of many; delete files that delete nothing go
  3. expire: snapshots older than --older-than that no branch or tag has, with
     the files and keys that only they need
  4. clean: files that nothing names, older than --orphans-older-than
  Each step is a commit of its own, so a killed run is just run again. It does
  not run beside `ags1 iceberg encrypt`, `rekey` or `decrypt`: exit code 6.
"""

_PACKAGES = ("pyiceberg", "pyarrow", "fastavro", "pyroaring")
_CHANGE_FIELDS = (
    "table, operation, snapshot_id (null: nothing to do), added_files, added_rows, added_bytes, removed_files, "
    "deleted_rows, metadata_location, metadata_hash (null: nothing to do), error"
)
_TABLE: dict[str, tuple[Any, ...]] = {
    "table": ("TABLE", "its metadata.json or directory, a path or URL; with --catalog its name", {"type": directory})
}
_ALL = {"snapshot": {"default": "all"}}
_BRANCH = {"ref": {"metavar": "BRANCH", "help": "the branch that it works on (main)"}}


_ON_SPARK = "its name in the session's SQL, CATALOG.NAMESPACE.TABLE; with --catalog its name there"
_SPARK_CATALOG = {"catalog": {"help": "a catalog of PyIceberg's configuration on the driver, not the session's"}}
_STEPS = ("enable", "convert", "expire")
_SPARK_JOB = "catalog workers-kms workers-threads parallelism dry-run yes quiet"


def hint(option: str) -> str | None:
    """What to say of an option that no action has."""
    if option in ("--key", "--key-env", "--key-metadata"):
        return f"there is no {option}: a table's keys come from its KMS, --kms URL"
    if option == "--data-keys":
        return "there is no --data-keys: `ags1 iceberg rekey` gives every file a new key, `ags1 iceberg rewrap` none"
    return None


def _with_packages(name: str) -> Callable[[argparse.Namespace], int]:
    """Return what runs an action, and says first which extra is missing, if one is."""

    def run(options: argparse.Namespace) -> int:
        for package in _PACKAGES:
            try:
                found = importlib.util.find_spec(package)
            except ValueError:
                found = None
            if found is None:
                raise ImportError(f"Iceberg tables need {package}: pip install 'ags1[iceberg]'", name=package)
        return lazily(name)(options)

    return run


def command_parser(only: str | None = None, on_spark: bool = False) -> CommandParser:
    """The parser of all actions, or with the options of one alone."""
    parser = CommandParser(
        prog="ags1 iceberg",
        what="ACTION",
        description="Read, audit, verify and maintain encrypted Iceberg tables.",
        epilog=_HELP,
        only=only,
        on_spark=on_spark,
    )

    def action(
        name: str,
        run: str,
        summary: str,
        options: str,
        *,
        epilog: str = "",
        places: Any = (),
        subject: str = "location",
        **settings: Any,
    ) -> None:
        parser.add_command(
            name,
            {**_TABLE, **dict(places)},
            summary,
            options,
            epilog=_TABLE_HELP + epilog,
            run=_with_packages(run),
            subject=(subject, "table"),
            **settings,
        )

    _add_reading(action)
    _add_keys(action)
    _add_conversions(action)
    _add_writing(action)
    _add_maintenance(action)
    return parser


def _add_reading(action: _Action) -> None:
    action(
        "inspect",
        "iceberg.show:inspect",
        "draw a table: its encryption, keys, snapshots, manifests and files",
        "TABLE moved-from snapshot ref LIST",
        more="Without --kms, what the metadata file says. No key is shown. Data files are not opened: that takes "
        "`ags1 iceberg verify`.",
        fields="metadata_location, tree (kind, name, path, facts, problem, children), error",
        examples="ags1 iceberg inspect t/ --kms local:keys.json",
        subject="metadata_location",
    )
    action(
        "files",
        "iceberg.tables:files",
        "list the files of a table, and how each is encrypted",
        "TABLE moved-from snapshot ref sizes ROWS",
        more="Manifest lists, manifests, data files, delete files and deletion vectors, each once.",
        fields="path, kind, file_format, encryption, key_bits, stored_length (trusted), file_size, physical_size (with "
        "--sizes), record_count, key_id, kek_id, snapshot_ids",
        examples="ags1 iceberg files t/ --kms local:keys.json --snapshot all --format csv",
    )
    action(
        "scan",
        "iceberg.scan:scan",
        "show rows of a table, or write them to a file",
        "TABLE moved-from columns filter snapshot ref as-of from-snapshot to-snapshot limit output overwrite ROWS",
        more="PyIceberg plans: files that the filter excludes are not opened.",
        epilog=_SCAN_HELP,
        examples="""\
ags1 iceberg scan s3://lake/db/t/metadata/00007-ab.metadata.json \\
    --kms 'aws:?region=eu-central-1' --columns id,amount \\
    --filter "amount > 10 and country = 'CH'"
ags1 iceberg scan db.events --catalog prod --kms local:keys.json --limit 20
ags1 iceberg scan t/ --kms local:keys.json --as-of 2026-11-01
ags1 iceberg scan t/ --kms local:keys.json --from-snapshot 3051729675574597004
ags1 iceberg scan t/ --filter '_last_updated_sequence_number >= 7'
ags1 iceberg scan t/ --kms local:keys.json --format parquet -o t.parquet""",
        changes={
            "format": {
                "choices": ("table", "csv", "json", "parquet"),
                "default": None,
                "help": "form of rows (that of --output's name, or table)",
            },
            "snapshot": {"help": "the rows of this snapshot (of the current one)"},
        },
    )
    action(
        "audit",
        "iceberg.tables:audit",
        "say what is wrong with the encryption of a table",
        "TABLE moved-from snapshot ref SAY",
        more="Plaintext files, missing trusted lengths, keys that do not open, orphaned and expired keys, sizes that "
        "disagree; and what other master keys still open, which it tries. Data files are not read. Exit code 1 if "
        "there are errors; 3 if only keys are missing; 5 if all that is wrong is plaintext. Warnings and notes are "
        "printed.",
        fields="what ags1.iceberg's AuditReport has (findings: severity, code, subject, message), seconds, created, "
        "ags1, error",
        examples="ags1 iceberg audit db.events --catalog prod --kms local:keys.json",
        changes=_ALL,
    )
    action(
        "verify",
        "iceberg.tables:verify",
        "authenticate every block and module of the files of a table, and name those that fail",
        "TABLE moved-from snapshot ref threads SAY",
        spark=OnSpark(
            "verify_table",
            {"metadata_location": ""},
            "snapshot workers-kms transfer-key-id expected-table-key-id allow-plaintext length-policy allow-location "
            "catalog workers-property workers-threads parallelism quiet report",
            {**_SPARK_CATALOG, "allow-location": {"default": None}},
            {"on_error": "collect"},
        ),
        more="Exit code 1 if a file fails; 3 if only keys are missing; 5 if all that is wrong "
        "is plaintext, also where it was allowed.",
        fields="what ags1.iceberg's TableVerifyReport has (failures: path, kind, error, message, failed, "
        "snapshot_ids), seconds, error",
        examples="ags1 iceberg verify t/ --kms local:keys.json --snapshot current",
        changes=_ALL,
    )
    action(
        "cat",
        "iceberg.tables:cat",
        "decrypt one file of a table to standard output",
        "TABLE moved-from SAY",
        places={"file": ("FILE", "location of the file, as `ags1 iceberg files` has it, or an end of it")},
        more="A Parquet file comes out as a plaintext Parquet file.",
        epilog=_CAT_HELP,
        examples="ags1 iceberg cat t/ data/00000-0-ab.parquet --kms local:keys.json \\\n    > plain.parquet",
        changes={"json": {"help": "Avro files: one JSON object for each record, without keys"}},
    )


def _add_keys(action: _Action) -> None:
    fields = "old_metadata, new_metadata and new_metadata_hash (null if nothing was written), "
    quiet = {"quiet": {"help": "say nothing but the new location, and errors"}}
    action(
        "rewrap",
        "iceberg.keys:rewrap",
        "put a table under another master key, or the newest version of it; no file of it changes",
        "new-key-id! new-kms CONVERSION",
        more="Key encryption keys are re-wrapped, and the table's property encryption.key-id names the new master "
        "key. Keep the old one as long as somebody needs older metadata files. In Python this is "
        "rekey_table(key_id=...); `ags1 iceberg rekey` gives every file a new key.",
        epilog=_NEW_METADATA_HELP.format(and_property=", encryption.key-id"),
        fields=fields + "old_key_ids, new_key_id, keys, unopened, untouched, dry_run, error",
        examples="ags1 iceberg rewrap db.events --catalog prod \\\n"
        "    --kms 'aws:?region=eu-central-1' --new-key-id alias/lake-2027 --dry-run",
        changes=quiet,
        subject="old_metadata",
    )
    action(
        "prune",
        "iceberg.keys:prune",
        "drop the keys that nothing in a table uses any more, such as those of expired snapshots",
        "keep-key catalog PINNED allow-location property dry-run SAY",
        more="Needs no KMS. Entries that this version cannot judge stay.",
        epilog=_NEW_METADATA_HELP.format(and_property=""),
        fields=fields + "dropped, kept, unjudged, missing, dry_run, error",
        examples="ags1 iceberg prune db.events --catalog prod --dry-run",
        changes=quiet,
        subject="old_metadata",
    )


def _add_conversions(action: _Action) -> None:
    fields = "location, plan, report (null if nothing was done), error"
    action(
        "encrypt",
        "iceberg.convert:encrypt",
        "encrypt a table in place, or what others added to it as plaintext",
        "key-id! table-data-key-bits enable-only expire statistics partition-paths threads CONVERSION",
        spark=OnSpark(
            "encrypt_table",
            {"table": _ON_SPARK},
            f"key-id! table-data-key-bits enable-only expire {_SPARK_JOB}",
            {
                **_SPARK_CATALOG,
                "enable-only": {"action": "store_const", "dest": "steps", "const": _STEPS[:1], "default": _STEPS[:2]},
                "expire": {"action": "store_const", "dest": "steps", "const": _STEPS, "default": _STEPS[:2]},
            },
        ),
        more="Format version 2 becomes 3.",
        epilog=_CONVERSION_HELP,
        fields=fields,
        examples="ags1 iceberg encrypt db.events --catalog prod --kms local:keys.json \\\n"
        "    --key-id lake --dry-run\n"
        "ags1 iceberg encrypt t/ --kms local:keys.json --key-id lake --expire --yes",
    )
    action(
        "decrypt",
        "iceberg.convert:decrypt",
        "make a plaintext table of an encrypted one, in place",
        "expire threads CONVERSION",
        spark=OnSpark("decrypt_table", {"table": _ON_SPARK}, f"expire {_SPARK_JOB}", _SPARK_CATALOG),
        epilog=_CONVERSION_HELP,
        fields=fields,
        examples="ags1 iceberg decrypt db.events --catalog prod --kms local:keys.json --dry-run",
    )
    action(
        "rekey",
        "iceberg.convert:rekey",
        "give every file of a table a new key, in place",
        "new-key-id table-data-key-bits expire statistics partition-paths threads CONVERSION",
        spark=OnSpark(
            "rekey_table",
            {"table": _ON_SPARK},
            f"new-key-id table-data-key-bits expire {_SPARK_JOB}",
            {**_SPARK_CATALOG, "new-key-id": {"dest": "key_id"}},
            {"data_keys": True},
        ),
        more="For keys that leaked. `ags1 iceberg rewrap` changes the master key alone, and no file. In Python this is "
        "rekey_table(data_keys=True), and that is rekey_table(key_id=...).",
        epilog=_CONVERSION_HELP,
        fields=fields,
        examples="ags1 iceberg rekey db.events --catalog prod --kms local:keys.json --expire\n"
        "ags1 iceberg rekey t/ --kms local:keys.json --new-key-id lake-2027",
        changes={"new-key-id": {"help": "another master key (the same)"}},
    )
    action(
        "expire",
        "iceberg.convert:expire",
        "remove the snapshots that no branch or tag has, with the files and keys that only they need",
        "statistics CONVERSION",
        more="Time travel to before the newest snapshot ends, and staged snapshots (wap.id) cannot be published after "
        "it: --dry-run lists them.",
        fields=fields,
        examples="ags1 iceberg expire db.events --catalog prod --kms local:keys.json",
    )
    action(
        "clean",
        "iceberg.convert:clean",
        "remove files below a table that nothing names, such as those of a conversion that was given up",
        "older-than CONVERSION",
        fields=fields,
        examples="ags1 iceberg clean t/ --kms local:keys.json --older-than 7d --dry-run",
        changes={
            "older-than": {
                "default": 3 * 86_400.0,
                "help": "keep younger files, which somebody may be about to commit: 12h or 30d (3d)",
            }
        },
    )


def _add_writing(action: _Action) -> None:
    action(
        "create",
        "iceberg.write:create",
        "make an empty encrypted table",
        "schema! key-id! table-data-key-bits partition-by sort-by location set catalog KMS property SAY",
        epilog=_CREATE_HELP,
        fields="table, metadata_location, error",
        examples="""\
ags1 iceberg create lake/events --schema first.parquet \\
    --partition-by 'day(ts)' --key-id lake --kms local:keys.json
ags1 iceberg create db.events --catalog prod --schema schema.json \\
    --key-id alias/lake --kms 'aws:?region=eu-central-1'""",
        subject="table",
    )
    action(
        "append",
        "iceberg.write:append",
        "add the rows of files to a table",
        "ref TABLE SAY",
        places={"files": ("FILE...", "file with the rows, such as may.parquet")},
        epilog=_APPEND_HELP,
        fields=_CHANGE_FIELDS,
        examples="""\
ags1 iceberg append lake/events may.parquet june.parquet""",
        changes=_BRANCH,
        subject="table",
    )
    action(
        "delete",
        "iceberg.write:delete",
        "delete the rows of a table that pass a filter",
        "filter! ref dry-run yes TABLE SAY",
        more="It asks first.",
        epilog=_DELETE_HELP,
        fields=f"{_CHANGE_FIELDS}; with --dry-run would_delete",
        examples="ags1 iceberg delete lake/events --filter \"day < '2026-01-01'\" --dry-run",
        changes=_BRANCH,
        subject="table",
    )


def _add_maintenance(action: _Action) -> None:
    fields = "location, plan, report (null if nothing was done), error"
    action(
        "compact",
        "iceberg.maintain:compact",
        "write small files, and files with deletes, again as fewer files with the same rows",
        "filter target-size sort-by rewrite-all ref CONVERSION",
        spark=OnSpark(
            "compact_table",
            {"table": _ON_SPARK},
            "filter target-size sort-by rewrite-all ref catalog workers-kms parallelism dry-run yes quiet",
            {
                **_SPARK_CATALOG,
                "filter": {"dest": "where"},
                "target-size": {"dest": "target_bytes"},
                "ref": {"default": "main"},
            },
        ),
        epilog=_COMPACT_HELP,
        fields=fields,
        examples="""\
ags1 iceberg compact db.events --catalog prod --kms local:keys.json --dry-run
ags1 iceberg compact lake/events --kms local:keys.json --yes \\
    --filter "day >= '2026-11-01'" --target-size 256M""",
        changes={**_BRANCH, "filter": {"help": "only files that may have such rows: day >= '2026-11-01'"}},
    )
    action(
        "maintain",
        "iceberg.maintain:maintain",
        "compact, write manifests again, expire old snapshots with their keys, and remove orphans, in this order",
        "target-size sort-by older-than orphans-older-than ref CONVERSION",
        epilog=_MAINTAIN_HELP,
        fields=fields,
        examples="ags1 iceberg maintain db.events --catalog prod --kms local:keys.json \\\n    --older-than 7d --yes",
        changes={
            **_BRANCH,
            "older-than": {"help": "keep younger snapshots, for time travel: 12h or 30d (5d)"},
        },
    )


_Action = Callable[..., None]
