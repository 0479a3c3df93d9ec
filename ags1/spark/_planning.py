"""Who does what: files are cut into ranges, and ranges and files are packed into bins, one for each task.

    files  --cut-->  units: whole files, and block ranges of big ones  --pack-->  bins of nearly the same weight

It is pure: no file system, no Spark. A file costs its bytes and something for being a file; small neighbours stay
together, and the heaviest go first to the bin that has least (longest processing time first), which is never worse than
4/3 of the best packing there is.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from ags1.layout import DEFAULT_BLOCK_LENGTH

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["PART_BYTES", "Unit", "bin_count", "cut", "pack", "plan", "range_length", "weight_of"]

PART_BYTES = 256 << 20
"""Plaintext bytes of a range, by default."""
_FILE_WEIGHT = 256 << 10
_TASK_WEIGHT = 1 << 30
_ROUNDS = 4
_GROUPS_PER_BIN = 64


@dataclass(frozen=True, slots=True)
class Unit:
    """A file, or a range of one.

    Attributes
    ----------
    path : str
        Relative to the tree, with ``/``.
    size : int
        Bytes of plaintext in this unit.
    data : object
        What the work needs besides; it can be pickled.
    start : int
        Plaintext offset of the range in its file.
    whole : int
        Plaintext bytes of the file that this is a range of; -1 if the unit is the file.
    """

    path: str
    size: int
    data: Any = None
    start: int = 0
    whole: int = -1

    @property
    def is_range(self) -> bool:
        """Whether there are other units of the same file."""
        return self.whole >= 0


def range_length(size: int, part_bytes: int, block_length: int = DEFAULT_BLOCK_LENGTH, most: int = 9_000) -> int:
    """Bytes of each range of a file but the last: whole blocks, about `part_bytes`, in at most `most` ranges."""
    wanted = max(part_bytes, -(-size // most), block_length)
    return -(-wanted // block_length) * block_length


def cut(unit: Unit, part_bytes: int, block_length: int = DEFAULT_BLOCK_LENGTH) -> Iterator[Unit]:
    """The ranges of a file that is larger than `part_bytes`; a smaller one itself.

    Parameters
    ----------
    unit : Unit
        A whole file.
    part_bytes : int
        Plaintext bytes of a range; rounded up to whole blocks.
    block_length : int
        Plaintext bytes of a block.
    """
    if unit.size <= part_bytes:
        yield unit
        return
    step = range_length(unit.size, part_bytes, block_length)
    if unit.size <= step:
        yield unit
        return
    for start in range(0, unit.size, step):
        yield replace(unit, size=min(step, unit.size - start), start=start, whole=unit.size)


def weight_of(unit: Unit) -> int:
    """What a unit costs, in bytes: opening, creating and renaming a file cost as much as some of its bytes."""
    return unit.size + _FILE_WEIGHT


def bin_count(units: Sequence[Unit], slots: int) -> int:
    """How many tasks some units should be: full rounds of all slots, tasks of a second or so, and at most four rounds.

    A task of Python costs a tenth of a second however little it does.
    """
    total = sum(map(weight_of, units))
    rounds = min(_ROUNDS, max(1, round(total / (_TASK_WEIGHT * slots))))
    return max(1, min(len(units), slots * rounds))


def pack(units: Sequence[Unit], bins: int) -> list[list[Unit]]:
    """Distribute units over bins; none is empty. In each, units keep their order.

    Parameters
    ----------
    units : sequence of Unit
        In the order of paths.
    bins : int
        How many bins at most.
    """
    total = sum(map(weight_of, units))
    enough = total // (max(1, bins) * _GROUPS_PER_BIN)
    groups: list[tuple[int, int, int]] = []
    first, gathered = 0, 0
    for index, unit in enumerate(units):
        gathered += weight_of(unit)
        if gathered > enough:
            groups.append((gathered, first, index + 1))
            first, gathered = index + 1, 0
    if first < len(units):
        groups.append((gathered, first, len(units)))
    groups.sort(key=lambda group: (-group[0], group[1]))
    loads = [(0, number) for number in range(max(1, min(bins, len(groups))))]
    members: list[list[tuple[int, int]]] = [[] for _ in loads]
    for weight, begin, end in groups:
        load, number = heapq.heappop(loads)
        members[number].append((begin, end))
        heapq.heappush(loads, (load + weight, number))
    packed = [[unit for begin, end in sorted(each) for unit in units[begin:end]] for each in members]
    return [each for each in packed if each]


def plan(
    files: Iterable[tuple[str, int]],
    part_bytes: int = PART_BYTES,
    bins: int | None = None,
    *,
    slots: int = 1,
    block_length: int = DEFAULT_BLOCK_LENGTH,
) -> list[list[Unit]]:
    """Which task would do what with some files.

    Parameters
    ----------
    files : iterable of (str, int)
        Paths, and bytes of plaintext.
    part_bytes : int
        Files above this are cut into ranges of so many bytes.
    bins : int, optional
        How many tasks; by default as many as :func:`bin_count` says for `slots`.
    slots : int
        Tasks that the cluster runs at once.
    block_length : int
        Plaintext bytes of a block.

    Returns
    -------
    list of list of Unit
        The units of each task. Every byte of every file is in exactly one.

    Raises
    ------
    ValueError
        A number below 1, or a negative size.
    """
    if part_bytes < 1 or slots < 1 or (bins is not None and bins < 1):
        raise ValueError("part_bytes, bins and slots must be at least 1")
    units: list[Unit] = []
    for path, size in files:
        if size < 0:
            raise ValueError(f"{path} cannot have {size} bytes")
        units += cut(Unit(path, size), part_bytes, block_length)
    return pack(units, bins or bin_count(units, slots)) if units else []
