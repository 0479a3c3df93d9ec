"""What the tests of the data source share: plaintext as decoders see it, and every way to cut it."""

from __future__ import annotations

import itertools
from typing import Any

import ags1
from ags1.spark.source.decoders import Plain, decoder_for
from ags1.spark.source.decoders.types import conformed
from ags1.spark.source.inputs import END
from ags1.spark.source.options import SourceOptions
from tests.checks import KEY

__all__ = ["BLOCK", "END", "options", "plain", "rows", "rows_cut_everywhere"]

BLOCK = 64


def options(**given: Any) -> SourceOptions:
    """Options of a read, as Spark gives them: texts."""
    texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in given.items()}
    return SourceOptions.parse({"path": "vault", "kms": "local:keys.json", **texts})


def plain(data: bytes, block_length: int = BLOCK, name: str = "file") -> Plain:
    """A file with these bytes, encrypted."""
    return Plain(name, name, ags1.open(ags1.encrypt(data, KEY, block_length=block_length), key=KEY))


def rows(file: Plain, chosen: SourceOptions, schema: Any, cuts: list[int]) -> list[dict[str, Any]]:
    """The rows of the ranges between cuts, one range after the other."""
    decoder = decoder_for(chosen)
    found: list[dict[str, Any]] = []
    for start, end in itertools.pairwise(cuts):
        for read in decoder.read(file, start, end, schema.names):
            read.validate(full=True)
            batch = conformed(read, schema, file.name)
            batch.validate(full=True)
            found += batch.to_pylist()
    return found


def rows_cut_everywhere(data: bytes, chosen: SourceOptions, schema: Any, step: int = 1) -> list[dict[str, Any]]:
    """The rows of a file, which must be the same wherever it is cut in two."""
    file = plain(data)
    whole = rows(file, chosen, schema, [0, END])
    for cut in range(0, len(data) + 2, step):
        assert rows(file, chosen, schema, [0, cut, END]) == whole, f"cut at {cut}"
    return whole
