"""Splits: which ranges of which files one task reads.

Big files are cut into ranges of whole AGS1 blocks. Small files share a task, because a task costs as much as
decrypting some hundred megabytes. Ranges tile a file, the last one reaches beyond its end: decoders return every row
exactly once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ags1.layout import DEFAULT_BLOCK_LENGTH
from ags1.spark.source.decoders.text import is_gzip
from ags1.spark.source.inputs import END, ListedFiles, Split
from ags1.spark.source.options import SourceOptions

# Opening a file costs about as much as decrypting so many bytes.
OPEN_COST = 256 << 10


def plan(files: Iterable[ListedFiles], options: SourceOptions) -> Iterator[list[Split]]:
    """The splits of each task, in the order of the files; no list is empty."""
    limit = options.split_bytes
    if options.min_partitions > 1:
        files = list(files)
        total = sum(each.length + OPEN_COST for each in files)
        limit = min(limit, -(-total // options.min_partitions))
    # Whole blocks.
    limit = max(1, limit // DEFAULT_BLOCK_LENGTH) * DEFAULT_BLOCK_LENGTH
    current: list[Split] = []
    gathered = 0
    for file in files:
        for start, end in _ranges(file.name, file.length, limit, options):
            weight = min(end, file.length) - start + OPEN_COST
            if current and gathered + weight > limit + OPEN_COST:
                yield current
                current, gathered = [], 0
            current.append(Split(file, start, end))
            gathered += weight
    if current:
        yield current


def _ranges(name: str, length: int, limit: int, options: SourceOptions) -> Iterable[tuple[int, int]]:
    whole = options.whole_files or (options.decode == "text" and is_gzip(name))
    if whole or length <= limit:
        return ((0, END),)
    return ((start, start + limit if start + limit < length else END) for start in range(0, length, limit))
