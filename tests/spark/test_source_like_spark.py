"""CSV and JSON are read as ``spark.read`` reads them: random texts of every form, rows and inferred schemas."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from tests.spark.like_spark import SCENARIOS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("name", SCENARIOS)
def test_texts_are_read_as_spark_reads_them(spark: SparkSession, tmp_path: Path, name: str) -> None:
    scenario, count = SCENARIOS[name]
    for number in range(count):
        scenario(spark, tmp_path / str(number), random.Random(f"{name} {number}"), number)
