"""Avro container files. Every column may be null; times, dates and decimals have Avro's logical types."""

from __future__ import annotations

import json
import re
from functools import partial
from typing import Any

import pyarrow as pa

from ags1.spark.source.encoders import Encoding, FileEncoder, refuse
from ags1.spark.source.options import WriteOptions

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
# Number of rows from Arrow to Python at once.
_STEP = 4096
_SYNC_INTERVAL = 64 << 10


def make(options: WriteOptions, schema: pa.Schema) -> Encoding:
    """The format."""
    fields = []
    for field in schema:
        try:
            fields.append(_field(field.name, field.type, f"{field.name}_"))
        except TypeError as error:
            raise refuse(field, "Avro", f"{error}; cast it, or use decode=parquet") from None
    record = {"type": "record", "name": "topLevelRecord", "fields": fields}
    codec = "null" if options.compression == "none" else options.compression
    return Encoding(".avro", partial(_AvroFile, codec, json.dumps(record)))


def _field(name: str, kind: pa.DataType, path: str) -> dict[str, Any]:
    if not _NAME.fullmatch(name):
        raise TypeError(f"{name!r} is not a name in Avro, which allows only ASCII letters, digits and _: rename it")
    return {"name": name, "type": ["null", _avro(kind, path)], "default": None}


def _avro(kind: pa.DataType, path: str) -> Any:
    """Avro's type. `path` makes unique names of records. Raises TypeError if there is none."""
    types = pa.types
    simple = _SIMPLE.get(kind)
    if simple is not None:
        return simple
    if types.is_timestamp(kind):
        return {"type": "long", "logicalType": f"{'' if kind.tz else 'local-'}timestamp-micros"}
    if types.is_decimal(kind):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if types.is_list(kind) or types.is_large_list(kind):
        return {"type": "array", "items": ["null", _avro(kind.value_type, f"{path}element_")]}
    if types.is_map(kind):
        if not (types.is_string(kind.key_type) or types.is_large_string(kind.key_type)):
            raise TypeError(f"keys of maps are strings there, not {kind.key_type}")
        return {"type": "map", "values": ["null", _avro(kind.item_type, f"{path}value_")]}
    if types.is_struct(kind):
        fields = [_field(each.name, each.type, f"{path}{each.name}_") for each in kind]
        return {"type": "record", "name": f"{path}record", "fields": fields}
    raise TypeError(f"there is none for {kind}")


_SIMPLE = {
    pa.null(): "null",
    pa.bool_(): "boolean",
    pa.int8(): "int",
    pa.int16(): "int",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.binary(): "bytes",
    pa.large_binary(): "bytes",
    pa.date32(): {"type": "int", "logicalType": "date"},
}


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type to cast a column to, so that fastavro gets the numbers of dates and times."""
    types = pa.types
    if types.is_date(kind):
        return pa.int32()
    if types.is_timestamp(kind):
        return pa.int64()
    if types.is_list(kind) or types.is_large_list(kind):
        return pa.list_(_plain(kind.value_type))
    if types.is_map(kind):
        return pa.map_(kind.key_type, _plain(kind.item_type))
    if types.is_struct(kind):
        return pa.struct([pa.field(each.name, _plain(each.type)) for each in kind])
    return kind


class _AvroFile(FileEncoder):
    def __init__(self, codec: str, schema: str, file: Any, gathered_bytes: int) -> None:
        try:
            from fastavro.write import Writer
        except ImportError as error:
            raise ImportError("writing Avro needs fastavro: pip install 'ags1[avro]'") from error
        output: Any = _Flushed(file)
        self._writer = Writer(output, json.loads(schema), codec=codec, sync_interval=_SYNC_INTERVAL)

    def write(self, batch: pa.RecordBatch) -> None:
        numbers = batch.cast(pa.schema([field.with_type(_plain(field.type)) for field in batch.schema]))
        for start in range(0, batch.num_rows, _STEP):
            for row in numbers.slice(start, _STEP).to_pylist(maps_as_pydicts="strict"):
                self._writer.write(row)

    def close(self) -> None:
        self._writer.flush()


class _Flushed:
    """fastavro flushes after each block; that would write less than whole blocks of AGS1."""

    def __init__(self, file: Any) -> None:
        self.write = file.write

    def seekable(self) -> bool:
        return False

    def flush(self) -> None:
        pass
