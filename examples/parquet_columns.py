"""Encrypt two columns of a Parquet file without decoding it, read it with and without their key, and re-key it."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import ags1
from ags1 import parquet

table = pa.table(
    {
        "id": range(100_000),
        "name": [f"person {number}" for number in range(100_000)],
        "ssn": [f"{number:09}" for number in range(100_000)],
        "salary": [3000.0 + number % 500 for number in range(100_000)],
    }
)
pq.write_table(table, "people.parquet")

# Master keys in a key service; here they are in memory. Each file gets fresh keys, which it carries wrapped.
master_keys = {name: bytes(ags1.Key.generate()) for name in ("lake", "pii", "pii-2027")}
keys = ags1.kms.MemoryKms(master_keys)

# The AAD prefix names the file: a reader that expects this one refuses every other file under the same keys.
encryption = parquet.EncryptionConfig.from_kms(
    keys, "lake", {"pii": ["ssn", "salary"]}, encrypt_all=True, aad_prefix=b"people"
)
parquet.encrypt_file("people.parquet", "vault.parquet", encryption)
assert b"person 99999" not in Path("vault.parquet").read_bytes()

# Whoever has both master keys reads all of it.
decryption = parquet.DecryptionConfig.from_kms(keys, aad_prefix=b"people")
report = parquet.verify_file("vault.parquet", decryption, require_encrypted=["ssn", "salary"])
assert report.ok, str(report)
assert parquet.read_table("vault.parquet", decryption).equals(table)

# Any Parquet reader reads it through a view, and decrypts only the pages that it looks at.
with parquet.open("vault.parquet", decryption) as view:
    print(pq.read_table(view, columns=["name"], pre_buffer=False).num_rows, "names")

# Whoever lacks the master key of the columns reads the others.
analyst = parquet.DecryptionConfig.from_kms(ags1.kms.MemoryKms({"lake": master_keys["lake"]}), aad_prefix=b"people")
with parquet.open("vault.parquet", analyst, missing_keys="drop") as view:
    print("without the key of the columns:", pq.read_table(view, pre_buffer=False).column_names)

# Other keys for the same data; pages are decrypted and encrypted, not decoded.
newer = parquet.EncryptionConfig.from_kms(
    keys, "lake", {"pii-2027": ["ssn", "salary"]}, encrypt_all=True, aad_prefix=b"people"
)
parquet.rekey_file("vault.parquet", "newer.parquet", decryption, newer)
assert parquet.read_table("newer.parquet", decryption).equals(table)
print("re-keyed")

# Another file in its place is noticed, because the prefix that is stored in it is compared with the expected one.
other = parquet.EncryptionConfig.from_kms(keys, "lake", encrypt_all=True, aad_prefix=b"clients")
parquet.encrypt_file("people.parquet", "newer.parquet", other)
try:
    parquet.read_table("newer.parquet", decryption)
except ags1.AuthenticationError as error:
    print("refused:", error)
