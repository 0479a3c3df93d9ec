"""Peak memory of work on large objects: the budget, what is on its way to or from the network, and little more."""

from __future__ import annotations

import sys

import pytest

from tests.checks import KEY, run_python
from tests.servers.s3 import S3Server

MIB = 1 << 20
SIZE = 256 * MIB
# What the process has before the work, as it says itself, is not counted.
MEASURE = """
    import sys, ags1
    from ags1.storage import Location, open_source
    place, budget = Location(sys.argv[1], {options!r}), int(sys.argv[2])
    target = Location(sys.argv[1] + ".new", place.storage_options)
    key = {key!r}
    # A first use brings the client and its threads.
    open_source(Location(sys.argv[1], place.storage_options)).read(0, 100)
    def peak():
        # Not ru_maxrss, which begins with the parent's.
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
    before = peak()
"""
# Whatever is ahead is in the budget once, and a second time while it is received or sealed. The parts of an upload that
# are on their way are not: four of 8 MiB, or two of 16 MiB where the size is not known, and what the client holds.
CASES = [
    ("read", 16 * MIB, 64 * MIB),
    ("read", 64 * MIB, 64 * MIB),
    ("encrypt", 16 * MIB, 112 * MIB),
    ("encrypt", 64 * MIB, 112 * MIB),
    ("write", 0, 144 * MIB),
]
WORK = {
    "read": """
    with ags1.open(place, key=key, memory_budget=budget) as reader:
        while reader.read(10_000): pass
""",
    "encrypt": """
    ags1.encrypt_file(place, target, key, memory_budget=budget)
""",
    "write": """
    with ags1.open(target, "wb", key=key) as writer:
        for _ in range(256): writer.write(bytes(1 << 20))
""",
}


@pytest.fixture
def large(s3_server: S3Server, s3_bucket: str) -> str:
    """An AGS1 object that is larger than all that any case may use."""
    import ags1

    name = f"s3://{s3_bucket}/large"
    with ags1.open(name, "wb", key=KEY, storage_options=s3_server.storage_options()) as writer:
        for _ in range(SIZE // MIB):
            writer.write(bytes(MIB))
    return name


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_is_bounded_by_the_budget(s3_server: S3Server, large: str) -> None:
    for work, budget, allowed in CASES:
        program = (MEASURE + WORK[work]).format(options=s3_server.storage_options(), key=KEY)
        program += "    print(peak() - before)\n"
        used = int(run_python(program, large, str(budget), timeout=600)) << 10
        assert used < 2 * budget + allowed, (work, budget, used)
