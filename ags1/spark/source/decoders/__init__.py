"""From plaintext to Arrow: a range of one file as record batches, without Spark.

A decoder gets a reader of the plaintext and a range of it. Ranges that tile a file give every row exactly once.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ags1.spark.source.options import SourceOptions

__all__ = ["Decoder", "Plain", "decoder_for"]


@dataclass(frozen=True)
class Plain:
    """One open file.

    Attributes
    ----------
    name : str
        Name in errors.
    path : str
        Name in rows.
    source : Reader, or what ags1.parquet.open takes
        The plaintext; a path, URL or file object where encrypted Parquet lies outside of AGS1.
    decryption : DecryptionConfig or None
        Keys of encrypted Parquet.
    """

    name: str
    path: str
    source: Any
    decryption: Any = None


class Decoder:
    """Reads a format. It has no open file."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    schema: pa.Schema | None = None
    """The schema of every file, if the format has only one."""

    def schema_of(self, file: Plain) -> pa.Schema:
        """The schema of one file."""
        raise NotImplementedError

    def read(self, file: Plain, start: int, end: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The rows of a range of plaintext, which may end after the file.

        Batches have some columns of the file: these, as far as it has them, in any case, order and type.
        """
        raise NotImplementedError


def decoder_for(options: SourceOptions) -> Decoder:
    """The decoder of the options; only its own libraries are imported."""
    module = importlib.import_module(f"ags1.spark.source.decoders.{options.decode}")
    made: Decoder = module.make(options)
    return made
