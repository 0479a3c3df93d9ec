"""Arrow IPC files, with Spark's types as they are."""

from __future__ import annotations

from functools import partial
from typing import Any

import pyarrow as pa

from ags1.spark.source.encoders import Encoding, FileEncoder
from ags1.spark.source.options import WriteOptions


def make(options: WriteOptions, schema: pa.Schema) -> Encoding:
    """The format."""
    return Encoding(".arrow", partial(_ArrowFile, None if options.compression == "none" else options.compression))


class _ArrowFile(FileEncoder):
    def __init__(self, compression: str | None, file: Any, gathered_bytes: int) -> None:
        self._file = pa.PythonFile(file, mode="w")
        self._options = pa.ipc.IpcWriteOptions(compression=compression, use_threads=False)
        self._writer: Any = None

    def write(self, batch: pa.RecordBatch) -> None:
        if self._writer is None:
            self._writer = pa.ipc.new_file(self._file, batch.schema, options=self._options)
        self._writer.write_batch(batch)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
