"""CSV, by lines, or by whole files where quoted values may have line ends.

Values are texts first, from Arrow's parser, or line by line where a line differs from the others; then they are
converted to the types of the schema. So the meaning of a value does not depend on other lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv

from ags1.errors import FormatError
from ags1.spark.source._options import SourceOptions
from ags1.spark.source.decoders import Decoder, Plain
from ags1.spark.source.decoders._lines import Chunk
from ags1.spark.source.decoders._records import assembled, split_schema, unique
from ags1.spark.source.decoders._text_files import first_line_of, lines_of, sampled_lines_of, text_of
from ags1.spark.source.decoders._types import find, parsed, parsed_or_null

__all__ = ["make"]

_FEW_LINES = 64
_GUESSES = (pa.int32(), pa.int64(), pa.float64(), pa.bool_(), pa.date32(), pa.timestamp("us", tz="UTC"))


class _Csv(Decoder):
    # -- schema --------------------------------------------------------------------------------------------------------

    def infer(self, files: Iterable[Plain]) -> pa.Schema:
        for file in files:
            opened = _Opened(file, self._options)
            if opened.first is None:
                continue
            names = self._names(self._first_row(opened))
            if not self._options.infer_schema:
                return pa.schema([(name, pa.string()) for name in names])
            return pa.schema(list(zip(names, self._guessed(opened, len(names)), strict=True)))
        raise FormatError("there is no line of CSV to infer a schema from: give one with .schema(...)")

    def _guessed(self, opened: _Opened, width: int) -> list[pa.DataType]:
        found: list[list[pa.Array]] = [[] for _ in range(width)]
        for chunk in opened.sample(self._options.sampling_bytes):
            for _, columns, _ in self._parts(chunk, width):
                for values, column in zip(found, columns, strict=True):
                    values.append(column)
        return [self._guess(pa.chunked_array(values, pa.string()).combine_chunks()) for values in found]

    def _guess(self, values: Any) -> pa.DataType:
        if values.null_count == len(values):
            return pa.string()
        for kind in _GUESSES:
            try:
                parsed(values, kind, self._options.time_zone)
            except ValueError:
                continue
            return kind
        return pa.string()

    # -- rows ----------------------------------------------------------------------------------------------------------

    def read(self, file: Plain, start: int, end: int, schema: pa.Schema, rows: Any) -> Iterator[pa.RecordBatch]:
        if self._options.multiline and not start == 0 < end:
            return
        opened = _Opened(file, self._options)
        if opened.first is None:
            return
        data, _ = split_schema(schema, self._options)
        places, width = self._places(file.name, data, self._first_row(opened))
        for chunk in opened.chunks(start, end):
            for some, columns, wrong in self._parts(chunk, width):
                bad = wrong
                made = []
                for field, place in zip(data, places, strict=True):
                    if place is None:
                        made.append(pa.nulls(len(some), field.type))
                        continue
                    try:
                        column, unreadable = parsed_or_null(columns[place], field.type, self._options.time_zone)
                    except FormatError as error:
                        raise FormatError(f"{file.name}: the column {field.name!r}: {error}") from None
                    if unreadable is not None:
                        bad = unreadable if bad is None else bad | unreadable
                    made.append(column)
                yield assembled(some, made, bad, schema, self._options, file.name, "a line of CSV")

    def _parts(self, chunk: Chunk, width: int) -> Iterator[tuple[Chunk, list[pa.Array], Any]]:
        """A chunk or parts of it, their columns, and the lines with another number of values."""
        columns = self._quickly(chunk, width)
        if columns is not None:
            yield chunk, columns, None
        elif len(chunk) <= _FEW_LINES:
            yield chunk, *self._slowly(chunk, width)
        else:
            for half in chunk.halves():
                yield from self._parts(half, width)

    def _quickly(self, chunk: Chunk, width: int) -> list[pa.Array] | None:
        options = self._options
        block = chunk.block(options.line_sep)
        names = [str(index) for index in range(width)]
        try:
            table = pyarrow.csv.read_csv(
                pa.BufferReader(block),
                read_options=pyarrow.csv.ReadOptions(
                    use_threads=False, block_size=block.size + 1, column_names=names, encoding="utf8"
                ),
                parse_options=pyarrow.csv.ParseOptions(
                    delimiter=options.sep,
                    quote_char=options.quote or False,
                    double_quote=not options.escape,
                    escape_char=options.escape or False,
                    newlines_in_values=options.multiline,
                ),
                convert_options=pyarrow.csv.ConvertOptions(
                    check_utf8=True,
                    column_types=dict.fromkeys(names, pa.string()),
                    null_values=["", options.null_value],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return None
        # Fewer rows than lines: a quote that was not closed included the next line.
        if table.num_rows != len(chunk):
            return None
        return [column.combine_chunks() for column in table.columns]

    def _slowly(self, chunk: Chunk, width: int) -> tuple[list[pa.Array], Any]:
        bad = np.zeros(len(chunk), bool)
        columns: list[list[str | None]] = [[] for _ in range(width)]
        for index, line in enumerate(chunk.lines()):
            values = self._values(line)
            if values is None or len(values) != width:
                bad[index] = True
            values = values or []
            for place, column in enumerate(columns):
                column.append(values[place] if place < len(values) else None)
        return [pa.array(column, pa.string()) for column in columns], bad

    def _values(self, line: bytes) -> list[str | None] | None:
        """The values of a line; None if a quote is not closed."""
        options = self._options
        text = line.decode("utf-8", "replace")
        found: list[str | None] = []
        position, size = 0, len(text)
        while True:
            value: list[str] = []
            quoted = bool(options.quote) and text.startswith(options.quote, position)
            inside = quoted
            position += quoted
            while position < size:
                letter = text[position]
                if options.escape and letter == options.escape and position + 1 < size:
                    position += 1
                    value.append(text[position])
                elif inside and letter == options.quote:
                    if not options.escape and text.startswith(options.quote, position + 1):
                        value.append(letter)
                        position += 1
                    else:
                        inside = False
                elif letter == options.sep and not inside:
                    break
                else:
                    value.append(letter)
                position += 1
            if inside:
                return None
            made = "".join(value)
            found.append(None if not quoted and made in ("", options.null_value) else made)
            if position >= size:
                return found
            position += 1

    # -- columns -------------------------------------------------------------------------------------------------------

    def _first_row(self, opened: _Opened) -> list[str | None]:
        found = self._values(opened.first or b"")
        if found is None:
            raise FormatError(
                f"{opened.file.name}: a quote in the first line is not closed: values with line ends need "
                "multiLine=true"
            )
        return found

    def _names(self, first: list[str | None]) -> list[str]:
        numbered = [f"_c{index}" for index in range(len(first))]
        if not self._options.header:
            return numbered
        return unique(name or number for name, number in zip(first, numbered, strict=True))

    def _places(self, name: str, data: pa.Schema, first: list[str | None]) -> tuple[list[int | None], int]:
        """The index of each column of the schema in a line, and the number of values in a line."""
        names = self._names(first)
        if not self._options.header and not all(each in names for each in data.names):
            # Without names, a schema is in the order of the values.
            return list(range(len(data))), len(data)
        have = pa.schema([(each, pa.string()) for each in names])
        places = [find(have, field.name) for field in data]
        if places and all(place is None for place in places):
            raise FormatError(
                f"{name}: its first line names none of the columns {', '.join(data.names)}: does it have a header, "
                "and is it separated by the option sep?"
            )
        return places, len(names)


class _Opened:
    """A file whose first line is known, which may be a header that is no row."""

    def __init__(self, file: Plain, options: SourceOptions) -> None:
        self.file = file
        self._options = options
        self._whole: Chunk | None = None
        if options.multiline:
            self._whole = _records(file, options)
            found = next(zip(self._whole.starts.tolist(), self._whole.lines(), strict=True), None)
        else:
            found = first_line_of(file, options)
        self._offset = -1 if found is None else found[0]
        self.first = None if found is None else found[1]

    def chunks(self, start: int, end: int) -> Iterator[Chunk]:
        return self._rows(lines_of(self.file, start, end, self._options))

    def sample(self, size: int) -> Iterator[Chunk]:
        return self._rows(sampled_lines_of(self.file, size, self._options))

    def _rows(self, several: Iterable[Chunk]) -> Iterator[Chunk]:
        if self._whole is not None:
            several = [self._whole]
        for chunk in several:
            kept = chunk.not_blank()
            if self._options.header and len(kept) and kept.offset + int(kept.starts[0]) == self._offset:
                kept = kept.some(slice(1, None))
            if len(kept):
                yield kept


def _records(file: Plain, options: SourceOptions) -> Chunk:
    """All records of a file whose quoted values may have line ends."""
    data = text_of(file, options)
    starts, ends = _record_bounds(bytes(memoryview(data).cast("B")), options)
    return Chunk(0, data, np.array(starts, np.int64), np.array(ends, np.int64)).not_blank()


def _record_bounds(text: bytes, options: SourceOptions) -> tuple[list[int], list[int]]:
    """Where records begin and end: at line ends that are not inside quotes."""
    quote, escape = options.quote.encode(), options.escape.encode()
    separator = re.escape(options.line_sep) if options.line_sep else rb"\r\n|\n|\r"
    special = [rb"(?P<end>" + separator + rb")"]
    if escape:
        special.insert(0, rb"(?P<escaped>" + re.escape(escape) + rb".)")
    if quote:
        special.append(rb"(?P<quote>" + re.escape(quote) + rb")")
    starts, ends = [3 if text.startswith(b"\xef\xbb\xbf") else 0], []
    inside, closed = False, -1
    for found in re.finditer(rb"|".join(special), text, re.DOTALL):
        position = found.start()
        if found.lastgroup == "quote":
            # A doubled quote closes and reopens. A quote inside an unquoted value is a normal character.
            opens = position in (closed, starts[-1]) or text[position - 1 : position] == options.sep.encode()
            if inside:
                closed = found.end()
            inside = not inside and opens
        elif found.lastgroup == "end" and not inside:
            ends.append(position)
            starts.append(found.end())
    if starts[-1] < len(text):
        ends.append(len(text))
    else:
        starts.pop()
    return starts, ends


make = _Csv
