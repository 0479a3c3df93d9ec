"""Encrypt an Iceberg table in place, remove its plaintext files, verify the table, and decrypt the table."""

import os
import shutil
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

import ags1
from ags1 import iceberg

# Each run makes the sample anew.
shutil.rmtree("iceberg-table", ignore_errors=True)
Path("iceberg-table").mkdir()
os.chdir("iceberg-table")
catalog = SqlCatalog("lake", uri="sqlite:///catalog.db", warehouse=Path("lake").absolute().as_uri())
catalog.create_namespace("db")
rows = pa.table({"id": range(1000), "amount": [number / 4 for number in range(1000)]})
catalog.create_table("db.events", rows.schema).append(rows)

ags1.Key.generate().save("keystore.key")
with ags1.kms.LocalKms.create("keys.json", key_file="keystore.key") as keys:
    keys.add_key("lake-2026")
kms = "local:keys.json?key_file=keystore.key"

# %%
table = iceberg.load_table(catalog, "db.events", kms=kms, allow_plaintext=True)
print(iceberg.plan_conversion(table, key_id="lake-2026"))

# %%
print(iceberg.encrypt_table(table, key_id="lake-2026"))

# %%
table = iceberg.load_table(catalog, "db.events", kms=kms, table_key_id="lake-2026")
assert table.verify(snapshot_id=None).ok  # None is the newest snapshot; table.verify() checks all
assert table.scan().count() == 1000

# %%
print(iceberg.expire_snapshots(table))

# %%
table.refresh()
report = table.verify()
print(report)
assert report.ok

# %%
table.append(rows.slice(0, 10))
table.delete("id < 5")
table.compact(rewrite_all=True)  # else only where five files are small
assert table.scan(row_filter="id >= 5").count() == 1000
iceberg.expire_snapshots(table)
table.refresh()

# %%
with table.table.transaction() as change:
    change.set_properties({"write.summary.partition-limit": "0"})
iceberg.expire_snapshots(table)
table.refresh()
with table.table.transaction() as change:
    change.set_properties({"write.metadata.previous-versions-max": "1"})
table.refresh()
print(iceberg.clean(table))

# %%
print(iceberg.decrypt_table(table))
table = iceberg.load_table(catalog, "db.events", kms=kms, allow_plaintext=True)
assert table.scan().count() == 1000
