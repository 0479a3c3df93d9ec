"""CSV, by lines, or by whole files where quoted values may have line ends.

Values are texts first: from Arrow's parser where every quote opens or closes a value, else from
:mod:`ags1.spark.source.decoders._csv_records`, line by line. Then they are converted to the types of the schema. So the
meaning of a value does not depend on other lines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from ags1.errors import FormatError
from ags1.spark.source._options import SourceOptions
from ags1.spark.source.decoders import Decoder, Plain
from ags1.spark.source.decoders._csv_records import Dialect, ends_of, values_of
from ags1.spark.source.decoders._csv_types import arrow_type, widened
from ags1.spark.source.decoders._lines import Chunk, first_of
from ags1.spark.source.decoders._records import assembled, split_schema
from ags1.spark.source.decoders._text_files import lines_from_start, lines_of, text_of
from ags1.spark.source.decoders._types import find
from ags1.spark.source.decoders._values import NUMBERS, parsed_or_null

_FEW_LINES = 64
_STEP = 64 << 10
_BLANKS = "".join(map(chr, range(33)))
_LF, _CR = 10, 13
_NUMBERED = [f"_c{index}" for index in range(1 << 12)]


class _Csv(Decoder):
    def __init__(self, options: SourceOptions) -> None:
        super().__init__(options)
        self._dialect = Dialect(
            options.sep,
            options.quote,
            options.escape,
            options.empty_value,
            options.trim_left,
            options.trim_right,
            options.comment,
        )
        numbers = dict(
            zip((options.nan_value, options.positive_inf, options.negative_inf), NUMBERS.values(), strict=True)
        )
        self._numbers = NUMBERS if list(numbers) == list(NUMBERS) else numbers

    # -- schema --------------------------------------------------------------------------------------------------------

    def infer(self, files: Iterable[Plain]) -> pa.Schema:
        options = self._options
        names: list[str] = []
        kinds: list[Any] = []
        left = options.sampling_bytes or 1 << 62
        for file in files:
            opened = _Opened(file, options)
            if opened.first is None:
                continue
            first = self._first_row(opened)
            if not names:
                names = self._names(first)
                kinds = [None] * len(names)
            if not options.infer_schema:
                break
            columns = pa.schema([(name, pa.string()) for name in names])
            places, width = self._places(file, columns, first)
            for chunk in opened.sample(left):
                left -= len(chunk.data)
                found, _ = self._columns(_without(chunk, opened.first if options.header else b""), width)
                for index, place in enumerate(places):
                    if place is not None and place < len(found):
                        kinds[index] = widened(kinds[index], found[place], options.time_zone, self._numbers)
            if left <= 0:
                break
        if not names:
            raise FormatError("there is no line of CSV to infer a schema from: give one with .schema(...)")
        return pa.schema([(name, arrow_type(kind)) for name, kind in zip(names, kinds, strict=True)])

    # -- rows ----------------------------------------------------------------------------------------------------------

    def read(self, file: Plain, start: int, end: int, schema: pa.Schema, rows: Any) -> Iterator[pa.RecordBatch]:
        if self._options.multiline and not start == 0 < end:
            return
        opened = _Opened(file, self._options)
        if opened.first is None:
            return
        data, _ = split_schema(schema, self._options)
        places, width = self._places(file, data, self._first_row(opened))
        for chunk in opened.chunks(start, end):
            columns, bad = self._columns(chunk, width)
            made = []
            for field, place in zip(data, places, strict=True):
                if place is None:
                    made.append(pa.nulls(len(chunk), field.type))
                    continue
                try:
                    column, unreadable = parsed_or_null(
                        columns[place], field.type, self._options.time_zone, self._numbers
                    )
                except FormatError as error:
                    raise FormatError(f"{file.name}: the column {field.name!r}: {error}") from None
                if unreadable is not None:
                    bad = unreadable if bad is None else bad | unreadable
                made.append(column)
            yield assembled(chunk, made, bad, schema, self._options, file.name, "a line of CSV")

    def _columns(self, chunk: Chunk, width: int) -> tuple[list[pa.Array], Any]:
        """The columns of a chunk, and the lines with another number of values."""
        plain = self._plain(chunk)
        if plain is None:
            return self._halved(chunk, width)
        several = [self._halved(chunk.some(plain), width)] if plain.any() else []
        several.append(self._slowly(chunk.some(~plain), width))
        order = np.argsort(np.concatenate((np.flatnonzero(plain), np.flatnonzero(~plain))))
        columns, bad = _joined(several, [int(plain.sum()), int((~plain).sum())])
        return [column.take(pa.array(order)) for column in columns], None if bad is None else bad[order]

    def _plain(self, chunk: Chunk) -> Any:
        """Which lines have quotes only around whole values, as Arrow's parser understands them; None if all have."""
        options = self._options
        if not options.quote or len(chunk) == 0:
            return None
        octets = np.frombuffer(chunk.data, np.uint8)
        quote, sep, begin = ord(options.quote), ord(options.sep), int(chunk.starts[0])
        places = np.flatnonzero(octets[begin : int(chunk.ends[-1])] == quote) + begin
        if len(places) == 0:
            return None
        trims = options.trim_left or options.trim_right
        if not trims and not options.line_sep and _is_regular(octets, places, options, _CR):
            # A quote that is open at a line end makes fewer rows than lines.
            return None
        doubled = options.escape == options.quote
        before = octets[places - 1]
        behind = octets[np.minimum(places + 1, len(octets) - 1)]
        lines = np.searchsorted(chunk.starts, places, "right") - 1
        first, last = places == chunk.starts[lines], places + 1 == chunk.ends[lines]
        opens, closes = first | (before == sep), last | (behind == sep)
        if doubled:
            opens |= before == quote
            closes |= behind == quote
        turns = (np.arange(len(places)) - np.searchsorted(lines, lines)) & 1
        plain = np.ones(len(chunk), bool)
        plain[lines[~np.where(turns == 0, opens, closes)]] = False
        counts = np.bincount(lines, minlength=len(chunk))
        plain[(counts & 1) == 1] = False
        if trims:
            plain[counts > 0] = False
        elif options.escape and not doubled:
            escapes = np.flatnonzero(octets == ord(options.escape))
            lines = np.searchsorted(chunk.starts, escapes, "right") - 1
            lines = lines[lines >= 0]
            plain[lines[counts[lines] > 0]] = False
        return None if plain.all() else plain

    def _halved(self, chunk: Chunk, width: int) -> tuple[list[pa.Array], Any]:
        columns = self._quickly(chunk, width)
        if columns is not None:
            return columns, None
        if len(chunk) <= _FEW_LINES:
            return self._slowly(chunk, width)
        halves = chunk.halves()
        return _joined([self._halved(half, width) for half in halves], [len(half) for half in halves])

    def _quickly(self, chunk: Chunk, width: int) -> list[pa.Array] | None:
        options = self._options
        block = chunk.block(options.line_sep)
        names = [str(index) for index in range(width)]
        usual = not options.null_value and not options.empty_value
        try:
            table = pyarrow.csv.read_csv(
                pa.BufferReader(block),
                read_options=pyarrow.csv.ReadOptions(
                    use_threads=False, block_size=block.size + 1, column_names=names, encoding="utf8"
                ),
                parse_options=pyarrow.csv.ParseOptions(
                    delimiter=options.sep,
                    quote_char=options.quote or False,
                    double_quote=options.escape == options.quote,
                    newlines_in_values=options.multiline,
                ),
                convert_options=pyarrow.csv.ConvertOptions(
                    check_utf8=True,
                    column_types=dict.fromkeys(names, pa.string()),
                    null_values=["", options.null_value],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=usual,
                ),
            )
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return None
        # Fewer rows than lines: a quote that was not closed included the next line.
        if table.num_rows != len(chunk):
            return None
        columns = [column.combine_chunks() for column in table.columns]
        return [self._trimmed(column) for column in columns] if usual else [*map(self._values, columns)]

    def _trimmed(self, column: pa.Array) -> pa.Array:
        options = self._options
        if not options.trim_left and not options.trim_right:
            return column
        if options.trim_left:
            column = pc.utf8_ltrim(column, characters=_BLANKS)
        if options.trim_right:
            column = pc.utf8_rtrim(column, characters=_BLANKS)
        return pc.if_else(pc.equal(column, options.null_value), pa.scalar(None, pa.string()), column)

    def _values(self, column: pa.Array) -> pa.Array:
        """A column in which only what is not quoted is null already."""
        column = pc.if_else(pc.equal(column, ""), self._options.empty_value, self._trimmed(column))
        return pc.if_else(pc.equal(column, self._options.null_value), pa.scalar(None, pa.string()), column)

    def _slowly(self, chunk: Chunk, width: int) -> tuple[list[pa.Array], Any]:
        bad = np.zeros(len(chunk), bool)
        columns: list[list[str | None]] = [[] for _ in range(width)]
        # In a file that is read as a whole, a line end closes what a quote opened.
        last = len(chunk.data) if self._options.multiline else 0
        for index, line in enumerate(chunk.lines()):
            values = self._row(line + b"\n" if chunk.ends[index] < last else line)
            bad[index] = len(values) != width
            for place, column in enumerate(columns):
                column.append(values[place] if place < len(values) else None)
        return [pa.array(column, pa.string()) for column in columns], (bad if bad.any() else None)

    def _row(self, line: bytes) -> list[str | None]:
        null_value = self._options.null_value
        values = values_of(line.decode("utf-8", "replace"), self._dialect)
        # Half of a surrogate pair cannot come from bytes.
        return [None if value == null_value else value for value in values]

    # -- columns -------------------------------------------------------------------------------------------------------

    def _first_row(self, opened: _Opened) -> list[str | None]:
        try:
            return self._row(opened.first or b"")
        except FormatError as error:
            raise FormatError(f"{opened.file.name}: {error}") from None

    def _names(self, first: list[str | None]) -> list[str]:
        """Names of the columns: those of a header, with numbers where they are empty or come twice in any case."""
        if not self._options.header:
            return [f"_c{index}" for index in range(len(first))]
        counts = Counter(name.lower() for name in first if name)
        return [
            f"_c{index}" if not name else f"{name}{index}" if counts[name.lower()] > 1 else name
            for index, name in enumerate(first)
        ]

    def _places(self, file: Plain, data: pa.Schema, first: list[str | None]) -> tuple[list[int | None], int]:
        """The index of each column of the schema in a line, and the number of values in a line."""
        options = self._options
        names = self._names(first)
        in_order: list[int | None] = list(range(len(data)))
        if not options.header:
            # Without names, a schema is in the order of the values.
            if (options.columns or data.names != _NUMBERED[: len(data)]) and set(data.names) <= set(names):
                return [names.index(each) for each in data.names], len(names)
            return in_order, len(data)
        if options.enforce_schema == "true" and not options.columns:
            return in_order, len(data)
        have = pa.schema([(each, pa.string()) for each in names])
        places = [find(have, field.name) for field in data]
        missing = [field.name for field, place in zip(data, places, strict=True) if place is None]
        if places and len(missing) == len(places):
            raise FormatError(
                f"{file.name}: its first line names none of the columns {', '.join(data.names)}: does it have a "
                "header, and is it separated by the option sep? enforceSchema=true takes columns in their order"
            )
        # Columns of the directories may be in the file too.
        late = [name for index, name in enumerate(names) if index not in places and f"/{name}=" not in f"/{file.path}"]
        if data.names and (missing or late) and not options.columns and not options.enforce_schema:
            said = [f"no {each}" for each in missing] + [f"{each}, which the schema does not have" for each in late]
            raise FormatError(
                f"{file.name}: its header has {', '.join(said)}: give a schema with the columns of the header, "
                "enforceSchema=true to take columns in their order, or enforceSchema=false to take those that are "
                "there by name"
            )
        return places, len(names)


def _without(chunk: Chunk, header: bytes) -> Chunk:
    """A chunk without lines that repeat the header, which Spark leaves out of inference only."""
    if not header or header not in memoryview(chunk.data).tobytes():
        return chunk
    same = [line == header for line in chunk.lines()]
    return chunk.some(~np.array(same, bool))


def _joined(several: list[tuple[list[pa.Array], Any]], lengths: list[int]) -> tuple[list[pa.Array], Any]:
    """Columns one after the other, and which lines are bad; a part that is not there has the length 0."""
    if len(several) == 1:
        return several[0]
    columns = [pa.concat_arrays(each) for each in zip(*(columns for columns, _ in several), strict=True)]
    if all(bad is None for _, bad in several):
        return columns, None
    return columns, np.concatenate(
        [np.zeros(length, bool) if bad is None else bad for (_, bad), length in zip(several, lengths, strict=True)]
    )


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
            found = first_of(map(self._kept, lines_from_start(file, options, step=_STEP)))
        self._offset = -1 if found is None else found[0]
        self.first = None if found is None else found[1]

    def chunks(self, start: int, end: int) -> Iterator[Chunk]:
        return self._rows(lines_of(self.file, start, end, self._options))

    def sample(self, size: int) -> Iterator[Chunk]:
        return self._rows(lines_from_start(self.file, self._options, size))

    def _kept(self, chunk: Chunk) -> Chunk:
        kept = chunk.not_blank()
        return kept.not_beginning_with(ord(self._options.comment)) if self._options.comment else kept

    def _rows(self, several: Iterable[Chunk]) -> Iterator[Chunk]:
        for chunk in several if self._whole is None else [self._whole]:
            kept = self._kept(chunk) if self._whole is None else chunk
            if self._options.header and len(kept) and kept.offset + int(kept.starts[0]) == self._offset:
                kept = kept.some(slice(1, None))
            if len(kept):
                yield kept


def _records(file: Plain, options: SourceOptions) -> Chunk:
    """All records of a file whose quoted values may have line ends."""
    text = bytes(memoryview(text_of(file, options)).cast("B"))
    if text.startswith(b"\xef\xbb\xbf"):
        text = text[3:]
    # The first line end tells which is meant; in values too, it becomes LF.
    first = min((at for at in (text.find(b"\n"), text.find(b"\r")) if at >= 0), default=-1)
    if first >= 0 and text[first] == _CR:
        separator = b"\r\n" if text[first + 1 : first + 2] == b"\n" else b"\r"
        _refuse_mixed(file.name, text, separator, options)
        text = text.replace(separator, b"\n")
    starts, ends = _bounds(text, options)
    return Chunk(0, pa.py_buffer(text), starts, ends)


def _refuse_mixed(name: str, text: bytes, separator: bytes, options: SourceOptions) -> None:
    """Refuse a text with another line end than its first one, if it may be one: what it means depends on chance."""
    octets = np.frombuffer(text, np.uint8)
    feeds = np.flatnonzero(octets == _LF)
    lone = feeds[octets[feeds - 1] != _CR] if separator == b"\r\n" else feeds
    if len(lone) == 0:
        return
    quotes = np.flatnonzero(octets == ord(options.quote or "\0"))
    if (np.searchsorted(quotes, lone) % 2 == 0).any() or not _is_regular(octets, quotes, options, _CR):
        raise FormatError(
            f"{name}: its first line ends with {'CR LF' if len(separator) == 2 else 'CR'}, and others end with LF "
            "alone: with multiLine=true, a file must have one kind of line ends"
        )


def _bounds(text: bytes, options: SourceOptions) -> tuple[Any, Any]:
    """Where records begin and end: at line ends that are not inside quotes. Empty lines are none."""
    octets = np.frombuffer(text, np.uint8)
    line_ends = np.flatnonzero(octets == _LF)
    if options.comment:
        return _slow_bounds(text, options)
    if options.quote:
        quotes = np.flatnonzero(octets == ord(options.quote))
        if not _is_regular(octets, quotes, options):
            return _slow_bounds(text, options)
        line_ends = line_ends[np.searchsorted(quotes, line_ends) % 2 == 0]
    starts = np.concatenate(([0], line_ends + 1))
    ends = np.concatenate((line_ends, [len(text)]))
    kept = ends > starts
    return starts[kept], ends[kept]


def _is_regular(octets: Any, quotes: Any, options: SourceOptions, end: int = _LF) -> bool:
    """Whether all quotes are around whole values, and no escape is in the text."""
    if len(quotes) == 0:
        return True
    doubled = options.escape == options.quote
    if len(quotes) % 2 or (options.escape and not doubled and (octets == ord(options.escape)).any()):
        return False
    allowed = np.zeros(256, bool)
    allowed[[_LF, end, ord(options.sep), *([ord(options.quote)] if doubled else [])]] = True
    before, behind = octets[quotes[0::2] - 1], octets[np.minimum(quotes[1::2] + 1, len(octets) - 1)]
    first, last = quotes[0] == 0, quotes[-1] == len(octets) - 1
    return bool(allowed[before[int(first) :]].all() and allowed[behind[: len(behind) - int(last)]].all())


def _slow_bounds(text: bytes, options: SourceOptions) -> tuple[Any, Any]:
    dialect = Dialect(options.sep, options.quote, options.escape, comment=options.comment)
    # Bytes as letters, so that places are those of bytes: all special characters are ASCII.
    found = np.array(ends_of(text.decode("latin-1"), dialect), np.int64).reshape(-1, 2)
    return found[:, 0], found[:, 1]


make = _Csv
