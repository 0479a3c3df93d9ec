"""JSON lines, or one JSON document in a file.

Arrow's parser reads many lines at once and is strict: a chunk that it refuses is halved until few lines are left,
which Python reads one by one. Both give the same result for a record that both can read.
"""

from __future__ import annotations

import base64
import decimal
import functools
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from ags1.errors import FormatError
from ags1.spark.source._options import FAIL, PERMISSIVE
from ags1.spark.source.decoders import Decoder, Plain
from ags1.spark.source.decoders._json_values import JsonNode, loaded, plain, scanned
from ags1.spark.source.decoders._lines import Chunk
from ags1.spark.source.decoders._records import assembled, refuse, split_schema
from ags1.spark.source.decoders._text_files import lines_from_start, lines_of, text_of
from ags1.spark.source.decoders._types import conformed
from ags1.spark.source.decoders._values import day_of, decimal_of, moment_of, rounded

_FEW_LINES = 64
_BLANKS = b" \t\r\n"
# Longer ones may not fit a bigint.
_LONG_NUMBER = re.compile(rb"[:,\[]\s*-?\d{19}")
# Blanks may stand between four letters and four.
_BASE64 = re.compile(
    r"(?:[\x00-\x20]*[A-Za-z0-9+/]{4})*[\x00-\x20]*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?[\x00-\x20]*"
)
_UNFIT = (ValueError, TypeError, ArithmeticError)


class _Late(Exception):
    """A record has a field that the sample did not have."""


class _Forgotten(Exception):
    """What was written is needed."""


class _Json(Decoder):
    # -- schema --------------------------------------------------------------------------------------------------------

    def infer(self, files: Iterable[Plain]) -> pa.Schema:
        options = self._options
        found: dict[str, Any] | None = None
        malformed = False
        left = options.sampling_bytes or 1 << 62
        for file in files:
            for kind, size in self._kinds(file, left):
                left -= size
                if isinstance(kind, dict):
                    found = _merged(found, kind)
                elif kind is not None:
                    if options.mode == FAIL:
                        raise refuse(file.name, 0, "a JSON record")
                    malformed = True
            if left <= 0:
                break
        if found is None:
            raise FormatError(
                "there is no JSON record to infer a schema from: give one with .schema(...), or check whether "
                "these are JSON lines (a document that spans lines needs multiLine=true)"
            )
        if malformed and options.mode == PERMISSIVE:
            found.setdefault(options.corrupt_column, "string")
        kind = _arrow_of(found)
        if kind is None:
            return pa.schema([])
        twice = sorted({name for name in kind.names if [each.lower() for each in kind.names].count(name.lower()) > 1})
        if twice:
            raise FormatError(
                f"there are fields whose names differ only in case, which Spark cannot tell apart: {', '.join(twice)}: "
                "give a schema with .schema(...)"
            )
        return pa.schema(list(kind))

    def _kinds(self, file: Plain, size: int) -> Iterator[tuple[Any, int]]:
        """Types of records: an object, None for none, or a text; and the bytes that were looked at."""
        if self._options.multiline:
            text = self._whole(file)
            yield self._kind_of_record(text), len(text)
            return
        for chunk in lines_from_start(file, self._options, size):
            yield None, len(chunk.data)
            if len(kept := chunk.not_empty()):
                for kind in self._kinds_of_lines(kept):
                    yield kind, 0

    def _kinds_of_lines(self, chunk: Chunk) -> Iterator[Any]:
        kind = self._quick_kind(chunk)
        if kind is not None:
            yield kind
        elif len(chunk) <= _FEW_LINES:
            yield from map(self._kind_of_record, chunk.lines())
        else:
            for half in chunk.halves():
                yield from self._kinds_of_lines(half)

    def _quick_kind(self, chunk: Chunk) -> Any:
        block = self._block(chunk)
        if block is None or _LONG_NUMBER.search(block):
            return None
        table = _read(block, None, strict=False)
        if table is None or table.num_rows != len(chunk):
            return None
        fields = zip(table.column_names, table.combine_chunks().columns, strict=True)
        return {name: _kind_of_array(column.chunk(0), as_text=self._options.as_strings) for name, column in fields}

    def _kind_of_record(self, line: bytes) -> Any:
        try:
            if not line.strip(_BLANKS):
                return None
            kind = _type_of(loaded(line.decode("utf-8-sig")), as_text=self._options.as_strings)
        except ValueError:
            return "string"
        while isinstance(kind, list):
            kind = kind[1]
        return kind

    # -- rows ----------------------------------------------------------------------------------------------------------

    def read(self, file: Plain, start: int, end: int, schema: pa.Schema, rows: Any) -> Iterator[pa.RecordBatch]:
        options = self._options
        data, _ = split_schema(schema, options)
        convert = _Struct(pa.struct(list(data)), options.time_zone, strict=options.sampling_bytes > 0)
        try:
            if options.multiline:
                if start == 0 < end:
                    text = self._whole(file)
                    whole = Chunk(0, pa.py_buffer(text), np.array([0]), np.array([len(text)]))
                    yield self._slowly(file.name, whole, data, convert, schema)
                return
            quick = _quick_schema(data)
            for chunk in lines_of(file, start, end, options):
                if len(kept := chunk.not_empty()):
                    yield from self._batches(file.name, kept, data, convert, quick, schema)
        except _Late as late:
            raise FormatError(
                f"{file.name}: there is a field {late}, which the schema does not have, and which the part that the "
                "option sampling_bytes allows did not show: leave the option out, or give a schema with .schema(...)"
            ) from None

    def _batches(
        self, name: str, chunk: Chunk, data: pa.Schema, convert: _Struct, quick: pa.Schema | None, schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        found = None if quick is None else self._quickly(chunk, data, quick)
        if found is not None:
            yield assembled(chunk, found, None, schema, self._options, name, "a JSON record")
        elif quick is None or len(chunk) <= _FEW_LINES:
            yield self._slowly(name, chunk, data, convert, schema)
        else:
            for half in chunk.halves():
                yield from self._batches(name, half, data, convert, quick, schema)

    def _quickly(self, chunk: Chunk, data: pa.Schema, quick: pa.Schema) -> list[pa.Array] | None:
        block = self._block(chunk)
        doubtful = _doubtful(quick)
        if block is None or (doubtful is not None and doubtful.search(block)):
            return None
        table = _read(block, quick, strict=self._options.sampling_bytes > 0)
        if table is None or table.num_rows != len(chunk):
            return None
        if not data.names:
            return []
        try:
            batch = table.combine_chunks().to_batches()[0]
            return list(conformed(batch, _nullable(data), "", self._options.time_zone).columns)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, FormatError):
            return None

    def _block(self, chunk: Chunk) -> pa.Buffer | None:
        """The lines in one piece, if each begins and ends as an object.

        Otherwise Arrow might see two records in a line, or one in two. A record cannot continue after } and before {,
        so equal numbers prove one record in each line.
        """
        octets = np.frombuffer(chunk.data, np.uint8)
        if (octets[chunk.starts] != ord("{")).any() or (octets[chunk.ends - 1] != ord("}")).any():
            return None
        return chunk.block(self._options.line_sep)

    def _slowly(self, name: str, chunk: Chunk, data: pa.Schema, convert: _Struct, schema: pa.Schema) -> pa.RecordBatch:
        rows: list[dict[str, Any]] = []
        lines: list[int] = []
        bad: list[bool] = []
        for index, line in enumerate(chunk.lines()):
            found, wrong = _rows_of(line, convert)
            rows += found
            lines += [index] * len(found)
            bad += [wrong] * len(found)
        columns = [pa.array([row.get(field.name) for row in rows], field.type) for field in data]
        wrong_rows = np.array(bad, bool)
        if self._options.mode == FAIL and wrong_rows.any():
            raise refuse(name, chunk.offset + int(chunk.starts[lines[int(np.argmax(wrong_rows))]]), "a JSON record")
        return assembled(chunk.copied(lines), columns, wrong_rows, schema, self._options, name, "a JSON record")

    def _whole(self, file: Plain) -> bytes:
        return bytes(memoryview(text_of(file, self._options)).cast("B"))


def _read(block: pa.Buffer, schema: pa.Schema | None, *, strict: bool) -> pa.Table | None:
    """A block of objects by Arrow's parser; None if it refuses it."""
    try:
        table = pyarrow.json.read_json(
            pa.BufferReader(block),
            read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=block.size + 1),
            parse_options=pyarrow.json.ParseOptions(
                explicit_schema=schema,
                unexpected_field_behavior="infer" if schema is None else "error" if strict else "ignore",
            ),
        )
        # Arrow accepts bytes that are not UTF-8 as text.
        table.validate(full=True)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    return table


def _nullable(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_nullable(True) for field in schema])


def _rows_of(line: bytes, convert: _Struct) -> tuple[list[dict[str, Any]], bool]:
    """The rows of a record, several for an array of objects, and whether it could not be read, or only in part."""
    try:
        text = line.decode("utf-8-sig")
        if not text.strip(" \t\r\n"):
            return [], False
        try:
            return _converted(loaded(text), convert)
        except _Forgotten:
            return _converted(scanned(text), convert)
    except _UNFIT:
        return [{}], True


def _converted(node: Any, convert: _Struct) -> tuple[list[dict[str, Any]], bool]:
    value, problems = plain(node), _Problems()
    if isinstance(value, list):
        if any(each is None for each in value):
            raise ValueError("no record")
        return [convert(each, problems) for each in value], problems.any
    return [convert(value, problems)], problems.any


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


@functools.lru_cache(16)
def _doubtful(quick: pa.Schema) -> re.Pattern[bytes] | None:
    """What a block may not have for Arrow's parser: numbers that may be too large for 128 bits of a decimal."""
    scales = [int(found[1]) for found in re.finditer(r"decimal128\(\d+, (\d+)\)", str(quick.types))]
    if not scales:
        return None
    digits = max(1, _MAX_PRECISION + 1 - max(scales))
    return re.compile(rb"[:,\[]\s*-?(?:\d{%d}|\d+(?:\.\d+)?[eE])" % digits)


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


class _Problems:
    """Whether a field could not be read, and became null."""

    any = False


_Convert = Callable[[Any, _Problems], Any]


class _Struct:
    """Converts an object to a struct. Fields that cannot be read are null."""

    def __init__(self, kind: pa.StructType, time_zone: str, *, strict: bool) -> None:
        self._fields = {each.name: _converter(each.type, time_zone, strict=strict) for each in kind}
        self._strict = strict

    def __call__(self, node: Any, problems: _Problems) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for name, value in _of(dict, node).items():
            convert = self._fields.get(name)
            if convert is None:
                if self._strict:
                    raise _Late(name)
            elif value is not None:
                try:
                    made[name] = convert(value, problems)
                except _UNFIT:
                    problems.any = True
        return made


def _converter(kind: pa.DataType, time_zone: str, *, strict: bool) -> _Convert:
    """A function that converts a JSON value that is not null for pyarrow.array. It raises for a wrong value."""
    types = pa.types
    if types.is_list(kind):
        element = _optional(_converter(kind.value_type, time_zone, strict=strict))
        return lambda node, problems: [element(each, problems) for each in _of(list, node)]
    if types.is_map(kind):
        if not types.is_string(kind.key_type):
            raise FormatError(f"keys of JSON objects are strings, not {kind.key_type}")
        item = _optional(_converter(kind.item_type, time_zone, strict=strict))
        return lambda node, problems: [(_text(key), item(each, problems)) for key, each in _of(dict, node).items()]
    if types.is_struct(kind):
        return _Struct(kind, time_zone, strict=strict)
    convert = _scalar_converter(kind, time_zone)
    return lambda node, _: convert(node)


def _scalar_converter(kind: pa.DataType, time_zone: str) -> Callable[[Any], Any]:
    types = pa.types
    if types.is_string(kind):
        return _as_text
    if types.is_boolean(kind):
        return lambda node: _of(bool, node)
    if types.is_integer(kind):
        return lambda node: _as_integer(node, kind.bit_width)
    if types.is_floating(kind):
        return _as_double
    if types.is_decimal(kind):
        return lambda node: _as_decimal(node, kind)
    if types.is_binary(kind):
        return _as_octets
    if types.is_date32(kind):
        return _as_day
    if types.is_timestamp(kind):
        return lambda node: _as_moment(node, None if kind.tz is None else time_zone)
    raise FormatError(f"JSON cannot be read as a column of the type {kind}")


def _optional(convert: _Convert) -> _Convert:
    return lambda node, problems: None if node is None else convert(node, problems)


def _of(kind: type, node: Any) -> Any:
    value = plain(node)
    if not isinstance(value, kind):
        raise TypeError("a value of another kind")
    return value


def _text(text: str) -> str:
    # Half of a surrogate pair is no text: Java writes ? for it.
    return text.encode("utf-8", "replace").decode()


def _as_text(node: Any) -> str:
    if isinstance(node, str):
        return _text(node)
    if not isinstance(node, JsonNode):
        raise _Forgotten
    return _text(node.text)


def _as_integer(node: Any, bits: int) -> int:
    value, limit = plain(node), 1 << (bits - 1)
    if bits == 8 and _is_integer(value) and limit <= value < 2 * limit:
        # What Spark's parser makes of an octet without a sign.
        return int(value) - 2 * limit
    if not _is_integer(value) or not -limit <= value < limit:
        raise ValueError("no such integer")
    return int(value)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_INFINITE = {"NaN", "+INF", "+Infinity", "Infinity", "-INF", "-Infinity"}


def _as_double(node: Any) -> float:
    value = plain(node)
    if isinstance(value, str) and value not in _INFINITE:
        raise ValueError("no number")
    if isinstance(value, bool) or not isinstance(value, (int, float, decimal.Decimal, str)):
        raise TypeError("no number")
    try:
        return float(value)
    except OverflowError:
        return float(str(value))


def _as_decimal(node: Any, kind: Any) -> decimal.Decimal:
    value = plain(node)
    if isinstance(value, str):
        return rounded(decimal_of(value.replace(",", "")), kind)
    if not _is_integer(value) and not isinstance(value, decimal.Decimal):
        raise TypeError("no decimal")
    return rounded(decimal.Decimal(value), kind)


def _as_octets(node: Any) -> bytes:
    text = _of(str, node)
    if _BASE64.fullmatch(text) is None:
        raise ValueError("no base64")
    return base64.b64decode(re.sub(r"[\x00-\x20]", "", text))


def _as_day(node: Any) -> int:
    text = _of(str, node)
    try:
        return day_of(text)
    except ValueError:
        # Days since 1970, which old versions of Spark wrote.
        if not re.fullmatch(r"[+-]?\d+", text) or not -141427 <= int(text) < 1 << 31:
            raise
        return int(text)


def _as_moment(node: Any, time_zone: str | None) -> int:
    value = plain(node)
    if time_zone is not None and _is_integer(value):
        if not -(1 << 63) <= value < 1 << 63:
            raise ValueError("no such time")
        # Seconds; Java's product of them has 64 bits.
        return ((int(value) * 1_000_000 + (1 << 63)) & ((1 << 64) - 1)) - (1 << 63)
    return moment_of(_of(str, node), time_zone)


# -- types that records have -------------------------------------------------------------------------------------------

# During inference, a type is a text, the digits of a whole number, ["list", element] or {name: type}; None is the type
# of null.
_MAX_PRECISION = 38
_LONG_DIGITS = 20


def _kind_of_array(array: pa.Array, *, as_text: bool) -> Any:
    """The type of a column that Arrow's parser inferred."""
    kind, types = array.type, pa.types
    if types.is_null(kind):
        return None
    if types.is_struct(kind):
        return {
            field.name: _kind_of_array(child, as_text=as_text)
            for field, child in zip(kind, array.flatten(), strict=True)
        }
    if types.is_list(kind):
        return ["list", _kind_of_array(array.flatten(), as_text=as_text)]
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind):
        if as_text:
            return "string"
        return "boolean" if types.is_boolean(kind) else "long" if types.is_integer(kind) else "double"
    # An empty text may stand for null. Texts may have become times.
    is_empty = types.is_string(kind) and not pc.any(pc.greater(pc.binary_length(array), 0)).as_py()
    return None if is_empty else "string"


def _type_of(node: Any, *, as_text: bool) -> Any:
    value = plain(node)
    if isinstance(value, dict):
        return {name: _type_of(each, as_text=as_text) for name, each in value.items()}
    if isinstance(value, list):
        element = None
        for each in value:
            element = _merged(element, _type_of(each, as_text=as_text))
        return ["list", element]
    if value is None or value == "":
        return None
    if isinstance(value, str) or as_text:
        return "string"
    if isinstance(value, bool):
        return "boolean"
    if not isinstance(value, int):
        return "double"
    if -(1 << 63) <= value < 1 << 63:
        return "long"
    digits = len(str(abs(value)))
    return digits if digits <= _MAX_PRECISION else "double"


def _merged(one: Any, other: Any) -> Any:
    if one is None or one == other:
        return other
    if other is None:
        return one
    if isinstance(one, dict) and isinstance(other, dict):
        return {name: _merged(one.get(name), other.get(name)) for name in {**one, **other}}
    if isinstance(one, list) and isinstance(other, list):
        return ["list", _merged(one[1], other[1])]
    if all(isinstance(each, int) or each in ("long", "double") for each in (one, other)):
        if "double" in (one, other):
            return "double"
        return max(_LONG_DIGITS if each == "long" else each for each in (one, other))
    return "string"


def _arrow_of(found: Any) -> pa.DataType | None:
    """The Arrow type; None for a struct without a field, which Spark leaves out."""
    if isinstance(found, dict):
        # The order of Java's strings.
        names = sorted(filter(None, found), key=lambda name: name.encode("utf-16-be", "surrogatepass"))
        fields = [(name, _arrow_of(found[name])) for name in names]
        kept = [(name, kind) for name, kind in fields if kind is not None]
        return pa.struct(kept) if kept else None
    if isinstance(found, list):
        element = _arrow_of(found[1])
        return None if element is None else pa.list_(pa.field("element", element))
    if isinstance(found, int):
        return pa.decimal128(found, 0)
    return {"boolean": pa.bool_(), "long": pa.int64(), "double": pa.float64()}.get(found, pa.string())


make = _Json
