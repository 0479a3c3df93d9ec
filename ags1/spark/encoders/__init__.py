"""From Arrow to plaintext: record batches as the bytes of a file, without Spark and without encryption.

A format is made from the options and from the schema, once for a write. It opens as many files as are wanted.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import pyarrow as pa

from ags1.spark._source_options import WriteOptions

__all__ = ["Encoding", "FileEncoder", "encoding_for", "refuse"]


class FileEncoder(ABC):
    """One file that is being written."""

    @abstractmethod
    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows."""

    @abstractmethod
    def close(self) -> None:
        """Write what is still to be written. The file itself is somebody else's to close."""

    def abort(self) -> None:  # noqa: B027
        """Write nothing any more."""


class Encoding(NamedTuple):
    """A format. It can be pickled, and has nothing open.

    Attributes
    ----------
    extension : str
        Ending of the names of files.
    open : callable
        Begins a file: gets a binary file with a method ``write``, and about how much Arrow memory may wait for being
        written together.
    """

    extension: str
    open: Callable[[Any, int], FileEncoder]


def encoding_for(options: WriteOptions, schema: pa.Schema) -> Encoding:
    """The format that the options name, if it has the types of the columns."""
    module = importlib.import_module(f"ags1.spark.encoders.{options.decode}")
    made: Encoding = module.make(options, schema)
    return made


def refuse(field: pa.Field, decode: str, instead: str) -> ValueError:
    """What to raise for a column that a format has no type for."""
    return ValueError(f"the column {field.name!r} is of the type {field.type}, which {decode} does not have: {instead}")
