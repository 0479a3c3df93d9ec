"""Writing encrypted Iceberg tables: manifests, snapshots and metadata, made so that Iceberg Java reads them.

manifest_avro   manifests and manifest lists, written in format version 3
metadata        a table's metadata as JSON that is edited: snapshots, refs, properties, the upgrade to version 3
table_files     small files of a table (manifests, lists, Puffin files), each encrypted under a key of its own
snapshot        one new snapshot: its manifests, its manifest list, its key, its place in the metadata
commit          the optimistic commit, retried after a lost race
"""
