"""``spark.readStream.format("ags1")``: the files that are added to a dataset, version by version.

    offset   {"version": 7, "dataset": uuid}     all files of versions up to 7 have been read
    batch    from version 4 to 7                 the files that versions 5, 6 and 7 added
    offset   {..., "of": 5, "path": "a/b.csv"}   of version 7, all that came before version 5, and with it up to a path

The latest offset is read without a key, unless there is a limit of files or bytes. A batch is planned from the
authenticated manifests of its two versions; their common parts are not read. A replaced file is a new file of the
version that replaced it, and its rows come again; rows of a removed file stay in the sink. Commits during a batch do
not change it: it reads the version that it ends with. If that version was expired before, the batch has the files that
are left of it.

With a limit of files or bytes, the files of a version are read in the order in which they came, and of those that came
together in the order of their paths. What comes meanwhile waits until a version has been read to its end.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Iterator, Mapping
from contextlib import closing
from operator import itemgetter
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from ags1.dataset import DatasetEntry
from ags1.dataset.names import sort_key
from ags1.dataset.versions import read_latest
from ags1.errors import AuthenticationError
from ags1.spark.engine.captured import CapturedSession
from ags1.spark.engine.locations import locate
from ags1.spark.source._inputs import DatasetFiles, ListedFiles, no_dataset, packed
from ags1.spark.source._reader import Rows, arrow_schema
from ags1.spark.source._splits import plan
from ags1.spark.source.options import StreamOptions

_log = logging.getLogger("ags1.spark")
_MOST_WAITING = 100_000


class _Place(NamedTuple):
    """A place in the order in which files came: behind a file, or behind a whole version."""

    version: int
    is_end: bool
    key: bytes

    @classmethod
    def of(cls, offset: Mapping[str, Any]) -> _Place:
        if "path" in offset:
            return cls(offset["of"], False, sort_key(offset["path"]))
        return cls(offset["version"], True, b"")


class _Waiting(NamedTuple):
    """Files of a version that are to be read, in their order: the first ones after a place, or all."""

    identity: str
    version: int
    after: _Place
    files: list[tuple[_Place, ListedFiles]]
    is_all: bool

    def between(self, after: _Place, last: _Place) -> Iterator[ListedFiles] | None:
        """The files after a place, up to another; None if some of them may not be here."""
        behind = _Place(self.version, True, b"") if self.is_all else self.files[-1][0] if self.files else self.after
        if after < self.after or behind < last:
            return None
        return (file for place, file in self.files if after < place <= last)


class StreamReader(DataSourceStreamReader):
    """Reads a growing dataset. Can be pickled: it has no key and no open file.

    Spark 4.1 reads one batch with the trigger ``availableNow``, so as much as the options allow for one.
    """

    def __init__(self, options: StreamOptions, schema: StructType) -> None:
        self._options = options
        self._schema = arrow_schema(schema)
        self._most = options.max_versions_per_batch
        self._position: dict[str, Any] | None = None
        self._waiting: _Waiting | None = None
        self._has_warned = False

    def _now(self) -> dict[str, Any]:
        location = locate(self._options.path[0], self._options.session)
        found = read_latest(location)
        if found is None:
            raise no_dataset(location)
        return {"version": found.version, "dataset": found.uuid}

    def initialOffset(self) -> dict[str, Any]:
        """The offset of a query without a checkpoint."""
        now = self._now()
        starting = self._options.starting_version
        if starting == "latest":
            return now
        first = 1 if starting == "earliest" else int(starting)
        if first > now["version"] + 1:
            raise ValueError(f"the option starting_version is {first}, and the dataset has version {now['version']}")
        return {**now, "version": first - 1}

    def latestOffset(self) -> dict[str, Any]:
        """The end of the next batch. Without a limit of files or bytes, the KMS is not called."""
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
        """Where a batch ends by the limits of the options."""
        self._refuse_another(start, now)
        last = start["version"] if "path" in start else now["version"]
        if self._most:
            last = min(last, start["version"] + self._most)
        whole = {**now, "version": last}
        if start == whole or not (self._options.max_files_per_trigger or self._options.max_bytes_per_trigger):
            return whole
        return self._within_limits(_Place.of(start), whole)

    def _within_limits(self, after: _Place, whole: dict[str, Any]) -> dict[str, Any]:
        """As many files as the options allow for a batch, and at least one."""
        waiting = self._waiting
        if waiting is None or waiting.version != whole["version"] or after < waiting.after:
            waiting = self._list(after, whole)
        files = [each for each in waiting.files if each[0] > after]
        count = self._admitted(files)
        if count == len(files) and not waiting.is_all and waiting.after < after:
            waiting = self._list(after, whole)
            files = waiting.files
            count = self._admitted(files)
        self._waiting = waiting._replace(after=after, files=files)
        if count == len(files) and waiting.is_all:
            return whole
        place, file = files[count - 1]
        return {**whole, "of": place.version, "path": file.path}

    def _admitted(self, files: list[tuple[_Place, ListedFiles]]) -> int:
        """How many of some files are in one batch."""
        most_files, most_bytes = self._options.max_files_per_trigger, self._options.max_bytes_per_trigger
        count = size = 0
        for _, file in files:
            size += file.length
            if count and (most_files == count or 0 < most_bytes < size):
                break
            count += 1
        return count

    def _list(self, after: _Place, whole: dict[str, Any]) -> _Waiting:
        """The next files of a version."""
        most = max(_MOST_WAITING, self._options.max_files_per_trigger + 1)
        with closing(self._opened(whole)) as source:
            found = heapq.nsmallest(most, self._files(source, after, _Place.of(whole)), key=itemgetter(0))
            return _Waiting(source.identity, whole["version"], after, found, len(found) < most)

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
        if _Place.of(end) < _Place.of(start):
            raise ValueError(
                "the checkpoint has a batch that ends before it begins: start again, with a new checkpoint"
            )
        self._position = end
        if start == end:
            return []
        with closing(self._opened(end)) as source:
            after, last, waiting = _Place.of(start), _Place.of(end), self._waiting
            files = None
            if waiting is not None and waiting.identity == source.identity:
                files = waiting.between(after, last)
            if files is None:
                files = (file for _, file in self._files(source, after, last))
            return [InputPartition(packed(source.identity, splits)) for splits in plan(files, self._options)]

    def _opened(self, offset: dict[str, Any]) -> DatasetFiles:
        """The version of an offset; if that was expired, the last one."""
        try:
            source = DatasetFiles(self._options, number=offset["version"])
        except FileNotFoundError:
            source = DatasetFiles(self._options)
        try:
            # What was read without a key is not authentic; what was opened is.
            self._refuse_another(offset, {"version": source.dataset.version, "dataset": source.dataset.uuid})
        except BaseException:
            source.close()
            raise
        return source

    def _files(self, source: DatasetFiles, after: _Place, last: _Place) -> Iterator[tuple[_Place, ListedFiles]]:
        """What came after a place, up to another, in the order of paths."""
        dataset, prefix = source.dataset, f"{self._options.prefix}/" if self._options.prefix else ""
        known = after.version if after.is_end else after.version - 1
        entries: Iterator[DatasetEntry]
        try:
            if known == 0:
                raise FileNotFoundError
            entries = (entry for entry in dataset.changed_since(known) if entry.path.startswith(prefix))
        except FileNotFoundError:
            # There is nothing to compare with, or no more.
            entries = dataset.files.below(self._options.prefix)
        for entry in entries:
            place = _Place(entry.version, False, entry.key)
            if after < place <= last:
                yield from ((place, file) for file in source.wanted(entry))

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        return Rows(self._schema, self._options).of_partition(partition)

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
            """Whether there is a limit: Spark has no word for versions, nor for two, so the number is not used."""
            options = self._options
            most = options.max_files_per_trigger or options.max_bytes_per_trigger or options.max_versions_per_batch
            return ReadMaxFiles(most) if most else ReadAllAvailable()

        def prepareForTriggerAvailableNow(self) -> None:
            """Note where the query ends."""
            self._target = self._now()

        def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # type: ignore[override, unused-ignore]
            """The end of the next batch. Without a limit of files or bytes, the KMS is not called."""
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
    checked = StreamOptions.parse(options, session)
    if checked.keyref or len(checked.path) > 1:
        raise ValueError("a stream reads one dataset, with the option kms; files with a keyref have no versions")
    if checked.expected_version >= 0 or checked.version_as_of >= 0:
        raise ValueError(
            "the options expected_version and version_as_of are not for streams: say where "
            "one begins with starting_version"
        )
    return _READER(checked, schema)
