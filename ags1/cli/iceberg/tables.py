"""``ags1 iceberg``, what reads a table: inspect, files, scan, audit, verify and cat."""

from __future__ import annotations

import contextlib
import os
import time
from argparse import Namespace
from collections.abc import Iterator

from ags1.cli.command import OnSpark, Positional
from ags1.cli.iceberg.opening import CATALOG_ON_SPARK, Opened, opened, table_command, wanted_snapshots
from ags1.cli.output import say, say_json, warn, warn_some
from ags1.cli.parquet.rows import write_rows
from ags1.cli.report import Reporter
from ags1.cli.verification import AUDIT_FIELDS, VERIFY_FIELDS, say_report
from ags1.errors import FormatError
from ags1.support.exit_codes import UsageError, describe, exit_code
from ags1.support.reports import Report
from ags1.support.typing import Any
from ags1.support.words import counted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ags1.iceberg.tables import EncryptedTable
    from ags1.iceberg.walk.table_walk import TableFile, TableWalk

_ALL = {"snapshot": {"default": "all"}}


# -- files ---------------------------------------------------------------------------------------------------------


@table_command(
    "TABLE moved-from snapshot ref",
    sizes="sizes",
    said="ROWS",
    fields="path, kind, file_format, encryption, key_bits, stored_length (trusted), file_size, physical_size (with "
    "--sizes), record_count, key_id, kek_id, snapshot_ids",
)
def files(where: Namespace, sizes: bool, said: Namespace) -> int:
    """Manifest lists, manifests, data files, delete files and deletion vectors, each once.

    examples:
      ags1 iceberg files t/ --kms local:keys.json --snapshot all --format csv
    """
    from ags1.iceberg.walk.table_walk import files_table, walk

    with opened(where, said) as table, Reporter(said, ("reading", "read")):
        table.require_kms()
        found = walk(table.location, table.io, wanted_snapshots(where, table))
        listed = files_table(found, table.io, sizes=sizes)
    write_rows(said.format, listed.column_names, listed.to_batches(), widest=None)
    return 0


# -- audit and verify ----------------------------------------------------------------------------------------------


@table_command(
    "TABLE moved-from snapshot ref",
    said="SAY",
    fields=AUDIT_FIELDS,
    changed=_ALL,
)
def audit(where: Namespace, said: Namespace) -> int:
    """Plaintext files, missing trusted lengths, keys that do not open, orphaned and expired keys, sizes that disagree;
    and what other master keys still open, which it tries. Data files are not read. Exit code 1 if there are errors; 3
    if only keys are missing; 5 if all that is wrong is plaintext. Warnings and notes are printed.

    examples:
      ags1 iceberg audit db.events --catalog prod --kms local:keys.json
    """
    from ags1.iceberg.conversion.old_keys import audit_with_old_keys
    from ags1.iceberg.walk.table_walk import walk

    started = time.monotonic()
    with opened(where, said) as table, Reporter(said, ("looking at", "looked at")):
        table.require_kms()
        found = walk(table.location, table.io, wanted_snapshots(where, table))
        report = audit_with_old_keys(found, table.io, table.target)
    advice = [str(each) for each in report.facts.values() if isinstance(each, Report)]
    return say_report(said, report, started, advice=[*advice, *_advice(found, table)])


@table_command(
    "TABLE moved-from snapshot ref",
    threads="threads",
    said="SAY",
    fields=VERIFY_FIELDS,
    changed=_ALL,
    spark=OnSpark(
        "verify_table",
        {"metadata_location": ""},
        "snapshot workers-kms transfer-key-id expected-table-key-id allow-plaintext length-policy allow-location "
        "catalog workers-property workers-threads parallelism quiet report",
        {**CATALOG_ON_SPARK, "allow-location": {"default": None}},
        on_error="collect",
    ),
)
def verify(where: Namespace, threads: int | None, said: Namespace) -> int:
    """Exit code 1 if a file fails; 3 if only keys are missing; 5 if all that is wrong is plaintext, also where it was
    allowed.

    examples:
      ags1 iceberg verify t/ --kms local:keys.json --snapshot current
    """
    from ags1.iceberg.walk.table_verification import verify_table
    from ags1.iceberg.walk.table_walk import walk

    started = time.monotonic()
    with opened(where, said) as table, Reporter(said, ("verifying", "verified")) as reporter:
        table.require_kms()
        found = walk(table.location, table.io, wanted_snapshots(where, table))
        report = verify_table(found, table.io, threads=threads, progress=reporter.progress_of(table.location))
    return say_report(said, report, started, advice=_advice(found, table))


def _advice(found: TableWalk, table: Opened) -> list[str]:
    """What to do about plaintext files that no branch or tag has any more, as after an encryption."""
    from ags1.iceberg.walk.table_walk import PLAINTEXT

    if not found.encrypted or table.io.expected.allow_plaintext:
        return []
    named = found.document.snapshots()
    refs = [each.get("snapshot-id") for each in named.refs.values() if isinstance(each, dict)]
    kept = {number for number in (named.current, *refs) if isinstance(number, int) and number != -1}
    # A file of a snapshot that was not asked for may be in one that stays.
    if not kept <= {each.snapshot_id for each in found.snapshots}:
        return []
    old = sum(each.encryption == PLAINTEXT and kept.isdisjoint(each.snapshot_ids) for each in found)
    if not old:
        return []
    return [f"of old snapshots alone, which `ags1 iceberg expire` removes: {counted(old, 'plaintext file')}"]


# -- cat -----------------------------------------------------------------------------------------------------------


@table_command(
    "TABLE moved-from",
    file=Positional("FILE", "location of the file, as `ags1 iceberg files` has it, or an end of it"),
    said="quiet progress",
)
def cat(where: Namespace, file: str, said: Namespace) -> int:
    r"""A Parquet file comes out as a plaintext Parquet file.

    Manifest lists and manifests contain the keys of what they name: their
    plaintext is as secret as the table. `ags1 iceberg inspect` shows them
    without keys.

    examples:
      ags1 iceberg cat t/ data/00000-0-ab.parquet --kms local:keys.json \
          > plain.parquet
    """
    from ags1.cli.output import copy_out, refuse_terminal, standard_output

    with opened(where, said) as table:
        table.require_kms()
        found = _find(table, file)
        if found.error is not None and found.known.key_metadata is None:
            raise found.error
        refuse_terminal("the bytes of a file", "redirect the output")
        _refuse_plaintext_above(table, found)
        with table.io.new_input(found.path).plaintext(found.known) as plain:
            if found.kind.startswith("manifest") and not said.quiet:
                warn(f"ags1: warning: the plaintext of this {found.kind} contains keys of the files below it")
            output = standard_output()
            with Reporter(said, ("decrypting", "decrypted"), to_stdout=False) as reporter:
                copy_out(plain, output, None, reporter.progress_of(found.path))
            output.flush()
    return 0


def _refuse_plaintext_above(table: Opened, file: TableFile) -> None:
    """Refuse a file whose key stands in a plaintext one, which anybody could have written."""
    for above in file.above:
        table.io.refuse_plaintext(above.known)
        _refuse_plaintext_above(table, above)


def _find(table: Opened, wanted: str) -> TableFile:
    """The file that a location means, or the end of one."""
    from ags1.iceberg.walk.table_walk import walk

    found = walk(table.location, table.io, "all")
    everything = {each.path: each for each in found}
    if wanted in everything:
        return everything[wanted]
    matches = [file for path, file in everything.items() if _ends_with(path, wanted)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        some = ", ".join(file.path for file in matches[:3])
        raise UsageError(
            f"{counted(len(matches), 'file')} of the table end with {wanted}: {some}: say more of the path"
        )
    for file in found:
        if file.error is not None:
            # It may be among those that nobody could name.
            raise file.error
    raise FileNotFoundError(2, "the table has no such file (`ags1 iceberg files --snapshot all` lists them)", wanted)


def _ends_with(path: str, wanted: str) -> bool:
    from ags1.iceberg.metadata.locations import local_path

    local = local_path(wanted)
    if local is not None and local.startswith("/"):
        return local_path(path) == local
    return path.endswith("/" + wanted.removeprefix("/"))


@table_command(
    "TABLE moved-from",
    columns="columns",
    chosen="snapshot ref as-of from-snapshot to-snapshot limit",
    rows="filter",
    said="ROWS",
    changed={"snapshot": "the rows of this snapshot (of the current one)"},
)
def scan(
    where: Namespace,
    columns: list[str | tuple[str, ...]] | None,
    chosen: Namespace,
    rows: str | None,
    said: Namespace,
) -> int:
    r"""PyIceberg plans: files that the filter excludes are not opened.

    forms:
      table   aligned columns for a person
      csv     lines with commas, and the names of the columns first
      json    one object a line
      Every form is plaintext. Rows go out as they are decrypted, in bounded memory.

    examples:
      ags1 iceberg scan s3://lake/db/t/metadata/00007-ab.metadata.json \
          --kms 'aws:?region=eu-central-1' --columns id,amount \
          --filter "amount > 10 and country = 'CH'"
      ags1 iceberg scan db.events --catalog prod --kms local:keys.json --limit 20
      ags1 iceberg scan t/ --kms local:keys.json --as-of 2026-11-01
      ags1 iceberg scan t/ --kms local:keys.json --from-snapshot 3051729675574597004
      ags1 iceberg scan t/ --filter '_last_updated_sequence_number >= 7'
      ags1 iceberg scan t/ --kms local:keys.json --format csv > t.csv
    """
    if chosen.snapshot_id == "all":
        raise UsageError("rows are of one snapshot: give the id of one, or current")
    with opened(where, said) as table:
        from ags1.iceberg.tables import EncryptedTable

        table.require_kms()
        opened_one = EncryptedTable(table.location, table.io)
        with naming(table.location, opened_one):
            found = opened_one.scan(columns=_names(columns), row_filter=rows, **vars(chosen)).to_record_batches()
            names: list[str] = list(found.schema.names)
            with Reporter(said, ("reading", "read"), to_stdout=False) as reporter:
                write_rows(said.format, names, reporter.rows(batch.select(names) for batch in found))
    return 0


@contextlib.contextmanager
def naming(location: str, table: EncryptedTable) -> Iterator[None]:
    """Let what PyIceberg says of columns name those that there are, and what pyarrow says, the table."""
    import pyarrow

    try:
        yield
    except ValueError as error:
        if not str(error).startswith("Could not find "):
            raise
        names = ", ".join(field.name for field in table.schema.fields)
        raise UsageError(f"{error}; the columns are {names}") from None
    except pyarrow.ArrowException as error:
        if isinstance(error, (OSError, ValueError)) or error.__cause__ is not None:
            raise
        raise FormatError(f"{os.fsdecode(location)}: pyarrow cannot read its rows: {error}") from error


def _names(columns: list[str | tuple[str, ...]] | None) -> list[str] | None:
    """Names as PyIceberg takes them; it knows no way to write a dot that is in a name."""
    return None if columns is None else [each if isinstance(each, str) else ".".join(each) for each in columns]


@table_command(
    "TABLE moved-from snapshot ref",
    said="LIST",
    fields="metadata_location, tree (kind, name, path, facts, problem, children), error",
    subject="metadata_location",
)
def inspect(where: Namespace, said: Namespace) -> int:
    """Without --kms, what the metadata file says. No key is shown. Data files are not opened: that takes `ags1 iceberg
    verify`.

    examples:
      ags1 iceberg inspect t/ --kms local:keys.json
    """
    from ags1.iceberg import EncryptedTable

    with opened(where, said) as table, Reporter(said, ("reading", "read")):
        root = EncryptedTable(table.location, table.io).tree(wanted_snapshots(where, table))
    # Without a KMS nobody expected to see more than the metadata says.
    errors = [] if table.kms is None else list(dict.fromkeys(_errors(root)))
    if said.json:
        error = describe(errors[0]) if errors else None
        say_json({"metadata_location": table.location, "tree": root.to_dict(), "error": error})
    else:
        for line in root.lines():
            say(line)
        warn_some([describe(each) for each in errors], "and {:,} more errors (--json has them all)", 10)
    return exit_code(errors[0]) if errors else 0


def _errors(node: Any) -> Iterator[Exception]:
    """Why files of a tree could not be read."""
    if node.error is not None:
        yield node.error
    for each in node.children:
        yield from _errors(each)
