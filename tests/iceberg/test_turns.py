"""Operations by Spark and ags1 in turns: a sample of soak_turns."""

from __future__ import annotations

from tests.iceberg.soak_turns import trial
from tests.iceberg.warehouse import HiveLake


def test_spark_and_ags1_in_turns_show_the_same_rows_and_numbers(hive_lake: HiveLake) -> None:
    trial(hive_lake, seed=1, operations=6)
