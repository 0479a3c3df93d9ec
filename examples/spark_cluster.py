"""Encrypt files, DataFrames, columns and an Iceberg table on Spark, check and read them, and decrypt the files."""

import json
import os
import shutil
from pathlib import Path

from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

import ags1
import ags1.spark

# The sample is made anew in each run, in a directory of its own.
shutil.rmtree("spark-cluster", ignore_errors=True)
here = Path("spark-cluster").absolute()
for day in (1, 2, 3):
    (here / f"raw/day={day}").mkdir(parents=True)
    lines = [json.dumps({"id": number, "amount": number * day}) for number in range(100)]
    (here / f"raw/day={day}/sales.json").write_text("\n".join(lines))

os.chdir(here)
ags1.Key.generate().save("keystore.key")
with ags1.kms.LocalKms.create("keys.json", key_file="keystore.key") as keys:
    keys.add_key("lake")
kms = f"local:{here}/keys.json?key_file={here}/keystore.key"

spark = SparkSession.builder.appName("ags1").getOrCreate()
ags1.spark.register(spark)

# %%
result = ags1.spark.encrypt_files(spark, f"{here}/raw", f"{here}/vault", kms=kms, key_id="lake", on_error="collect")
print(str(result))
assert result.ok

# %%
assert ags1.spark.verify_files(spark, f"{here}/vault", kms=kms).ok

# %%
lines = spark.read.format("ags1").options(kms=kms, decode="text").load(f"{here}/vault")
sales = lines.selectExpr("from_json(value, 'id bigint, amount bigint') AS row", "day").select("row.*", "day")
print(sales.where("amount > 150").count(), "sales above 150")

# %%
options = {"kms": kms, "key_id": "lake", "decode": "parquet"}
sales.write.format("ags1").mode("append").options(**options).save(f"{here}/sales")
assert spark.read.format("ags1").options(**options).load(f"{here}/sales").count() == 300

# %%
people = spark.createDataFrame([(1, "078-05-1120"), (2, None)], "id int, ssn string")
columns = {"ssn": "lake"}
key_table = {"kms": kms, "keys": f"{here}/column-keys", "row_key": "id"}
ags1.spark.encrypt_columns(people, columns, **key_table).write.parquet(f"{here}/people.parquet")

# %%
stored = spark.read.parquet(f"{here}/people.parquet").where("id = 1")
assert ags1.spark.decrypt_columns(stored, columns, **key_table).collect() == people.where("id = 1").collect()

# %%
catalog = SqlCatalog("lake", uri=f"sqlite:///{here}/lake.db", warehouse=(here / "lake").as_uri())
catalog.create_namespace("db")
rows = sales.toArrow()
catalog.create_table("db.sales", rows.schema).append(rows)

table = (catalog, "db.sales")
ags1.spark.encrypt_table(spark, table, kms=kms, key_id="lake", steps=("enable", "convert", "expire"))
assert ags1.spark.verify_table(spark, table, kms=kms).ok

# %%
assert ags1.spark.decrypt_files(spark, f"{here}/vault", f"{here}/plain", kms=kms).ok
assert (here / "plain/day=1/sales.json").read_bytes() == (here / "raw/day=1/sales.json").read_bytes()
spark.stop()
