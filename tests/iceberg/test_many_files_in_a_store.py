"""A table of so many files that only their number counts: requests and memory of each step, over a store that counts.

The data files are not there: a mock moves them, which says what it would have made of each.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.checks import run_python
from tests.iceberg.test_large_plans import MANIFESTS

FILES = 30_000

STEP = """
import datetime, json, re, sys
from pathlib import Path
from ags1.iceberg import clean, expire_snapshots, load_table, rekey_table
from ags1.iceberg.conversion.work import FileResult, sealed_key
from ags1.keys import KeyMetadata
from ags1.kms import MemoryKms
from tests.iceberg.counting_store import CountingStore

directory, step, *places = sys.argv[1:]
store = CountingStore(Path(directory))

def mock_of_moving(tasks, journal, places):
    seal = journal.open(kms)
    for task in tasks:
        length = task.length + 100
        key = sealed_key(seal, KeyMetadata.generate(128).with_length(length), task.target)
        yield FileResult(task.source, task.target, length, key, (4,), task.origin)

def peak():
    # getrusage() would count what the parent had when it started this process.
    return 1024 * int(re.search(r"VmHWM:\\s*(\\d+) kB", Path("/proc/self/status").read_text())[1])

def make(place):
    from tests.iceberg.test_large_plans import MANIFESTS, lake

    lake(place, 1 if place.endswith("small") else MANIFESTS, int(places[1].rpartition("-")[2]) // MANIFESTS)

def done(place):
    if step == "make":
        return make(place)
    table = load_table(None, place, kms=kms)
    if step == "plan":
        return len(table.scan().plan_files())
    if step == "convert":
        return rekey_table(table, key_id="next", data_keys=True, perform=mock_of_moving).files
    if step == "expire":
        return expire_snapshots(table).files["data"]
    return clean(table, older_than=datetime.timedelta(0)).recent

kms = MemoryKms({"lake": bytes(16), "next": bytes(range(16))})
# What is imported and kept for every table.
done(places[0])
before, store.deleted = peak(), 0
store.requests.clear()
count = done(places[1])
print(json.dumps([count, peak() - before, store.deleted, store.requests]))
"""

# Bytes for each file, and requests for each manifest and further ones: each step reads or writes a manifest so often.
BOUNDS = {
    "plan": (3 << 10, 1, 8),
    # Read for the plan, and with its metrics for the commit; written; read to count its rows. What old keys open is
    # looked for in the old snapshot and in the new one.
    "convert": (3 << 10, 6, 32),
    # The old snapshot and the new one, which is read twice: what it needs, and what it marks as deleted.
    "expire": (2 << 10, 3, 12),
    "clean": (1 << 10, 1, 12),
}


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[int]]:
    """What each step found, by how much its process grew at the most, what it deleted, and its requests."""
    if not Path("/proc/self/status").exists():
        pytest.skip("there is no /proc, which says how large a process was")
    directory = str(tmp_path_factory.mktemp("store"))
    places = ("s3://lake/small", f"s3://lake/large-{FILES}")
    found = {step: json.loads(run_python(STEP, directory, step, *places)) for step in ("make", *BOUNDS)}
    return found.__getitem__


@pytest.mark.parametrize("step", BOUNDS)
def test_a_step_takes_little_for_each_file_and_few_requests_for_each_manifest(
    step: str, steps: Callable[[str], list[int]]
) -> None:
    count, grown, deleted, requests = steps(step)
    assert count == (0 if step == "clean" else FILES)
    for_each_file, for_each_manifest, further = BOUNDS[step]
    assert grown < FILES * for_each_file
    # Of a thousand files each.
    deletions = requests.pop("delete", 0)
    assert deletions <= deleted // 1000 + 3
    assert (deleted >= FILES) == (step == "expire")
    assert sum(requests.values()) <= for_each_manifest * MANIFESTS + further
