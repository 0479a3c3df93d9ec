"""Row filters against Spark's own: a sample of what tests/iceberg_tables/soak_filters.py does at length."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.iceberg_tables.conftest import require_spark
from tests.iceberg_tables.soak_filters import FilterPeer, compare

SECONDS = 600


@pytest.fixture(scope="module")
def peer() -> Iterator[FilterPeer]:
    require_spark()
    with FilterPeer() as started:
        yield started


@pytest.mark.timeout(SECONDS)
def test_random_filters_of_random_tables_pass_the_rows_that_spark_passes(peer: FilterPeer) -> None:
    for seed in (1, 2, 3):
        outcome = compare(peer, seed, 120)
        assert outcome.differences == []
        # Filters that pass all rows or none, and files that are all read, would show nothing.
        assert outcome.matched > 40
        assert outcome.pruned > 10
