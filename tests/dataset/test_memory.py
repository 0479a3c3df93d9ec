"""Trees of any number of files behind URLs: what a run holds of their names does not grow with them."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator

import pytest

from ags1.dataset.selection import Filter
from ags1.dataset.sources import scan
from ags1.dataset.writing import StoredSizes
from ags1.layout import encrypted_length
from ags1.storage import Location

FEW, MANY = 40_000, 80_000
PLACE = Location("s3://lake/raw", {"key": "a", "secret": "b"})


def name_of(index: int) -> str:
    return f"year=2026/month=01/part-{index:07}.parquet"


@pytest.fixture
def store_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Make the store one of so many objects, as far as its listing goes: a real one would take minutes to fill."""
    pytest.importorskip("obstore")
    import ags1.storage.objects as _objects

    def fill(count: int) -> None:
        def listed(location: Location, on_error: object) -> Iterator[tuple[str, int, str, int]]:
            for index in range(count):
                yield f"raw/{name_of(index)}", encrypted_length(100), f'"{index:032x}"', 1_700_000_000_000_000_000

        monkeypatch.setattr(_objects, "list_objects", listed)

    return fill


def look_at_sources(count: int) -> None:
    assert sum(1 for _ in scan(PLACE, "", Filter(), None, lambda path, why: None)) == count


def look_at_objects(count: int) -> None:
    present = StoredSizes(PLACE)
    assert all(present.has_all(iter([(name_of(index), 100)])) for index in range(count))
    present.close()


@pytest.mark.parametrize("look", [look_at_sources, look_at_objects])
def test_names_behind_a_url_are_not_held_in_memory(
    store_of: Callable[[int], None], look: Callable[[int], None]
) -> None:
    peaks = []
    for count in (FEW, MANY):
        store_of(count)
        tracemalloc.start()
        try:
            look(count)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    # An entry of a listing by itself would take some hundreds of bytes.
    assert (peaks[1] - peaks[0]) / (MANY - FEW) < 10
