"""A regression test for speed: ags1 beside a peer in the same rounds, and the ratio beside a stored one.

python benchmark_regression.py [--update]       the first run, or --update, stores the ratios in baseline.jsonl

Exit codes: 0 nothing is slower, 1 something is, 2 the baseline is of another machine, 3 nobody can tell.
"""

import sys
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

import ags1
from ags1 import bench

SIZE, THRESHOLD = 16 << 20, 0.1
key = bytes(ags1.Key.generate())
plain = bytes(SIZE)
memory = bytearray(ags1.encrypted_length(SIZE))
peer = AESGCM(key)
small = [bytes(1024)] * 2000

questions = {
    "encrypt 16 MiB": (
        lambda: ags1.encrypt_into(plain, memory, key, threads=1),
        lambda: peer.encrypt(bytes(12), plain, None),
    ),
    "encrypt 2,000 buffers of 1 KiB": (
        lambda: ags1.encrypt_many(small, key, threads=1),
        lambda: [peer.encrypt(bytes(12), each, None) for each in small],
    ),
}

baseline = Path("baseline.jsonl")
update = "--update" in sys.argv or not baseline.exists()
before = {} if update else {each.figure: each for each in bench.read(baseline)}
for entry in before.values():
    # Of another CPU, kernel, OpenSSL or Python: that would compare machines, and says which.
    try:
        bench.require_same(entry.machine, bench.machine(), what=str(baseline))
    except bench.OtherMachineError as error:
        print(error)
        sys.exit(2)

# The machine is faster or slower from hour to hour, for both sides alike: so they take turns, and the ratio counts.
verdicts = set()
for name, (ours, theirs) in questions.items():
    expected = before[name].value if name in before else 1.0
    found = bench.compare(ours, theirs, seconds=1, limit=5, threshold=THRESHOLD, expected=expected)
    print(f"{name}: {found.speed.value:.2f} times the speed of the peer, {found.run.rounds} rounds")
    if update:
        ratio = found.ratio
        bench.append(baseline, [bench.entry(name, ratio.value, ratio.low, ratio.high, found.run.seconds)])
    else:
        print(f"  {found.ratio.value / expected:.3f} of the time before: {found.verdict}")
        verdicts.add(found.verdict)
sys.exit(1 if "slower" in verdicts else 3 if "undecided" in verdicts else 0)
