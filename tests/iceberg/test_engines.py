"""Scans in whatever reads Arrow streams: the rows, nothing before they are asked for, and again for each query."""

from __future__ import annotations

from pathlib import Path

import pyarrow
import pytest

from ags1.iceberg import EncryptedTable, create_table
from ags1.kms import MemoryKms
from tests.iceberg.arrow_tables import RandomRows
from tests.iceberg.canonical import arrow_rows, sorted_rows
from tests.iceberg.keys import MASTER_KEYS

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


def test_polars_has_the_rows_of_a_scan(table: EncryptedTable, tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    assert arrow_rows(polars.DataFrame(table.scan()).to_arrow()) == arrow_rows(table.scan().to_arrow())
    made = RandomRows(5)
    every = create_table(None, str(tmp_path / "e"), made.schema, kms=MemoryKms(MASTER_KEYS), key_id="keyA")
    every.append(made.rows(50))
    names = ["id", "_row_id", *made.kinds]
    found = polars.DataFrame(every.scan(columns=names)).to_arrow()
    assert found.column_names == names
    assert sorted_rows(arrow_rows(found)) == sorted_rows(arrow_rows(every.scan(columns=names).to_arrow()))


def test_duckdb_scans_again_for_each_query(table: EncryptedTable) -> None:
    duckdb = pytest.importorskip("duckdb")
    connection = duckdb.connect()
    connection.register("t", table.scan(columns=["id", "c"], row_filter="id >= 20"))
    for _ in range(2):
        assert connection.execute("SELECT count(*), sum(id) FROM t").fetchall() == [(79, sum(range(20, 99)))]
    assert connection.execute("SELECT count(DISTINCT c) FROM t WHERE id < 90").fetchone() == (4,)


def test_a_scan_is_an_arrow_stream(table: EncryptedTable, tmp_path: Path) -> None:
    scan = table.scan(row_filter="id < 20")
    assert pyarrow.table(scan).num_rows == 20
    copy = create_table(None, str(tmp_path / "copy"), ROWS.schema, kms=MemoryKms(MASTER_KEYS), key_id="keyB")
    assert copy.append(scan).added_rows == 20
    assert sorted_rows(arrow_rows(copy.scan().to_arrow())) == sorted_rows(arrow_rows(scan.to_arrow()))
