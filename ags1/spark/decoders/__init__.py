"""From plaintext to Arrow: a range of one file as record batches, without Spark.

A decoder is given a reader of the plaintext and a range of it; ranges that tile a file give every row exactly once.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ags1.errors import FormatError
from ags1.spark._source_options import SourceOptions

__all__ = ["Decoder", "Plain", "decoder_for"]


@dataclass(frozen=True)
class Plain:
    """One file, open.

    Attributes
    ----------
    name : str
        What errors call it.
    path : str
        What rows call it.
    source : Reader, or what ags1.parquet.open takes
        The plaintext; a path, URL or file object where encrypted Parquet lies outside of AGS1.
    decryption : DecryptionConfig or None
        Keys of Parquet that is encrypted itself.
    """

    name: str
    path: str
    source: Any
    decryption: Any = None


class Decoder:
    """How a format is read; of each format, there is one. Holds no file."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def infer(self, files: Iterable[Plain]) -> pa.Schema:
        """The schema of the data, from one file or some; each is opened when it is asked for."""
        for file in files:
            return self.schema_of(file)
        raise FormatError("there is no file to take the schema from: give one with .schema(...)")

    def schema_of(self, file: Plain) -> pa.Schema:
        """The schema of one file."""
        raise NotImplementedError

    def read(self, file: Plain, start: int, end: int, schema: pa.Schema, rows: Any) -> Iterator[pa.RecordBatch]:
        """The rows of a range of plaintext, whose end may lie behind that of the file, in batches of exactly `schema`.

        For Parquet, `rows` says which row groups may have rows that are wanted.
        """
        raise NotImplementedError


def decoder_for(options: SourceOptions) -> Decoder:
    """The decoder that the options name; only its own libraries are imported."""
    module = importlib.import_module(f"ags1.spark.decoders.{options.decode}")
    made: Decoder = module.make(options)
    return made
