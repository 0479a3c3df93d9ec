"""``ags1 iceberg create``, ``append`` and ``delete``: new tables, and changes of rows."""

from __future__ import annotations

import contextlib
import os
import re
from argparse import Namespace
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice

from ags1.cli.command import Positional
from ags1.cli.iceberg.opening import catalog_of, opened, properties_of, refuse_name, table_command
from ags1.cli.iceberg.tables import naming
from ags1.cli.output import agreed, say, say_json, warn
from ags1.cli.report import Reporter
from ags1.storage import iterate_files
from ags1.support.exit_codes import UsageError
from ags1.support.typing import Any
from ags1.support.words import counted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ags1.iceberg import EncryptedTable

_FORMATS = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".feather": "arrow",
    ".json": "schema",
}
# Files that are looked at where a new table is.
_MOST_LISTED = 10_000
_DATA_FORMATS = "Parquet (.parquet), CSV (.csv) or Arrow (.arrow)"

_FIELDS = (
    "table, operation, snapshot_id (null: nothing to do), added_files, added_rows, added_bytes, removed_files, "
    "deleted_rows, metadata_location, metadata_hash (null: nothing to do), error"
)
_BRANCH = {"ref": {"metavar": "BRANCH", "default": "main", "help": "the branch that it works on (main)"}}


@table_command(
    "catalog KMS property",
    schema="schema!",
    order="partition-by sort-by",
    how="key-id! table-data-key-bits location set",
    said="SAY",
    fields="table, metadata_location, error",
    subject="table",
)
def create(where: Namespace, schema: str, order: Namespace, how: Namespace, said: Namespace) -> int:
    r"""
    the new table:
      TABLE is its directory, or with --catalog its name. It is empty, encrypted,
      and of format version 3. Fields of --partition-by and --sort-by are
        country, day(ts), bucket(16, id), truncate(name, 3)
      and for sorting with asc or desc, nulls first or nulls last.

    examples:
      ags1 iceberg create lake/events --schema first.parquet \
          --partition-by 'day(ts)' --key-id lake --kms local:keys.json
      ags1 iceberg create db.events --catalog prod --schema schema.json \
          --key-id alias/lake --kms 'aws:?region=eu-central-1'
    """
    from ags1.cli.kms.clients import client_of
    from ags1.iceberg import create_table

    if where.catalog is None:
        refuse_name(where.table, "--catalog")
    with client_of(where) as client, Reporter(said, ("creating", "created")):
        table = create_table(
            catalog_of(where),
            where.table,
            _schema(schema),
            order.partition_by,
            order.sort_by,
            kms=client,
            storage_options=None if where.catalog else properties_of(where),
            **vars(how),
        )
    if not said.quiet:
        _warn_of_others(table)
    return _tell(where, said, table.metadata_location, {"metadata_location": table.metadata_location})


def _warn_of_others(table: EncryptedTable) -> None:
    """Say what stood already where a new table is: one day it is removed as what no table names."""
    assert table.catalog_table is not None
    place = table.catalog_table.place(table.table.location())
    listed = list(islice(iterate_files(place), _MOST_LISTED))
    names = [each.name for each in listed if not each.name.startswith("metadata/")]
    if names:
        least = "at least " if len(listed) == _MOST_LISTED else ""
        warn(
            f"ags1: warning: {least}{counted(len(names), 'file')} stood in {place} before the table, such as "
            f"{names[0]}: `ags1 iceberg clean` and `maintain` remove what a table does not name"
        )


@table_command(
    "TABLE",
    files=Positional("FILE...", "file with the rows, such as may.parquet"),
    ref="ref",
    said="SAY",
    fields=_FIELDS,
    changed=_BRANCH,
    subject="table",
)
def append(where: Namespace, files: list[str], ref: str, said: Namespace) -> int:
    """
    files:
      Parquet, CSV with the names of the columns first, or Arrow (IPC), all of one
      format. Their columns are found by their names. They are read as they are
      written, in bounded memory, and become one snapshot, or nothing.

    examples:
      ags1 iceberg append lake/events may.parquet june.parquet
    """
    forms = {_format_of(path) for path in files}
    if len(forms) > 1 or "schema" in forms:
        raise UsageError(f"the files must be of one format: {_DATA_FORMATS}")
    with _table(where, said) as table, Reporter(said, ("encrypting", "encrypted")) as reporter:
        rows = _rows(files, forms.pop(), table, reporter.progress_of(where.table))
        report = table.append(rows, ref=ref)
    return _tell(where, said, str(report), {**report.to_dict(), "metadata_location": table.metadata_location})


@table_command(
    "TABLE",
    rows="filter!",
    ref="ref",
    said="dry-run yes SAY",
    fields=f"{_FIELDS}; with --dry-run would_delete",
    changed=_BRANCH,
    subject="table",
)
def delete(where: Namespace, rows: str, ref: str, said: Namespace) -> int:
    """It asks first.

    What is deleted is what `ags1 iceberg scan` shows with the same --filter.
    Older snapshots have the rows until they are expired.

    examples:
      ags1 iceberg delete lake/events --filter "day < '2026-01-01'" --dry-run
    """
    from ags1.iceberg.writing.change import WriteTarget

    with _table(where, said) as table:
        # Refuses what cannot be changed, before anybody is asked.
        WriteTarget(table, ref)
        branch = ref if ref in table.refs else None
        with naming(table.metadata_location, table):
            count = table.scan(row_filter=rows, ref=branch).count()
        words = f"{count:,} of {table.scan(ref=branch).count():,} rows"
        if said.dry_run:
            return _tell(where, said, f"{words} would be deleted", {"would_delete": count})
        if count and not agreed(said, f"Delete {words}?"):
            return 0
        with Reporter(said, ("deleting", "deleted")):
            report = table.delete(rows, ref=ref)
    return _tell(where, said, str(report), {**report.to_dict(), "metadata_location": table.metadata_location})


def _tell(where: Namespace, said: Namespace, text: str, fields: dict[str, Any]) -> int:
    if said.json:
        say_json({"table": where.table, **fields, "error": None})
    elif not said.quiet:
        say(text)
    return 0


@contextlib.contextmanager
def _table(where: Namespace, said: Namespace) -> Iterator[EncryptedTable]:
    from ags1.iceberg import EncryptedTable

    with opened(where, said) as found:
        found.require_kms()
        yield EncryptedTable(found.location, found.io, found.target)


# -- files of rows ---------------------------------------------------------------------------------------------------


def _format_of(path: str) -> str:
    found = _FORMATS.get(os.path.splitext(path)[1].lower())
    if found is None:
        raise UsageError(f"{path}: its name does not say what it is: {_DATA_FORMATS}")
    return found


def _schema(path: str) -> Any:
    """The schema of a file: of its rows, or in Iceberg's JSON."""
    form = _format_of(path)
    if form == "schema":
        from pyiceberg.schema import Schema

        with open(path, "rb") as file:
            try:
                return Schema.model_validate_json(file.read())
            except ValueError:
                raise UsageError(
                    f'{path}: is no schema in Iceberg\'s JSON: {{"type": "struct", "fields": [...]}}'
                ) from None
    import pyarrow.dataset

    with _refusing([path], "cannot be read as", form):
        return pyarrow.dataset.dataset(path, format=form).schema.remove_metadata()


@contextlib.contextmanager
def _refusing(paths: list[str], what: str, form: str) -> Iterator[None]:
    """Raise ValueError with Arrow's reason, which stands behind what Arrow was doing, and the file that Arrow names."""
    import pyarrow

    try:
        yield
    except pyarrow.ArrowInvalid as error:
        named = re.search(r"input source '(.*?)': (?:Invalid: )?(.*)", str(error), re.DOTALL)
        where, reason = named.groups() if named else (", ".join(paths), str(error))
        raise ValueError(f"{where}: {what} {form}: {reason}") from None


def _rows(paths: list[str], form: str, table: EncryptedTable, progress: Callable[[int, int | None], None]) -> Any:
    """The rows of files, as they are read; CSV with the types of the table."""
    import pyarrow
    import pyarrow.csv
    import pyarrow.dataset
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    made: Any = form
    if form == "csv":
        types = {
            each.name: pyarrow.string() if pyarrow.types.is_large_string(each.type) else each.type
            for each in schema_to_pyarrow(table.schema, include_field_ids=False)
            if not pyarrow.types.is_nested(each.type) and not isinstance(each.type, pyarrow.BaseExtensionType)
        }
        convert = pyarrow.csv.ConvertOptions(
            column_types=types, strings_can_be_null=True, quoted_strings_can_be_null=False
        )
        made = pyarrow.dataset.CsvFileFormat(convert_options=convert)
    refusing = partial(_refusing, paths, "cannot be read with the types of the table as", form)
    with refusing():
        reader = pyarrow.dataset.dataset(paths, format=made).scanner().to_reader()
    done = 0

    def batches() -> Iterator[Any]:
        nonlocal done
        while True:
            with refusing():
                batch = next(reader, None)
            if batch is None:
                return
            yield batch
            done += batch.nbytes
            progress(done, None)

    return pyarrow.RecordBatchReader.from_batches(reader.schema, batches())
