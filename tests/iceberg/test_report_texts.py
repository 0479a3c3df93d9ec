"""What reports of conversions say to a person."""

from __future__ import annotations

import pytest

from ags1.iceberg.conversion.reports import ConversionPlan, ConversionReport


@pytest.mark.parametrize(
    ("snapshots", "said"), [([1], "1 old snapshot and all its files"), ([1, 2], "2 old snapshots and all their files")]
)
@pytest.mark.parametrize("change", ["encrypt", "rekey", "decrypt"])
def test_what_stays_of_old_snapshots_is_said_in_numbers(change: str, snapshots: list[int], said: str) -> None:
    plan = ConversionPlan(change, "db.t", "lake", format_version=2, snapshots=snapshots, plaintext=snapshots)
    assert f"\n{said} stay " in str(plan)
    assert f"{said} " in str(ConversionReport(change, "db.t", "lake", remaining=snapshots, plaintext=snapshots))
