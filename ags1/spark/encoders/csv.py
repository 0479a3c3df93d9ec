"""CSV of RFC 4180: values are quoted where they have to be, and quotes in them are doubled.

A null is what `null_value` says, by default nothing; an empty string is a pair of quotes.
"""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc

from ags1.spark.encoders import refuse
from ags1.spark.encoders._texts import LineFormat, has_text, is_octets, joined, text_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ags1.spark._source_options import WriteOptions

__all__ = ["make"]


def make(options: WriteOptions, schema: pa.Schema) -> _Csv:
    """The format."""
    for field in schema:
        if is_octets(field.type):
            raise refuse(field, "CSV", "write base64(column), or use decode=parquet")
        if not has_text(field.type):
            raise refuse(field, "CSV", "write to_json(column), cast it to a string, or use decode=json")
    return _Csv(options, tuple(schema.names))


class _Csv(LineFormat):
    ending = ".csv"

    def __init__(self, options: WriteOptions, names: tuple[str, ...]) -> None:
        super().__init__(options)
        self._names = names

    def head(self) -> pa.Array:
        names = [pa.array([name], pa.string()) for name in self._names]
        return self._line(names) if self._options.header else super().head()

    def lines(self, batch: pa.RecordBatch) -> pa.Array:
        return self._line(batch.columns)

    def _line(self, columns: list[pa.Array]) -> pa.Array:
        return joined([self._cells(column, alone=len(columns) == 1) for column in columns], self._options.sep)

    def _cells(self, column: pa.Array, *, alone: bool) -> pa.Array:
        texts, quote, null_value = text_of(column), self._options.quote, self._options.null_value
        # Blanks at an end are kept by few readers, if they are not quoted.
        special = rf"[{re.escape(self._options.sep)}{re.escape(quote)}\r\n]|^\s|\s$|^{re.escape(null_value)}$|^$"
        unlike = pc.match_substring_regex(texts, special)
        if pc.any(unlike).as_py():
            if not quote:
                raise ValueError(
                    "with the option quote='', CSV cannot have values that are empty or like null_value, or have the "
                    "separator, a line end or a blank at an end"
                )
            doubled = pc.replace_substring(texts, quote, quote * 2)
            texts = pc.if_else(unlike, pc.binary_join_element_wise(quote, doubled, quote, ""), texts)
        # A line of nothing would be no row.
        nothing = quote * 2 if alone and not null_value else null_value
        return pc.fill_null(texts, nothing)
