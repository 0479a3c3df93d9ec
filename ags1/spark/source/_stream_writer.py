"""``df.writeStream.format("ags1")``: each epoch is a transaction of the query, so a repeated one is skipped.

    task     rows -> objects; its message has the files, and the writer that made them, with wrapped keys
    commit   a new version that names the files, the query and the epoch                ags1.dataset.transaction

Spark makes a writer for the tasks of an epoch and another one for its commit, so the first travels in the messages. A
query is known by the id in its checkpoint, as Delta knows it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from ags1.spark.engine._captured import CapturedSession
from ags1.spark.engine._locations import locate
from ags1.spark.source._writer import Ags1Writer, Written, writer_for
from ags1.storage import read_whole

_MAX_BYTES = 1 << 16


@dataclass
class _StreamWritten(Written):
    """The message of a task, with the writer; it has wrapped keys only."""

    writer: Ags1Writer | None = None


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the epochs of a query into a dataset. Can be pickled: it has wrapped keys only."""

    def __init__(self, writer: Ags1Writer, query: str) -> None:
        self._writer = writer
        self._query = query

    def write(self, iterator: Iterator[pa.RecordBatch]) -> _StreamWritten:
        return _StreamWritten(self._writer.write(iterator).files, self._writer)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Add the files of an epoch to the dataset, unless it has them; see :meth:`Ags1Writer.commit`."""
        self._writer.continued(_begun(messages) or self._writer, self._query, batchId).commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Remove the objects that tasks reported; see :meth:`Ags1Writer.abort`."""
        if (begun := _begun(messages)) is not None:
            begun.abort(messages)


def _begun(messages: list[WriterCommitMessage | None]) -> Ags1Writer | None:
    """The writer that the tasks had."""
    return next((each.writer for each in messages if isinstance(each, _StreamWritten)), None)


def stream_writer_for(
    options: Mapping[str, str], schema: StructType, overwrite: bool, session: CapturedSession | None = None
) -> StreamWriter:
    """Check all that can be checked before a task runs, and begin an epoch."""
    own = {name.lower(): text for name, text in options.items() if name.lower() in ("checkpointlocation", "queryname")}
    rest = {name: text for name, text in options.items() if name.lower() not in own}
    writer = writer_for(rest, schema, overwrite, session)
    return StreamWriter(writer, _query_id(own.get("checkpointlocation", ""), session))


def _query_id(checkpoint: str, session: CapturedSession | None) -> str:
    """The id of a query, which a new one has with a new checkpoint, wherever that is."""
    if not checkpoint:
        raise ValueError(
            "give the option checkpointLocation to the query itself: what it has written is known by the id in there"
        )
    place = locate(checkpoint, session).join("metadata")
    try:
        found = json.loads(bytes(memoryview(read_whole(place, _MAX_BYTES))))["id"]
    except (ValueError, KeyError, TypeError):
        found = None
    if not isinstance(found, str) or not found:
        raise ValueError(f"{place} does not have the id of a query: begin again, with a new checkpoint")
    return found
