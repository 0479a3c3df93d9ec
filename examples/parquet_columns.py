"""Encrypt columns of Parquet files, check the files, read them with and without a key, and decrypt them."""

import os
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import ags1
from ags1 import parquet

# Each run makes the sample anew.
shutil.rmtree("parquet-columns", ignore_errors=True)
Path("parquet-columns/people").mkdir(parents=True)
os.chdir("parquet-columns")
for part in (0, 1):
    numbers = range(1000)
    rows = pa.table({"id": numbers, "ssn": [f"{each:09}" for each in numbers], "salary": [3000.0 + part] * 1000})
    pq.write_table(rows, f"people/part-{part}.parquet")

ags1.Key.generate().save("keystore.key")
with ags1.kms.LocalKms.create("keys.json", key_file="keystore.key") as keys:
    keys.add_key("lake")
    keys.add_key("pii")
kms = "local:keys.json?key_file=keystore.key"

# %%
encryption = parquet.EncryptionConfig.from_kms(kms, "lake", {"pii": ["ssn", "salary"]})
report = parquet.encrypt_tree("people", "vault", lambda path: encryption.with_aad_prefix(f"people/{path}".encode()))
assert report.ok, report

# %%
decryption = parquet.DecryptionConfig.from_kms(kms, expected_key_ids=["lake", "pii"])
files = "part-{0..1}.parquet"  # a range of numbers; or a list of paths


def of_file(path: str) -> parquet.DecryptionConfig:
    """Give the file its prefix."""
    return decryption.with_aad_prefix(f"people/{path}".encode())


report = parquet.verify_tree("vault", of_file, require_encrypted=["ssn", "salary"], expected=files)
assert report.ok, report
print(report)
assert all(each.facts["columns"]["id"] == "plaintext" for each in report.facts["results"].values())

# %%
table = parquet.read_table("vault/", of_file, expected=files)
assert table.num_rows == 2000

with parquet.open("vault/part-0.parquet", of_file("part-0.parquet")) as view:  # also for pandas, polars and DuckDB
    print(pq.read_table(view, columns=["salary"], pre_buffer=False).num_rows, "salaries")

# %%
shutil.copy("keys.json", "analyst.json")
with ags1.kms.LocalKms("analyst.json", key_file="keystore.key") as keys:
    keys.remove_key("pii")
analyst = parquet.DecryptionConfig.from_kms("local:analyst.json?key_file=keystore.key")
print(parquet.read_table("vault/", analyst, missing_keys="drop").column_names)

# %%
shutil.rmtree("people")

# %%
assert parquet.decrypt_tree("vault", "people", of_file).ok
assert pq.read_table("people").equals(table)
