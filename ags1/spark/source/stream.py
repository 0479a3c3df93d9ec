"""``spark.readStream.format("ags1")``: the files that are added to a dataset, version by version.

    offset   {"version": 7, "dataset": uuid}     all files of versions up to 7 have been read
    batch    from version 4 to 7                 the files that versions 5, 6 and 7 added

The latest offset is read without a key. A batch is planned from the authenticated manifests of its two versions; their
common parts are not read. A replaced file is a new file of the version that replaced it, and its rows come again; rows
of a removed file stay in the sink. Commits during a batch do not change it: it reads the version that it ends with. If
that version was expired before, the batch has the files that are left of it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from ags1.dataset import DatasetEntry
from ags1.dataset.versions import read_latest
from ags1.errors import AuthenticationError
from ags1.spark.engine.captured import CapturedSession
from ags1.spark.engine.locations import locate
from ags1.spark.source.inputs import DatasetFiles, ListedFiles, no_dataset, packed
from ags1.spark.source.options import StreamOptions
from ags1.spark.source.reader import Rows, arrow_schema
from ags1.spark.source.splits import plan

_log = logging.getLogger("ags1.spark")


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
        return {**now, "version": min(now["version"], start["version"] + self._most)} if self._most else now

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
        with closing(self._opened(end)) as source:
            files = self._files(source, start["version"], end["version"])
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
