"""What to do when a key has leaked or is lost: first find out which files it opens, then encrypt those anew."""

import os
import shutil
from pathlib import Path

import ags1
from ags1 import dataset

# Everything is made in a directory of its own, and made anew in each run.
shutil.rmtree("lost-or-leaked-key", ignore_errors=True)
Path("lost-or-leaked-key").mkdir()
os.chdir("lost-or-leaked-key")

for name in ("a", "b"):
    Path("raw", name).mkdir(parents=True)
    Path("raw", name, "data.csv").write_text(f"id\n{name}\n")

master_keys = {name: bytes(ags1.Key.generate()) for name in ("lake", "lake-new", "lake-newer")}  # of a key service
keys = ags1.kms.MemoryKms(master_keys)
dataset.encrypt("raw", "vault", keys, "lake").close()

# The key of one file has leaked: encrypt that file anew, and remove the old object.
with dataset.open("vault", keys) as vault:
    leaked = "a/data.csv"
    old = vault.key_metadata(leaked)
    vault.decrypt("rescue", include=leaked)
    vault.rm(leaked)
    vault.add("rescue")
    vault.expire(keep=1, older_than=None, grace=0)
    assert bytes(vault.key_metadata(leaked).encryption_key) != bytes(old.encryption_key)
    print(f"{leaked} has another key")
shutil.rmtree("rescue")

# A master key has leaked. Whoever has it and a copy of the dataset can read that copy for ever. A new dataset under
# a new master key has fresh keys for every file, so the leaked one opens nothing of it.
with dataset.open("vault", keys) as vault:
    vault.decrypt("plain", durable=True)
with dataset.encrypt("plain", "vault-new", keys, "lake-new") as new:
    assert new.verify().ok
    print("under", new.key_id)
shutil.rmtree("plain")
shutil.rmtree("vault")

# A master key is lost. Nobody can read the files of its dataset.
del master_keys["lake-new"]
try:
    dataset.open("vault-new", ags1.kms.MemoryKms(master_keys))
except ags1.KeyAccessError as error:
    print("lost:", error)

# Whoever has the source encrypts it anew, under a master key that exists.
shutil.rmtree("vault-new")
with dataset.encrypt("raw", "vault-new", ags1.kms.MemoryKms(master_keys), "lake-newer") as vault:
    assert vault.verify().ok
    print("encrypted anew:", vault.report.done, "files")
