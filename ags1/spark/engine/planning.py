"""Planning: units are gathered into waves, and the units of a wave are packed into bins, one for each task.

    units: whole files, and ranges of big ones  --gathered-->  waves  --pack-->  bins of nearly the same weight

Pure functions: no file system, no Spark. The cost of a file is its bytes plus a constant. Small neighbours stay
together, and the heaviest units go first, each to the lightest bin (longest processing time first): the result is at
most 4/3 of the optimum.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

PART_BYTES = 256 << 20
"""Plaintext bytes of a range, by default."""
_FILE_WEIGHT = 256 << 10
_TASK_WEIGHT = 2 << 30
_ROUNDS = 4
_GROUPS_PER_BIN = 64
# The first wave is small, so that tasks start while the driver still lists, but 10,000 files fit into it.
_FIRST_WAVE_UNITS = 16_000
_WAVE_UNITS = 100_000
_WAVE_GROWTH = 4
# Some seconds of work for each slot. Split files are recorded at the end of a wave: a killed driver loses them.
_WAVE_WEIGHT = 8 << 30


class Unit(NamedTuple):
    """A file, or a range of one.

    Attributes
    ----------
    path : str
        Relative to the tree, with ``/``.
    size : int
        Bytes of plaintext in this unit.
    data : object
        Further data for the work; it can be pickled.
    start : int
        Plaintext offset of the range in its file.
    whole : int
        Plaintext bytes of the file that this is a range of; -1 if the unit is the file.
    files : int
        Number of files in it, from the one at `path`.
    """

    path: str
    size: int
    data: Any = None
    start: int = 0
    whole: int = -1
    files: int = 1


def files_of(unit: Any) -> int:
    """Number of files that begin in a unit: 0 for a later range of a file."""
    if unit.start:
        return 0
    return unit.files if isinstance(unit, Unit) else 1


def weight_of(unit: Any) -> int:
    """Cost of a unit in bytes. Opening, creating and renaming a file count as a number of bytes."""
    size: int = unit.size
    return size + (files_of(unit) or 1) * _FILE_WEIGHT


def gathered(units: Iterable[Any], slots: int) -> Iterator[list[Any]]:
    """Units in waves, in their order."""
    wave: list[Any] = []
    enough, files, weight = _FIRST_WAVE_UNITS, 0, 0
    for unit in units:
        full = files >= enough or weight >= _WAVE_WEIGHT * slots
        # The ranges of a file stay in one wave.
        if full and unit.path != wave[-1].path:
            yield wave
            wave, files, weight, enough = [], 0, 0, min(_WAVE_UNITS, enough * _WAVE_GROWTH)
        wave.append(unit)
        # The outcomes of a wave are in the driver's memory together.
        files += files_of(unit) or 1
        weight += weight_of(unit)
    if wave:
        yield wave


def bin_count(units: Sequence[Unit], slots: int) -> int:
    """Number of tasks for some units: full rounds of all slots, tasks of about a second, and at most four rounds.

    A Python task costs a tenth of a second, even if it does nothing.
    """
    total = sum(map(weight_of, units))
    rounds = min(_ROUNDS, max(1, round(total / (_TASK_WEIGHT * slots))))
    return max(1, min(len(units), slots * rounds))


def pack(units: Sequence[Unit], bins: int) -> list[list[Unit]]:
    """Distribute units, in the order of paths, over bins. None is empty; in each, units keep their order."""
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
