"""A dataset and a master key for each tenant: destroying the key destroys its files in every copy and every backup."""

import os
import shutil
from pathlib import Path

import ags1
from ags1 import dataset

# Everything is made in a directory of its own, and made anew in each run.
shutil.rmtree("crypto-shredding", ignore_errors=True)
Path("crypto-shredding").mkdir()
os.chdir("crypto-shredding")

tenants = ("a", "b")
for tenant in tenants:
    folder = Path("customers", f"tenant={tenant}")
    folder.mkdir(parents=True)
    (folder / "orders.csv").write_text(f"id,customer\n1,{tenant}\n")

# MemoryKms stands for a key service, where each of these is a key that can be scheduled for deletion.
master_keys = {f"tenant-{tenant}": bytes(ags1.Key.generate()) for tenant in tenants}
keys = ags1.kms.MemoryKms(master_keys)
for tenant in tenants:
    source, vault = f"customers/tenant={tenant}", f"vault/tenant={tenant}"
    with dataset.encrypt(source, vault, keys, f"tenant-{tenant}") as encrypted:
        print(encrypted.path, "is under", encrypted.key_id)

# Tenant a leaves: its master key is destroyed.
del master_keys["tenant-a"]
afterwards = ags1.kms.MemoryKms(master_keys)

try:
    dataset.open("vault/tenant=a", afterwards)
except ags1.KeyAccessError as error:
    print("shredded:", error)
with dataset.open("vault/tenant=b", afterwards, key_id="tenant-b") as other:
    assert other.open("orders.csv").read() == b"id,customer\n1,b\n"
    assert other.verify().ok

# The ciphertext that is left, and the paths in the names of its objects, are removed like any other directory.
shutil.rmtree("vault/tenant=a")
