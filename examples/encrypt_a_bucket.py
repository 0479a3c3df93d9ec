"""Encrypt a directory or a bucket into a dataset, bring it up to date, and check it."""

import shutil
from pathlib import Path

import ags1
from ags1 import dataset

work = Path("encrypt-a-bucket")
shutil.rmtree(work, ignore_errors=True)
(work / "raw").mkdir(parents=True)
(work / "raw" / "sales.csv").write_text("id,amount\n1,10.50\n")
ags1.Key.generate().save(work / "keystore.key")

# In earnest: keys = ags1.kms.load("vault:https://vault.example:8200"), and URLs such as "s3://raw"
keys = ags1.kms.LocalKms.create(work / "keys.json", key_file=work / "keystore.key")
keys.add_key("lake")
source, target = work / "raw", work / "vault"

for _ in range(2):  # the second run encrypts only files that are new or changed
    with dataset.encrypt(source, target, keys, "lake") as vault:
        print(f"version {vault.version}: {vault.report.done} encrypted, {vault.report.unchanged} unchanged")

with dataset.open(target, keys) as vault:
    assert vault.verify().ok
    with vault.open("sales.csv", "r", encoding="utf-8") as file:  # or "rb", with pread(offset, size)
        print(file.readline())
