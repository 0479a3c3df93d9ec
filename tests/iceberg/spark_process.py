"""A process that runs Spark with Iceberg, and makes the tables.

    python -m tests.iceberg.spark_process make DIRECTORY CLASS_PATH
    python -m tests.iceberg.spark_process bulk DIRECTORY CLASS_PATH ROWS

It is a process of its own because a JVM does not leave the process that started it, and because Spark's Python needs
its environment set before it starts. Every change of this file has all tables made anew.
"""

from __future__ import annotations

import datetime
import decimal
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession, types

from tests.iceberg.canonical import canonical, canonical_map, sorted_rows
from tests.iceberg.keys import MASTER_KEYS
from tests.interop.jvm import INTERPRETED, SHORT_LIFE

CATALOG = "lake"
NAMESPACE = "tables"
RESULT = "tables.json"
LINEAGE = "*, _row_id, _last_updated_sequence_number"
ROWS = "rows"

_EXACT = decimal.Context(prec=40, traps=[decimal.Inexact])


class Lake:
    """An Iceberg catalog in a directory: a Hive metastore in this process's memory, and a KMS with fixed keys."""

    def __init__(self, directory: Path, class_path: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.namespace = NAMESPACE
        self.spark = _session(directory, class_path, self.metastore_settings())
        self.jvm = self.spark._jvm
        self.start_metastore()
        files = self.jvm.org.apache.hadoop.fs.FileSystem.getLocal(self.spark._jsc.hadoopConfiguration())
        # Hadoop would keep a checksum beside every file: damage is for Iceberg to find.
        files.setWriteChecksum(False)
        files.setVerifyChecksum(False)
        self.sql(f"CREATE NAMESPACE {CATALOG}.{NAMESPACE}")
        self.sql(f"USE {CATALOG}.{NAMESPACE}")

    def metastore_settings(self) -> dict[str, str]:
        """Settings of Spark: this metastore has no tables of locks."""
        return {"spark.hadoop.iceberg.engine.hive.lock-enabled": "false"}

    def start_metastore(self) -> None:
        """Start what the catalog connects to; the one in memory starts by itself."""

    def sql(self, statement: str) -> list[Any]:
        """Run a statement; return its rows."""
        return self.spark.sql(statement).collect()

    def create(
        self,
        name: str,
        columns: str,
        *,
        partitioned_by: str = "",
        key_id: str | None = "keyA",
        key_length: int | None = None,
        properties: dict[str, str] | None = None,
    ) -> None:
        """Create a table: encrypted and of format version 3, or with `key_id` None plaintext and of version 2."""
        clause = f" PARTITIONED BY ({partitioned_by})" if partitioned_by else ""
        self.sql(
            f"CREATE TABLE {name} ({columns}) USING iceberg{clause} "
            f"TBLPROPERTIES ({_listed(_table_properties(key_id, key_length, properties))})"
        )

    def create_from_schema(
        self,
        name: str,
        schema: dict[str, Any],
        *,
        key_id: str = "keyA",
        key_length: int | None = None,
        properties: dict[str, str] | None = None,
    ) -> None:
        """Create an unpartitioned table with a schema in Iceberg's JSON: Spark's SQL has no word for some types."""
        java = self.jvm.java.util.HashMap()
        for key, value in _table_properties(key_id, key_length, properties).items():
            java.put(key, value)
        parsed = self.jvm.org.apache.iceberg.SchemaParser.fromJson(json.dumps(schema))
        unpartitioned = self.jvm.org.apache.iceberg.PartitionSpec.unpartitioned()
        self._catalog().createTable(self._identifier(name), parsed, unpartitioned, java)

    def table(self, name: str) -> Any:
        """Iceberg's Java object for a table."""
        return self._catalog().loadTable(self._identifier(name))

    def rows(self, name: str, version: int | str | None = None, columns: str = "*") -> dict[str, Any]:
        """The columns' names and the rows of a table, a snapshot, a branch or a tag, in the canonical form."""
        clause = "" if version is None else f" VERSION AS OF {version!r}"
        return collected(self.spark.sql(f"SELECT {columns} FROM {name}{clause}"))

    def record(self, name: str, features: Sequence[str]) -> dict[str, Any]:
        """Write down all that tests compare with: every snapshot's rows, and the newest one's files.

        The rows of each table are in a file of their own, as they are many; the answer is the rest.
        """
        snapshots = self.sql(
            f"SELECT snapshot_id, operation FROM {NAMESPACE}.{name}.snapshots ORDER BY committed_at, snapshot_id"
        )
        files = self.sql(
            f"SELECT content, file_path, file_format, record_count, file_size_in_bytes FROM {NAMESPACE}.{name}.files"
        )
        refs = [each.name for each in self.sql(f"SELECT name FROM {NAMESPACE}.{name}.refs")]
        contents: dict[Any, Any] = {each.snapshot_id: self.rows(name, each.snapshot_id) for each in snapshots}
        contents["refs"] = {ref: self.rows(name, ref) for ref in refs if ref != "main"}
        # Iceberg has no numbers for the rows of older tables.
        if "encrypted" in features:
            contents["lineage"] = self.rows(name, columns=LINEAGE)
        written = self.directory / ROWS / f"{name}.json"
        written.parent.mkdir(exist_ok=True)
        written.write_text(json.dumps(contents))
        return {
            **self.summary(name, features),
            "snapshots": [[each.snapshot_id, each.operation] for each in snapshots],
            "files": [list(each) for each in files],
        }

    def summary(self, name: str, features: Sequence[str]) -> dict[str, Any]:
        """Where a table is, and what is special about it."""
        table = self.table(name)
        current = table.currentSnapshot()
        return {
            "features": list(features),
            "metadata": table.operations().current().metadataFileLocation(),
            "location": table.location(),
            "current": None if current is None else current.snapshotId(),
            "snapshots": [],
            "files": [],
        }

    def _catalog(self) -> Any:
        return self.jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergCatalog(self.spark._jsparkSession, CATALOG)

    def _identifier(self, name: str) -> Any:
        return self.jvm.org.apache.iceberg.catalog.TableIdentifier.parse(f"{NAMESPACE}.{name}")


def _session(directory: Path, class_path: str, metastore_settings: dict[str, str]) -> SparkSession:
    catalog = f"spark.sql.catalog.{CATALOG}"
    keys = ",".join(f"{key_id}={key.hex()}" for key_id, key in MASTER_KEYS.items())
    scratch = str(directory / "scratch")
    options = " ".join([*SHORT_LIFE, "-Duser.timezone=UTC"])
    settings = {
        **INTERPRETED,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": scratch,
        "spark.driver.extraClassPath": class_path,
        "spark.driver.extraJavaOptions": f"{options} -Dderby.system.home={scratch}",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": scratch,
        "spark.sql.sources.partitionOverwriteMode": "dynamic",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "hive",
        f"{catalog}.warehouse": directory.as_uri(),
        f"{catalog}.cache-enabled": "false",
        f"{catalog}.encryption.kms-impl": "ags1.interop.tables.FixedKms",
        f"{catalog}.ags1.kms.keys": keys,
        "spark.hadoop.javax.jdo.option.ConnectionURL": "jdbc:derby:memory:metastore;create=true",
        "spark.hadoop.datanucleus.schema.autoCreateAll": "true",
        "spark.hadoop.hive.metastore.schema.verification": "false",
        "spark.hadoop.hive.metastore.warehouse.dir": directory.as_uri(),
        # Columns that move look to Hive as if their types changed.
        "spark.hadoop.hive.metastore.disallow.incompatible.col.type.changes": "false",
    }
    builder = SparkSession.builder.master("local[2]").appName("ags1-tests")
    for name, value in {**settings, **metastore_settings}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def _table_properties(key_id: str | None, key_length: int | None, properties: dict[str, str] | None) -> dict[str, str]:
    found = {
        "format-version": "2" if key_id is None else "3",
        "write.delete.mode": "merge-on-read",
        "write.update.mode": "merge-on-read",
        "write.merge.mode": "merge-on-read",
        "write.distribution-mode": "none",
        "write.spark.fanout.enabled": "true",
    }
    if key_id is not None:
        found["encryption.key-id"] = key_id
    if key_length is not None:
        found["encryption.data-key-length"] = str(key_length)
    return found | (properties or {})


def _listed(properties: dict[str, str]) -> str:
    return ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())


def collected(frame: DataFrame) -> dict[str, Any]:
    """The columns' names and the rows of a frame, in the canonical form."""
    forms = [_form(field.dataType) for field in frame.schema]
    rows = [[form(value) for form, value in zip(forms, row, strict=True)] for row in frame.collect()]
    return {"columns": frame.columns, "rows": sorted_rows(rows)}


def _form(kind: types.DataType) -> Callable[[Any], Any]:
    """What makes the canonical form of one type's values: Spark's own do not tell a struct from a map, or a timestamp
    with a time zone from one without."""
    if isinstance(kind, types.StructType):
        fields = [(field.name, _form(field.dataType)) for field in kind]
        return _unless_null(lambda row: {name: form(row[name]) for name, form in fields})
    if isinstance(kind, types.ArrayType):
        element = _form(kind.elementType)
        return _unless_null(lambda items: [element(item) for item in items])
    if isinstance(kind, types.MapType):
        key, value = _form(kind.keyType), _form(kind.valueType)
        return _unless_null(lambda items: canonical_map((key(k), value(v)) for k, v in items.items()))
    if isinstance(kind, types.TimestampType):
        # Spark answers local times, and the process's time zone is UTC.
        return _unless_null(lambda value: canonical(value.replace(tzinfo=datetime.timezone.utc)))
    if isinstance(kind, types.DecimalType):
        # Spark answers some with more digits after the point than the type has.
        unit = decimal.Decimal(1).scaleb(-kind.scale)
        return _unless_null(lambda value: canonical(value.quantize(unit, context=_EXACT)))
    return canonical


def _unless_null(form: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else form(value)


def _write(directory: Path, tables: dict[str, Any]) -> None:
    """Write the result last, under its own name only when it is whole: it says that the directory is complete."""
    unfinished = directory / f"{RESULT}.part"
    unfinished.write_text(json.dumps({"directory": str(directory), "tables": tables}))
    os.replace(unfinished, directory / RESULT)


def main(command: str, directory: str, class_path: str, *arguments: str) -> None:
    """Run one command."""
    from tests.iceberg import spark_tables

    root = Path(directory).resolve()
    lake = Lake(root, class_path)
    if command == "make":
        _write(root, spark_tables.make(lake))
    elif command == "bulk":
        _write(root, spark_tables.make_bulk(lake, int(arguments[0])))
    else:
        raise SystemExit(f"no such command: {command}")


if __name__ == "__main__":
    main(*sys.argv[1:])
