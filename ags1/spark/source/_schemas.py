"""Whether rows fit into a dataset that exists: what comes with other columns would hide columns, or give nulls.

Columns are found by name, so their order does not matter. JSON and text are not looked at: each record of JSON has the
names of its own columns.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import fields

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from ags1.codec import encrypt
from ags1.core.gcm import Key
from ags1.spark.source._directories import named_otherwise, partitioned_schema, values_of
from ags1.spark.source._inputs import open_input
from ags1.spark.source._options import SourceOptions, WriteOptions
from ags1.spark.source.decoders import Decoder, Plain, decoder_for
from ags1.spark.source.encoders import encoding_for
from ags1.streams.stream import Reader

_WITHOUT_NAMES = ("json", "text")


def refuse_other_columns(options: WriteOptions, columns: pa.Schema, extension: str, *, dynamic: bool = False) -> None:
    """Compare the columns of a write with those of the first file of its format, if the dataset has one.

    `dynamic` says that the write replaces the directories that get rows. ValueError: the columns, or those that are
    directories, are others; or directories that are to be replaced have other names. The message has both.
    """
    names = {each.name for each in fields(SourceOptions)}
    shared = [each.name for each in fields(options) if options.decode in (each.metadata.get("only") or ())]
    read = SourceOptions(
        path=(options.path,),
        kms=options.kms,
        decode=options.decode,
        include=(f"*{extension.removesuffix('.gz')}", f"*{extension.removesuffix('.gz')}.gz"),
        session=options.session,
        **{name: getattr(options, name) for name in shared if name in names},
    )
    source = open_input(read)
    try:
        first = next((each for each in source.files() if each.length), None)
        if first is None:
            return
        directories = tuple(values_of(first.name))
        # Also by their case: `Day=1` beside `day=1` would be the same rows for readers, and another directory here.
        if directories != options.partition_by:
            raise ValueError(
                f"the files of {options.path} are in directories of {_listed(directories)}, and the option "
                f"partition_by names {_listed(options.partition_by)}: write as the dataset is, or into another dataset"
            )
        other = named_otherwise(first.name, columns, read.time_zone) if dynamic else None
        if other is not None:
            raise ValueError(
                f"{first.name} is in a directory that a write names {other}, so its rows would stay beside those that "
                "are to replace them: overwrite all (partitionOverwriteMode=static), or write into another dataset"
            )
        if options.decode in _WITHOUT_NAMES:
            return
        decoder, plain = decoder_for(read), source.open(first)
        try:
            have = _types(decoder.infer([plain]))
        finally:
            plain.source.close()
    finally:
        source.close()
    come = _types(_written(options, partitioned_schema(columns, options.partition_by), decoder))
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
    return decoder.infer([Plain("a new file", "a new file", Reader(encrypt(file.getvalue(), key), key))])


def _types(schema: pa.Schema) -> dict[str, str]:
    found = from_arrow_schema(schema, prefer_timestamp_ntz=True)
    return {field.name: field.dataType.simpleString() for field in found}


def _described(columns: dict[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "no column"
