"""The same program with a local keystore, AWS KMS, Google Cloud KMS, Azure Key Vault or Vault: one URL decides.

AGS1_KMS='aws:?region=eu-central-1' AGS1_KEY_ID=alias/lake python key_services.py
"""

import os
import shutil
from pathlib import Path

import ags1
from ags1 import dataset

# Everything is made in a directory of its own, and made anew in each run.
shutil.rmtree("key-services", ignore_errors=True)
Path("key-services").mkdir()
os.chdir("key-services")

url, key_id = os.environ.get("AGS1_KMS"), os.environ.get("AGS1_KEY_ID", "lake")
if url is None:
    ags1.Key.generate().save("keystore.key")
    with ags1.kms.LocalKms.create("keys.json", key_file="keystore.key") as new:
        new.add_key(key_id)
    url = "local:keys.json?key_file=keystore.key"

Path("raw").mkdir()
Path("raw/sales.csv").write_text("id,amount\n1,10.50\n")

with ags1.kms.load(url) as keys:
    # A key of your own, wrapped and unwrapped: what Iceberg Java and PyIceberg do with the same service.
    wrapped = keys.wrap_key(bytes(ags1.Key.generate()), key_id)
    assert len(keys.unwrap_key(wrapped, key_id)) == 32

    # One call to the service opens any number of files.
    with dataset.encrypt("raw", "vault", keys, key_id) as vault:
        assert vault.verify().ok
        print(f"encrypted under {vault.key_id} of {type(keys).__name__}")
