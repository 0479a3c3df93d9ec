"""Lines of text: the only column's values. A null is an empty line, as Spark's own writer has it."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from ags1.spark.encoders import FileEncoder
from ags1.spark.encoders._texts import GZIP, Lines, write_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ags1.spark._write_options import WriteOptions

__all__ = ["make"]


def make(options: WriteOptions, schema: pa.Schema) -> _Text:
    """The format."""
    if len(schema) != 1 or not (
        pa.types.is_string(schema.field(0).type) or pa.types.is_large_string(schema.field(0).type)
    ):
        shown = ", ".join(f"{field.name} {field.type}" for field in schema)
        raise ValueError(f"decode=text writes one column of strings, not {shown}: select one, or use decode=json")
    return _Text(options.compression)


@dataclass(frozen=True)
class _Text:
    compression: str

    @property
    def extension(self) -> str:
        return ".txt.gz" if self.compression == GZIP else ".txt"

    def open(self, file: Any, gathered_bytes: int) -> _TextFile:
        return _TextFile(Lines(file, self.compression))


class _TextFile(FileEncoder):
    def __init__(self, lines: Lines) -> None:
        self._lines = lines

    def write(self, batch: pa.RecordBatch) -> None:
        write_lines(self._lines, pc.fill_null(batch.column(0).cast(pa.string()), ""))

    def close(self) -> None:
        self._lines.close()
