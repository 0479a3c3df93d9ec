"""The Iceberg side of the benchmarks: its questions, and Spark as a peer. Nothing here asserts a speed."""

import os

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyiceberg")
pytest.importorskip("fastavro")

from bench import bench_iceberg
from bench.spark_peer import SparkPeer
from tests.iceberg import warehouse

MAKING_SECONDS = 900


@pytest.fixture(scope="module")
def events():
    """A table that Spark made."""
    if (reason := warehouse.available()) is not None:
        refuse = pytest.fail if os.environ.get("AGS1_NO_SKIP") else pytest.skip
        refuse(f"Spark with Iceberg cannot run here: {reason}")
    return warehouse.make_tables()["events"]


@pytest.mark.parametrize("rows", [1000, 2_000_000])
def test_the_filter_selects_one_row_in_a_hundred(rows):
    low, high = (int(part.split()[-1]) for part in bench_iceberg.question("filter", rows).where.split(" and "))
    assert 0 < low < high < rows
    assert high - low == rows // 100


def test_each_scan_asks_something_else():
    asked = [bench_iceberg.question(which, 1000) for which in bench_iceberg.SCANS]
    assert len({each.words for each in asked}) == len({(each.columns, each.where) for each in asked}) == 3


@pytest.mark.nightly
@pytest.mark.timeout(MAKING_SECONDS)
def test_spark_and_ags1_scan_the_same_rows_and_columns(events):
    narrow = bench_iceberg.Question("some", columns=("id",), where="id < 100")
    everything = bench_iceberg.Question("all")
    with SparkPeer(long_lived=False) as spark:
        for asked in (narrow, everything):
            mine = bench_iceberg._ours(events.metadata, asked)()
            answer = spark.scan(events.metadata, asked.columns, asked.where, to_python=True)
            assert (answer["rows"], answer["columns"]) == (mine.num_rows, mine.num_columns)
            assert answer["seconds"] > 0
        dropped = spark.scan(events.metadata, None, None, to_python=False)
        assert dropped.keys() == {"seconds"}
        assert mine.num_rows == len(events.current.rows)
        # What Spark cannot answer ends it, and the benchmark says why.
        with pytest.raises(RuntimeError, match=r"(?s)Spark ended: .*no_such_column"):
            spark.scan(events.metadata, ["no_such_column"], None, to_python=True)
