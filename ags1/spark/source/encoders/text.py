"""Lines of text: the only column's values. A null is an empty line, as Spark's own writer has it."""

from __future__ import annotations

import zlib
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ags1.spark.source.encoders import Encoding, FileEncoder
from ags1.spark.source.options import WriteOptions

_LEVEL = 6
_GZIP_WINDOW = 31


def make(options: WriteOptions, schema: pa.Schema) -> Encoding:
    """The format."""
    if len(schema) != 1 or not (
        pa.types.is_string(schema.field(0).type) or pa.types.is_large_string(schema.field(0).type)
    ):
        shown = ", ".join(f"{field.name} {field.type}" for field in schema)
        raise ValueError(
            f"decode=text writes one column of strings, not {shown}: select one, such as to_json(struct(*)) or "
            "to_csv(struct(*)), or use decode=parquet"
        )
    is_packed = options.compression == "gzip"
    return Encoding(".txt.gz" if is_packed else ".txt", partial(_TextFile, is_packed))


class _TextFile(FileEncoder):
    def __init__(self, is_packed: bool, file: Any, gathered_bytes: int) -> None:
        self._file = file
        self._packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP_WINDOW) if is_packed else None

    def write(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows == 0:
            return
        lines = pc.fill_null(batch.column(0).cast(pa.string()), "")
        ended = pc.binary_join_element_wise(lines, "\n", "")
        # The texts of an array are contiguous: nothing is copied.
        offsets = np.frombuffer(ended.buffers()[1], np.int32)[ended.offset : ended.offset + len(ended) + 1]
        texts = memoryview(ended.buffers()[2]).cast("B")[int(offsets[0]) : int(offsets[-1])]
        self._file.write(texts if self._packer is None else self._packer.compress(texts))

    def close(self) -> None:
        if self._packer is not None:
            self._file.write(self._packer.flush())
