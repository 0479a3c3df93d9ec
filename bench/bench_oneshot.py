"""What a result in a new object costs, beside writing into memory that is there.

The floor is put together from two subjects of the same round: the into-call, and taking fresh memory from the
system with every page touched by as many threads, on huge pages or small ones, whichever is faster here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import ags1
from ags1.bench import Run
from bench import settings
from bench.bench_memory import name_of
from bench.conftest import KEY, Record
from bench.floors import Floors
from bench.measure import Figure, figure

TARGET = 1.10
# Smaller results come from memory that the allocator has kept: there fresh memory is no floor.
SIZES = ["64 MiB", "all"]


def _size(name: str, sizes: settings.Settings) -> int:
    return min(sizes.nbytes, {"64 MiB": 64 << 20, "all": sizes.nbytes}[name])


def _figure(run: Run, what: str, size: int) -> Figure:
    best = run.fastest("huge pages", "small pages")
    floor = f"into-call + fresh memory ({best})"
    run.add_sum(floor, "into", best)
    question = f"{what} of {name_of(size)} into a new object"
    note = f"into-call {run.median('into') * 1e3:.3g} ms, fresh memory {run.median(best) * 1e3:.3g} ms"
    return figure(run, question, floor, kind="floor", measure="time", target=TARGET, nbytes=size, note=note)


def _memory(floors: Floors, size: int) -> dict[str, Callable[[], object]]:
    return {
        "huge pages": lambda: floors.touch(size, huge=True, threads=settings.cpus()),
        "small pages": lambda: floors.touch(size, huge=False, threads=settings.cpus()),
    }


@pytest.mark.parametrize("size_name", SIZES)
def test_encrypt(
    size_name: str,
    sizes: settings.Settings,
    plaintext: Any,
    room: Any,
    floors: Floors,
    interleave: Callable[..., Run],
    record: Record,
) -> None:
    size = _size(size_name, sizes)
    data = plaintext[:size]
    run = interleave(
        {
            "ags1": lambda: ags1.encrypt(data, KEY),
            "into": lambda: ags1.encrypt_into(data, room, KEY),
            **_memory(floors, ags1.encrypted_length(size)),
        },
        fresh=2 * size,
    )
    record(run, _figure(run, "encrypt", size))


@pytest.mark.parametrize("size_name", SIZES)
def test_decrypt(
    size_name: str,
    sizes: settings.Settings,
    plaintext: Any,
    room: Any,
    back: Any,
    floors: Floors,
    interleave: Callable[..., Run],
    record: Record,
) -> None:
    size = _size(size_name, sizes)
    stream = room[: ags1.encrypt_into(plaintext[:size], room, KEY)]
    run = interleave(
        {
            "ags1": lambda: ags1.decrypt(stream, KEY),
            "into": lambda: ags1.decrypt_into(stream, back, KEY),
            **_memory(floors, size),
        },
        fresh=2 * size,
    )
    record(run, _figure(run, "decrypt", size))
