"""Random changes and conversions of a table: a sample of soak_table_changes."""

from __future__ import annotations

import pytest

from tests.iceberg.soak_table_changes import trial


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_random_changes_are_those_of_a_list_of_rows(seed: int) -> None:
    trial(seed, steps=12)
