"""Plans, audits and verifications of 100,000 files take the memory of what they name, not that of what describes it."""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pytest

from ags1.avro import iter_blocks, read_header
from ags1.avro.codecs import decompressor
from ags1.iceberg import create_table
from ags1.iceberg.catalogs import catalog_table
from ags1.iceberg.metadata.locations import location_of
from ags1.iceberg.metadata.manifests import ADDED, DATA, ManifestEntry
from ags1.iceberg.writing.commit import commit
from ags1.iceberg.writing.manifest_avro import write_manifest
from ags1.iceberg.writing.partitioning import Partitioning
from ags1.iceberg.writing.snapshot import SnapshotWriter
from ags1.keys import KeyMetadata
from ags1.kms import MemoryKms
from ags1.support.avro_encoding import container_start, encoded_block
from tests.checks import run_python

FILES, MANIFESTS, COLUMNS = 100_000, 20, 16
MASTER = {"lake": bytes(16)}
_METRICS = ("column_sizes", "value_counts", "null_value_counts", "lower_bounds", "upper_bounds")

MEASURE = """
import re, sys
from ags1.iceberg import load_table
from ags1.iceberg.conversion.manifests import Contents
from ags1.iceberg.files.file_io import SnapshotFiles
from ags1.iceberg.writing.metadata import TableMetadata
from ags1.kms import MemoryKms

def peak():
    # getrusage() would count what the parent had when it started this process.
    with open("/proc/self/status") as status:
        return 1024 * int(re.search(r"VmHWM:\\s*(\\d+) kB", status.read())[1])

def plan(path):
    table = load_table(None, path, kms=MemoryKms({"lake": bytes(16)}))
    if sys.argv[3] == "conversion":
        return list(Contents(TableMetadata(table.document.fields), SnapshotFiles(table.io), {}).entries())
    if sys.argv[3] in ("audit", "verify"):
        report = getattr(table, sys.argv[3])()
        return range(report.facts.get("files", report.checked["files"]))
    return table.scan(row_filter=sys.argv[3] or None).plan_files()

# What is imported and kept for every plan.
plan(sys.argv[1])
before = peak()
found = plan(sys.argv[2])
print(len(found), peak() - before)
"""


def entry(index: int, location: str) -> ManifestEntry:
    """A data file with metrics of every column; XX stands for the number of its manifest."""
    metrics: dict[str, Any] = {name: [] for name in _METRICS}
    for column in range(1, COLUMNS + 1):
        lower, upper = (100 * index).to_bytes(8, "little"), (100 * index + 99).to_bytes(8, "little")
        for name, value in zip(_METRICS, (5000 + index, 100, column % 2, lower, upper), strict=True):
            metrics[name].append({"key": column, "value": value})
    file = {
        "content": DATA,
        "file_path": f"{location}/data/part-XX-{index:08}-0f5c1e0a-7d0b-4d5e-9c3e-2f5a1e8b7c6d.parquet",
        "file_format": "PARQUET",
        "partition": {},
        "record_count": 100,
        "file_size_in_bytes": 100_000 + index,
        "key_metadata": KeyMetadata.generate(128).with_length(100_000 + index).encode(),
        "split_offsets": [4],
        **metrics,
    }
    return ManifestEntry(ADDED, 0, None, None, file)


def renamed(manifest: bytes, number: int) -> bytes:
    """The manifest with other paths, without encoding its entries once more."""
    header = read_header(io.BytesIO(manifest))
    inflate = decompressor("deflate")
    made = [container_start(header.metadata, header.marker)]
    for block in iter_blocks(io.BytesIO(manifest), 0, len(manifest)):
        data = inflate(block.data).replace(b"/part-XX-", b"/part-%02d-" % number)
        packer = zlib.compressobj(1, wbits=-15)
        packed = packer.compress(data) + packer.flush()
        made.append(encoded_block(block.count, packed, header.marker))
    return b"".join(made)


def lake(directory: Path | str, manifests: int, files: int) -> str:
    """An encrypted table with so many manifests of so many files each, none of which is there."""
    kms = MemoryKms(MASTER)
    schema = pyarrow.schema([(f"c{number}", pyarrow.int64()) for number in range(COLUMNS)])
    table = create_table(None, str(directory), schema, kms=kms, key_id="lake")
    entries = [entry(index, str(directory)) for index in range(files)]
    partitioning = Partitioning(table.table.spec(), table.schema)

    def attempt(_state: Any, metadata: Any, written: Any) -> bool:
        writer = SnapshotWriter(metadata, written, kms)
        writer.add(partitioning.manifest(DATA, entries), None)
        like = writer.manifests.pop()
        plain = write_manifest(partitioning.manifest(DATA, entries))
        for number in range(manifests):
            path = written.new_metadata_path(f"manifest-{number}.avro")
            length, key = written.write(path, renamed(plain, number))
            writer.keep({**like, "manifest_path": path, "manifest_length": length, "key_metadata": key.encode()})
        totals = {"total-records": str(100 * manifests * files), "total-data-files": str(manifests * files)}
        writer.finish("append", totals)
        return True

    commit(catalog_table(None, str(directory)), location_of, attempt)
    return str(directory)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[int, int]]:
    """Files that a plan finds in the large table, and by how much the process grew for it at the most."""
    if not Path("/proc/self/status").exists():
        pytest.skip("there is no /proc, which says how large a process was")
    directory = tmp_path_factory.mktemp("large")
    small, large = lake(directory / "small", 1, 10), lake(directory / "large", MANIFESTS, FILES // MANIFESTS)

    def measure(what: str) -> tuple[int, int]:
        found, grown = run_python(MEASURE, small, large, what).split()
        return int(found), int(grown)

    return measure


# A task or an entry: a few objects of Python, each of which has some hundred bytes, a path and a key.
BYTES_OF_A_FILE = 3 << 10
# Of 100,000 files the metrics alone would be five times as much: 80 pairs of each file, of which each is a dict.
BYTES_OF_THE_METRICS = COLUMNS * len(_METRICS) * 184


@pytest.mark.parametrize("row_filter", ["", "c0 >= 0"])
def test_a_plan_of_many_files_keeps_no_metrics(measured: Callable[[str], tuple[int, int]], row_filter: str) -> None:
    found, grown = measured(row_filter)
    assert found == FILES
    assert grown < FILES * BYTES_OF_A_FILE < FILES * BYTES_OF_THE_METRICS // 4


def test_files_that_are_left_out_take_no_memory(measured: Callable[[str], tuple[int, int]]) -> None:
    found, grown = measured("c0 = 150")
    assert found == MANIFESTS
    # Those of the manifests that are read at once, a few times each: stored, inflated, decoded block by block.
    assert grown < FILES * BYTES_OF_A_FILE // 6


def test_a_conversion_holds_a_table_without_its_metrics(measured: Callable[[str], tuple[int, int]]) -> None:
    found, grown = measured("conversion")
    assert found == FILES
    assert grown < FILES * BYTES_OF_A_FILE


@pytest.mark.parametrize("action", ["audit", "verify"])
def test_an_audit_or_a_verification_holds_little_of_each_file(
    measured: Callable[[str], tuple[int, int]], action: str
) -> None:
    found, grown = measured(action)
    # The manifests and their list, too.
    assert found == FILES + MANIFESTS + 1
    assert grown < FILES * BYTES_OF_A_FILE // 3
