"""Writing encrypted Iceberg tables: manifests, snapshots and metadata, made so that Iceberg Java reads them.

manifest_avro   manifests and manifest lists, written in format version 3
metadata        a table's metadata as JSON that is edited: snapshots, refs, properties, the upgrade to version 3
snapshot        one new snapshot: its manifests, its manifest list, its key, its place in the metadata
commit          the small files of a commit, each under a key of its own; the commit, retried after a lost race
partitioning    rows by partition, their transforms, and single values as manifests have them
data_files      rows into data files, with their metrics
change          a change of rows: its plan, its manifests, its commit
operations      append, delete, overwrite, upsert
"""
