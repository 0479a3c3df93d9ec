"""Encrypt many small values: messages in one call, columns of an Arrow table, and a whole Arrow table."""

import os
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import ags1

# The sample is made anew in each run, in a directory of its own.
shutil.rmtree("arrow-values", ignore_errors=True)
Path("arrow-values").mkdir()
os.chdir("arrow-values")
ags1.Key.generate().save("values.key")
key = ags1.Key.load("values.key")

# %%
messages = [b"message %d" % number for number in range(100_000)]
numbers = ags1.NumberedPrefixes(b"messages/2026-11-22/")
sealed = ags1.encrypt_many(messages, key, aad_prefixes=numbers)
print(len(sealed), "encrypted messages,", sealed.nbytes, "bytes")

# %%
assert ags1.decrypt_many(sealed, key, aad_prefixes=numbers) == messages
assert bytes(ags1.decrypt(sealed[7], key, aad_prefix=numbers[7])) == b"message 7"
try:
    ags1.decrypt(sealed[8], key, aad_prefix=numbers[7])
except ags1.AuthenticationError as error:
    print("refused:", error)

# %%
room = ags1.Batch.reserve(nbytes=16 << 20, count=100_000)
for _ in range(3):
    sealed = ags1.encrypt_many(messages, key, aad_prefixes=numbers, out=room)

# %%
people = pa.table({"id": range(1000), "name": [f"person {each}" for each in range(1000)], "age": [30] * 1000})
hidden = ags1.arrow.encrypt_columns(people, ["name", "age"], key, aad_prefix=b"people")
pq.write_table(hidden, "people.parquet")

# %%
stored = pq.read_table("people.parquet", filters=[("id", "<", 10)])
assert stored.schema.field("name").type == pa.large_binary()
assert ags1.arrow.decrypt_columns(stored, key, aad_prefix=b"people").equals(people.slice(0, 10))

# %%
ags1.arrow.write_ipc_file(people, "people.arrow.ags1", ags1.Key.generate()).save("people.key-metadata")
metadata = ags1.KeyMetadata.load("people.key-metadata")
with ags1.arrow.open_ipc_file("people.arrow.ags1", key_metadata=metadata) as file:
    assert file.read_batch(0).num_rows == 1000
