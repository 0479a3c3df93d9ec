"""JSON lines. A field that is null is left out, as Spark's own writer does it.

Numbers are numbers, decimals with all their digits; NaN and infinities are strings, because JSON has no numbers for
them. Times are strings in ISO 8601, bytes are base64, maps are objects.
"""

from __future__ import annotations

from collections.abc import Sequence
from json.encoder import encode_basestring
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ags1.spark.source._options import WriteOptions
from ags1.spark.source.encoders import Encoding, refuse
from ags1.spark.source.encoders._texts import has_text, joined, of_lines, text_of

_ESCAPED = r'["\\\x00-\x1f]'


def make(options: WriteOptions, schema: pa.Schema) -> Encoding:
    """The format."""
    for field in schema:
        if not _is_known(field.type):
            raise refuse(field, "JSON", "cast it to a string, or use decode=parquet")
    return of_lines(options, ".json", _lines)


def _is_known(kind: pa.DataType) -> bool:
    types = pa.types
    if types.is_list(kind) or types.is_large_list(kind):
        return _is_known(kind.value_type)
    if types.is_map(kind):
        return has_text(kind.key_type) and _is_known(kind.item_type)
    if types.is_struct(kind):
        return all(_is_known(each.type) for each in kind)
    return has_text(kind) or types.is_null(kind)


def _lines(batch: pa.RecordBatch) -> pa.Array:
    return _objects(batch.schema.names, batch.columns, batch.num_rows)


def _objects(names: Sequence[str], columns: list[pa.Array], count: int) -> pa.Array:
    fields = []
    for name, column in zip(names, columns, strict=True):
        values = _json_of(column)
        before = f",{encode_basestring(name)}:"
        # Write nothing where the value is null.
        fields.append(pc.fill_null(pc.binary_join_element_wise(before, values, ""), ""))
    if not fields:
        return pa.array(["{}"] * count, pa.string())
    # Without the first comma.
    inside = pc.utf8_slice_codeunits(joined(fields, ""), 1)
    return pc.binary_join_element_wise("{", inside, "}", "")


def _json_of(column: pa.Array) -> pa.Array:
    """The values of a column as JSON; nulls stay."""
    kind, types = column.type, pa.types
    if types.is_null(kind):
        return column.cast(pa.string())
    if types.is_struct(kind):
        made = _objects([each.name for each in kind], column.flatten(), len(column))
        return _with_nulls(made, column)
    if types.is_list(kind) or types.is_large_list(kind):
        return _lists(column, lambda first, count: _json_of(column.values.slice(first, count)), "[", "]")
    if types.is_map(kind):
        return _lists(column, lambda first, count: _pairs(column, first, count), "{", "}")
    texts = text_of(column)
    if types.is_string(kind) or types.is_large_string(kind):
        return _quoted(texts)
    if types.is_floating(kind):
        special = pc.is_in(texts, _NO_NUMBERS)
        return pc.if_else(special, _plainly_quoted(texts), texts)
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_decimal(kind):
        return texts
    return _plainly_quoted(texts)


_NO_NUMBERS = pa.array(["NaN", "Infinity", "-Infinity"])


def _lists(column: Any, elements: Any, opening: str, closing: str) -> pa.Array:
    offsets = column.offsets
    first, last = offsets[0].as_py(), offsets[len(column)].as_py()
    texts = pc.fill_null(elements(first, last - first), "null")
    moved = pc.subtract(offsets, pa.scalar(first, offsets.type)).cast(pa.int32())
    inside = pc.binary_join(pa.ListArray.from_arrays(moved, texts), ",")
    return _with_nulls(pc.binary_join_element_wise(opening, inside, closing, ""), column)


def _pairs(column: Any, first: int, count: int) -> pa.Array:
    keys = _quoted(text_of(column.keys.slice(first, count)))
    values = pc.fill_null(_json_of(column.items.slice(first, count)), "null")
    return pc.binary_join_element_wise(keys, values, ":")


def _with_nulls(texts: pa.Array, column: pa.Array) -> pa.Array:
    if not column.null_count:
        return texts
    return pc.if_else(column.is_valid(), texts, pa.scalar(None, texts.type))


def _plainly_quoted(texts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', texts, '"', "")


def _quoted(texts: pa.Array) -> pa.Array:
    special = pc.match_substring_regex(texts, _ESCAPED)
    if not pc.any(special).as_py():
        return _plainly_quoted(texts)
    values = [None if value is None else encode_basestring(value) for value in texts.to_pylist()]
    return pa.array(values, pa.string())
