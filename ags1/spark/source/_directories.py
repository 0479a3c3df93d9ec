"""Columns from directories, and the reverse: ``year=2026/month=02/part-0.csv`` has a year and a month, as in Hive."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ags1.errors import FormatError
from ags1.spark.source.decoders._values import parsed
from ags1.spark.source.encoders._texts import has_text, is_octets, text_of

NULL = "__HIVE_DEFAULT_PARTITION__"
_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
# From the narrowest to the widest; a date fits nothing but itself and text.
_INT, _LONG, _DOUBLE, _DAY, _TEXT = range(5)
_TYPES = (pa.int32(), pa.int64(), pa.float64(), pa.date32(), pa.string())
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
    """The columns of the directories of some files, in order of appearance, with their types."""
    kinds: dict[str, int | None] = {}
    last = None
    for name in names:
        directory = name.rpartition("/")[0]
        if directory == last:
            continue
        last = directory
        for key, value in values_of(name).items():
            kind = None if value is None else _kind_of(value)
            kinds[key] = _wider(kinds.get(key), kind)
    return [(key, _TYPES[_TEXT if kind is None else kind]) for key, kind in kinds.items()]


def _kind_of(value: str) -> int:
    if _INTEGER.fullmatch(value):
        number = int(value) if len(value) < 25 else 1 << 99
        if -(1 << 31) <= number < 1 << 31:
            return _INT
        # A longer text of digits is a name, not a number.
        return _LONG if -(1 << 63) <= number < 1 << 63 else _TEXT
    if _NUMBER.fullmatch(value):
        return _DOUBLE
    if _DATE.fullmatch(value):
        try:
            datetime.date.fromisoformat(value)
        except ValueError:
            return _TEXT
        return _DAY
    return _TEXT


def _wider(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    if one != other and _DAY in (one, other):
        return _TEXT
    return max(one, other)


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


def partitioned_schema(schema: pa.Schema, columns: tuple[str, ...]) -> pa.Schema:
    """The columns that stay in the files when some become directories."""
    for name in columns:
        index = schema.get_field_index(name)
        if index < 0:
            raise ValueError(f"the option partition_by names {name!r}; the columns are {', '.join(schema.names)}")
        kind = schema.field(index).type
        if not has_text(kind) or is_octets(kind):
            raise ValueError(f"the column {name!r} cannot be in partition_by: it is of the type {kind}")
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
            # Hive has the same name for an empty text and for null.
            values = [f"{escaped(name)}={escaped(value) or NULL}/" for value in encoded.dictionary.to_pylist()]
            parts.append(pa.array(values, pa.string()).take(encoded.indices))
        whole = (parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, "")).dictionary_encode()
        return whole.indices.to_numpy(zero_copy_only=False), whole.dictionary.to_pylist()
