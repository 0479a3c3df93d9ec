"""One standalone cluster, a master and two workers, does what a user does of it, while executors and workers die."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from tests.spark.trees import CONTENTS, plain_of, write_tree

if TYPE_CHECKING:
    from tests.spark.conftest import Run

SCRIPT = """
import json, sys
from functools import partial
from pyspark.sql import SparkSession

import ags1.spark
from ags1.spark import columns, datasets
from tests.spark.works import DyingDecryption, DyingEncryption, Interrupted, losing_an_executor

work, kms = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
ags1.spark.register(spark)
vault, copy, said = f"{work}/sales", f"{work}/copy", {}

def summary(frame):
    return tuple(frame.selectExpr("count(*)", "sum(CAST(xxhash64(id, text, day) AS DECIMAL(38)))").first())

def are_the_same(one, other):
    return summary(one) == summary(other)

# Appended, and read.
rows = spark.range(0, 40_000, 1, 4).selectExpr("id", "'text ' || id AS text", "CAST(id % 3 AS INT) AS day")
schema = "id long, text string, day int"
options = {"kms": kms, "decode": "parquet"}
write = {"key_id": "lake", **options}
rows.write.format("ags1").mode("append").options(**write).save(vault)
said["read"] = are_the_same(spark.read.format("ags1").options(**options).load(vault), rows)
# A stream from one dataset into another, with an executor that is killed while it reads.
read = spark.readStream.format("ags1").schema(schema).options(split_bytes="1m", **options).load(vault)
save = lambda some, number: some.write.format("ags1").mode("append").options(**write).save(copy)
writer = read.mapInArrow(losing_an_executor, schema).writeStream.foreachBatch(save)
query = writer.option("checkpointLocation", f"{work}/checkpoint").trigger(availableNow=True).start()
query.awaitTermination()
said["stream"] = are_the_same(spark.read.format("ags1").options(**options).load(copy), rows)

# Values of columns, with workers that are killed behind their first batch.
columns.EncryptColumns, columns.DecryptColumns = DyingEncryption, DyingDecryption
given = {"kms": kms, "keys": f"{work}/column-keys", "row_key": "id"}
ags1.spark.encrypt_columns(rows, {"text": "lake"}, **given).write.parquet(f"{work}/columns")
sealed = spark.read.parquet(f"{work}/columns")
said["sealed"] = sealed.where("length(text) <= 54").count()
plain = ags1.spark.decrypt_columns(sealed, {"text": "lake"}, **given)
plain.write.parquet(f"{work}/plain")
said["columns"] = are_the_same(spark.read.parquet(f"{work}/plain"), rows)

# Files, with an executor that is killed.
datasets.EncryptWork = partial(Interrupted, path="huge.bin", fault="executor")
result = ags1.spark.encrypt_files(spark, f"{work}/raw", f"{work}/files", kms=kms, key_id="lake", part_bytes=1 << 20,
                                  parallelism=8)
said["files"], said["attempts"] = result.counts, max(row.attempt for row in result.dataframe.collect())
print(json.dumps(said))
"""


@pytest.mark.timeout(300)
def test_what_a_user_does_comes_out_right_though_executors_and_workers_die(
    standalone_cluster: Run, tmp_path: Path, kms_url: str
) -> None:
    write_tree(tmp_path / "raw", CONTENTS)
    conf = {"spark.sql.execution.arrow.maxRecordsPerBatch": "1000"}
    done = standalone_cluster(SCRIPT, tmp_path, kms_url, conf=conf)
    said = json.loads(done.stdout.splitlines()[-1])
    files, attempts = said.pop("files"), said.pop("attempts")
    assert said == {"read": True, "stream": True, "sealed": 0, "columns": True}
    assert (files, attempts) == ({"ok": len(CONTENTS)}, 1)
    assert plain_of(tmp_path / "files", kms_url, whole=False) == CONTENTS
    # They did die: two executors, and a worker that encrypted and one that decrypted.
    (events,) = (tmp_path / "cluster" / "events").iterdir()
    ends = [
        each for each in map(json.loads, events.read_text().splitlines()) if each["Event"] == "SparkListenerTaskEnd"
    ]
    reasons = [each["Task End Reason"] for each in ends]
    lost = {each["Executor ID"] for each in reasons if each["Reason"] == "ExecutorLostFailure"}
    crashed = [each for each in reasons if "Python worker exited unexpectedly" in each.get("Description", "")]
    assert len(lost) >= 2
    assert len(crashed) >= 2
