"""From Arrow to plaintext: record batches as the bytes of a file, without Spark and without encryption.

A format is made from the options and the schema, once for a write. It opens any number of files.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import pyarrow as pa

from ags1.spark.source.options import WriteOptions

__all__ = ["Encoding", "FileEncoder", "encoding_for", "refuse"]


class FileEncoder(ABC):
    """One file that is being written."""

    @abstractmethod
    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows."""

    @abstractmethod
    def close(self) -> None:
        """Write the rest. The caller closes the file itself."""

    def abort(self) -> None:  # noqa: B027
        """Discard the rest."""


class Encoding(NamedTuple):
    """A format. It can be pickled, and has no open file.

    Attributes
    ----------
    extension : str
        Ending of the names of files.
    open : callable
        Begins a file. Its arguments are a binary file with a method ``write``, and the approximate limit of Arrow
        memory that waits to be written together.
    """

    extension: str
    open: Callable[[Any, int], FileEncoder]


def encoding_for(options: WriteOptions, schema: pa.Schema) -> Encoding:
    """The format of the options, if it has the types of the columns."""
    module = importlib.import_module(f"ags1.spark.source.encoders.{options.decode}")
    made: Encoding = module.make(options, schema)
    return made


def refuse(field: pa.Field, decode: str, instead: str) -> ValueError:
    """The error for a column whose type a format does not have."""
    return ValueError(f"the column {field.name!r} is of the type {field.type}, which {decode} does not have: {instead}")
