"""CSV of RFC 4180: values are quoted where they have to be, and quotes in them are doubled.

A null is what `null_value` says, by default nothing; an empty string is a pair of quotes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from ags1.spark.encoders import FileEncoder, refuse
from ags1.spark.encoders._texts import GZIP, Lines, has_text, is_octets, joined, text_of, write_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ags1.spark._write_options import WriteOptions

__all__ = ["make"]


def make(options: WriteOptions, schema: pa.Schema) -> _Csv:
    """The format."""
    for field in schema:
        if is_octets(field.type):
            raise refuse(field, "CSV", "write base64(column), or use decode=parquet")
        if not has_text(field.type):
            raise refuse(field, "CSV", "write to_json(column), cast it to a string, or use decode=json")
    return _Csv(
        options.compression, options.header, options.sep, options.quote, options.null_value, tuple(schema.names)
    )


@dataclass(frozen=True)
class _Csv:
    compression: str
    header: bool
    sep: str
    quote: str
    null_value: str
    names: tuple[str, ...]

    @property
    def extension(self) -> str:
        return ".csv.gz" if self.compression == GZIP else ".csv"

    def open(self, file: Any, gathered_bytes: int) -> _CsvFile:
        return _CsvFile(Lines(file, self.compression), self)

    def line(self, columns: list[pa.Array]) -> pa.Array:
        """A line for each row."""
        return joined([self._cells(column, alone=len(columns) == 1) for column in columns], self.sep)

    def _cells(self, column: pa.Array, *, alone: bool) -> pa.Array:
        texts = text_of(column)
        # Blanks at an end are kept by few readers, if they are not quoted.
        special = rf"[{re.escape(self.sep)}{re.escape(self.quote)}\r\n]|^\s|\s$|^{re.escape(self.null_value)}$|^$"
        unlike = pc.match_substring_regex(texts, special)
        if pc.any(unlike).as_py():
            if not self.quote:
                raise ValueError(
                    "with the option quote='', CSV cannot have values that are empty or like null_value, or have the "
                    "separator, a line end or a blank at an end"
                )
            doubled = pc.replace_substring(texts, self.quote, self.quote * 2)
            texts = pc.if_else(unlike, pc.binary_join_element_wise(self.quote, doubled, self.quote, ""), texts)
        # A line of nothing would be no row.
        nothing = self.quote * 2 if alone and not self.null_value else self.null_value
        return pc.fill_null(texts, nothing)


class _CsvFile(FileEncoder):
    def __init__(self, lines: Lines, made: _Csv) -> None:
        self._lines = lines
        self._format = made
        if made.header:
            write_lines(lines, made.line([pa.array([name], pa.string()) for name in made.names]))

    def write(self, batch: pa.RecordBatch) -> None:
        write_lines(self._lines, self._format.line(batch.columns))

    def close(self) -> None:
        self._lines.close()
