"""Pipelines and data source over Spark Connect, where there is no SparkContext: the same results, the same errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")
for _module in ("grpc", "google.rpc", "zstandard"):
    pytest.importorskip(_module)

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

from ags1 import dataset  # noqa: E402
from tests.spark.trees import CONTENTS, STRANGE, assert_dataset, read_tree, write_tree  # noqa: E402

if TYPE_CHECKING:
    from tests.spark.conftest import Run

SCRIPT = """
import json, sys, threading
from pathlib import Path
from pyspark.sql import SparkSession
import ags1.spark
from ags1 import dataset
from ags1.spark.engine.sessions import Session

from ags1.spark.engine.planning import Unit
from ags1.spark.engine.runner import Engine
from tests.spark.works import Waiting, await_file

raw, tables, out, kms = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
session = Session(spark)
said = {"connect": type(spark).__module__.startswith("pyspark.sql.connect"), "slots": session.slots()}
told = []
options = {"kms": kms, "part_bytes": 1 << 20, "progress": lambda done, total: told.append([done, total])}
vault = out + "/vault"
result = ags1.spark.encrypt_files(spark, raw, vault, key_id="lake", **options)
said["encrypt"] = [result.counts, result.dataframe.count(), result.dataframe.columns, result.version]
said["again"] = ags1.spark.encrypt_files(spark, raw, vault, key_id="lake", **options).counts
said["verify"] = ags1.spark.verify_files(spark, vault, **options).counts
said["decrypt"] = ags1.spark.decrypt_files(spark, vault, out + "/plain", **options).counts
said["told"] = told[-1]
encrypted = ags1.spark.encrypt_parquet(spark, tables, out + "/tables", kms=kms, footer_key_id="lake", progress=False)
verified = ags1.spark.verify_parquet(spark, out + "/tables", kms=kms, progress=False)
decrypted = ags1.spark.decrypt_parquet(spark, out + "/tables", out + "/back", kms=kms, progress=False)
said["parquet"] = [[each.counts, each.dataframe.count()] for each in (encrypted, verified, decrypted)]
ags1.spark.register(spark)
reader = spark.read.format("ags1").option("kms", kms)
rows = reader.option("decode", "text").option("include", "*.json").load(vault)
said["read"] = rows.selectExpr("sum(from_json(value, 'id int').id)").collect()[0][0]
people = spark.range(10).selectExpr("id", "'text ' || id AS text")
given = {"kms": kms, "keys": out + "/keys", "row_key": "id"}
ags1.spark.encrypt_columns(people, {"text": "lake"}, **given).write.parquet(out + "/people")
plain = ags1.spark.decrypt_columns(spark.read.parquet(out + "/people"), {"text": "lake"}, **given)
said["columns"] = [plain.schema["text"].dataType.simpleString(), plain.exceptAll(people).count(), plain.count()]
ags1.spark.register_columns(spark, kms=kms, keys=out + "/keys", key_ids=["lake"], decrypt=True)
people.createOrReplaceTempView("people")
query = "SELECT text, ags1_decrypt(ags1_encrypt(text, 'lake'), 'lake') AS plain FROM people"
said["functions"] = spark.sql(query).where("CAST(plain AS string) = text").count()
with dataset.open(vault, kms) as opened:
    name = opened.files["a.txt"].parts[0].name
Path(vault, name).write_bytes(b"damaged")
result = ags1.spark.verify_files(spark, vault, **options)
rows = result.dataframe.filter("status = 'error'").collect()
said["damaged"] = [[row.path, row.error.partition(":")[0]] for row in rows]
try:
    ags1.spark.decrypt_files(spark, vault, out + "/other", **options)
except ags1.Ags1Error as error:
    said["error"] = [type(error).__name__, str(error), error.result.counts["error"]]
spark.addTag("nightly")
canceller = threading.Thread(target=lambda: (await_file(out + "/waiting"), spark.interruptTag("nightly")))
canceller.start()
try:
    list(Engine(spark, Waiting(out), progress=False).run([Unit("a", 1)]))
except Exception as error:
    said["cancelled"] = str(error)
Path(out, "go").touch()
canceller.join()
said["tags"] = sorted(spark.getTags())
print(json.dumps(said))
"""


@pytest.mark.timeout(180)
def test_everything_runs_over_connect(connect_spark: Run, kms_url: str, tmp_path: Path) -> None:
    contents = {**CONTENTS, STRANGE: b"a name that is no UTF-8", "rows.json": b'{"id": 3}\n{"id": 4}\n'}
    raw = write_tree(tmp_path / "raw", contents)
    table = pa.table({"id": range(100)})
    (tmp_path / "tables").mkdir()
    pq.write_table(table, tmp_path / "tables" / "a.parquet")
    out = tmp_path / "out"
    out.mkdir()
    said = json.loads(connect_spark(SCRIPT, raw, tmp_path / "tables", out, kms_url).stdout.splitlines()[-1])
    assert said["connect"]
    assert said["slots"] == 2
    counts, rows, columns, version = said["encrypt"]
    assert (counts, rows, version) == ({"ok": len(contents)}, len(contents), 1)
    assert columns[:2] == ["path", "target"]
    assert said["again"] == {"unchanged": len(contents)}
    assert said["verify"] == said["decrypt"] == {"ok": len(contents)}
    assert said["told"] == [sum(map(len, contents.values()))] * 2
    assert said["parquet"] == [[{"ok": 1}, 1]] * 3
    assert pq.read_table(out / "back" / "a.parquet").equals(table)
    assert said["read"] == 7
    assert said["columns"] == ["string", 0, 10]
    assert said["functions"] == 10
    assert said["damaged"] == [["a.txt", "truncated"]]
    kind, text, failed = said["error"]
    assert kind in ("FormatError", "TruncatedError")
    assert text.startswith("decrypt: ")
    assert "a.txt" in text
    assert failed == 1
    assert read_tree(out / "plain") == contents
    assert "CANCELED" in said["cancelled"]
    assert said["tags"] == ["nightly"]
    # Make again what was damaged, to see that all else is whole.
    with dataset.open(out / "vault", kms_url) as opened:
        assert opened.repair(raw).done == 1
        opened.expire(older_than=None, grace=0)
    assert_dataset(out / "vault", contents, kms_url)
