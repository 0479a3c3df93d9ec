"""How throughput depends on block length and threads: the data of the picture."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import ags1
from ags1.bench import Run
from bench import peer, settings
from bench.bench_memory import name_of
from bench.conftest import KEY, Record
from bench.floors import Floors
from bench.measure import best_loop, figure

LENGTHS = [256, 1024, 4096, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20]
# Enough to leave every cache; more would only let the peer take minutes at 256 B.
LARGEST = 256 << 20


@pytest.mark.parametrize("threads", [n for n in settings.load().threads if n <= 2])
@pytest.mark.parametrize("block_length", LENGTHS, ids=lambda n: name_of(n).replace(" ", ""))
def test_throughput(
    block_length: int,
    threads: int,
    sizes: settings.Settings,
    plaintext: Any,
    room: Any,
    loops: dict[str, Floors],
    interleave: Callable[..., Run],
    record: Record,
) -> None:
    data = plaintext[: min(plaintext.nbytes, LARGEST)]
    run = interleave(
        {
            "ags1": lambda: ags1.encrypt_into(data, room, KEY, block_length=block_length, threads=threads),
            **{
                f"C loop, {library}": lambda each=each: each.seal(data, room, KEY, block_length, threads)
                for library, each in loops.items()
            },
            "cryptography": lambda: peer.seal(data, room, KEY, block_length, threads),
        },
        seconds=sizes.seconds / 2,
    )
    note = best_loop(run)
    question = f"throughput, {name_of(block_length)} blocks, {threads} thread{'s' * (threads > 1)}"
    gbps = {name: data.nbytes / run.median(name) / 1e9 for name in run.seconds}
    record(
        run,
        figure(run, question, "C loop", kind="floor", nbytes=data.nbytes, note=note),
        figure(run, question, "cryptography", kind="peer", nbytes=data.nbytes),
        block_length=block_length,
        threads=threads,
        gbps=gbps,
    )
