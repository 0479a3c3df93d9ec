"""Lines of text: the only column's values. A null is an empty line, as Spark's own writer has it."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from ags1.spark.source._options import WriteOptions
from ags1.spark.source.encoders import Encoding
from ags1.spark.source.encoders._texts import of_lines


def make(options: WriteOptions, schema: pa.Schema) -> Encoding:
    """The format."""
    if len(schema) != 1 or not (
        pa.types.is_string(schema.field(0).type) or pa.types.is_large_string(schema.field(0).type)
    ):
        shown = ", ".join(f"{field.name} {field.type}" for field in schema)
        raise ValueError(f"decode=text writes one column of strings, not {shown}: select one, or use decode=json")
    return of_lines(options, ".txt", _lines)


def _lines(batch: pa.RecordBatch) -> pa.Array:
    return pc.fill_null(batch.column(0).cast(pa.string()), "")
