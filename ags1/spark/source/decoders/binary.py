"""The bytes themselves: one row for each block, decrypted straight into Arrow's memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from ags1.spark.source.decoders import Decoder, Plain
from ags1.spark.source.decoders.lines import read_buffer

SCHEMA = pa.schema([("path", pa.string()), ("offset", pa.int64()), ("content", pa.binary())])


class _Binary(Decoder):
    schema = SCHEMA

    def read(self, file: Plain, start: int, end: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        reader, wants_content = file.source, "content" in map(str.lower, columns)
        size, piece = reader.size, reader.block_length
        if size == 0:
            # A row all the same, and authenticated.
            if start == 0 < end:
                reader.pread(0, 1)
                yield self._batch(file, 0, pa.array([0], pa.int64()), pa.allocate_buffer(0))
            return
        end = min(end, size)
        many = max(1, self._options.batch_bytes // piece)
        # A piece belongs to the range in which it begins.
        position = -(-start // piece) * piece
        while position < end:
            count = min(many, -(-(end - position) // piece))
            offsets = pa.array(np.arange(count, dtype=np.int64) * piece + position)
            wanted = count * piece if wants_content else 0
            yield self._batch(file, piece, offsets, read_buffer(reader, position, wanted))
            position += count * piece

    @staticmethod
    def _batch(file: Plain, piece: int, offsets: pa.Array, data: pa.Buffer) -> pa.RecordBatch:
        count = len(offsets)
        ends = np.minimum(np.arange(count + 1, dtype=np.int64) * piece, data.size).astype(np.int32)
        content = pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(ends), data])
        paths = pa.repeat(pa.scalar(file.path, pa.string()), count)
        return pa.RecordBatch.from_arrays([paths, offsets, content], schema=SCHEMA)


make = _Binary
