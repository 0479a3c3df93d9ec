"""Wrap and unwrap a key with the service that a URL names.

AGS1_KMS='aws:?region=eu-central-1' AGS1_KEY_ID=alias/lake python key_services.py
"""

import os
from pathlib import Path

import ags1

url, key_id = os.environ.get("AGS1_KMS"), os.environ.get("AGS1_KEY_ID", "lake")
if url is None:
    url = "local:example.json?key_file=example.key"
    if not Path("example.json").exists():
        ags1.Key.generate().save("example.key")
        with ags1.kms.LocalKms.create("example.json", key_file="example.key") as new:
            new.add_key(key_id)

with ags1.kms.load(url) as keys:
    wrapped = keys.wrap_key(bytes(ags1.Key.generate()), key_id)
    assert len(keys.unwrap_key(wrapped, key_id)) == 32
