"""Verify the dataset and the Parquet files that the commands of the page made, and write all findings as JSON."""

import json
import sys
from pathlib import Path

import ags1
from ags1 import dataset, parquet

keys = ags1.kms.load("local:keys.json?key_file=keystore.key")
pins = dataset.Pins.load("pins/lake.pin")
with dataset.open("vault", keys, pins=pins) as vault:
    findings = [(each.subject, each.code, each.message) for each in vault.verify().findings]

reading = parquet.DecryptionConfig.from_kms(keys)
tree = parquet.verify_tree(
    "tables", lambda name: reading.with_aad_prefix(f"tables/{name}".encode()), on_error="collect"
)
findings += [(each.subject, each.code, each.message) for each in tree.findings if each.outcome]

Path("report.json").write_text(json.dumps(findings, indent=2))
sys.exit(1 if findings else 0)
