"""An hour with ags1 for who knows PySpark: read, view, append, stream, columns, Iceberg.

python pyspark_hour.py, or spark-submit pyspark_hour.py. Above each step is what Parquet or Delta has for it.
"""

import os
import shutil
from pathlib import Path

from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

import ags1
import ags1.spark

# Everything is made in a directory of its own, and made anew in each run.
shutil.rmtree("pyspark-hour", ignore_errors=True)
Path("pyspark-hour").mkdir()
os.chdir("pyspark-hour")
here = Path.cwd()

# Master keys, here in a file. With a key service: kms = "aws:?region=eu-central-1", and no more of this.
ags1.Key.generate().save("keystore.key")
with ags1.kms.LocalKms.create("keys.json", key_file="keystore.key") as keys:
    keys.add_key("lake")
kms = f"local:{here}/keys.json?key_file={here}/keystore.key"

spark = SparkSession.builder.appName("ags1").getOrCreate()
ags1.spark.register(spark)  # once for a session; with kms= and key_id= if the session has secrets of s3a, abfss
vault = {"kms": kms, "decode": "parquet"}
sales = spark.range(90).selectExpr("id", "id * 1.5D AS amount", "CAST(id % 3 AS INT) AS day")

# -- write and read ----------------------------------------------------------------------------------------------------
# sales.write.mode("append").partitionBy("day").parquet("sales")
# spark.read.parquet("sales").where("day = 1")
write = {"key_id": "lake", **vault}
sales.write.format("ags1").mode("append").options(**write).save(f"{here}/sales")
read = spark.read.format("ags1").options(**vault)
assert read.load(f"{here}/sales").where("day = 1").count() == 30

# -- a view ------------------------------------------------------------------------------------------------------------
# spark.read.parquet("sales").createOrReplaceTempView("sales")
read.load(f"{here}/sales").createOrReplaceTempView("sales")  # of the version that there is now
assert spark.sql("SELECT sum(amount) FROM sales").first()[0] == 1.5 * sum(range(90))

# -- append and overwrite ----------------------------------------------------------------------------------------------
# more.write.format("delta").mode("append").save("sales")
more = spark.createDataFrame([(90, 5.0, 2)], "id long, amount double, day int")
more.write.format("ags1").mode("append").options(**write).save(f"{here}/sales")  # run again, it would be there twice
assert read.load(f"{here}/sales").count() == 91
# spark.read.format("delta").option("versionAsOf", 1).load("sales")
assert read.option("versionAsOf", 1).load(f"{here}/sales").count() == 90

# -- a stream ----------------------------------------------------------------------------------------------------------
# spark.readStream.format("delta").load("sales").writeStream....start()
rows = spark.readStream.format("ags1").schema("id long, amount double, day int").options(**vault).load(f"{here}/sales")
counts = []
query = rows.writeStream.foreachBatch(lambda batch, number: counts.append(batch.count()))
query = query.option("checkpointLocation", f"{here}/checkpoint").trigger(availableNow=True)
for _ in range(2):  # the second finds nothing new
    query.start().awaitTermination()
assert sum(counts) == 91

# -- values of columns -------------------------------------------------------------------------------------------------
# people.withColumn("ssn", expr("aes_encrypt(ssn, '0000111122223333')")): there the key is in the query
people = spark.createDataFrame([(1, "078-05-1120"), (2, None)], "id int, ssn string")
columns = {"ssn": "lake"}  # each column with its master key
key_table = {"kms": kms, "keys": f"{here}/column-keys", "row_key": "id"}
ags1.spark.encrypt_columns(people, columns, **key_table).write.parquet(f"{here}/people.parquet")
stored = spark.read.parquet(f"{here}/people.parquet")
# Filter first: Spark moves no filter below a decryption.
plain = ags1.spark.decrypt_columns(stored.where("id = 1"), columns, **key_table)
assert plain.collect() == people.where("id = 1").collect()

# -- an Iceberg table --------------------------------------------------------------------------------------------------
# A table that is there is encrypted in place by tasks, without decoding a page; one commit makes that the table.
catalog = SqlCatalog("lake", uri=f"sqlite:///{here}/lake.db", warehouse=(here / "lake").as_uri())
catalog.create_namespace("db")
arrow = sales.toArrow()
catalog.create_table("db.sales", arrow.schema).append(arrow)
report = ags1.spark.encrypt_table(
    spark, (catalog, "db.sales"), kms=kms, key_id="lake", steps=("enable", "convert", "expire")
)
assert ags1.spark.verify_table(spark, report.metadata_location, kms=kms).ok
table = ags1.iceberg.load_table(catalog, "db.sales", kms=kms, table_key_id="lake")
assert table.scan(row_filter="day = 1").to_arrow().num_rows == 30

print("done: look into", here)
spark.stop()
