"""Tables of a Hive metastore, converted in place while Spark uses them: Spark goes on with what ags1 made."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ags1 import iceberg
from ags1.errors import ConflictError
from ags1.iceberg.catalogs import CatalogTable, TableState, catalog_table
from ags1.kms import MemoryKms
from tests.iceberg_tables.canonical import sorted_rows
from tests.iceberg_tables.conversions import PLAINTEXT, beginning_with, read_rows
from tests.iceberg_tables.warehouse import HiveLake, local_path

COLUMNS = "id BIGINT, region STRING, amount INT"
LINEAGE = "*, _row_id, _last_updated_sequence_number"


def _rows(first: int, last: int) -> str:
    return (
        f"SELECT id, IF(id % 2 = 0, 'eu', 'us') AS region, CAST(id AS INT) AS amount FROM range({first}, {last}, 1, 1)"
    )


class _Told(dict[int, list[Any]]):
    """The rows that a table has after what Spark was told to do, by id."""

    def __init__(self, lake: HiveLake, name: str, **options: Any) -> None:
        self.lake, self.name = lake, name
        lake.create(name, COLUMNS, partitioned_by="region", **options)

    def insert(self, first: int, last: int) -> None:
        self.lake.sql(f"INSERT INTO {self.name} {_rows(first, last)}")
        self |= {each: [each, "us" if each % 2 else "eu", each] for each in range(first, last)}

    def delete(self, divisor: int, rest: int) -> None:
        self.lake.sql(f"DELETE FROM {self.name} WHERE id % {divisor} = {rest}")
        for each in [each for each in self if each % divisor == rest]:
            del self[each]

    def update(self, divisor: int, rest: int) -> None:
        self.lake.sql(f"UPDATE {self.name} SET amount = -1 WHERE id % {divisor} = {rest}")
        self |= {each: [*row[:2], -1] for each, row in self.items() if each % divisor == rest}

    def merge(self, first: int, last: int) -> None:
        self.lake.sql(
            f"MERGE INTO {self.name} t USING ({_rows(first, last)}) s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET amount = 7 WHEN NOT MATCHED THEN INSERT *"
        )
        new = {each: [each, "us" if each % 2 else "eu", 7 if each in self else each] for each in range(first, last)}
        self |= new

    def check(self, table: CatalogTable, kms: MemoryKms) -> None:
        """Compare with what Spark reads, and with what ags1 reads."""
        expected = sorted_rows(self.values())
        assert self.lake.rows(self.name) == expected
        assert read_rows(table, kms) == expected


def _table(lake: HiveLake, name: str) -> CatalogTable:
    return catalog_table(lake.catalog(), ("tables", name))


def _directory(table: CatalogTable) -> Path:
    return local_path(table.load().document.fields["location"])


def test_spark_goes_on_with_a_table_of_version_2_that_was_encrypted_in_place(
    hive_lake: HiveLake, table_kms: MemoryKms
) -> None:
    lake, name = hive_lake, "in_place"
    told = _Told(lake, name, key_id=None)
    told.insert(0, 20)
    before = lake.rows(name)
    told.delete(5, 0)
    lake.sql(f"ALTER TABLE {name} CREATE TAG kept")
    tagged = lake.rows(name)
    told.insert(20, 30)
    table = _table(lake, name)
    old = table.load().document.fields["snapshots"][0]["snapshot-id"]
    iceberg.encrypt_table(table, key_id="keyA", kms=table_kms)

    # The same rows, by name and by number; and time travel to before.
    told.check(table, table_kms)
    assert lake.rows(name, version="kept") == tagged
    assert lake.rows(name, version=old) == before == read_rows(table, table_kms, snapshot_id=old)
    now = {row[0]: row[-2] for row in lake.rows(name, LINEAGE)}
    assert len(set(now.values())) == len(now)

    # What Java does on top of it.
    told.insert(30, 40)
    told.delete(11, 1)
    assert all(now.get(row[0], row[-2]) == row[-2] for row in lake.rows(name, LINEAGE))
    told.update(4, 2)
    told.merge(38, 44)
    told.check(table, table_kms)
    lake.sql(f"CALL lake.system.rewrite_data_files(table => 'tables.{name}', options => map('rewrite-all', 'true'))")
    lake.sql(f"CALL lake.system.rewrite_manifests(table => 'tables.{name}')")
    told.check(table, table_kms)

    # And when nothing of before is needed any more, nothing of it is left.
    iceberg.expire_snapshots(table, kms=table_kms)
    told.insert(44, 46)
    told.check(table, table_kms)
    assert not beginning_with(_directory(table), PLAINTEXT)
    opened = iceberg.open_table(table.load().metadata_location, table_kms, table_key_id="keyA")
    assert opened.verify().ok
    assert opened.audit().ok


def test_row_ids_survive_encryption_new_keys_and_decryption(hive_lake: HiveLake, table_kms: MemoryKms) -> None:
    lake, name = hive_lake, "numbered"
    told = _Told(lake, name, key_id=None, properties={"format-version": "3"})
    told.insert(0, 20)
    told.delete(5, 0)
    table = _table(lake, name)
    expected = lake.rows(name, LINEAGE)
    iceberg.encrypt_table(table, key_id="keyA", kms=table_kms)
    assert lake.rows(name, LINEAGE) == expected
    iceberg.rekey_table(table, key_id="keyB", data_keys=True, kms=table_kms)
    lake.sql(
        f"CALL lake.system.expire_snapshots(table => 'tables.{name}', retain_last => 1, "
        "older_than => TIMESTAMP'2999-01-01 00:00:00')"
    )
    assert lake.rows(name, LINEAGE) == expected
    assert not beginning_with(_directory(table), PLAINTEXT)
    told.update(7, 3)
    expected = lake.rows(name, LINEAGE)
    iceberg.decrypt_table(table, kms=table_kms, expire=True)
    assert lake.rows(name, LINEAGE) == expected
    told.delete(7, 2)
    told.check(table, table_kms)


class _Busy(CatalogTable):
    """A table to which Spark commits each time that somebody else is about to."""

    def __init__(self, table: CatalogTable, work: list[Callable[[], object]]) -> None:
        self.name, self.io_properties = table.name, table.io_properties
        self._table, self._work = table, work

    def load(self) -> TableState:
        return self._table.load()

    def commit(self, base: TableState, fields: Mapping[str, Any]) -> TableState:
        if self._work:
            self._work.pop(0)()
        return self._table.commit(base, fields)

    def create(self, fields: Mapping[str, Any]) -> TableState:
        return self._table.create(fields)

    def check_can_encrypt(self) -> None:
        self._table.check_can_encrypt()


def test_what_spark_commits_meanwhile_is_converted_too(hive_lake: HiveLake, table_kms: MemoryKms) -> None:
    lake = hive_lake
    told = _Told(lake, "busy", key_id=None)
    told.insert(0, 20)
    table = _table(lake, "busy")
    busy = _Busy(table, [lambda: told.insert(20, 30), lambda: told.delete(9, 1)])
    report = iceberg.encrypt_table(busy, key_id="keyA", kms=table_kms, steps=("enable", "convert", "expire"))
    assert report.attempts == 3
    told.check(table, table_kms)
    assert not beginning_with(_directory(table), PLAINTEXT)


def test_races_that_are_lost_each_time_are_named_and_change_nothing(hive_lake: HiveLake, table_kms: MemoryKms) -> None:
    told = _Told(hive_lake, "losing", key_id=None)
    told.insert(0, 2)
    table = _table(hive_lake, "losing")
    busy = _Busy(table, [partial(told.insert, each, each + 1) for each in range(2, 9)])
    with pytest.raises(ConflictError, match="others committed during each of"):
        iceberg.encrypt_table(busy, key_id="keyA", kms=table_kms)
    assert "encryption.key-id" not in table.load().document.fields["properties"]
    told.check(table, table_kms)
    # Running again uses what is done.
    report = iceberg.encrypt_table(table, key_id="keyA", kms=table_kms, steps=("enable", "convert", "expire"))
    assert report.reused
    told.check(table, table_kms)
    assert not beginning_with(_directory(table), PLAINTEXT)
    assert not iceberg.clean(table, kms=table_kms, older_than=datetime.timedelta(0)).paths
