"""SIGKILL of a driver between the commit of the dataset and that of the checkpoint: each row is there once."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from ags1 import dataset

if TYPE_CHECKING:
    from tests.spark.conftest import Run

SCRIPT = """
import os, signal, sys, threading
from pyspark.sql import SparkSession
from ags1.spark.source._stream_writer import StreamWriter
from ags1.spark.source.data_source import Ags1DataSource

work, kms, count, halted = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
options = {"kms": kms, "key_id": "lake", "decode": "json"}

def committed(name, epoch):
    # The dataset has the epoch, and Spark is not told.
    if epoch == halted:
        with open(f"{work}/signals/{epoch}-{name}.new", "w") as file:
            file.write(str(os.getpid()))
        os.rename(file.name, file.name.removesuffix(".new"))
        threading.Event().wait()

class Halting(StreamWriter):
    def commit(self, messages, epoch):
        super().commit(messages, epoch)
        committed(os.path.basename(self._writer._place), epoch)

class Source(Ags1DataSource):
    def streamWriter(self, schema, overwrite):
        made = super().streamWriter(schema, overwrite)
        return Halting(made._writer, made._query)

spark = SparkSession.builder.getOrCreate()
spark.dataSource.register(Source)
queries = []
for number in range(count):
    rows = spark.readStream.schema("id bigint").option("maxFilesPerTrigger", 1).json(f"{work}/source")
    for name in (f"stream-{number}", f"batches-{number}"):
        target = f"{work}/{name}"
        writer = rows.writeStream.option("checkpointLocation", f"{work}/of-{name}").trigger(availableNow=True)
        if name.startswith("stream"):
            queries.append(writer.format("ags1").options(**options).start(target))
            continue

        def write(frame, epoch, name=name, target=target):
            once = frame.write.format("ags1").mode("append").options(txnAppId=name, txnVersion=epoch, **options)
            once.save(target)
            committed(name, epoch)

        queries.append(writer.foreachBatch(write).start())
if halted >= 0:
    while True:
        names = [each for each in os.listdir(f"{work}/signals") if each.startswith(f"{halted}-") and each[-1].isdigit()]
        if len(names) == len(queries):
            break
        for query in queries:
            if query.exception() is not None:
                raise query.exception()
        threading.Event().wait(0.02)
    workers = {int(open(f"{work}/signals/{name}").read()) for name in names} - {os.getpid()}
    for process in (spark.sparkContext._gateway.proc.pid, *workers, os.getpid()):
        os.kill(process, signal.SIGKILL)
for query in queries:
    query.awaitTermination()
"""


def rows(vault: Path, kms_url: str, epochs: int) -> list[int]:
    with dataset.open(vault, kms_url) as opened:
        # Neither an epoch without a version, nor one with two, nor objects of one that was skipped.
        assert opened.version == epochs
        assert opened.verify().problems == []
        found = []
        for entry in opened.files:
            with opened.open(entry.path) as reader:
                found += [json.loads(line)["id"] for line in reader.read().splitlines()]
    return sorted(found)


def kill_writers(work: Path, kms_url: str, run: Run, queries: int, kills: int) -> None:
    """Kill a driver of some queries of each kind some times, and let another one go on to the end.

    Each kill is between the two commits of an epoch of all of them.
    """
    for name in ("source", "signals"):
        (work / name).mkdir()
    expected, epochs = [], kills + 1
    for epoch in range(epochs):
        ids = [1000 * epoch + number for number in range(7 * epoch + 1)]
        expected += ids
        (work / "source" / f"{epoch}.json").write_text("".join(json.dumps({"id": each}) + "\n" for each in ids))
    for halted in [*range(kills), -1]:
        done = run(SCRIPT, work, kms_url, queries, halted, check=False)
        assert done.returncode == (0 if halted < 0 else -signal.SIGKILL), done.stderr
    assert len(list((work / "signals").iterdir())) == 2 * queries * kills
    for number in range(queries):
        for kind in ("stream", "batches"):
            assert rows(work / f"{kind}-{number}", kms_url, epochs) == expected


@pytest.mark.timeout(300)
def test_no_epoch_is_lost_or_doubled_by_kills_between_its_commits(run_spark: Run, tmp_path: Path, kms_url: str) -> None:
    kill_writers(tmp_path, kms_url, run_spark, queries=2, kills=2)
