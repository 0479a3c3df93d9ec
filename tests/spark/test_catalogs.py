"""A table's name in Spark's SQL becomes PyIceberg's catalog with the session's settings, or a clear error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyiceberg")

from pyiceberg.catalog.sql import SqlCatalog

from ags1.errors import UnsupportedError
from ags1.spark.engine.catalogs import find_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK_CATALOG = "org.apache.iceberg.spark.SparkCatalog"
Configure = Callable[..., None]


@pytest.fixture
def configure(spark: SparkSession) -> Iterator[Configure]:
    """Gives the session a catalog ``lake`` for the time of a test."""
    names: list[str] = []

    def run(made_by: str = SPARK_CATALOG, **settings: str) -> None:
        given = {"spark.sql.catalog.lake": made_by}
        given |= {f"spark.sql.catalog.lake.{name.replace('_', '-')}": text for name, text in settings.items()}
        for name, text in given.items():
            spark.conf.set(name, text)
            names.append(name)

    yield run
    for name in names:
        spark.conf.unset(name)


def test_a_catalog_in_sqlite_is_found_with_its_settings(
    spark: SparkSession, configure: Configure, tmp_path: Path
) -> None:
    warehouse = (tmp_path / "warehouse").as_uri()
    SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/lake.db", warehouse=warehouse).create_namespace("my.db")
    configure(type="jdbc", uri=f"jdbc:sqlite:{tmp_path}/lake.db", warehouse=warehouse)
    found = find_table(spark, "lake.`my.db`.`back``tick`")
    assert found.identifier == ("my.db", "back`tick")
    assert found.sql == "`lake`.`my.db`.`back``tick`"
    assert found.catalog.namespace_exists("my.db")
    assert found.catalog.properties["warehouse"] == warehouse
    assert "lake.db" not in repr(found)


def test_a_metastore_is_found_where_spark_has_it(spark: SparkSession, configure: Configure) -> None:
    configure(catalog_impl="org.apache.iceberg.hive.HiveCatalog")
    with pytest.raises(ValueError, match=r"set spark\.sql\.catalog\.lake\.uri; with `load_table`"):
        find_table(spark, "lake.db.t")
    spark.conf.set("spark.hadoop.hive.metastore.uris", "thrift://127.0.0.1:1")
    try:
        assert find_table(spark, "lake.db.t").catalog.properties["uri"] == "thrift://127.0.0.1:1"
    finally:
        spark.conf.unset("spark.hadoop.hive.metastore.uris")


def test_s3_is_reached_as_the_catalog_says(spark: SparkSession, configure: Configure) -> None:
    pytest.importorskip("obstore")
    configure(type="hive", uri="thrift://127.0.0.1:1", warehouse="s3://bucket/lake")
    spark.conf.set("spark.sql.catalog.lake.s3.path-style-access", "true")
    spark.conf.set("fs.s3a.endpoint", "http://127.0.0.1:2")
    try:
        found = find_table(spark, "lake.db.t")
    finally:
        spark.conf.unset("spark.sql.catalog.lake.s3.path-style-access")
        spark.conf.unset("fs.s3a.endpoint")
    assert found.catalog.properties["s3.force-virtual-addressing"] == "false"
    assert found.catalog.properties["s3.endpoint"] == "http://127.0.0.1:2"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"type": "hadoop", "warehouse": "/lake"}, "is a Hadoop catalog, and Iceberg Java reads no encrypted table"),
        ({"type": "nessie"}, "is of the kind nessie: with `load_table`"),
        ({"catalog_impl": "com.example.Own"}, r"is of the kind com\.example\.Own"),
        (
            {"type": "jdbc", "uri": "jdbc:mysql://host/db"},
            "of the kind 'mysql', and PyIceberg knows SQLite",
        ),
        ({"made_by": "com.example.Other"}, "no catalog of Iceberg's"),
    ],
)
def test_other_catalogs_are_refused(
    settings: dict[str, str], message: str, spark: SparkSession, configure: Configure
) -> None:
    configure(**settings)
    with pytest.raises(UnsupportedError, match=message):
        find_table(spark, "lake.db.t")


@pytest.mark.parametrize("name", ["", "t", "lake.t", "lake..t", "lake.db.", "lake.db.`t", "lake.db.t`x`"])
def test_what_is_no_name_of_a_table_is_refused(name: str, spark: SparkSession, configure: Configure) -> None:
    configure(type="hive", uri="thrift://127.0.0.1:1")
    with pytest.raises((ValueError, UnsupportedError)):
        find_table(spark, name)
