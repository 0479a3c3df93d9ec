"""Columns from directories, and the reverse: ``year=2026/month=02/part-0.csv`` has a year and a month, as in Hive."""

from __future__ import annotations

import decimal
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ags1.errors import FormatError
from ags1.spark.source.decoders._values import parsed, parsed_or_null
from ags1.spark.source.encoders._texts import has_text, is_octets, text_of

_LONGEST = 100
_MAX_PRECISION = 38
NULL = "__HIVE_DEFAULT_PARTITION__"
_INTEGER = re.compile(r"[+-]?\d+")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,9})?")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
# As Spark writes them, in the session's zone, and as text_of does, which keeps microseconds and both hours of a clock
# that is turned back.
_TIME = re.compile(r"\d{4}-\d{2}-\d{2}( \d{2}:\d{2}:\d{2}(\.\d)?|T\d{2}:\d{2}:\d{2}\.\d{6}(?P<zone>Z?))", re.ASCII)
_INTEGERS, _INSTANT, _LOCAL = (pa.int32(), pa.int64()), pa.timestamp("us", "UTC"), pa.timestamp("us")
_DIGITS = {pa.int32(): 10, pa.int64(): 20}
# What Hive escapes, and so Spark.
_SPECIAL = re.compile(r"[\x01-\x1f\x7f\"#%'*/:=?\\{\[\]^]")


def is_hidden(name: str) -> bool:
    """Whether Spark ignores a file: a part of its name begins with a point, or with _ and has no =."""
    return any(part.startswith(".") or (part.startswith("_") and "=" not in part) for part in name.split("/"))


def values_of(name: str) -> dict[str, str | None]:
    """Names and values in the directories of a relative path; None is null."""
    found: dict[str, str | None] = {}
    for part in name.split("/")[:-1]:
        key, equals, value = part.partition("=")
        if equals and key:
            found[unquote(key)] = None if value == NULL else unquote(value)
    return found


def inferred(names: Iterable[str]) -> list[tuple[str, pa.DataType]]:
    """The columns of the directories of some files, in order of appearance, with the types that Spark gives them."""
    kinds: dict[str, tuple[str, pa.DataType | None]] = {}
    last = None
    for name in names:
        directory = name.rpartition("/")[0]
        if directory == last:
            continue
        last = directory
        for key, value in values_of(name).items():
            first, known = kinds.setdefault(key.lower(), (key, None))
            # What is text stays text.
            if value is not None and known != pa.string():
                kinds[key.lower()] = first, _wider(known, _kind_of(value))
    return [(key, pa.string() if kind is None else kind) for key, kind in kinds.values()]


# Most directories repeat those above them.
@lru_cache(maxsize=1 << 14)
def _kind_of(value: str) -> pa.DataType:
    if _INTEGER.fullmatch(value) and len(value) < _LONGEST:
        for kind in _INTEGERS:
            if -(1 << kind.bit_width - 1) <= int(value) < 1 << kind.bit_width - 1:
                return kind
    if _NUMBER.fullmatch(value) and len(value) < _LONGEST:
        _, digits, exponent = decimal.Decimal(value).as_tuple()
        if isinstance(exponent, int) and 0 <= exponent <= _MAX_PRECISION - len(digits):
            return pa.decimal128(len(digits) + exponent, 0)
    if _is_value(value, pa.float64()):
        return pa.float64()
    if (time := _TIME.fullmatch(value)) and _is_value(value, _INSTANT):
        return _LOCAL if time["zone"] == "" else _INSTANT
    return pa.date32() if _DATE.fullmatch(value) and _is_value(value, pa.date32()) else pa.string()


def _is_value(text: str, kind: pa.DataType) -> bool:
    return parsed_or_null(pa.array([text.strip()], pa.string()), kind, "UTC", {})[1] is None


def _wider(one: pa.DataType | None, other: pa.DataType) -> pa.DataType:
    """The type that has the values of both, which is often text."""
    if one is None or one == other:
        return other
    both = {one, other}
    if both <= {pa.date32(), _INSTANT}:
        return _INSTANT
    if both == {pa.int32(), pa.float64()}:
        return pa.float64()
    if both == set(_INTEGERS):
        return pa.int64()
    widths = [_DIGITS.get(each) or (each.precision if pa.types.is_decimal(each) else 99) for each in both]
    return pa.decimal128(max(widths), 0) if max(widths) <= _MAX_PRECISION else pa.string()


def constant(value: str | None, field: pa.Field, name: str, time_zone: str) -> Any:
    """The value of a directory as an Arrow scalar of a column's type."""
    if value is None:
        return pa.scalar(None, field.type)
    text = value if pa.types.is_string(field.type) else value.strip()
    try:
        return parsed(pa.array([text], pa.string()), field.type, time_zone)[0]
    except (ValueError, pa.ArrowNotImplementedError):
        raise FormatError(
            f"{name}: its directory has {field.name}={value}, which is not a value of the column's type {field.type}"
        ) from None


def escaped(text: str) -> str:
    return _SPECIAL.sub(lambda found: f"%{ord(found[0]):02X}", text)


def named_otherwise(name: str, schema: pa.Schema, time_zone: str) -> str | None:
    """The directories that a write would give to the rows of a file, if they are not those that it is in."""
    columns = ((schema.field(key), value) for key, value in values_of(name).items())
    parts = (_part(field.name, text_of(_one(value, field, name, time_zone))[0].as_py()) for field, value in columns)
    made = "".join(parts)
    return None if made == name.rpartition("/")[0] + "/" else made


def _one(value: str | None, field: pa.Field, name: str, time_zone: str) -> pa.Array:
    return pa.array([constant(value, field, name, time_zone)], field.type)


def _part(name: str, text: str | None) -> str:
    # Hive has the same name for an empty text and for null.
    return f"{escaped(name)}={escaped(text or '') or NULL}/"


def partitioned_schema(schema: pa.Schema, columns: tuple[str, ...]) -> pa.Schema:
    """The columns that stay in the files when some become directories."""
    for name in columns:
        index = schema.get_field_index(name)
        if index < 0:
            raise ValueError(f"the option partition_by names {name!r}; the columns are {', '.join(schema.names)}")
        kind = schema.field(index).type
        if not has_text(kind) or is_octets(kind):
            raise ValueError(f"the column {name!r} cannot be in partition_by: it is of the type {kind}")
        if is_hidden(f"{escaped(name)}="):
            raise ValueError(f"the column {name!r} cannot be in partition_by: readers leave out such directories")
    rest = pa.schema([field for field in schema if field.name not in columns])
    if columns and not rest.names:
        raise ValueError("the option partition_by names all columns: one has to be left for the files")
    return rest


class SourceDirectories:
    """Collects rows, up to a limit of Arrow memory, so that rows of one directory are written together."""

    def __init__(self, columns: tuple[str, ...], gathered_bytes: int) -> None:
        self._columns = columns
        self._limit = gathered_bytes
        self._gathered: list[pa.RecordBatch] = []
        self._size = 0

    def add(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Add rows; return those to write now, by directory."""
        if batch.num_rows:
            self._gathered.append(batch)
            self._size += batch.nbytes
        if self._size >= self._limit:
            yield from self.rest()

    def rest(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The rows that are left."""
        if not self._gathered:
            return
        table = pa.Table.from_batches(self._gathered).combine_chunks()
        self._gathered, self._size = [], 0
        codes, names = self._directories(table)
        order = np.argsort(codes, kind="stable")
        table = table.drop_columns(list(self._columns)).take(pa.array(order))
        sorted_codes = codes[order]
        starts = np.flatnonzero(np.r_[True, sorted_codes[1:] != sorted_codes[:-1]])
        for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(codes)], strict=True):
            for batch in table.slice(start, end - start).combine_chunks().to_batches():
                yield names[int(sorted_codes[start])], batch

    def _directories(self, table: pa.Table) -> tuple[np.ndarray[tuple[int], np.dtype[np.int32]], list[str]]:
        """For each row the number of its directory; and their names."""
        parts = []
        for name in self._columns:
            column = table.column(name).combine_chunks()
            array = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
            encoded = pc.fill_null(text_of(array), "").dictionary_encode()
            values = [_part(name, value) for value in encoded.dictionary.to_pylist()]
            parts.append(pa.array(values, pa.string()).take(encoded.indices))
        whole = (parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, "")).dictionary_encode()
        return whole.indices.to_numpy(zero_copy_only=False), whole.dictionary.to_pylist()
