"""Put a dataset and Parquet files under a new master key. No data is written anew."""

import os
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import ags1
from ags1 import dataset, parquet

# Everything is made in a directory of its own, and made anew in each run.
shutil.rmtree("rotate-master-keys", ignore_errors=True)
Path("rotate-master-keys").mkdir()
os.chdir("rotate-master-keys")

Path("raw").mkdir()
for number in range(3):
    Path(f"raw/{number}.csv").write_text(f"id\n{number}\n")
pq.write_table(pa.table({"name": ["Ada", "Grace"]}), "people.parquet")

# Of a key service; here they are in memory.
keys = ags1.kms.MemoryKms({"lake-2026": bytes(ags1.Key.generate()), "lake-2027": bytes(ags1.Key.generate())})

# A dataset: its key is wrapped anew, in a new version.
with dataset.encrypt("raw", "vault", keys, "lake-2026") as vault:
    before = {path.name for path in Path("vault").iterdir()}
    report = vault.rewrap("lake-2027")
    print(f"dataset: under {report.new_key_id}, in version {report.version}")
    assert before == {path.name for path in Path("vault").iterdir()}, "no file is written"
    # The older versions still open with the old master key, until they are expired.
    print(f"{report.older_versions} version still needs {report.old_key_id}")
    vault.expire(keep=1, older_than=None)

# Parquet files with wrapped keys inside of them: their footers are written anew.
parquet.encrypt_file("people.parquet", "vault.parquet", parquet.EncryptionConfig.from_kms(keys, "lake-2026"))
moved = parquet.rotate_file("vault.parquet", "vault.parquet", keys, master_key_ids={"lake-2026": "lake-2027"})
print(f"Parquet file: keys by master key {moved}")

# The proof: to a service that has no key but the new one, and back to nothing of the old.
other = ags1.kms.MemoryKms({"lake-2028": bytes(ags1.Key.generate())})
with dataset.open("vault", keys) as vault:
    vault.rewrap("lake-2028", other)  # also from one service to another
    vault.expire(keep=1, older_than=None)
with dataset.open("vault", other) as vault:
    assert vault.verify().ok
    print("all files open under", vault.key_id)
