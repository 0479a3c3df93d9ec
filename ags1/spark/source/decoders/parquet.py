"""Parquet: plaintext files inside of AGS1, and files that are encrypted themselves, through their plaintext view."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import ags1.parquet.view.view as _view
from ags1.errors import Ags1Error, FormatError
from ags1.spark.source.decoders import Decoder, Plain
from ags1.spark.source.decoders.types import conformed, find, spark_schema, without_columns
from ags1.spark.source.options import SourceOptions

_MAX_ROWS = 1 << 16
_SPARK_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"
_OLD_CALENDARS = {b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96"}
_DAYS = re.compile("interval (day|hour|minute|second)")
_MONTHS, _VARIANT = re.compile('"interval (year|month)'), re.compile('"variant"')
_OF_MONTHS = (
    "year-month intervals, which Spark cannot take from Python: give a schema, in which it is an int, of months"
)
_OF_VARIANTS = "variants, which are not read here: write to_json(column) in its place"


class _Parquet(Decoder):
    def schema_of(self, file: Plain) -> pa.Schema:
        with _opened(file, self._options, self._options.columns or None) as (opened, schema, _):
            _refuse(opened, schema.names, file.name, _MONTHS, _OF_MONTHS)
            return spark_schema(schema, file.name)

    def read(self, file: Plain, start: int, end: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with _opened(file, self._options, columns) as (opened, have, size):
            metadata = opened.metadata
            groups = [
                index
                for index in range(metadata.num_row_groups)
                if start <= _begin(metadata.row_group(index), size) < end
            ]
            found = [have.names[at] for name in columns if (at := find(have, name)) is not None]
            for group in groups:
                batches = opened.iter_batches(
                    batch_size=self._batch_rows(metadata.row_group(group)),
                    row_groups=[group],
                    columns=found,
                    use_threads=False,
                )
                if not found:
                    yield without_columns(metadata.row_group(group).num_rows)
                    continue
                try:
                    for batch in batches:
                        typed = pa.schema([have.field(name) for name in batch.schema.names])
                        yield conformed(batch, typed, file.name)
                except Ags1Error:
                    raise
                except (pa.ArrowException, OSError) as error:
                    if isinstance(error, OSError) and error.errno is not None:
                        raise
                    raise FormatError(f"{file.name}: row group {group} cannot be read: {error}") from None

    def _batch_rows(self, group: Any) -> int:
        per_row = max(1, group.total_byte_size // max(1, group.num_rows))
        rows = int(self._options.batch_bytes // per_row)
        return max(1, min(_MAX_ROWS, rows))


def _begin(group: Any, size: int) -> int:
    """Where a row group begins; always inside the file, so that a range has it."""
    offsets = []
    for index in range(group.num_columns):
        column = group.column(index)
        offsets.append(column.data_page_offset)
        if column.has_dictionary_page and column.dictionary_page_offset:
            offsets.append(column.dictionary_page_offset)
    return max(0, min([*map(int, offsets), size - 1]))


def _as_spark_has_it(file: pq.ParquetFile) -> pa.Schema:
    """The schema of a file as Spark sees it: INT96, which Spark writes by default, is an instant.

    Spark keeps its own types beside the file's, of which intervals are only numbers.
    """
    physical = [file.schema.column(index).physical_type for index in range(len(file.schema))]
    kept = (file.metadata.metadata or {}).get(_SPARK_SCHEMA, b"")
    if "INT96" not in physical and b'"interval ' not in kept:
        return file.schema_arrow
    # Leaves of Arrow types have the order of the columns.
    leaves = iter(physical)

    def typed(field: pa.Field, spark: Any) -> pa.Field:
        kind = field.type
        inside = spark if isinstance(spark, dict) else {}
        if pa.types.is_struct(kind):
            types = _fields(spark)
            return field.with_type(pa.struct([typed(each, types.get(each.name)) for each in kind]))
        if pa.types.is_map(kind):
            key = typed(kind.key_field, inside.get("keyType"))
            return field.with_type(pa.map_(key, typed(kind.item_field, inside.get("valueType"))))
        if pa.types.is_list(kind):
            return field.with_type(pa.list_(typed(kind.value_field, inside.get("elementType"))))
        if next(leaves) == "INT96":
            return field.with_type(pa.timestamp("us", "UTC"))
        return field.with_type(pa.duration("us")) if _DAYS.match(str(spark)) else field

    spark_types = _spark_types(file)
    return pa.schema([typed(field, spark_types.get(field.name)) for field in file.schema_arrow])


def _spark_types(file: pq.ParquetFile) -> dict[str, Any]:
    """The types that Spark wrote beside the file's, by column."""
    try:
        return _fields(json.loads((file.metadata.metadata or {}).get(_SPARK_SCHEMA, b"{}")))
    except ValueError:
        return {}


def _fields(struct: Any) -> dict[str, Any]:
    try:
        return {each["name"]: each["type"] for each in struct["fields"]}
    except (KeyError, TypeError):
        return {}


def _refuse(file: pq.ParquetFile, names: list[str], name: str, types: re.Pattern[str], what: str) -> None:
    """Refuse columns in which Spark has types that Python cannot give to it."""
    spark_types = _spark_types(file)
    for column in names:
        if types.search(json.dumps(spark_types.get(column))):
            raise FormatError(f"{name}: the column {column!r} has {what}; or leave it out with the option columns")


def _refuse_old_calendar(file: pq.ParquetFile, name: str) -> None:
    """Refuse days and times of Spark's LEGACY modes, which mean others before 1582 than they say."""
    if not _OLD_CALENDARS & set(file.metadata.metadata or {}):
        return
    columns = [file.schema.column(index) for index in range(len(file.schema))]
    if any(each.physical_type == "INT96" or each.logical_type.type in ("DATE", "TIMESTAMP") for each in columns):
        raise FormatError(
            f"{name}: before 1582, its days and times are in the Julian calendar, by Spark's rebase mode LEGACY: leave "
            "them out with the option columns, or read the file with spark.read and write it again"
        )


@contextmanager
def _opened(
    file: Plain, options: SourceOptions, columns: Iterable[str] | None
) -> Iterator[tuple[pq.ParquetFile, pa.Schema, int]]:
    """A Parquet file with any encryption, for pyarrow; its schema as Spark sees it, and its size."""
    wanted = None if columns is None else {name.lower() for name in columns}
    with _view.open(
        file.source,
        file.decryption,
        columns=None if wanted is None else lambda path: path[0].lower() in wanted,
        missing_keys=options.missing_keys,
        threads=options.threads,
    ) as view:
        try:
            # Threads that read a file of Python's may outlive the interpreter.
            opened = pq.ParquetFile(pa.PythonFile(view, mode="r"), pre_buffer=False, coerce_int96_timestamp_unit="us")
            _refuse_old_calendar(opened, file.name)
            schema = _as_spark_has_it(opened)
            # They may be in parts, which are no variants.
            _refuse(opened, schema.names, file.name, _VARIANT, _OF_VARIANTS)
        except pa.ArrowException as error:
            raise FormatError(f"{file.name}: this is not a readable Parquet file: {error}") from None
        yield opened, schema, view.stored_size


make = _Parquet
