"""That deletion vectors which ags1 writes are read again, by ags1 and by PyIceberg."""

from __future__ import annotations

import io
import json
import random
import resource
import struct
import zlib
from typing import Any

import pytest
from pyiceberg.table.puffin import PuffinFile
from pyroaring import BitMap64

from ags1.errors import FormatError
from ags1.iceberg.deletes import DeletionVector
from ags1.iceberg.scan.deletion_vectors import deleted_positions, footer_contradictions, write_vectors
from tests.checks import in_child


def _random_positions(chance: random.Random) -> BitMap64:
    high = chance.choice([1 << 10, 1 << 20, 1 << 34])
    return BitMap64(chance.randrange(high) for _ in range(chance.randrange(2000)))


def test_random_vectors_are_read_as_they_were_written() -> None:
    chance = random.Random(7)
    for _ in range(40):
        vectors = [(f"s3://lake/data-{index}.parquet", _random_positions(chance)) for index in range(5)]
        data, named = write_vectors("p", vectors)
        found = deleted_positions(io.BytesIO(data), named)
        for vector, (path, positions) in zip(named, vectors, strict=True):
            assert vector.data_file == path
            assert found[vector] == positions
        assert footer_contradictions(io.BytesIO(data), named) == []


def test_pyiceberg_reads_them() -> None:
    vectors = [("a.parquet", BitMap64([0, 5, 1 << 33])), ("b.parquet", BitMap64(range(100)))]
    data, _ = write_vectors("p", vectors)
    with pytest.warns(DeprecationWarning, match="to_vector"):
        read = PuffinFile(data).to_vector()
    assert {path: sorted(each.to_pylist()) for path, each in read.items()} == {
        path: sorted(positions) for path, positions in vectors
    }


def test_a_vector_in_a_file_that_is_no_puffin_file_contradicts_nothing() -> None:
    data, (vector,) = write_vectors("p", [("a.parquet", BitMap64([1, 7]))])
    bare = data[vector.offset : vector.offset + vector.size]
    alone = DeletionVector("p", "a.parquet", 0, vector.size, 2)
    assert deleted_positions(io.BytesIO(bare), [alone]) == {alone: BitMap64([1, 7])}
    assert footer_contradictions(io.BytesIO(bare), [alone]) == []
    with pytest.raises(FormatError, match="does not end as a Puffin file"):
        footer_contradictions(io.BytesIO(data[:-1]), [vector])


def test_bitmaps_of_more_positions_than_the_manifest_says_take_no_memory() -> None:
    """The threat: a megabyte that claims 2^32 deleted rows, which are 32 GiB."""
    count = 1 << 16
    descriptions = b"".join(struct.pack("<HH", each, count - 1) for each in range(count))
    runs = struct.pack("<HHH", 1, 0, count - 1) * count
    bitmap = (
        struct.pack("<I", 12347 | (count - 1) << 16) + b"\xff" * (count // 8) + descriptions + bytes(4 * count) + runs
    )
    content = b"\xd1\xd3\x39\x64" + struct.pack("<QI", 1, 0) + bitmap
    blob = struct.pack(">I", len(content)) + content + struct.pack(">I", zlib.crc32(content))
    vector = DeletionVector("p.puffin", "data.parquet", 0, len(blob), 5)

    def work() -> bytes:
        with pytest.raises(FormatError, match="deletes 4294967296 rows, and the manifest says 5"):
            deleted_positions(io.BytesIO(blob), [vector])
        return str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss).encode()

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert int(in_child(work)) - before < 256 << 10


@pytest.mark.parametrize("place", [{"offset": [4]}, {"length": {}}, {"offset": None}, {"offset": 4.0}, {}])
def test_blobs_of_a_footer_that_say_no_place_are_none(place: dict[str, Any]) -> None:
    blob = {"type": "deletion-vector-v1", "offset": 5, "length": 30, **place}
    footer = json.dumps({"blobs": [blob]}).encode()
    data = b"PFA1" + b"PFA1" + footer + struct.pack("<II", len(footer), 0) + b"PFA1"
    vector = DeletionVector("p.puffin", "data.parquet", 4, 30, 1)
    assert footer_contradictions(io.BytesIO(data), [vector]) == ["its footer lists no deletion vector at offset 4"]
