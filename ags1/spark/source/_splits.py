"""Splits: which ranges of which files one task reads.

Big files are cut into ranges of whole AGS1 blocks. Small files share a task, because a task costs as much as
decrypting some hundred megabytes. Ranges tile a file, the last one reaches beyond its end: decoders return every row
exactly once.

Files of a dataset travel as places in the leaves of its manifests, which the task reads. The driver reads a leaf only
if it has big files to cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from ags1.dataset import Leaf
from ags1.layout import DEFAULT_BLOCK_LENGTH
from ags1.spark.source._inputs import END, DatasetFiles, ListedFiles, Place, Split
from ags1.spark.source.decoders.text import is_gzip
from ags1.spark.source.options import SourceOptions

T = TypeVar("T")

# Opening a file costs about as much as decrypting so many bytes.
OPEN_COST = 256 << 10


def plan(files: Iterable[ListedFiles], options: SourceOptions) -> list[list[Split]]:
    """The splits of each task, in the order of the files; no list is empty."""
    several = list(files)
    limit = _limit(sum(_weight(each.length, options) for each in several), options)
    splits = (
        (_weight(min(end, file.length) - start, options), Split(file, start, end))
        for file in several
        for start, end in _ranges(file.name, file.length, limit, options)
    )
    return list(_shared_out(splits, limit))


def plan_leaves(source: DatasetFiles, options: SourceOptions) -> list[list[Place]]:
    """The same for the files of a dataset."""
    total = 0
    if options.min_partitions > 1:
        for leaf, files in source.leaves(lambda leaf: False):
            if files is None:
                total += _weight(leaf.plaintext_bytes, options, leaf.file_count)
            else:
                total += sum(_weight(each.length, options) for _, each in files)
    limit = _limit(total, options)

    def is_read(leaf: Leaf) -> bool:
        return _weight(leaf.plaintext_bytes, options, leaf.file_count) > limit + OPEN_COST

    def places() -> Iterator[tuple[int, Place]]:
        for leaf, files in source.leaves(is_read):
            if files is None:
                if leaf.file_count:
                    yield _weight(leaf.plaintext_bytes, options, leaf.file_count), Place(leaf.first)
                continue
            for number, file in files:
                for start, end in _ranges(file.name, file.length, limit, options):
                    size = min(end, file.length) - start
                    yield _weight(size, options), Place(leaf.first, number, number + 1, start, end)

    return [_joined(task) for task in _shared_out(places(), limit)]


def _joined(places: list[Place]) -> list[Place]:
    """Whole files next to each other in a leaf as one place."""
    found: list[Place] = []
    for each in places:
        last = found[-1] if found else None
        if last is not None and last.leaf == each.leaf and last[3:] == each[3:] == (0, END):
            found[-1] = last._replace(behind=each.behind)
        else:
            found.append(each)
    return found


def _weight(length: int, options: SourceOptions, files: int = 1) -> int:
    """Cost of some files in bytes of plaintext. With content=false, no file is decrypted."""
    return (length if options.content else 0) + files * OPEN_COST


def _limit(total: int, options: SourceOptions) -> int:
    """Bytes of a split: whole blocks."""
    limit = options.split_bytes
    if options.min_partitions > 1:
        limit = min(limit, -(-total // options.min_partitions))
    return max(1, limit // DEFAULT_BLOCK_LENGTH) * DEFAULT_BLOCK_LENGTH


def _ranges(name: str, length: int, limit: int, options: SourceOptions) -> Iterable[tuple[int, int]]:
    whole = options.whole_files or not options.content or (options.decode == "text" and is_gzip(name))
    if whole or length <= limit:
        return ((0, END),)
    return ((start, start + limit if start + limit < length else END) for start in range(0, length, limit))


def _shared_out(weighed: Iterable[tuple[int, T]], limit: int) -> Iterator[list[T]]:
    """Neighbours in lists of about a limit."""
    current: list[T] = []
    gathered = 0
    for weight, each in weighed:
        if current and gathered + weight > limit + OPEN_COST:
            yield current
            current, gathered = [], 0
        current.append(each)
        gathered += weight
    if current:
        yield current
