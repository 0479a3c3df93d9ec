"""Spark as a peer: scans of Iceberg tables in a JVM that runs on, timed there, its start left out.

The other side of the pipe is this file as a program; it answers one line of JSON for each line on standard input::

    {"metadata": "file:/...", "columns": ["id"], "where": "id < 7", "to_python": false}  ->  {"seconds": 0.4}
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import processes

# The JVM of the tests is set up for a short life. These options are read after those on its command line, and give it
# the compiler, the collector and the memory that anyone would measure Spark with.
_JAVA_OPTIONS = "-XX:TieredStopAtLevel=4 -XX:-UseSerialGC -XX:+UseParallelGC -Xmx6g"


class SparkPeer:
    """A running Spark; a context manager. Only where tests.iceberg.warehouse.available() returns None.

    Parameters
    ----------
    long_lived
        Use the JVM's best compiler, which a scan or two never pay for.
    """

    def __init__(self, *, long_lived: bool = True) -> None:
        from tests.iceberg.warehouse import build_classes

        class_path = build_classes()
        self._directory = tempfile.TemporaryDirectory(prefix="ags1-bench-spark-")
        self._log = Path(self._directory.name) / "log"
        # Without the address, Spark looks for one of the machine's and listens there.
        own = {"SPARK_LOCAL_IP": "127.0.0.1", "TZ": "UTC", "PYSPARK_PYTHON": sys.executable}
        env = {**processes.environment(), **own, **({"_JAVA_OPTIONS": _JAVA_OPTIONS} if long_lived else {})}
        env.pop("SPARK_HOME", None)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "bench.spark_peer", str(Path(self._directory.name) / "lake"), class_path],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=env,
            )
        try:
            self.version = str(self._answer()["ready"])
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> SparkPeer:  # noqa: PYI034 - typing.Self came with Python 3.11
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def scan(
        self, metadata: str, columns: Sequence[str] | None, where: str | None, *, to_python: bool
    ) -> dict[str, Any]:
        """Scan a table once.

        Parameters
        ----------
        metadata
            Location of its metadata.json; a table is registered when it is first asked for.
        columns, where
            As in SQL; None for all columns, and for all rows.
        to_python
            Bring the rows to Python as an Arrow table, instead of dropping them where Spark has them.

        Returns
        -------
        dict
            ``seconds`` and, with `to_python`, how many ``rows`` and ``columns``.

        Raises
        ------
        RuntimeError
            Spark ended, as it does on what it cannot read.
        """
        return self._ask({"metadata": metadata, "columns": columns, "where": where, "to_python": to_python})

    def sql(self, statement: str) -> None:
        """Run a statement, in the namespace of the lake."""
        self._ask({"sql": statement})

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        """End Spark."""
        processes.end(self._process)
        self._directory.cleanup()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            # The JVM has the same standard output, and says a line of its own at its start.
            if line.startswith("{"):
                answer: dict[str, Any] = json.loads(line)
                return answer
        raise RuntimeError(f"Spark ended: {self._log.read_text(errors='replace')[-2000:]}")


def serve(directory: Path, class_path: str) -> None:
    """Answer requests until the input ends."""
    from tests.iceberg.spark_process import CATALOG, Lake
    from tests.interop.jvm import INTERPRETED

    lake = Lake(directory, class_path)
    # The sessions of the tests compile no queries.
    for name in INTERPRETED:
        lake.spark.conf.unset(name)
    print(json.dumps({"ready": lake.spark.version}), flush=True)
    names: dict[str, str] = {}
    for line in sys.stdin:
        request = json.loads(line)
        if "sql" in request:
            lake.sql(request["sql"])
            print("{}", flush=True)
            continue
        metadata = request["metadata"]
        if metadata not in names:
            names[metadata] = f"registered_{len(names)}"
            lake.sql(
                f"CALL {CATALOG}.system.register_table(table => '{lake.namespace}.{names[metadata]}', "
                f"metadata_file => '{metadata}')"
            )
        statement = f"SELECT {', '.join(request['columns'] or ['*'])} FROM {names[metadata]}"
        if request["where"]:
            statement += f" WHERE {request['where']}"
        answer: dict[str, Any] = {}
        # From the statement on: the catalog keeps nothing, so metadata, keys and manifests are read each time.
        start = time.perf_counter()
        frame = lake.spark.sql(statement)
        if request["to_python"]:
            table = frame.toArrow()
            answer["rows"], answer["columns"] = table.num_rows, table.num_columns
        else:
            frame.write.format("noop").mode("overwrite").save()
        answer["seconds"] = time.perf_counter() - start
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    serve(Path(sys.argv[1]), sys.argv[2])
