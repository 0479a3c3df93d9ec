"""``ags1 iceberg scan``: rows of a table, as a table for a person, CSV, JSON lines or Parquet."""

from __future__ import annotations

import contextlib
import os
from argparse import Namespace
from collections.abc import Iterator

from ags1.cli.iceberg.opening import opened, table_command
from ags1.cli.output import warn
from ags1.cli.parquet.rows import write_rows
from ags1.cli.paths import STANDARD, Job, is_url
from ags1.cli.report import Reporter
from ags1.cli.transfer import refuse_existing
from ags1.errors import FormatError
from ags1.support.exit_codes import UsageError
from ags1.support.words import counted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    import pyarrow

    from ags1.iceberg.tables import EncryptedTable

# What a file is, if nobody says it.
_FORMATS = {".parquet": "parquet", ".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json"}
# Of a row group of the Parquet file that is written.
_GROUP_BYTES = 64 << 20
_GROUP_ROWS = 1 << 20


@table_command(
    "TABLE moved-from",
    columns="columns",
    chosen="snapshot ref as-of from-snapshot to-snapshot limit",
    rows="filter",
    output="output",
    overwrite="overwrite",
    said="ROWS",
    changed={
        "format": {
            "choices": ("table", "csv", "json", "parquet"),
            "default": None,
            "help": "form of rows (that of --output's name, or table)",
        },
        "snapshot": "the rows of this snapshot (of the current one)",
    },
)
def scan(
    where: Namespace,
    columns: list[str | tuple[str, ...]] | None,
    chosen: Namespace,
    rows: str | None,
    output: str | None,
    overwrite: bool,
    said: Namespace,
) -> int:
    r"""PyIceberg plans: files that the filter excludes are not opened.

    forms:
      table   aligned columns for a person
      csv     lines with commas, and the names of the columns first
      json    one object a line
      parquet a Parquet file; needs --output
      Every form is plaintext: `ags1 parquet encrypt` encrypts a Parquet file.
      Rows go out as they are decrypted, in bounded memory, and --output appears
      whole or not at all. A file that exists is refused, unless --overwrite is
      given.

    examples:
      ags1 iceberg scan s3://lake/db/t/metadata/00007-ab.metadata.json \
          --kms 'aws:?region=eu-central-1' --columns id,amount \
          --filter "amount > 10 and country = 'CH'"
      ags1 iceberg scan db.events --catalog prod --kms local:keys.json --limit 20
      ags1 iceberg scan t/ --kms local:keys.json --as-of 2026-11-01
      ags1 iceberg scan t/ --kms local:keys.json --from-snapshot 3051729675574597004
      ags1 iceberg scan t/ --filter '_last_updated_sequence_number >= 7'
      ags1 iceberg scan t/ --kms local:keys.json --format parquet -o t.parquet
    """
    target = STANDARD if output is None else output
    if is_url(target):
        raise UsageError("--output takes a local file: copy it to a store from there")
    form = said.format or _FORMATS.get(os.path.splitext(target)[1].lower(), "table")
    if form == "parquet" and target == STANDARD:
        raise UsageError("a Parquet file is not for standard output: say --output FILE")
    if chosen.snapshot_id == "all":
        raise UsageError("rows are of one snapshot: give the id of one, or current")
    refuse_existing([Job(STANDARD, target, target)], overwrite=overwrite)
    with opened(where, said) as table:
        from ags1.iceberg.tables import EncryptedTable

        table.require_kms()
        opened_one = EncryptedTable(table.location, table.io)
        with naming(table.location, opened_one):
            found = opened_one.scan(columns=_names(columns), row_filter=rows, **vars(chosen))
            with Reporter(said, ("reading", "read"), to_stdout=target != STANDARD) as reporter:
                count = _written(form, found.to_record_batches(), target, reporter)
    if target != STANDARD and not said.quiet:
        rows_written = counted(count, "row")
        warn(f"ags1: note: wrote {rows_written} to {target}, which is plaintext: whoever can read it can read them")
    return 0


def _written(form: str, reader: pyarrow.RecordBatchReader, target: str, reporter: Reporter) -> int:
    """Write the rows where they go, and return how many there were."""
    names: list[str] = list(reader.schema.names)
    if form == "parquet":
        return _write_parquet(reader, names, target)
    batches = (batch.select(names) for batch in reader)
    if target == STANDARD:
        return write_rows(form, names, reporter.rows(batches))
    with _text_output(target):
        return write_rows(form, names, batches)


# -- where rows go -------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _text_output(path: str) -> Iterator[None]:
    """Let what is said go to a file, which appears whole or not at all."""
    from ags1.storage import AtomicFile

    try:
        # What is not written as text of its own stays as it is: file names in it may be no Unicode.
        with (
            AtomicFile(path) as output,
            open(output.descriptor, "w", encoding="utf-8", errors="surrogateescape", newline="", closefd=False) as text,
            contextlib.redirect_stdout(text),
        ):
            yield
            text.flush()
            output.commit()
    except OSError as error:
        if error.filename == "standard output":
            raise OSError(error.errno, error.strerror, path) from None
        raise


def _write_parquet(reader: pyarrow.RecordBatchReader, names: list[str], path: str) -> int:
    import pyarrow.parquet

    from ags1.storage import AtomicFile

    schema = pyarrow.schema([reader.schema.field(name) for name in names], reader.schema.metadata)
    with AtomicFile(path) as output:
        count = waiting_bytes = waiting_rows = 0
        waiting: list[Any] = []
        with (
            open(output.descriptor, "wb", closefd=False) as raw,
            pyarrow.parquet.ParquetWriter(raw, schema, compression="zstd") as writer,
        ):
            for batch in reader:
                # Filters leave small batches, and small row groups are slow for ever.
                waiting.append(batch.select(names))
                waiting_bytes += batch.nbytes
                waiting_rows += batch.num_rows
                if waiting_bytes >= _GROUP_BYTES or waiting_rows >= _GROUP_ROWS:
                    writer.write_table(pyarrow.Table.from_batches(waiting, schema), row_group_size=_GROUP_ROWS)
                    waiting, waiting_bytes, waiting_rows = [], 0, 0
                count += batch.num_rows
            if waiting_rows:
                writer.write_table(pyarrow.Table.from_batches(waiting, schema), row_group_size=_GROUP_ROWS)
        output.commit()
    return count


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
