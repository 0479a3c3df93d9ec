"""Encrypt a tree on all machines of a cluster, verify it, and query it without a plaintext file anywhere.

spark-submit spark_cluster.py, or python spark_cluster.py: then Spark runs in this machine's processes.
"""

import json
import os
import shutil
from pathlib import Path

from pyspark.sql import SparkSession

import ags1
import ags1.spark

# Everything is made in a directory of its own, and made anew in each run.
shutil.rmtree("spark-cluster", ignore_errors=True)
Path("spark-cluster").mkdir()
os.chdir("spark-cluster")

# Sample data. On a cluster source and target are URLs (s3a://raw, s3a://vault), or paths that mean the same everywhere.
here = Path.cwd()
for day in (1, 2, 3):
    folder = here / "raw" / f"day={day}"
    folder.mkdir(parents=True)
    (folder / "sales.json").write_text("".join(json.dumps({"id": n, "amount": n * day}) + "\n" for n in range(100)))

# The key service is named by a URL, such as 'aws:?region=eu-central-1'; each executor asks it itself. No key travels.
key_file = here / "keystore.key"
ags1.Key.generate().save(key_file)
with ags1.kms.LocalKms.create(here / "keys.json", key_file=key_file) as keys:
    keys.add_key("lake")
kms = f"local:{here}/keys.json?key_file={key_file}"

spark = SparkSession.builder.appName("ags1").getOrCreate()
raw, vault = f"{here}/raw", f"{here}/vault"
result = ags1.spark.encrypt_files(spark, raw, vault, kms=kms, key_id="lake", on_error="collect")
print(str(result))
assert result.ok

assert ags1.spark.verify_files(spark, vault, kms=kms).ok

ags1.spark.register(spark)
lines = spark.read.format("ags1").options(kms=kms, decode="text").load(vault)
sales = lines.selectExpr("from_json(value, 'id bigint, amount bigint') AS row", "day").select("row.*", "day")
print(sales.where("amount > 150").count(), "sales above 150")

assert ags1.spark.decrypt_files(spark, vault, f"{here}/plain", kms=kms).ok
assert (here / "plain/day=1/sales.json").read_bytes() == (here / "raw/day=1/sales.json").read_bytes()
spark.stop()
