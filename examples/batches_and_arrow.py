"""Encrypt many small values in one call: messages, and columns of an Arrow table that stay rows."""

import pyarrow as pa
import pyarrow.parquet as pq

import ags1

key = ags1.Key.generate()

# 100,000 messages, each a stream of its own. The prefix binds each to its number, so they cannot be exchanged.
messages = [b"message %d" % number for number in range(100_000)]
prefixes = ags1.NumberedPrefixes(b"messages/2026-11-22/")
streams = ags1.encrypt_many(messages, key, aad_prefixes=prefixes)
print(len(streams), "streams in one arena of", streams.nbytes, "bytes")
assert bytes(ags1.decrypt(streams[7], key, aad_prefix=prefixes[7])) == b"message 7"
assert ags1.decrypt_many(streams, key, aad_prefixes=prefixes) == messages

# Memory that is used again costs less than fresh memory.
room = ags1.Batch.reserve(nbytes=16 << 20, count=100_000)
for _ in range(3):
    streams = ags1.encrypt_many(messages, key, aad_prefixes=prefixes, out=room)

# Columns: the values are encrypted, the rows are not moved. Rows can be filtered and joined by the other columns.
table = pa.table({"id": range(1000), "name": [f"person {number}" for number in range(1000)], "age": [30] * 1000})
sealed = ags1.arrow.encrypt_columns(table, ["name", "age"], key, aad_prefix=b"people")
pq.write_table(sealed, "people.parquet")
some = pq.read_table("people.parquet", filters=[("id", "<", 10)])
plain = ags1.arrow.decrypt_columns(some, key, aad_prefix=b"people")
assert plain.equals(table.slice(0, 10))
print(plain.num_rows, "rows decrypted:", plain["name"][0])

# Whole tables between two services: an encrypted Arrow IPC file, of which single batches are read.
metadata = ags1.arrow.write_ipc_file(table, "people.arrow.ags1", key)
with ags1.arrow.open_ipc_file("people.arrow.ags1", key_metadata=metadata) as file:
    print(file.num_record_batches, "batch of", file.read_batch(0).num_rows, "rows")
