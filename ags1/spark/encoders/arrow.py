"""Arrow IPC files, with Spark's types as they are."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from ags1.spark.encoders import FileEncoder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ags1.spark._source_options import WriteOptions

__all__ = ["make"]


def make(options: WriteOptions, schema: pa.Schema) -> _Arrow:
    """The format."""
    return _Arrow(options.compression)


@dataclass(frozen=True)
class _Arrow:
    compression: str
    extension: str = ".arrow"

    def open(self, file: Any, gathered_bytes: int) -> _ArrowFile:
        return _ArrowFile(file, None if self.compression == "none" else self.compression)


class _ArrowFile(FileEncoder):
    def __init__(self, file: Any, compression: str | None) -> None:
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
