"""Verify a dataset and a tree of Parquet files, write what was found as JSON, and exit with 1 if something is wrong."""

import json
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import ags1
from ags1 import dataset, parquet

key_file = Path("keystore.key")
keys = ags1.kms.LocalKms("keys.json", key_file=key_file)

# Sample data, made once: a dataset of which the version is pinned, and a directory of Parquet files.
if not Path("keys.json").exists():
    ags1.Key.generate().save(key_file)
    keys.make()
    keys.add_key("lake")
    Path("raw").mkdir()
    Path("raw/sales.csv").write_text("id,amount\n1,10.50\n")
    with dataset.encrypt("raw", "vault", keys, "lake") as vault:
        # Keep the pin where whoever writes the dataset cannot change it.
        Path("pin.json").write_text(json.dumps({"uuid": vault.uuid, "version": vault.version}))
    Path("tables").mkdir()
    pq.write_table(pa.table({"ssn": ["1"]}), "plain.parquet")
    sealing = parquet.EncryptionConfig.from_kms(keys, "lake", aad_prefix=b"tables/sealed.parquet")
    parquet.encrypt_file("plain.parquet", "tables/sealed.parquet", sealing)

findings: list[dict[str, str]] = []

# The dataset: every block of every file, and that it was not put back from an older copy.
pin = json.loads(Path("pin.json").read_text())
with dataset.open("vault", keys, expected_uuid=pin["uuid"], key_id="lake") as vault:
    if vault.version < pin["version"]:
        findings.append({"path": "vault", "kind": "rolled back", "detail": f"version {vault.version}"})
    report = vault.verify()
    findings += [{"path": each.path, "kind": each.kind, "detail": each.detail} for each in report.problems]
    print(f"vault: {report.file_count} files of version {report.version}")

# The Parquet files: authentic, damaged, or not protected; and each the one that its name says, by its AAD prefix.
reading = parquet.DecryptionConfig.from_kms(keys)
tree = parquet.verify_tree(
    "tables", lambda name: reading.with_aad_prefix(f"tables/{name}".encode()), on_error="collect"
)
findings += [{"path": f"tables/{path}", "kind": "error", "detail": str(error)} for path, error in tree.errors]
for path, result in tree.results.items():
    print(f"tables/{path}: {result.outcome}")
    if result.outcome != "authentic":
        findings.append({"path": f"tables/{path}", "kind": str(result.outcome), "detail": str(result)})

Path("report.json").write_text(json.dumps(findings, indent=2))
for finding in findings:
    print("FOUND", finding["path"], finding["kind"])
sys.exit(1 if findings else 0)
