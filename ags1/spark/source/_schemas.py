"""Whether rows fit into a dataset that exists: what comes with other columns would hide columns, or give nulls.

Columns are found by name, so their order does not matter. Text is not looked at: its only column has no name.
"""

from __future__ import annotations

import io

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from ags1.codec import encrypt
from ags1.core.gcm import Key
from ags1.spark.source.decoders import Decoder, Plain, decoder_for
from ags1.spark.source.directories import values_of
from ags1.spark.source.encoders import encoding_for
from ags1.spark.source.inputs import open_input
from ags1.spark.source.options import SourceOptions, WriteOptions
from ags1.streams.stream import Reader


def refuse_other_columns(options: WriteOptions, columns: pa.Schema, extension: str) -> None:
    """Compare the columns of a write with those of the first file of its format, if the dataset has one.

    ValueError: the columns are others, and the message has both; or the files are in directories that are columns.
    """
    plain_name = f"*{extension.removesuffix('.gz')}"
    read = SourceOptions(
        path=(options.path,),
        kms=options.kms,
        decode=options.decode,
        include=(plain_name, f"{plain_name}.gz"),
        session=options.session,
    )
    source = open_input(read)
    try:
        first = next((each for each in source.files() if each.length), None)
        if first is None:
            return
        if values_of(first.name):
            raise ValueError(
                f"{first.name} is in directories that are columns, and a write makes none, so they would be null in "
                f"the new rows: overwrite all of {options.path}, or write into another dataset"
            )
        if options.decode == "text":
            return
        decoder, plain = decoder_for(read), source.open(first)
        try:
            have = _types(decoder.schema_of(plain))
        finally:
            plain.source.close()
    finally:
        source.close()
    come = _types(_written(options, columns, decoder))
    if {name.lower(): kind for name, kind in have.items()} == {name.lower(): kind for name, kind in come.items()}:
        return
    raise ValueError(
        f"{options.path} has the columns {_described(have)}, and the DataFrame {_described(come)}: select and cast "
        "what the dataset has, overwrite all of it, or write into another dataset"
    )


def _written(options: WriteOptions, columns: pa.Schema, decoder: Decoder) -> pa.Schema:
    """The columns as they are read from a file of the write: not every format has every type."""
    file = io.BytesIO()
    encoder = encoding_for(options, columns).open(file, 1)
    nothing: list[pa.Array] = [pa.array([], field.type) for field in columns]
    encoder.write(pa.RecordBatch.from_arrays(nothing, schema=columns))
    encoder.close()
    key = Key.generate()
    return decoder.schema_of(Plain("a new file", "a new file", Reader(encrypt(file.getvalue(), key), key)))


def _types(schema: pa.Schema) -> dict[str, str]:
    found = from_arrow_schema(schema, prefer_timestamp_ntz=True)
    return {field.name: field.dataType.simpleString() for field in found}


def _described(columns: dict[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())
