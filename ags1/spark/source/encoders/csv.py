"""CSV as Spark's reader understands it: values are quoted where they have to be, and quotes in them are escaped.

A null is written as `null_value`, by default nothing; an empty string is a pair of quotes. With a quote as the escape,
it is that of RFC 4180.
"""

from __future__ import annotations

import re
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from ags1.spark.source._options import WriteOptions
from ags1.spark.source.encoders import Encoding, refuse
from ags1.spark.source.encoders._texts import has_text, is_octets, joined, of_lines, text_of


def make(options: WriteOptions, schema: pa.Schema) -> Encoding:
    """The format."""
    for field in schema:
        if is_octets(field.type):
            raise refuse(field, "CSV", "write base64(column), or use decode=parquet")
        if not has_text(field.type):
            raise refuse(field, "CSV", "write to_json(column), cast it to a string, or use decode=json")
    names = [pa.array([name], pa.string()) for name in schema.names]
    head = [_line(options, names)] if options.header else []
    return of_lines(options, ".csv", partial(_lines, options), *head)


def _lines(options: WriteOptions, batch: pa.RecordBatch) -> pa.Array:
    return _line(options, batch.columns)


def _line(options: WriteOptions, columns: list[pa.Array]) -> pa.Array:
    return joined([_cells(options, column, alone=len(columns) == 1) for column in columns], options.sep)


def _cells(options: WriteOptions, column: pa.Array, *, alone: bool) -> pa.Array:
    texts, quote, escape, null_value = text_of(column), options.quote, options.escape, options.null_value
    # Few readers keep blanks at an end that are not quoted.
    blank = r"[\x00-\x20]"
    special = rf"[{re.escape(options.sep)}{re.escape(quote)}\r\n]|^{blank}|{blank}$|^{re.escape(null_value)}$|^$"
    unlike = pc.match_substring_regex(texts, special)
    if pc.any(unlike).as_py():
        if not quote:
            raise ValueError(
                "with the option quote='', CSV cannot have values that are empty or like null_value, or have the "
                "separator, a line end or a blank at an end"
            )
        if not escape and pc.any(pc.match_substring(texts, quote)).as_py():
            raise ValueError("with the option escape='', CSV cannot have values with quotes")
        safe = texts if escape in ("", quote) else pc.replace_substring(texts, escape, escape * 2)
        safe = pc.replace_substring(safe, quote, escape + quote)
        texts = pc.if_else(unlike, pc.binary_join_element_wise(quote, safe, quote, ""), texts)
    # An empty line would not be read as a row.
    nothing = quote * 2 if alone and not null_value else null_value
    return pc.fill_null(texts, nothing)
