"""That deletion vectors which ags1 writes are read again, by ags1 and by PyIceberg."""

from __future__ import annotations

import io
import random

import pytest
from pyiceberg.table.puffin import PuffinFile
from pyroaring import BitMap64

from ags1.iceberg.deletion_vectors import deleted_positions, footer_contradictions
from ags1.iceberg.writing.puffin import write_vectors


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
            assert found[vector].to_pylist() == sorted(positions)
        assert footer_contradictions(io.BytesIO(data), named) == []


def test_pyiceberg_reads_them() -> None:
    vectors = [("a.parquet", BitMap64([0, 5, 1 << 33])), ("b.parquet", BitMap64(range(100)))]
    data, _ = write_vectors("p", vectors)
    with pytest.warns(DeprecationWarning, match="to_vector"):
        read = PuffinFile(data).to_vector()
    assert {path: sorted(each.to_pylist()) for path, each in read.items()} == {
        path: sorted(positions) for path, positions in vectors
    }
