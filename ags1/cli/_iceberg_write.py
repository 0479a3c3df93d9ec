"""``ags1 iceberg create``, ``append`` and ``delete``: new tables, and changes of rows."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys

from ags1._command_line import UsageError
from ags1.cli import OutputClosed, describe, exit_code, say, warn
from ags1.cli._iceberg_open import in_options, opened, properties_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from ags1.iceberg import ChangeReport, EncryptedTable

__all__ = ["append", "create", "delete"]

_FORMATS = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".feather": "arrow",
    ".json": "schema",
}
_DATA_FORMATS = "Parquet (.parquet), CSV (.csv) or Arrow (.arrow)"


def create(options: argparse.Namespace) -> int:
    """Run ``ags1 iceberg create``."""
    from ags1.cli._kms import client_of
    from ags1.iceberg import create_table

    def work() -> tuple[str, dict[str, Any]]:
        options.kms = options.kms or os.environ.get("AGS1_KMS")
        if not options.kms:
            raise UsageError("a KMS is needed for the master key: --kms URL or the variable AGS1_KMS")
        with client_of(options) as client, in_options():
            table = create_table(
                _catalog(options),
                options.table,
                _schema(options.schema),
                options.partition_by,
                options.sort_by,
                kms=client,
                key_id=options.key_id,
                location=options.location,
                properties=dict(_named(text) for text in options.set),
                data_key_length=options.data_key_length,
                storage_options=properties_of(options),
            )
        return table.metadata_location, {"metadata_location": table.metadata_location}

    return _run(options, work)


def append(options: argparse.Namespace) -> int:
    """Run ``ags1 iceberg append``."""

    def work() -> tuple[str, dict[str, Any]]:
        forms = {_format_of(path) for path in options.files}
        if len(forms) > 1 or "schema" in forms:
            raise UsageError(f"the files must be of one format: {_DATA_FORMATS}")
        with _table(options) as table:
            report = table.append(_rows(options.files, forms.pop(), table), ref=options.ref or "main")
            return _said(table, report)

    return _run(options, work)


def delete(options: argparse.Namespace) -> int:
    """Run ``ags1 iceberg delete``."""

    def work() -> tuple[str, dict[str, Any]]:
        with _table(options) as table:
            ref = options.ref or "main"
            branch = ref if ref in table.refs else None
            count = table.scan(row_filter=options.filter, ref=branch).count()
            words = f"{count:,} of {table.scan(ref=branch).count():,} rows"
            if options.dry_run:
                return f"{words} would be deleted", {"would_delete": count}
            if count and not options.yes:
                _ask(f"Delete {words}?")
            return _said(table, table.delete(options.filter, ref=ref))

    return _run(options, work)


# -- what they share -------------------------------------------------------------------------------------------------


def _run(options: argparse.Namespace, work: Callable[[], tuple[str, dict[str, Any]]]) -> int:
    try:
        text, fields = work()
    except OutputClosed:
        raise
    except Exception as error:
        if options.json and not isinstance(error, UsageError):
            say(json.dumps({"table": options.table, "error": describe(error)}))
            return exit_code(error)
        raise
    if options.json:
        say(json.dumps({"table": options.table, **fields, "error": None}))
    elif not options.quiet:
        say(text)
    return 0


def _said(table: EncryptedTable, report: ChangeReport) -> tuple[str, dict[str, Any]]:
    return report.text, {**report.to_dict(), "metadata_location": table.metadata_location}


@contextlib.contextmanager
def _table(options: argparse.Namespace) -> Iterator[EncryptedTable]:
    from ags1.iceberg import EncryptedTable

    with opened(options) as found:
        found.require_kms()
        yield EncryptedTable(found.location, found.io, found.target)


def _catalog(options: argparse.Namespace) -> Any:
    if options.catalog is None:
        return None
    from pyiceberg.catalog import load_catalog

    return load_catalog(options.catalog, **properties_of(options))


def _ask(question: str) -> None:
    """Go on only if a person says so.

    Raises
    ------
    UsageError
        Nobody is there, or the answer is no.
    """
    if sys.stdin is None or not sys.stdin.isatty():
        raise UsageError(f"{question} Nobody can be asked here: say --yes, or --dry-run to see what would be done")
    warn(f"{question} [y/N]")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UsageError("nothing was changed")


def _named(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError("--set needs NAME=VALUE, such as write.target-file-size-bytes=134217728")
    return name, value


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

    return pyarrow.dataset.dataset(path, format=form).schema.remove_metadata()


def _rows(paths: list[str], form: str, table: EncryptedTable) -> Any:
    """The rows of files, as they are read; CSV with the types of the table."""
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
    return pyarrow.dataset.dataset(paths, format=made).scanner().to_reader()
