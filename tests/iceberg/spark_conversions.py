"""A driver that converts tables: a Spark on the metastore of `hive_lake`, with ags1 in its process and its workers.

    python -m tests.iceberg.spark_conversions METASTORE WAREHOUSE DIRECTORY CLASS_PATH

It reads one line of JSON from standard input for each line of JSON that it prints. With "kill_at" in a request, it
kills itself when so large a share of the bytes is moved.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any
from unittest import mock

from pyspark.sql import SparkSession

from ags1.kms import MemoryKms
from tests.iceberg.keys import MASTER_KEYS
from tests.iceberg.warehouse import SparkProcess
from tests.interop.jvm import INTERPRETED, SHORT_LIFE

KMS = "module:tests.iceberg.spark_conversions.Keys"
_FLAG = "AGS1_TEST_END_A_WORKER"
# Java's tables, as they were when they were loaded.
_held: list[Any] = []


class Keys(MemoryKms):
    """A KMS with the tables' master keys, of whose clients in workers one ends its process while a flag is there."""

    def __init__(self) -> None:
        super().__init__(MASTER_KEYS)

    def unwrap_key(self, wrapped_key: bytes, wrapping_key_id: str) -> bytes:
        """Unwrap, or end."""
        from pyspark import TaskContext

        if TaskContext.get() is not None:
            try:
                os.unlink(os.environ[_FLAG])
            except FileNotFoundError:
                pass
            else:
                os._exit(1)
        return super().unwrap_key(wrapped_key, wrapping_key_id)


class Driver(SparkProcess):
    """The process. Its catalog is ``cached``: it keeps what it has read of a table."""

    def __init__(self, metastore: str, warehouse: Path) -> None:
        super().__init__("spark_conversions", metastore, warehouse.resolve().as_uri())

    def said(self, **request: Any) -> Any:
        """The answer to a request.

        Raises
        ------
        RuntimeError
            It failed there.
        """
        said = self.ask(request)
        if "error" in said:
            raise RuntimeError(said["error"])
        return said["value"]

    def rows(self, statement: str) -> list[list[str]]:
        """The rows of a statement, each value as text."""
        rows: list[list[str]] = self.said(sql=statement)
        return rows


def _session(directory: Path, class_path: str, metastore: str, warehouse: str) -> SparkSession:
    catalog = "spark.sql.catalog.cached"
    keys = ",".join(f"{key_id}={key.hex()}" for key_id, key in MASTER_KEYS.items())
    options = " ".join([*SHORT_LIFE, "-Duser.timezone=UTC"])
    settings = {
        **INTERPRETED,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(directory),
        # Whatever Spark keeps of a job stays, and can be read.
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": directory.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.cleaner.referenceTracking": "false",
        "spark.broadcast.compress": "false",
        "spark.broadcast.UDFCompressionThreshold": "1",
        "spark.driver.extraClassPath": class_path,
        "spark.driver.extraJavaOptions": options,
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(directory),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "hive",
        f"{catalog}.uri": metastore,
        f"{catalog}.warehouse": warehouse,
        f"{catalog}.encryption.kms-impl": "ags1.interop.tables.FixedKms",
        f"{catalog}.ags1.kms.keys": keys,
    }
    # One slot, so that tasks end one after the other; a task is tried twice.
    builder = SparkSession.builder.master("local[1,2]").appName("ags1-tests")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


def _append(spark: SparkSession, table: Any, file: dict[str, Any]) -> None:
    """Have Java commit a file that was written when the table was loaded."""
    builder = spark._jvm.org.apache.iceberg.DataFiles.builder(table.spec())
    builder = builder.withInputFile(table.io().newInputFile(file["path"])).withFormat("parquet")
    built = builder.withPartitionPath(file["partition"]).withRecordCount(file["rows"]).build()
    table.newAppend().appendFile(built).commit()


def _reply(spark: SparkSession, request: dict[str, Any]) -> Any:
    import ags1.spark
    from ags1.cli import cluster, main

    if "sql" in request:
        return [[str(value) for value in row] for row in spark.sql(request["sql"]).collect()]
    if "set" in request:
        for name, value in request["set"].items():
            spark.conf.set(name, value)
        return None
    if "hold" in request:
        loader = spark._jvm.org.apache.iceberg.spark.Spark3Util
        _held.append(loader.loadIcebergTable(spark._jsparkSession, request["hold"]))
        return None
    if "append_held" in request:
        return _append(spark, _held.pop(), request["append_held"])
    if "job" in request:
        # The session stays open.
        with (
            mock.patch.object(cluster, "make_session", return_value=spark),
            mock.patch.object(cluster._Job, "close"),
            contextlib.redirect_stdout(io.StringIO()) as said,
        ):
            code = main([*request["job"], "--spark"])
        return [code, said.getvalue()]
    options = {"kms": KMS, "progress": False, **request["options"]}
    if (share := request.get("kill_at")) is not None:

        def end(done: int, total: int | None) -> None:
            if total and done >= share * total:
                os.kill(os.getpid(), signal.SIGKILL)

        options["progress"] = end
    if request.get("end_a_worker"):
        Path(os.environ[_FLAG]).touch()
    report = getattr(ags1.spark, request["call"])(spark, request["table"], **options)
    return {**report.to_dict(), "worker_ended": not os.path.exists(os.environ[_FLAG])}


def _serve(metastore: str, warehouse: str, directory: str, class_path: str) -> None:
    place = Path(directory).resolve()
    # Workers inherit it from the JVM.
    os.environ[_FLAG] = str(place / "end-a-worker")
    spark = _session(place, class_path, metastore, warehouse)
    print(json.dumps({"ready": spark.version}), flush=True)
    for line in sys.stdin:
        try:
            reply = {"value": _reply(spark, json.loads(line))}
        except Exception as error:
            reply = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    _serve(*sys.argv[1:])
