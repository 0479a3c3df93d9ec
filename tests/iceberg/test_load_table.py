"""Tables opened by their catalogs: what the catalog vouches for is held to, and refresh finds what others committed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from ags1.errors import AuthenticationError, ConflictError, KeyAccessError
from ags1.iceberg import EncryptionKeys, load_table
from ags1.kms import MemoryKms
from tests.iceberg.canonical import arrow_rows
from tests.iceberg.warehouse import HiveLake, SparkTables, local_path


def test_a_hive_table_is_opened_read_and_refreshed(hive_lake: HiveLake, table_kms: MemoryKms) -> None:
    hive_lake.create("loaded", "id BIGINT, s STRING")
    try:
        hive_lake.sql("INSERT INTO loaded VALUES (1, 'one')")
        table = load_table(hive_lake.catalog(), ("tables", "loaded"), kms=table_kms)
        assert arrow_rows(table.scan().to_arrow()) == [[1, "one"]]
        hive_lake.sql("INSERT INTO loaded VALUES (2, 'two')")
        assert arrow_rows(table.scan().to_arrow()) == [[1, "one"]]
        assert arrow_rows(table.refresh().scan().to_arrow()) == [[1, "one"], [2, "two"]]
        with pytest.raises(KeyAccessError, match=r"loaded.*is under the master key 'keyA', and 'keyB' is expected"):
            load_table(hive_lake.catalog(), ("tables", "loaded"), kms=table_kms, table_key_id="keyB")
        path = local_path(table.metadata_location)
        text = path.read_text()
        path.write_text(text.replace("zstd", "gzip"))
        with pytest.raises(AuthenticationError, match="the catalog has"):
            table.refresh()
        path.write_text(text)
    finally:
        hive_lake.sql("DROP TABLE loaded")


def test_a_rewrapped_table_is_committed_and_java_goes_on(hive_lake: HiveLake, table_kms: MemoryKms) -> None:
    hive_lake.create("rewrapped", "id BIGINT")
    try:
        hive_lake.sql("INSERT INTO rewrapped VALUES (1)")
        table = load_table(hive_lake.catalog(), ("tables", "rewrapped"), kms=table_kms)
        target = table.catalog_table
        assert target is not None
        state = target.load()
        keys = EncryptionKeys.from_table_metadata(state.document.fields).rewrap(table_kms, "keyB")
        fields = keys.to_table_metadata(state.document.fields)
        assert isinstance(fields, dict)
        fields["properties"] = {**fields["properties"], "encryption.key-id": "keyB"}
        target.commit(state, fields)
        with pytest.raises(ConflictError):
            target.commit(state, fields)
        hive_lake.sql("INSERT INTO rewrapped VALUES (2)")
        assert arrow_rows(table.refresh().scan().to_arrow()) == [[1], [2]]
        assert hive_lake.rows("rewrapped") == [[1], [2]]
        assert target.load().table_key_id == "keyB"
    finally:
        hive_lake.sql("DROP TABLE rewrapped")


def test_tables_of_sql_catalogs_and_of_none_are_opened(
    spark_tables: SparkTables, table_kms: MemoryKms, tmp_path: Path
) -> None:
    expected = spark_tables["maintained"]
    assert expected.current is not None
    catalog = SqlCatalog("sql", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path))
    catalog.create_namespace("db")
    catalog.register_table("db.t", expected.metadata)
    place = tmp_path / "t" / "metadata"
    place.mkdir(parents=True)
    shutil.copy(expected.metadata_path, place)
    for table in (
        load_table(catalog, "db.t", kms=table_kms, table_key_id="keyA"),
        load_table(None, str(tmp_path / "t"), kms=table_kms),
    ):
        assert arrow_rows(table.scan().to_arrow()) == expected.current.rows
    catalog.engine.dispose()
