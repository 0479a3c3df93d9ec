"""``spark.readStream.format("ags1")``: the files that are added to a dataset, version by version.

    offset   {"version": 7, "dataset": uuid}     all files of versions up to 7 have been read
    batch    from version 4 to 7                 the files that versions 5, 6 and 7 added

The latest offset is read without a key. A batch is planned from the authenticated manifests of its two versions; their
common parts are not read. A replaced file is a new file of the version that replaced it, and its rows come again; rows
of a removed file stay in the sink. Commits during a batch do not change it: it reads the version that it ends with. If
that version was expired before, the batch has the files that are left of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from ags1.dataset import DatasetEntry
from ags1.dataset.versions import read_latest
from ags1.errors import AuthenticationError
from ags1.spark.engine._captured import CapturedSession
from ags1.spark.engine._locations import locate
from ags1.spark.source._inputs import DatasetFiles, ListedFiles, no_dataset
from ags1.spark.source._options import StreamOptions
from ags1.spark.source._reader import read_partition
from ags1.spark.source._splits import packed, plan

__all__ = ["StreamReader", "stream_reader_for"]


class StreamReader(DataSourceStreamReader):
    """Reads a growing dataset. Can be pickled: it has no key and no open file.

    Spark 4.1 reads one batch with the trigger ``availableNow``, so ``max_versions_per_batch`` versions.
    """

    def __init__(self, options: StreamOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._most = options.max_versions_per_batch
        self._position: dict[str, Any] | None = None

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
        return self._end_after(self._position, self._now(), self._most)

    def _end_after(self, start: dict[str, Any], now: dict[str, Any], most: int) -> dict[str, Any]:
        self._refuse_another(start, now)
        last = start["version"] + most if most else now["version"]
        return {**now, "version": min(now["version"], last)}

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
        source = self._opened(end["version"])
        try:
            # What was read without a key is not authentic; what was opened is.
            self._refuse_another(end, {"version": source.dataset.version, "dataset": source.dataset.uuid})
            files = self._files(source, start["version"], end["version"])
            return [InputPartition(packed(source.identity, splits)) for splits in plan(files, self._options)]
        finally:
            source.close()

    def _opened(self, number: int) -> DatasetFiles:
        """A version of the dataset; if that was expired, the last one."""
        try:
            return DatasetFiles(self._options, number=number)
        except FileNotFoundError:
            return DatasetFiles(self._options)

    def _files(self, source: DatasetFiles, after: int, last: int) -> Iterator[ListedFiles]:
        """What came with the versions after one, up to another."""
        dataset, prefix = source.dataset, f"{self._options.prefix}/" if self._options.prefix else ""
        entries: Iterator[DatasetEntry]
        try:
            if after == 0 or dataset.version != last:
                raise FileNotFoundError
            changed = dataset.diff(after)
            entries = (entry for _, entry in changed if entry is not None and entry.path.startswith(prefix))
            return source.wanted(entries)
        except FileNotFoundError:
            # There is nothing to compare with, or no more.
            entries = (entry for entry in dataset.files.below(self._options.prefix) if after < entry.version <= last)
            return source.wanted(entries)

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        return read_partition(partition, self._schema, self._options, [])

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
            """What the options say; Spark has no word for versions, so it is handed on as a number of files."""
            return ReadMaxFiles(self._most) if self._most else ReadAllAvailable()

        def prepareForTriggerAvailableNow(self) -> None:
            """Note where the query ends."""
            self._target = self._now()

        def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # type: ignore[override, unused-ignore]
            """The end of the next batch. The KMS is not called."""
            now = self._now() if self._target is None else self._target
            return self._end_after(start, now, 0 if isinstance(limit, ReadAllAvailable) else self._most)

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
    if checked.expected_version >= 0 or checked.version_as_of >= 0 or checked.timestamp_as_of or checked.pushdown:
        raise ValueError(
            "the options expected_version, version_as_of, timestamp_as_of and pushdown are not for streams: say where "
            "one begins with starting_version"
        )
    return _READER(checked, schema)
