"""Create an encrypted Iceberg table, change its rows, maintain the table, and restore an earlier state."""

import datetime
import os
import shutil
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

import ags1
from ags1 import iceberg

# Each run makes the sample anew.
shutil.rmtree("write-tables", ignore_errors=True)
Path("write-tables").mkdir()
os.chdir("write-tables")
catalog = SqlCatalog("lake", uri="sqlite:///catalog.db", warehouse=Path("lake").absolute().as_uri())
catalog.create_namespace("db")

ags1.Key.generate().save("keystore.key")
with ags1.kms.LocalKms.create("keys.json", key_file="keystore.key") as keys:
    keys.add_key("lake")
kms = "local:keys.json?key_file=keystore.key"

# %%
schema = pa.schema({"id": pa.int64(), "date": pa.date32(), "amount": pa.float64()})
iceberg.create_table(catalog, "db.sales", schema, ["date", "bucket(4, id)"], kms=kms, key_id="lake")

# %%
table = iceberg.load_table(catalog, "db.sales", kms=kms, table_key_id="lake")
date = datetime.date(2026, 11, 1)
rows = pa.table({"id": range(100), "date": [date] * 100, "amount": [each / 4 for each in range(100)]}, schema=schema)
print(table.append(rows))
print(table.upsert(pa.table({"id": [7, 100], "date": [date, date], "amount": [0.5, 9.5]}), on=["id"]))

# %%
assert table.scan(row_filter="id in (7, 100)", columns=["amount"]).to_arrow().num_rows == 2
assert table.scan().count() == 101
assert table.verify().ok

# %%
good = table.table.metadata.current_snapshot_id
table.table.manage_snapshots().create_tag(good, "before-delete").commit()
print(table.delete("amount < 5"))

# %%
table.table.manage_snapshots().rollback_to_snapshot(table.refs["before-delete"]).commit()
assert table.scan().count() == 101

# %%
policy = iceberg.MaintenancePolicy(expire_older_than=datetime.timedelta(days=30))
print(table.maintain(policy, dry_run=True))

# %%
print(table.maintain(policy))
assert table.verify().ok
