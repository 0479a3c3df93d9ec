"""Rows as a table, CSV or JSON lines; ``ags1 parquet cat`` and ``ags1 parquet head``, which show those of files."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator

from ags1.cli.command import Command, Positional
from ags1.cli.output import say, warn
from ags1.cli.parquet.files import parquet_files
from ags1.cli.parquet.keys import Clients, KeyReferences, ReadingOptions, parquet_command
from ags1.cli.report import Reporter
from ags1.errors import FormatError, UnsupportedError
from ags1.support.words import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    import pyarrow

    Row = list[Any]

# Rows at once: their widths decide those of a table's columns.
_BATCH = 1000
_WIDEST_CELL = 40


def _shows_rows(**settings: Any) -> Callable[[Callable[..., int]], Command]:
    return parquet_command(
        decryption="PARQUET-DECRYPTION",
        how="columns missing-keys threads",
        files=Positional("FILE...", "Parquet file, glob or directory"),
        said="ROWS",
        needs="(--footer-key KEY | --kms URL | ...)",
        **settings,
    )


@_shows_rows(changed={"format": {"default": "csv", "help": "form of rows (csv)"}})
def cat(**given: Any) -> int:
    """Needs pyarrow. Only the pages of the columns and rows that are shown are read.

    examples:
      ags1 parquet cat out.parquet --format json --footer-key file:f.key | jq .id
    """
    return _show(**given)


@_shows_rows(rows="rows")
def head(**given: Any) -> int:
    """Needs pyarrow. Only the pages of the columns and rows that are shown are read.

    examples:
      ags1 parquet head out.parquet -n 5 --columns id,ssn --kms local:keys.json
    """
    return _show(**given)


def _show(decryption: Namespace, how: Namespace, files: list[str], said: Namespace, rows: int | None = None) -> int:
    from ags1 import parquet
    from ags1.storage import refuse_writing_into

    _pyarrow()
    written = _writer_of(said.format)
    found = parquet_files(files, said)
    with Clients() as clients, Reporter(said, ("reading", "read")) as reporter:
        reading = ReadingOptions(decryption, KeyReferences(), clients)
        for path, name in found:
            refuse_writing_into(path, sys.stdout)
            config = reading.config(path, name) if reading.named or decryption.allow_plaintext else None
            with parquet.open(path, config, **vars(how)) as view:
                if view.dropped:
                    warn(f"ags1: note: {path}: left out, because their key is missing: {', '.join(view.dropped)}")
                written.begin(path if len(found) > 1 else None)
                for names, batch in reporter.rows(_batches(view, rows, path)):
                    written.write(names, batch)
                written.end()
    return 0


def write_rows(
    form: str, names: list[str], batches: Iterable[pyarrow.RecordBatch], *, widest: int | None = _WIDEST_CELL
) -> None:
    """Write the rows of batches to standard output.

    A cell of a table has at most `widest` characters; with None, cells stay as they are, and nulls empty.
    """
    written = _writer_of(form, widest)
    written.begin(None)
    written.write(names, [])
    for batch in batches:
        for start in range(0, batch.num_rows, _BATCH):
            written.write(names, _rows_of(batch.slice(start, _BATCH)))
    written.end()


def _writer_of(form: str, widest: int | None = _WIDEST_CELL) -> _Table | _Csv | _Json:
    return _Csv() if form == "csv" else _Json() if form == "json" else _Table(widest)


def _rows_of(batch: pyarrow.RecordBatch) -> list[Row]:
    """The rows of a batch, as values that have a form in text."""
    if not batch.num_columns:
        return [[] for _ in range(batch.num_rows)]
    return [list(row) for row in zip(*(_values(column) for column in batch.columns), strict=True)]


def _pyarrow() -> Any:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError("showing rows needs pyarrow: pip install 'ags1[arrow]'") from error
    return pyarrow


def _batches(view: Any, limit: int | None, path: str) -> Iterator[tuple[list[str], list[Row]]]:
    """Names and rows, some at a time; the names by themselves for a file without rows."""
    pyarrow = _pyarrow()
    try:
        # Threads that are still reading when one of them fails can take the process with them at its end.
        file = pyarrow.parquet.ParquetFile(view)
        # PyArrow gives no array for a struct without fields.
        names = [field.name for field in file.schema_arrow if _has_values(field.type)]
        if len(names) < len(file.schema_arrow):
            hidden = ", ".join(field.name for field in file.schema_arrow if not _has_values(field.type))
            warn(f"ags1: note: {path}: left out, because they are structs without fields: {hidden}")
        left = file.metadata.num_rows if limit is None else limit
        yield names, []
        if left <= 0:
            return
        for batch in file.iter_batches(min(_BATCH, left), use_threads=False):
            rows = _rows_of(batch)
            yield names, rows[:left]
            left -= len(rows)
            if left <= 0:
                return
    except (pyarrow.ArrowException, OSError) as error:
        # A fault of a disk has a number; what has none is said of what is in the file.
        if error.__cause__ is not None or getattr(error, "errno", None) is not None:
            raise
        kind = FormatError if isinstance(error, (OSError, pyarrow.ArrowInvalid)) else UnsupportedError
        raise kind(f"{path}: pyarrow cannot read it: {error}") from None


def _has_values(kind: Any) -> bool:
    """Whether a type has a leaf: not so for a struct without fields, and what has nothing else inside."""
    types = _pyarrow().types
    if types.is_struct(kind):
        return any(_has_values(field.type) for field in kind)
    return not kind.num_fields or all(_has_values(kind.field(index).type) for index in range(kind.num_fields))


def _values(column: Any) -> list[Any]:
    """The values of a column, as text where Python has no exact form of them."""
    for texts in (True, False):
        try:
            column = column.cast(_shown_type(column.type, texts=texts))
            break
        except _pyarrow().ArrowException:
            continue
    return [plain_value(each) for each in column.to_pylist()]


def _shown_type(kind: Any, *, texts: bool) -> Any:
    """The type with text, or else numbers, in place of times, dates, durations and decimals at any depth.

    Python's datetime ends at the year 9999 and has no nanoseconds.
    """
    pyarrow = _pyarrow()
    types = pyarrow.types
    if types.is_decimal(kind) or (types.is_temporal(kind) and texts):
        return pyarrow.string()
    if types.is_temporal(kind):
        return pyarrow.int32() if kind.bit_width == 32 else pyarrow.int64()

    def shown(field: Any) -> Any:
        return field.with_type(_shown_type(field.type, texts=texts))

    if types.is_struct(kind):
        return pyarrow.struct([shown(field) for field in kind])
    if types.is_map(kind):
        return pyarrow.map_(shown(kind.key_field), shown(kind.item_field))
    if types.is_large_list(kind):
        return pyarrow.large_list(shown(kind.value_field))
    if types.is_list(kind) or types.is_fixed_size_list(kind):
        return pyarrow.list_(shown(kind.value_field), getattr(kind, "list_size", -1))
    return kind


def plain_value(value: Any) -> Any:
    """The value with nothing in it that JSON lacks: bytes as hexadecimal digits, other things as text."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).hex()
    if isinstance(value, dict):
        return {str(name): plain_value(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_value(each) for each in value]
    return str(value)


def _cell(value: Any, null: str) -> str:
    if value is None:
        return null
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (dict, list, bool)) else str(value)


class _Json:
    """An object a line."""

    def begin(self, path: str | None) -> None:
        """Nothing stands before the rows of a file."""

    def write(self, names: list[str], rows: list[Row]) -> None:
        repeated = next((name for name in names if names.count(name) > 1), None)
        if repeated is not None:
            raise UnsupportedError(
                f"{len(names)} columns, of which several are called {repeated!r}: a JSON object has one value for a "
                "name; choose columns, or --format csv"
            )
        for row in rows:
            say(json.dumps(dict(zip(names, row, strict=True))))

    def end(self) -> None:
        """Nothing stands behind them."""


class _Csv:
    """Lines with commas; a header once, and again before files with other columns."""

    def __init__(self) -> None:
        import csv

        self._names: list[str] | None = None
        self._writer = csv.writer(_Lines(), lineterminator="\n")

    def begin(self, path: str | None) -> None:
        """Nothing stands before the rows of a file but the header."""

    def write(self, names: list[str], rows: list[Row]) -> None:
        if names != self._names:
            self._names = names
            self._writer.writerow(names)
        for row in rows:
            self._writer.writerow([_cell(value, "") for value in row])

    def end(self) -> None:
        """Nothing stands behind them."""


class _Lines:
    """Standard output for csv.writer, which writes a line at once."""

    def write(self, line: str) -> None:
        say(line.removesuffix("\n"), raw=True)


class _Table:
    """Aligned columns for a person; their widths are those of the first rows."""

    def __init__(self, widest: int | None) -> None:
        self._widest = widest
        self._names: list[str] = []
        self._widths: list[int] | None = None
        self._files = 0

    def begin(self, path: str | None) -> None:
        """The name of the file stands before it, where there are many."""
        if path is not None:
            if self._files:
                say("")
            say(f"==> {path} <==")
        self._files += 1
        self._widths = None

    def write(self, names: list[str], rows: list[Row]) -> None:
        self._names = names
        if not rows:
            return
        null = "" if self._widest is None else "null"
        cells = [[self._shortened(_cell(value, null)) for value in row] for row in rows]
        if self._widths is None:
            self._start(cells)
        for row in cells:
            self._line(row)

    def end(self) -> None:
        """The names of a file without rows."""
        if self._widths is None:
            self._start([])

    def _start(self, cells: list[list[str]]) -> None:
        header = [self._shortened(name) for name in self._names]
        self._widths = [max(map(len, column)) for column in zip(header, *cells, strict=True)]
        self._line(header)
        self._line(["-" * width for width in self._widths])

    def _line(self, cells: list[str]) -> None:
        assert self._widths is not None
        say("  ".join(cell.ljust(width) for cell, width in zip(cells, self._widths, strict=True)).rstrip())

    def _shortened(self, text: str) -> str:
        text = printable(text, undecodable=True)
        return text if self._widest is None or len(text) <= self._widest else f"{text[: self._widest - 3]}..."
