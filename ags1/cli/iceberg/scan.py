"""``ags1 iceberg scan``: rows of a table, as a table for a person, CSV, JSON lines or Parquet."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Iterator

from ags1.cli import warn
from ags1.cli.iceberg.opening import opened
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


def scan(options: argparse.Namespace) -> int:
    target = STANDARD if options.output is None else options.output
    if is_url(target):
        raise UsageError("--output takes a local file: copy it to a store from there")
    options.format = options.format or _FORMATS.get(os.path.splitext(target)[1].lower(), "table")
    if options.format == "parquet" and target == STANDARD:
        raise UsageError("a Parquet file is not for standard output: say --output FILE")
    if options.snapshot_id == "all":
        raise UsageError("rows are of one snapshot: give the id of one, or current")
    refuse_existing(options, [Job(STANDARD, target, target)])
    with opened(options) as table:
        from ags1.iceberg.tables import EncryptedTable

        table.require_kms()
        chosen = EncryptedTable(table.location, table.io)
        with naming(table.location, chosen):
            found = chosen.scan(
                columns=_names(options.columns),
                row_filter=options.filter,
                snapshot_id=options.snapshot_id,
                as_of=options.as_of,
                ref=options.ref,
                from_snapshot=options.from_snapshot,
                to_snapshot=options.to_snapshot,
                limit=options.limit,
            )
            with Reporter(options, ("reading", "read"), to_stdout=target != STANDARD) as reporter:
                count = _written(options.format, found.to_record_batches(), target, reporter)
    if target != STANDARD and not options.quiet:
        rows = counted(count, "row")
        warn(f"ags1: note: wrote {rows} to {target}, which is plaintext: whoever can read it can read them")
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
