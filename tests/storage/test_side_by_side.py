"""How many files are worked on at once, by where they are and how large they are."""

from __future__ import annotations

import pytest

from ags1.storage import Location, are_small_objects, files_at_once


@pytest.mark.parametrize(
    ("path", "remote"), [("s3://bucket/a.parquet", True), ("file:///lake/a.parquet", False), ("/lake/a.parquet", False)]
)
@pytest.mark.parametrize("cpus", [1, 2, 64])
def test_files_in_a_store_are_opened_side_by_side(path: str, remote: bool, cpus: int) -> None:
    place = Location(path)
    for size, most in ((2 << 20, 16), (1 << 10, 32)):
        assert files_at_once(place, [size] * 3, cpus) == (max(most, cpus) if remote else cpus)
        assert are_small_objects(place, [size] * 3) == (remote and size < 1 << 20)
    assert not are_small_objects(place, [])
    assert not are_small_objects(place, [1])
