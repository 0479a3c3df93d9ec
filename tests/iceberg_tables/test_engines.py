"""Scans in polars, in DuckDB and in whatever else reads Arrow streams: the same rows, and no more read than needed."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow
import pytest

from ags1.iceberg import EncryptedTable, create_table
from ags1.iceberg.tables import EncryptedTableScan
from ags1.kms import MemoryKms
from tests.iceberg_tables.arrow_tables import RandomRows
from tests.iceberg_tables.canonical import arrow_rows, sorted_rows
from tests.iceberg_tables.keys import MASTER_KEYS
from tests.iceberg_tables.random_queries import PlainTable

ROWS = pyarrow.table(
    {
        "id": pyarrow.array(range(100), pyarrow.int64()),
        "x": [None if each % 7 == 0 else float("nan") if each % 5 == 0 else each / 4 for each in range(100)],
        "f": pyarrow.array([each / 10 for each in range(100)], pyarrow.float32()),
        "c": [f"c{each // 25}" for each in range(100)],
    }
)


@pytest.fixture
def table(tmp_path: Path) -> EncryptedTable:
    made = create_table(None, str(tmp_path / "t"), ROWS.schema, ["c"], kms=MemoryKms(MASTER_KEYS), key_id="keyA")
    made.append(ROWS)
    made.delete("id = 99")
    return made


class Opened:
    """Counts the files and columns that scans read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.files: list[int] = []
        self.columns: list[list[str]] = []
        inner = EncryptedTableScan.to_record_batches

        def counting(scan: EncryptedTableScan) -> Any:
            self.files.append(len(scan.plan_files()))
            self.columns.append([each.name for each in scan.schema.fields])
            return inner(scan)

        monkeypatch.setattr(EncryptedTableScan, "to_record_batches", counting)


def test_a_lazy_frame_has_the_scans_rows(table: EncryptedTable, tmp_path: Path) -> None:
    pytest.importorskip("polars")
    frame = table.scan().to_polars()
    assert arrow_rows(frame.collect().to_arrow()) == arrow_rows(table.scan().to_arrow())
    made = RandomRows(5)
    every = create_table(None, str(tmp_path / "e"), made.schema, kms=MemoryKms(MASTER_KEYS), key_id="keyA")
    every.append(made.rows(50))
    found = every.scan(columns=["id", "_row_id", *made.kinds]).to_polars().collect().to_arrow()
    assert found.column_names == ["id", "_row_id", *made.kinds]
    assert sorted_rows(arrow_rows(found)) == sorted_rows(
        arrow_rows(every.scan(columns=["id", "_row_id", *made.kinds]).to_arrow())
    )


@pytest.mark.filterwarnings("ignore::polars.exceptions.PolarsInefficientMapWarning")
def test_any_condition_of_polars_finds_the_rows_of_a_plain_table(tmp_path: Path) -> None:
    """Those that a scan cannot use are left to polars: is_in ended in a TypeError."""
    polars = pytest.importorskip("polars")
    made = PlainTable(tmp_path / "t")
    whole = polars.from_arrow(made.table.scan().to_arrow())
    name = {kind: each for each, kind in made.columns}
    number, text = polars.col(name["double"]), polars.col(name["string"])
    for condition in (
        number.is_in([0.1, float("nan")]),
        number.is_between(0, 1.5),
        number.is_close(0.1),
        text.is_in(["a\tb", None]),
        # Polars compares a 32-bit literal, and one of 64 bits without a sign, as floats.
        number == polars.lit(0.1, polars.Float32),
        polars.col(name["long"]) == polars.lit(2**53, polars.UInt64),
        number.is_in([0.5]) | (number > 1),
    ):
        found = made.table.scan().to_polars().filter(condition).collect()
        assert found.sort("id").equals(whole.filter(condition).sort("id")), condition
    assert made.polars_differences(1, 50) == []


def test_any_condition_of_duckdb_finds_the_rows_of_a_plain_table(tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    assert PlainTable(tmp_path / "t").duckdb_differences(1, 50) == []


def test_a_name_that_looks_like_a_filter_is_none_to_duckdb(tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    odd = "id > 5) and (id"
    rows = pyarrow.table(
        {"id": pyarrow.array(range(10), pyarrow.int64()), odd: pyarrow.array([3] * 10, pyarrow.int64())}
    )
    made = create_table(None, str(tmp_path / "t"), rows.schema, kms=MemoryKms(MASTER_KEYS), key_id="keyA")
    made.append(rows)
    connection = made.scan().to_duckdb("t")
    assert connection.execute(f'SELECT count(*) FROM t WHERE "{odd}" = 3').fetchone() == (10,)


@pytest.mark.parametrize("seed", range(4))
def test_polars_filters_mean_what_they_mean_to_polars(seed: int, table: EncryptedTable) -> None:
    polars = pytest.importorskip("polars")
    chance = random.Random(seed)
    whole = table.scan().to_polars().collect()

    def predicate(depth: int) -> Any:
        if depth and chance.random() < 0.6:
            left, right = predicate(depth - 1), predicate(depth - 1)
            return chance.choice((left & right, left | right, ~left))
        name = chance.choice(whole.columns)
        column = polars.col(name)
        if chance.random() < 0.2:
            return chance.choice((column.is_null(), column.is_not_null()))
        value = chance.choice(("c1", "c2", "d")) if name == "c" else chance.choice((10, 30.5, 7.0, 0.1, float("nan")))
        if name == "id":
            value = chance.choice((10, 30, 30.5, -1, 99))
        return chance.choice(
            (column > value, column >= value, column < value, column <= value, column == value, column != value)
        )

    for _ in range(12):
        chosen = predicate(3)
        found = table.scan().to_polars().filter(chosen).collect()
        assert found.sort("id").equals(whole.filter(chosen).sort("id")), chosen


def test_columns_filters_and_numbers_of_rows_reach_the_scan(
    table: EncryptedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    polars = pytest.importorskip("polars")
    opened = Opened(monkeypatch)
    frame = table.scan().to_polars()
    assert opened.files == []
    assert frame.filter((polars.col("c") == "c1") & (polars.col("id") > 30)).select("id").collect().height == 19
    assert (opened.files.pop(), set(opened.columns.pop())) == (1, {"id", "c"})
    assert frame.select(polars.len()).collect().item() == 99
    assert len(opened.columns.pop()) == 1
    assert frame.head(3).collect().height == 3
    assert frame.filter(polars.col("id") >= 40).head(3).select("id").collect().to_series().to_list() == [40, 41, 42]
    assert table.scan(row_filter="id < 50", limit=7).to_polars().filter(polars.col("id") >= 0).collect().height == 7


def test_duckdb_scans_what_a_query_asks_for(table: EncryptedTable, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("duckdb")
    opened = Opened(monkeypatch)
    connection = table.scan().to_duckdb("t")
    assert opened.files == []
    assert connection.execute("SELECT count(*), sum(id) FROM t").fetchall() == [(99, sum(range(99)))]
    opened.columns.clear()
    opened.files.clear()
    assert connection.execute("SELECT id FROM t WHERE id >= 80 AND id < 90 ORDER BY id").fetchall() == [
        (each,) for each in range(80, 90)
    ]
    assert (opened.files.pop(), opened.columns.pop()) == (1, ["id"])
    for where in (
        "c = 'c1' OR id = 3",
        "x IS NULL",
        "x > 20",
        "f < 0.35",
        "c IN ('c0', 'zz') AND x IS NOT NULL",
        "NOT id < 95",
    ):
        found = connection.execute(f"SELECT id FROM t WHERE {where} ORDER BY id").fetchall()
        connection.register("whole", table.scan().to_arrow())
        assert found == connection.execute(f"SELECT id FROM whole WHERE {where} ORDER BY id").fetchall(), where
    # Again: each query scans anew.
    assert connection.execute("SELECT count(DISTINCT c) FROM t").fetchone() == (4,)


def test_a_scan_is_an_arrow_stream(table: EncryptedTable, tmp_path: Path) -> None:
    scan = table.scan(row_filter="id < 20")
    assert pyarrow.table(scan).num_rows == 20
    copy = create_table(None, str(tmp_path / "copy"), ROWS.schema, kms=MemoryKms(MASTER_KEYS), key_id="keyB")
    assert copy.append(scan).added_rows == 20
    assert sorted_rows(arrow_rows(copy.scan().to_arrow())) == sorted_rows(arrow_rows(scan.to_arrow()))
