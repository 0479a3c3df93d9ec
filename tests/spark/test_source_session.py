"""``format("ags1")`` with credentials in its session's settings: they are used, and nowhere to be seen in clear."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from tests.checks import leaks
from tests.spark.sessions import LOCAL, need_spark, run_spark_script
from tests.spark.trees import read_tree

if TYPE_CHECKING:
    from tests.servers.s3 import S3Server

SCRIPT = """
import json, os, sys
from pyspark.sql import SparkSession
import ags1.spark

kms, url, work = sys.argv[1:]
assert not any(name.startswith("AWS_") for name in os.environ)
spark = SparkSession.builder.getOrCreate()
frame = spark.range(0, 100, 1, 2)
options = {"kms": kms, "decode": "parquet"}
said = {}

def write(mode="append"):
    frame.write.format("ags1").mode(mode).options(key_id="lake", **options).save(url)

def refused(call):
    try:
        call()
    except Exception as error:
        return str(error)
    raise SystemExit("it was not refused")

ags1.spark.register(spark)
said["write"] = refused(write)
ags1.spark.register(spark, kms=kms, key_id="lake")
write()
read = spark.read.format("ags1").options(**options).load(url)
said["rows"] = read.count()
batches = []
stream = spark.readStream.format("ags1").options(**options).load(url).writeStream
stream = stream.foreachBatch(lambda some, number: batches.append(some.count()))
stream.option("checkpointLocation", work).trigger(availableNow=True).start().awaitTermination()
said["streamed"] = sum(batches)
spark.sql(f"create temporary view lake using ags1 options (path '{url}', kms '{kms}', decode 'parquet')")
said["view"] = spark.sql("select count(distinct id) from lake").collect()[0][0]
mode = read._sc._jvm.org.apache.spark.sql.execution.ExplainMode.fromString("extended")
said["plan"] = read._jdf.queryExecution().explainString(mode)
ags1.spark.register(spark)
said["read"] = refused(lambda: spark.read.format("ags1").options(**options).load(url).count())
print(json.dumps(said))
"""


def test_a_session_with_credentials_in_its_settings_reads_writes_and_streams_without_showing_them(
    s3_server: S3Server, s3_bucket: str, kms_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_spark()
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    settings = {
        "endpoint": s3_server.endpoint,
        "endpoint.region": s3_server.region,
        "path.style.access": "true",
        "connection.ssl.enabled": "false",
        "access.key": s3_server.access_key,
        "secret.key": s3_server.secret_key,
    }
    conf = {f"spark.hadoop.fs.s3a.{name}": value for name, value in settings.items()}
    # Whatever a task is sent goes through a file, and stays there.
    conf |= {"spark.cleaner.referenceTracking": "false", "spark.broadcast.compress": "false"}
    session = tmp_path / "session"
    done = run_spark_script(
        SCRIPT, kms_url, f"s3a://{s3_bucket}/vault", tmp_path / "checkpoint",
        master=LOCAL, conf=conf, directory=session,
    )  # fmt: skip
    said = json.loads(done.stdout.splitlines()[-1])
    assert (said["rows"], said["streamed"], said["view"]) == (100, 100, 100)
    for each in ("write", "read"):
        assert "fs.s3a.access.key, which does not go to tasks unsealed" in said[each]
    (session / "conf" / "spark-defaults.conf").unlink()
    places = read_tree(session) | read_tree(tmp_path / "checkpoint") | {"plan": said["plan"].encode()}
    places |= {"stdout": done.stdout.encode(), "stderr": done.stderr.encode()}
    assert any(name.startswith("events/") and len(data) > 10_000 for name, data in places.items())
    assert leaks(places, {"the secret key": s3_server.secret_key.encode()}) == []
