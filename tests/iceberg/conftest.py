"""Fixtures of real encrypted tables."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

from ags1.iceberg.metadata.locations import TableLocations
from ags1.kms import MemoryKms
from tests.iceberg.keys import MASTER_KEYS
from tests.iceberg.warehouse import HiveLake, SparkReader, SparkTables, available, make_tables
from tests.interop.jvm import cache_root

if TYPE_CHECKING:
    from tests.iceberg.spark_conversions import Driver

MAKING_SECONDS = 900


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the test that is the first to need the tables the time to make them."""
    for item in items:
        if "spark_tables" in getattr(item, "fixturenames", ()) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(MAKING_SECONDS))


@pytest.fixture(autouse=True)
def kept_tables_are_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow the directory of Spark's tables: tests write other metadata for them, which lies elsewhere."""
    usual = TableLocations.__init__

    def allow(self: TableLocations, directories: Iterable[str] = (), properties: Mapping[str, str] = {}) -> None:
        usual(self, [*directories, str(cache_root())], properties)

    monkeypatch.setattr(TableLocations, "__init__", allow)


def require_spark() -> None:
    """Skip the test where Spark with Iceberg cannot run; fail it where nothing may skip."""
    if (reason := available()) is not None:
        refuse = pytest.fail if os.environ.get("AGS1_NO_SKIP") else pytest.skip
        refuse(f"Spark with Iceberg cannot run here: {reason}")


@pytest.fixture(scope="session")
def spark_tables() -> SparkTables:
    """Tables that Spark made, by name."""
    require_spark()
    return make_tables()


@pytest.fixture(scope="session")
def hive_lake() -> Iterator[HiveLake]:
    """A running Spark with a Hive metastore that PyIceberg reaches too, and the tables' master keys."""
    require_spark()
    with HiveLake() as started:
        yield started


@pytest.fixture(scope="session")
def driver(hive_lake: HiveLake) -> Iterator[Driver]:
    """A Spark that shares the lake's metastore and runs ags1."""
    from tests.iceberg.spark_conversions import Driver

    with Driver(hive_lake.metastore, hive_lake.directory) as started:
        yield started


@pytest.fixture(scope="session")
def spark_reader(hive_lake: HiveLake) -> SparkReader:
    """A running Spark that reads any metadata.json, with the same master keys: the one of `hive_lake`."""
    return hive_lake


@pytest.fixture
def table_kms() -> MemoryKms:
    """A KMS with the tables' master keys."""
    return MemoryKms(MASTER_KEYS)
