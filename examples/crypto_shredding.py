"""One master key for each tenant: destroying it destroys the tenant's files in every copy and every backup."""

import os
import shutil
from pathlib import Path

import ags1
from ags1 import dataset

# Everything is made in a directory of its own, and made anew in each run.
shutil.rmtree("crypto-shredding", ignore_errors=True)
Path("crypto-shredding").mkdir()
os.chdir("crypto-shredding")

for tenant in ("a", "b"):
    folder = Path("customers", f"tenant={tenant}")
    folder.mkdir(parents=True)
    (folder / "orders.csv").write_text(f"id,customer\n1,{tenant}\n")
Path("customers/prices.csv").write_text("id,price\n1,9.50\n")

# MemoryKms stands for a key service, where each of these is a key that can be scheduled for deletion.
master_keys = {name: bytes(ags1.Key.generate()) for name in ("lake", "tenant-a", "tenant-b")}
keys = ags1.kms.MemoryKms(master_keys)
patterns = {"tenant=a/**": "tenant-a", "tenant=b/**": "tenant-b", "**": "lake"}
with dataset.encrypt("customers", "vault", keys, keys=patterns) as vault:
    print({entry.path: vault.key_metadata(entry.path).encryption_key.bits for entry in vault.files})

# Tenant a leaves: its master key is destroyed.
del master_keys["tenant-a"]
afterwards = ags1.kms.MemoryKms(master_keys)

with dataset.open("vault", afterwards) as vault:
    assert vault.open("tenant=b/orders.csv").read() == b"id,customer\n1,b\n"
    try:
        vault.open("tenant=a/orders.csv")
    except ags1.KeyAccessError as error:
        print("shredded:", error)
    for problem in vault.verify().problems:
        print(problem.path, "is", problem.kind)
    # Its names and lengths are still in the manifests, which are under the default key. This takes them out.
    vault.rm("tenant=a")
    vault.expire(keep=1, older_than=None, grace=0)
    assert vault.verify().ok
    print("left:", [entry.path for entry in vault.files])
