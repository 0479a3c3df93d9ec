"""Which library gives the faster AES-GCM on this CPU: ``python -m bench.ciphers``, in less than a minute.

The C loop on BoringSSL beside the same loop on OpenSSL, on one thread, by the length of a message: in cache, and over
64 MiB. A row of ags1/core/choice.py wants BoringSSL to gain at some lengths, and to lose at none. The clock is that of
the thread: other work on the machine shares caches and memory with it, and nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import ags1
from ags1 import bench
from bench import floors
from bench.bench_memory import name_of
from bench.settings import MIB

KEY = bytes(range(32))
# Total bytes, lengths of messages, seconds for each question.
PLACES = (
    ("cache", MIB // 4, (64, 256, 512, 1024, 2048, 4096, 8192, 16_384, 65_536, MIB // 4), 0.7),
    ("memory", 64 * MIB, (256, 1024, 4096, 16_384, 65_536, MIB), 2.0),
)
LOSS = 0.98


def ratios(block_length: int, data: Any, room: Any, back: Any, seconds: float) -> tuple[bench.Ratio, bench.Ratio]:
    """Speed of BoringSSL over that of OpenSSL: encryption, decryption."""
    loops = floors.loops()
    stream = room[: ags1.encrypt_into(data, room, KEY, block_length=block_length)]

    def seal(loop: floors.Floors) -> Callable[[], object]:
        return lambda: loop.seal(data, room, KEY, block_length, 1)

    def open_(loop: floors.Floors) -> Callable[[], object]:
        return lambda: loop.open(stream, data.nbytes, back, KEY, block_length, 1)

    found = []
    for work in (seal, open_):
        subjects = {name: bench.Subject(work(loop)) for name, loop in loops.items()}
        run = bench.interleave(
            subjects, seconds=seconds, max_rounds=2000, min_rounds=9, precision=0.002, clock=time.thread_time
        )
        found.append(run.speed_ratio("BoringSSL", "OpenSSL"))
    return found[0], found[1]


def main() -> int:
    """Print a table and what it says; return 1 where BoringSSL cannot be built."""
    if len(floors.loops()) < 2:
        print("BoringSSL cannot be built here.")
        return 1
    machine = bench.machine()
    print(f"{machine['cpu_model']} ({machine['cpu_id']}, {machine['aes_gcm']}), load {bench.load_average()}")
    print("| where | message | encrypt | decrypt |\n|---|---|---|---|")
    everything: list[bench.Ratio] = []
    for where, nbytes, lengths, seconds in PLACES:
        data = np.random.default_rng(1).integers(0, 256, nbytes, np.uint8)
        room, back = np.ones(ags1.encrypted_length(nbytes, lengths[0]), np.uint8), np.ones(nbytes, np.uint8)
        for length in lengths:
            both = ratios(length, data, room, back, seconds)
            everything += both
            cells = " | ".join(f"{each.value:.2f} [{each.low:.2f}, {each.high:.2f}]" for each in both)
            print(f"| {where} | {name_of(length)} | {cells} |", flush=True)
    lost = sum(each.high < LOSS for each in everything)
    gained = sum(each.low > 1 / LOSS for each in everything)
    print(f"BoringSSL gains at {gained} of {len(everything)} and loses at {lost}, where others are equal or undecided.")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
