"""Encrypt a directory or a bucket, bring it up to date, read it, and look at an older version.

python encrypt_a_bucket.py [SOURCE TARGET]      paths or URLs; by default raw/ and vault/ in encrypt-a-bucket/
"""

import os
import shutil
import sys
from pathlib import Path

import ags1
from ags1 import dataset

if len(sys.argv) == 3:
    source, target = sys.argv[1:]
else:
    source, target = "raw", "vault"
    # Everything is made in a directory of its own, and made anew in each run.
    shutil.rmtree("encrypt-a-bucket", ignore_errors=True)
    Path("encrypt-a-bucket").mkdir()
    os.chdir("encrypt-a-bucket")
    for day in (1, 2, 3):
        folder = Path(source, f"day={day}")
        folder.mkdir(parents=True)
        (folder / "sales.csv").write_text(f"id,amount\n{day},{day}.50\n")

# Master keys. With a key service this is one line: keys = ags1.kms.load("aws:?region=eu-central-1")
key_file = Path("keystore.key")
ags1.Key.generate().save(key_file)
keys = ags1.kms.LocalKms.create("keys.json", key_file=key_file)
keys.add_key("lake")

with dataset.encrypt(source, target, keys, "lake") as vault:
    print(f"version {vault.version}: {vault.report.done} files, {vault.report.done_bytes} bytes")

# Again: only what is new or changed is encrypted.
if source == "raw":
    Path("raw/day=3/sales.csv").write_text("id,amount\n3,3.50\n4,4.50\n")
with dataset.encrypt(source, target, keys, "lake") as vault:
    print(f"version {vault.version}: {vault.report.done} files encrypted, {vault.report.unchanged} unchanged")

with dataset.open(target, keys) as vault:
    report = vault.verify()
    assert report.ok, report.problems
    first = next(iter(vault.files)).path
    with vault.open(first) as file:
        print(first, "begins with", file.read(9))
    vault.decrypt("plain", include="day=1/*")

with dataset.open(target, keys, version=1) as before:
    print(f"version 1 has {len(before.files)} files")
