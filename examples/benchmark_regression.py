"""A regression test for speed: measure ags1 beside a floor in the same run, and compare the ratio with a stored one.

python benchmark_regression.py [--update]       the first run, or --update, stores the ratios in baseline.json
"""

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

import ags1

SIZE, ROUNDS, TOLERANCE = 16 << 20, 15, 0.8
key = bytes(ags1.Key.generate())
plain = bytes(SIZE)
memory = bytearray(ags1.encrypted_length(SIZE))
peer = AESGCM(key)
small = [bytes(1024)] * 2000


def seconds(work: Callable[[], object]) -> float:
    """Return how long `work` takes."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


questions: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
    "encrypt 16 MiB": (
        lambda: ags1.encrypt_into(plain, memory, key, threads=1),
        lambda: peer.encrypt(bytes(12), plain, None),
    ),
    "encrypt 2,000 buffers of 1 KiB": (
        lambda: ags1.encrypt_many(small, key, threads=1),
        lambda: [peer.encrypt(bytes(12), each, None) for each in small],
    ),
}

# The machine is faster or slower from hour to hour, for both sides alike: so they take turns, and the ratio counts.
ratios = {}
for name, (ours, floor) in questions.items():
    rounds = [(seconds(floor), seconds(ours)) for _ in range(ROUNDS)]
    ratios[name] = statistics.median(theirs for theirs, _ in rounds) / statistics.median(mine for _, mine in rounds)
    print(f"{name}: {ratios[name]:.2f} times the speed of the peer")

baseline = Path("baseline.json")
if "--update" in sys.argv or not baseline.exists():
    baseline.write_text(json.dumps({"backend": ags1.backend()["openssl_version"], "ratios": ratios}, indent=2))
    print("stored in baseline.json")
else:
    before = json.loads(baseline.read_text())["ratios"]
    slower = [name for name in ratios if name in before and ratios[name] < TOLERANCE * before[name]]
    for name in slower:
        print(f"SLOWER: {name}: {ratios[name]:.2f}, was {before[name]:.2f}")
    sys.exit(1 if slower else 0)
