"""A process that runs Spark with Iceberg, and does with tables what it is asked for.

    python -m tests.iceberg.spark_server DIRECTORY CLASS_PATH

It reads one line of JSON from standard input for each line of JSON that it prints. Its metastore is one that other
processes reach too, by Thrift.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

from tests.iceberg.spark_process import CATALOG, NAMESPACE, Lake, collected


class ServedLake(Lake):
    """A lake whose metastore is a server, which the catalog uses as others do."""

    def __init__(self, directory: Path, class_path: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port: int = free.getsockname()[1]
        self.metastore = f"thrift://127.0.0.1:{self._port}"
        self._registered = 0
        super().__init__(directory, class_path)

    def metastore_settings(self) -> dict[str, str]:
        return {f"spark.sql.catalog.{CATALOG}.uri": self.metastore}

    def start_metastore(self) -> None:
        hive = self.jvm.org.apache.hadoop.hive
        kind = self.jvm.java.lang.Class.forName("org.apache.hadoop.hive.conf.HiveConf")
        conf = hive.conf.HiveConf(self.spark._jsc.hadoopConfiguration(), kind)
        # Spark comes without the pool that Hive's locks would use.
        conf.set("datanucleus.connectionPoolingType", "none")
        # The tables of locks are not among those that are made automatically.
        hive.metastore.txn.TxnDbUtil.prepDb(conf)
        bridge = hive.shims.ShimLoader.getHadoopThriftAuthBridge()
        serve = threading.Thread(
            target=hive.metastore.HiveMetaStore.startMetaStore, args=(self._port, bridge, conf), daemon=True
        )
        serve.start()
        while serve.is_alive():
            try:
                socket.create_connection(("127.0.0.1", self._port), 10).close()
                return
            except ConnectionRefusedError:
                time.sleep(0.05)
        raise RuntimeError("the metastore ended at its start")

    def read_metadata(self, metadata: str, version: int | str | None = None, columns: str = "*") -> dict[str, Any]:
        """Read a table by its metadata alone, as a catalog does that is told of it."""
        self._registered += 1
        name = f"registered_{self._registered}"
        self.sql(f"CALL {CATALOG}.system.register_table(table => '{NAMESPACE}.{name}', metadata_file => '{metadata}')")
        return self.rows(name, version, columns)


def _messages(error: Exception) -> str:
    """What the exception and its causes say, without where they were."""
    lines = str(error).splitlines()
    return "\n".join(line for line in lines if not line.lstrip().startswith(("at ", "... ")))


def _reply(lake: ServedLake, request: dict[str, Any]) -> dict[str, Any]:
    if "sql" in request:
        return collected(lake.spark.sql(request["sql"]))
    if "rows" in request:
        return lake.rows(request["rows"], request["version"], request["columns"])
    if "appended" in request:
        start, end = request["between"]
        reader = lake.spark.read.format("iceberg").option("start-snapshot-id", start).option("end-snapshot-id", end)
        return collected(reader.load(f"{CATALOG}.{NAMESPACE}.{request['appended']}"))
    if "create" in request:
        lake.create(request["create"], request["columns"], **request["options"])
        return {}
    if "rest" in request:
        from tests.iceberg.rest_server import start

        return {"rest": start(lake.jvm, request["rest"])}
    if "json" in request:
        parser = lake.jvm.org.apache.iceberg.TableMetadataParser
        return {"json": parser.toJson(parser.fromJson(request["json"]))}
    return lake.read_metadata(request["metadata"], request["version"], request["columns"])


def main(directory: str, class_path: str) -> None:
    """Serve requests until standard input ends."""
    lake = ServedLake(Path(directory).resolve(), class_path)
    print(json.dumps({"ready": lake.spark.version, "metastore": lake.metastore}), flush=True)
    for line in sys.stdin:
        try:
            reply = _reply(lake, json.loads(line))
        except Exception as error:
            reply = {"error": _messages(error)}
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
