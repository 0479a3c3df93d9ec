"""JSON lines, or one JSON document in a file.

Arrow's parser reads many lines at once and is strict: a chunk that it refuses is halved until few lines are left,
which Python reads one by one. Both give the same result for a record that both can read.
"""

from __future__ import annotations

import base64
import binascii
import decimal
import json
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json

from ags1.errors import FormatError
from ags1.spark.source._options import DROP, FAIL, PERMISSIVE
from ags1.spark.source.decoders import Decoder, Plain
from ags1.spark.source.decoders._lines import Chunk
from ags1.spark.source.decoders._records import assembled, refuse, split_schema
from ags1.spark.source.decoders._text_files import lines_of, sampled_lines_of, text_of
from ags1.spark.source.decoders._types import conformed, parsed, without_columns

__all__ = ["make"]

_FEW_LINES = 64
_BAD = object()


class _Json(Decoder):
    # -- schema --------------------------------------------------------------------------------------------------------

    def infer(self, files: Iterable[Plain]) -> pa.Schema:
        found: dict[str, Any] | None = None
        malformed = False
        left = self._options.sampling_bytes
        for file in files:
            for record, size in self._sample(file, left):
                left -= size
                if isinstance(record, dict):
                    found = _merged_fields(found or {}, record)
                elif self._options.mode == FAIL:
                    raise refuse(file.name, 0, "a JSON record")
                else:
                    malformed = True
            if left <= 0:
                break
        if found is None:
            raise FormatError(
                "there is no JSON record to infer a schema from: give one with .schema(...), or check whether "
                "these are JSON lines (a document that spans lines needs multiLine=true)"
            )
        fields = [pa.field(name, _arrow_of(found[name])) for name in sorted(found)]
        if malformed and self._options.mode == PERMISSIVE and self._options.corrupt_column not in found:
            fields.append(pa.field(self._options.corrupt_column, pa.string()))
        return pa.schema(fields)

    def _sample(self, file: Plain, size: int) -> Iterator[tuple[Any, int]]:
        if self._options.multiline:
            text = self._whole(file)
            for record in _documents(text):
                yield record, len(text)
            return
        for chunk in sampled_lines_of(file, size, self._options):
            for line in chunk.not_blank().lines():
                if not line.isspace():
                    yield _loaded(line), len(line) + 1

    # -- rows ----------------------------------------------------------------------------------------------------------

    def read(self, file: Plain, start: int, end: int, schema: pa.Schema, rows: Any) -> Iterator[pa.RecordBatch]:
        data, _ = split_schema(schema, self._options)
        if self._options.multiline:
            if start == 0 < end:
                yield self._whole_file(file, data, schema)
            return
        quick = _quick_schema(data)
        for chunk in lines_of(file, start, end, self._options):
            kept = chunk.not_blank()
            if len(kept):
                yield from self._batches(file.name, kept, data, quick, schema)

    def _batches(
        self, name: str, chunk: Chunk, data: pa.Schema, quick: pa.Schema | None, schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        found = None if quick is None else self._quickly(chunk, data, quick)
        if found is not None:
            yield assembled(chunk, found, None, schema, self._options, name, "a JSON record")
        elif quick is None or len(chunk) <= _FEW_LINES:
            batch = self._slowly(name, chunk, data, schema)
            if batch is not None:
                yield batch
        else:
            for half in chunk.halves():
                yield from self._batches(name, half, data, quick, schema)

    def _quickly(self, chunk: Chunk, data: pa.Schema, quick: pa.Schema) -> list[pa.Array] | None:
        octets = np.frombuffer(chunk.data, np.uint8)
        # Otherwise Arrow might see two records in a line, or one in two. A record cannot continue after } and before
        # {, # so equal numbers prove one record in each line.
        if (octets[chunk.starts] != ord("{")).any() or (octets[chunk.ends - 1] != ord("}")).any():
            return None
        block = chunk.block(self._options.line_sep)
        try:
            table = pyarrow.json.read_json(
                pa.BufferReader(block),
                read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=block.size + 1),
                parse_options=pyarrow.json.ParseOptions(explicit_schema=quick, unexpected_field_behavior="ignore"),
            )
            if table.num_rows != len(chunk):
                return None
            # Arrow accepts bytes that are not UTF-8 as text.
            table.validate(full=True)
            if not data.names:
                return []
            batch = table.combine_chunks().to_batches()[0]
            return list(conformed(batch, _nullable(data), "", self._options.time_zone).columns)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, FormatError):
            return None

    def _slowly(self, name: str, chunk: Chunk, data: pa.Schema, schema: pa.Schema) -> pa.RecordBatch | None:
        lines = list(chunk.lines())
        kept = np.array([not line.isspace() for line in lines], bool)
        if not kept.all():
            chunk = chunk.some(kept)
            lines = [line for line in lines if not line.isspace()]
        if not lines:
            return None
        columns, bad = self._columns([_loaded(line) for line in lines], data)
        return assembled(chunk, columns, bad, schema, self._options, name, "a JSON record")

    def _columns(self, records: list[Any], data: pa.Schema) -> tuple[list[pa.Array], Any]:
        bad = np.array([not isinstance(each, dict) for each in records], bool)
        columns = []
        for field in data:
            convert = _converter(field.type, self._options.time_zone)
            values: list[Any] = []
            for index, record in enumerate(records):
                value = record.get(field.name) if isinstance(record, dict) else None
                try:
                    values.append(None if value is None else convert(value))
                except (ValueError, TypeError, OverflowError, ArithmeticError):
                    values.append(None)
                    bad[index] = True
            columns.append(pa.array(values, field.type))
        return columns, bad

    def _whole(self, file: Plain) -> bytes:
        return bytes(memoryview(text_of(file, self._options)).cast("B"))

    def _whole_file(self, file: Plain, data: pa.Schema, schema: pa.Schema) -> pa.RecordBatch:
        text = self._whole(file)
        records = _documents(text)
        columns, bad = self._columns(records, data)
        if self._options.mode == FAIL and bad.any():
            raise refuse(file.name, 0, "a JSON document")
        index = schema.get_field_index(self._options.corrupt_column)
        if index >= 0:
            texts = [
                None if not wrong else text.decode("utf-8", "replace") if each is _BAD else _dumped(each)
                for each, wrong in zip(records, bad, strict=True)
            ]
            columns.insert(index, pa.array(texts, pa.string()))
        if not columns:
            return without_columns(len(records) - (int(bad.sum()) if self._options.mode == DROP else 0))
        batch = pa.RecordBatch.from_arrays(columns, schema=_nullable(schema))
        if self._options.mode == DROP:
            batch = batch.filter(pa.array(~bad))
        return conformed(batch, schema, file.name)


def _nullable(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_nullable(True) for field in schema])


def _documents(text: bytes) -> list[Any]:
    """The records of a document: an object, or those in an array."""
    if not text.strip():
        return []
    found = _loaded(text)
    return found if isinstance(found, list) else [found]


def _loaded(line: bytes) -> Any:
    """The value of a text, _BAD if it is invalid. Numbers with a point keep all of their digits."""
    try:
        return json.loads(line.decode("utf-8-sig"), parse_float=decimal.Decimal)
    except (ValueError, RecursionError):
        return _BAD


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_number)


def _number(value: Any) -> Any:
    # Only a decimal.Decimal gets here.
    return float(value)


# -- what Arrow's parser can do ----------------------------------------------------------------------------------------


def _quick_schema(schema: pa.Schema) -> pa.Schema | None:
    """The schema for Arrow's parser; None if it cannot read such columns."""
    fields = []
    for field in schema:
        kind = _quick_type(field.type)
        if kind is None:
            return None
        fields.append(pa.field(field.name, kind))
    return pa.schema(fields)


def _quick_type(kind: pa.DataType) -> pa.DataType | None:
    types = pa.types
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return kind
    if types.is_string(kind) or types.is_date(kind) or types.is_timestamp(kind):
        return pa.string()
    if types.is_list(kind):
        element = _quick_type(kind.value_type)
        return None if element is None else pa.list_(pa.field("element", element))
    if types.is_struct(kind):
        fields = [(each.name, _quick_type(each.type)) for each in kind]
        return None if any(each is None for _, each in fields) else pa.struct(fields)
    return None


# -- what Python does with the rest ------------------------------------------------------------------------------------


def _converter(kind: pa.DataType, time_zone: str) -> Callable[[Any], Any]:
    """A function that converts a JSON value that is not null for pyarrow.array. It raises for a wrong value."""
    types = pa.types
    if types.is_string(kind):
        return _as_text
    if types.is_boolean(kind):
        return _as_flag
    if types.is_integer(kind):
        limit = 1 << (kind.bit_width - 1)
        return lambda value: _as_integer(value, limit)
    if types.is_floating(kind):
        return _as_double
    if types.is_decimal(kind):
        return lambda value: _as_decimal(value, kind)
    if types.is_binary(kind):
        return _as_octets
    if types.is_list(kind):
        element = _optional(_converter(kind.value_type, time_zone))
        return lambda value: [element(each) for each in _of(list, value)]
    if types.is_map(kind):
        item = _optional(_converter(kind.item_type, time_zone))
        if not types.is_string(kind.key_type):
            raise FormatError(f"keys of JSON objects are strings, not {kind.key_type}")
        return lambda value: [(key, item(each)) for key, each in _of(dict, value).items()]
    if types.is_struct(kind):
        fields = [(each.name, _optional(_converter(each.type, time_zone))) for each in kind]
        return lambda value: {name: convert(_of(dict, value).get(name)) for name, convert in fields}
    return lambda value: parsed(pa.array([_of(str, value)], pa.string()), kind, time_zone)[0].as_py()


def _optional(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else convert(value)


def _of(kind: type, value: Any) -> Any:
    if not isinstance(value, kind):
        raise TypeError("a value of another kind")
    return value


def _as_text(value: Any) -> str:
    text = value if isinstance(value, str) else str(value) if isinstance(value, decimal.Decimal) else _dumped(value)
    # Half of a surrogate pair is no text.
    text.encode()
    return text


def _as_flag(value: Any) -> bool:
    return bool(_of(bool, value))


def _as_integer(value: Any, limit: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not -limit <= value < limit:
        raise ValueError("no such integer")
    return value


def _as_double(value: Any) -> float:
    if isinstance(value, str):
        if value.lstrip("+-") not in ("NaN", "Infinity", "INF", "Inf"):
            raise ValueError("no number")
    elif isinstance(value, bool) or not isinstance(value, (int, float, decimal.Decimal)):
        raise TypeError("no number")
    made = float(value)
    if math.isinf(made) and isinstance(value, decimal.Decimal):
        raise OverflowError("too large a number")
    return made


def _as_decimal(value: Any, kind: Any) -> decimal.Decimal:
    if isinstance(value, bool) or not isinstance(value, (int, decimal.Decimal, str)):
        raise TypeError("no decimal")
    with decimal.localcontext() as context:
        context.prec = 2 * kind.precision + 40
        made = decimal.Decimal(value).quantize(decimal.Decimal(1).scaleb(-kind.scale), decimal.ROUND_HALF_UP)
    if len(made.as_tuple().digits) > kind.precision:
        raise OverflowError("too many digits")
    return made


def _as_octets(value: Any) -> bytes:
    try:
        return base64.b64decode(_of(str, value), validate=True)
    except binascii.Error:
        raise ValueError("no base64") from None


# -- types that records have -------------------------------------------------------------------------------------------

# During inference, a type is a text, ["list", element] or {name: type}; None is the type of null.


def _merged_fields(found: dict[str, Any], record: dict[str, Any]) -> dict[str, Any]:
    for name, value in record.items():
        found[name] = _merged(found.get(name), _type_of(value))
    return found


def _type_of(value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "long" if -(1 << 63) <= value < 1 << 63 else "double"
    if isinstance(value, (float, decimal.Decimal)):
        return "double"
    if isinstance(value, list):
        element = None
        for each in value:
            element = _merged(element, _type_of(each))
        return ["list", element]
    if isinstance(value, dict):
        return _merged_fields({}, value)
    return "string"


def _merged(one: Any, other: Any) -> Any:
    if one is None or one == other:
        return other
    if other is None:
        return one
    if isinstance(one, dict) and isinstance(other, dict):
        return {name: _merged(one.get(name), other.get(name)) for name in {**one, **other}}
    if isinstance(one, list) and isinstance(other, list):
        return ["list", _merged(one[1], other[1])]
    if {str(one), str(other)} == {"long", "double"}:
        return "double"
    return "string"


def _arrow_of(found: Any) -> pa.DataType:
    if isinstance(found, dict):
        # A struct must have a field.
        fields = [(name, _arrow_of(found[name])) for name in sorted(found)]
        return pa.struct(fields) if fields else pa.string()
    if isinstance(found, list):
        return pa.list_(pa.field("element", _arrow_of(found[1])))
    return {"boolean": pa.bool_(), "long": pa.int64(), "double": pa.float64()}.get(found, pa.string())


make = _Json
