"""Compare ags1 with another library, and the ratio with the ratio that an earlier run has stored.

Exit codes: 0 not slower, 1 slower, 2 the stored ratio is of another machine, 3 undecided.
"""

import sys
from functools import partial
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

import ags1
from ags1 import bench

key, plain = bytes(ags1.Key.generate()), bytes(16 << 20)
memory = bytearray(ags1.encrypted_length(len(plain)))
peer = AESGCM(key)

mine = partial(ags1.encrypt_into, plain, memory, key, threads=1)
other = partial(peer.encrypt, bytes(12), plain, None)

baseline = Path("baseline.jsonl")
if not baseline.exists():
    found = bench.compare(mine, other, seconds=1, limit=5)
    ratio = found.ratio
    print(f"{found.speed.value:.2f} times the speed of the other library")
    bench.append(baseline, [bench.entry("encrypt 16 MiB", ratio.value, ratio.low, ratio.high, found.run.seconds)])
    sys.exit()

before = bench.read(baseline)[-1]
try:
    bench.require_same(before.machine, bench.machine(), what=str(baseline))
except bench.OtherMachineError as error:
    print(error)
    sys.exit(2)
found = bench.compare(mine, other, seconds=1, limit=5, threshold=0.1, expected=before.value)
print(f"{found.ratio.value / before.value:.3f} of the time before: {found.verdict}")
sys.exit({"slower": 1, "undecided": 3}.get(found.verdict, 0))
