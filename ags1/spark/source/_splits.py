"""Splits: which ranges of which files one task reads.

Big files are cut into ranges of whole AGS1 blocks. Small files share a task, because a task costs as much as
decrypting some hundred megabytes. Ranges tile a file, the last one reaches beyond its end: decoders return every row
exactly once.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ags1.layout import DEFAULT_BLOCK_LENGTH
from ags1.spark.source._inputs import ListedFiles
from ags1.spark.source._options import LINE_DECODES, SourceOptions
from ags1.spark.source.decoders._text_files import is_gzip

__all__ = ["END", "Split", "packed", "plan", "unpacked"]

# Opening a file costs about as much as decrypting so many bytes.
OPEN_COST = 256 << 10
END = 1 << 62
"""End of a range that goes to the end of its file, wherever that is."""


@dataclass(frozen=True)
class Split:
    file: ListedFiles
    start: int = 0
    end: int = END


def plan(files: Iterable[ListedFiles], options: SourceOptions) -> list[list[Split]]:
    """The splits of each task, in the order of the files; no list is empty."""
    several = list(files)
    limit = _limit(several, options)
    tasks: list[list[Split]] = []
    current: list[Split] = []
    weight = 0
    for split in _cut(several, limit, options):
        size = min(split.end, split.file.length) - split.start + OPEN_COST
        if current and weight + size > limit + OPEN_COST:
            tasks.append(current)
            current, weight = [], 0
        current.append(split)
        weight += size
    if current:
        tasks.append(current)
    return tasks


def _limit(files: list[ListedFiles], options: SourceOptions) -> int:
    """Bytes of a split: whole blocks."""
    limit = options.split_bytes
    if options.min_partitions > 1:
        total = sum(each.length + OPEN_COST for each in files)
        limit = min(limit, -(-total // options.min_partitions))
    return max(1, limit // DEFAULT_BLOCK_LENGTH) * DEFAULT_BLOCK_LENGTH


def _cut(files: list[ListedFiles], limit: int, options: SourceOptions) -> Iterator[Split]:
    whole = options.whole_files or not options.content
    packed_lines = options.decode in LINE_DECODES
    for file in files:
        if whole or (packed_lines and is_gzip(file.name)) or file.length <= limit:
            yield Split(file)
            continue
        starts = range(0, file.length, limit)
        for start in starts:
            yield Split(file, start, start + limit if start + limit < file.length else END)


def packed(identity: str, splits: list[Split]) -> bytes:
    """Splits as they are sent to a task: paths and ranges, no keys."""
    return zlib.compress(pickle.dumps((identity, splits), pickle.HIGHEST_PROTOCOL), 1)


def unpacked(data: bytes) -> tuple[str, list[Split]]:
    found: tuple[str, list[Split]] = pickle.loads(zlib.decompress(data))
    return found
