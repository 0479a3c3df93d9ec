"""The readers of ``format("ags1")``: splits planned on the driver, rows read in tasks; streams, version by version.

No pickled object has a key: the reader carries options and schema, and the partitions paths and ranges. A
task opens the dataset itself, once in each process.

    offset   {"version": 7, "dataset": uuid}     all files of versions up to 7 have been read
    batch    from version 4 to 7                 the files that versions 5, 6 and 7 added

The latest offset of a stream is read without a key. A batch is planned from the authenticated manifests of its two
versions; their common parts are not read. A replaced file is a new file of the version that replaced it, and its rows
come again; rows of a removed file stay in the sink. Commits during a batch do not change it: it reads the version that
it ends with. If that version was expired before, the batch has the files that are left of it.
"""

from __future__ import annotations

import datetime
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress
from functools import lru_cache
from itertools import groupby
from operator import attrgetter
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from ags1.dataset import DatasetEntry, Pins
from ags1.dataset.versions import read_latest, read_version
from ags1.errors import Ags1Error, AuthenticationError, FormatError
from ags1.spark.engine.captured import CapturedSession
from ags1.spark.engine.locations import locate
from ags1.spark.engine.runner import forget_archives
from ags1.spark.source.decoders import Plain, decoder_for
from ags1.spark.source.decoders.types import conformed, find
from ags1.spark.source.inputs import (
    DatasetFiles,
    Input,
    ListedFiles,
    Split,
    no_dataset,
    open_input,
    opened_task,
    packed,
    plan,
)
from ags1.spark.source.options import SourceOptions, StreamOptions

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
        # Of a Parquet file, only the columns that are asked for were looked at.
        among = "of those asked for, " if set(made.names) <= set(options.columns) else ""
        names = ", ".join(made.names) or "none"
        raise ValueError(
            f"there is no column {', '.join(map(repr, missing))}, or no key for it; {among}there are {names}"
        )
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

    def checked(self, files: Iterable[ListedFiles]) -> Iterator[ListedFiles]:
        """Yield the files; then refuse a column that is of no file, if all files have the same columns.

        A file of Parquet, Avro or Arrow may lack a column that others have: it is null there.
        """
        fixed, directory = decoder_for(self._options).schema, None
        known = set() if fixed is None else {name.lower() for name in (*fixed.names, self._path or "")}
        for file in files:
            if fixed is not None and file.name.rpartition("/")[0] != directory:
                directory = file.name.rpartition("/")[0]
                if self._options.partition_discovery:
                    known |= {name.lower() for name in values_of(file.name)}
            yield file
        unknown = [name for name in self._schema.names if name.lower() not in known]
        if fixed is not None and directory is not None and unknown:
            raise ValueError(
                f"the schema has {', '.join(unknown)}, but with decode={self._options.decode!r} there are only the "
                f"columns {', '.join(fixed.names)}, path_column, and those of directories: for CSV and JSON, read "
                "the lines with decode='text', and parse the column value with Spark's from_csv or from_json"
            )

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
            return [
                InputPartition(packed(source.identity, each))
                for each in plan(self._rows.checked(source.files()), options)
            ]
        finally:
            source.close()

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition as Arrow batches. Spark calls it in a task."""
        return self._rows.of_partition(partition)


_NULL = "__HIVE_DEFAULT_PARTITION__"
_INTEGER = re.compile(r"-?\d{1,19}", re.ASCII)
_DOUBLE = re.compile(r"-?\d+\.\d+", re.ASCII)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_WIDER = {
    frozenset({pa.int32(), pa.int64()}): pa.int64(),
    frozenset({pa.int32(), pa.float64()}): pa.float64(),
}


def values_of(name: str) -> dict[str, str | None]:
    """Names and values in the directories of a relative path; None is null."""
    found: dict[str, str | None] = {}
    for part in name.split("/")[:-1]:
        key, equals, value = part.partition("=")
        if equals and key:
            found[unquote(key)] = None if value == _NULL else unquote(value)
    return found


def inferred(names: Iterable[str]) -> list[tuple[str, pa.DataType]]:
    """The columns of the directories of some files, in order of appearance: int, bigint, double, date, else string."""
    kinds: dict[str, tuple[str, pa.DataType | None]] = {}
    last = None
    for name in names:
        directory = name.rpartition("/")[0]
        if directory == last:
            continue
        last = directory
        for key, value in values_of(name).items():
            first, known = kinds.setdefault(key.lower(), (key, None))
            if value is not None:
                kind = _kind_of(value)
                wider = kind if known in (None, kind) else _WIDER.get(frozenset({known, kind}), pa.string())
                kinds[key.lower()] = first, wider
    return [(key, pa.string() if kind is None else kind) for key, kind in kinds.values()]


# Most directories repeat those above them.
@lru_cache(maxsize=1 << 14)
def _kind_of(value: str) -> pa.DataType:
    if _INTEGER.fullmatch(value):
        number = int(value)
        fitting = (
            kind for kind in (pa.int32(), pa.int64()) if -1 << kind.bit_width - 1 <= number < 1 << kind.bit_width - 1
        )
        return next(fitting, pa.string())
    if _DOUBLE.fullmatch(value):
        return pa.float64()
    if _DATE.fullmatch(value):
        try:
            datetime.date.fromisoformat(value)
        except ValueError:
            return pa.string()
        return pa.date32()
    return pa.string()


def constant(value: str | None, field: pa.Field, name: str) -> Any:
    """The value of a directory as an Arrow scalar of a column's type."""
    try:
        return pa.scalar(value, pa.string()).cast(field.type)
    except (ValueError, pa.ArrowNotImplementedError):
        raise FormatError(
            f"{name}: its directory has {field.name}={value}, which is not a value of the column's type {field.type}: "
            "give a schema in which it is a string, and cast the column"
        ) from None


class StreamReader(DataSourceStreamReader):
    """Reads a growing dataset. Can be pickled: it has no key and no open file.

    Spark 4.1 reads one batch with the trigger ``availableNow``, so as much as the options allow for one.
    """

    def __init__(self, options: StreamOptions, schema: StructType) -> None:
        self._options = options
        self._rows = Rows(arrow_schema(schema), options)
        self._most = options.max_versions_per_batch
        self._position: dict[str, Any] | None = None
        self._has_warned = False

    def _now(self) -> dict[str, Any]:
        location = locate(self._options.path[0], self._options.session)
        found = read_latest(location)
        if found is None:
            raise no_dataset(location)
        return {"version": found.version, "digest": found.digest, "dataset": found.uuid}

    def _earlier(self, now: dict[str, Any], number: int) -> dict[str, Any]:
        """The offset of an older version; its digest is "" if there is no such version any more."""
        if number == now["version"]:
            return now
        digest = ""
        if number:
            with suppress(FileNotFoundError):
                digest = read_version(locate(self._options.path[0], self._options.session), number).digest
        return {**now, "version": number, "digest": digest}

    def initialOffset(self) -> dict[str, Any]:
        """The offset of a query without a checkpoint."""
        now = self._now()
        starting = self._options.starting_version
        if starting == "latest":
            return now
        first = 1 if starting == "earliest" else int(starting)
        if first > now["version"] + 1:
            raise ValueError(f"the option starting_version is {first}, and the dataset has version {now['version']}")
        return self._earlier(now, first - 1)

    def latestOffset(self) -> dict[str, Any]:
        """The end of the next batch. The KMS is not called."""
        if self._position is None:
            # After a restart Spark tells the position first, by an empty batch.
            self._position = self.initialOffset()
        now = self._now()
        end = self._end_after(self._position, now)
        if end != now and not self._has_warned:
            self._has_warned = True
            _log.warning(
                "%s: this batch ends before version %d, as the options say: with the trigger availableNow, Spark "
                "before 4.2 stops after one batch, so start the query again, or use another trigger",
                self._options.path[0], now["version"],
            )  # fmt: skip
        return end

    def _end_after(self, start: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
        """Where a batch ends by the limit of the options."""
        self._refuse_another(start, now)
        return self._earlier(now, min(now["version"], start["version"] + self._most)) if self._most else now

    def _refuse_another(self, start: dict[str, Any], now: dict[str, Any]) -> None:
        if start["dataset"] != now["dataset"]:
            raise AuthenticationError(
                f"{self._options.path[0]} is another dataset than the one that this query has read so far: start "
                "again, with a new checkpoint"
            )
        if now["version"] < start["version"]:
            raise AuthenticationError(
                f"{self._options.path[0]} has version {now['version']}, but this query has read version "
                f"{start['version']} of it: an older state of the dataset was put back. Put the newer one back, or "
                "start again, with a new checkpoint"
            )

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The tasks of a batch: an empty list if no files came."""
        self._refuse_another(start, end)
        self._position = end
        if start == end:
            return []
        with closing(self._opened(start, end)) as source:
            files = self._files(source, start["version"], end["version"])
            return [
                InputPartition(packed(source.identity, splits))
                for splits in plan(self._rows.checked(files), self._options)
            ]

    def _opened(self, start: dict[str, Any], end: dict[str, Any]) -> DatasetFiles:
        """The version at the end of a batch, made from that at its start; if it was expired, the last one."""
        read = Pins(start["dataset"], version=start["version"], digest=start["digest"] or None)
        try:
            source = DatasetFiles(self._options, number=end["version"], pins=read)
        except FileNotFoundError:
            source = DatasetFiles(self._options, pins=read)
        try:
            # What was read without a key is not authentic; what was opened is.
            self._refuse_another(end, {"version": source.dataset.version, "dataset": source.dataset.uuid})
        except BaseException:
            source.close()
            raise
        return source

    def _files(self, source: DatasetFiles, after: int, last: int) -> Iterator[ListedFiles]:
        """What came after a version, up to another, in the order of paths."""
        dataset, prefix = source.dataset, f"{self._options.prefix}/" if self._options.prefix else ""
        entries: Iterator[DatasetEntry]
        try:
            if after == 0:
                raise FileNotFoundError
            entries = (entry for entry in dataset.changed_since(after) if entry.path.startswith(prefix))
        except FileNotFoundError:
            # There is nothing to compare with, or no more.
            entries = dataset.files.below(self._options.prefix)
        for entry in entries:
            if after < entry.version <= last:
                yield from source.wanted(entry)

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition as Arrow batches. Spark calls it in a task."""
        return self._rows.of_partition(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: the dataset keeps what was read."""


try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles, SupportsTriggerAvailableNow
except ImportError:
    # Before 4.2 Spark does not say where a batch begins, and what it may be limited to.
    _READER: type[StreamReader] = StreamReader
else:

    class AdmittingStreamReader(StreamReader, SupportsTriggerAvailableNow):
        """The same for Spark 4.2 and later, which knows of limits, and of triggers that take all in many batches."""

        _target: dict[str, Any] | None = None

        def getDefaultReadLimit(self) -> Any:
            """Whether there is a limit: Spark has no word for versions, so the number is not used."""
            return ReadMaxFiles(self._most) if self._most else ReadAllAvailable()

        def prepareForTriggerAvailableNow(self) -> None:
            """Note where the query ends."""
            self._target = self._now()

        def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # type: ignore[override, unused-ignore]
            """The end of the next batch. The KMS is not called."""
            now = self._now() if self._target is None else self._target
            if isinstance(limit, ReadAllAvailable):
                self._refuse_another(start, now)
                return now
            return self._end_after(start, now)

        def reportLatestOffset(self) -> dict[str, Any]:
            """Where the dataset is, for the progress of the query."""
            return self._now()

    _READER = AdmittingStreamReader


def stream_reader_for(
    options: Mapping[str, str], schema: StructType, session: CapturedSession | None = None
) -> StreamReader:
    """Return the reader of a stream: with a limit of versions for each batch where Spark has such readers."""
    checked = StreamOptions.parse(options, session)
    if checked.keyref or len(checked.path) > 1:
        raise ValueError("a stream reads one dataset, with the option kms; files with a keyref have no versions")
    if checked.expected_version >= 0 or checked.version_as_of >= 0:
        raise ValueError(
            "the options expected_version and version_as_of are not for streams: say where "
            "one begins with starting_version"
        )
    return _READER(checked, schema)
