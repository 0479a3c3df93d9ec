"""The reader of ``format("ags1")``: splits planned on the driver, rows read in tasks.

No pickled object has a key: the reader carries options and schema, and the partitions paths and ranges. A
task opens the dataset itself, once in each process.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import attrgetter
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from ags1.errors import Ags1Error, AuthenticationError, FormatError
from ags1.spark.engine.runner import forget_archives
from ags1.spark.source.decoders import Plain, decoder_for
from ags1.spark.source.decoders.types import conformed, find
from ags1.spark.source.directories import constant, inferred, values_of
from ags1.spark.source.inputs import Input, ListedFiles, Split, open_input, opened_task, packed
from ags1.spark.source.options import SourceOptions
from ags1.spark.source.splits import plan

_log = logging.getLogger("ags1.spark")


# -- the schema --------------------------------------------------------------------------------------------------------


def infer_schema(options: SourceOptions) -> StructType:
    """The schema of the input: columns of the data, then of the directories, then the path."""
    source = open_input(options)
    try:
        made = _inferred(source, options)
    finally:
        source.close()
    return from_arrow_schema(made, prefer_timestamp_ntz=True)


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema that Spark requires of batches: it compares names, order, types and nullability."""
    try:
        made: pa.Schema = to_arrow_schema(schema, timezone="UTC")  # type: ignore[call-arg, unused-ignore]
    except TypeError:
        # Before 4.2 it always was UTC.
        made = to_arrow_schema(schema)
    return made


def _inferred(source: Input, options: SourceOptions) -> pa.Schema:
    decoder = decoder_for(options)
    data = decoder.schema
    if data is None:
        plain = _first(source, options)
        try:
            data = decoder.schema_of(plain)
        except FormatError as error:
            raise _named(error, plain.name, options.decode) from None
        finally:
            _close(plain)
    directories = inferred(each.name for each in source.files()) if options.partition_discovery else []
    fields = {field.name: field for field in data}
    for name, kind in directories:
        # A column of the directories wins over a column of the file. Spark does not tell their cases apart.
        fields = {each: field for each, field in fields.items() if each.lower() != name.lower()}
        fields[name] = pa.field(name, kind)
    if options.path_column and options.path_column not in fields:
        fields[options.path_column] = pa.field(options.path_column, pa.string())
    made = pa.schema(list(fields.values()))
    if not options.columns:
        return made
    chosen = [find(made, name) for name in options.columns]
    missing = [name for name, index in zip(options.columns, chosen, strict=True) if index is None]
    if missing:
        raise ValueError(f"there is no column {', '.join(map(repr, missing))}; there are {', '.join(made.names)}")
    return pa.schema([made.field(index) for index in chosen])


def _first(source: Input, options: SourceOptions) -> Plain:
    """The first file that has something in it."""
    for file in source.files():
        if file.length and (plain := _opened(source, file, options)) is not None:
            return plain
    raise FormatError(
        f"{', '.join(options.path)}: there is no file to take a schema from, or the options include, exclude and "
        "prefix leave none: look at them, or give one with .schema(...)"
    )


def _close(plain: Plain) -> None:
    if hasattr(plain.source, "close"):
        plain.source.close()


# -- rows --------------------------------------------------------------------------------------------------------------


class Rows:
    """What a task makes: rows of splits, in batches of exactly a schema. It can be pickled."""

    def __init__(self, schema: pa.Schema, options: SourceOptions) -> None:
        self._schema, self._options = schema, options
        self._decoder = decoder_for(options)
        self._path = options.path_column if options.path_column in schema.names else None
        # Values of the last directory, as scalars. Neighbours mostly have the same one.
        self._directory = ""
        self._scalars: dict[str, Any] = {}

    def of_partition(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The rows of a partition."""
        # Spark turns an empty list into None, or into a partition with None in it.
        sent = getattr(partition, "value", None)
        if sent is not None:
            yield from self.of(*opened_task(sent, self._options))
            forget_archives()

    def of(self, source: Input, splits: Iterable[Split]) -> Iterator[pa.RecordBatch]:
        """The rows of splits.

        Data that is not authentic always raises AuthenticationError with the file and the block, whatever the options
        are.
        """
        return _gathered(self._decoded(source, splits), self._options)

    def _decoded(self, source: Input, splits: Iterable[Split]) -> Iterator[pa.RecordBatch]:
        for file, ranges in groupby(splits, key=attrgetter("file")):
            constants = self._constants(file)
            columns = [name for name in self._schema.names if name not in constants]
            plain = _opened(source, file, self._options)
            if plain is None:
                continue
            try:
                for each in ranges:
                    for batch in self._decoder.read(plain, each.start, each.end, columns):
                        yield conformed(batch, self._schema, plain.name, constants)
            except Ags1Error as error:
                raise _named(error, plain.name, self._options.decode) from None
            finally:
                _close(plain)

    def _constants(self, file: ListedFiles) -> dict[str, Any]:
        """Columns with values from the path of a file."""
        directory = file.path[file.base :].rpartition("/")[0]
        if self._options.partition_discovery and directory != self._directory:
            found = {}
            for key, value in values_of(f"{directory}/").items():
                index = find(self._schema, key)
                if index is not None:
                    field = self._schema.field(index)
                    found[field.name] = constant(value, field, file.path)
            self._directory, self._scalars = directory, found
        if self._path is None:
            return self._scalars
        return self._scalars | {self._path: pa.scalar(_text(file.path), self._schema.field(self._path).type)}


def _opened(source: Input, file: ListedFiles, options: SourceOptions) -> Plain | None:
    try:
        return source.open(file)
    except OSError as error:
        # Errors of ags1 that are also an OSError report wrong data.
        if options.on_error == "skip" and not isinstance(error, Ags1Error):
            _log.warning("%s is left out, because on_error=skip: %s", file.path, error.strerror or error)
            return None
        raise
    except Ags1Error as error:
        raise _named(error, file.path) from None


def _named(error: Any, name: str, decode: str = "") -> Any:
    """The same error, with the name of the file in it; for a file of another format, also the option that helps."""
    text = str(error) if name in str(error) else f"{name}: {error}"
    if type(error) is FormatError and decode in ("parquet", "avro", "arrow") and f".{decode}" not in name:
        text += f"; to leave out files of other formats, give the option include, such as include='*.{decode}'"
    made = type(error)(text)
    if isinstance(error, AuthenticationError):
        made.block_index = error.block_index
    return made


def _text(path: str) -> str:
    """A path as text for rows: Arrow's strings cannot contain bytes that are not UTF-8."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _gathered(batches: Iterable[pa.RecordBatch], options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """Combine small batches of many small files: each batch costs Spark as much as many rows."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        if waiting and size + batch.nbytes > options.batch_bytes:
            yield _joined(waiting)
            waiting, size = [], 0
        waiting.append(batch)
        size += batch.nbytes
    if waiting:
        yield _joined(waiting)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


# -- what Spark asks for -----------------------------------------------------------------------------------------------


class SourceReader(DataSourceReader):
    """Reads the input of the options as rows of a schema. Can be pickled: it has no key and no open file."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        if options.columns and [name.lower() for name in schema.names] != [name.lower() for name in options.columns]:
            raise ValueError(
                f"the option columns names {', '.join(options.columns)}, and the schema {', '.join(schema.names)}: "
                "with a schema, leave columns out, and put only what is wanted into the schema"
            )
        self._options = options
        self._rows = Rows(arrow_schema(schema), options)

    def partitions(self) -> list[InputPartition]:
        """The tasks: a list, empty if there are no files."""
        options = self._options
        source = open_input(options)
        try:
            return [InputPartition(packed(source.identity, each)) for each in plan(source.files(), options)]
        finally:
            source.close()

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition as Arrow batches. Spark calls it in a task."""
        return self._rows.of_partition(partition)
