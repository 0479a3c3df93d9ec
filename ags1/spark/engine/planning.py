"""Planning: units are gathered into waves, and the units of a wave are packed into bins, one for each task.

    units: whole files, and ranges of big ones  --gathered-->  waves  --pack-->  bins of nearly the same weight

Pure functions: no file system, no Spark. The cost of a file is its bytes plus a constant. Neighbours stay together; a
bin has its share, and at most one unit more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

PART_BYTES = 256 << 20
"""Plaintext bytes of a range, by default."""
_FILE_WEIGHT = 256 << 10
_TASK_WEIGHT = 2 << 30
_ROUNDS = 4
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
    """

    path: str
    size: int
    data: Any = None
    start: int = 0
    whole: int = -1


def files_of(unit: Any) -> int:
    """Number of files that begin in a unit: 0 for a later range of a file."""
    return 0 if unit.start else 1


def weight_of(unit: Any) -> int:
    """Cost of a unit in bytes. Opening, creating and renaming a file count as a number of bytes."""
    size: int = unit.size
    return size + _FILE_WEIGHT


def gathered(units: Iterable[Any], slots: int) -> Iterator[list[Any]]:
    """Units in waves, in their order."""
    wave: list[Any] = []
    enough, weight = _FIRST_WAVE_UNITS, 0
    for unit in units:
        full = len(wave) >= enough or weight >= _WAVE_WEIGHT * slots
        # The ranges of a file stay in one wave.
        if full and unit.path != wave[-1].path:
            yield wave
            wave, weight, enough = [], 0, min(_WAVE_UNITS, enough * _WAVE_GROWTH)
        # The outcomes of a wave are in the driver's memory together.
        wave.append(unit)
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


def pack(units: Sequence[Any], bins: int) -> list[list[Any]]:
    """Distribute units, in the order of paths, over bins of nearly the same weight. None is empty."""
    weights = list(map(weight_of, units))
    total, before = sum(weights), 0
    packed: list[list[Any]] = [[] for _ in range(bins)]
    for unit, weight in zip(units, weights, strict=True):
        # By the middle of the unit.
        packed[(2 * before + weight) * bins // (2 * total)].append(unit)
        before += weight
    return [each for each in packed if each]
