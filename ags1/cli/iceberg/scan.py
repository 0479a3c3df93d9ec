"""``ags1 iceberg scan``: rows of a table, as a table for a person, CSV or JSON lines."""

from __future__ import annotations

import contextlib
import os
from argparse import Namespace
from collections.abc import Iterator

from ags1.cli.iceberg.opening import opened, table_command
from ags1.cli.parquet.rows import write_rows
from ags1.cli.report import Reporter
from ags1.errors import FormatError
from ags1.support.exit_codes import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ags1.iceberg.tables import EncryptedTable


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
