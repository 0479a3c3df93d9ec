"""Arrow IPC: files by record batches, streams as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from ags1.errors import FormatError
from ags1.spark.source.decoders import Decoder, Plain
from ags1.spark.source.decoders.types import find, spark_schema

_MAGIC = b"ARROW1"


def owned_part(index: int, count: int, size: int, start: int, end: int) -> bool:
    """Whether one of `count` parts of a file belongs to a range of it.

    A file can be cut without the offsets of its parts: each part counts as beginning at its share of the file.
    """
    return start <= index * size // count < end


def sliced(batch: pa.RecordBatch, batch_bytes: int) -> Iterator[pa.RecordBatch]:
    """Slices of a batch of about the size that suits Spark. Nothing is copied."""
    count = max(1, -(-batch.nbytes // batch_bytes))
    step = max(1, -(-batch.num_rows // count))
    if batch.num_rows <= step:
        yield batch
        return
    for begin in range(0, batch.num_rows, step):
        yield batch.slice(begin, step)


class _Arrow(Decoder):
    def schema_of(self, file: Plain) -> pa.Schema:
        opened, _ = _open(file, None)
        return spark_schema(opened.schema, file.name)

    def read(self, file: Plain, start: int, end: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        size = file.source.size
        if start > 0 and start >= size:
            return
        opened, is_file = _open(file, columns)
        try:
            if is_file:
                count = opened.num_record_batches
                for index in range(count):
                    if owned_part(index, count, size, start, end):
                        yield from sliced(opened.get_batch(index), self._options.batch_bytes)
            elif start == 0 < end:
                for batch in opened:
                    yield from sliced(batch, self._options.batch_bytes)
        except pa.ArrowInvalid as error:
            raise FormatError(f"{file.name}: a record batch cannot be read: {error}") from None


def _open(file: Plain, wanted: Sequence[str] | None) -> tuple[Any, bool]:
    """The reader of a file, or of a stream, for some columns."""
    source = file.source
    is_file = source.pread(0, len(_MAGIC)) == _MAGIC
    opener = pa.ipc.open_file if is_file else pa.ipc.open_stream
    # Threads that read a file of Python's may outlive the interpreter.
    options = pa.ipc.IpcReadOptions(use_threads=False)
    try:
        opened = _opened(opener, source, options)
        if wanted is not None:
            found = [find(opened.schema, name) for name in wanted]
            included = sorted(index for index in found if index is not None)
            if included and len(included) < len(opened.schema):
                options = pa.ipc.IpcReadOptions(use_threads=False, included_fields=included)
                opened = _opened(opener, source, options)
    except (pa.ArrowInvalid, EOFError):
        raise FormatError(f"{file.name}: this is neither an Arrow IPC file nor an IPC stream") from None
    return opened, is_file


def _opened(opener: Any, source: Any, options: Any) -> Any:
    source.seek(0)
    return opener(pa.PythonFile(source, mode="r"), options=options)


make = _Arrow
