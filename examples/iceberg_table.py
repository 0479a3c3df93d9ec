"""Encrypt an Iceberg table in place, open it, verify it, and give it other keys. No page is decoded."""

import datetime
import os
import shutil
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

import ags1
from ags1 import iceberg

# Everything is made in a directory of its own, and made anew in each run.
shutil.rmtree("iceberg-table", ignore_errors=True)
Path("iceberg-table").mkdir()
os.chdir("iceberg-table")

# Sample data: a table in plaintext, made by PyIceberg in a catalog of its own.
catalog = SqlCatalog("lake", uri="sqlite:///catalog.db", warehouse=Path("lake").absolute().as_uri())
catalog.create_namespace("db")
day = datetime.datetime(2026, 11, 1, tzinfo=datetime.timezone.utc)
rows = pa.table({"id": range(1000), "ts": [day] * 1000, "amount": [number / 4 for number in range(1000)]})
plain = catalog.create_table("db.events", rows.schema, properties={"format-version": "2"})
plain.append(rows)

# Master keys, here in a file. With a key service: kms = "aws:?region=eu-central-1"
ags1.Key.generate().save("keystore.key")
with ags1.kms.LocalKms.create("keys.json", key_file="keystore.key") as keys:
    keys.add_key("lake-2026")
    keys.add_key("lake-2027")
kms = "local:keys.json?key_file=keystore.key"

# What would be done, and then doing it: every data file is encrypted, and one commit makes that the table.
table = iceberg.load_table(catalog, "db.events", kms=kms, allow_plaintext=True)
print(iceberg.plan_conversion(table, key_id="lake-2026"))
print(iceberg.encrypt_table(table, key_id="lake-2026"))

# Open it. Nothing in plaintext is accepted now.
table = iceberg.load_table(catalog, "db.events", kms=kms, table_key_id="lake-2026")
assert table.scan(row_filter="amount > 200", columns=["id"]).to_arrow().num_rows == 199
assert table.scan().to_arrow().sort_by("id").select(["id", "amount"]).equals(rows.select(["id", "amount"]))
assert table.verify(snapshot_id=None).ok  # of the current snapshot

# The older snapshots still have their plaintext files, and verify says so. This removes them.
assert not table.verify().ok
print(iceberg.expire_snapshots(table))
table.refresh()
assert table.verify().ok

# Rows can be added to it.
table.append(pa.table({"id": [1000], "ts": [day], "amount": [250.0]}))

# Another master key; with data_keys=True every file gets a fresh key too, as after a leak.
print(iceberg.rekey_table(table, key_id="lake-2027", data_keys=True, expire=True))
table = iceberg.load_table(catalog, "db.events", kms=kms, table_key_id="lake-2027")
assert table.scan().count() == 1001
assert table.verify().ok
for line in table.audit().findings:
    print(line)
catalog.engine.dispose()
