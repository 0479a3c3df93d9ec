"""Rows written and read through every catalog: the same calls, and Java reads what it can reach."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog

from ags1.iceberg import EncryptionKeys, create_table, load_table
from ags1.kms import MemoryKms
from tests.iceberg.canonical import arrow_rows
from tests.iceberg.warehouse import HiveLake

ROWS = pa.table({"id": [1, 2, 3], "s": ["one", "zwei", None]})


@pytest.fixture(params=["file", "sql", "hive", "rest"])
def target(request: pytest.FixtureRequest, hive_lake: HiveLake, tmp_path: Path) -> Iterator[tuple[Any, Any, str]]:
    """A catalog, the name of a table that it does not have, and the table's location."""
    location = (tmp_path / "rows").as_uri()
    if request.param == "file":
        yield None, str(tmp_path / "rows"), location
    elif request.param == "sql":
        catalog = SqlCatalog("sql", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=tmp_path.as_uri())
        catalog.create_namespace("db")
        yield catalog, "db.rows", location
        catalog.engine.dispose()
    elif request.param == "rest":
        yield RestCatalog("rest", uri=f"{hive_lake.rest}/whole"), "db.rows", location
    else:
        yield hive_lake.catalog(), ("tables", "rows"), location
        hive_lake.sql("DROP TABLE rows")


def test_a_table_is_made_written_and_read_in_every_catalog(
    target: tuple[Any, Any, str], table_kms: MemoryKms, hive_lake: HiveLake
) -> None:
    catalog, name, location = target
    table = create_table(catalog, name, ROWS.schema, kms=table_kms, key_id="keyA", location=location)
    table.append(ROWS)
    table.append(ROWS.slice(0, 1))
    table.delete("id = 2")
    expected = [[1, "one"], [1, "one"], [3, None]]
    again = load_table(catalog, name, kms=table_kms, table_key_id="keyA")
    assert arrow_rows(again.scan().to_arrow()) == expected
    assert again.verify().ok
    if isinstance(name, tuple):
        assert hive_lake.rows("rows") == expected
        hive_lake.sql("INSERT INTO rows VALUES (4, 'four')")
        expected = sorted([*expected, [4, "four"]], key=str)
        assert sorted(arrow_rows(again.refresh().scan().to_arrow()), key=str) == expected
    # Under another master key, in place.
    found = again.catalog_table
    assert found is not None
    state = found.load()
    fields = EncryptionKeys(state.document.entries()).rewrap(table_kms, "keyB").to_table_metadata(state.document.fields)
    assert isinstance(fields, dict)
    fields["properties"] = {**fields["properties"], "encryption.key-id": "keyB"}
    found.commit(state, fields)
    moved = load_table(catalog, name, kms=table_kms, table_key_id="keyB")
    assert sorted(arrow_rows(moved.scan().to_arrow()), key=str) == sorted(expected, key=str)
    moved.append(ROWS.slice(0, 1))
    if isinstance(name, tuple):
        assert len(hive_lake.rows("rows")) == len(expected) + 1
